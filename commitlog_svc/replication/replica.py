"""Replica: the life of one replica of a shard's log, and what it means for appends.

    unknown ──▶ follower ──▶ leader          in one life the role only goes up
        every way down ──▶ no acknowledgement any more ──▶ the process ends with code 4 and starts as a follower

The leadership says who leads; this class does what follows from it: it follows the leader, or notes its own epoch at the end
of its log and lets appends in. A leader that another one has deposed, that has handed over, and a follower whose log has
diverged have to end: nothing of the former role is left in memory then.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import grpc
import structlog

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication.follower_side import FollowerSide, Reach
from commitlog_svc.replication.leader_side import LeaderSide
from commitlog_svc.replication.leading.view import Leadership, LeadershipView, Role
from commitlog_svc.replication.replicated_log import ReplicaLimits, ReplicatedLog
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import NotConfirmedError, NotLeaderError, StoreError

VIEW_SECONDS = 1.0
LEAVE_SECONDS_MAX = 1.0  # a replica that has not all by then does not get the lead of a process that ends
NEAR_SECONDS_MAX = 10.0  # a replica that is not nearly caught up by then does not get the lead
HAND_OVER_SECONDS_MAX = 4.0  # appends are refused for so long at most; then they go on here, and the wish is taken back
RETRY_SECONDS = 0.5

_log = structlog.get_logger("reput.commitlog")


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """For GetStatus: the role (`leader`, `follower` or `unknown`), what is known of the leader, and a leader's replicas.

    A follower has a `reach`.
    """

    name: str
    role: str
    epoch: int
    leader: str
    in_sync: tuple[str, ...]
    replicas: list[pb.Replica]
    problem: str
    reach: Reach | None = None
    catch_up: pb.CatchUp | None = None


class Replica:
    """See the top of this file; thread-safe. It is the AppendGate of its log.

    Args:
        name: of this replica.
        broker_name: the shard.
        log: the log, not recovered yet.
        limits: see ReplicaLimits.
        open_channel: makes a channel to the commitlog service of another replica.
        on_restart: called once, from any thread, with the reason why the process has to end.
        coordinator: address of what keeps who leads, for GetStatus.
        on_in_sync: called about once a second, with whether this replica leads, or has all that is confirmed and may lead next.
    """

    def __init__(
        self,
        name: str,
        broker_name: str,
        log: CommitLog,
        limits: ReplicaLimits,
        open_channel: Callable[[str], grpc.Channel],
        on_restart: Callable[[str], None],
        coordinator: str = "",
        on_in_sync: Callable[[bool], object] = lambda is_in_sync: None,
    ) -> None:
        self.name = name
        self._on_in_sync = on_in_sync
        self.coordinator = coordinator
        self._broker_name = broker_name
        self._log = log
        self._leadership: Leadership | None = None
        self._limits = limits
        self._open_channel = open_channel
        self._on_restart = on_restart
        self._leader: LeaderSide | None = None
        self._follower: FollowerSide | None = None
        self._parts: ReplicatedLog | None = None
        self._closing = threading.Event()
        self._is_handing_over = False
        self._wish = ("", 0.0)  # who is to lead, and since when that is known
        self._former_leader = ""
        self._end_lock = threading.Lock()
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        log.join_replicas(self)

    def start(self, leadership: Leadership) -> None:
        """Takes its role, as the leadership says; the log is recovered."""
        self._parts = self._log.replicated()
        self._leadership = leadership
        self._follower = FollowerSide(
            self.name,
            self._broker_name,
            self._parts,
            leadership,
            self._open_channel,
            lambda: self._end("the log has diverged from the leader's and is cut at the next start"),
            fetch_count=self._limits.fetch_count,
        )
        self._follower.start()
        self._thread.start()

    def leave(self) -> None:
        """Hands the lead over to an in-sync replica that has all, if there is one: then nobody waits for the lease to run out.

        To be called when no more appends come, before `close`.
        """
        leader, leadership = self._leader, self._leadership
        if leader is None or leadership is None or self._is_ended:
            return
        self._is_handing_over = True
        end_offset = leader.log.end_of_writes()
        for name in sorted(leadership.view.in_sync - {self.name}):
            if leader.wait_handed(name, end_offset, LEAVE_SECONDS_MAX):
                with suppress(StoreError):
                    leadership.hand_over(name)
                return

    def close(self) -> None:
        """Ends all streams; nothing is acknowledged any more. To be called before the log is closed."""
        self._closing.set()
        leader = self._leader
        if leader is not None:
            leader.close()
        if self._follower is not None:
            self._follower.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    # -- appends: AppendGate

    @property
    def leads(self) -> bool:
        """See AppendGate."""
        return self._leader is not None

    @property
    def serves_as_leader(self) -> bool:
        """Whether it leads now: it shows what the leader before it has shown, and it has not been deposed."""
        # A leader that still shows less than the one before it may have shown is none yet.
        leader = self._leader
        return leader is not None and leader.is_ready and not self._is_ended

    def refuse(self) -> None:
        """Raises NotLeaderError unless this replica leads and may acknowledge."""
        leader = self._leader
        if leader is None or not leader.is_ready or self._is_ended or self._is_handing_over:
            view = self._view
            other = view.leader if view.leader != self.name else ""
            raise NotLeaderError(
                f"{self.name} does not lead the shard {self._broker_name}"
                + (f", {other} does: append there" if other else ": try again soon"),
                leader=other,
                epoch=view.epoch,
            )
        leader.refuse()

    def refuse_replicated(self) -> None:
        """See AppendGate."""
        self._leading().refuse_replicated()

    def check_written(self, end_offset: int) -> None:
        """See AppendGate."""
        leader = self._leader
        if leader is None:
            raise self._not_confirmed(end_offset)
        leader.check_written(end_offset)

    def wait_replicated(self, end_offset: int) -> None:
        """See AppendGate."""
        leader = self._leader
        if leader is None:
            raise self._not_confirmed(end_offset)
        leader.wait_replicated(end_offset)

    # -- followers

    def serve(self, requests: Iterator[pb.ReplicateRequest]) -> Iterator[pb.ReplicateResponse]:
        """The stream of a follower; errors as LeaderSide.serve."""
        return self._leading().serve(requests)

    def fetch(self, request: pb.FetchLogRequest) -> Iterator[bytes]:
        """Whole files for a follower; errors as LeaderSide.fetch."""
        return self._leading().fetch(request)

    def status(self) -> ReplicaStatus:
        """The role now, and what is known."""
        view, leader, follower = self._view, self._leader, self._follower
        leads = self.serves_as_leader
        role = "leader" if leads else "follower" if view.role is Role.FOLLOWER else "unknown"
        problem = "" if leads or follower is None else follower.problem or view.refusal
        return ReplicaStatus(
            self.name,
            role,
            leader.epoch if leader is not None and leads else view.epoch,
            self.name if leads else view.leader if view.leader != self.name else "",
            tuple(sorted(view.in_sync)),
            leader.replicas() if leader is not None and leads else [],
            problem,
            None if leader is not None or follower is None else follower.reach,
            None if leads or follower is None else follower.catch_up_progress(),
        )

    # -- inside

    @property
    def _is_in_sync(self) -> bool:
        view, leader = self._view, self._leader
        if self._is_ended or view.role is Role.UNKNOWN:
            return False
        return leader.is_ready if leader is not None else self.name in view.in_sync

    @property
    def _view(self) -> LeadershipView:
        return LeadershipView(Role.UNKNOWN) if self._leadership is None else self._leadership.view

    def _leading(self) -> LeaderSide:
        leader = self._leader
        if leader is None:
            self.refuse()
        assert leader is not None
        return leader

    def _not_confirmed(self, end_offset: int) -> NotConfirmedError:
        return NotConfirmedError(
            f"{self.name} does not lead the shard {self._broker_name} any more: its last writes may stay or be cut. Send them "
            "again with `deduplicate`",
            endOffset=end_offset,
        )

    def _run(self) -> None:
        assert self._leadership is not None
        view = self._leadership.view
        while not self._closing.is_set() and not self._is_ended:
            try:
                self._act(view)
            except Exception as error:
                words = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
                _log.error("replica.role_not_taken", error=words, epoch=view.epoch)
                if view.role is Role.LEADER and self._leader is None:
                    # Nobody can append while it keeps the lease: with the process the lease ends.
                    self._end(f"{self.name} was elected in epoch {view.epoch} and cannot lead: {words}")
                self._closing.wait(RETRY_SECONDS)
            self._on_in_sync(self._is_in_sync)
            view = self._leadership.wait_change(view, VIEW_SECONDS)

    def _act(self, view: LeadershipView) -> None:
        leader = self._leader
        if view.resigned:
            self._end(f"{self.name} does not lead any more")
        elif leader is not None:
            if view.role is Role.FOLLOWER or view.epoch != leader.epoch:
                self._end(f"{view.leader or 'nobody'} leads in epoch {view.epoch}, this replica led in {leader.epoch}")
            elif view.hand_over_to and view.hand_over_to != self.name:
                self._hand_over(leader, view.hand_over_to)
            else:
                self._wish = ("", 0.0)
        elif view.role is Role.LEADER:
            self._lead(view)
        elif self._follower is not None:
            self._former_leader = view.leader or self._former_leader
            self._follower.follow(view)

    def _lead(self, view: LeadershipView) -> None:
        """Begins an epoch at the end of the log, on the disk, and lets appends in."""
        assert self._parts is not None
        assert self._follower is not None
        assert self._leadership is not None
        self._follower.close()
        log = self._parts
        end_offset = log.commits.written_offset
        log.commits.wait_flushed(end_offset)
        former = log.epochs.last
        log.epochs.begin(view.epoch, end_offset)
        leader = LeaderSide(
            self.name,
            self._broker_name,
            view.epoch,
            log,
            self._leadership,
            self._limits,
            self._former_leader,
            self._give_up,
        )
        leader.start()
        self._leader = leader
        log.show_now()
        _log.info("replica.leads", epoch=view.epoch, begin_offset=end_offset, last_epoch=former)
        if self._closing.is_set():
            leader.close()

    def _hand_over(self, leader: LeaderSide, to: str) -> None:
        """Gives the lead up to a replica that nearly has all; only then appends are refused, once and for a short time."""
        assert self._leadership is not None
        now = self._leadership.now()
        if self._wish[0] != to:
            self._wish = (to, now)
        if not leader.is_near(to):
            if now - self._wish[1] > NEAR_SECONDS_MAX:
                self._refuse_hand_over(leader, to)
            return
        self._is_handing_over = True
        try:
            end_offset = leader.log.end_of_writes()
            if leader.wait_handed(to, end_offset, HAND_OVER_SECONDS_MAX):
                self._leadership.hand_over(to)
                self._end(f"{to} takes over")
                return
        finally:
            self._is_handing_over = self._is_ended
        self._refuse_hand_over(leader, to)

    def _give_up(self, to: str) -> None:
        """Another replica shall lead: the disk here does not flush any more. Everything confirmed is on that one's disk."""
        assert self._leadership is not None
        self._is_handing_over = True
        with suppress(StoreError):  # otherwise others take over when the lease is over
            self._leadership.hand_over(to)
        self._end(f"the disk of {self.name} does not flush any more, {to} takes over")

    def _refuse_hand_over(self, leader: LeaderSide, to: str) -> None:
        assert self._leadership is not None
        _log.warning("replica.not_handed_over", to=to, epoch=leader.epoch)
        self._leadership.refuse_hand_over(to)

    def _end(self, why: str) -> None:
        with self._end_lock:
            if self._is_ended or self._closing.is_set():
                return
            self._is_ended = True
        _log.warning("replica.restarts", why=why)
        if self._leader is not None:
            self._leader.close()
        self._on_restart(why)
