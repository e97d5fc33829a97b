"""Pops of topics of the type PRIORITY: the highest first, in the topic and in its retries."""

from collections import Counter
from collections.abc import Callable

import pytest

from consumer_svc.delivering.pop import SCANNED_UNIT_COUNT_MAX
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.wire import settings_of, settings_to_proto
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import MessageFilter
from reput.message.v1.message_pb2 import MESSAGE_TYPE_NORMAL, MESSAGE_TYPE_PRIORITY
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError
from tests.consumer_svc.delivering.test_pop import ack_all, ask, bodies
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog


def send(log: MemoryLog, body: str, priority: int) -> None:
    """A message where the commit log puts it."""
    log.send("t", body.encode(), priority, priority=priority)


@pytest.fixture
def by_priority(log: MemoryLog) -> None:
    """The topic `t` has priorities 0 to 3."""
    log.configure("t", queue_count=4, message_type=MESSAGE_TYPE_PRIORITY)


@pytest.mark.usefixtures("by_priority")
def test_the_highest_priority_comes_first_and_lower_ones_starve_while_there_is_more(
    log: MemoryLog, life: LogLife
) -> None:
    for number in range(12):
        send(log, f"{number % 4}", number % 4)
    assert bodies(life, ask(max_messages=4)) == ["3", "3", "3", "2"]  # filled from the next
    send(log, "3", 3)
    assert [bodies(life, ask(max_messages=1)) for _ in range(4)] == [["3"], ["2"], ["2"], ["1"]]
    assert bodies(life) == ["1", "1", "0", "0", "0"]


@pytest.mark.usefixtures("by_priority")
def test_messages_of_one_priority_keep_the_order_in_which_they_were_sent(log: MemoryLog, life: LogLife) -> None:
    for number in range(20):
        send(log, f"m{number}", 2)
    assert [one for _ in range(20) for one in bodies(life, ask(max_messages=1))] == [
        f"m{number}" for number in range(20)
    ]


@pytest.mark.usefixtures("by_priority")
def test_a_retry_of_high_priority_does_not_wait_behind_lower_ones(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    """RocketMQ 5.5.0 puts all retries behind all others."""
    for priority in (3, 1):
        send(log, f"first of {priority}", priority)
    assert bodies(life) == ["first of 3", "first of 1"]
    clock.now += 10_000
    life.expire()
    for priority in (0, 1, 2, 3):
        send(log, f"second of {priority}", priority)
    delivered = life.pop(ask())
    assert [(one.message.body.decode(), one.delivery_attempt) for one in delivered] == [
        *[("first of 3", 2), ("second of 3", 1), ("second of 2", 1), ("first of 1", 2), ("second of 1", 1)],
        ("second of 0", 1),
    ]
    clock.now += 10_000
    life.expire()
    assert bodies(life, ask(max_messages=2)) == ["first of 3", "second of 3"]  # again, and still by priority


@pytest.mark.usefixtures("by_priority")
def test_a_retry_has_the_queue_number_of_its_message_in_the_retry_topic(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    send(log, "three", 3)
    log.send("t", b"of a group", 2, message_group="g", priority=2)
    bodies(life)
    clock.now += 10_000
    life.expire()
    retries = {queue: len(log.queues[queue].units) for queue in log.queues if queue[0] == "%RETRY%g_t"}
    assert retries == {("%RETRY%g_t", 3): 1, ("%RETRY%g_t", 0): 1}


def test_topics_of_other_types_are_not_delivered_by_queue_number(log: MemoryLog, life: LogLife) -> None:
    log.configure("t", queue_count=4, message_type=MESSAGE_TYPE_NORMAL)
    for number in range(32):
        send(log, f"{number % 4}", number % 4)
    assert {one for _ in range(8) for one in bodies(life, ask(max_messages=1))} == {"0", "1", "2", "3"}


@pytest.mark.usefixtures("by_priority")
def test_an_ordered_group_gets_no_priorities(log: MemoryLog, life: LogLife) -> None:
    for number in range(4):
        send(log, f"{number}", number)
    assert [ack_all(life, ask(max_messages=1, in_order=True)) for _ in range(4)] == [["0"], ["1"], ["2"], ["3"]]


def test_a_topic_that_gets_the_type_later_is_delivered_by_priority_from_then_on(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    log.configure("t", queue_count=4)
    for number in range(16):
        send(log, f"{number % 4}", number % 4)
    bodies(life, ask(max_messages=1))
    log.configure("t", queue_count=4, message_type=MESSAGE_TYPE_PRIORITY)
    got = [one for _ in range(15) for one in bodies(life, ask(max_messages=1))]
    assert got == sorted(got, reverse=True)


@pytest.mark.usefixtures("by_priority")
@pytest.mark.parametrize("factor", [0, 30, 50, 99, 100])
def test_the_factor_of_a_group_says_how_many_of_a_hundred_pops_are_by_priority(
    log: MemoryLog, begin: Callable[..., LogLife], factor: int
) -> None:
    """RocketMQ's attribute `priority.factor`; it draws, here it is even."""
    begin().groups.update(GroupSettings("g", priority_factor=factor))
    life = begin()  # which has it from the log
    for number in range(1_200):
        send(log, f"{number % 4}", number % 4)
    got = Counter(one for _ in range(300) for one in ack_all(life, ask(max_messages=1)))
    # Those that are not by priority begin with each of the four queues equally often.
    assert got["3"] == pytest.approx(300 * (factor + (100 - factor) / 4) / 100, abs=5)
    assert got.total() == 300
    if not factor:
        assert set(got.values()) == {75}


@pytest.mark.parametrize(("factor", "queue_count"), [(99, 4), (95, 10), (90, 20)])
def test_low_priorities_starved_although_the_factor_left_some_pops_to_them(
    log: MemoryLog, begin: Callable[..., LogLife], factor: int, queue_count: int
) -> None:
    """One counter said which pops are not by priority, and with which queue they begin: with none of the low ones."""
    log.configure("t", queue_count=queue_count, message_type=MESSAGE_TYPE_PRIORITY)
    begin().groups.update(GroupSettings("g", priority_factor=factor))
    life = begin()
    pop_count = queue_count * 100 // (100 - factor)  # the others begin with each queue once
    for number in range(pop_count + queue_count):
        priority = min(number, queue_count - 1)
        send(log, f"{priority}", priority)
    got = [one for _ in range(pop_count) for one in ack_all(life, ask(max_messages=1))]
    assert {f"{number}" for number in range(queue_count - 1)} <= set(got)


@pytest.mark.usefixtures("by_priority")
def test_a_damaged_record_of_high_priority_kept_all_lower_ones_back(log: MemoryLog, life: LogLife) -> None:
    bad = log.send("t", b"bad", 3, priority=3)
    log.damaged.add(bad.commit_log_offset)
    for priority in (0, 1, 2):
        send(log, f"{priority}", priority)
    assert ack_all(life, ask(max_messages=32)) == ["2", "1", "0"]
    with pytest.raises(StoreError, match="damaged"):
        bodies(life)


@pytest.mark.usefixtures("by_priority")
def test_lower_priorities_wait_while_a_higher_one_cannot_be_read_now(log: MemoryLog, life: LogLife) -> None:
    high = log.send("t", b"high", 3, priority=3)
    log.unreadable.add(high.commit_log_offset)
    send(log, "low", 0)
    with pytest.raises(ServiceUnavailableError):
        bodies(life)
    log.unreadable.clear()
    assert bodies(life) == ["high", "low"]


@pytest.mark.usefixtures("by_priority")
def test_lower_priorities_came_before_higher_ones_behind_a_thousand_that_a_filter_leaves_out(
    log: MemoryLog, life: LogLife
) -> None:
    """A pop looks at so many units of a queue at most; it went on with the next queue then."""
    for _ in range(SCANNED_UNIT_COUNT_MAX):
        log.send("t", b"other", 3, tags="B")
    log.send("t", b"high", 3, tags="A")
    log.send("t", b"low", 0, tags="A")
    wanted = ask(filter=MessageFilter(tags="A"))
    assert bodies(life, wanted) == []
    assert bodies(life, wanted) == ["high", "low"]


@pytest.mark.usefixtures("by_priority")
def test_lower_priorities_came_while_the_queue_of_a_higher_one_was_being_built(
    log: MemoryLog, begin: Callable[..., LogLife]
) -> None:
    send(log, "high", 3)
    life = begin()  # which has the units of what comes from now on
    send(log, "low", 0)
    log.is_building = True
    with pytest.raises(ServiceUnavailableError, match="is being built"):
        bodies(life)
    log.is_building = False
    assert bodies(life) == ["high", "low"]


@pytest.mark.usefixtures("by_priority")
def test_retries_of_both_names_of_a_retry_topic_come_by_their_priority(log: MemoryLog, life: LogLife) -> None:
    """A broker with `enableRetryTopicV2` wrote the second one."""
    for priority in (1, 3):
        log.send("%RETRY%g+t", f"v2 of {priority}".encode(), priority, priority=priority)
        log.send("%RETRY%g_t", f"v1 of {priority}".encode(), priority, priority=priority)
    send(log, "new 2", 2)
    got = bodies(life)
    assert [body.rpartition(" ")[2] for body in got] == ["3", "3", "2", "1", "1"]
    assert sorted(got) == ["new 2", "v1 of 1", "v1 of 3", "v2 of 1", "v2 of 3"]


@pytest.mark.usefixtures("by_priority")
def test_retries_of_priorities_that_the_topic_has_no_more_come_first(
    log: MemoryLog, clock: ManualClock, life: LogLife
) -> None:
    send(log, "of 3", 3)
    assert bodies(life) == ["of 3"]
    log.configure("t", queue_count=2, message_type=MESSAGE_TYPE_PRIORITY)
    clock.now += 10_000
    life.expire()
    send(log, "of 1", 1)
    assert bodies(life) == ["of 3", "of 1"]


@pytest.mark.parametrize("factor", [-1, 101])
def test_a_factor_outside_of_0_to_100_is_refused(factor: int) -> None:
    with pytest.raises(InvalidArgumentError, match="priority_factor"):
        settings_of(pb.GroupSettings(consumer_group="g", priority_factor=factor))


@pytest.mark.parametrize("factor", [0, 100])
def test_a_factor_of_0_is_told_from_none_that_was_said(factor: int) -> None:
    said = settings_to_proto(GroupSettings("g", priority_factor=factor), 17)
    assert said.HasField("priority_factor") == (factor == 0)
    assert settings_of(said).priority_factor == factor
