"""The queues of ordered members, over the locks of the consumer service and a clock that stands."""

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_svc.queue_locks import QueueLocks as ServiceLocks
from consumer_svc.state.queue_state import QueueRef
from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.pulling.held_queues import LOCK_SECONDS, HeldQueues, QueueLocks
from reput_client.consuming.pulling.membership import StartFrom
from reput_client.consuming.pulling.pull_queue import PullQueue
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.consuming.subscription import Member
from reput_client.errors import NotFoundError, ServiceUnavailableError
from reput_client.querying.groups import QueuePosition
from tests.reput_client.consuming.pulling.test_pull_queue import message

FIRST, SECOND = MessageQueue("T", "near", 0), MessageQueue("T", "far", 0)
BOTH = frozenset({FIRST, SECOND})


class Shards:
    """Locks and positions of two shards.

    Attributes:
        now: the time.
        away: shards that do not answer.
        unmade: topics that there are not yet.
        known: the queues of the topics.
        absent: topics that were not there at an earlier look.
        ends: where messages of a queue end.
    """

    def __init__(self) -> None:
        self.now = 1_000.0
        self.away: set[str] = set()
        self.unmade: set[str] = set()
        self.known: Sequence[MessageQueue] = ()
        self.absent: set[str] = set()
        self.ends: dict[MessageQueue, int] = {}
        self.positions: dict[MessageQueue, int] = {}
        self.locks: dict[str, ServiceLocks] = {}
        self.restart("near")
        self.restart("far")
        self.now += 100.0

    def restart(self, broker_name: str) -> None:
        """Its consumer service knows no lock any more."""
        self.locks[broker_name] = ServiceLocks(lambda: self.now)

    def check(self, broker_name: str) -> None:
        if broker_name in self.away:
            raise ServiceUnavailableError(f"{broker_name} is away")

    # -- as QueryClient

    def lock_queues(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], *, unlock: bool = False, renew: bool = False
    ) -> tuple[MessageQueue, ...]:
        held: list[MessageQueue] = []
        for queue in queues:
            self.check(queue.broker_name)
            locks, refs = self.locks[queue.broker_name], [QueueRef(group, queue.topic, queue.queue_id)]
            if unlock:
                locks.unlock(client_id, refs)
            elif locks.lock(client_id, refs, renew=renew, was_consumed=lambda _, queue=queue: queue in self.positions):
                held.append(queue)
        return tuple(held)

    def commit_offsets(self, group: str, positions: Sequence[QueuePosition], *, begins: bool = False) -> None:
        for each in positions:
            self.check(each.broker_name)
            if each.topic in self.unmade:
                raise NotFoundError("there is no such topic")
        for each in positions:
            queue = MessageQueue(each.topic, each.broker_name, each.queue_id)
            if begins and queue in self.positions:
                continue
            assert each.consumer_offset >= self.positions.get(queue, 0), f"{queue} went back"
            self.positions[queue] = each.consumer_offset

    # -- as Membership and Fetcher

    is_broadcast = False

    def committed(self) -> dict[MessageQueue, int]:
        return dict(self.positions)

    def start_offset(self, queue: MessageQueue, start: object) -> int:
        self.check(queue.broker_name)
        return 0 if start is StartFrom.FIRST or queue.topic in self.unmade else self.ends.get(queue, 0)

    def begin(self, queue: PullQueue) -> None:
        fetch(queue)


def fetch(queue: PullQueue) -> None:
    """Ten messages more, when there are none."""
    if queue.count == 0 and queue.may_fetch:
        queue.add(
            [message(offset, 1) for offset in range(queue.next_offset, queue.next_offset + 10)], queue.next_offset + 10
        )


def make(
    shards: Shards, client_id: str, *, ordered: bool = True, start: StartFrom = StartFrom.FIRST, commits: float = 5.0
) -> HeldQueues:
    """A member."""
    fake: Any = shards
    member = Member(client_id, "g", {"T": "*"}, 0)

    def clock() -> float:
        return shards.now

    return HeldQueues(
        threading.Condition(threading.RLock()),
        fake,
        "g",
        fake,
        fake,
        QueueLocks(fake, member, clock) if ordered else None,
        start,
        PullConsumerSettings(commit_seconds=commits),
        clock,
    )


def poll(held: HeldQueues, shards: Shards, queue: MessageQueue, count: int = 3) -> list[int]:
    """As PullConsumer.poll: what was polled before is processed."""
    for each in held.by_name.values():
        each.finish()
        fetch(each)
    each = held.by_name.get(queue)
    if each is None or not each.may_give(shards.now):
        return []
    return [given.queue_offset for given in each.take(count)]


@pytest.fixture
def shards() -> Shards:
    return Shards()


def test_a_queue_changes_hands_when_what_was_polled_is_processed(shards: Shards) -> None:
    one, other = make(shards, "one"), make(shards, "other")
    one.rebalance(BOTH)
    assert poll(one, shards, FIRST) == [0, 1, 2]
    other.rebalance(frozenset({FIRST}))
    assert poll(other, shards, FIRST) == []
    one.rebalance(frozenset({SECOND}))  # 0 to 2 are being processed
    other.rebalance(frozenset({FIRST}))
    assert poll(other, shards, FIRST) == []
    assert poll(one, shards, FIRST) == []
    one.rebalance(frozenset({SECOND}))
    assert list(one.by_name) == [SECOND]
    assert shards.positions[FIRST] == 3
    other.rebalance(frozenset({FIRST}))
    assert poll(other, shards, FIRST) == [3, 4, 5]


def test_a_queue_that_comes_back_before_it_has_left_goes_on(shards: Shards) -> None:
    one = make(shards, "one")
    one.rebalance(BOTH)
    poll(one, shards, FIRST)
    one.rebalance(frozenset({SECOND}))
    one.rebalance(BOTH)
    assert poll(one, shards, FIRST) == [3, 4, 5]


def test_a_lock_that_was_lost_gives_nothing_further_and_commits_nothing(shards: Shards) -> None:
    one, other = make(shards, "one"), make(shards, "other")
    one.rebalance(frozenset({FIRST}))
    poll(one, shards, FIRST)
    shards.now += LOCK_SECONDS  # it hung, and nobody knows
    assert poll(one, shards, FIRST) == []
    one.commit()
    assert shards.positions.get(FIRST, 0) == 0
    shards.now += 31.0
    other.rebalance(frozenset({FIRST}))
    one.renew()
    assert not one.by_name
    assert poll(other, shards, FIRST) == [0, 1, 2]


def test_a_renewal_that_is_refused_ends_the_queue_at_once(shards: Shards) -> None:
    one = make(shards, "one")
    one.rebalance(frozenset({FIRST}))
    shards.lock_queues("g", "one", [FIRST], unlock=True)
    shards.lock_queues("g", "other", [FIRST])
    shards.now += 20.5
    one.renew()
    assert not one.by_name


def test_locks_are_renewed_every_twenty_seconds_also_over_a_restart(shards: Shards) -> None:
    one, other = make(shards, "one"), make(shards, "other")
    one.rebalance(frozenset({FIRST}))
    poll(one, shards, FIRST)
    poll(one, shards, FIRST)
    one.commit()
    for _ in range(10):
        shards.now += 20.5
        shards.restart("near")
        other.rebalance(frozenset({FIRST}))
        one.renew()
        assert poll(one, shards, FIRST)
        assert not other.by_name


def test_a_shard_that_is_away_does_not_end_the_locks_of_another(shards: Shards) -> None:
    one = make(shards, "one")
    one.rebalance(BOTH)
    shards.away = {"far"}
    for _ in range(3):
        shards.now += 20.5
        one.renew()
    assert list(one.by_name) == [FIRST]
    assert poll(one, shards, FIRST) == [0, 1, 2]


def test_a_topic_that_there_is_not_yet_keeps_no_position_of_another_back(shards: Shards) -> None:
    shards.unmade.add("later")
    later = MessageQueue("later", "near", 0)
    held = make(shards, "a", ordered=False)
    held.rebalance(frozenset({FIRST, later}))
    poll(held, shards, FIRST)
    for each in held.by_name.values():
        each.finish()

    held.commit()
    kept = dict(shards.positions)
    shards.unmade.clear()
    held.commit()

    assert kept == {FIRST: 3}
    assert shards.positions == {FIRST: 3, later: 0}


def test_members_that_do_not_keep_an_order_ask_for_no_lock(shards: Shards) -> None:
    one = make(shards, "one", ordered=False)
    shards.lock_queues("g", "other", [FIRST])
    one.rebalance(frozenset({FIRST}))
    one.renew()
    shards.now += 1_000.0
    assert poll(one, shards, FIRST) == [0, 1, 2]
    one.rebalance(frozenset())  # what was polled comes again to another
    assert (dict(one.by_name), shards.positions.get(FIRST, 0)) == ({}, 0)


@pytest.mark.parametrize("_", range(5))
def test_no_queue_is_polled_by_two_and_no_position_goes_back_whatever_happens(_: int) -> None:
    seed = random.randrange(1 << 32)
    random_ = random.Random(seed)
    shards = Shards()
    names = ("a", "b", "c")
    members = {name: make(shards, name) for name in names}
    polled = 0
    for step in range(2_000):
        shards.now += random_.expovariate(1.0)
        name = random_.choice(names)
        what = random_.random()
        try:
            if what < 0.02:
                members[name] = make(shards, name + str(step))  # it dies, and another one is started
            elif what < 0.03:
                shards.restart(random_.choice(["near", "far"]))
            elif what < 0.05:
                shards.away = set(random_.sample(["near", "far"], random_.randrange(3)))
            elif what < 0.4:
                members[name].renew()
                members[name].rebalance(frozenset(queue for queue in BOTH if random_.random() < 0.5))
            elif what < 0.5:
                members[name].commit()
            else:
                polled += len(poll(members[name], shards, random_.choice([FIRST, SECOND])))
        except ServiceUnavailableError:
            pass
        for queue in BOTH:
            holders = [
                name
                for name, held in members.items()
                if queue in held.by_name and shards.now < held.by_name[queue].locked_until
            ]
            assert len(holders) <= 1, f"seed {seed}, step {step}: {holders} have {queue}"
    assert polled


def begun_at(held: HeldQueues) -> dict[MessageQueue, int]:
    return {queue: each.done_offset for queue, each in held.by_name.items()}


def test_a_queue_that_came_after_its_group_began_was_begun_at_its_end(shards: Shards) -> None:
    shards.known, shards.ends = [FIRST], {FIRST: 7, SECOND: 4}
    make(shards, "before", ordered=False, start=StartFrom.LAST).rebalance(frozenset({FIRST}))
    shards.known = [FIRST, SECOND]

    later = make(shards, "later", ordered=False, start=StartFrom.LAST)
    later.rebalance(BOTH)

    assert begun_at(later) == {FIRST: 7, SECOND: 0}
    assert shards.positions == {FIRST: 7, SECOND: 0}


def test_a_queue_that_came_while_a_member_polled_was_begun_at_its_end(shards: Shards) -> None:
    shards.known, shards.ends = [FIRST], {FIRST: 7, SECOND: 4}
    held = make(shards, "one", ordered=False, start=StartFrom.LAST)
    held.rebalance(frozenset({FIRST}))
    shards.known = [FIRST, SECOND]
    held.rebalance(BOTH)
    assert begun_at(held) == {FIRST: 7, SECOND: 0}


def test_a_queue_of_another_member_was_begun_anew_when_it_changed_hands(shards: Shards) -> None:
    """A member begins a topic for the whole group: else a queue that nobody had yet would be taken for a new one."""
    shards.known, shards.ends = [FIRST, SECOND], {FIRST: 7, SECOND: 4}
    make(shards, "one", ordered=False, start=StartFrom.LAST).rebalance(frozenset({FIRST}))
    shards.ends = {FIRST: 9, SECOND: 9}

    other = make(shards, "other", ordered=False, start=StartFrom.LAST)
    other.rebalance(frozenset({SECOND}))

    assert begun_at(other) == {SECOND: 4}


@pytest.mark.parametrize("with_new_queue", [False, True])
def test_a_shard_that_was_away_when_the_group_began_was_read_from_its_first_message(
    shards: Shards, monkeypatch: pytest.MonkeyPatch, with_new_queue: bool
) -> None:
    shards.known, shards.ends = [FIRST, SECOND], {FIRST: 7, SECOND: 4}
    held = make(shards, "one", ordered=False, start=StartFrom.LAST)
    commit = shards.commit_offsets

    def near_is_away(group: str, positions: Sequence[QueuePosition], *, begins: bool = False) -> None:
        if any(each.broker_name == "near" for each in positions):
            raise ServiceUnavailableError("near is away")
        commit(group, positions, begins=begins)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "commit_offsets", near_is_away)
        with pytest.raises(ServiceUnavailableError):
            held.rebalance(BOTH)
    later = MessageQueue("T", "near", 1)
    shards.ends = {FIRST: 9, SECOND: 9, later: 2}
    share = BOTH | {later} if with_new_queue else BOTH
    shards.known = sorted(share)
    held.rebalance(share)

    begun = {FIRST: 7, SECOND: 4} | ({later: 0} if with_new_queue else {})
    assert begun_at(held) == shards.positions == begun


def test_a_member_that_commits_by_hand_began_anew_at_each_start(shards: Shards) -> None:
    shards.known, shards.ends = [FIRST], {FIRST: 7}
    make(shards, "one", ordered=False, start=StartFrom.LAST, commits=0.0).rebalance(frozenset({FIRST}))
    shards.ends = {FIRST: 9}

    again = make(shards, "one", ordered=False, start=StartFrom.LAST, commits=0.0)
    again.rebalance(frozenset({FIRST}))

    assert begun_at(again) == {FIRST: 7}


def test_a_topic_that_was_made_while_a_member_waited_for_it_was_begun_at_its_end(shards: Shards) -> None:
    shards.known, shards.ends, shards.absent = [FIRST], {FIRST: 7}, {"T"}
    held = make(shards, "one", ordered=False, start=StartFrom.LAST)
    held.rebalance(frozenset({FIRST}))
    assert begun_at(held) == {FIRST: 0}


def test_a_queue_that_a_member_of_a_broadcasting_group_had_before_was_begun_anew(shards: Shards) -> None:
    shards.is_broadcast = True
    shards.known, shards.ends = [FIRST], {FIRST: 7, SECOND: 4}
    held = make(shards, "one", ordered=False, start=StartFrom.LAST)
    held.rebalance(frozenset({FIRST}))
    held.rebalance(frozenset({SECOND}))
    shards.ends = {FIRST: 9}
    held.rebalance(BOTH)
    assert begun_at(held) == {FIRST: 7, SECOND: 0}
    assert shards.positions == {}
