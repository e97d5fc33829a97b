"""A body as RocketMQ's own compressors store it.

Made by `CompressorFactory.getCompressor(type).compress(BODY, 5)` of Apache RocketMQ 5.3.3, with the libraries that it brings:
lz4-java 1.8.0, zstd-jni 1.5.2-2, the JDK's Deflater; 5 is its producers' default level.
"""

BODY = "again and again, 订单 ".encode() * 1000

ZLIB_FLAG, LZ4_FLAG, ZSTD_FLAG = 0x301, 0x101, 0x201  # CompressionType.getCompressionFlag() | COMPRESSED_FLAG

ZLIB = bytes.fromhex(
    "785eedc84109c0301000412b2720a60e02a59f7392670c44405d052aa394cae8fc76278f3c2bb27ae45b2dee6bed31bfe39c73ce"
    "39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c73ce39e7"
    "9cf31ff9034cb1877a"
)
LZ4 = bytes.fromhex(
    "04224d186070737f000000a1616761696e20616e64200a00822c20e8aea2e58d950e000f1800ffffffffffffffffffffffffffff"
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffe850a2e58d952000000000"
)
ZSTD = bytes.fromhex("28b52ffd0058f4000090616761696e20616e64202c20e8aea2e58d950300a0ddce0d62226f5b90010000")

# By the flag that the producer sets with it; without a type it is zlib, of producers that knew no other.
STORED = {0x001: ZLIB, ZLIB_FLAG: ZLIB, LZ4_FLAG: LZ4, ZSTD_FLAG: ZSTD}
