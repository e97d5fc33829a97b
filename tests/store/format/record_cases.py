"""The case table of the record codec: each case is a value and its bytes, put together here field by field."""

import socket
import struct
import zlib
from dataclasses import dataclass

from store.format.host import Host
from store.format.record import MAGIC_V1, MAGIC_V2, Record

V4 = (Host("10.1.2.3", 10911), bytes([10, 1, 2, 3, 0, 0, 0x2A, 0x9F]))
V6 = (Host("2001:db8::2", 1001), socket.inet_pton(socket.AF_INET6, "2001:db8::2") + bytes([0, 0, 0x03, 0xE9]))
PLAIN = b"KEYS\x01k1 k2\x02UNIQ_KEY\x017F0000010001\x02TAGS\x01TagA\x02"
COMMIT_LOG_OFFSET = 1 << 33


@dataclass(frozen=True)
class Case:
    """One record and its frame."""

    name: str
    record: Record
    frame: bytes

    @property
    def has_crc(self) -> bool:
        return b"__CRC32#" in self.record.properties_bytes


def make_case(
    name: str,
    *,
    magic: int = MAGIC_V1,
    born: tuple[Host, bytes] = V4,
    store: tuple[Host, bytes] = V4,
    topic: str = "orders",
    body: bytes = b"hello",
    properties: bytes = PLAIN,
    with_crc: bool = False,
    sys_flag: int = 0,
) -> Case:
    """A case from its parts; the frame is assembled without the code under test."""
    sys_flag |= (0x10 if ":" in born[0].ip else 0) | (0x20 if ":" in store[0].ip else 0)
    topic_bytes = topic.encode()
    properties_size = len(properties) + (20 if with_crc else 0)
    length = struct.pack(">B" if magic == MAGIC_V1 else ">h", len(topic_bytes))
    body_crc = zlib.crc32(body) & 0x7FFFFFFF
    rest = b"".join(
        (
            struct.pack(">i", magic),
            struct.pack(">i", body_crc),
            struct.pack(">i", 3),  # queue id
            struct.pack(">i", -7),  # flag
            struct.pack(">q", 41),  # queue offset
            struct.pack(">q", COMMIT_LOG_OFFSET),
            struct.pack(">i", sys_flag),
            struct.pack(">q", 1_700_000_000_001),  # born time
            born[1],
            struct.pack(">q", 1_700_000_000_002),  # store time
            store[1],
            struct.pack(">i", 2),  # reconsume times
            struct.pack(">q", 77),  # prepared transaction offset
            struct.pack(">i", len(body)),
            body,
            length,
            topic_bytes,
            struct.pack(">h", properties_size),
            properties,
        )
    )
    size = 4 + len(rest) + (20 if with_crc else 0)
    frame = struct.pack(">i", size) + rest
    if with_crc:
        crc = zlib.crc32(frame) & 0x7FFFFFFF
        digits = "".join(str(crc // 10**place % 10) for place in range(10))
        closing = b"__CRC32#\x01" + digits.encode() + b"\x02"
        frame, properties = frame + closing, properties + closing
    record = Record(
        topic=topic,
        queue_id=3,
        queue_offset=41,
        commit_log_offset=COMMIT_LOG_OFFSET,
        store_size_bytes=size,
        flag=-7,
        sys_flag=sys_flag,
        born_time_millis=1_700_000_000_001,
        born_host=born[0],
        store_time_millis=1_700_000_000_002,
        store_host=store[0],
        reconsume_times=2,
        prepared_transaction_offset=77,
        body_crc=body_crc,
        body=body,
        properties_bytes=properties,
        magic=magic,
    )
    return Case(name, record, frame)


CASES = [
    make_case(
        f"{'V1' if magic == MAGIC_V1 else 'V2'}-born{4 if born is V4 else 6}-store{4 if store is V4 else 6}"
        f"{'-crc' if with_crc else ''}",
        magic=magic,
        born=born,
        store=store,
        topic="orders" if magic == MAGIC_V1 else "t" * 200,
        with_crc=with_crc,
    )
    for magic in (MAGIC_V1, MAGIC_V2)
    for born in (V4, V6)
    for store in (V4, V6)
    for with_crc in (False, True)
] + [
    make_case("empty body", body=b""),
    make_case("no properties", properties=b""),
    make_case("nothing but the frame's CRC", body=b"", properties=b"", with_crc=True),
    make_case("topic of 127 bytes", topic="x" * 127),
    make_case("topic with two-byte length though short", magic=MAGIC_V2, topic="short"),
    make_case("Chinese topic and tags", topic="订单", properties="TAGS\x01创建\x02".encode()),
    make_case("last property not closed", properties=b"TAGS\x01A"),
    make_case("every sysFlag bit", sys_flag=0x7CF),
    make_case("properties of 32,767 bytes", properties=b"a\x01" + b"v" * 32765),
]
