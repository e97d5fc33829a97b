"""Lives of a store: processes that open one, append to it and get killed at any moment.

`Nursery` keeps a process that has imported everything; each life is a fork of it, so that a life costs milliseconds. A
life holds what the services hold: the commit log, and both builders following it.

Messages tell where they come from (`Key`: life, writer, number), and their padding is made from that, so that a reader knows
what the whole body must be. A writer numbers its messages 0, 1, 2, ...; what it prints is what it was promised:

    pid P | recovered END CUT | ack WRITER LAST END NANOSECONDS BLOCKLOG | flushed OFFSET NANOSECONDS
    refused TEXT | broken TEXT | end CODE
"""

import contextlib
import dataclasses
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from commitlog_svc import commit_log as commit_log_module
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.settings import CommitLogSettings
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from reput.message.v1.message_pb2 import NewMessage
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import index_keys
from store.errors import OffsetOutOfRangeError, StoreError
from store.files.file_system import RealFileSystem
from store.files.locks import has_abort_marker
from store.format.host import Host
from store.format.paths import CONSUME_QUEUE_EXT
from store.readers.index_reader import IndexLayout, list_index_files
from store.walk.log_reader import LogReader
from tests.torture.tools import die_with_parent, enter_own_namespace

ROOT = Path(__file__).parents[3]
QUEUE_FILE_BYTES = 4000
EXT_FILE_BYTES = 1024  # ConsumeQueueExt is on: lives with it make every call of those without it, too
LAYOUT = IndexLayout(500, 1000)
TOPIC_COUNT, QUEUE_COUNT = 2, 3
BATCH_COUNT_MAX = 400  # then a life only waits for its end
HASTE = 20  # the builders' seconds pass so much faster: they write checkpoints that often
SNAPSHOT_SECONDS = 0.1
EXIT_CODE_FENCED = 3
LINE_SECONDS_MAX = 120


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """What a life does.

    Attributes:
        do: `append` until killed, `recover` and no more, or `check` (see Report).
        root: the store root.
        life: its number.
        seed: of what it appends.
        flush_mode: of the log.
        flush_interval_millis: of the log.
        snapshot_seconds: between two snapshots of the log, each of which flushes it.
        file_size_bytes: of log files.
        writer_count: threads that append.
        has_builders: whether queues and index are built.
        report: `check` writes its report here.
        is_clean: `check` ends with a clean stop.
        batch_count: batches a writer appends before it only waits.
        block_log: the file that records the disk's writes; empty for none.
    """

    do: str
    root: str
    life: int = 0
    seed: int = 0
    flush_mode: str = "sync"
    flush_interval_millis: int = 10
    snapshot_seconds: float = SNAPSHOT_SECONDS
    file_size_bytes: int = 65536
    writer_count: int = 1
    has_builders: bool = True
    report: str = ""
    is_clean: bool = True
    batch_count: int = BATCH_COUNT_MAX
    block_log: str = ""


class Key(NamedTuple):
    """Which message it is."""

    life: int
    writer: int
    number: int


class Report(NamedTuple):
    """A store as recovery leaves it: its messages in log order, and what is wrong with queues and index (empty: nothing)."""

    keys: list[Key]
    end_offset: int
    problem: str


class Ack(NamedTuple):
    """A promise: the writer's messages up to `number`, the log up to `end_offset`.

    Given at `nanoseconds` (monotonic), when the block log had `block_log_bytes`.
    """

    writer: int
    number: int
    end_offset: int
    nanoseconds: int
    block_log_bytes: int


def body_of(key: Key) -> bytes:
    """The whole body of a message."""
    head = b"%d:%d:%d:" % key
    dice = random.Random(head)
    return head + dice.randbytes(dice.choice((0, 20, 200, 900, 4200)))


def key_of(body: bytes) -> Key:
    """The message that a body is of; AssertionError when it is none that a life could have written."""
    life, writer, number = body.split(b":", 3)[:3]
    key = Key(int(life), int(writer), int(number))
    assert body == body_of(key), f"nobody wrote {body[:60]!r}"
    return key


def message_of(key: Key) -> NewMessage:
    """The message to append."""
    name = f"{key.life}-{key.writer}-{key.number}"
    return NewMessage(
        topic=f"topic-{key.number % TOPIC_COUNT}",
        queue_id=key.number % QUEUE_COUNT,
        body=body_of(key),
        keys=[name, "all"],
    )


class Life:
    """A life as its parent sees it.

    Attributes:
        pid: its process.
        acks: its promises so far.
        flushes: how far the builders were shown the log, each with its moment (monotonic nanoseconds).
        recovered: end of the log and cut offset (-1: nothing was cut), once it has recovered.
        refused: the error that ended appending.
        broken: an error that nobody expected, with its stack.
        exit_code: once it has ended; negative for a signal.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.pid = -1
        self.acks: list[Ack] = []
        self.flushes: list[tuple[int, int]] = []
        self.recovered: tuple[int, int] | None = None
        self.refused = ""
        self.broken = ""
        self.exit_code: int | None = None

    def read_until(self, is_enough: Callable[["Life"], bool]) -> None:
        """Takes in what it says until that is enough, or it ends."""
        while self.exit_code is None and not is_enough(self):
            self._take(next(self._lines).decode())

    def read_acks(self, count: int) -> None:
        """Takes in what it says until it was promised so much, or will be promised nothing more."""
        self.read_until(lambda _: len(self.acks) >= count or bool(self.refused or self.broken))

    def read_to_end(self) -> None:
        """Takes in all that it says."""
        self.read_until(lambda _: False)

    def kill(self) -> None:
        """Ends it at once, and takes in the rest."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it fenced its log and ended
                os.kill(self.pid, signal.SIGKILL)
        self.read_to_end()

    def _take(self, line: str) -> None:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "pid":
            self.pid = int(rest)
        elif word == "ack":
            self.acks.append(Ack(*map(int, rest.split())))
        elif word == "flushed":
            offset, nanoseconds = map(int, rest.split())
            self.flushes.append((offset, nanoseconds))
        elif word == "recovered":
            end_offset, cut_offset = map(int, rest.split())
            self.recovered = (end_offset, cut_offset)
        elif word == "refused":
            self.refused = rest
        elif word == "broken":
            self.broken = rest
        elif word == "end":
            self.exit_code = int(rest)


def _lines_of(fd: int) -> Iterator[bytes]:
    """Lines as they come; AssertionError when none comes for too long: a life that hangs is a failure too."""
    data = b""
    while True:
        line, newline, rest = data.partition(b"\n")
        if newline:
            data = rest
            yield line
            continue
        ready, _, _ = select.select([fd], [], [], LINE_SECONDS_MAX)
        assert ready, f"the life has said nothing for {LINE_SECONDS_MAX} s"
        more = os.read(fd, 65536)
        assert more, "the nursery has ended"
        data += more


class Nursery:
    """The warm process; one life at a time."""

    def __init__(self) -> None:
        enter_own_namespace()  # it must see the disks that are mounted later
        environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )

    def begin(self, order: Order) -> Life:
        """Starts a life; the one before must have ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(order)).encode() + b"\n")
        self._process.stdin.flush()
        life = Life(_lines_of(self._process.stdout.fileno()))
        life.read_until(lambda life: life.pid > 0)
        return life

    def check(self, root: Path, report: Path, *, is_clean: bool = True, **settings: Any) -> Report:
        """What a restart makes of a store; AssertionError when it cannot be recovered."""
        order = Order("check", str(root), report=str(report), is_clean=is_clean, **settings)
        life = self.begin(order)
        life.read_to_end()
        assert life.exit_code == 0, f"recovery failed: {life.broken or life.refused or life.exit_code}"
        keys, end_offset, problem = json.loads(report.read_text())
        return Report([Key(*key) for key in keys], end_offset, problem)

    def close(self) -> None:
        """Ends it and the life in hand."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# -- inside a life


_answers = 1  # where what is said goes; the nursery keeps it apart from what the product logs


def _say(text: str) -> None:
    os.write(_answers, text.replace("\n", " / ").encode()[:3500] + b"\n")


def _hasty_clock() -> float:
    return time.monotonic() * HASTE


def open_queues(log: CommitLog, root: Path, *, is_clean_store: bool) -> ConsumeQueueBuilder:
    """The queues' builder, recovered."""
    table = ConsumeQueueTable(root, RealFileSystem(), QUEUE_FILE_BYTES, ext_file_size_bytes=EXT_FILE_BYTES)
    table.load()
    builder = ConsumeQueueBuilder(table, root / "reput/consumequeue/checkpoint.json", clock=_hasty_clock)
    builder.recover(
        is_clean_store=is_clean_store,
        log_first_offset=log.status.first_offset,
        log_end_offset=log.status.flushed_offset,
    )
    return builder


def open_index(log: CommitLog, root: Path, *, is_clean_store: bool) -> IndexBuilder:
    """The index's builder, recovered."""
    files = IndexFileSet(root, RealFileSystem(), LAYOUT, lambda: time.time_ns() // 1_000_000)
    builder = IndexBuilder(files, root / "reput/index/checkpoint.json", clock=_hasty_clock)

    def first_indexed(offset: int) -> int | None:
        requests = LogReader(root).dispatch_requests()
        return next((r.commit_log_offset for r in requests if r.commit_log_offset > offset and index_keys(r)), None)

    builder.recover(
        is_clean_store=is_clean_store,
        log_first_offset=log.status.first_offset,
        log_end_offset=log.status.flushed_offset,
        first_indexed=first_indexed,
    )
    return builder


def follow(log: CommitLog, builder: Any, until: Callable[[int], bool]) -> None:
    """Feeds a builder until it is told that it has come far enough."""
    try:
        batches = log.following.follow(builder.start_offset(), 0)
    except OffsetOutOfRangeError:
        builder.resume_inside(log.status.first_offset, log.status.flushed_offset)
        batches = log.following.follow(builder.start_offset(), 0)
    for batch in batches:
        builder.apply(batch.requests, batch.next_offset, batch.log_first_offset, batch.log_end_offset)
        if until(batch.next_offset):
            return


def _run(order: Order) -> int:
    root = Path(order.root)
    assert hasattr(commit_log_module, "SNAPSHOT_SECONDS")
    commit_log_module.SNAPSHOT_SECONDS = order.snapshot_seconds
    is_clean_store = not has_abort_marker(RealFileSystem(), root)
    settings = CommitLogSettings(
        store=root,
        file_size_bytes=order.file_size_bytes,
        flush_mode=order.flush_mode,  # type: ignore[arg-type]
        flush_interval_millis=order.flush_interval_millis,
        default_topic_queue_count=QUEUE_COUNT,
    )
    fenced = threading.Event()

    def on_fenced(error: StoreError) -> None:
        _say(f"refused {error.message}")
        fenced.set()

    log = CommitLog(root, settings, on_fenced=on_fenced)
    found = log.recover()
    _say(f"recovered {found.end_offset} {-1 if found.cut_offset is None else found.cut_offset}")
    if order.do == "recover":
        signal.pause()
    builders: list[Any] = []
    if order.has_builders or order.do == "check":
        builders = [opened(log, root, is_clean_store=is_clean_store) for opened in (open_queues, open_index)]
    if order.do == "check":
        _check(order, log, builders)
        return 0

    def tell(offset: int) -> bool:
        _say(f"flushed {offset} {time.monotonic_ns()}")
        return False

    def build(builder: Any) -> None:
        try:
            follow(log, builder, tell)
        except (StoreError, OSError):
            return  # the disk went down

    for builder in builders:
        threading.Thread(target=build, args=(builder,), daemon=True).start()
    for writer in range(order.writer_count):
        threading.Thread(target=_write, args=(log, order, writer), daemon=True).start()
    fenced.wait()
    return EXIT_CODE_FENCED


def _write(log: CommitLog, order: Order, writer: int) -> None:
    dice, number = random.Random(order.seed * 31 + writer), 0
    try:
        for _ in range(order.batch_count):
            count = dice.choice((1, 1, 1, 2, 8))
            batch = [message_of(Key(order.life, writer, number + i)) for i in range(count)]
            receipt = log.opened.appends.append_messages(batch, sync=None, born_host=Host("10.0.0.9", 4711))[-1]
            number += count
            end_offset = receipt.commit_log_offset + receipt.store_size_bytes
            block_log_bytes = os.stat(order.block_log).st_size if order.block_log else 0
            _say(f"ack {writer} {number - 1} {end_offset} {time.monotonic_ns()} {block_log_bytes}")
    except (StoreError, OSError) as error:
        _say(f"refused {error}")
    except BaseException:
        _say(f"broken {traceback.format_exc()}")


def _check(order: Order, log: CommitLog, builders: list[Any]) -> None:
    root, end_offset = Path(order.root), log.status.flushed_offset
    for builder in builders:
        if max(builder.start_offset(), log.status.first_offset) < end_offset:  # else nothing would come for a second
            follow(log, builder, lambda offset: offset >= end_offset)
        builder.stop()
    requests = list(LogReader(root).dispatch_requests())
    keys = [key_of(log.opened.reads.get(request.commit_log_offset).body) for request in requests]
    scratch = Path(order.report + ".rebuilt")
    problem = difference_from_rebuild(root, requests, scratch)
    if order.is_clean:
        log.close()
    Path(order.report).write_text(json.dumps([keys, end_offset, problem]))


def difference_from_rebuild(root: Path, requests: list[DispatchRequest], scratch: Path, *, of: str = "") -> str:
    """In what queues and index differ from those made from the log alone; empty when they are equal, byte for byte.

    `of` is `consumequeue` or `index` when only these are below that root.
    """
    scratch.mkdir()
    ext_file_size_bytes = EXT_FILE_BYTES if (root / CONSUME_QUEUE_EXT).exists() else 0
    table = ConsumeQueueTable(scratch, RealFileSystem(), QUEUE_FILE_BYTES, ext_file_size_bytes=ext_file_size_bytes)
    table.apply(DispatchColumns.of(requests))
    files = IndexFileSet(scratch, RealFileSystem(), LAYOUT, lambda: 1_800_000_000_000)
    files.apply(DispatchColumns.of(requests))
    files.flush()
    made, kept = _queue_tree(scratch), _queue_tree(root)
    indexes = [[path.read_bytes() for path in list_index_files(RealFileSystem(), place)] for place in (scratch, root)]
    subprocess.run(["rm", "-r", str(scratch)], check=True)
    problems = [f"queue file {name}" for name in sorted(made.keys() | kept.keys()) if made.get(name) != kept.get(name)]
    if of == "index":
        problems = []
    if of != "consumequeue" and indexes[0] != indexes[1]:
        problems.append(
            f"index files {[len(data) for data in indexes[1]]}, rebuilt {[len(data) for data in indexes[0]]}"
        )
    return ", ".join(problems)


def _queue_tree(root: Path) -> dict[str, bytes]:
    folders = ("consumequeue", CONSUME_QUEUE_EXT)
    return {f"{folder}/{name}": data for folder in folders for name, data in _tree(root / folder).items()}


def _tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _nurse() -> None:
    """Forks a life for each line, one after the other."""
    global _answers  # noqa: PLW0603  # set once, before the first life
    _answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        order = Order(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            die_with_parent()
            code = 70
            try:
                _say(f"pid {os.getpid()}")
                code = _run(order)
            except (StoreError, OSError) as error:
                _say(f"refused {error!r}")
                code = 1
            except BaseException:
                _say(f"broken {traceback.format_exc()}")
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        _say(f"end {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    die_with_parent()
    _nurse()
