"""Requests of several records across kills and power cuts: a recovery keeps all of a request or nothing of it."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog_svc import lookup
from commitlog_svc.recovery.recovery import RequestEnds
from store.audit.store_audit import audit_store
from store.errors import InvalidArgumentError
from store.format.checkpoint import encode_durable_mark
from store.format.record import encode_record
from store.format.record_layout import CRC_PROPERTY_SIZE_BYTES, encode_crc_property, masked_crc
from store.format.request_mark import TAIL_SIZE_BYTES, RequestMark, encode_request_mark
from tests.commitlog_svc.internal import all_records, append_internal, internal_record
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.support.crashing import copy_open_store
from tests.torture.amount import amount
from tests.torture.local_shard import LocalShard
from tests.torture.memory_files import MemoryFileSystem

FILE_BYTES = 4096
# Files are in memory; locks are real, so that two runs at once need two directories. It goes with the process.
_SCRATCH = tempfile.TemporaryDirectory(prefix="reput-test-")
ROOT = Path(_SCRATCH.name) / "store"
PREPARED, ROLLED_BACK = 0x4, 0xC


class Disk(MemoryFileSystem):
    """A disk in memory that remembers the writes of the last append to the log."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[int, int, int]] = []  # descriptor, position, size

    def pwritev(self, fd: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        super().pwritev(fd, parts, position)
        self.writes.append((fd, position, sum(map(len, parts))))

    def killed_at(self, byte: int) -> MemoryFileSystem:
        """The disk when the process was killed behind that byte of the last append; the log's files were zeros before."""
        for fd, position, size_bytes in self.writes:
            kept = min(byte, size_bytes)
            byte -= kept
            self.pwrite(fd, bytes(size_bytes - kept), position + kept)
        return self.copy()


@dataclass(frozen=True)
class Part:
    """One record of a request."""

    topic: str
    queue_id: int
    size_bytes: int
    sys_flag: int = 0


@dataclass(frozen=True)
class Request:
    """An append; internal requests are atomic."""

    parts: tuple[Part, ...]
    is_internal: bool
    is_sync: bool


SIZES = st.one_of(st.integers(10, 60), st.integers(300, 900))
QUEUES = st.tuples(st.sampled_from(("a", "b")), st.integers(0, 1))
ORDINARY = st.builds(lambda queue, size: Part(*queue, size), QUEUES, SIZES)
INTERNAL = st.builds(
    lambda queue, size, flag: Part(*queue, size, flag), QUEUES, SIZES, st.sampled_from((0, 0, 0, PREPARED, ROLLED_BACK))
)


def requests_of(part: st.SearchStrategy[Part], count_max: int, *, is_internal: bool) -> st.SearchStrategy[Request]:
    """Requests of one kind."""
    parts = st.lists(part, min_size=1, max_size=count_max).map(tuple)
    return st.builds(lambda parts, is_sync: Request(parts, is_internal, is_sync), parts, st.booleans())


REQUESTS = st.lists(
    requests_of(INTERNAL, 6, is_internal=True) | requests_of(ORDINARY, 3, is_internal=False), min_size=1, max_size=8
)


class Model:
    """What was written, in the order of the log."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[bytes, Part]]] = []
        self.is_atomic: list[bool] = []
        self.synced_count = 0  # requests that a power cut must not take

    def apply(self, log: object, request: Request) -> None:
        """Appends a request and notes it; one that fits into no file is refused and not noted."""
        number = len(self.requests)
        records = [
            (b"%d.%d|" % (number, index)).ljust(part.size_bytes, b".") for index, part in enumerate(request.parts)
        ]
        sent = list(zip(records, request.parts, strict=True))
        try:
            if request.is_internal:
                append_internal(
                    log,  # type: ignore[arg-type]  # a CommitLog
                    *[internal_record(body, part.topic, part.queue_id, sys_flag=part.sys_flag) for body, part in sent],
                    sync=request.is_sync,
                )
            else:
                append(
                    log,  # type: ignore[arg-type]  # a CommitLog
                    *[new_message(body, part.topic, queue_id=part.queue_id) for body, part in sent],
                    sync=request.is_sync,
                )
        except InvalidArgumentError:
            assert sum(map(len, records)) > FILE_BYTES - 200 * len(records)
            return
        self.requests.append(sent)
        self.is_atomic.append(request.is_internal)
        if request.is_sync:
            self.synced_count = len(self.requests)

    def check(self, shard: LocalShard, kept_count_min: int) -> None:
        """Compares a recovered log with a prefix of what was written."""
        records = all_records(shard.log)
        bodies = [record.body for record in records]
        written = [body for request in self.requests for body, _ in request]
        assert bodies == written[: len(bodies)]
        left = len(bodies)
        for number, request in enumerate(self.requests):
            if number < kept_count_min or self.is_atomic[number]:
                assert left <= 0 or left >= len(request), f"half of request {number} was kept"
            assert left > 0 or number >= kept_count_min, f"request {number} is gone"
            left -= len(request)
        next_offsets: Counter[tuple[str, int]] = Counter()
        parts = [part for request in self.requests for _, part in request]
        for record, part in zip(records, parts, strict=False):
            queue = part.topic, part.queue_id
            assert (part.topic, part.queue_id) == (record.topic, record.queue_id)
            if part.sys_flag in (PREPARED, ROLLED_BACK):
                assert record.queue_offset == 0
            else:
                assert record.queue_offset == next_offsets[queue]
                next_offsets[queue] += 1
        for topic in ("a", "b"):
            for queue_id in (0, 1):
                receipt = append(shard.log, new_message(topic=topic, queue_id=queue_id))[0]
                assert receipt.queue_offset == next_offsets[topic, queue_id]


def recover_and_check(model: Model, found: MemoryFileSystem, kept_count_min: int) -> None:
    """Recovers twice, the second time after another kill, and lets the builders and fsck see the result."""
    again = found.copy()
    # Closed also when a check fails: the next example would wait for the lock, and fail for that reason.
    with closing(make_log(ROOT, again, file_size_bytes=FILE_BYTES)) as log:
        log.recover()
        end_offset, again = log.status.end_offset, again.copy()

    with closing(LocalShard(ROOT, again, file_size_bytes=FILE_BYTES, flush_interval_millis=60_000)) as shard:
        assert end_offset == shard.log.status.end_offset
        model.check(shard, kept_count_min)
        shard.catch_up()
    audit = audit_store(again, ROOT)
    assert audit.findings.is_clean, audit.findings.kept


@settings(max_examples=amount(sample=15, change=150, full=3000), deadline=None, suppress_health_check=list(HealthCheck))
@given(REQUESTS, st.data())
def test_a_kill_at_any_byte_of_the_last_append_keeps_all_of_it_or_nothing(
    requests: list[Request], data: st.DataObject
) -> None:
    disk, model = Disk(), Model()
    disk.mkdirs(ROOT)
    with closing(make_log(ROOT, disk, file_size_bytes=FILE_BYTES, flush_interval_millis=60_000)) as log:
        log.recover()
        for request in requests[:-1]:
            model.apply(log, request)
        before_count = len(model.requests)
        disk.writes.clear()
        model.apply(log, Request(requests[-1].parts, requests[-1].is_internal, False))
        size_bytes = sum(size for _, _, size in disk.writes)
        byte = data.draw(st.integers(0, size_bytes))
        killed = disk.copy() if byte == size_bytes else disk.killed_at(byte)
        log._commits.fail(InvalidArgumentError("the process was killed"))

    recover_and_check(model, killed, len(model.requests) if byte == size_bytes else before_count)


@settings(max_examples=amount(sample=25, change=250, full=5000), deadline=None, suppress_health_check=list(HealthCheck))
@given(REQUESTS, st.integers(0, 1 << 30))
def test_a_power_cut_with_sectors_in_any_order_keeps_all_of_a_request_or_nothing(
    requests: list[Request], number: int
) -> None:
    disk, model = MemoryFileSystem(), Model()
    disk.mkdirs(ROOT)
    with closing(make_log(ROOT, disk, file_size_bytes=FILE_BYTES, flush_interval_millis=60_000)) as log:
        log.recover()
        for request in requests:
            model.apply(log, request)
        cut = disk.power_cut(number, ROOT)
        log._commits.fail(InvalidArgumentError("the power was cut"))

    recover_and_check(model, cut, model.synced_count)


def torn_store(tmp_path: Path, *, kept_count: int = 2, record_count: int = 3) -> tuple[Path, int]:
    """A killed store whose last request has `kept_count` whole records; where that request begins."""
    live, crashed = tmp_path / "live", tmp_path / "crashed"
    with open_log(live, file_size_bytes=16384) as log:
        append(log, new_message(b"before", queue_id=0))
        receipts = append_internal(log, *[internal_record(b"in" * 50) for _ in range(record_count)])
    begin, end = receipts[0].commit_log_offset, receipts[kept_count].commit_log_offset
    data = (live / "commitlog" / f"{0:020d}").read_bytes()
    (crashed / "commitlog").mkdir(parents=True)
    (crashed / "commitlog" / f"{0:020d}").write_bytes(data[:end].ljust(len(data), b"\0"))
    (crashed / "abort").write_text("1")
    return crashed, begin


@pytest.mark.usefixtures("kernel_mode")
def test_an_incomplete_request_is_cut_and_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "TAIL_STEP_BYTES", 1)
    root, begin = torn_store(tmp_path)
    with open_log(root) as log:
        assert {0} <= set(log.opened.found.tail_starts.offsets) <= {0, begin}  # no start of what is not there any more
        assert (begin, begin, 1) == (log.status.end_offset, log.opened.found.cut_offset, log.opened.found.record_count)
        assert "2 whole records" in log.opened.found.cut_why
        assert (0, begin) == log.opened.found.last_record
        assert 1 == append(log, new_message(queue_id=0))[0].queue_offset


def test_a_read_only_log_ends_before_an_incomplete_request(tmp_path: Path) -> None:
    root, begin = torn_store(tmp_path)
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    with open_log(root, read_only=True) as log:
        assert begin == log.status.end_offset
    assert data == (root / "commitlog" / f"{0:020d}").read_bytes()


def test_a_log_that_was_closed_is_left_as_it_is(tmp_path: Path) -> None:
    """A real broker that opened the store after a power cut may have kept half of a request, and shown it."""
    root, begin = torn_store(tmp_path)
    (root / "abort").unlink()
    with open_log(root) as log:
        assert begin < log.status.end_offset
        assert 3 == append(log, new_message(queue_id=0))[0].queue_offset


@pytest.mark.parametrize("mark", [RequestMark(400, 400), RequestMark(1 << 30, 1)])
def test_marks_that_contradict_one_another_cut_nothing(tmp_path: Path, mark: RequestMark) -> None:
    """Another program may have written the property: a request of ours has marks that agree, from its begin on."""
    root, begin = torn_store(tmp_path, kept_count=1)
    path = root / "commitlog" / f"{0:020d}"
    with open_log(tmp_path / "live", read_only=True) as live:
        frame = bytearray(encode_record(live.opened.reads.get(begin)))
    frame[-TAIL_SIZE_BYTES:-CRC_PROPERTY_SIZE_BYTES] = encode_request_mark(mark)
    frame[-CRC_PROPERTY_SIZE_BYTES:] = encode_crc_property(masked_crc(frame[:-CRC_PROPERTY_SIZE_BYTES]))
    data = path.read_bytes()
    path.write_bytes(data[:begin] + frame + data[begin + len(frame) :])

    with open_log(root) as log:
        assert begin + len(frame) == log.status.end_offset


def test_a_broker_s_copy_of_a_request_s_first_record_is_kept(tmp_path: Path) -> None:
    """The copy has the mark and the `__CRC32#` of the record that it was made of, and alone agrees with that mark."""
    retry = {"properties": {"RETRY_TOPIC": "orders"}}
    with open_log(tmp_path / "origin") as log:
        receipt, _ = append_internal(log, internal_record(**retry), internal_record(b"two"))
        original = log.opened.reads.get(receipt.commit_log_offset)
    root = tmp_path / "store"
    with open_log(root) as log:
        append(log, new_message(b"first"))
        begin = log.status.end_offset
        copy_open_store(root, tmp_path / "killed")
    frame = encode_record(replace(original, commit_log_offset=begin, queue_offset=1, reconsume_times=1))
    path = tmp_path / "killed" / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:begin] + frame + data[begin + len(frame) :])

    with open_log(tmp_path / "killed") as log:
        assert begin + len(frame) == log.status.end_offset
        assert [b"first", original.body] == [record.body for record in all_records(log)]
        append(log, new_message(b"more"))
        assert [b"first", original.body, b"more"] == [record.body for record in all_records(log)]
        copy_open_store(tmp_path / "killed", tmp_path / "again")
    with open_log(tmp_path / "again") as log:
        assert [b"first", original.body, b"more"] == [record.body for record in all_records(log)]


def test_half_a_request_that_another_program_kept_is_not_cut_once_it_was_shown(tmp_path: Path) -> None:
    """A broker that opens the store after a power cut keeps whole records. They were served, so a later kill takes none."""
    root, killed = tmp_path / "store", tmp_path / "killed"
    with open_log(root) as log:
        append(log, new_message(b"first"))
        receipts = append_internal(log, internal_record(b"one"), internal_record(b"two"), internal_record(b"three"))
    file = next((root / "commitlog").iterdir())
    with open(file, "r+b") as written:
        written.seek(receipts[2].commit_log_offset)
        written.write(bytes(receipts[2].store_size_bytes))
    (root / "reput" / "commitlog" / "durable").write_bytes(encode_durable_mark(receipts[0].commit_log_offset))
    (root / "reput" / "commitlog" / "snapshot.json").unlink()

    with open_log(root) as log:
        shown = [record.body for record in all_records(log)]
        copy_open_store(root, killed)
    with open_log(killed) as log:
        kept = [record.body for record in all_records(log)]

    assert [b"first", b"one", b"two"] == shown == kept


def test_a_walk_over_records_whose_request_is_gone_never_goes_back(tmp_path: Path) -> None:
    """Marks of an exported record may name bytes that belong to other records; what is shown stays a known end."""
    with open_log(tmp_path / "store") as log:
        first = append(log, new_message(b"first"))[0]
        receipts = append_internal(log, internal_record(b"one"), internal_record(b"two"))
        files = log._files
        ends = RequestEnds(files, 0, None)
        place = receipts[0].commit_log_offset, receipts[0].store_size_bytes

        assert first.end_offset == ends.end_before(first.end_offset, (0, first.store_size_bytes))
        assert first.end_offset == ends.end_before(receipts[0].end_offset, place)
