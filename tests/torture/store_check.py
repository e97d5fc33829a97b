"""Judges a store root offline, by brute force: is all there that was acknowledged, once, and are queues and index right?

Nothing of the product takes part, neither codecs nor readers: frames are cut with `struct` after the layout of RocketMQ's
records, queue units and index entries are derived from them anew, and the files on the disk are compared with that.
Every message must say who it is: its body begins with an id of its own and a `|`.

    problems = check_store(root, acked={"m-1": Place(0, 0, 0)}, attempted={"m-1", "m-2"}, refused=set())
    assert problems == []

What was retired at the front of the log is excused: units and entries that point before the log's first byte are passed
over, and acknowledged messages from there need not be found any more.
"""

import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MAGICS = (-626843481, -626843477)
BLANK_MAGIC = -875286124
HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")  # both hosts IPv4, as the tests append
UNIT = struct.Struct(">qiq")
FILLER = UNIT.pack(0, 0x7FFFFFFF, 0)
INDEX_HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
CRC_PROPERTY_BYTES = 20
DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
# Of RocketMQ's levels by default; a level is the number of the queue and one.
DELAY_SECONDS = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)
PROBLEM_COUNT_MAX = 12


class Place(NamedTuple):
    """What an acknowledgement said: where the message lies."""

    commit_log_offset: int
    queue_id: int
    queue_offset: int


class Frame(NamedTuple):
    """One record of the log, as cut by `read_frames`."""

    commit_log_offset: int
    size_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    store_time_millis: int
    message_id: str
    tags: str
    index_keys: tuple[str, ...]


class IndexLayout(NamedTuple):
    """Slots and entries (one more than fit) of each index file."""

    slot_count: int
    entry_count_max: int


def check_store(
    root: Path,
    *,
    acked: Mapping[str, Place],
    attempted: Collection[str],
    refused: Collection[str] = (),
    layout: IndexLayout | None = None,
    queues: bool = True,
) -> list[str]:
    """What is wrong with a store that nobody has open; empty when nothing is.

    Args:
        root: the store root.
        acked: what was acknowledged, by message id.
        attempted: every id that was ever sent; an unacknowledged one may be there once or not at all.
        refused: ids whose refusal said that nothing was written.
        layout: of the index files; None leaves the index out.
        queues: False leaves the queues out.
    """
    problems: list[str] = []
    frames = read_frames(root, problems)
    _check_messages(frames, first_offset(root), acked, attempted, refused, problems)
    if queues:
        problems.extend(check_queues(root, frames))
    if layout is not None:
        problems.extend(check_index(root, frames, layout))
    return problems[:PROBLEM_COUNT_MAX]


def first_offset(root: Path) -> int:
    """The log's first byte."""
    return min((int(path.name) for path in _numbered(root / "commitlog")), default=0)


def read_frames(root: Path, problems: list[str]) -> list[Frame]:
    """Every record of the log; damage, and bytes behind the end, are added to `problems`."""
    frames: list[Frame] = []
    files = _numbered(root / "commitlog")
    ended = False
    expected = None
    for path in files:
        base, data, at = int(path.name), path.read_bytes(), 0
        if expected is not None and base != expected:
            problems.append(f"log: {path.name} should begin at {expected}")
        expected = base + len(data)
        while not ended and at + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, at)
            if magic == BLANK_MAGIC and at + size == len(data):
                break
            if size == 0:
                ended = True
                break
            frame = _parse(data[at : at + size], base + at, problems)
            if frame is None:
                return frames
            frames.append(frame)
            at += size
        if ended and data[at:].strip(b"\0"):
            problems.append(f"log: bytes behind the end, in {path.name} from {at} on")
    return frames


def check_queues(root: Path, frames: list[Frame]) -> list[str]:
    """Every unit of every queue against the log, and nothing else in the files."""
    problems: list[str] = []
    log_first = first_offset(root)
    expected: defaultdict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    for frame in frames:
        units = expected[frame.topic, frame.queue_id]
        if units and frame.queue_offset != max(units) + 1:
            problems.append(f"log: queue {frame.topic}/{frame.queue_id} has a hole before {frame.queue_offset}")
        tags_code = java_hash(frame.tags) if frame.tags else 0
        if frame.topic == DELAY_TOPIC:  # the unit says when the message is due
            tags_code = frame.store_time_millis + DELAY_SECONDS[frame.queue_id] * 1000
        units[frame.queue_offset] = UNIT.pack(frame.commit_log_offset, frame.size_bytes, tags_code)
    present = {
        (topic.name, int(queue.name))
        for topic in _entries(root / "consumequeue")
        for queue in _entries(topic)
        if _numbered(queue)
    }
    for topic_name, queue_id in sorted(present | expected.keys()):
        wanted = expected.get((topic_name, queue_id), {})
        found = _units(root / "consumequeue" / topic_name / str(queue_id))
        for number, unit in wanted.items():
            if found.get(number) != unit:
                was = UNIT.unpack(found[number]) if number in found else "nothing"
                problems.append(f"queue {topic_name}/{queue_id}: unit {number} is {was}, not {UNIT.unpack(unit)}")
        for number in found.keys() - wanted.keys():
            is_old = UNIT.unpack(found[number])[0] < log_first or found[number] == FILLER
            if not is_old or (wanted and number > min(wanted)):
                problems.append(
                    f"queue {topic_name}/{queue_id}: unit {number} {UNIT.unpack(found[number])} has no record"
                )
    return problems


def check_index(root: Path, frames: list[Frame], layout: IndexLayout) -> list[str]:
    """Every entry of every index file against the keys of the log, and each reachable from its slot."""
    problems: list[str] = []
    log_first = first_offset(root)
    times = {frame.commit_log_offset: frame.store_time_millis for frame in frames}
    wanted = [(index_hash(key), frame.commit_log_offset) for frame in frames for key in frame.index_keys]
    found: list[tuple[int, int]] = []
    paths = sorted(path for path in _entries(root / "index") if re.fullmatch(r"\d{17}", path.name))
    previous_end_millis = 0
    for number, path in enumerate(paths):
        data = path.read_bytes()
        size = 40 + 4 * layout.slot_count + 20 * layout.entry_count_max
        if len(data) != size:
            problems.append(f"index {path.name} has {len(data)} bytes, not {size}")
            continue
        begin_millis, end_millis, begin_offset, end_offset, _, count = INDEX_HEADER.unpack_from(data)
        entries_at = 40 + 4 * layout.slot_count
        entries = [ENTRY.unpack_from(data, entries_at + 20 * n) for n in range(1, max(count, 1))]
        if data[entries_at + 20 * max(count, 1) :].strip(b"\0"):
            problems.append(f"index {path.name}: bytes behind entry {count - 1}")
        if number < len(paths) - 1 and count != layout.entry_count_max:
            problems.append(f"index {path.name} has {count - 1} entries and is not the last")
        problems.extend(_check_chains(path.name, data, entries, layout))
        if entries:
            bounds = (entries[0][1], entries[-1][1])
            if (begin_offset, end_offset) != bounds:
                problems.append(f"index {path.name}: header says {begin_offset, end_offset}, entries {bounds}")
            first_millis = times.get(entries[0][1], begin_millis)
            if first_millis != begin_millis:
                problems.append(f"index {path.name}: begins at {begin_millis}, its first record at {first_millis}")
        for at, (hash_, offset, seconds, _) in enumerate(entries, 1):
            base = begin_millis if at > 1 else previous_end_millis
            if offset in times and (number or at > 1):
                right = max(0, (times[offset] - base) // 1000)
                if seconds != right:
                    problems.append(f"index {path.name}: entry {at} says {seconds} s, not {right}")
            if offset >= log_first:
                found.append((hash_, offset))
        previous_end_millis = end_millis
    if found != wanted:
        first = next((n for n, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), None)
        where = f"first difference at key {first}" if first is not None else "one is the beginning of the other"
        problems.append(f"index holds {len(found)} keys, the log has {len(wanted)}: {where}")
    return problems


def java_hash(text: str) -> int:
    """`String.hashCode` of Java over ASCII, a signed 32-bit number."""
    value = 0
    for byte in text.encode("ascii"):
        value = (value * 31 + byte) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def index_hash(key: str) -> int:
    """The hash that an index entry holds of a `topic#key`."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value)


def _parse(frame: bytes, offset: int, problems: list[str]) -> Frame | None:
    if len(frame) < HEAD.size + 3:
        problems.append(f"log: no whole record at {offset}")
        return None
    size, magic, body_crc, queue_id, _, queue_offset, own_offset, _, _, _, store_time, _, _, _, body_size = (
        HEAD.unpack_from(frame)
    )
    body = frame[HEAD.size : HEAD.size + body_size]
    at = HEAD.size + body_size
    if magic not in MAGICS or own_offset != offset or size != len(frame) or zlib.crc32(body) & 0x7FFFFFFF != body_crc:
        problems.append(f"log: the record at {offset} is damaged (magic {magic}, says {own_offset}, {size} bytes)")
        return None
    width = 1 if magic == MAGICS[0] else 2
    topic_size = int.from_bytes(frame[at : at + width], "big")
    topic = frame[at + width : at + width + topic_size].decode()
    at += width + topic_size
    properties_bytes = frame[at + 2 :]
    crc = zlib.crc32(frame[:-CRC_PROPERTY_BYTES]) & 0x7FFFFFFF
    if properties_bytes[-CRC_PROPERTY_BYTES:] != b"__CRC32#\x01%b\x02" % (b"%010d" % crc)[::-1]:
        problems.append(f"log: the record at {offset} has a wrong CRC of the whole")
        return None
    properties = dict(row.split("\x01", 1) for row in properties_bytes.decode().split("\x02") if row)
    # Records of services have no unique key.
    keys = [*filter(None, [properties.get("UNIQ_KEY")]), *properties.get("KEYS", "").split()]
    return Frame(
        offset,
        size,
        topic,
        queue_id,
        queue_offset,
        store_time,
        body.split(b"|", 1)[0].decode(errors="replace"),
        properties.get("TAGS", ""),
        tuple(f"{topic}#{key}" for key in keys),
    )


def _check_messages(
    frames: list[Frame],
    log_first: int,
    acked: Mapping[str, Place],
    attempted: Collection[str],
    refused: Collection[str],
    problems: list[str],
) -> None:
    found: dict[str, Place] = {}
    sent = set(attempted)
    for frame in frames:
        place = Place(frame.commit_log_offset, frame.queue_id, frame.queue_offset)
        if frame.message_id in found:
            problems.append(f"{frame.message_id} is there twice, at {found[frame.message_id]} and {place}")
        if frame.message_id not in sent:
            problems.append(f"{frame.message_id} at {place} was never sent")
        found[frame.message_id] = place
    for message_id, place in acked.items():
        if place.commit_log_offset >= log_first and found.get(message_id) != place:
            problems.append(f"LOST: {message_id}, acknowledged at {place}, found {found.get(message_id, 'nowhere')}")
    problems.extend(
        f"{message_id} was refused with nothing written, and is there" for message_id in refused if message_id in found
    )


def _check_chains(name: str, data: bytes, entries: list[tuple[int, ...]], layout: IndexLayout) -> Iterator[str]:
    """Each slot's chain visits exactly the entries of that slot, newest first."""
    by_slot: defaultdict[int, list[int]] = defaultdict(list)
    for number, (hash_, _, _, _) in enumerate(entries, 1):
        by_slot[hash_ % layout.slot_count].insert(0, number)
    used = INDEX_HEADER.unpack_from(data)[4]
    if used != len(by_slot):
        yield f"index {name}: header says {used} slots, {len(by_slot)} are in use"
    for slot in range(layout.slot_count):
        (number,) = struct.unpack_from(">i", data, 40 + 4 * slot)
        chain: list[int] = []
        while 0 < number <= len(entries) and len(chain) <= len(entries):
            chain.append(number)
            number = entries[number - 1][3]
        if chain != by_slot.get(slot, []) or number != 0:
            yield f"index {name}: slot {slot} leads to {chain[:5]}, not to {by_slot.get(slot, [])[:5]}"


def _units(directory: Path) -> dict[int, bytes]:
    """The units of a queue that are not zeros, by number."""
    units: dict[int, bytes] = {}
    for path in _numbered(directory):
        base, data = int(path.name), path.read_bytes()
        for at in range(0, len(data), UNIT.size):
            unit = data[at : at + UNIT.size]
            if unit.strip(b"\0"):
                units[(base + at) // UNIT.size] = unit
    return units


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _numbered(directory: Path) -> list[Path]:
    return [path for path in _entries(directory) if re.fullmatch(r"\d{20}", path.name)]
