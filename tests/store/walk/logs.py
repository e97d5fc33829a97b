"""Logs for kernel tests: made by the plain codec, ordinary records and odd ones side by side, and damaged at random."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from store.files.mapped_files import MappedFileQueue
from store.format.host import Host
from store.format.record import PreparedMessage, encode_blank, patch_record, prepare_record
from tests.torture.memory_files import MemoryFileSystem

V4, V6 = Host("10.1.2.3", 10911), Host("2001:db8::2", 1001)
BASE = (1 << 33) + 7
DIRECTORY = Path("/commitlog")
INT_MIN_TAGS = "polygenelubricants"  # its Java hash is -2^31


def key_with_hash_int_min(topic: str) -> str:
    """A key whose `topic#key` has the one Java hash that has no positive twin."""
    size, lowest = 7, 40
    prefix = 0
    for character in f"{topic}#":
        prefix = prefix * 31 + ord(character)
    offset = sum(lowest * 31**place for place in range(size))
    value = ((1 << 31) - prefix * 31**size - offset) % (1 << 32) + (1 << 32)
    digits = [value // 31**place % 31 for place in range(size - 1, -1, -1)]
    return "".join(chr(digit + lowest) for digit in digits)


def message(
    topic: str = "orders",
    properties: str | bytes = "KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02",
    *,
    queue_id: int = 3,
    body: bytes = b"hello",
    sys_flag: int = 0,
    born_host: Host = V4,
    store_host: Host = V4,
    guarded: bool = True,
) -> PreparedMessage:
    """A message; ordinary unless told otherwise."""
    data = properties if isinstance(properties, bytes) else properties.encode()
    return PreparedMessage(
        topic, queue_id, body, data, 1_700_000_000_000, born_host, store_host,
        sys_flag=sys_flag, properties_crc=guarded,
    )  # fmt: skip


def frames_of(messages: Sequence[PreparedMessage], *, base: int = BASE) -> list[bytes]:
    """Their frames, one behind the other from commit-log offset `base` on."""
    frames: list[bytes] = []
    offset = base
    for number, prepared in enumerate(messages):
        frame = prepare_record(prepared)
        patch_record(frame, 40 + number, offset, 1_700_000_000_100 + number * 37 % 50)
        frames.append(bytes(frame))
        offset += len(frame)
    return frames


ODD = [
    message(),
    message(body=b""),
    message(body=bytes(3000)),
    message(properties=""),
    message(properties="TAGS\x01not closed"),
    message(properties="KEYS\x01 a  b \x02KEYS\x01  \x02"),
    message(properties="KEYS\x01first\x02TAGS\x01first\x02UNIQ_KEY\x01first\x02KEYS\x01later\x02TAGS\x01later\x02UNIQ_KEY\x01later\x02"),
    message(properties="KEYS\x01kept\x02KEYS\x01\x02TAGS\x02UNIQ_KEY\x02\x02\x01\x02=\x01"),
    message(properties="XKEYS\x01no\x02KEYSX\x01no\x02 TAGS\x01no\x02TAGS\x01a\x01b\x02tags\x01no\x02"),
    message(properties="UNIQ_KEY\x01订单\x02"),
    message(properties="KEYS\x01plain 订单\x02"),
    message(properties="TAGS\x01创建\x02"),
    message(properties="TAGS\x01kept by the later\x02other\x01创建\x02"),
    message(properties=b"TAGS\x01\xff\xfe\x02KEYS\x01\xed\xa0\x80\x02"),
    message(properties=f"TAGS\x01{INT_MIN_TAGS}\x02KEYS\x01{key_with_hash_int_min('orders')}\x02"),
    message(topic="订单"),
    message(topic="t"),
    message(topic="x" * 127),
    message(topic="y" * 200),
    message(topic="z" * 200, guarded=False, born_host=V6),
    message(topic="SCHEDULE_TOPIC_XXXX", properties="DELAY\x013\x02TAGS\x01a\x02"),
    message(topic="SCHEDULE_TOPIC_XXXY", properties="DELAY\x013\x02TAGS\x01a\x02"),
    message(born_host=V6),
    message(store_host=V6),
    message(born_host=V6, store_host=V6, queue_id=-1),
    *[message(sys_flag=transaction) for transaction in (4, 8, 12)],
    message(sys_flag=0x7CF),
    message(guarded=False),
    message(guarded=False, properties=""),
    message(guarded=False, properties="a\x01b\x02__CRD32#\x010123456789\x02"),
    message(guarded=False, properties="last\x01not closed"),
    message(guarded=False, properties="last\x01"),
    message(guarded=False, properties="a\x01b\x02name only"),
    message(guarded=False, properties="a\x01b\0"),
    message(guarded=False, properties="__CRC32#\x01short"),
    message(guarded=False, properties="name\x01订单\x02"),
    message(properties="TAGS\x01a\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x017,0\x02KEYS\x01k\x02"),
    message(topic="%RETRY%g", properties="INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"),
    message(properties="INNER_MULTI_DISPATCH\x01%LMQ%a\x02"),
    message(properties="INNER_MULTI_DISPATCH\x01\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"),
]  # fmt: skip


def mixed_log(chance: random.Random, count: int, *, base: int = BASE, odd_share: float = 0.2) -> bytes:
    """`count` records, some of them odd."""
    topics = ["orders", "payments", "t"]
    return b"".join(
        frames_of(
            [
                chance.choice(ODD)
                if chance.random() < odd_share
                else message(
                    chance.choice(topics), queue_id=chance.randrange(4), body=chance.randbytes(chance.randrange(90))
                )
                for _ in range(count)
            ],
            base=base,
        )
    )


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The bytes with some of them changed: bits, bytes, numbers where lengths lie, stretches, or the end cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(changed))
        match chance.randrange(6):
            case 0:
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                changed[at] = chance.choice((0, 1, 2, 0x20, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 2:
                number = chance.choice((0, -1, 1, 90, 91, 127, 128, 1 << 31, (1 << 31) - 1, chance.randrange(400)))
                changed[at : at + 4] = struct.pack(">I", number & 0xFFFFFFFF)
            case 3:
                changed[at : at + chance.randrange(40)] = bytes(chance.randrange(40))
            case 4:
                other = chance.randrange(len(changed))
                changed[at : at + 30] = changed[other : other + 30]
            case _:
                del changed[chance.randrange(len(changed)) :]
        if not changed:
            return data[: chance.randrange(1, len(data))]
    return bytes(changed)


_texts = st.text(alphabet=st.sampled_from("ab T\x01\x02é订"), max_size=12)
_properties = st.lists(
    st.tuples(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "other", ""]), _texts), max_size=5
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs))

messages = st.lists(
    st.builds(
        message,
        st.sampled_from(["orders", "payments", "订单", "a" * 130, "SCHEDULE_TOPIC_XXXX", "t"]),
        _properties,
        queue_id=st.integers(-(1 << 31), (1 << 31) - 1),
        body=st.binary(max_size=200),
        sys_flag=st.sampled_from([0, 1, 4, 8, 12, -16]),
        born_host=st.sampled_from([V4, V6]),
        store_host=st.sampled_from([V4, V6]),
        guarded=st.booleans(),
    ),
    max_size=12,
)


def open_files(*contents: bytes) -> MappedFileQueue:
    """A log in memory whose files hold these bytes and zeros; all as long as the longest."""
    fs = MemoryFileSystem()
    size = max(map(len, contents))
    for number, content in enumerate(contents):
        fs.put(DIRECTORY / f"{number * size:020d}", content + bytes(size - len(content)))
    files = MappedFileQueue(fs, DIRECTORY, size, writable=False)  # type: ignore[arg-type]
    files.load()
    return files


def closed(*frames: bytes, size_bytes: int) -> bytes:
    """A whole file that a blank closes."""
    data = b"".join(frames)
    return data + encode_blank(size_bytes - len(data)) + bytes(size_bytes - len(data) - 8)
