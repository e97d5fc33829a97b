"""Flushing beside the thread that applies: nothing is claimed before it is on the disk, and no failure is lost."""

import threading

import pytest

from services.following.following_builder import CheckpointThread
from store.errors import FlushFailedError
from store.files.file_system import RealFileSystem
from store.files.json_state import read_json_state
from tests.support.builders import Clock, follow, index_bytes, open_index, open_queues, queue_bytes
from tests.support.dispatches import make_request

TIMEOUT_SECONDS = 60.0
REQUESTS = [make_request(n, keys=[f"k{n}", f"l{n}"]) for n in range(200)]
OPEN = {"consumequeue": open_queues, "index": open_index}
BYTES = {"consumequeue": queue_bytes, "index": index_bytes}


class GatedDisk(RealFileSystem):
    """A disk whose flushes wait while the gate is shut, and fail when told."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()
        self.failure = None

    def fdatasync(self, fd):
        if not self.gate.is_set():
            self.is_waiting.set()
            assert self.gate.wait(TIMEOUT_SECONDS)
        if self.failure is not None:
            raise self.failure
        super().fdatasync(fd)


@pytest.fixture(params=OPEN)
def kind(request):
    return request.param


@pytest.fixture
def disk():
    return GatedDisk()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def builder(tmp_path, kind, disk, clock):
    builder = OPEN[kind](tmp_path / "store", REQUESTS, fs=disk, clock=clock, checkpointer=CheckpointThread("test"))
    yield builder
    disk.gate.set()


def saved_offset(root, kind):
    return read_json_state(RealFileSystem(), root / "store/reput" / kind / "checkpoint.json")["next_offset"]


def apply(builder, begin, end):
    return builder.apply(REQUESTS[begin:end], REQUESTS[end - 1].next_offset, 0, REQUESTS[-1].next_offset)


def test_records_are_applied_while_a_flush_hangs_and_are_not_in_its_checkpoint(tmp_path, kind, disk, clock, builder):
    told = []
    builder._on_flushed = lambda offset, _: told.append(offset)
    disk.gate.clear()
    apply(builder, 0, 10)
    assert disk.is_waiting.wait(TIMEOUT_SECONDS)

    for at in range(10, 50, 10):  # past the end of queue files, not of an index file: that one waits, see below
        clock.seconds += 2
        assert apply(builder, at, at + 10)
        assert builder.progress.next_offset == REQUESTS[at + 9].next_offset
    assert told == []
    disk.gate.set()
    builder._checkpointer.settle()

    assert told == [REQUESTS[9].next_offset]
    assert saved_offset(tmp_path, kind) == REQUESTS[9].next_offset


def test_after_a_crash_behind_a_hanging_flush_the_files_are_those_of_a_rebuild(tmp_path, kind, disk, clock, builder):
    apply(builder, 0, 20)
    builder._checkpointer.settle()
    disk.gate.clear()
    clock.seconds += 2
    apply(builder, 20, 45)
    assert disk.is_waiting.wait(TIMEOUT_SECONDS)
    disk.failure = FlushFailedError("the disk went away")
    disk.gate.set()
    builder.abandon()

    again = OPEN[kind](tmp_path / "store", REQUESTS)
    assert again.start_offset() == REQUESTS[19].commit_log_offset
    follow(again, REQUESTS)
    again.stop()
    whole = OPEN[kind](tmp_path / "whole", REQUESTS)
    follow(whole, REQUESTS)
    whole.stop()

    assert BYTES[kind](tmp_path / "store") == BYTES[kind](tmp_path / "whole")


@pytest.mark.parametrize("ask", ["apply", "stop", "rebuild"])
def test_a_flush_that_failed_ends_the_builder_at_the_next_thing_that_it_does(disk, builder, ask):
    disk.failure = FlushFailedError("refused")
    apply(builder, 0, 10)
    while builder._checkpointer.is_busy:
        builder._checkpointer._thread.join(TIMEOUT_SECONDS)

    with pytest.raises(FlushFailedError):
        {"apply": lambda: apply(builder, 10, 20), "stop": builder.stop, "rebuild": builder.rebuild}[ask]()
    builder.abandon()


def test_an_index_file_that_is_full_waits_for_the_flush_under_way_before_it_is_sealed(tmp_path, disk):
    """Else the older slots of the flush would be written over the newer ones."""
    builder = open_index(tmp_path / "store", REQUESTS, fs=disk, checkpointer=CheckpointThread("test"))
    disk.gate.clear()
    apply(builder, 0, 30)
    assert disk.is_waiting.wait(TIMEOUT_SECONDS)
    applying = threading.Thread(target=apply, args=(builder, 30, 200))
    applying.start()
    disk.gate.set()
    applying.join(TIMEOUT_SECONDS)
    builder.stop()
    whole = open_index(tmp_path / "whole", REQUESTS)
    follow(whole, REQUESTS)
    whole.stop()

    assert len(index_bytes(tmp_path / "store")) > 1
    assert index_bytes(tmp_path / "store") == index_bytes(tmp_path / "whole")


def test_work_is_done_one_piece_at_a_time_and_its_error_is_raised_until_nobody_asks():
    thread = CheckpointThread("test")
    done = []
    thread.start(lambda: done.append(1))
    thread.start(lambda: done.append(2))
    thread.settle()
    assert done == [1, 2]

    thread.start(lambda: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            thread.settle()
