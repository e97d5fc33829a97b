"""HaSlave: this log as the slave of a broker of RocketMQ.

    master ──── bytes of its log ────▶ HaSlave ──▶ LogCopy ──▶ the same offsets of our files ──▶ flush
       ▲                                                                                           │
       └──────────────────── report: durable up to here ◀──────────────────────────────────────────┘

- A new connection asks for our last record again. A master that has it sends it at once; the bytes are compared with ours, so a
  master whose log is another one is noticed before anything is taken. RocketMQ's slave compares nothing.
- A master that has only heartbeats for us has less than we have, or has removed what we need. A Probe tells which.
  Then the copy stops and says so: nothing that we have is overwritten. It looks again every half minute.
- A master that lost the end of its log and has written something else there since is followed (agreed_offset): the next start
  keeps aside what only we have.
- An empty log asks for byte 1, because a master takes 0 for "the last file". Byte 0 is 0: it is the highest byte of the size of
  the first record, which is smaller than 16 MiB. The record is checked with its CRCs, so a wrong guess would be noticed.
- Reports name durable bytes only. The second one waits until the master has sent something: a master takes the last report that
  it has received for the first one, and would begin to send there.

Probe: finds out what a master has, with connections of their own; its log is not copied by them.

A master answers the first report of a connection in one of these ways (`DefaultHAConnection` of RocketMQ 5.3.3):

    report        the byte is in its log        the byte is not, or not yet
    0             it sends from the begin of its LAST file on
    n > 0         it sends from n on, at once   only heartbeats

So a file's first byte answers whether the master has that file, except for the file at 0, of which byte 1 is asked for.

agreed_offset: where the log of a master that lost its end and went on still agrees with the log of its mirror.

    mirror   |===== equal =====|-- lost by the master --|
    master   |===== equal =====|-- written since ----------|
                               ^ the mirror goes on here; what only it has is kept aside (replication/cut.py)

A broker loses the end of its log when its machine crashes before a flush, and writes other records there afterwards. What a
master has not written over is not cut: it may come back, and here it can be found.

MirroredTopics: the topics of a mirror, learned from the records that come.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection
from functools import partial

import structlog

from commitlog_svc.append.topics.queue_offsets import QueueKey
from commitlog_svc.append.topics.topics import TopicChange, TopicTable
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.log_status import MirrorState
from commitlog_svc.replication.log_copy import LogCopy
from services.calling.backoff import Backoff
from services.rocketmq.address import Address
from services.rocketmq.ha_frames import HEARTBEAT_SECONDS, REPORT, SILENCE_SECONDS_MAX, Piece, TransferDecoder
from store.errors import FlushFailedError, LogChangedError, RecordCorruptedError, StoreCorruptedError, StoreError

CONNECT_SECONDS_MAX = 5.0
# A heartbeat that comes this long after the report says that the master has nothing to send; one that comes sooner may come
# from its flow control.
NOTHING_SECONDS = HEARTBEAT_SECONDS * 0.9
HEADER_BYTES_AT_ONCE = 4096  # a probe takes no more than the kernel has already received

Connect = Callable[[], socket.socket]


def connect_to(address: Address) -> socket.socket:
    """A connection; OSError when there is none."""
    connection = socket.create_connection(address, CONNECT_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Probe:
    """Asks a master.

    Args:
        connect: makes a connection.
        nothing_seconds: see NOTHING_SECONDS.
    """

    def __init__(self, connect: Connect, *, nothing_seconds: float = NOTHING_SECONDS) -> None:
        self._connect = connect
        self._nothing_seconds = nothing_seconds

    def last_file_begin(self) -> int:
        """The first offset of the master's last file; 0 for an empty log too. OSError without an answer."""
        return self._first_answer(0).offset

    def has(self, offset: int) -> bool:
        """Whether the byte at an offset greater than 0 is in the master's log; OSError without an answer."""
        return len(self._first_answer(offset).data) > 0

    def first_offset(self, file_size_bytes: int) -> int:
        """The first offset of the master's log (bytes), found by asking for its files; 5 seconds for each that it lacks.

        Raises:
            StoreCorruptedError: its files have another size.
            OSError: it did not answer.
        """
        last = self.last_file_begin()
        if last == 0 or self.has(1):
            return 0
        if last % file_size_bytes:
            raise StoreCorruptedError(
                f"the last log file of the broker begins at {last}, which is no multiple of file_size_bytes "
                f"({file_size_bytes}): set REPUT_COMMITLOG_FILE_SIZE_BYTES to the broker's mappedFileSizeCommitLog",
                offset=last,
            )
        low, high = 1, last // file_size_bytes  # the first file is one of these
        while low < high:
            middle = (low + high) // 2
            if self.has(middle * file_size_bytes):
                high = middle
            else:
                low = middle + 1
        return low * file_size_bytes

    def _first_answer(self, offset: int) -> Piece:
        decoder, asked_at = TransferDecoder(), time.monotonic()
        with contextlib.closing(self._connect()) as connection:
            connection.settimeout(SILENCE_SECONDS_MAX)
            connection.sendall(REPORT.pack(offset))
            while True:
                data = connection.recv(HEADER_BYTES_AT_ONCE)
                if not data:
                    raise ConnectionError("the broker closed the connection")
                for piece in decoder.feed(memoryview(data)):
                    if piece.data or time.monotonic() - asked_at >= self._nothing_seconds:
                        return piece


# A broker flushes every half second, and has more than this to write in that time only when it is restored from a copy.
CUT_BYTES_MAX = 256 << 20
RECEIVE_BYTES = 1 << 20


def agreed_offset(log: CommitLog, connect: Callable[[], socket.socket], quiet_seconds: float) -> int | None:
    """The end of the last record that is in both logs, when the master has other bytes behind it.

    Args:
        log: the mirror's.
        connect: makes a connection to the master.
        quiet_seconds: a master that sends no bytes for so long has no more.

    Returns:
        A commit-log offset; None when it has no other bytes, or when more than CUT_BYTES_MAX would be cut.

    Raises:
        OSError: it did not answer.
    """
    end_offset = log.status.end_offset
    begin_offset = max(log.status.first_offset, end_offset - CUT_BYTES_MAX)
    differs_at = _first_difference(log, connect, max(1, begin_offset), end_offset, quiet_seconds)
    if differs_at is None:
        return None
    agreed = log.record_end_before(differs_at)
    return agreed if agreed > begin_offset else None


def _first_difference(
    log: CommitLog, connect: Callable[[], socket.socket], asked_offset: int, end_offset: int, quiet_seconds: float
) -> int | None:
    at, decoder, data_at = asked_offset, TransferDecoder(), time.monotonic()
    with contextlib.closing(connect()) as connection:
        connection.settimeout(quiet_seconds)
        connection.sendall(REPORT.pack(asked_offset))
        while at < end_offset and time.monotonic() - data_at < quiet_seconds:
            try:
                received = connection.recv(RECEIVE_BYTES)
            except TimeoutError:
                break
            if not received:
                raise ConnectionError("the broker closed the connection")
            for piece in decoder.feed(memoryview(received)):
                if not piece.data:
                    continue
                if piece.offset != at:
                    return None  # it does not send what it was asked for
                known = log.read_bytes(at, min(len(piece.data), end_offset - at))
                for index, (own, other) in enumerate(zip(known, piece.data, strict=False)):
                    if own != other:
                        return at + index
                at, data_at = at + len(known), time.monotonic()
                if at >= end_offset:
                    break
    return None


class MirroredTopics:
    """Enters topics into the table, each with as many queues as have been seen; for one thread."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._counts: dict[str, int] = {config.topic: config.read_queue_count for config in topics.all()}

    def see(self, queues: Collection[QueueKey]) -> None:
        """Notes queues that have grown; DiskFullError or FlushFailedError when the table cannot be written."""
        grown: dict[str, int] = {}
        for topic, queue_id in queues:
            if queue_id >= max(self._counts.get(topic, 0), grown.get(topic, 0)):
                grown[topic] = queue_id + 1
        if not grown:
            return
        self._topics.create_missing(grown.keys(), grown)
        for topic, count in grown.items():
            config = self._topics.find(topic)
            if config is not None and config.read_queue_count < count:
                self._topics.update(
                    topic, TopicChange(write_queue_count=max(count, config.write_queue_count), read_queue_count=count)
                )
            self._counts[topic] = max(count, config.read_queue_count if config is not None else 0)


# A master that has sent everything looks for more every 100 ms: when nothing comes for longer, we have all of it.
AT_END_SECONDS = 0.25
REPORT_SECONDS = HEARTBEAT_SECONDS * 0.8
CLOSE_SECONDS = 0.2  # reports end at the latest so long after their connection
STOPPED_SECONDS = 30.0  # until a copy that stopped looks again

_log = structlog.get_logger("reput.commitlog")


class DivergedError(StoreCorruptedError):
    """The master lacks the end of this log."""


class HaSlave:
    """Copies the log of a master until it is closed; see the top of this file.

    Args:
        log: the recovered log; nothing else appends to it.
        address: the master's HA port.
        find_first_offset: where the master's log begins (bytes); default: the master's HA port is asked.
        wait_for_flush: flush as soon as records are written, so that a SYNC_MASTER waits for a short time.
        learn_topics: enter the topics of the records into the table of topics.
        connect: makes a connection to the master.
        nothing_seconds: see NOTHING_SECONDS.
        silence_seconds: a connection on which nothing is heard for so long is closed.
        backoff: the pauses between connections.
        on_changed: called, once, when the process has to start again, because the master went on elsewhere.
    """

    def __init__(
        self,
        log: CommitLog,
        address: Address,
        *,
        find_first_offset: Callable[[], int] | None = None,
        wait_for_flush: bool = False,
        learn_topics: bool = True,
        connect: Connect | None = None,
        nothing_seconds: float = NOTHING_SECONDS,
        silence_seconds: float = SILENCE_SECONDS_MAX,
        backoff: Backoff | None = None,
        on_changed: Callable[[StoreError], None] = lambda error: None,
    ) -> None:
        self._on_changed = on_changed
        self.state = MirrorState(str(address))
        self._log = log
        self._make_connection: Connect = connect or partial(connect_to, address)
        self._probe = Probe(self._connect, nothing_seconds=nothing_seconds)
        self._find_first_offset = find_first_offset or self._probe_first_offset
        self._wait_for_flush = wait_for_flush
        self._topics = MirroredTopics(log.topics) if learn_topics else None
        self._nothing_seconds = nothing_seconds
        self._silence_seconds = silence_seconds
        self._backoff = backoff or Backoff()
        self._closing = threading.Event()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def start(self) -> None:
        """Begins to copy."""
        self._thread.start()

    def close(self) -> None:
        """Ends the copy; what was received and is no whole record is dropped."""
        self._closing.set()
        for connection in self._connections:
            _shut(connection)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            pause_seconds = 0.0
            try:
                self._copy()
            except FlushFailedError as error:
                self._say("stopped", error.message)
                return  # the log is fenced, its process ends
            except (StoreCorruptedError, RecordCorruptedError) as error:
                if isinstance(error, DivergedError) and self._is_cut():
                    return
                self._say("stopped", error.message)
                pause_seconds = STOPPED_SECONDS
            except (OSError, StoreError) as error:
                self._say("connecting", f"the broker at {self.state.source} cannot be copied now: {error}")
            except Exception as error:
                _log.exception("mirror.failed")
                self._say("stopped", f"the mirror failed: {error}")
                pause_seconds = STOPPED_SECONDS
            self.state.is_at_end = False
            self._closing.wait(pause_seconds or self._backoff.next_seconds())

    def _is_cut(self) -> bool:
        """Whether the next start goes on where the master did."""
        with contextlib.suppress(OSError):  # the next look will tell
            offset = agreed_offset(self._log, self._connect, self._nothing_seconds)
            if offset is not None and not self._closing.is_set():
                self._log.plan_cut(offset)
                self._on_changed(
                    LogChangedError(
                        f"the broker at {self.state.source} lost its log behind {offset} and went on there: what only this "
                        "mirror has is kept aside, and the copy goes on",
                        commitLogOffset=offset,
                    )
                )
                return True
        return False

    def _say(self, state: str, problem: str) -> None:
        if (self.state.state, self.state.problem) != (state, problem) and not self._closing.is_set():
            _log.warning("mirror.interrupted", source=self.state.source, state=state, problem=problem)
        self.state.state, self.state.problem = state, problem

    def _copy(self) -> None:
        """One connection, until it ends with an exception or this is closed."""
        on_queues = self._topics.see if self._topics is not None else lambda queues: None
        copy = self._log.begin_copy(on_queues)
        try:
            end_offset = copy.settled_offset
            self._log.flushes.wait_flushed(end_offset)
            last_record = self._log.opened.appender.last_record
            is_empty = last_record is None and not self._log.status.file_count
            if is_empty:
                asked_offset = end_offset = self._find_first_offset()
            else:
                asked_offset = last_record[0] if last_record is not None else end_offset
            asked_offset = max(1, asked_offset)
            with contextlib.closing(self._connect()) as connection:
                connection.sendall(REPORT.pack(asked_offset))
                reports = _Reports(self._log, connection, asked_offset)
                session = _Session(self, connection, copy, reports, asked_offset, end_offset)
                try:
                    session.run()
                finally:
                    _shut(connection)
                    reports.close()
        finally:
            self._connections = []
            copy.close()

    def _connect(self) -> socket.socket:
        connection = self._make_connection()
        self._connections = [*self._connections, connection]
        if self._closing.is_set():
            connection.close()
        return connection

    def _probe_first_offset(self) -> int:
        return self._probe.first_offset(self._log.status.file_size_bytes)

    def _received(self, copy: LogCopy) -> None:
        """Takes the whole records of what was received."""
        settled_offset = copy.settle_records()
        if self._wait_for_flush:
            self._log.flushes.wait_flushed(settled_offset)

    def _judge_silence(self, asked_offset: int, end_offset: int) -> None:
        """The master has nothing at `asked_offset`, from where on it was asked: raises why, unless its log ends there, too."""
        begin = self._probe.last_file_begin()
        if asked_offset >= end_offset and begin <= asked_offset:
            return  # both logs are empty
        if begin > asked_offset:
            raise StoreCorruptedError(
                f"the broker at {self.state.source} has removed its log files before {begin}, and this mirror has the log up "
                f"to {end_offset} only: begin a new mirror in an empty directory",
                commitLogOffset=end_offset,
            )
        raise DivergedError(
            f"the log of the broker at {self.state.source} ends before {end_offset}, where this mirror ends: it lost the end "
            "of its log, or it is another broker. Nothing was changed here: begin a new mirror in an empty directory, and take "
            "from this one what the broker lost",
            commitLogOffset=end_offset,
        )


class _Session:
    """One connection to the master.

    Args:
        slave: the slave.
        connection: to the master, which has got the first report.
        copy: takes the bytes.
        reports: begin once the master has sent something.
        asked_offset: where the master was asked to begin.
        end_offset: where our log ends: what comes before it is compared.
    """

    def __init__(
        self,
        slave: HaSlave,
        connection: socket.socket,
        copy: LogCopy,
        reports: "_Reports",
        asked_offset: int,
        end_offset: int,
    ) -> None:
        self._slave = slave
        self._connection = connection
        self._copy = copy
        self._reports = reports
        self._asked_offset = asked_offset
        self._end_offset = end_offset
        self._next_offset = asked_offset
        self._is_silent = True  # no byte of the log has come
        self._asked_at = self._body_at = time.monotonic()

    def run(self) -> None:
        """Receives until the connection ends; errors say why."""
        slave, state = self._slave, self._slave.state
        decoder, buffer = TransferDecoder(), bytearray(RECEIVE_BYTES)
        view, heard_at = memoryview(buffer), time.monotonic()
        self._connection.settimeout(AT_END_SECONDS)
        while not slave._closing.is_set():
            slave._log.flushes.wait_for_room()
            state.is_at_end = self._has_all and time.monotonic() - self._body_at >= AT_END_SECONDS
            try:
                size = self._connection.recv_into(buffer)
            except TimeoutError:
                if time.monotonic() - heard_at > slave._silence_seconds:
                    raise ConnectionError(f"nothing was heard for {slave._silence_seconds:g} seconds") from None
                continue
            if not size:
                raise ConnectionError("the broker closed the connection")
            heard_at = time.monotonic()
            for piece in decoder.feed(view[:size]):
                self._reports.begin()
                self._take(piece)
            slave._received(self._copy)
            if self._has_all:
                state.state, state.problem = "copying", ""

    @property
    def _has_all(self) -> bool:
        """Whether the master's log is known to be ours up to our end."""
        return not self._is_silent and self._next_offset >= self._end_offset

    def _take(self, piece: Piece) -> None:
        if piece.offset != self._next_offset:
            raise StoreCorruptedError(
                f"the broker at {self._slave.state.source} sends its log from {piece.offset} on, it was asked for "
                f"{self._next_offset}: nothing of that was taken",
                commitLogOffset=self._next_offset,
            )
        offset, data = piece.offset, piece.data
        if not data:
            if self._is_silent and time.monotonic() - self._asked_at >= self._slave._nothing_seconds:
                self._slave._judge_silence(self._asked_offset, self._end_offset)
                self._is_silent = self._asked_offset < self._end_offset
            return
        self._is_silent, self._body_at = False, time.monotonic()
        self._next_offset += len(data)
        if offset < self._end_offset:
            known = data[: self._end_offset - offset]
            if self._slave._log.read_bytes(offset, len(known)) != known:
                raise DivergedError(
                    f"the log of the broker at {self._slave.state.source} has other bytes than this mirror behind {offset}: it "
                    "lost the end of its log and went on, or it is another broker. Nothing was changed here: begin a new "
                    "mirror in an empty directory, and take from this one what the broker lost",
                    commitLogOffset=offset,
                )
            offset, data = offset + len(known), data[len(known) :]
        if not data:
            return
        if offset == 1:
            self._copy.receive(0, b"\0")
        self._copy.receive(offset, data)
        self._slave._backoff.reset()


class _Reports:
    """Sends reports when more is durable, and as heartbeats.

    Args:
        log: what is durable.
        connection: to the master.
        asked_offset: what the first report said.
    """

    def __init__(self, log: CommitLog, connection: socket.socket, asked_offset: int) -> None:
        self._log = log
        self._connection = connection
        self._reported_offset = asked_offset
        self._closing = False
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-reports", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """The master has taken the first report."""
        self._has_begun.set()

    def close(self) -> None:
        """Ends the reports; the connection must be shut down before."""
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        sent_at = time.monotonic()
        while not self._closing:
            if not self._has_begun.wait(CLOSE_SECONDS):
                continue
            offset = self._log.flushes.wait_beyond(self._reported_offset, CLOSE_SECONDS)
            if self._log.flushes.failure is not None:
                return  # nothing more becomes durable
            if offset <= self._reported_offset and time.monotonic() - sent_at < REPORT_SECONDS:
                continue
            self._reported_offset, sent_at = max(self._reported_offset, offset), time.monotonic()
            try:
                self._connection.sendall(REPORT.pack(self._reported_offset))
            except OSError:
                return


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)
