"""Compressed bodies against what RocketMQ's own compressors make, the libraries themselves, and damage."""

import contextlib
import re
import sys
import tracemalloc
import zlib
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.body_compression import BodyNotInflatedError, compression_name, inflate, inflate_begin
from tests.support.compressed_bodies import BODY, LZ4_FLAG, STORED, ZLIB_FLAG, ZSTD_FLAG

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSORS = {ZLIB_FLAG: zlib.compress, LZ4_FLAG: lz4.frame.compress, ZSTD_FLAG: zstd.compress}
BOUND_BYTES = 16 << 20


@pytest.mark.parametrize("sys_flag", STORED)
def test_what_rocketmq_compresses_comes_back(sys_flag: int) -> None:
    assert inflate(STORED[sys_flag], sys_flag | 0x10, len(BODY)) == BODY
    assert inflate_begin(STORED[sys_flag], sys_flag, 100) == (BODY[:100], False)


@pytest.mark.parametrize(
    ("sys_flag", "name"),
    [
        (0x0, "none"),
        (0x300, "none"),
        (0x1, "zlib"),
        (0x301, "zlib"),
        (0x101, "lz4"),
        (0x231, "zstd"),
        *((0x401 + 0x100 * number, "unknown") for number in range(4)),
    ],
)
def test_the_method_is_named(sys_flag: int, name: str) -> None:
    assert compression_name(sys_flag) == name


@given(st.binary(max_size=3_000), st.sampled_from(sorted(COMPRESSORS)), st.integers(0, 3_000))
def test_bodies_up_to_the_bound_come_back_and_no_other(body: bytes, sys_flag: int, bound_bytes: int) -> None:
    stored = COMPRESSORS[sys_flag](body)

    assert inflate(stored, 0, 0) == stored
    assert inflate(stored, sys_flag, len(body)) == body
    assert inflate_begin(stored, sys_flag, bound_bytes + 1)[0] == body[: bound_bytes + 1]
    if bound_bytes < len(body):
        with pytest.raises(BodyNotInflatedError, match=f"over {bound_bytes} bytes") as refused:
            inflate(stored, sys_flag, bound_bytes)
        assert not refused.value.is_damaged


@pytest.mark.parametrize("sys_flag", STORED)
def test_a_stream_that_is_cut_anywhere_is_damaged(sys_flag: int) -> None:
    stored = STORED[sys_flag]
    for end in range(len(stored)):
        with pytest.raises(BodyNotInflatedError) as refused:
            inflate(stored[:end], sys_flag, BOUND_BYTES)
        assert refused.value.is_damaged


@pytest.mark.parametrize("sys_flag", STORED)
def test_bytes_of_another_kind_are_damaged(sys_flag: int) -> None:
    for stored in (b"nothing of the kind", bytes(100)):
        with pytest.raises(BodyNotInflatedError) as refused:
            inflate(stored, sys_flag, BOUND_BYTES)
        assert refused.value.is_damaged


@given(st.sampled_from(sorted(STORED)), st.data())
def test_whatever_the_bytes_are_the_bound_holds(sys_flag: int, data: st.DataObject) -> None:
    stored = bytearray(STORED[sys_flag])
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    for bound_bytes in (384, 2 * len(BODY)):
        with contextlib.suppress(BodyNotInflatedError):
            assert len(inflate(bytes(stored), sys_flag, bound_bytes)) <= bound_bytes
        with contextlib.suppress(BodyNotInflatedError):
            assert len(inflate_begin(bytes(stored), sys_flag, bound_bytes)[0]) <= bound_bytes


def test_the_begin_of_a_body_that_is_not_compressed_is_cut_from_it() -> None:
    assert inflate_begin(b"body", 0, 3) == (b"bod", False)
    assert inflate_begin(b"body", 0x300, 4) == (b"body", True), "the method counts only with the compressed bit"


def test_bytes_behind_a_frame_are_damage_and_behind_zlib_nothing() -> None:
    """RocketMQ's InflaterInputStream ends at the stream's end, its frame readers go on into what is no frame."""
    assert inflate(STORED[ZLIB_FLAG] + b"xx", ZLIB_FLAG, len(BODY)) == BODY
    for sys_flag in (LZ4_FLAG, ZSTD_FLAG):
        with pytest.raises(BodyNotInflatedError, match="2 bytes follow its end"):
            inflate(STORED[sys_flag] + b"xx", sys_flag, len(BODY))


def test_a_method_without_a_name_is_no_damage() -> None:
    for ask in (inflate, inflate_begin):
        with pytest.raises(BodyNotInflatedError, match="method 5") as refused:
            ask(b"anything", 0x501, 100)
        assert not refused.value.is_damaged


def bombs() -> dict[int, bytes]:
    """256 MiB each, of little more than 1 MiB; Zstandard's with the largest window that its readers take."""
    window = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.compression_level: 1}
    made = {flag: bytearray() for flag in COMPRESSORS}
    makers = (
        (ZLIB_FLAG, zlib.compressobj(1)),
        (LZ4_FLAG, lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        (ZSTD_FLAG, zstd.ZstdCompressor(options=window)),
    )
    part = bytes(16 << 20)
    for flag, maker in makers:
        made[flag] += maker.begin() if flag == LZ4_FLAG else b""
        for _ in range(16):
            made[flag] += maker.compress(part)
        made[flag] += maker.flush()
    return {flag: bytes(content) for flag, content in made.items()}


def peak_memory_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1])


def test_a_bomb_costs_no_more_than_its_bound() -> None:
    stored = bombs()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before_bytes = peak_memory_bytes()
    for sys_flag, bomb in stored.items():
        with pytest.raises(BodyNotInflatedError, match="over"):
            inflate(bomb, sys_flag, BOUND_BYTES)
        assert inflate_begin(bomb, sys_flag, 384) == (bytes(384), False)
    # Twice what comes out, and the decoders' own windows.
    assert peak_memory_bytes() - before_bytes < 5 * BOUND_BYTES


def test_ten_bytes_that_were_said_to_be_lz4_took_the_memory_of_the_largest_body() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BodyNotInflatedError):
            inflate(bytes.fromhex("04224d18604082000000"), LZ4_FLAG, BOUND_BYTES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BOUND_BYTES // 16


@pytest.mark.parametrize("size_bytes", [1, 4 << 10, 1 << 20, BOUND_BYTES])
def test_what_lz4_makes_as_small_as_it_can_comes_back(size_bytes: int) -> None:
    packed = lz4.frame.compress(bytes(size_bytes), compression_level=12, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    assert inflate(packed, LZ4_FLAG, BOUND_BYTES) == bytes(size_bytes)
