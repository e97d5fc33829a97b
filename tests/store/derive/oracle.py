"""What queues and indexes must hold, from the raw bytes of a log, by the shortest way and one record after the other.

It shares no code with the product, so the builders and fsck cannot be wrong together. Slow, and in memory only.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

V1, V2 = 0xDAA320A7 - (1 << 32), 0xDAA320AB - (1 << 32)
FRAME_BYTES_MIN = 91  # 88 fixed bytes with IPv4 hosts, no body, lengths of topic and properties, no topic
BURNT_POSITION_COUNT = 4096
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
DELAY_SECONDS = [1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]


class LogRecord(NamedTuple):
    """What a record says; offset and size in bytes, position in units."""

    topic: str
    queue_id: int
    position: int
    offset: int
    size: int
    sys_flag: int
    store_millis: int
    properties: dict[str, str]

    @property
    def transaction(self) -> str:
        return ("none", "prepared", "committed", "rolled back")[self.sys_flag >> 2 & 3]


def java_hash(text: str) -> int:
    value = 0
    for unit in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit[0]) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


def parse(log: bytes, base: int = 0) -> Iterator[LogRecord]:
    """The records of a log without damage, up to its end or to zeros."""
    at = 0
    while at + 8 <= len(log):
        size, magic = struct.unpack_from(">ii", log, at)
        if magic not in (V1, V2):
            return
        (queue_id,), (position,), (sys_flag,) = (
            struct.unpack_from(form, log, at + where) for form, where in ((">i", 12), (">q", 20), (">i", 36))
        )
        behind_born = at + 48 + (20 if sys_flag & 0x10 else 8)
        (store_millis,) = struct.unpack_from(">q", log, behind_born)
        behind_store = behind_born + 8 + (20 if sys_flag & 0x20 else 8)
        (body_size,) = struct.unpack_from(">i", log, behind_store + 12)
        topic_at = behind_store + 16 + body_size
        width = 1 if magic == V1 else 2
        topic_size = int.from_bytes(log[topic_at : topic_at + width], "big")
        topic = log[topic_at + width : topic_at + width + topic_size]
        properties_at = topic_at + width + topic_size + 2
        properties = {}
        for pair in log[properties_at : at + size].decode().split("\x02"):
            name, separator, value = pair.partition("\x01")
            if separator and value:
                properties[name] = value
        yield LogRecord(topic.decode(), queue_id, position, base + at, size, sys_flag, store_millis, properties)
        at += size


def unit_of(record: LogRecord) -> bytes:
    tags_code = java_hash(record.properties.get("TAGS", ""))
    delay = record.properties.get("DELAY", "")
    if record.topic == "SCHEDULE_TOPIC_XXXX" and delay.isascii() and delay.isdigit() and int(delay) > 0:
        tags_code = record.store_millis + 1000 * DELAY_SECONDS[min(int(delay), 18) - 1]
    return struct.pack(">qiq", record.offset, record.size, tags_code)


def queue_files(records: Iterable[LogRecord], units_per_file: int) -> dict[str, bytes]:
    """Every queue file by its path below `consumequeue`."""
    queues: dict[tuple[str, int], dict[int, bytes]] = {}
    log_ends: dict[tuple[str, int], int] = {}
    for record in records:
        if record.transaction in ("prepared", "rolled back"):
            continue
        queue_id = record.topic, record.queue_id
        units = queues.setdefault(queue_id, {})
        end = max(units, default=-1) + 1
        room = (record.offset - log_ends.get(queue_id, 0)) // FRAME_BYTES_MIN + BURNT_POSITION_COUNT
        if record.position == 0:
            units.clear()
        elif not end <= record.position <= end + room:
            continue
        units[record.position] = unit_of(record)
        log_ends[queue_id] = record.offset + record.size
    files = {}
    for (topic, queue_id), units in queues.items():
        if not units:
            continue
        first_file, end = min(units) // units_per_file, max(units) + 1
        for number in range(first_file, (end - 1) // units_per_file + 1):
            positions = range(number * units_per_file, (number + 1) * units_per_file)
            data = b"".join(units.get(n, FILLER) if n < end else bytes(20) for n in positions)
            files[f"{topic}/{queue_id}/{number * units_per_file * 20:020d}"] = data
    return files


def keys_of(record: LogRecord) -> list[str]:
    """The `topic#key` strings of a record."""
    if record.transaction == "rolled back":
        return []
    keys = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
    return [f"{record.topic}#{key}" for key in keys if key]


def key_hash(text: str) -> int:
    value = abs(java_hash(text))
    return 0 if value == 1 << 31 else value


class IndexFile:
    """One index file, filled key by key. `seed`: end time (ms) and end offset of the file before, None for the first.

    Attributes:
        header: begin and end time, begin and end offset, used slots, entries + 1.
        slots: number of the newest entry of each.
        entries: hash, offset, seconds, number before; the first is entry 1.
    """

    def __init__(self, slot_count: int, entry_count_max: int, seed: tuple[int, int] | None = None) -> None:
        time, offset = seed or (0, 0)
        self.header = [time, time, offset, offset, 0, 1]
        self.slots = [0] * slot_count
        self.entries: list[tuple[int, int, int, int]] = []
        self.entry_count_max = entry_count_max

    @property
    def is_full(self) -> bool:
        return len(self.entries) + 1 >= self.entry_count_max

    def put(self, hash_: int, offset: int, store_millis: int) -> None:
        begin = self.header[0]
        seconds = min(max((store_millis - begin) // 1000, 0), 2**31 - 1) if begin > 0 else 0
        slot = hash_ % len(self.slots)
        before = self.slots[slot]
        self.entries.append((hash_, offset, seconds, before))
        number = len(self.entries)
        self.slots[slot] = number
        if number == 1:
            self.header[0], self.header[2] = store_millis, offset
        self.header[1], self.header[3] = store_millis, offset
        self.header[4] += before == 0
        self.header[5] = number + 1

    def encode(self) -> bytes:
        entries = [(0, 0, 0, 0), *self.entries]
        entries += [(0, 0, 0, 0)] * (self.entry_count_max - len(entries))
        slots = struct.pack(f">{len(self.slots)}i", *self.slots)
        return struct.pack(">qqqqii", *self.header) + slots + b"".join(struct.pack(">iqii", *one) for one in entries)


def index_files(records: Iterable[LogRecord], slot_count: int, entry_count_max: int) -> list[IndexFile]:
    """Every index file, oldest first."""
    files: list[IndexFile] = []

    def with_room() -> IndexFile:
        if not files or files[-1].is_full:
            seed = (files[-1].header[1], files[-1].header[3]) if files else None
            files.append(IndexFile(slot_count, entry_count_max, seed))
        return files[-1]

    for record in records:
        with_room()
        for key in keys_of(record):
            with_room().put(key_hash(key), record.offset, record.store_millis)
    return files
