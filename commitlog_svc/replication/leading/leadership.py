"""ElectedLeadership: the rules of leadership_rules.py with a thread, a clock and a coordinator.

    with ElectedLeadership("r1", {"commitlog": "10.0.0.1:8082"}, store, epochs.last) as leadership:
        view = leadership.wait_change(leadership.view, 1.0)
        if leadership.may_acknowledge(): ...

One thread asks the coordinator, one call at a time. A replica that led and must not any longer says `view.resigned`: its
process ends and starts again as a follower.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from commitlog_svc.replication.leading.leadership_rules import LeadershipRules, LeaseTimes, Purpose, Step
from commitlog_svc.replication.leading.record import NO_STORE_IDS, ShardRecord
from commitlog_svc.replication.leading.view import LeadershipView, Role
from services.coordination.port import RecordStore
from store.errors import RecordConflictError

Observed = Callable[[Purpose, Exception | None], None]
STOP_SECONDS_MAX = 5.0


def clock() -> float:
    """Seconds since the machine started, also those in which it slept: a lease goes on while a laptop's lid is closed."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ElectedLeadership:
    """Thread-safe.

    Args:
        name: of this replica.
        addresses: of this replica, service -> HOST:PORT; `commitlog` is the one others replicate from.
        store: the shard's record.
        last_epoch: the last epoch in this replica's log, 0 for none; quick, and never waits for this object.
        may_create: make the record of a shard that has none, if the log here has no epoch.
        times: the same for all replicas of the shard.
        observed: told what was asked of the coordinator and how it failed, for logs and metrics; not under a lock.
        now: seconds, of a clock that never goes back.
        dice: as random.random.
        store_id: of this replica, see epochs.py.
    """

    def __init__(
        self,
        name: str,
        addresses: Mapping[str, str],
        store: RecordStore,
        last_epoch: Callable[[], int],
        *,
        may_create: bool = False,
        times: LeaseTimes | None = None,
        observed: Observed = lambda purpose, error: None,
        now: Callable[[], float] = clock,
        dice: Callable[[], float] = random.random,
        store_id: str = "",
    ) -> None:
        self.now = now
        self._store = store
        self._times = times or LeaseTimes()
        self._observed = observed
        self._call_seconds_max = self._times.lease_seconds / 3
        self._rules = LeadershipRules(name, addresses, self._times, last_epoch, may_create, now(), dice, store_id)
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    def start(self) -> None:
        """Begin to ask the coordinator; never waits for it."""
        self._thread.start()

    def close(self) -> None:
        """Stop. A leader leaves its lease to run out: nobody takes over earlier."""
        with self._changed:
            self._is_closed = True
            self._rules.resign()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def view(self) -> LeadershipView:
        """The view of who leads."""
        with self._changed:
            return self._rules.view()

    def may_acknowledge(self) -> bool:
        """Whether this replica leads and nobody else can at this moment; asked before each acknowledgement."""
        with self._changed:
            return self._rules.may_acknowledge(self.now())

    def note_leader_heard(self, epoch: int) -> bool:
        """A follower got a message of the leader of this epoch; whether to answer it: an answer is a promise."""
        with self._changed:
            return self._rules.note_leader_heard(epoch, self.now())

    def note_promise(self, replica: str, sent_at: float) -> None:
        """The leader got an answer to a heartbeat that was sent at `sent_at`, by `now()` of this object."""
        with self._changed:
            self._rules.note_promise(replica, sent_at)

    def note_epoch(self, epoch: int) -> None:
        """A replica says that it knows of this epoch; a leader of an earlier one resigns."""
        with self._changed:
            self._rules.note_epoch(epoch)
            self._changed.notify_all()

    def change_in_sync(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> bool:
        """Store another in-sync set; whether it is stored. Until it is known, `view.in_sync` is both sets together.

        `store_ids` names the stores of members, where the record has none or another one of them.
        For the leader, from one thread at a time. Waits a lease at most.
        """
        with self._changed:
            if self._rules.role is not Role.LEADER:
                return False
            self._rules.want_in_sync(names, store_ids)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._rules.is_change_open(), self._times.lease_seconds)
            self._rules.give_up_change()
            return self._rules.is_stored(names, store_ids)

    def hand_over(self, to: str) -> None:
        """Give up in favour of a member of the in-sync set; acknowledges nothing from now on, and resigns.

        Waits a lease at most; if the coordinator has not answered by then, others take over when the lease is over.

        Raises:
            InvalidArgumentError: this replica does not lead, or `to` is not in sync; nothing changes.
        """
        with self._changed:
            self._rules.want_hand_over(to)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._rules.has_resigned, self._times.lease_seconds)
            self._rules.resign()
            self._changed.notify_all()

    def refuse_hand_over(self, to: str) -> None:
        """Take an operator's wish to hand over to that replica out of the record, with the next renewal."""
        with self._changed:
            self._rules.refuse_hand_over(to)
            self._changed.notify_all()

    def wait_change(self, view: LeadershipView, timeout_seconds: float) -> LeadershipView:
        """The view, once it differs from `view` or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._rules.view() != view, timeout_seconds)
            return self._rules.view()

    def _run(self) -> None:
        while (step := self._next_step()) is not None:
            error: Exception | None = None
            try:
                self._take(step)
            except Exception as failed:  # whatever it is, the outcome is unknown; a leader needs this thread
                error = failed
                with self._changed:
                    if isinstance(failed, RecordConflictError):
                        self._rules.on_conflict(step, self.now())
                    else:
                        self._rules.on_unknown(step, self.now())
                    self._changed.notify_all()
            with contextlib.suppress(Exception):  # what watches must not end what leads
                self._observed(step.purpose, error)

    def _next_step(self) -> Step | None:
        """The next step when its time has come; None: closed, or nothing is ever asked again."""
        with self._changed:
            while not self._is_closed:
                step = self._rules.next_step(self.now())
                if step is not None:
                    return step
                if self._rules.has_resigned:
                    return None
                now = self.now()
                self._changed.wait(max(0.001, self._rules.next_time(now) - now))
            return None

    def _take(self, step: Step) -> None:
        started = self.now()
        if step.record is None:
            stored = self._store.read(self._call_seconds_max)
            record = ShardRecord.from_bytes(stored.data) if stored is not None else None
            with self._changed:
                self._rules.on_read(record, stored.version if stored is not None else None, self.now())
                self._changed.notify_all()
            return
        version = self._store.write(step.record.to_bytes(), step.version, self._call_seconds_max)
        with self._changed:
            self._rules.on_written(step, version, started)
            self._changed.notify_all()
