"""Builders, rebuild and fsck against `oracle.py`, which derives the same from the raw log without their code."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from index_svc.index_file_set import IndexFileSet
from pipeline.rebuild.files import IndexFilePlan, QueueFiles, write_index_file
from store.audit.findings import Findings, Severity
from store.audit.index_audit import IndexAudit
from store.audit.queue_audit import QueueAudit
from store.derive import dispatch_walk
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_state import entries_per_file, index_file_count, is_followed
from store.derive.queue_placement import QueuePlacement
from store.derive.queue_runs import place_runs
from store.files.file_system import RealFileSystem
from store.format.record import patch_record, prepare_record
from store.readers.index_reader import IndexLayout, list_index_files
from store.walk.log_reader import LogReader
from tests.store.derive import oracle
from tests.store.walk.logs import V4, V6, message
from tests.support.dispatches import file_bytes

FS = RealFileSystem()
T0 = 1_700_000_000_000
LAYOUT = IndexLayout(7, 6)
LOG_FILE_BYTES = 64 << 10
NEAR_UNIT_COUNT, FAR_UNIT_COUNT = 5, 100  # of a queue file: a gap of 4,000 positions fills tens of files
NEAR_MAX = 60

_texts = st.text(alphabet="ab 订😀", max_size=4)
_pairs = st.tuples(st.sampled_from(["KEYS", "KEYS", "TAGS", "UNIQ_KEY", "DELAY", "other"]), _texts | st.just("3"))
_properties = st.lists(_pairs, max_size=4).map(lambda pairs: "".join(f"{name}\x01{text}\x02" for name, text in pairs))
# A record: topic, queue, position (None: the next), properties, sys_flag, milliseconds since the record before.
_record = st.tuples(
    st.sampled_from(["orders", "orders", "订单", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "t" * 130]),
    st.sampled_from([0, 0, 1]),
    st.one_of(
        *[st.none()] * 4, st.just(0), st.integers(0, NEAR_MAX), st.sampled_from([-1, 4_090, 4_100, 4_200, 10**6, 2**62])
    ),
    _properties,
    st.sampled_from([0, 0, 0, 1, 4, 8, 12]),
    st.sampled_from([0, 1, 999, 1000, 5000, 10**7, -3000, 2**45]),
    st.sampled_from([V4, V4, V6]),
)
RECORDS = st.lists(_record, min_size=1, max_size=25)
slow = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def kernel_for_short_logs(monkeypatch):
    monkeypatch.setattr(dispatch_walk, "KERNEL_BYTES_MIN", 0)


def frames_of(records) -> list[bytes]:
    """The frames of these records, one behind the other from offset 0 on."""
    frames, ends = [], {}
    offset, time_millis = 0, T0
    for topic, queue_id, position, properties, sys_flag, millis, host in records:
        frame = prepare_record(message(topic, properties, queue_id=queue_id, sys_flag=sys_flag, born_host=host))
        time_millis += millis
        stated = ends.get((topic, queue_id), 0) if position is None else position
        patch_record(frame, stated, offset, time_millis)
        ends[topic, queue_id] = stated + 1 if stated < 2**40 else 0
        frames.append(bytes(frame))
        offset += len(frame)
    return frames


def unit_count_of(records) -> int:
    return NEAR_UNIT_COUNT if all((one[2] or 0) <= NEAR_MAX for one in records) else FAR_UNIT_COUNT


def columns_of(frames: list[bytes], batch: int) -> Iterator[DispatchColumns]:
    offset = 0
    for at in range(0, len(frames), batch):
        chunk = b"".join(frames[at : at + batch])
        walked = dispatch_walk.walk_columns(chunk, 0, offset, len(frames))
        assert walked.why is None
        yield walked.columns
        offset = walked.next_offset


def write_root(root: Path, records) -> tuple[dict[str, bytes], list[bytes]]:
    """A store with the log of these records, and with the oracle's queues and index; both are returned."""
    log = b"".join(frames_of(records))
    parsed = list(oracle.parse(log))
    queues = oracle.queue_files(parsed, unit_count_of(records))
    index = [file.encode() for file in oracle.index_files(parsed, LAYOUT.slot_count, LAYOUT.entry_count_max)]
    files = {f"commitlog/{0:020d}": log.ljust(LOG_FILE_BYTES, b"\0")}
    files |= {f"consumequeue/{name}": data for name, data in queues.items()}
    files |= {f"index/20260101000000{number:03d}": data for number, data in enumerate(index)}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return queues, index


def audits(root: Path, requests: list[DispatchRequest]) -> Findings:
    """fsck's findings about queues and index."""
    findings = Findings(root)
    queues = QueueAudit(FS, root, 0, findings, resumes_at=None)
    index = IndexAudit(FS, root, LAYOUT, 0, findings, resumes_at=None, unflushed_from=None)
    for request in requests:
        queues.see(request)
        index.see(request)
    end = requests[-1].next_offset
    queues.finish(end)
    index.finish(end)
    return findings


@slow
@given(records=RECORDS)
def test_the_oracle_reads_back_what_the_records_say(records):
    frames = frames_of(records)
    parsed = list(oracle.parse(b"".join(frames)))
    assert [(one.topic, one.queue_id, one.size) for one in parsed] == [
        (record[0], record[1], len(frame)) for record, frame in zip(records, frames, strict=True)
    ]


@slow
@given(records=RECORDS, batch=st.integers(1, 25))
def test_the_builders_write_the_oracles_files(kernel_mode, records, batch):
    frames, file_unit_count = frames_of(records), unit_count_of(records)
    parsed = list(oracle.parse(b"".join(frames)))
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        queues = ConsumeQueueTable(root, FS, file_unit_count * 20)
        index = IndexFileSet(root, FS, LAYOUT, lambda: T0)
        for columns in columns_of(frames, batch):
            queues.apply(columns)
            index.apply(columns)
        index.flush()
        queues.close()
        index.close()
        assert file_bytes(root / "consumequeue") == oracle.queue_files(parsed, file_unit_count)
        expected = oracle.index_files(parsed, LAYOUT.slot_count, LAYOUT.entry_count_max)
        assert [path.read_bytes() for path in list_index_files(FS, root)] == [file.encode() for file in expected]


@slow
@given(
    records=RECORDS, batch=st.integers(1, 25), rotten=st.lists(st.tuples(st.integers(0), st.integers(0)), max_size=3)
)
def test_a_replay_over_any_files_ends_with_the_oracles_queues(records, batch, rotten):
    frames, file_unit_count = frames_of(records), unit_count_of(records)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        expected, _ = write_root(root, records)
        names = sorted(expected)
        for file, unit in rotten if names else []:
            path = root / "consumequeue" / names[file % len(names)]
            at = unit % file_unit_count * 20
            data = path.read_bytes()
            if data[at : at + 20] != oracle.FILLER:  # a replay keeps what lies before a queue's first record
                path.write_bytes(data[:at] + b"\0\0\0\0\0\0\0\7\0\0\0\x64" + data[at + 12 :])
        queues = ConsumeQueueTable(root, FS, file_unit_count * 20)
        queues.load()
        queues.forget_replay()
        for columns in columns_of(frames, batch):
            queues.apply(columns, is_replay=True)
        queues.end_replay(0)
        queues.flush()
        queues.close()
        assert file_bytes(root / "consumequeue") == expected


@slow
@given(records=RECORDS)
def test_a_rebuild_writes_the_oracles_files(kernel_mode, records):
    frames, file_unit_count = frames_of(records), unit_count_of(records)
    parsed = list(oracle.parse(b"".join(frames)))
    (columns,) = columns_of(frames, len(frames))
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        files = QueueFiles(FS, root, file_unit_count * 20)
        for topic, queue_id, runs in place_runs(columns):
            for placed in QueuePlacement(file_unit_count).place(runs):
                files.write_placed(topic, queue_id, placed)
        files.close()
        assert file_bytes(root / "consumequeue") == oracle.queue_files(parsed, file_unit_count)
        offsets, times = (
            columns.commit_log_offsets[columns.key_records],
            columns.store_times_millis[columns.key_records],
        )
        room = entries_per_file(LAYOUT.entry_count_max)
        last_key_offset = int(offsets[-1]) if len(offsets) else -1
        is_behind = is_followed(int(columns.commit_log_offsets[-1]), last_key_offset)
        made = []
        for number in range(index_file_count(len(offsets), LAYOUT.entry_count_max, is_followed=is_behind)):
            part = slice(number * room, (number + 1) * room)
            before = (int(times[part.start - 1]), int(offsets[part.start - 1])) if number else (0, 0)
            path = root / f"{number}"
            plan = IndexFilePlan(str(path), LAYOUT, (), *before, is_flushed=False)
            keys = (columns.key_hashes[part], offsets[part], times[part])
            write_index_file(FS, plan, [keys] if len(keys[0]) else [])
            made.append(path.read_bytes())
        expected = oracle.index_files(parsed, LAYOUT.slot_count, LAYOUT.entry_count_max)
        assert made == [file.encode() for file in expected]


@slow
@given(records=RECORDS)
def test_fsck_finds_nothing_wrong_with_the_oracles_files(records):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_root(root, records)
        findings = audits(root, list(LogReader(root).dispatch_requests()))
        assert findings.is_clean, findings.kept


@slow
@given(records=RECORDS, seed=st.integers(0))
def test_fsck_finds_any_changed_bit_of_the_oracles_files(records, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        queues, index = write_root(root, records)
        requests = list(LogReader(root).dispatch_requests())
        named = [(root / "consumequeue" / name, data) for name, data in queues.items()]
        # The header of a file without entries is not compared.
        named += [one for one in zip(list_index_files(FS, root), index, strict=True) if any(one[1][40:])]
        for path, data in chance.sample(named, min(len(named), 3)):
            used = [at for at, byte in enumerate(data) if byte]  # most of a file is empty: look at what is not
            bit = (
                chance.choice(used) * 8 + chance.randrange(8)
                if chance.random() < 0.7
                else chance.randrange(len(data) * 8)
            )
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            findings = audits(root, requests)
            path.write_bytes(data)
            assert not findings.is_clean, (path.name, bit // 8, bit % 8)
            kind = "QUEUE_" if path.parent.name != "index" else "INDEX_"
            assert {finding.code[:6] for finding in findings.kept if finding.severity == Severity.ERROR} == {kind}


def test_fsck_finds_a_changed_filler_in_a_gap(tmp_path):
    records = [("orders", 0, position, "KEYS\x01k\x02", 0, 1, V4) for position in (0, 4)]
    queues, _ = write_root(tmp_path, records)
    requests = list(LogReader(tmp_path).dispatch_requests())
    assert audits(tmp_path, requests).is_clean
    (name,) = queues
    changed = bytearray(queues[name])
    changed[2 * 20 + 7] ^= 1
    (tmp_path / "consumequeue" / name).write_bytes(changed)

    assert [finding.code for finding in audits(tmp_path, requests).kept] == ["QUEUE_SURPLUS_UNITS"]
