"""LeaderSide: the log of a replica that leads, its followers, and what that confirms.

    own flush ─┐
    reports  ──┼─▶ confirm offset = the least of all in-sync replicas ─▶ acknowledgements, readers, followers
    lease    ──┘   moves only while the leadership may acknowledge

- The confirm offset moves at ends of requests and never back.
- A replica leaves the in-sync set when it lags or is away for too long, and only after the coordinator has stored the smaller
  set. One that has reached the confirm offset counts from before the larger set is sent to the coordinator.
- A heartbeat that a follower answers was sent before the follower could have stood for election: see leadership.py.
- A leader whose own disk is stuck gives the lead to a replica that flushes: see disk_watch.py.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import structlog

from commitlog_svc.replication.disk_watch import DiskWatch
from commitlog_svc.replication.epochs import NOWHERE, Epoch, agreed_offset
from commitlog_svc.replication.follower_stream import FollowerStream, check_hello, check_shape
from commitlog_svc.replication.leading.replica_progress import NOTHING, ReplicaProgress
from commitlog_svc.replication.leading.roles import Leadership
from commitlog_svc.replication.leading.view import LeadershipView, Role
from commitlog_svc.replication.limits import ReplicaLimits
from commitlog_svc.replication.replicated_log import ReplicatedLog
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import NotConfirmedError, NotEnoughReplicasError, NotLeaderError, StoreError

KEEP_SECONDS = 0.1  # so often the in-sync set is looked at
CHANGE_PAUSE_SECONDS = 0.5  # after a change of the set that did not succeed
LATE_SECONDS = 1.0  # a look that comes so late: this process stood still, and what it knows of the others is old
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
        leadership: see roles.py.
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
        """What is written or flushed here has moved."""
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
        """Where the copy begins, and up to where the logs are equal or NOWHERE (bytes)."""
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
