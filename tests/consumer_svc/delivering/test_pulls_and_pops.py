"""Members of one group that pull beside members that pop: positions and leases meet in one queue."""

import random
from collections.abc import Callable

import pytest

from consumer_svc.delivering.acks import OK
from consumer_svc.delivering.pulls import TOLD_MILLIS_MAX, ToldResets
from consumer_svc.live_consumers import RENEWED_SECONDS, LiveConsumers
from consumer_svc.state.group_states import RequestMode
from consumer_svc.state.queue_state import QueueRef
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from tests.consumer_svc.asking import pop_of, pull_of
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog, contents
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC, GROUP = "t", "g"
REF = QueueRef(GROUP, TOPIC, 0)
ASK = pop_of(GROUP, TOPIC, max_messages=4, invisible_millis=10_000)
PULLER = pb.Client(
    client_id="puller",
    consumer_group=GROUP,
    kind="push consumer",
    subscriptions=[gateway_pb.TopicSubscription(topic=TOPIC), gateway_pb.TopicSubscription(topic=f"%RETRY%{GROUP}")],
)
LITE_PULLER = pb.Client(
    client_id="lite",
    consumer_group=GROUP,
    kind="pull consumer",
    subscriptions=[gateway_pb.TopicSubscription(topic=TOPIC)],
)
POPPER = pb.Client(client_id="popper", consumer_group=GROUP, kind="push consumer")


def begun(begin: Callable[..., LogLife], clock: ManualClock) -> LogLife:
    """A life whose group has a member of each kind."""
    life = begin(clients=LiveConsumers(lambda: clock.now / 1000))
    life.life.clients.keep(PULLER)
    life.life.clients.keep(POPPER)
    return life


def send(log: MemoryLog, count: int) -> None:
    for _ in range(count):
        log.send(TOPIC, f"m{log.queues[TOPIC, 0].end if (TOPIC, 0) in log.queues else 0}".encode())


def places(delivered: list[pb.Delivery]) -> list[int]:
    return [one.message.queue_offset for one in delivered]


def test_a_position_of_a_member_took_acknowledged_messages_back(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """A member that pulls stored how far it was, behind what others had acknowledged: they got all of it again."""
    life = begun(begin, clock)
    send(log, 8)
    first, second = life.pop(ASK), life.pop(ASK)
    life.acks.ack(GROUP, [one.receipt_handle for one in first])
    life.pulls.commit(GROUP, [(TOPIC, 0, 2)])
    assert life.pop(ASK) == []
    life.pulls.commit(GROUP, [(TOPIC, 0, 6)])  # it has read two of those in flight
    assert life.pop(ASK) == []
    assert life.pulls.offsets(GROUP, TOPIC) == [(REF, 6)]
    assert set(life.acks.ack(GROUP, [one.receipt_handle for one in second])) == {OK}
    assert life.pulls.offsets(GROUP, TOPIC) == [(REF, 8)]


def test_a_member_that_pulls_still_goes_back_before_what_others_began_with(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    life = begun(begin, clock)
    send(log, 8)
    life.pulls.commit(GROUP, [(TOPIC, 0, 4)])
    life.pulls.commit(GROUP, [(TOPIC, 0, 3)])
    assert life.pulls.offsets(GROUP, TOPIC) == [(REF, 3)]
    assert places(life.pop(ASK)) == [3, 4, 5, 6]
    life.pulls.commit(GROUP, [(TOPIC, 0, 1)])
    assert places(life.pop(ASK)) == [1, 2, 3, 4]


def test_a_position_is_set_back_by_a_tool_while_no_member_pulls(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    life = begun(begin, clock)
    life.life.clients.end(GROUP, "puller")
    send(log, 4)
    life.acks.ack(GROUP, [one.receipt_handle for one in life.pop(ASK)])
    life.pulls.commit(GROUP, [(TOPIC, 0, 1)])
    assert places(life.pop(ASK)) == [1, 2, 3]


def test_what_a_killed_member_had_in_flight_never_came_to_those_that_pull(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """It went to a retry topic that only members that pop read, although the group had none any more."""
    life = begun(begin, clock)
    send(log, 2)
    life.pop(pop_of(GROUP, TOPIC, max_messages=1, invisible_millis=10_000))
    clock.now += 10_000
    life.expire()
    assert [each.body for each in log.messages(f"%RETRY%{GROUP}_{TOPIC}")] == [b"m0"], "its member lives"
    life.pop(pop_of(GROUP, TOPIC, max_messages=2, invisible_millis=60_000))
    clock.now += int(RENEWED_SECONDS * 1000) + 60_000
    life.life.clients.keep(PULLER)
    life.expire()
    assert sorted(each.body for each in log.messages(f"%RETRY%{GROUP}")) == [b"m0", b"m1"]
    (found,) = [each for each in log.messages(f"%RETRY%{GROUP}") if each.body == b"m1"]
    assert (found.properties["RETRY_TOPIC"], found.reconsume_times) == (TOPIC, 1)


def test_what_a_member_in_pop_mode_had_in_flight_comes_to_those_that_pop(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """A push consumer of RocketMQ in POP mode reads `%RETRY%group` too, and was taken for one that pulls."""
    life = begin(clients=LiveConsumers(lambda: clock.now / 1000))
    life.groups.set_mode(GROUP, RequestMode(TOPIC, is_pop=True), "")
    send(log, 1)
    for _ in range(2):
        life.life.clients.keep(PULLER)
        life.pop(ASK)
        clock.now += int(RENEWED_SECONDS * 1000) + 1_000
    life.life.clients.keep(PULLER)
    life.expire()
    assert [message.body for message in log.messages(f"%RETRY%{GROUP}_{TOPIC}")] == [b"m0"]


@pytest.mark.parametrize("popper", ["", "proxied"])
def test_what_a_client_without_heartbeats_had_in_flight_went_where_only_another_kind_reads(
    popper: str, begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """RocketMQ's proxies pop and send no heartbeat: their group seemed to have nobody that pops."""
    life = begin(clients=LiveConsumers(lambda: clock.now / 1000))
    clock.now += int(RENEWED_SECONDS * 1000)
    send(log, 2)
    ask = pop_of(GROUP, TOPIC, max_messages=1, invisible_millis=10_000, client_id=popper)
    for member in (LITE_PULLER, PULLER):  # it keeps its place beside others
        life.life.clients.keep(member)
    life.pop(ask)
    clock.now += 9_000
    life.pop(ask)
    life.life.clients.keep(PULLER)
    clock.now += 1_000
    life.expire()
    assert [each.body for each in log.messages(f"%RETRY%{GROUP}_{TOPIC}")] == [b"m0"]
    assert [each.body for each in log.messages(f"%RETRY%{GROUP}")] == []
    clock.now += int(RENEWED_SECONDS * 1000)
    life.life.clients.keep(PULLER)
    life.expire()
    assert [each.body for each in log.messages(f"%RETRY%{GROUP}")] == [b"m1"], "it is gone"


def test_what_a_killed_member_had_in_flight_went_to_a_topic_that_a_lite_pull_consumer_never_reads(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """DefaultLitePullConsumer subscribes to no retry topic: the message was never delivered, to no member."""
    life = begin(clients=LiveConsumers(lambda: clock.now / 1000))
    for member in (LITE_PULLER, POPPER):
        life.life.clients.keep(member)
    send(log, 1)
    life.pop(ASK)
    clock.now += int(RENEWED_SECONDS * 1000) + 10_000
    life.life.clients.keep(LITE_PULLER)
    life.expire()
    (again,) = life.pop(ASK)
    assert (again.message.body, again.message.topic) == (b"m0", f"%RETRY%{GROUP}_{TOPIC}")


@pytest.mark.parametrize("seed", range(25))
def test_random_pulls_and_pops_lose_nothing_and_bring_nothing_again(
    seed: int, begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    dice = random.Random(seed)
    life = begun(begin, clock)
    held: list[pb.Delivery] = []
    done: set[int] = set()  # acknowledged, or behind a stored position
    pulled_to = 0
    seen: set[int] = set()

    def end() -> int:
        queue = log.queues.get((TOPIC, 0))
        return queue.end if queue is not None else 0

    def pop() -> None:
        delivered = life.pop(ASK)
        assert done.isdisjoint(places(delivered)), "what was done comes again"
        seen.update(places(delivered))
        held.extend(delivered)

    def ack() -> None:
        chosen = dice.sample(held, dice.randint(0, len(held)))
        if chosen:
            assert set(life.acks.ack(GROUP, [one.receipt_handle for one in chosen])) == {OK}
            done.update(places(chosen))
            held[:] = [one for one in held if one not in chosen]

    def give_back() -> None:
        if held and (one := held.pop(dice.randrange(len(held)))).message.queue_offset not in done:
            life.acks.give_back(GROUP, one.receipt_handle)

    def pull() -> None:
        nonlocal pulled_to
        if pulled_to < end():
            pulled = life.pulls.pull(pull_of(TOPIC, 0, pulled_to, max_messages=dice.randint(1, 6)))
            seen.update(range(pulled_to, pulled.answer.next_offset))
            pulled_to = pulled.answer.next_offset

    def commit() -> None:
        life.pulls.commit(GROUP, [(TOPIC, 0, pulled_to)])
        done.update(range(pulled_to))

    def begin_pulling() -> None:
        nonlocal pulled_to
        pulled_to = dict(life.pulls.offsets(GROUP, TOPIC)).get(REF, 0)

    def restart() -> None:
        nonlocal life
        life.writer.newest().result(WAIT_SECONDS_MAX)
        before = contents(life.states)
        life.close()
        life = begun(begin, clock)
        assert contents(life.states) == before

    def full() -> None:
        life.life.write_full().result(WAIT_SECONDS_MAX)

    steps = [lambda: send(log, dice.randint(1, 4)), pop, pop, ack, give_back, pull, pull, commit, begin_pulling]
    send(log, 4)
    for _ in range(120):
        dice.choice([*steps * 3, restart, full])()
        expected = end() - len(done)
        assert life.groups.lag_counts().get((GROUP, TOPIC), expected) == expected
    while delivered := life.pop(ASK):
        assert done.isdisjoint(places(delivered))
        seen.update(places(delivered))
        held.extend(delivered)
    if held:
        assert set(life.acks.ack(GROUP, [one.receipt_handle for one in held])) == {OK}
    assert seen == set(range(end()))
    assert life.groups.lag_counts()[GROUP, TOPIC] == 0


def test_a_reset_waits_for_the_members_that_pull_and_for_no_other(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    life = begun(begin, clock)
    send(log, 6)

    def pull(at: int, **fields: bool) -> int:
        request = pull_of(TOPIC, 0, at, consumer_group=GROUP, max_messages=2, **fields)
        return life.pulls.pull(request).answer.next_offset

    def commit(at: int) -> int:
        life.pulls.commit(GROUP, [(TOPIC, 0, at)])
        return dict(life.pulls.offsets(GROUP, TOPIC))[REF]

    assert commit(4) == 4
    life.pulls.reset(GROUP, TOPIC, {0: 1}, dry_run=False)
    assert commit(5) == 5, "no member pulls that would have to follow"
    assert pull(5, follows_resets=True) == 6
    life.pulls.reset(GROUP, TOPIC, {0: 1}, dry_run=False)
    assert pull(5) == 6, "it does not follow"
    assert (pull(5, follows_resets=True), commit(5), pull(6, follows_resets=True)) == (1, 1, 1)
    assert (pull(1, follows_resets=True), commit(3)) == (3, 3)
    life.pulls.reset(GROUP, TOPIC, {0: 5}, dry_run=False)
    assert places(life.pop(pop_of(GROUP, TOPIC, max_messages=1, invisible_millis=1))) == [5]
    assert pull(3, follows_resets=True) == 5
    life.life.clients.end(GROUP, "puller")
    assert commit(2) == 2, "no member is left that would follow"
    clock.now += TOLD_MILLIS_MAX
    assert pull(3, follows_resets=True) == 5, "two messages from 3 on"


class Following:
    """A queue of a group that members of several names pull, which follow resets."""

    def __init__(self, begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock) -> None:
        self.life = begun(begin, clock)
        send(log, 8)

    def pull(self, at: int, member: str, caller: str = "", queue_id: int = 0) -> int:
        """Where the member is to go on; one message is ahead of where it is."""
        request = pull_of(
            TOPIC, queue_id, at, consumer_group=GROUP, max_messages=1, follows_resets=True, member=member, caller=caller
        )
        return self.life.pulls.pull(request).answer.next_offset

    def commit(self, at: int, member: str = "") -> int:
        """The group's position after the member, or a tool, has stored one."""
        self.life.pulls.commit(GROUP, [(TOPIC, 0, at)], member=member)
        return dict(self.life.pulls.offsets(GROUP, TOPIC))[REF]

    def reset(self, at: int) -> None:
        """As an operator does."""
        self.life.pulls.reset(GROUP, TOPIC, {0: at}, dry_run=False)


def test_a_position_that_a_tool_or_another_member_stored_was_dropped_for_as_long_as_a_reset_waited(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """It was answered as stored."""
    queue = Following(begin, log, clock)
    assert queue.commit(2, "puller") == 2
    assert queue.pull(4, "puller") == 5
    queue.reset(1)
    assert queue.commit(5, "puller") == 1, "it does not know of the reset yet"
    assert queue.commit(3) == 3
    assert queue.commit(5, "puller") == 3
    assert queue.commit(6, "other") == 6
    assert queue.pull(5, "puller") == 6, "it follows to where the group is now"
    assert (queue.pull(6, "puller"), queue.commit(7, "puller")) == (7, 7)


def test_a_reset_is_followed_by_the_member_that_has_the_queue_now(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    queue = Following(begin, log, clock)
    assert (queue.commit(4, "puller"), queue.pull(4, "puller")) == (4, 5)
    queue.reset(1)
    assert queue.pull(4, "other") == 1
    assert queue.commit(5, "other") == 1
    assert (queue.pull(1, "other"), queue.commit(2, "other")) == (2, 2)


def test_pulls_of_invented_groups_and_queues_pushed_out_resets_that_wait(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """A stranger needed 65,536 pulls to have members undo the resets of all groups with their next positions."""
    queue = Following(begin, log, clock)
    resets = queue.life.pulls._resets = ToldResets(clock, followed_count_max=64)
    queue.commit(4, "puller")
    assert queue.pull(4, "puller", "identity:good") == 5
    queue.reset(1)
    for number in range(200):
        queue.life.pulls.pull(
            pull_of(TOPIC, 0, 0, consumer_group=f"invented-{number}", follows_resets=True, member="m" * 1_000)
        )
    assert len(resets._followed) == 1, "of groups that are not there nothing is kept"
    for number in range(1, 200):
        queue.pull(0, "m" * 1_000, "identity:stranger", queue_id=number)
    assert len(resets._followed) < 64
    assert max(map(len, resets._followed.values())) <= 256
    assert queue.commit(5, "puller") == 1
    assert queue.pull(5, "puller", "identity:good") == 1


def test_a_position_that_a_tool_set_in_a_popped_topic_had_no_effect(
    begin: Callable[..., LogLife], log: MemoryLog, clock: ManualClock
) -> None:
    """A push consumer in POP mode subscribes to `%RETRY%group`, and was taken for one that pulls the topic."""
    life = begun(begin, clock)
    life.groups.set_mode(GROUP, RequestMode(TOPIC, is_pop=True), "")
    send(log, 5)
    life.acks.ack(GROUP, [one.receipt_handle for one in life.pop(ASK)])
    life.pulls.commit(GROUP, [(TOPIC, 0, 1)])
    assert life.pulls.offsets(GROUP, TOPIC) == [(REF, 1)]
    assert places(life.pop(ASK)) == [1, 2, 3, 4]
