"""LeaderSide: the log of a replica that leads, its followers, and what that confirms.

    own flush ─┐
    reports  ──┼─▶ confirm offset = the least of all in-sync replicas ─▶ acknowledgements, readers, followers
    lease    ──┘   moves only while the leadership may acknowledge

- The confirm offset moves at ends of requests and never back.
- A replica leaves the in-sync set when it lags or is away for too long, and only after the coordinator has stored the smaller
  set. One that has reached the confirm offset counts from before the larger set is sent to the coordinator.
- A heartbeat that a follower answers was sent before the follower could have stood for election: see leadership.py.
- A leader whose own disk is stuck gives the lead to a replica that flushes: DiskWatch.

DiskWatch: whether the disk of a leader is stuck while those of others work.

A flush that never returns fails nothing: the leader would renew its lease for ever and acknowledge nothing. What it cannot
flush is on the disk of an in-sync replica by then, and that one can lead.

Pace: at most so many bytes a second to one follower, over its stream and its fetches together.

FollowerStream: the leader's end of the stream of one follower.
"""

import contextlib
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator

import structlog

from commitlog_svc.replication.catching_up import FAR_BYTES_MIN, CatchUp, encode_fetched
from commitlog_svc.replication.epochs import NOWHERE, Epoch, agreed_offset
from commitlog_svc.replication.leading.replica_progress import NOTHING, ReplicaProgress
from commitlog_svc.replication.leading.view import Leadership, LeadershipView, Role
from commitlog_svc.replication.replicated_log import FETCH_COUNT_MAX, ReplicaLimits, ReplicatedLog
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import (
    InvalidArgumentError,
    NotConfirmedError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    ResourceBusyError,
    StoreError,
)
from store.files.mapped_files import MappedFileQueue

# After so long between two looks this process stood still itself, and its flush with it; what it knows of the others is old.
LATE_SECONDS = 1.0


class DiskWatch:
    """Looked at often, from one thread.

    Args:
        seconds_max: a flush that stands still for longer is stuck.
        now: seconds of a rising clock.
    """

    def __init__(self, seconds_max: float, now: float) -> None:
        self._seconds_max = seconds_max
        self._flushed_offset = -1
        self._still_since = self._looked_at = now
        self._was_stuck = False

    def is_stuck(self, now: float, flushed_offset: int, is_another_ahead: bool) -> bool:
        """Whether the disk is stuck; said once.

        Args:
            now: seconds of the same clock.
            flushed_offset: the end of what is on the disk here (bytes of the log).
            is_another_ahead: an in-sync replica has more of this log on its disk.
        """
        stood_still = now - self._looked_at > LATE_SECONDS
        self._looked_at = now
        if not is_another_ahead or flushed_offset != self._flushed_offset or stood_still:
            self._flushed_offset, self._still_since = flushed_offset, now
        if self._was_stuck or now - self._still_since <= self._seconds_max:
            return False
        self._was_stuck = True
        return True


class Pace:
    """For the holder of the leader's lock.

    Args:
        bytes_per_second_max: 0: no limit.

    Attributes:
        free_at: when the next bytes may be sent, by the clock whose times `take` is given (seconds).
    """

    def __init__(self, bytes_per_second_max: int) -> None:
        self._bytes_per_second_max = bytes_per_second_max
        self.free_at = 0.0

    def take(self, size_bytes: int, now: float) -> float:
        """Takes a turn for so many bytes; they may be sent at the time that is returned."""
        if not self._bytes_per_second_max:
            return now
        begin = max(now, self.free_at)
        self.free_at = begin + size_bytes / self._bytes_per_second_max
        return begin


CHUNK_BYTES = 1 << 20
FETCH_FILES_MIN = 2  # a follower that lacks so many whole files fetches them
FETCH_CHUNK_BYTES = 256 << 10  # larger messages are slower: each is memory that the kernel gives and takes back
CHUNK_BYTES_MIN = 16 << 10  # with a limit of bytes a second a chunk has a quarter of it, and so much at least
CHECK_BYTES = 64 << 10
HEARTBEAT_SECONDS = 0.25
# Pieces of the log that the follower has not reported: while it flushes one, the next one is on its way, and what is written
# meanwhile is gathered for the one after it. More would only be more messages for the same flushes.
UNREPORTED_COUNT_MAX = 2
GATHER_BYTES_MAX = 256 << 10  # so much is a large piece: one that is far behind never waits for its own reports
# The next piece carries the confirm offset. Where none comes, it is told alone, so long after the last message.
CONFIRM_SECONDS = 0.01
REPLICA_NAME_LENGTH_MAX = 63


class FollowerStream:
    """One stream; `responses` runs in one thread, `take_reports` in another, each fetch in one more.

    Args:
        leader: has the log.
        replica: the follower's name.
        progress: of the follower, used with the leader's lock held.
        agreed_offset: up to where the logs are equal, or -1.
        begin_offset: where the copy begins.
        can_fetch: whether the follower fetches whole files.
    """

    def __init__(
        self,
        leader: "LeaderSide",
        replica: str,
        progress: ReplicaProgress,
        agreed_offset: int,
        begin_offset: int,
        *,
        can_fetch: bool = False,
    ) -> None:
        self.replica = replica
        self.progress = progress
        self._leader = leader
        self._agreed_offset = agreed_offset
        self._begin_offset = begin_offset
        self._can_fetch = can_fetch
        self._fetch_end = 0  # the follower has been told to fetch the files before it
        self._fetch_count = 0
        rate = leader.limits.bytes_per_second_max
        self._pace = Pace(rate)
        self._chunk_bytes = min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, rate // 4)) if rate else CHUNK_BYTES
        self.catch_up: CatchUp | None = None  # while the follower lacks much of the log
        self._closed = threading.Event()
        self._failure: StoreError | None = None
        self._heard_report = 0
        self._unreported: deque[int] = deque()  # where pieces end that the follower has not reported (bytes)
        self.awaits_bytes = False  # with the leader's lock held: whether what is written now would be sent at once

    def close(self, failure: StoreError | None = None) -> None:
        """Ends the stream, with a failure or because the lead ends."""
        if not self._closed.is_set():
            self._failure = failure
            self._closed.set()
        with self._leader.lock:
            self._leader.news.notify_all()

    def take_reports(self, requests: Iterator[pb.ReplicateRequest]) -> None:
        """Takes reports until the follower goes."""
        failure: StoreError | None = None
        try:
            for request in requests:
                if request.WhichOneof("kind") != "report":
                    raise InvalidArgumentError("the first request is the hello, all others are reports", field="kind")
                self._leader.report(self, request.report)
                self._heard_report = request.report.number
        except StoreError as error:
            failure = error
        except Exception as error:  # gRPC's own, when the call ends
            failure = NotLeaderError(f"the stream of {self.replica} broke: {error}")
        finally:
            self.close(failure)

    def responses(self) -> Iterator[pb.ReplicateResponse]:
        """The messages for the follower, without end; errors as LeaderSide.serve, OffsetOutOfRangeError for removed bytes."""
        yield self._start()
        leader, log = self._leader, self._leader.log
        sent = goal = self._begin_offset
        is_end = False
        config_version, confirmed, next_beat_at, confirm_at = 0, -1, 0.0, 0.0
        while True:
            with leader.lock:
                while not self._closed.is_set():
                    now = leader.clock()
                    written = log.commits.written_offset
                    # Pieces up to one goal follow each other: the follower reports nothing before it has all of them.
                    has_room = sent < goal or self._has_room() or written - sent >= GATHER_BYTES_MAX
                    has_bytes = written > sent and has_room and self.progress.durable_offset >= self._fetch_end
                    wake_at = next_beat_at
                    if log.confirm.confirm_offset > confirmed:
                        wake_at = min(wake_at, confirm_at)
                    if has_bytes:
                        wake_at = min(wake_at, self._pace.free_at)
                    if now >= wake_at or log.config.version > config_version:
                        break
                    self.awaits_bytes = has_room
                    leader.news.wait(wake_at - now)
                self.awaits_bytes = False
                if self._closed.is_set():
                    raise self._failure or NotLeaderError(f"{leader.name} ended the stream of {self.replica}")
                heartbeat = self.progress.beat(now, written)
                next_beat_at, confirm_at = now + HEARTBEAT_SECONDS, now + CONFIRM_SECONDS
            # In this order: what was confirmed before the report lies before an offset that is read while nobody else leads,
            # and what had changed in `config/` before it is sent.
            heard_report = self._heard_report
            # Files that changed before these bytes were written come before them.
            known_version = log.config.version
            for name, content, version in log.config.changed_since(config_version):
                for part in _parts(name, content, version):
                    yield pb.ReplicateResponse(config_files=[part], confirm_offset=confirmed, heartbeat=heartbeat)
                config_version = version
            config_version = max(config_version, known_version)  # a changed file that is gone is not sent
            heard_report = heard_report if leader.surely_leads() else 0
            confirmed = log.confirm.confirm_offset
            response = pb.ReplicateResponse(confirm_offset=confirmed, heartbeat=heartbeat, heard_report=heard_report)
            if has_bytes and (fetch_end := self._fetch_end_of(sent, confirmed)):
                response.fetch_end_offset = sent = goal = fetch_end
                with leader.lock:
                    self._fetch_end = fetch_end
                    self.progress.note_sent(fetch_end, 0)
            elif has_bytes and now >= self._pace.free_at:
                if sent >= goal:
                    goal, is_end = _goal(log.files, sent, written)
                size_bytes = min(self._chunk_bytes, goal - sent)
                settle_offset = goal if sent + size_bytes == goal else 0
                piece = response.log_bytes  # filled in place: a copy of a message of 1 MiB takes a millisecond
                piece.offset, piece.data, piece.settle_offset = sent, self._read(sent, size_bytes), settle_offset
                sent += size_bytes
                with leader.lock:
                    self.progress.note_sent(sent, settle_offset if is_end else 0)
                    if sent == goal:
                        self._unreported.append(sent)
                    self._pace.take(size_bytes, now)
                self._note_sent(size_bytes)
            yield response

    def fetch(self, begin_offset: int, end_offset: int) -> Iterator[bytes]:
        """The messages of one FetchLog; errors as `responses`.

        Raises:
            InvalidArgumentError: the follower has not been told to fetch these bytes.
            ResourceBusyError: it fetches too much at the same time.
        """
        leader, offset = self._leader, begin_offset
        with leader.lock:
            if not self._begin_offset <= begin_offset < end_offset <= self._fetch_end:
                raise InvalidArgumentError(
                    f"the log [{begin_offset}, {end_offset}) is not to be fetched: this stream begins at "
                    f"{self._begin_offset}, and names {self._fetch_end} as the end of what is fetched",
                    field="offset",
                )
            if self._fetch_count >= FETCH_COUNT_MAX:
                raise ResourceBusyError(
                    f"{self.replica} fetches {self._fetch_count} files already: wait for one", limit=FETCH_COUNT_MAX
                )
            self._fetch_count += 1
        try:
            while offset < end_offset:
                size_bytes = min(self._chunk_bytes, FETCH_CHUNK_BYTES, end_offset - offset)
                with leader.lock:
                    now = leader.clock()
                    send_at = self._pace.take(size_bytes, now)
                if self._closed.wait(send_at - now) if send_at > now else self._closed.is_set():
                    raise self._failure or NotLeaderError(f"{leader.name} ended the stream of {self.replica}")
                yield encode_fetched(self._read(offset, size_bytes))
                offset += size_bytes
                self._note_sent(size_bytes)
        finally:
            with leader.lock:
                self._fetch_count -= 1

    def _has_room(self) -> bool:
        """Whether a further piece may be under way; with the leader's lock held."""
        while self._unreported and self._unreported[0] <= self.progress.durable_offset:
            self._unreported.popleft()
        return len(self._unreported) < UNREPORTED_COUNT_MAX

    def _note_sent(self, size_bytes: int) -> None:
        catch_up = self.catch_up
        if catch_up is not None:
            catch_up.note(size_bytes)
            if self.progress.durable_offset >= catch_up.end_offset:
                self.catch_up = None

    def _fetch_end_of(self, sent_offset: int, confirmed_offset: int) -> int:
        """The end of the whole files that the follower is to fetch instead of more bytes here; 0: none.

        Only what is confirmed: no later leader has other bytes there, so what was fetched may be kept.
        """
        files = self._leader.log.files
        begin, size_bytes = files.first_offset, files.file_size_bytes
        end = confirmed_offset - (confirmed_offset - begin) % size_bytes
        is_far = end - sent_offset >= FETCH_FILES_MIN * size_bytes
        return end if self._can_fetch and is_far and (sent_offset - begin) % size_bytes == 0 else 0

    def _start(self) -> pb.ReplicateResponse:
        leader, files = self._leader, self._leader.log.files
        check_bytes = max(0, min(CHECK_BYTES, self._agreed_offset - files.first_offset))
        data = files.read(self._agreed_offset - check_bytes, check_bytes) if check_bytes else b""
        start = pb.ReplicateResponse.Start(
            epoch=leader.epoch,
            agreed_offset=self._agreed_offset,
            begin_offset=self._begin_offset,
            file_size_bytes=files.file_size_bytes,
            epochs=(pb.Epoch(epoch=epoch.epoch, begin_offset=epoch.begin_offset) for epoch in leader.log.epochs.epochs),
            check_crc=zlib.crc32(data),
            check_size_bytes=len(data),
            end_offset=leader.log.commits.written_offset,
        )
        if start.end_offset - start.begin_offset > FAR_BYTES_MIN:
            self.catch_up = CatchUp(start.begin_offset, start.end_offset)
        return pb.ReplicateResponse(start=start, confirm_offset=leader.log.confirm.confirm_offset)

    def _read(self, offset: int, size_bytes: int) -> bytes:
        files = self._leader.log.files
        data = files.read(offset, size_bytes)
        if len(data) < size_bytes:
            raise OffsetOutOfRangeError(
                f"retention of {self._leader.name} has removed the log before {files.first_offset}, and {self.replica} is at "
                f"{offset}: it begins anew",
                offset=offset,
                firstOffset=files.first_offset,
                lastOffset=self._leader.log.commits.written_offset,
            )
        return data


def _goal(files: MappedFileQueue, sent_offset: int, written_offset: int) -> tuple[int, bool]:
    """The next offset up to which the follower may show bytes, and whether a request ends there.

    One that is far behind shows file by file. No atomic request spans files; a request that is not atomic may lie in two, and
    the follower may show its first part before the second.
    """
    file = files.find(sent_offset)
    if file is None or written_offset - sent_offset <= 2 * files.file_size_bytes:
        return written_offset, True
    return file.last_offset, False


def _parts(name: str, content: bytes, version: int) -> Iterator[pb.ReplicateResponse.ConfigFile]:
    for begin in range(0, len(content), CHUNK_BYTES):
        part = content[begin : begin + CHUNK_BYTES]
        is_last = begin + CHUNK_BYTES >= len(content)
        yield pb.ReplicateResponse.ConfigFile(name=name, content=part, version=version, is_last=is_last)


def check_hello(request: pb.ReplicateRequest | None) -> pb.ReplicateRequest.Hello:
    """The hello of a stream; InvalidArgumentError when it is none."""
    if request is None or request.WhichOneof("kind") != "hello":
        raise InvalidArgumentError("the first request of a stream is the hello", field="hello")
    return request.hello


def check_shape(hello: pb.ReplicateRequest.Hello, leader: str, broker_name: str, files: MappedFileQueue) -> None:
    """InvalidArgumentError when the log of a hello cannot be a replica of this one."""
    if hello.broker_name != broker_name:
        raise InvalidArgumentError(
            f"this is the shard {broker_name!r}, and {hello.replica!r} is a replica of {hello.broker_name!r}: give it the "
            "broker_name and the coordinator of its own shard",
            field="broker_name",
            brokerName=broker_name,
        )
    if not 1 <= len(hello.replica) <= REPLICA_NAME_LENGTH_MAX or hello.replica == leader:
        raise InvalidArgumentError(
            f"{hello.replica[:80]!r} is not the name of another replica than this leader, {leader!r}: each replica needs a "
            "replica_name of its own",
            field="replica",
        )
    if hello.file_size_bytes and files.files and hello.file_size_bytes != files.file_size_bytes:
        raise InvalidArgumentError(
            f"the log of {hello.replica} has files of {hello.file_size_bytes} bytes, this one of {files.file_size_bytes}: "
            "remove the store of that replica, then it begins with this size",
            field="file_size_bytes",
            fileSizeBytes=files.file_size_bytes,
        )
    epochs = [(epoch.epoch, epoch.begin_offset) for epoch in hello.epochs]
    if epochs != sorted(set(epochs)) or not 0 <= hello.first_offset <= hello.end_offset:
        raise InvalidArgumentError(
            "the epochs of a hello rise, and so do the first and the end offset of its log", field="epochs"
        )


KEEP_SECONDS = 0.1  # so often the in-sync set is looked at
CHANGE_PAUSE_SECONDS = 0.5  # after a change of the set that did not succeed
AWAY_SECONDS = 3.0  # a replica that is not connected for so long leaves the set; it looks for its leader every second
NEAR_SECONDS = 2.0  # some heartbeats and a slow flush
CONFIRM_SECONDS_MAX = 30.0  # longest wait of an append for its replicas

_log = structlog.get_logger("reput.commitlog")


class LeaderSide:
    """See the top of this file; thread-safe.

    Args:
        name: of this replica.
        broker_name: the shard.
        epoch: in which it leads.
        log: its log; its epoch is noted already.
        leadership: see view.py.
        limits: see ReplicaLimits.
        former_leader: led before; it is not waited for, because its process ends.
        on_stuck: called, once, with the name of the replica that is to lead when the disk here does not flush any more.

    Attributes:
        is_ready: whether everything that a former leader may have shown is confirmed here, too.
    """

    def __init__(
        self,
        name: str,
        broker_name: str,
        epoch: int,
        log: ReplicatedLog,
        leadership: Leadership,
        limits: ReplicaLimits,
        former_leader: str = "",
        on_stuck: Callable[[str], None] = lambda to: None,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.log = log
        self.limits = limits
        self.clock = leadership.now
        self._broker_name = broker_name
        self._leadership = leadership
        self.lock = threading.Lock()
        self.news = threading.Condition(self.lock)  # for streams: something to send
        self._confirmed = threading.Condition(self.lock)  # for appends that wait
        self._began_at = self.clock()
        self._replicas: dict[str, ReplicaProgress] = {}
        if former_leader not in ("", name):
            self._replicas[former_leader] = ReplicaProgress(self._began_at, self._began_at - AWAY_SECONDS)
        self._streams: dict[str, FollowerStream] = {}
        self._begin_offset = log.epochs.epochs[-1].begin_offset
        self.is_ready = False
        self._pending: frozenset[str] = frozenset()  # about to be taken in
        self._seen_flushed = -1
        self._handing_count = 0  # hand-overs that wait for a report
        self._replicated_offset = 0  # enough replicas have had everything before it while this one surely led
        self._retry_at = 0.0
        self._looked_at = self._began_at
        self._patient_until = self._began_at  # nobody leaves the set before
        self._on_stuck = on_stuck
        self._disk = DiskWatch(limits.lag_seconds_max, self._began_at)
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="replicas-in-sync", daemon=True)

    def start(self) -> None:
        """Begins to confirm."""
        self.log.commits.on_moved = self.moved
        self.moved()
        self._keeper.start()

    def close(self) -> None:
        """Ends all streams and waits; nothing is confirmed any more."""
        self._closing.set()
        with self.lock:
            streams = list(self._streams.values())
            self.news.notify_all()
            self._confirmed.notify_all()
        for stream in streams:
            stream.close()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()

    # -- appends

    def refuse(self) -> None:
        """Raises NotLeaderError when the lead may be lost already."""
        if self._closing.is_set() or not self._leadership.may_acknowledge():
            view = self._leadership.view
            raise NotLeaderError(
                f"{self.name} led the shard {self._broker_name} and may have lost the lead: try again",
                leader=view.leader if view.leader != self.name else "",
                epoch=view.epoch,
            )

    def surely_leads(self) -> bool:
        """Whether nobody else can lead, and this leader shows everything that the ones before it have confirmed."""
        return self.is_ready and not self._closing.is_set() and self._leadership.may_acknowledge()

    def refuse_replicated(self) -> None:
        """Raises NotEnoughReplicasError when an append would wait in vain."""
        in_sync = self._leadership.view.in_sync
        if len(in_sync) < self.limits.min_in_sync:
            raise NotEnoughReplicasError(
                f"{len(in_sync)} replicas of {self._broker_name} are in sync ({', '.join(sorted(in_sync))}), and "
                f"{self.limits.min_in_sync} are needed: wait for another one, or append without FLUSH_MODE_REPLICATED",
                inSync=",".join(sorted(in_sync)),
                minInSync=self.limits.min_in_sync,
            )

    def wait_replicated(self, end_offset: int) -> None:
        """Returns when enough replicas have everything before an offset (bytes).

        Raises:
            NotConfirmedError: that is not known after CONFIRM_SECONDS_MAX, or the lead is lost.
            FlushFailedError: the disk here has failed.
        """
        deadline = self.clock() + CONFIRM_SECONDS_MAX
        with self.lock:
            while self._replicated_offset < end_offset:
                self.log.commits.raise_failure()
                left_seconds = deadline - self.clock()
                if self._closing.is_set() or left_seconds <= 0:
                    raise self._not_confirmed(end_offset)
                self._confirmed.wait(min(left_seconds, KEEP_SECONDS))

    def check_written(self, end_offset: int) -> None:
        """Raises NotConfirmedError when the lead may have been lost before a write (up to an offset in bytes) is answered."""
        is_sure = not self._closing.is_set() and self._leadership.may_acknowledge()
        if not is_sure and self.log.confirm.confirm_offset < end_offset:
            raise self._not_confirmed(end_offset)

    def moved(self) -> None:
        """Called when the written or flushed offset here has moved."""
        with self.lock:
            flushed_offset = self.log.commits.flushed_offset
            if flushed_offset != self._seen_flushed:
                self._seen_flushed = flushed_offset
                self._confirm()
            if any(stream.awaits_bytes for stream in self._streams.values()):
                self.news.notify_all()

    # -- followers

    def serve(self, requests: Iterator[pb.ReplicateRequest]) -> Iterator[pb.ReplicateResponse]:
        """The stream of one follower.

        Raises:
            InvalidArgumentError: the follower cannot be one of this log, or its reports cannot be true.
            NotLeaderError: it means another leader, or this one has lost its lead.
        """
        hello = check_hello(next(requests, None))
        stream = self._open(hello)
        threading.Thread(target=stream.take_reports, args=(requests,), name="replica-reports", daemon=True).start()
        try:
            yield from stream.responses()
        finally:
            stream.close()
            self._gone(stream)

    def fetch(self, request: pb.FetchLogRequest) -> Iterator[bytes]:
        """Whole files for a follower that was told to fetch them on its stream, as FetchLogResponse messages.

        Raises:
            NotLeaderError: this follower has no stream here, in this epoch.
            InvalidArgumentError, ResourceBusyError, OffsetOutOfRangeError: see FollowerStream.fetch.
        """
        with self.lock:
            stream = self._streams.get(request.replica)
        if stream is None or request.leader_epoch != self.epoch:
            raise NotLeaderError(
                f"{request.replica!r} has no stream from {self.name} in epoch {request.leader_epoch}: begin with Replicate",
                leader=self.name,
                epoch=self.epoch,
            )
        return stream.fetch(request.offset, request.end_offset)

    def report(self, stream: FollowerStream, report: pb.ReplicateRequest.Report) -> None:
        """A report of a follower has come; errors as `serve`."""
        with self.lock:
            if self._streams.get(stream.replica) is not stream:
                return
            promised_at = stream.progress.report(report.durable_offset, report.answered_heartbeat)
            if promised_at is not None:
                self._leadership.note_promise(stream.replica, promised_at)
            self._confirm()
            if self._handing_count:
                self._confirmed.notify_all()  # a hand-over waits for this follower, whatever is confirmed
            if self.log.commits.written_offset > stream.progress.sent_offset:
                self.news.notify_all()  # it may have room for more

    def replicas(self) -> list[pb.Replica]:
        """All replicas that are known, for GetStatus."""
        now, end_offset, in_sync = self.clock(), self.log.commits.written_offset, self._leadership.view.in_sync
        own = pb.Replica(name=self.name, in_sync=True, connected=True, durable_offset=self.log.commits.flushed_offset)
        with self.lock:
            rows = [
                pb.Replica(
                    name=name,
                    in_sync=name in in_sync,
                    connected=progress.away_since is None,
                    durable_offset=None if progress.durable_offset == NOTHING else progress.durable_offset,
                    lag_bytes=max(0, end_offset - max(0, progress.durable_offset)),
                    lag_millis=0
                    if progress.durable_offset >= end_offset
                    else max(0, round((now - progress.caught_up_at) * 1000)),
                    catch_up=self._catch_up(name, progress.durable_offset),
                )
                for name, progress in (
                    (name, self._progress(name)) for name in {*self._replicas, *in_sync} - {self.name}
                )
            ]
        return sorted([own, *rows], key=lambda row: row.name)

    def _catch_up(self, name: str, durable_offset: int) -> pb.CatchUp | None:
        stream = self._streams.get(name)
        catch_up = None if stream is None else stream.catch_up
        return None if catch_up is None or durable_offset >= catch_up.end_offset else catch_up.progress(durable_offset)

    def is_near(self, name: str) -> bool:
        """Whether a replica is in sync, connected, and had all of this log NEAR_SECONDS ago: it will soon have the rest."""
        with self.lock:
            progress = self._progress(name)
            is_late = self.clock() - progress.caught_up_at > NEAR_SECONDS
            return progress.away_since is None and not is_late and name in self._leadership.view.in_sync

    def wait_handed(self, to: str, end_offset: int, timeout_seconds: float) -> bool:
        """Whether a replica has all of this log, and all of it is confirmed; False after the timeout or when it goes away.

        Args:
            to: the replica.
            end_offset: where the log ends (bytes); nothing is appended any more.
            timeout_seconds: see above.
        """
        deadline = self.clock() + timeout_seconds
        with self.lock, self._handing():
            while True:
                has_all = self._progress(to).settled_offset >= end_offset and to in self._leadership.view.in_sync
                if has_all and self.log.confirm.confirm_offset >= end_offset:
                    return True
                left_seconds = deadline - self.clock()
                if left_seconds <= 0 or self._closing.is_set() or self._progress(to).away_since is not None:
                    return False
                self._confirmed.wait(min(left_seconds, KEEP_SECONDS))

    # -- inside

    @contextlib.contextmanager
    def _handing(self) -> Iterator[None]:
        """Counts a hand-over that waits; with the lock held."""
        self._handing_count += 1
        try:
            yield
        finally:
            self._handing_count -= 1

    def _open(self, hello: pb.ReplicateRequest.Hello) -> FollowerStream:
        known_epoch = max([hello.leader_epoch, *(epoch.epoch for epoch in hello.epochs)])
        if known_epoch > self.epoch:
            self._leadership.note_epoch(known_epoch)
        if hello.leader_epoch != self.epoch or known_epoch > self.epoch:
            raise NotLeaderError(
                f"{self.name} leads {self._broker_name} in epoch {self.epoch}, and {hello.replica} asks for the leader of "
                f"epoch {known_epoch}",
                leader=self.name,
                epoch=self.epoch,
            )
        begin, agreed = self._agree(hello)
        with self.lock:
            before = self._streams.get(hello.replica)
        if before is not None:
            before.close()
        with self.lock:
            progress = self._progress(hello.replica).on_new_stream(begin, hello.store_id)
            stream = FollowerStream(self, hello.replica, progress, agreed, begin, can_fetch=hello.can_fetch)
            self._replicas[hello.replica] = progress
            self._streams[hello.replica] = stream
        _log.info("replica.connected", replica=hello.replica, begin_offset=begin, agreed_offset=agreed)
        return stream

    def _agree(self, hello: pb.ReplicateRequest.Hello) -> tuple[int, int]:
        """The offset at which the copy begins, and the end of the part in which the logs are equal, or NOWHERE (bytes)."""
        files = self.log.files
        check_shape(hello, self.name, self._broker_name, files)
        first, end = files.first_offset, self.log.commits.written_offset
        if hello.first_offset == hello.end_offset:  # it has no byte yet
            if hello.end_offset == 0 or first <= hello.end_offset <= end:
                begin = max(first, hello.end_offset)
                return begin, begin
            return first, NOWHERE
        theirs = [Epoch(epoch.epoch, epoch.begin_offset) for epoch in hello.epochs]
        agreed = agreed_offset(self.log.epochs.epochs, end, theirs, hello.end_offset)
        if agreed < max(first, hello.first_offset):
            return first, NOWHERE
        return agreed, agreed

    def _gone(self, stream: FollowerStream) -> None:
        with self.lock:
            if self._streams.get(stream.replica) is stream:
                del self._streams[stream.replica]
                stream.progress.away_since = self.clock()
        _log.info("replica.disconnected", replica=stream.replica)

    def _progress(self, name: str) -> ReplicaProgress:
        return self._replicas.get(name) or ReplicaProgress(self._began_at, self._began_at)

    def _confirm(self) -> None:
        """Moves the confirm offset as far as it may; with the lock held."""
        view = self._leadership.view
        if self._closing.is_set() or not self._leads(view) or not self._leadership.may_acknowledge():
            return
        offset = self.log.commits.flushed_offset
        for name in (view.in_sync | self._pending) - {self.name}:
            offset = min(offset, self._progress(name).settled_offset)
        confirmed = self.log.confirm.limit_offset or 0
        if offset > confirmed:
            self.log.confirm.limit(offset)
            self.news.notify_all()
        # Every replica of the set has all that is confirmed, whenever it came in.
        confirmed = max(confirmed, offset)
        if confirmed >= self._begin_offset and not self.is_ready:
            self.is_ready = True
            _log.info("replica.ready", epoch=self.epoch, confirm_offset=confirmed)
        if len(view.in_sync) >= self.limits.min_in_sync and confirmed > self._replicated_offset:
            self._replicated_offset = confirmed
            self._confirmed.notify_all()

    def _leads(self, view: LeadershipView) -> bool:
        return view.role is Role.LEADER and view.epoch == self.epoch and not view.resigned

    def _not_confirmed(self, end_offset: int) -> NotConfirmedError:
        return NotConfirmedError(
            f"the log of {self.name} has this write, and it is not known that enough replicas of {self._broker_name} have it: "
            "it may stay or be cut. Send it again with `deduplicate`",
            endOffset=end_offset,
            confirmOffset=self.log.confirm.confirm_offset,
        )

    def _keep(self) -> None:
        while not self._closing.wait(KEEP_SECONDS):
            try:
                self._keep_in_sync()
                with self.lock:
                    self._confirm()  # the leadership may acknowledge again
                self._watch_own_disk()
            except StoreError as error:
                _log.warning("replicas.in_sync_not_changed", error=error.message)

    def _watch_own_disk(self) -> None:
        flushed = self.log.commits.flushed_offset
        with self.lock:
            in_sync = self._leadership.view.in_sync - {self.name}
            ahead = sorted(name for name in in_sync if self._progress(name).settled_offset > flushed)
        if self._disk.is_stuck(self.clock(), flushed, bool(ahead)):
            _log.error("replica.disk_stuck", flushed_offset=flushed, ahead=ahead)
            self._on_stuck(ahead[0])

    def _keep_in_sync(self) -> None:
        now = self.clock()
        if now - self._looked_at > KEEP_SECONDS + LATE_SECONDS:
            self._patient_until = now + self.limits.lag_seconds_max
        self._looked_at = now
        if now < self._retry_at:
            return
        # A leader that stood still has not heard what the others said meanwhile; one that may not lead asks in vain.
        may_shrink = now >= self._patient_until and self._leadership.may_acknowledge()
        with self.lock:
            view = self._leadership.view
            if not self._leads(view):
                return
            confirmed = self.log.confirm.limit_offset or 0
            kept = {
                name
                for name in view.in_sync
                if name == self.name or not may_shrink or not self._is_slow(name, now, confirmed)
            }
            # One that lacks a part of what the leader before this one confirmed must not lead next.
            needed = max(confirmed, self._begin_offset)
            fit = {
                name: progress.store_id
                for name, progress in self._replicas.items()
                if progress.away_since is None
                and progress.has_reported
                and progress.settled_offset >= needed
                and now - progress.caught_up_at <= self.limits.lag_seconds_max
            }
            wanted = frozenset(kept | fit.keys())
            stores = {name: store for name, store in fit.items() if store and store != view.store_ids.get(name)}
            if wanted == view.in_sync and not stores:
                return
            self._pending = wanted
        try:
            is_changed = self._leadership.change_in_sync(wanted, stores)
        finally:
            self._looked_at = self.clock()  # the coordinator may have taken its time
            with self.lock:
                self._pending = frozenset()
        if is_changed:
            _log.info("replicas.in_sync", in_sync=sorted(wanted), before=sorted(view.in_sync))
        else:
            self._retry_at = self.clock() + CHANGE_PAUSE_SECONDS

    def _is_slow(self, name: str, now: float, confirmed_offset: int) -> bool:
        progress = self._progress(name)
        # One that comes and goes has caught up only when it has said so.
        if now - progress.caught_up_at > self.limits.lag_seconds_max:
            return True
        if progress.away_since is not None:
            return now - progress.away_since > AWAY_SECONDS
        # One that has less than what it had confirmed has lost its disk.
        return progress.durable_offset < confirmed_offset
