"""Who leads a shard: the rules, as a machine without threads, clocks or calls (docs/adr/0062).

    step = rules.next_step(now)         # None: nothing to ask now
    ... the coordinator is asked ...
    rules.on_read(...) | rules.on_written(...) | rules.on_conflict(...) | rules.on_unknown(...)

- A leader acknowledges while (a) its last renewal that succeeded was begun less than a lease ago, or (b) each other member of
  the in-sync set has answered a heartbeat that was sent less than a lease ago: such an answer is a promise.
- A member of the set stands for election once it has heard nothing from the leader for a lease and a margin, and the record has
  not changed for as long since it first saw it. It takes over by replacing exactly that version with the next epoch.
- A member begins to wait after the leader began that renewal or heartbeat, and waits longer than a lease. So (a) and (b)
  have ended before it takes over.
- A call whose outcome is unknown may take effect later. Until the version has moved on, a candidate promises nothing, and a
  leader counts the set before and the set after the change together.

Times are seconds of this process's own clock; those of two machines are never compared. Their rates differ by less than
margin / lease. All methods are for one thread at a time.
"""

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from commitlog_svc.replication.leading.record import NO_STORE_IDS, ShardRecord
from commitlog_svc.replication.leading.view import LeadershipView, Role
from store.errors import InvalidArgumentError

COMMIT_LOG_SERVICE = "commitlog"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds.

    Attributes:
        lease_seconds: how long a renewal or a promise is good for.
        margin_seconds: how much longer others wait, for clocks that run at different rates.
        renew_seconds: time between renewals, and between looks at the record.
        jitter_seconds: candidates wait up to so much longer, so that they seldom stand together.
    """

    lease_seconds: float = 4.0
    margin_seconds: float = 0.5
    renew_seconds: float = 1.0
    jitter_seconds: float = 0.5


class Purpose(enum.Enum):
    """The purpose of a step."""

    READ = "read"
    RENEW = "renew"
    CHANGE_IN_SYNC = "change_in_sync"
    TAKE_OVER = "take_over"
    CREATE = "create"
    RESTORE = "restore"
    HAND_OVER = "hand_over"


@dataclass(frozen=True, slots=True)
class Step:
    """A question to the coordinator: a read, or to replace `version` by `record`."""

    purpose: Purpose
    record: ShardRecord | None = None
    version: str | None = None


class LeadershipRules:
    """The rules for one life of one replica, with what it knows.

    Args:
        name: of this replica.
        addresses: of this replica, service -> HOST:PORT.
        times: the same for all replicas of the shard.
        last_epoch: the last epoch in this replica's log; 0: it has none, its log is no copy of anything.
        may_create: this replica makes the record of a shard that has none, if its log has no epoch.
        now: seconds.
        random: as random.random.
        store_id: of this replica, see epochs.py; empty: not compared with the record's.
    """

    def __init__(
        self,
        name: str,
        addresses: Mapping[str, str],
        times: LeaseTimes,
        last_epoch: Callable[[], int],
        may_create: bool,
        now: float,
        random: Callable[[], float],
        store_id: str = "",
    ) -> None:
        self._name = name
        self._addresses = dict(addresses)
        self._times = times
        self._last_epoch = last_epoch
        self._may_create = may_create
        self._random = random
        self._store_id = store_id
        self._role = Role.UNKNOWN
        self._resigned = False
        self._record: ShardRecord | None = None
        self._version: str | None = None
        self._read_at = now  # the next read
        self._must_read = True  # nothing is written before a read was answered
        self._was_read = False
        # As a follower.
        self._seen_since = now  # the version was first seen then
        self._heard_at = now  # an earlier life may have promised something just now
        self._highest = (0, 0)  # epoch and renewal of the newest record seen
        self._attempt: Step | None = None  # may still take effect, or did
        self._jitter = self._draw()
        # An empty log in a set that it was in before has lost what it had: it first has to be taken out, then in again.
        self._is_joining = last_epoch() == 0
        # As a leader.
        self._renewed_from = -math.inf
        self._promises: dict[str, float] = {}
        self._wanted: frozenset[str] | None = None
        self._wanted_stores = NO_STORE_IDS
        self._pending: frozenset[str] = frozenset()  # sets that may have been stored
        self._is_lost = False  # the coordinator has no record, or an older one
        self._successor: str | None = None
        self._refused_wish = ""  # a hand-over that failed; the next write takes it out of the record

    # --- what others ask

    @property
    def role(self) -> Role:
        """As `view().role`, without the rest of a view."""
        return self._role

    @property
    def has_resigned(self) -> bool:
        """As `view().resigned`."""
        return self._resigned

    def view(self) -> LeadershipView:
        """What is known."""
        record = self._record
        if record is None:
            return LeadershipView(
                self._role, self._known_epoch(), resigned=self._resigned, refusal=self._stands_at()[1]
            )
        address = record.addresses.get(record.leader, {}).get(COMMIT_LOG_SERVICE, "")
        return LeadershipView(
            self._role,
            record.epoch,
            record.leader,
            address,
            record.in_sync | self._pending,
            record.hand_over_to if record.hand_over_to != self._refused_wish else "",
            self._resigned,
            self._stands_at()[1] if self._role is not Role.LEADER else "",
            record.store_ids,
        )

    def may_acknowledge(self, now: float) -> bool:
        """Whether nobody else can lead at this moment."""
        if self._role is not Role.LEADER or self._resigned or self._successor is not None:
            return False
        return now < self._renewed_from + self._times.lease_seconds or self._has_promises(now)

    def note_leader_heard(self, epoch: int, now: float) -> bool:
        """The leader of an epoch spoke; whether the promise is given: only then may it be answered."""
        if self._role is Role.LEADER or self._attempt is not None or epoch < self._known_epoch():
            return False
        self._heard_at = now
        return True

    def note_promise(self, replica: str, sent_at: float) -> None:
        """A replica answered a heartbeat of this leader that was sent then."""
        self._promises[replica] = max(sent_at, self._promises.get(replica, -math.inf))

    def note_epoch(self, epoch: int) -> None:
        """Somebody knows of this epoch: a leader of an earlier one resigns."""
        if self._role is Role.LEADER and self._record is not None and epoch > self._record.epoch:
            self._resigned = True

    def want_in_sync(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> None:
        """The leader wants this set to be stored, with these stores of members; until it is known, both sets count.

        Raises:
            InvalidArgumentError: the set has no leader in it.
        """
        if self._name not in names:
            raise InvalidArgumentError(f"the leader {self._name} is always in sync", field="names")
        self._pending |= names
        self._wanted, self._wanted_stores = names, store_ids

    def is_change_open(self) -> bool:
        """Whether the set that was wanted last is neither stored nor given up."""
        return self._wanted is not None and not self._resigned

    def is_stored(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> bool:
        """Whether the coordinator has this set and these stores, and no other set is under way."""
        return self._record is not None and _has(self._record, names, store_ids) and self._pending <= names

    def give_up_change(self) -> None:
        """The set that was wanted last is not asked for again; it counts until a later write shows what is stored."""
        self._wanted = None

    def want_hand_over(self, successor: str) -> None:
        """The leader gives up for a member of its set: it acknowledges nothing any more.

        If a change of the set that is under way takes that member out, any member may lead, this one's next life too.

        Raises:
            InvalidArgumentError: this replica does not lead, or the other one is not in sync.
        """
        if self._role is not Role.LEADER or self._record is None or self._resigned:
            raise InvalidArgumentError(f"{self._name} does not lead: ask the leader", field="to")
        if successor == self._name or successor not in self._record.in_sync:
            raise InvalidArgumentError(
                f"{successor} is not in sync, only {sorted(self._record.in_sync - {self._name})} can take over now",
                field="to",
            )
        self._successor = successor

    def refuse_hand_over(self, successor: str) -> None:
        """The leader does not hand over to that replica: the next renewal takes the operator's wish out of the record."""
        if self._role is Role.LEADER:
            self._refused_wish = successor

    def resign(self) -> None:
        """This life never leads again."""
        self._resigned = True

    # --- what is asked of the coordinator

    def next_step(self, now: float) -> Step | None:
        """The next question to the coordinator; the outcome of a write is unknown from this moment on."""
        if self._resigned:
            return None
        if self._must_read or (self._role is not Role.LEADER and now >= self._read_at):
            return Step(Purpose.READ) if now >= self._read_at else None
        if self._role is Role.LEADER:
            return self._leader_step(now)
        at, _ = self._stands_at()
        if at is None or now < at:
            return None
        self._attempt = self._candidacy()
        return self._attempt

    def next_time(self, now: float) -> float:
        """When `next_step` has something new to say, if nothing happens before."""
        if self._role is Role.LEADER:
            if self._must_read or self._is_lost:
                return self._read_at
            return self._renewed_from + self._times.renew_seconds
        at, _ = self._stands_at()
        return self._read_at if at is None or self._must_read else min(self._read_at, at)

    def on_read(self, record: ShardRecord | None, version: str | None, finished: float) -> None:
        """A read was answered, at that time."""
        self._must_read = False
        self._read_at = finished + self._times.renew_seconds
        if self._role is Role.LEADER:
            self._on_read_by_leader(record, version, finished)
            return
        if version != self._version or not self._was_read:
            self._was_read = True
            self._seen_since = finished
            if self._attempt is not None and self._attempt.version != version and record != self._attempt.record:
                self._attempt = None
            self._record, self._version = record, version
            self._role = Role.FOLLOWER if record is not None else Role.UNKNOWN
        if record is not None:
            self._is_joining &= self._name in record.in_sync
            self._highest = max(self._highest, (record.epoch, record.renewal))

    def on_written(self, step: Step, version: str, started: float) -> None:
        """A write succeeded that was begun at that time."""
        assert step.record is not None
        self._record, self._version = step.record, version
        if self._role is not Role.LEADER:
            self._role, self._attempt = Role.LEADER, None
        self._renewed_from = started
        self._is_lost = False
        is_change = step.purpose is Purpose.CHANGE_IN_SYNC and self._wanted is not None
        if is_change and _has(step.record, self._wanted or frozenset(), self._wanted_stores):
            self._wanted = None
        self._pending = self._wanted or frozenset()
        if step.record.hand_over_to != self._refused_wish:
            self._refused_wish = ""
        if step.purpose is Purpose.HAND_OVER:
            self._resigned = True

    def on_conflict(self, step: Step, finished: float) -> None:
        """A write was refused: another version is stored."""
        if self._role is not Role.LEADER:
            self._attempt = None
            self._jitter = self._draw()
        if step.purpose is Purpose.CHANGE_IN_SYNC:
            self.give_up_change()
        self._refused_wish = ""  # an operator may have said it anew
        self._must_read, self._read_at = True, finished

    def on_unknown(self, step: Step, finished: float) -> None:
        """A call was not answered; a write may take effect later."""
        if step.purpose is Purpose.CHANGE_IN_SYNC:
            self.give_up_change()
        self._must_read, self._read_at = True, finished + self._times.renew_seconds / 2

    # --- the leader

    def _leader_step(self, now: float) -> Step | None:
        record = self._record
        assert record is not None
        has_more = self._is_lost or self._successor is not None or self._wanted is not None
        if not has_more and now < self._renewed_from + self._times.renew_seconds:
            return None
        following = replace(record, renewal=record.renewal + 1)
        if record.hand_over_to == self._refused_wish:
            following = replace(following, hand_over_to="")
        if self._is_lost:
            if self._has_promises(now):
                return Step(Purpose.RESTORE, following, self._version)
            self._must_read = True
            return None
        if self._successor is not None:
            # A change of the set that was under way may have taken the successor out: then any member may lead at once.
            successor = self._successor if self._successor in record.in_sync else ""
            given_up = replace(following, leader="", hand_over_to=successor)
            return Step(Purpose.HAND_OVER, given_up, self._version)
        if self._wanted is not None:
            stores = {**record.store_ids, **self._wanted_stores}
            return Step(Purpose.CHANGE_IN_SYNC, _with_set(following, self._wanted, stores), self._version)
        return Step(Purpose.RENEW, following, self._version)

    def _on_read_by_leader(self, record: ShardRecord | None, version: str | None, finished: float) -> None:
        mine = self._record
        assert mine is not None
        self._version = version
        if record is None or (record.epoch, record.renewal) < (mine.epoch, mine.renewal):
            self._is_lost = True
            # An operator chose another, or this one anew: only who surely leads still writes its record over that.
            self._resigned |= record is not None and record.is_forced() and not self._has_promises(finished)
        elif record.epoch == mine.epoch and record.leader == self._name:
            self._record, self._is_lost = record, False
        else:
            self._resigned = True

    def _has_promises(self, now: float) -> bool:
        assert self._record is not None
        others = (self._record.in_sync | self._pending) - {self._name}
        return all(now < self._promises.get(other, -math.inf) + self._times.lease_seconds for other in others)

    # --- the follower

    def _stands_at(self) -> tuple[float | None, str]:
        """From when on this replica may take over, or make the record; None and why it must not."""
        record, patience = self._record, self._times.lease_seconds + self._times.margin_seconds
        if record is None:
            if not self._was_read:
                return None, "the coordinator has not answered yet"
            if self._known_epoch() > 0:
                return None, (
                    f"the coordinator has no record of this shard, which had epoch {self._known_epoch()}: its data was lost. "
                    "See what each replica has, then `reput lead --force`"
                )
            if not self._may_create:
                return (
                    None,
                    "the coordinator has no record of this shard yet: the replica that may create it has to start",
                )
            return self._seen_since + patience, ""
        if self._name not in record.in_sync:
            return None, f"{self._name} is not in sync: it may lack messages that were acknowledged"
        is_older = (record.epoch, record.renewal) < self._highest or record.epoch < self._last_epoch()
        if is_older and not record.is_forced():
            return None, (
                f"the coordinator's record has epoch {record.epoch} and is older than what was seen: its data went back in "
                "time. See what each replica has, then `reput lead --force`"
            )
        is_alone = record.in_sync == {self._name}
        has_lost = self._last_epoch() == 0 or (self._has_other_store(record) and not record.is_forced())
        if has_lost and not (is_alone and record.leader == self._name and record.renewal == 0):
            return None, f"the log of {self._name} began empty, the record says it was in sync: its files were lost"
        if self._attempt is not None or (record.leader == self._name and is_alone):
            return -math.inf, ""
        if not record.leader and record.hand_over_to in ("", self._name):
            return -math.inf, ""
        patience = max(patience, record.lease_millis / 1000 + self._times.margin_seconds)
        return max(self._seen_since, self._heard_at) + patience + self._jitter, ""

    def _has_other_store(self, record: ShardRecord) -> bool:
        """Whether the record speaks of a store that this replica does not have any more."""
        known = record.store_ids.get(self._name, "")
        return known != self._store_id if known and self._store_id else self._is_joining

    def _candidacy(self) -> Step:
        record = self._record
        own_store = {self._name: self._store_id} if self._store_id else {}
        lease_millis = round(self._times.lease_seconds * 1000)
        if record is None:
            first = ShardRecord(
                1, self._name, frozenset({self._name}), 0, lease_millis, "", {self._name: self._addresses}, own_store
            )
            return Step(Purpose.CREATE, first, None)
        next_record = replace(
            record,
            epoch=max(record.epoch, self._known_epoch()) + 1,
            leader=self._name,
            renewal=0,
            lease_millis=lease_millis,
            hand_over_to="",
            addresses={**record.addresses, self._name: self._addresses},
            store_ids={**record.store_ids, **own_store},
        )
        return Step(Purpose.TAKE_OVER, next_record, self._version)

    def _known_epoch(self) -> int:
        return max(self._highest[0], self._last_epoch())

    def _draw(self) -> float:
        return self._random() * self._times.jitter_seconds


def _has(record: ShardRecord, names: frozenset[str], store_ids: Mapping[str, str]) -> bool:
    return record.in_sync == names and store_ids.items() <= record.store_ids.items()


def _with_set(record: ShardRecord, names: frozenset[str], store_ids: Mapping[str, str]) -> ShardRecord:
    return replace(
        record, in_sync=names, store_ids={name: store_ids[name] for name in sorted(names & store_ids.keys())}
    )
