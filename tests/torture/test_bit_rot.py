"""Bit rot: a flipped bit is found, mended or harmless; never is a wrong message served.

The log guards itself (`__CRC32#` over the whole frame), so that every flip in a record is found. Queue units are compared
with the record that they point to. Index entries are candidates, compared with the record too: a flip there can hide a
match from a key query but never make a wrong one; the audit (`reput fsck`) finds it, and a rebuild mends it.
"""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_svc.recovery.recovery import recover_log
from gateway.ports.deadline import Deadline
from gateway.ports.shard import get_units
from gateway.ports.shards import Shards
from store.audit.findings import Repair
from store.audit.store_audit import audit_store
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.files.mapped_files import MappedFileQueue
from store.format.derived.queue_unit import QueueUnit, encode_queue_unit
from store.format.record import Record, decode_record, encode_record
from tests.commitlog_svc.support import BORN_HOST, new_message
from tests.support.readers import QueueReader
from tests.torture.amount import amount, level
from tests.torture.answers import FAN_OUT, Question, ask, right_answers
from tests.torture.local_shard import LocalShard
from tests.torture.log_zoo import FILE_BYTES, make_zoo
from tests.torture.memory_files import MemoryFileSystem
from tests.torture.seeds import pick_seed

# V1, V2 with a long topic, both hosts IPv6.
WHOLE_RECORDS = (0, 3, 6)


def _flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def _is_found(frame: bytes, offset: int) -> bool:
    try:
        decode_record(frame, commit_log_offset=offset)
    except RecordCorruptedError:
        return True
    return False


def test_every_flipped_bit_of_a_guarded_record_is_found() -> None:
    """RocketMQ misses 102 of 137 flips of one record: only its body has a CRC."""
    random_ = random.Random(pick_seed("bit rot"))
    zoo = make_zoo()
    flips = [(number, bit) for number in WHOLE_RECORDS for bit in range(8 * len(zoo.frame(number)))]
    for _ in range(amount(sample=3000, change=10_000, full=1_000_000)):
        number = random_.randrange(len(zoo.records))
        flips.append((number, random_.randrange(8 * len(zoo.frame(number)))))
    missed = [
        (number, bit)
        for number, bit in flips
        if not _is_found(_flip(zoo.frame(number), bit), zoo.records[number].commit_log_offset)
    ]
    print(f"{len(flips)} flips")
    assert missed == []


def test_several_flipped_bits_in_one_record_are_found() -> None:
    """Up to eight anywhere, half of them in the `__CRC32#` itself: one flip in its name must not disarm it for the others."""
    random_ = random.Random(pick_seed("several flips"))
    zoo = make_zoo()
    passed = []
    count = amount(sample=3000, change=20_000, full=1_000_000)
    for _ in range(count):
        number = random_.randrange(len(zoo.records))
        frame = zoo.frame(number)
        # Half of them where it hurts: in the 20 bytes that guard the rest.
        low = 8 * (len(frame) - 20) if random_.random() < 0.5 else 0
        damaged = frame
        for _ in range(random_.randrange(2, 9)):
            damaged = _flip(damaged, random_.randrange(low, 8 * len(frame)))
        if damaged != frame and not _is_found(damaged, zoo.records[number].commit_log_offset):
            passed.append((number, frame, damaged))
    # What passes has lost most of the guard's name or digits; a record that is wrong in anything else hardly ever does.
    wrong = [number for number, frame, damaged in passed if damaged[:-20] != frame[:-20]]
    print(f"{count} damaged records: {len(passed)} pass with a damaged guard, {len(wrong)} of them with other damage")
    assert len(wrong) <= 1 + count // 2000


@pytest.mark.parametrize("name", ["BORNTIME", "__TIME_S#", "_CRC32", "CRC32", "__ABCDE#"])
def test_a_value_of_ten_digits_is_no_damaged_guard(name: str) -> None:
    """A record without `__CRC32#` whose last property is a time in seconds."""
    properties = b"KEYS\x01k\x02%b\x011700000000\x02" % name.encode()
    frame = encode_record(replace(make_zoo(with_crc=False).records[0], properties_bytes=properties))

    assert properties == decode_record(frame).properties_bytes


def test_a_flip_in_the_log_stops_a_recovery_at_its_record_or_cuts_the_last() -> None:
    random_ = random.Random(pick_seed("flips and recovery"))
    zoo = make_zoo()
    root = Path("/store")
    for _ in range(amount(sample=150, change=1000, full=100_000)):
        number = random_.randrange(len(zoo.records))
        record = zoo.records[number]
        bit = random_.randrange(8 * record.commit_log_offset, 8 * record.next_offset)
        data = _flip(zoo.data, bit)
        fs = MemoryFileSystem()
        for at in range(0, len(data), FILE_BYTES):
            fs.put(root / "commitlog" / f"{at:020d}", data[at : at + FILE_BYTES])
        files = MappedFileQueue(fs, root / "commitlog", FILE_BYTES)
        files.load()
        if record is zoo.records[-1]:
            found = recover_log(fs, root, files, was_aborted=True, read_only=False)
            assert record.commit_log_offset == found.end_offset == found.cut_offset
        else:
            with pytest.raises(StoreCorruptedError) as stopped:
                recover_log(fs, root, files, was_aborted=True, read_only=False)
            assert str(record.commit_log_offset) == stopped.value.metadata["commitLogOffset"], bit
            assert data == b"".join(fs.bytes_of(path) for path in fs.paths())
        files.close()


def _zoo_disk(root: Path) -> MemoryFileSystem:
    """A store made of the zoo's log, with all that our services keep beside it, cleanly stopped."""
    zoo, fs = make_zoo(), MemoryFileSystem()
    for at in range(0, len(zoo.data), FILE_BYTES):
        fs.put(root / "commitlog" / f"{at:020d}", zoo.data[at : at + FILE_BYTES])
    shard = LocalShard(root, fs, queue_file_size_bytes=100)
    shard.catch_up()
    shard.close()
    return fs


def _judge(shard: LocalShard, truth: dict[Question, tuple[Record, ...]], questions: list[Question]) -> Counter[str]:
    """How the answers compare; fails on a wrong message."""
    shards, found = Shards([shard.shard()], FAN_OUT), Counter[str]()
    for question in questions:
        answer = ask(shards, question)
        if answer.error is not None:
            found["found"] += 1
        elif answer.records == truth[question]:
            found["right"] += 1
        else:
            wrong = [record for record in answer.records if record not in truth[question]]
            assert wrong == [], (question, wrong)
            found["hidden" if answer.is_complete else "partial"] += 1
    return found


def test_a_running_service_never_serves_a_message_with_a_flipped_bit(tmp_path: Path) -> None:
    """Flips in the log's files under a shard that is open; every query that leads to the record, and to its neighbours."""
    random_ = random.Random(pick_seed("flips under a running shard"))
    zoo = make_zoo()
    truth = right_answers(zoo.records)
    leading: dict[int, list[Question]] = {record.commit_log_offset: [] for record in zoo.records}
    for question, records in truth.items():
        for record in records:
            leading[record.commit_log_offset].append(question)
    fs = _zoo_disk(tmp_path)
    shard = LocalShard(tmp_path, fs)
    shard.catch_up()
    total: Counter[str] = Counter()
    try:
        for _ in range(amount(sample=300, change=1500, full=200_000)):
            record = random_.choice(zoo.records)
            bit = random_.randrange(8 * record.commit_log_offset, 8 * record.next_offset)
            path = tmp_path / "commitlog" / f"{bit // 8 // FILE_BYTES * FILE_BYTES:020d}"
            fd = fs.open(path, 2)
            at = bit // 8 % FILE_BYTES
            whole = fs.pread(fd, 1, at)
            fs.pwrite(fd, _flip(whole, bit % 8), at)
            counts = _judge(shard, truth, leading[record.commit_log_offset])
            assert counts["right"] == counts["hidden"] == 0, (bit, counts)
            total += counts
            fs.pwrite(fd, whole, at)
            fs.close(fd)
    finally:
        shard.close()
    print(dict(total))


def _kind(path: Path, root: Path) -> str:
    parts = path.relative_to(root).parts
    return "/".join(parts[:2]) if parts[0] == "reput" else parts[0]


@pytest.mark.timeout(3600 if level() == "full" else 600)  # a restart for each byte
def test_a_flipped_byte_outside_the_log_is_found_mended_or_harmless(tmp_path: Path) -> None:
    """Each byte of queues, index, checkpoints and tables, with a restart behind each: answers are right or refused."""
    random_ = random.Random(pick_seed("flips outside the log"))
    disk = _zoo_disk(tmp_path)
    truth = right_answers(make_zoo().records)
    by_key = [question for question in truth if question[0] in ("key", "unique key")]
    places = [
        (path, at)
        for path in disk.paths()
        if path.parent.name != "commitlog" or path.parent.parent.name == "reput"
        for at in range(len(disk.bytes_of(path)))
        # Of RocketMQ's checkpoint, a page, the rest is zeros.
        if path.name != "checkpoint" or at < 64
    ]
    # For a change each fourth byte, with each seed others.
    count = amount(sample=150, change=len(places) // 4, full=8 * len(places))
    if level() != "full":
        places = random_.sample(places, count)
    outcomes: dict[str, Counter[str]] = {}
    for path, at in places if level() != "full" else random_.choices(places, k=count):
        fs = disk.copy()
        data = bytearray(fs.bytes_of(path))
        data[at] ^= 1 << random_.randrange(8)
        fs.put(path, bytes(data))
        damaged = fs.copy()
        kind = _kind(path, tmp_path)
        counts = outcomes.setdefault(kind, Counter())
        try:
            shard = LocalShard(tmp_path, fs)
        except StoreCorruptedError:
            counts["refused at start"] += 1
            continue
        try:
            shard.catch_up()
            found = _judge(shard, truth, list(truth))
        finally:
            shard.close()
        if found["hidden"] or found["partial"]:
            # Only an index entry can hide something, and only from queries by key.
            assert kind == "index", (path, at, found)
            others = [question for question in truth if question not in by_key]
            assert found["right"] + found["found"] >= len(others)
            # ...and the audit sees what is wrong there.
            assert audit_store(damaged, tmp_path).findings.concerns(Repair.DERIVED), (path, at)
        if found["found"]:
            assert kind == "consumequeue", (path, at, found)
        counts[
            "hidden" if found["hidden"] else "partial" if found["partial"] else "found" if found["found"] else "right"
        ] += 1
    print({kind: dict(counts) for kind, counts in outcomes.items()})


def test_a_record_whose_guard_is_right_is_whole_whatever_its_text_is() -> None:
    """Properties that are no UTF-8 in the log's last record: with a right `__CRC32#` they are what was written."""
    from tests.torture.log_zoo import encode_guarded

    zoo, root = make_zoo(), Path("/store")
    last = zoo.records[-1]
    frame = encode_guarded(replace(last, properties_bytes=b"KEYS\x01\xff\xfe\x80\x02"))
    data = (zoo.data[: last.commit_log_offset] + frame).ljust(len(zoo.data), b"\0")
    fs = MemoryFileSystem()
    for at in range(0, len(data), FILE_BYTES):
        fs.put(root / "commitlog" / f"{at:020d}", data[at : at + FILE_BYTES])
    files = MappedFileQueue(fs, root / "commitlog", FILE_BYTES)
    files.load()

    found = recover_log(fs, root, files, was_aborted=True, read_only=False)

    assert (None, last.commit_log_offset + len(frame)) == (found.cut_offset, found.end_offset)


def test_a_flipped_bit_in_a_long_queue_never_takes_other_messages_with_it(tmp_path: Path) -> None:
    """Where a queue ends and begins is found by halving it: a unit that points astray must not send the search astray."""
    random_ = random.Random(pick_seed("long queue"))
    disk = MemoryFileSystem()
    disk.mkdirs(tmp_path)
    count = 60
    shard = LocalShard(tmp_path, disk, queue_file_size_bytes=2000)
    shard.log.opened.appends.append_messages(
        [new_message(queue_id=0) for _ in range(count)], sync=True, born_host=BORN_HOST
    )
    shard.catch_up()
    shard.close()
    path = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    places = [(unit * 20 + byte, bit) for unit in range(count) for byte in range(12) for bit in range(8)]
    mended = 0
    chosen = random_.sample(places, min(len(places), amount(sample=150, change=400, full=len(places))))
    for at, bit in chosen:
        fs = disk.copy()
        data = bytearray(fs.bytes_of(path))
        data[at] ^= 1 << bit
        fs.put(path, bytes(data))
        shard = LocalShard(tmp_path, fs)
        try:
            shard.catch_up()
            damaged = at // 20
            for begin, end in ((0, damaged), (damaged + 1, count)):
                found = get_units(shard.shard(), "orders", 0, begin, end - begin, Deadline.after(60))
                assert list(range(begin, end)) == [unit.queue_offset for unit in found.answer.units], (at, bit)
            answer = ask(Shards([shard.shard()], FAN_OUT), ("queue", "orders", "0"))
            assert answer.error is not None or list(range(count)) == [r.queue_offset for r in answer.records], (at, bit)
            mended += answer.error is None
        finally:
            shard.close()
    print(f"{len(chosen)} flips, {mended} mended or harmless")


def test_a_flipped_bit_never_makes_the_front_of_a_queue_look_retired() -> None:
    """Where the log begins behind the queue's first units, with every bit of every offset flipped."""
    count, kept = 60, 20
    whole = b"".join(encode_queue_unit(QueueUnit(number * 1000, 1000, 0)) for number in range(count))
    path = Path("/store/consumequeue/orders/0") / f"{0:020d}"
    for unit in range(count):
        for bit in range(64):
            fs = MemoryFileSystem()
            fs.put(path, _flip(whole, unit * 160 + bit))
            found = QueueReader(Path("/store"), fs).queue("orders", 0).min_offset(kept * 1000)
            assert found <= kept + (unit == kept), (unit, bit)
