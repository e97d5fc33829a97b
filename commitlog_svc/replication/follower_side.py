"""FollowerSide: the log of a replica that follows: it asks its leader for the log's bytes and says what is on its disk.

One thread writes what comes; another one, gRPC's, flushes it and reports. A stream that breaks is opened again after a pause.
Where the logs have diverged, the place is noted and the process has to start again: see cut.py.

Reach: how much a replica that follows may lack of what its shard has confirmed.

    follower   report 7 ─────────┐                       ┌── heard_report 7, confirm offset C
    leader                       └── may still confirm, ─┘   nobody else can lead
                                     its confirm offset is C

Everything that any leader confirmed before report 7 was sent lies before C. So a follower that shows everything before C lacks
at most what was confirmed since it sent that report. Only its own clock counts; the time on the network is on the safe side.
"""

import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import structlog

from commitlog_svc.replication.catching_up import FAR_BYTES_MIN, CatchUp, FileFetch, FileStaging
from commitlog_svc.replication.cut import plan_cut
from commitlog_svc.replication.epochs import NOWHERE, Epoch
from commitlog_svc.replication.leading.view import Leadership, LeadershipView
from commitlog_svc.replication.log_copy import LogCopy
from commitlog_svc.replication.replicated_log import ReplicatedLog
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.commitlog.v1 import replication_pb2 as pb
from services import methods, status
from services.calling.backoff import Backoff
from store.errors import NotLeaderError, ServiceUnavailableError, StoreCorruptedError, StoreError

# Of each kind: fewer make the answer older, never wrong. What was told within STEP_SECONDS is kept once.
KEPT_COUNT_MAX = 256
STEP_SECONDS = 0.02


class Reach:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising; also while the machine sleeps, because others confirm meanwhile.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Reports of the present stream that are not heard yet: number, and when it was sent.
        self._sent: deque[tuple[int, float]] = deque(maxlen=KEPT_COUNT_MAX)
        # Confirm offsets, and since when everything confirmed lies before them; rising.
        self._told: list[tuple[int, float]] = []
        self._leader_confirm = 0

    @property
    def leader_confirm_offset(self) -> int:
        """The greatest confirm offset that a leader has told (bytes)."""
        return self._leader_confirm

    def begin_stream(self) -> None:
        """The numbers of reports begin anew."""
        with self._lock:
            self._sent.clear()

    def note_sent(self, number: int) -> None:
        """A report is sent now."""
        with self._lock:
            self._sent.append((number, self._clock()))

    def note_told(self, confirm_offset: int, heard_report: int) -> None:
        """A leader has told its confirm offset (bytes), read after it had heard a report; 0: none, or it may not lead."""
        with self._lock:
            self._leader_confirm = max(self._leader_confirm, confirm_offset)
            sent_at = None
            while self._sent and self._sent[0][0] <= heard_report:
                number, at = self._sent.popleft()
                sent_at = at if number == heard_report else None
            if sent_at is None:
                return
            while self._told and self._told[-1][0] >= confirm_offset:
                self._told.pop()  # the same or a smaller offset has all since later
            if self._told and sent_at < self._told[-1][1] + STEP_SECONDS:
                return
            self._told.append((confirm_offset, sent_at))
            if len(self._told) > KEPT_COUNT_MAX:
                del self._told[1:-1:2]  # one that copies a long log keeps its oldest and its newest

    def staleness_seconds(self, shown_offset: int) -> float | None:
        """Everything that was confirmed longer ago lies before an offset up to which is shown (bytes); None: nobody knows."""
        with self._lock:
            at = next((at for offset, at in reversed(self._told) if offset <= shown_offset), None)
            return None if at is None else max(0.0, self._clock() - at)


PAUSE_SECONDS_MAX = 1.0
FETCH_LOG = methods.COMMITLOG_SERVICE + "FetchLog"

_log = structlog.get_logger("reput.commitlog")


class CutPlannedError(Exception):
    """The log has to be cut by the next start."""


class FollowerSide:
    """See the top of this file.

    Args:
        name: of this replica.
        broker_name: the shard.
        log: its log.
        leadership: see view.py.
        open_channel: makes a channel to an address.
        on_cut: called when the process has to start again to cut its log.
        backoff: pauses between streams.
        fetch_count: see ReplicaLimits.

    Attributes:
        problem: why there is no stream, in words; empty when there is one.
        reach: what this replica may lack.
    """

    def __init__(
        self,
        name: str,
        broker_name: str,
        log: ReplicatedLog,
        leadership: Leadership,
        open_channel: Callable[[str], grpc.Channel],
        on_cut: Callable[[], None],
        backoff: Backoff | None = None,
        fetch_count: int = 1,
    ) -> None:
        self.problem = ""
        self.reach = Reach(leadership.now)
        self._name = name
        self._broker_name = broker_name
        self._log = log
        self._leadership = leadership
        self._open_channel = open_channel
        self._on_cut = on_cut
        self._backoff = backoff or Backoff(max_seconds=PAUSE_SECONDS_MAX)
        self._fetch_count = fetch_count
        self._staging = FileStaging(log.fs, log.directory)
        self._changed = threading.Condition()
        self._target: LeadershipView | None = None
        self._call: Any = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="replica-follow", daemon=True)
        # Of the present stream, with `_changed` held.
        self._stream_number = 0
        self._ended_at = 0  # where the last whole request ends that became part of the log (bytes)
        self._taken_offset = 0
        self._heartbeat = 0
        self._config_version = 0
        self._leader_confirm = 0
        self._begin_offset = 0
        self._catch_up: CatchUp | None = None
        self._fetch: FileFetch | None = None

    def start(self) -> None:
        """Begins to follow once there is a leader."""
        self._thread.start()

    def follow(self, view: LeadershipView) -> None:
        """Follow the leader of a view, if it names one."""
        with self._changed:
            target = view if view.leader and view.leader != self._name and view.leader_address else None
            if _place(target) != _place(self._target):
                self._target = target
                self._end_call()
                self._changed.notify_all()

    def close(self) -> None:
        """Ends the stream and waits until nothing more is written."""
        with self._changed:
            self._is_closing = True
            self._end_call()
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def catch_up_progress(self) -> pb.CatchUp | None:
        """How far this replica is when it lacked much of the leader's log; None otherwise."""
        catch_up = self._catch_up
        return None if catch_up is None else catch_up.progress()

    def _end_call(self) -> None:
        self._stream_number += 1
        if self._call is not None:
            self._call.cancel()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._target is not None or self._is_closing)
                if self._is_closing:
                    return
                target, self._stream_number = self._target, self._stream_number + 1
                number = self._stream_number
            assert target is not None
            try:
                self._follow(target, number)
            except CutPlannedError:
                self._on_cut()
                return
            except StoreError as error:
                self._say(target, error)
            except Exception as error:
                self._say(target, error)
                _log.exception("replica.follow_failed")
            self._pause(target)

    def _pause(self, target: LeadershipView) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closing or _place(self._target) != _place(target), self._backoff.next_seconds()
            )

    def _say(self, target: LeadershipView, error: Exception) -> None:
        words = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        if words != self.problem and not self._is_closing:
            _log.warning("replica.stream_broke", leader=target.leader, epoch=target.epoch, error=words)
        self.problem = words

    def _follow(self, target: LeadershipView, number: int) -> None:
        """One stream, until it breaks; StoreError with the reason, CutPlannedError when the log has to be cut."""
        if target.epoch < self._log.epochs.last:
            raise NotLeaderError(
                f"{target.leader} led in epoch {target.epoch}, and this log has a part of epoch {self._log.epochs.last}: "
                "waiting for the next leader",
                leader=target.leader,
                epoch=target.epoch,
            )
        end_offset = self._log.commits.written_offset
        self._log.commits.wait_flushed(end_offset)
        with self._changed:
            self._ended_at = self._taken_offset = end_offset
            self._heartbeat = self._config_version = self._leader_confirm = self._begin_offset = 0
            self.reach.begin_stream()
        channel = self._open_channel(target.leader_address)
        try:
            stub: Any = pb_grpc.CommitLogServiceStub(channel)
            call = stub.Replicate(self._requests(target, number, end_offset))
            with self._changed:
                if number != self._stream_number:
                    call.cancel()
                self._call = call
            try:
                self._take_all(call, target, number, channel)
            except grpc.RpcError as error:
                raise status.from_rpc_error(error, "commitlog") from error
            raise ServiceUnavailableError(f"{target.leader} ended the stream", service="commitlog")
        finally:
            with self._changed:
                self._call = None
                self._stream_number += 1
                self._changed.notify_all()
            channel.close()

    def _requests(self, target: LeadershipView, number: int, end_offset: int) -> Iterator[pb.ReplicateRequest]:
        """The hello and reports, until the stream ends; in a thread of gRPC."""
        files = self._log.files
        yield pb.ReplicateRequest(
            hello=pb.ReplicateRequest.Hello(
                replica=self._name,
                broker_name=self._broker_name,
                leader_epoch=target.epoch,
                epochs=(
                    pb.Epoch(epoch=epoch.epoch, begin_offset=epoch.begin_offset) for epoch in self._log.epochs.epochs
                ),
                first_offset=files.first_offset,
                end_offset=end_offset,
                file_size_bytes=files.file_size_bytes if files.files else 0,
                store_id=self._log.store_id,
                can_fetch=True,
            )
        )
        told = (end_offset, 0, 0)
        report_number = 0
        while (news := self._next_report(number, told)) is not None:
            told = taken_offset, heartbeat, config_version = news
            self._log.commits.wait_flushed(taken_offset)
            with self._changed:
                if number != self._stream_number:
                    return
                self._show()
                report_number += 1
                self.reach.note_sent(report_number)
            yield pb.ReplicateRequest(
                report=pb.ReplicateRequest.Report(
                    # A log that is still empty lacks nothing before the leader's first file.
                    durable_offset=max(taken_offset, self._begin_offset),
                    answered_heartbeat=heartbeat,
                    config_version=config_version,
                    number=report_number,
                )
            )

    def _next_report(self, number: int, told: tuple[int, int, int]) -> tuple[int, int, int] | None:
        """The next report, once it differs from the last one; None at the end of the stream."""
        with self._changed:
            self._changed.wait_for(lambda: number != self._stream_number or self._report() != told)
            return None if number != self._stream_number else self._report()

    def _report(self) -> tuple[int, int, int]:
        return self._taken_offset, self._heartbeat, self._config_version

    def _take_all(
        self, call: Iterator[pb.ReplicateResponse], target: LeadershipView, number: int, channel: grpc.Channel
    ) -> None:
        first = next(call, None)
        if first is None or not first.HasField("start"):
            raise ServiceUnavailableError(f"{target.leader} did not begin a stream", service="commitlog")
        self._begin(first.start, target)
        self._begin_offset = first.start.begin_offset
        self.problem = ""
        self._backoff.reset()
        _log.info(
            "replica.following",
            leader=target.leader,
            epoch=target.epoch,
            begin_offset=first.start.begin_offset,
            leader_end_offset=first.start.end_offset,
        )
        self._staging.keep(target.epoch, first.start.begin_offset)
        if first.start.end_offset - first.start.begin_offset > FAR_BYTES_MIN:
            self._catch_up = CatchUp(first.start.begin_offset, first.start.end_offset)
        content: dict[str, bytearray] = {}
        copy = self._log.begin_copy()
        try:
            for response in call:
                with self._changed:
                    if number != self._stream_number:
                        return
                # No answer when this replica may stand for election: an answer is a promise.
                may_answer = self._leadership.note_leader_heard(target.epoch)
                self._take(response, copy, content, may_answer=may_answer)
                if response.fetch_end_offset:
                    self._begin_fetch(response.fetch_end_offset, copy, target, channel)
                if self._fetch is not None and self._fetch.failure is not None:
                    raise self._fetch.failure
        finally:
            if self._fetch is not None:
                self._fetch.close()
            self._fetch = self._catch_up = None
            with suppress(StoreError):
                copy.close()

    def _begin_fetch(self, end_offset: int, copy: LogCopy, target: LeadershipView, channel: grpc.Channel) -> None:
        """Fetches whole files from the end of the log on; the stream has only heartbeats and `config/` meanwhile."""
        # Bytes in, bytes out: see catching_up.py.
        method: Any = channel.unary_stream(FETCH_LOG, request_serializer=pb.FetchLogRequest.SerializeToString)

        def call(begin: int, end: int) -> Any:
            return method(
                pb.FetchLogRequest(replica=self._name, leader_epoch=target.epoch, offset=begin, end_offset=end)
            )

        if self._fetch is not None:
            self._fetch.close()
        begin_offset = copy.settled_offset if self._log.files.files else self._begin_offset
        catch_up = self._catch_up = self._catch_up or CatchUp(begin_offset, end_offset)
        catch_up.end_offset = max(catch_up.end_offset, end_offset)  # the leader goes on meanwhile
        self._fetch = FileFetch(
            self._log,
            copy,
            target.epoch,
            begin_offset,
            end_offset,
            self._fetch_count,
            call,
            catch_up,
            self._note_fetched,
        )
        _log.info("replica.fetch_begins", leader=target.leader, begin_offset=begin_offset, end_offset=end_offset)
        self._fetch.start()

    def _note_fetched(self, end_offset: int) -> None:
        with self._changed:
            self._taken_offset = self._ended_at = end_offset
            self._show()
            self._changed.notify_all()
        self._end_catch_up(end_offset)

    def _end_catch_up(self, end_offset: int) -> None:
        if self._catch_up is not None and end_offset >= self._catch_up.end_offset:
            _log.info("replica.caught_up", end_offset=end_offset)
            self._catch_up = None

    def _begin(self, start: pb.ReplicateResponse.Start, target: LeadershipView) -> None:
        """Checks that the logs agree where the copy begins, and takes the leader's epochs.

        Raises:
            CutPlannedError, NotLeaderError, StoreCorruptedError: they do not, or not surely.
        """
        files, end_offset = self._log.files, self._log.commits.written_offset
        epochs = [Epoch(epoch.epoch, epoch.begin_offset) for epoch in start.epochs]
        if start.epoch != target.epoch or not epochs or epochs[-1].epoch != start.epoch:
            raise NotLeaderError(
                f"{target.leader} leads in epoch {start.epoch}, not {target.epoch}",
                leader=target.leader,
                epoch=start.epoch,
            )
        has_bytes = end_offset > files.first_offset
        if start.agreed_offset == NOWHERE and files.files:
            self._plan_cut(files.first_offset, target)
        if files.files and not has_bytes and start.begin_offset != end_offset:
            self._plan_cut(files.first_offset, target)  # an empty file, and the copy begins elsewhere
        if has_bytes and start.agreed_offset < end_offset:
            self._plan_cut(max(files.first_offset, start.agreed_offset), target)
        check_begin = start.agreed_offset - start.check_size_bytes
        is_comparable = has_bytes and check_begin >= files.first_offset
        if is_comparable and zlib.crc32(files.read(check_begin, start.check_size_bytes)) != start.check_crc:
            raise StoreCorruptedError(
                f"the log of {target.leader} differs from this one before {start.agreed_offset}, although their epochs "
                "agree: one of them is damaged, or they are of two shards. `reput fsck` finds damage; to begin anew from the "
                "leader, remove this store",
                commitLogOffset=check_begin,
            )
        if not files.files and start.file_size_bytes > 0:
            files.file_size_bytes = start.file_size_bytes
        self._log.epochs.replace(epochs)

    def _plan_cut(self, offset: int, target: LeadershipView) -> None:
        confirmed = self._log.confirm.confirm_offset
        say = _log.error if offset < confirmed else _log.warning
        say(
            "replica.diverged",
            leader=target.leader,
            epoch=target.epoch,
            cut_offset=offset,
            end_offset=self._log.commits.written_offset,
            confirm_offset=confirmed,
        )
        plan_cut(self._log.fs, self._log.directory, offset)
        raise CutPlannedError

    def _take(
        self, response: pb.ReplicateResponse, copy: LogCopy, content: dict[str, bytearray], *, may_answer: bool
    ) -> None:
        for part in response.config_files:
            whole = content.setdefault(part.name, bytearray())
            whole += part.content
            if part.is_last:
                self._log.config.take(part.name, bytes(content.pop(part.name)))
        if response.HasField("log_bytes"):
            self._take_bytes(response.log_bytes, copy)
        with self._changed:
            self._taken_offset = copy.settled_offset
            if response.log_bytes.settle_offset:
                self._ended_at = response.log_bytes.settle_offset
            for part in response.config_files:
                self._config_version = max(self._config_version, part.version if part.is_last else 0)
            self._heartbeat = max(self._heartbeat, response.heartbeat if may_answer else 0)
            self._leader_confirm = max(self._leader_confirm, response.confirm_offset)
            self.reach.note_told(response.confirm_offset, response.heard_report)
            self._show()
            self._changed.notify_all()

    def _take_bytes(self, part: pb.ReplicateResponse.LogBytes, copy: LogCopy) -> None:
        self._log.commits.wait_for_room()
        copy.receive(part.offset, part.data)
        copy.settle_records(whole_requests=True)
        if part.settle_offset:
            copy.settle(part.settle_offset)
        if self._catch_up is not None:
            self._catch_up.note(len(part.data))
            self._end_catch_up(copy.settled_offset)

    def _show(self) -> None:
        """Shows what is confirmed and on this disk, up to the end of a request; with `_changed` held."""
        offset = min(self._leader_confirm, self._ended_at)
        if self._log.commits.flushed_offset >= offset > (self._log.confirm.limit_offset or 0):
            self._log.confirm.limit(offset)


def _place(view: LeadershipView | None) -> tuple[str, str, int] | None:
    return None if view is None else (view.leader, view.leader_address, view.epoch)
