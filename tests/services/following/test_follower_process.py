"""A builder's process: it outlives whatever its disk, its code or the log do to it, and resumes alone.

The log is a list, the builders are the real ones, the disk is real with faults, time passes only when told.
"""

import errno
import threading
from pathlib import Path

import pytest
import structlog

from consumequeue_svc.__main__ import QueuePart
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumequeue_svc.settings import ConsumeQueueSettings
from index_svc.__main__ import IndexPart
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.backoff import Backoff
from services.calling.commitlog import ReputBatch
from services.following import follower_process, following_builder
from services.following.follower_process import WAIT_SECONDS, FollowerProcess
from services.following.follower_progress import END_UNKNOWN, FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.errors import (
    OffsetOutOfRangeError,
    RecordCorruptedError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreLockedError,
    StoreRecoveringError,
    UnsupportedStoreError,
)
from store.files.locks import OwnerLock
from tests.support.calls import Answers
from tests.support.dispatches import RECORD_SIZE_BYTES, file_bytes, make_request
from tests.support.faulty_file_system import FaultyFileSystem

BATCH_COUNT = 10
TIMEOUT_SECONDS = 60.0


class MemoryLog(Answers):
    """A commit log of requests, followed like the real one; also its client."""

    def __init__(self, count):
        self.requests = [make_request(n, keys=[f"k{n % 7}"]) for n in range(count)]
        self.damaged_offset = None
        self.reports = []
        self.is_reachable = True
        self.first_offset = 0
        self.checked_offset = None  # how far a recovery is; None when it is over
        self.asked = []

    @property
    def end_offset(self):
        return self.requests[-1].next_offset if self.requests else 0

    def grow(self, count):
        begin = len(self.requests)
        self.requests = [*self.requests, *(make_request(n, keys=[f"k{n % 7}"]) for n in range(begin, begin + count))]

    def GetStatus(self, request):
        if not self.is_reachable:
            raise ServiceUnavailableError("commitlog is not there")
        if self.checked_offset is not None:
            recovery = log_pb.RecoveryProgress(next_offset=self.checked_offset, is_followable=True)
            return log_pb.GetStatusResponse(state="recovering", recovery=recovery)
        return log_pb.GetStatusResponse(
            state="serving", log_first_offset=self.first_offset, log_flushed_offset=self.end_offset
        )

    def ReportProgress(self, request):
        self.reports.append(request.next_offset)

    def reput(self, start_offset, batch_bytes_max=0, *, while_recovering=False, gather_millis=0):
        self.asked.append(while_recovering)
        if self.checked_offset is not None and not while_recovering:
            raise StoreRecoveringError("the commit log is being recovered")
        return MemoryStream(self, self.first_offset if start_offset == -1 else start_offset)

    def get(self, commit_log_offset, *, timeout_seconds=0):
        number, rest = divmod(commit_log_offset, RECORD_SIZE_BYTES)
        if rest or not self.first_offset <= commit_log_offset < self.end_offset:
            raise RecordNotFoundError(f"no record begins at {commit_log_offset}")
        request = self.requests[number]
        return StoredMessage(topic=request.topic, queue_id=request.queue_id, queue_offset=request.queue_offset)

    def close(self):
        pass


class MemoryStream:
    """What Reput would give."""

    def __init__(self, log, start_offset):
        self.log, self.offset = log, start_offset
        self.cancelled = threading.Event()

    def cancel(self):
        self.cancelled.set()

    def __iter__(self):
        log = self.log
        if log.checked_offset is not None and self.offset > log.checked_offset:
            raise StoreRecoveringError("the commit log is being recovered")
        if not log.first_offset <= self.offset <= log.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.offset} is outside", firstOffset=log.first_offset, lastOffset=log.end_offset
            )
        while not self.cancelled.is_set():
            if not log.is_reachable:
                raise ServiceUnavailableError("commitlog is not there")
            batch = []
            checked_offset = log.checked_offset
            for request in log.requests[self.offset // RECORD_SIZE_BYTES :][:BATCH_COUNT]:
                if checked_offset is not None and request.next_offset > checked_offset:
                    break
                if request.commit_log_offset == log.damaged_offset:
                    break
                batch.append(request)
            if not batch and self.offset == log.damaged_offset:
                raise RecordCorruptedError(f"the record at {self.offset} is damaged", commitLogOffset=self.offset)
            self.offset += len(batch) * RECORD_SIZE_BYTES
            end_offset = log.end_offset if checked_offset is None else END_UNKNOWN
            yield ReputBatch(DispatchColumns.of(batch) if batch else None, self.offset, log.first_offset, end_offset)
            if not batch:
                self.cancelled.wait(0.002)
        raise ServiceUnavailableError("cancelled")


class Running:
    """A process on a thread."""

    def __init__(self, kind, root: Path, log, fs, *, is_off=False, **options):
        self.fs, self.log = fs, log
        self.health = []
        self.pauses = []
        self.seconds = 0.0
        self.stopping = threading.Event()
        self.error = None
        progress = FollowerProgress()
        if kind == "consumequeue":
            self.servicer = ConsumeQueueServicer(progress, lambda units, _: [u.commit_log_offset for u in units])
            settings = ConsumeQueueSettings(store=root, file_size_bytes=400)
            self.part = QueuePart(fs, settings, self.servicer, progress, log)
        else:
            self.servicer = IndexServicer(progress)
            settings = IndexSettings(store=root, hash_slot_count=50, entry_count_max=31)
            self.part = IndexPart(fs, settings, self.servicer, progress, log, self.stopping)
        self.process = FollowerProcess(
            kind,
            root,
            self.part,
            log,
            progress,
            self.health.append,
            self.stopping,
            backoff=Backoff(uniform=lambda low, high: high),
            wait=self._pause,
            open_unbuilt=self.part.open_unbuilt if is_off else None,
            **options,
        )
        self.part.on_flushed = self.process.flushed
        self.servicer.state = self.process.state
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.process.run()
        except Exception as error:
            self.error = error

    def _pause(self, seconds):
        self.pauses.append(seconds)
        self.stopping.wait(0.005)

    def wait_for(self, condition):
        deadline = threading.Event()
        timer = threading.Timer(TIMEOUT_SECONDS, deadline.set)
        timer.start()
        try:
            while not condition():
                assert not deadline.wait(0.002), self.process.state()
        finally:
            timer.cancel()

    def wait_until_built(self):
        self.wait_for(
            lambda: (
                self.process.progress.next_offset == self.log.end_offset
                and self.process.state().state == "serving"
                and self.health[-1:] == [True]
            )
        )

    def stop(self):
        self.process.stop()
        self.thread.join(TIMEOUT_SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setattr(following_builder, "CHECKPOINT_INTERVAL_SECONDS", 0.02)
    started = []

    def start(kind, log, fs=None, root="store", **options):
        started.append(Running(kind, tmp_path / root, log, fs or FaultyFileSystem(), **options))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def built(root: Path, kind):
    """The files without names of index files, which are times."""
    files = file_bytes(root / kind)
    return files if kind == "consumequeue" else [files[name] for name in sorted(files)]


KINDS = ["consumequeue", "index"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_missed_a_record_that_a_clean_stop_had_left_to_it(start, tmp_path, kind):
    """What the log got while the services before this one stopped is applied before the end, as at a broker's stop."""
    log = MemoryLog(30)
    running = start(kind, log)
    running.wait_until_built()
    running.stopping.set()
    running.thread.join(TIMEOUT_SECONDS)
    log.grow(90)
    running.stop()
    assert running.process.progress.next_offset == log.end_offset
    whole = start(kind, MemoryLog(120), root="whole")
    whole.wait_until_built()
    whole.stop()
    assert built(tmp_path / "store", kind) == built(tmp_path / "whole", kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", ["hangs", "away", "recovers"])
def test_a_log_that_does_not_answer_holds_up_no_stop(start, monkeypatch, kind, trouble):
    monkeypatch.setattr(follower_process, "FINISH_SECONDS_MAX", 0.05)
    log = MemoryLog(30)
    running = start(kind, log)
    running.wait_until_built()
    running.stopping.set()
    running.thread.join(TIMEOUT_SECONDS)
    log.grow(5)
    log.is_reachable = trouble != "away"
    log.checked_offset = 0 if trouble == "recovers" else None
    with monkeypatch.context() as patch:
        if trouble == "hangs":
            patch.setattr(MemoryStream, "__iter__", lambda stream: iter(_until_cancelled(stream)))
        running.stop()
    log.is_reachable, log.checked_offset = True, None
    start(kind, log).wait_until_built()  # the lock is free, and the checkpoint is good


def _until_cancelled(stream):
    assert stream.cancelled.wait(TIMEOUT_SECONDS)
    yield from ()
    raise ServiceUnavailableError("cancelled")


FAULTS = [
    ("pwrite", errno.ENOSPC),
    ("pwrite", errno.EIO),
    ("fdatasync", errno.EIO),
    ("fdatasync", errno.ENOSPC),
    ("open", errno.EMFILE),
    ("open", errno.ENOSPC),
    ("ftruncate", errno.ENOSPC),
    ("fsync_dir", errno.EIO),
    ("rename", errno.ENOSPC),
    ("mkdirs", errno.ENOSPC),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("call", "error_number"), FAULTS)
def test_rmq_7902_2081_2398_331_a_disk_that_fails_for_a_while_never_ends_the_builder(
    start, tmp_path, kind, call, error_number
):
    log = MemoryLog(30)
    whole = start(kind, MemoryLog(120), root="whole")
    whole.wait_until_built()
    running = start(kind, log)
    running.wait_until_built()

    fault = running.fs.fail(call, error_number, lasting=True, path="store")
    log.grow(90)
    running.wait_for(lambda: fault.hits >= 3)
    # A flush fails beside the thread that applies, which learns of it with its next batch.
    running.wait_for(lambda: running.process.progress.catching_up)
    state = running.process.state()
    assert (state.state, running.health[-1]) == ("retrying", False)
    assert state.failure_count >= 1
    running.fs.clear()
    running.wait_until_built()

    assert running.process.state().failure_count == 0
    for each in (whole, running):
        each.stop()
    assert built(tmp_path / "store", kind) == built(tmp_path / "whole", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_builder_without_files_builds_while_the_log_recovers_and_serves_when_its_end_is_known(start, tmp_path, kind):
    whole = start(kind, MemoryLog(120), root="whole")
    whole.wait_until_built()
    log = MemoryLog(120)
    log.checked_offset = 60 * RECORD_SIZE_BYTES
    running = start(kind, log)
    running.wait_for(lambda: running.process.progress.next_offset == log.checked_offset)
    assert log.asked == [True]
    assert running.process.state().state == "catching-up"
    assert True not in running.health

    log.checked_offset = log.end_offset
    running.wait_for(lambda: running.process.progress.next_offset == log.end_offset)
    assert (running.process.state().state, running.process.progress.caught_up.is_set()) == ("catching-up", False)

    log.checked_offset = None
    running.wait_until_built()
    for each in (whole, running):
        each.stop()
    assert built(tmp_path / "store", kind) == built(tmp_path / "whole", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_builder_with_files_waits_for_a_recovery_to_end(start, kind):
    first = start(kind, MemoryLog(60))
    first.wait_until_built()
    first.stop()
    log = MemoryLog(120)
    log.checked_offset = log.end_offset
    second = start(kind, log)
    second.wait_for(lambda: len(second.pauses) > 3)
    assert (second.process.state().state, log.asked) == ("waiting", [])

    log.checked_offset = None
    second.wait_until_built()
    # Once to follow it, and once more for the store times of an index file whose summary the first had no time to make.
    assert set(log.asked) == {False}


@pytest.mark.parametrize("kind", KINDS)
def test_a_recovery_that_begins_again_behind_the_builder_is_waited_for(start, tmp_path, kind):
    """The commit log died while it recovered: what it has checked anew ends before what is built."""
    whole = start(kind, MemoryLog(120), root="whole")
    whole.wait_until_built()
    log = MemoryLog(120)
    log.checked_offset = log.end_offset
    running = start(kind, log)
    running.wait_for(lambda: running.process.progress.next_offset == log.end_offset)
    log.is_reachable = False
    running.wait_for(lambda: running.process.state().state == "waiting")
    log.checked_offset = 10 * RECORD_SIZE_BYTES
    log.is_reachable = True
    running.wait_for(lambda: len(log.asked) > 2)
    assert True not in running.health
    log.checked_offset = None
    running.wait_until_built()
    for each in (whole, running):
        each.stop()
    assert built(tmp_path / "store", kind) == built(tmp_path / "whole", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_apply_that_fails_three_times_is_tried_again_after_growing_pauses_and_resumes(start, kind):
    """A bug that goes away by itself; good batches before it do not shorten the pauses."""
    failures = []

    def with_a_bug(builder):
        put = builder._put

        def put_with_a_bug(columns):
            if len(failures) < 3 and columns.last.commit_log_offset >= 15_000:
                failures.append(running.process.state().failure_count)
                raise ZeroDivisionError("a bug")
            put(columns)

        builder._put = put_with_a_bug
        return builder

    log = MemoryLog(200)
    log.is_reachable = False
    running = start(kind, log)
    open_part = running.part.open
    running.part.open = lambda *arguments, **options: with_a_bug(open_part(*arguments, **options))
    running.wait_for(lambda: running.pauses)
    log.is_reachable = True
    running.wait_until_built()

    assert failures == [0, 1, 2]
    assert [pause for pause in running.pauses if pause != WAIT_SECONDS] == [0.2, 0.4]
    assert running.health == [True]
    assert running.process.state().failure_count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_of_a_damaged_file_names_the_file_and_does_not_fail_itself(start, kind):
    running = start(kind, MemoryLog(20))
    running.wait_until_built()

    def damaged(*_arguments):
        raise StoreCorruptedError("the file is damaged", file="/store/index/1", offset=40)

    with structlog.testing.capture_logs() as lines:
        running.process._follower.apply = damaged
        running.log.grow(5)
        running.wait_until_built()
    (line,) = [line for line in lines if line["event"] == "builder.failed"]
    assert (line["file"], line["error_offset"]) == ("/store/index/1", "40")
    assert line["offset"] == 20 * RECORD_SIZE_BYTES


@pytest.mark.parametrize(("error_number", "longest"), [(errno.EIO, 5.0), (errno.ENOSPC, 2.0)])
def test_pauses_end_at_five_seconds_and_for_a_full_disk_at_two(start, error_number, longest):
    fs = FaultyFileSystem()
    fs.fail("pwrite", error_number, lasting=True)
    running = start("consumequeue", MemoryLog(10), fs)

    running.wait_for(lambda: len(running.pauses) >= 9)

    pauses = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert running.pauses[:9] == [min(pause, longest) for pause in pauses]


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_refused_flush_no_descriptor_is_flushed_again_and_the_cache_is_not_trusted(start, tmp_path, kind):
    """The kernel marks the pages clean: a second flush says OK, and only a dropped cache shows what was lost."""
    whole = start(kind, MemoryLog(80), root="whole")
    whole.wait_until_built()
    log, fs = MemoryLog(40), FaultyFileSystem()
    running = start(kind, log, fs)
    running.wait_until_built()
    fault = fs.fail("fdatasync", errno.EIO, path=f"store/{kind}", loses=True)
    drops = fs.count("drop_cache", f"store/{kind}")

    log.grow(40)
    running.wait_for(lambda: fault.hits == 1 and fs.count("drop_cache", f"store/{kind}") > drops)
    running.wait_until_built()

    for each in (whole, running):
        each.stop()
    assert built(tmp_path / "store", kind) == built(tmp_path / "whole", kind)


def test_what_was_built_is_answered_while_the_disk_is_full_and_never_as_all_there_is(start):
    log = MemoryLog(50)
    running = start("consumequeue", log)
    running.wait_for(lambda: log.reports[-1:] == [5_000])
    running.fs.fail("pwrite", errno.ENOSPC, lasting=True)
    log.grow(50)
    running.wait_for(lambda: running.process.state().failure_count >= 2)
    request = queue_pb.GetQueueUnitsRequest(topic="orders", queue_id=0, queue_offset=40, max_units=100)

    answers = []
    while len(answers) < 20:
        try:
            answers.append(running.servicer.GetQueueUnits(request, None))
        except StoreRecoveringError:
            continue  # between two lives

    for answer in answers:
        assert [unit.commit_log_offset for unit in answer.units] == [n * 100 for n in range(40, answer.max_offset)]
        assert answer.max_offset <= 50
        assert answer.catching_up


def test_keys_are_answered_while_the_disk_is_full_and_never_as_all_there_is(start):
    log = MemoryLog(50)
    running = start("index", log)
    running.wait_for(lambda: log.reports[-1:] == [5_000])
    running.fs.fail("pwrite", errno.ENOSPC, lasting=True)
    log.grow(50)
    running.wait_for(lambda: running.process.state().failure_count >= 2)

    answers = []
    while len(answers) < 20:
        try:
            answers.append(running.servicer.SearchKey(index_pb.SearchKeyRequest(topic="orders", key="k1"), None))
        except StoreRecoveringError:
            continue

    for answer in answers:
        found = list(answer.commit_log_offsets)
        assert set(found) >= {n * 100 for n in range(1, 50, 7)}
        assert all(offset % 700 == 100 for offset in found)
        assert answer.catching_up


@pytest.mark.parametrize("kind", KINDS)
def test_while_the_log_cannot_be_reached_nothing_is_said_to_be_all_there_is(start, kind):
    """It may have grown; health stays, for what is built can be answered."""
    log = MemoryLog(20)
    running = start(kind, log)
    running.wait_until_built()
    assert not running.process.progress.catching_up

    log.is_reachable = False
    running.wait_for(lambda: running.process.state().state == "waiting")
    assert running.process.state().last_error == "commitlog is not there"
    assert running.process.progress.catching_up
    log.is_reachable = True
    running.wait_until_built()

    assert not running.process.progress.catching_up
    assert running.health == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_record_in_the_log_stops_the_builder_at_its_byte_without_spinning(start, kind):
    log = MemoryLog(60)
    log.damaged_offset = 4_500
    running = start(kind, log)
    running.wait_for(lambda: running.process.state().state == "retrying")
    streams_before = running.process._tail.failure_count

    state = running.process.state()
    assert "4500" in state.last_error
    assert running.process.progress.next_offset == 4_500
    assert running.health[-1:] in ([], [False])
    running.stopping.wait(0.3)
    assert running.process._tail.failure_count - streams_before < 10

    log.damaged_offset = None
    running.wait_until_built()


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_record_applied_may_rot_later_without_stopping_the_builder(start, kind):
    log = MemoryLog(30)
    first = start(kind, log)
    first.wait_until_built()
    first.stop()

    log.damaged_offset = 2_900
    log.grow(10)
    running = start(kind, log)
    running.wait_until_built()


@pytest.mark.parametrize("kind", KINDS)
def test_another_log_of_the_same_length_is_found_out_and_everything_built_again(start, tmp_path, kind):
    log = MemoryLog(40)
    first = start(kind, log)
    first.wait_until_built()
    first.stop()

    log.requests = [make_request(n, topic="other", time_millis=5, keys=["o"]) for n in range(40)]
    running = start(kind, log)
    running.wait_until_built()
    running.stop()
    expected = start(kind, log, root="expected")
    expected.wait_until_built()
    expected.stop()

    assert built(tmp_path / "store", kind) == built(tmp_path / "expected", kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [0, 1, 25])
def test_a_log_that_was_cut_while_it_was_followed_is_followed_again(start, tmp_path, kind, left):
    """A power cut took the log's end; what it grew since differs."""
    log = MemoryLog(40)
    running = start(kind, log)
    running.wait_until_built()

    log.requests = log.requests[:left] + [
        make_request(n, topic="later", queue_offset=n - left, keys=["o"]) for n in range(left, 60)
    ]
    running.process._tail._stream.cancel()
    running.wait_until_built()
    running.stop()
    expected = start(kind, log, root="expected")
    expected.wait_until_built()
    expected.stop()

    assert built(tmp_path / "store", kind) == built(tmp_path / "expected", kind)


def test_states_go_from_waiting_to_serving(start):
    log = MemoryLog(10)
    log.is_reachable = False
    running = start("consumequeue", log)
    running.wait_for(lambda: running.process.state().last_error == "commitlog is not there")
    assert running.process.state().state == "waiting"
    with pytest.raises(StoreRecoveringError):
        running.servicer.ListQueues(queue_pb.ListQueuesRequest(), None)

    log.is_reachable = True
    running.wait_until_built()

    assert running.process.state().last_error == ""
    running.wait_for(lambda: running.log.reports[-1:] == [1_000])


def test_a_builder_that_is_switched_off_serves_what_there_is_and_needs_nothing_of_the_log(start):
    log = MemoryLog(50)
    first = start("index", log)
    first.wait_until_built()
    first.stop()
    log.reports.clear()

    running = start("index", log, is_off=True)
    running.wait_for(lambda: log.reports)

    assert set(log.reports) == {-1}
    assert (running.process.state().state, running.health) == ("off", [True])
    answer = running.servicer.SearchKey(index_pb.SearchKeyRequest(topic="orders", key="k1"), None)
    assert list(answer.commit_log_offsets) == [n * 100 for n in range(43, 0, -7)]
    assert answer.catching_up


def test_a_store_that_is_not_for_us_ends_the_process_with_its_error(start, tmp_path):
    (tmp_path / "rocks/rocksdb").mkdir(parents=True)
    running = start("consumequeue", MemoryLog(1), root="rocks")
    running.thread.join(TIMEOUT_SECONDS)
    assert isinstance(running.error, UnsupportedStoreError)


def test_a_locked_part_ends_the_process_with_its_error(start, tmp_path, monkeypatch):
    monkeypatch.setattr("store.files.locks.LOCK_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(OwnerLock.__init__, "__kwdefaults__", {"wait_seconds": 0.05})
    lock = OwnerLock(tmp_path / "store/reput/index/lock")
    lock.acquire()
    running = start("index", MemoryLog(1))
    running.thread.join(TIMEOUT_SECONDS)
    lock.release()
    assert isinstance(running.error, StoreLockedError)
