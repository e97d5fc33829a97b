"""Logs that hold a record of every kind, written by the codec itself: for tests that tear, flip and mix their bytes.

A zoo has 24 records in two files with a blank between them: V1 and V2 frames, all four pairs of host families, batch and
transaction flags, compressed and empty bodies, odd properties (none, not closed, with a separator in a value, not UTF-8,
with NUL bytes inside), with or without the `__CRC32#` that guards the whole frame.
"""

import random
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from store.format.host import Host
from store.format.record import (
    BLANK_SIZE_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    decode_record,
    encode_blank,
    encode_record,
)
from store.format.record_layout import (
    CRC_PROPERTY_SIZE_BYTES,
    TOPIC_SIZE_BYTES_MAX_V1,
    encode_crc_property,
    masked_crc,
)
from store.format.sys_flag import BORN_HOST_V6, INNER_BATCH, MULTI_TAGS, STORE_HOST_V6

FILE_BYTES = 3072
T0 = 1_700_000_000_000
V4, V6 = Host("10.1.2.3", 4711), Host("2001:db8::7", 65535)

# topic, system flag (host bits apart), hosts, body, properties
Kind = tuple[str, int, Host, Host, bytes, bytes]
_KINDS: tuple[Kind, ...] = (
    ("orders", 0, V4, V4, b"hello", b"KEYS\x01k1\x02TAGS\x01a\x02UNIQ_KEY\x01U1\x02"),
    ("orders", 0, V4, V4, b"", b"KEYS\x01k1 k2\x02"),
    ("orders", 0, V4, V4, b"\0" * 40, b"TAGS\x01zeros\x02"),
    ("v2-" + "x" * 197, 0, V4, V4, b"a long topic takes the second magic", b"UNIQ_KEY\x01U2\x02"),
    ("orders", 0, V6, V4, b"born on IPv6", b"KEYS\x01k6\x02"),
    ("orders", 0, V4, V6, b"stored on IPv6", b"KEYS\x01k6\x02"),
    ("orders", 0, V6, V6, b"both", b"KEYS\x01k6\x02TAGS\x01b\x02"),
    ("v2-" + "y" * 125, 0, V6, V6, b"V2 and IPv6", b""),
    ("batches", INNER_BATCH | MULTI_TAGS, V4, V4, b"\x00\x00\x00\x02ab", b"INNER_NUM\x012\x02"),
    ("RMQ_SYS_TRANS_HALF_TOPIC", 0, V4, V4, b"half", b"TRAN_MSG\x01true\x02REAL_TOPIC\x01orders\x02"),
    ("orders", 0x4, V4, V4, b"prepared", b"TRAN_MSG\x01true\x02UNIQ_KEY\x01U3\x02"),
    ("orders", 0x8, V4, V4, b"committed", b"TRAN_MSG\x01true\x02UNIQ_KEY\x01U3\x02"),
    ("orders", 0xC, V4, V4, b"rolled back", b"TRAN_MSG\x01true\x02UNIQ_KEY\x01U4\x02"),
    ("orders", 0x301, V4, V4, zlib.compress(b"compressed " * 9), b"KEYS\x01z\x02"),
    ("orders", 0, V4, V4, b"no properties at all", b""),
    ("orders", 0, V4, V4, b"the last property is not closed", b"KEYS\x01open\x02p\x01v"),
    ("orders", 0, V4, V4, b"a separator in a value", b"p\x01a\x01b\x02KEYS\x01sep\x02"),
    ("orders", 0, V4, V4, b"NUL inside", b"p\x01a\x00\x00b\x02KEYS\x01nul\x02"),
    ("orders", 0, V4, V4, b"Chinese", "KEYS\x01键 订单\x02".encode()),
    # Without RETRY_TOPIC: a wrong `__CRC32#` beside it is taken for a broker's copy of another record's (ADR 0054).
    ("%RETRY%group", 0, V4, V4, b"again", b"RETRY_TIMES\x01orders\x02ORIGINAL_MESSAGE\x01U1\x02"),
    ("SCHEDULE_TOPIC_XXXX", 0, V4, V4, b"later", b"DELAY\x013\x02REAL_QID\x010\x02REAL_TOPIC\x01orders\x02"),
    ("orders", 0, V4, V4, bytes(range(256)), b"KEYS\x01bytes\x02"),
    ("orders", 0, V4, V4, b"\xda\xa3\x20\xa7" * 6, b"KEYS\x01magic\x02"),  # bodies that look like a head
    ("orders", 0, V4, V4, b"the last one", b"KEYS\x01k1\x02TAGS\x01end\x02UNIQ_KEY\x01U9\x02"),
)


@dataclass(frozen=True, slots=True)
class Zoo:
    """A log of two files.

    Attributes:
        data: both files, end to end.
        records: in log order.
        end_offset: behind the last record.
    """

    data: bytes
    records: tuple[Record, ...]
    end_offset: int

    def write_to(self, root: Path, data: bytes | None = None) -> Path:
        """Makes a store root of it, or of other bytes; returns the root."""
        directory = root / "commitlog"
        directory.mkdir(parents=True, exist_ok=True)
        log = self.data if data is None else data
        for at in range(0, len(log), FILE_BYTES):
            (directory / f"{at:020d}").write_bytes(log[at : at + FILE_BYTES])
        return root

    def frame(self, number: int) -> bytes:
        """The bytes of record `number`."""
        record = self.records[number]
        return self.data[record.commit_log_offset : record.next_offset]


@lru_cache
def make_zoo(*, with_crc: bool = True, seed: int = 0) -> Zoo:
    """A zoo; another seed gives other bodies, times and flags at other places: a log to take old bytes from."""
    random_ = random.Random(seed)
    data = bytearray()
    queue_offsets: dict[tuple[str, int], int] = {}
    records: list[Record] = []
    for number, (topic, flags, born, store, body, properties) in enumerate(_KINDS):
        if seed:
            body = random_.randbytes(len(body) + random_.randrange(8)) if body else b""  # noqa: PLW2901
        queue_id = number % 2
        is_queued = flags & 0xC not in (0x4, 0xC)
        queue_offset = queue_offsets.get((topic, queue_id), 0) if is_queued else 0
        if is_queued:
            queue_offsets[topic, queue_id] = queue_offset + 1
        record = Record(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_log_offset=len(data),
            store_size_bytes=0,
            flag=random_.randrange(-(1 << 31), 1 << 31),
            sys_flag=flags | BORN_HOST_V6 * born.is_ipv6 | STORE_HOST_V6 * store.is_ipv6,
            born_time_millis=T0 + number * 700 - 3,
            born_host=born,
            store_time_millis=T0 + number * 700,
            store_host=store,
            reconsume_times=number % 3,
            prepared_transaction_offset=len(data) // 2 if flags & 0xC else 0,
            body_crc=masked_crc(body),
            body=body,
            properties_bytes=properties,
            magic=MAGIC_V1 if len(topic) <= TOPIC_SIZE_BYTES_MAX_V1 else MAGIC_V2,
        )
        frame = _encode(record, with_crc=with_crc)
        left = -len(data) % FILE_BYTES or FILE_BYTES
        if len(frame) + BLANK_SIZE_BYTES > left:
            # RocketMQ leaves whatever was there behind the eight bytes.
            data += encode_blank(left).ljust(left, b"\0")
            frame = _encode(replace(record, commit_log_offset=len(data)), with_crc=with_crc)
        record = decode_record(frame, commit_log_offset=len(data))
        records.append(record)
        data += frame
    end_offset = len(data)
    assert FILE_BYTES < end_offset < 2 * FILE_BYTES, end_offset
    return Zoo(bytes(data).ljust(2 * FILE_BYTES, b"\0"), tuple(records), end_offset)


def _encode(record: Record, *, with_crc: bool) -> bytes:
    return encode_guarded(record) if with_crc else encode_record(record)


def encode_guarded(record: Record) -> bytes:
    """The frame with a right `__CRC32#` behind the record's properties."""
    properties = record.properties_bytes
    gap = b"\x02" if properties and not properties.endswith(b"\x02") else b""
    frame = encode_record(replace(record, properties_bytes=properties + gap + encode_crc_property(0)))
    guarded = frame[:-CRC_PROPERTY_SIZE_BYTES]
    return guarded + encode_crc_property(masked_crc(guarded))
