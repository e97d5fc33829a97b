"""One life of a store in one process without gRPC: the commit log and both builders, driven step by step.

Everything that a life does comes from its `Life` and nothing else: messages, clocks, when chores run, when the builders
save. So two lives on equal stores make the same calls in the same order, and "the n-th call" means something. The
housekeeping thread is replaced by `HandCranked`, whose chores run where the life says; flushing keeps its thread, and since
every append waits for it, its calls have their place in the order too.

What happens is told line by line through `say`, each line after the fact:

    recovered END_OFFSET | recover_failed ERROR         refused ID ERROR WRITTEN   (WRITTEN: none, unknown)
    ack ID OFFSET QUEUE QUEUE_OFFSET                    builder_failed NAME ERROR
    fenced | state WORD | stray TEXT                    done            (came to its end)

As a script it is a life for tools that work from outside, such as strace: `python -m tests.torture.drivers append STORE`.
"""

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import commitlog_svc.commit_log as commit_log_module
import commitlog_svc.retention.retention as retention_module
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.housekeeping import Chore
from commitlog_svc.retention.retention_state import AgeClock
from commitlog_svc.settings import CommitLogSettings
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import saved_queues
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from reput.message.v1.message_pb2 import NewMessage
from store.derive.index_keys import index_keys
from store.errors import DiskFullError, FlushFailedError, ResourceBusyError, StoreError
from store.files.file_system import RealFileSystem
from store.files.locks import has_abort_marker
from store.format.host import Host
from store.format.paths import own_state_dir
from store.readers.index_reader import IndexLayout
from tests.torture.store_check import IndexLayout as CheckLayout

BORN_HOST = Host("10.0.0.9", 4711)
TIME_MILLIS = 1_700_000_000_000
QUEUE_FILE_BYTES = 20 * 4
LAYOUT = IndexLayout(7, 12)
CHECK_LAYOUT = CheckLayout(LAYOUT.slot_count, LAYOUT.entry_count_max)
APPLY_COUNT_MAX = 4  # a start may be refused for another; a few times are enough


@dataclass(frozen=True, slots=True)
class Life:
    """What a life does.

    Attributes:
        count: records appended.
        first: number of the first; also sets the clock, so that lives follow each other in time.
        file_size_bytes: of the log.
        body_bytes: about the size of a body.
        turn_every: chores and builders run after so many records; 0 never.
        batch: records a request.
        expires: log files expire as soon as both builders are through with them, one a turn.
        is_clean_end: closes everything; otherwise it just ends, as killed.
    """

    count: int = 20
    first: int = 0
    file_size_bytes: int = 16_384
    body_bytes: int = 40
    turn_every: int = 5
    batch: int = 1
    expires: bool = False
    is_clean_end: bool = True


SCENARIOS = {
    "start": Life(count=2, turn_every=1),
    "append": Life(),
    "rollover": Life(file_size_bytes=4096, body_bytes=900),
    "batches": Life(file_size_bytes=4096, body_bytes=500, batch=4, turn_every=4),
    "truncate": Life(first=100, count=6, turn_every=3),
    "expiry": Life(first=100, count=12, file_size_bytes=4096, body_bytes=1200, turn_every=2, expires=True),
    "recovery": Life(first=100, count=2, turn_every=1),
}


def message_id(number: int) -> str:
    """The id of the n-th message."""
    return f"m-{number:06d}"


def make_message(number: int, body_bytes: int) -> NewMessage:
    """The n-th message: always the same."""
    name = message_id(number)
    return NewMessage(
        topic="orders" if number % 3 else "trades",
        queue_id=number % 2,
        body=name.encode() + b"|" + bytes([97 + number % 26]) * (body_bytes + number % 7),
        keys=[f"k{number % 5}", f"only{number}"][: 1 + number % 2],
        tags=("", "red", "blue")[number % 3],
        unique_key=f"U{number:010d}",
    )


class HandCranked:
    """In the place of the housekeeping thread: chores run when `turn` is called, as that thread would treat them."""

    current: "HandCranked | None" = None

    def __init__(self, chores: list[Chore], on_flush_failed: Callable[[FlushFailedError], None], *_: Any) -> None:
        self._chores = chores
        self._on_flush_failed = on_flush_failed
        self._is_over = False
        HandCranked.current = self

    def start(self) -> None:
        """Nothing: no thread."""

    def close(self) -> None:
        """No turn any more."""
        self._is_over = True

    def turn(self) -> None:
        """Each chore once."""
        for chore in self._chores:
            if self._is_over:
                return
            try:
                chore.work()
            except FlushFailedError as error:
                self._is_over = True
                self._on_flush_failed(error)
            except (StoreError, OSError):
                pass  # tried again at the next turn, as the thread does


class Builders:
    """Queues and index, fed from the log by hand; one that fails is left alone, as a process that has ended."""

    def __init__(self, log: CommitLog, root: Path, say: Callable[[str], None], *, is_clean_store: bool) -> None:
        self._log = log
        self._say = say
        self._seconds = 0.0
        fs = RealFileSystem()
        state = str(root)
        self._live: dict[str, Any] = {}

        def clock() -> float:
            return self._seconds

        def open_queues() -> ConsumeQueueBuilder:
            table = ConsumeQueueTable(root, fs, QUEUE_FILE_BYTES)
            path = Path(own_state_dir(state, "consumequeue")) / "checkpoint.json"
            table.load(saved=saved_queues(fs, path))
            builder = ConsumeQueueBuilder(table, path, clock=clock, on_flushed=self._reporter("consumequeue"))
            builder.recover(is_clean_store=is_clean_store, log_first_offset=first, log_end_offset=end)
            builder.begin()
            return builder

        def open_index() -> IndexBuilder:
            files = IndexFileSet(root, fs, LAYOUT, lambda: TIME_MILLIS)
            path = Path(own_state_dir(state, "index")) / "checkpoint.json"
            builder = IndexBuilder(files, path, clock=clock, on_flushed=self._reporter("index"))
            builder.recover(
                is_clean_store=is_clean_store,
                log_first_offset=first,
                log_end_offset=end,
                first_indexed=self._first_indexed,
            )
            builder.begin()
            return builder

        first, end = log.status.first_offset, log.status.flushed_offset
        openers: dict[str, Callable[[], Any]] = {"consumequeue": open_queues, "index": open_index}
        for name, opener in openers.items():
            self._guard(name, lambda opener=opener, name=name: self._live.update({name: opener()}))

    def turn(self) -> None:
        """Each builder takes all that the log has flushed; every second turn it saves."""
        self._seconds += 0.6
        for name in list(self._live):
            self._guard(name, lambda name=name: self._catch_up(self._live[name]))

    def stop(self) -> None:
        """A clean end of those that are left."""
        for name in list(self._live):
            self._guard(name, self._live[name].stop)

    def _catch_up(self, builder: Any) -> None:
        for _ in range(APPLY_COUNT_MAX):
            first, end = self._log.status.first_offset, self._log.status.flushed_offset
            offset = builder.start_offset()
            if offset >= 0 and not first <= offset <= end:
                builder.find_place(first, end)
            elif offset >= end or first == end:  # a heartbeat
                builder.apply([], end, first, end)
                return
            elif self._apply_all(builder, offset):
                return
        raise AssertionError("a builder does not come to the end of the log")

    def _apply_all(self, builder: Any, offset: int) -> bool:
        """Whether it took all that is flushed; otherwise it wants to start elsewhere."""
        for batch in self._log.following.follow(offset, 0):
            taken = builder.apply(batch.requests, batch.next_offset, batch.log_first_offset, batch.log_end_offset)
            if not taken:
                return False
            if batch.next_offset >= self._log.status.flushed_offset:
                return True
        return False

    def _first_indexed(self, offset: int) -> int | None:
        first, end = self._log.status.first_offset, self._log.status.flushed_offset
        if 0 <= offset < first or end <= max(offset, first):
            return None
        for batch in self._log.following.follow(offset, 0):
            for request in batch.requests:
                if request.commit_log_offset > offset and index_keys(request):
                    return request.commit_log_offset
            if batch.next_offset >= end:
                return None
        return None

    def _reporter(self, name: str) -> Callable[[int, int | None], None]:
        def report(next_offset: int, store_time_millis: int | None) -> None:
            if next_offset >= 0:
                self._log.followers.report(name, next_offset, store_time_millis or 0, self._log.status.flushed_offset)

        return report

    def _guard(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except (StoreError, OSError) as error:
            self._say(f"builder_failed {name} {type(error).__name__}")
            builder = self._live.pop(name, None)
            if builder is not None:
                builder.abandon()


def live(root: Path, life: Life, say: Callable[[str], None]) -> None:
    """Lives it; returns at its end. Errors that nobody should see are told as `stray`."""
    commit_log_module.Housekeeper = HandCranked
    _make_clocks_repeatable(life)
    try:
        _live(root, life, say)
    except Exception as error:  # to be told to who judges
        say(f"stray {type(error).__name__} {error}".replace("\n", " "))


def _live(root: Path, life: Life, say: Callable[[str], None]) -> None:
    ticks = _ticks(life.first)
    is_clean_store = not has_abort_marker(RealFileSystem(), root)
    log = CommitLog(
        root,
        _settings(root, life),
        RealFileSystem(),
        clock_millis=lambda: next(ticks),
        on_fenced=lambda error: say("fenced"),
    )
    try:
        log.recover()
    except (StoreError, OSError) as error:
        say(f"recover_failed {type(error).__name__} {error}".replace("\n", " "))
        return
    say(f"recovered {log.status.end_offset}")
    builders = Builders(log, root, say, is_clean_store=is_clean_store)
    for begin in range(life.first, life.first + life.count, life.batch):
        _append(log, life, begin, say)
        if life.turn_every and (begin + life.batch - life.first) % life.turn_every == 0:
            assert HandCranked.current is not None
            HandCranked.current.turn()
            builders.turn()
    say(f"state {log.status.state}")
    if not life.is_clean_end:
        return
    builders.turn()
    builders.stop()
    try:
        log.close()
    except (StoreError, OSError) as error:
        say(f"close_failed {type(error).__name__}")
    say("done")


def _append(log: CommitLog, life: Life, begin: int, say: Callable[[str], None]) -> None:
    numbers = range(begin, min(begin + life.batch, life.first + life.count))
    try:
        receipts = log.opened.appends.append_messages(
            [make_message(number, life.body_bytes) for number in numbers], sync=True, born_host=BORN_HOST
        )
    except StoreError as error:
        written = "none" if isinstance(error, (DiskFullError, ResourceBusyError)) else "unknown"
        for number in numbers:
            say(f"refused {message_id(number)} {type(error).__name__} {written}")
        return
    for number, receipt in zip(numbers, receipts, strict=True):
        say(f"ack {message_id(number)} {receipt.commit_log_offset} {receipt.queue_id} {receipt.queue_offset}")


def _settings(root: Path, life: Life) -> CommitLogSettings:
    """Sync flush, and a retention that hangs on neither the hour nor the disk that the test runs on."""
    return CommitLogSettings(
        store=root,
        flush_mode="sync",
        file_size_bytes=life.file_size_bytes,
        file_reserved_seconds=1 if life.expires else 259_200,
        delete_when_hours=";".join(f"{hour:02d}" for hour in range(24)),
        delete_files_interval_millis=0,
        clean_resource_interval_millis=0,
        disk_clean_ratio_percent=100,
        disk_clean_forcibly_ratio_percent=100,
        disk_full_ratio_percent=100,
        disk_clean_free_bytes=0,
        disk_clean_forcibly_free_bytes=0,
        disk_full_free_bytes=0,
    )


def _make_clocks_repeatable(life: Life) -> None:
    """Ages by a boot clock, intervals by a running one: each reading a step further, the next life later."""
    boot, running = _ticks(life.first), itertools.count()
    retention_module.AgeClock = functools.partial(AgeClock, boot_millis=lambda: next(boot), boot_id="one")
    commit_log_module.Retention = functools.partial(retention_module.Retention, clock=lambda: float(next(running)))


def _ticks(first: int) -> Iterator[int]:
    """Wall clock milliseconds, a second and a bit a step."""
    now = TIME_MILLIS + first * 10_000
    while True:
        now += 1_337
        yield now


def main() -> None:
    """`drivers.py SCENARIO STORE`: a life on the real system calls."""
    scenario, store = sys.argv[1], Path(sys.argv[2])

    def say(line: str) -> None:
        os.write(1, line.encode() + b"\n")

    live(store, SCENARIOS[scenario], say)
    os._exit(0)


if __name__ == "__main__":
    main()
