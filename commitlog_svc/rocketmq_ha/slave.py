"""HaSlave: this log as the slave of a broker of RocketMQ.

    master ──── bytes of its log ────▶ HaSlave ──▶ LogCopy ──▶ the same offsets of our files ──▶ flush
       ▲                                                                                           │
       └──────────────────── report: durable up to here ◀──────────────────────────────────────────┘

- A new connection asks for our last record again. A master that has it sends it at once; the bytes are compared with ours, so a
  master whose log is another one is noticed before anything is taken. RocketMQ's slave compares nothing.
- A master that has only heartbeats for us has less than we have, or has removed what we need. A probe (probe.py) tells which.
  Then the copy stops and says so: nothing that we have is overwritten. It looks again every half minute.
- A master that lost the end of its log and has written something else there since is followed (agreement.py): the next start
  keeps aside what only we have.
- An empty log asks for byte 1, because a master takes 0 for "the last file". Byte 0 is 0: it is the highest byte of the size of
  the first record, which is smaller than 16 MiB. The record is checked with its CRCs, so a wrong guess would be noticed.
- Reports name durable bytes only. The second one waits until the master has sent something: a master takes the last report that
  it has received for the first one, and would begin to send there.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import structlog

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.mirror_state import MirrorState
from commitlog_svc.replication.copying.log_copy import LogCopy
from commitlog_svc.rocketmq_ha.agreement import agreed_offset
from commitlog_svc.rocketmq_ha.mirrored_topics import MirroredTopics
from commitlog_svc.rocketmq_ha.probe import NOTHING_SECONDS, Connect, Probe, connect_to
from services.calling.backoff import Backoff
from services.rocketmq.address import Address
from services.rocketmq.ha_frames import HEARTBEAT_SECONDS, REPORT, SILENCE_SECONDS_MAX, Piece, TransferDecoder
from store.compiled import loading
from store.errors import FlushFailedError, LogChangedError, RecordCorruptedError, StoreCorruptedError, StoreError
from store.walk.record_runs import KERNEL

RECEIVE_BYTES = 1 << 20
# A master that has sent everything looks for more every 100 ms: when nothing comes for longer, we have all of it.
AT_END_SECONDS = 0.25
REPORT_SECONDS = HEARTBEAT_SECONDS * 0.8
CLOSE_SECONDS = 0.2  # reports end at the latest so long after their connection
KERNEL_BYTES = 8 << 20  # so much is checked faster with the kernel than without it, its loading included
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
        nothing_seconds: see probe.py.
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
        if self._next_offset - self._asked_offset >= KERNEL_BYTES:
            loading.load_in_background(KERNEL)
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
