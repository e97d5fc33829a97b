"""No arrival is missed, nobody keeps what nobody takes, and a stampede of polls is none."""

import itertools
from collections import deque

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.delivery.polls import Poll, QueueName
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import (
    FILTER_CHARACTERS_MAX,
    LOOKING_COUNT_MAX,
    RETRY_SECONDS,
    SILENT_SECONDS,
    SLOW_LOOK_SECONDS,
    TRUST_SECONDS,
    WATCH_SECONDS,
    WaitingRoom,
)
from reput.consumer.v1.consumer_service_pb2 import WatchArrivalsResponse
from services.serving.admission.shares import Shares, client_of_name
from store.errors import ResourceBusyError

BROKER = "broker-a"
NAME = QueueName(BROKER, "orders", "billing", "*")
POLL_SECONDS = 20.0
ALL = WatchArrivalsResponse(all=True)


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Shard:
    """A consumer service: messages, and pops whose answers come when the test says so."""

    def __init__(self):
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.room = WaitingRoom(self.timers, self.clock)
        self.messages = deque()
        self.news = deque()  # arrivals on their way
        self.under_way = []
        self.pop_count = 0
        self.is_down = self.is_silent = False
        self.delivered = []

    def store(self, message, arrivals=None):
        self.messages.append(message)
        self.news.append(arrivals or WatchArrivalsResponse(topics=("orders",)))

    def tell(self):
        while self.news:
            self.room.arrive(BROKER, self.news.popleft())

    def pop(self, poll):
        """The service decides now; the answer comes with `answer`."""
        self.pop_count += 1
        outcome = "down" if self.is_down else [self.messages.popleft()] if self.messages else []
        self.under_way.append((poll, outcome))

    def answer(self, index=0):
        poll, outcome = self.under_way.pop(index)
        if outcome == "down":
            if self.room.failed(poll):
                poll.outcome = "failed"
        elif not outcome:
            self.room.found_nothing(poll)
        elif self.room.found(poll):
            poll.outcome = outcome
            self.delivered += outcome
        else:  # given back
            for message in outcome:
                self.store(
                    message, WatchArrivalsResponse(group_topics=[{"consumer_group": "billing", "topic": "orders"}])
                )

    def settle(self):
        while self.under_way or self.news:
            while self.under_way:
                self.answer()
            self.tell()

    def pass_time(self, seconds):
        self.clock.now += seconds
        if not self.is_silent and BROKER in self.room._followed:  # heartbeats come each second
            self.room.arrive(BROKER, WatchArrivalsResponse())
        self.timers.run_due()

    def poll(self, name=NAME, **options):
        poll = MemoryPoll(self, name, **options)
        self.room.add(poll)
        return poll


class MemoryPoll(Poll):
    def __init__(
        self, shard, name, client_id="client", seconds=POLL_SECONDS, must_look=False, filter_characters=0, caller=""
    ):
        now = shard.clock.now
        super().__init__(
            name,
            client_id,
            now + seconds,
            now + seconds + 1,
            must_look=must_look,
            filter_characters=filter_characters,
            owner=client_of_name(caller),
        )
        self.shard = shard
        self.outcome = None

    def look(self):
        self.shard.pop(self)

    def end(self):
        assert self.outcome is None
        self.outcome = []

    def give_up(self):
        assert self.outcome is None
        self.outcome = "gave up"


@pytest.fixture
def shard():
    shard = Shard()
    shard.room.arrive(BROKER, ALL)
    return shard


def test_polls_that_wait_for_the_same_share_its_name(shard):
    names = [QueueName(BROKER, "orders", "billing", "*") for _ in range(2)]
    first, second = map(shard.poll, names)
    assert first.name == second.name == NAME
    assert first.name is second.name


def test_a_poll_that_comes_gets_what_is_there(shard):
    shard.store("a")
    poll = shard.poll()
    shard.settle()
    assert poll.outcome == ["a"]
    assert shard.room.poll_count == 0


def test_a_parked_poll_gets_what_arrives(shard):
    poll = shard.poll()
    shard.settle()
    assert poll.outcome is None
    shard.store("a")
    shard.settle()
    assert poll.outcome == ["a"]


def test_a_poll_without_messages_ends_in_time(shard):
    poll = shard.poll()
    shard.settle()
    shard.pass_time(POLL_SECONDS - 0.1)
    assert poll.outcome is None
    shard.pass_time(0.2)
    assert poll.outcome == []
    assert shard.room.poll_count == 0


def test_an_arrival_while_the_first_look_is_under_way_is_not_missed(shard):
    poll = shard.poll()  # the service has found nothing, and its answer is on its way
    shard.store("a")
    shard.tell()
    assert poll.outcome is None
    shard.settle()
    assert poll.outcome == ["a"]


def test_one_arrival_makes_one_of_many_polls_look(shard):
    polls = [shard.poll() for _ in range(1_000)]
    shard.settle()
    before = shard.pop_count
    shard.store("a")
    shard.settle()
    assert polls[0].outcome == ["a"]
    assert shard.pop_count - before <= 1 + 2  # it found one, so two look whether there are more


def test_many_messages_reach_as_many_polls(shard):
    polls = [shard.poll() for _ in range(200)]
    shard.settle()
    for number in range(150):
        shard.store(number)
    shard.settle()
    assert sorted(shard.delivered) == list(range(150))
    assert sum(poll.outcome is None for poll in polls) == 50


def test_no_more_than_some_look_at_the_same_time(shard):
    for _ in range(200):
        shard.poll()
    shard.settle()
    for number in range(150):
        shard.store(number)
    shard.tell()
    most = 0
    while shard.under_way:
        most = max(most, len(shard.under_way))
        shard.answer()
    assert most == LOOKING_COUNT_MAX


def test_what_is_known_to_be_empty_is_not_looked_at_again(shard):
    shard.poll()
    shard.settle()
    before = shard.pop_count
    polls = [shard.poll() for _ in range(100)]
    assert shard.pop_count == before
    shard.store("a")
    shard.settle()
    assert "a" in shard.delivered
    assert sum(poll.outcome is None for poll in polls) >= 99


def test_a_poll_that_must_look_does_so(shard):
    shard.poll()
    shard.settle()
    before = shard.pop_count
    shard.poll(must_look=True)
    assert shard.pop_count == before + 1


def test_nothing_is_known_while_arrivals_are_not_followed(shard):
    shard.poll()
    shard.settle()
    shard.room.lose_sight(BROKER)
    before = shard.pop_count
    shard.poll()
    assert shard.pop_count == before + 1


def test_knowledge_ends_after_a_while(shard):
    shard.poll(seconds=1_000)
    shard.settle()
    before = shard.pop_count
    shard.pass_time(TRUST_SECONDS + 1)
    shard.poll()
    assert shard.pop_count == before + 1


@pytest.mark.parametrize(
    ("arrivals", "is_woken"),
    [
        (WatchArrivalsResponse(topics=("orders",)), True),
        (WatchArrivalsResponse(topics=("other",)), False),
        (WatchArrivalsResponse(topics=("%RETRY%billing_orders",)), True),
        (WatchArrivalsResponse(topics=("%RETRY%billing+orders",)), True),
        (WatchArrivalsResponse(topics=("%RETRY%billing",)), True),
        (WatchArrivalsResponse(topics=("%RETRY%other_orders",)), False),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "billing", "topic": "orders"}]), True),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "other", "topic": "orders"}]), False),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "billing", "topic": "other"}]), False),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "billing", "topic": ""}]), True),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "other", "topic": ""}]), False),
        (WatchArrivalsResponse(all_lite_clients=True), False),
        (ALL, True),
    ],
)
def test_an_arrival_wakes_those_that_it_concerns(shard, arrivals, is_woken):
    shard.poll()
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(BROKER, arrivals)
    shard.pass_time(1)
    assert shard.pop_count - before == is_woken


@pytest.mark.parametrize(
    ("arrivals", "is_woken"),
    [
        (WatchArrivalsResponse(topics=("orders",)), True),  # of which queues is not known
        (WatchArrivalsResponse(topics=("orders",), queues=[{"topic": "orders", "queue_ids": (3,)}]), True),
        (WatchArrivalsResponse(topics=("orders",), queues=[{"topic": "orders", "queue_ids": (2, 4)}]), False),
        (WatchArrivalsResponse(topics=("orders",), queues=[{"topic": "other", "queue_ids": (2,)}]), True),
        (WatchArrivalsResponse(topics=("other",), queues=[{"topic": "other", "queue_ids": (3,)}]), False),
        (ALL, True),
    ],
)
def test_a_pull_is_woken_by_messages_of_its_queue_and_by_what_may_be_some(shard, arrivals, is_woken):
    shard.poll(QueueName(BROKER, "orders", "", 17, queue_id=3))
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(BROKER, arrivals)
    shard.pass_time(1)
    assert shard.pop_count - before == is_woken


@pytest.mark.parametrize(
    ("arrivals", "is_woken"),
    [
        (WatchArrivalsResponse(topics=("orders",)), False),
        (WatchArrivalsResponse(all_lite_clients=True), True),
        (WatchArrivalsResponse(topics=("%RETRY%billing_orders", "%LMQ%$orders$chat")), False),
        (
            WatchArrivalsResponse(lite_clients=[{"consumer_group": "billing", "topic": "orders", "client_id": "c"}]),
            True,
        ),
        (
            WatchArrivalsResponse(lite_clients=[{"consumer_group": "billing", "topic": "orders", "client_id": "d"}]),
            False,
        ),
        (WatchArrivalsResponse(lite_clients=[{"consumer_group": "other", "topic": "orders", "client_id": "c"}]), False),
        (
            WatchArrivalsResponse(lite_clients=[{"consumer_group": "billing", "topic": "other", "client_id": "c"}]),
            False,
        ),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "billing", "topic": "orders"}]), True),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "billing", "topic": ""}]), True),
        (WatchArrivalsResponse(group_topics=[{"consumer_group": "other", "topic": ""}]), False),
        (ALL, True),
    ],
)
def test_a_pop_of_lite_topics_is_woken_by_news_of_its_client_only(shard, arrivals, is_woken):
    shard.poll(QueueName(BROKER, "orders", "billing", "*", client_id="c"))
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(BROKER, arrivals)
    shard.pass_time(1)
    assert shard.pop_count - before == is_woken


def test_messages_of_any_queue_wake_those_that_pop(shard):
    shard.poll()
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(
        BROKER, WatchArrivalsResponse(topics=("orders",), queues=[{"topic": "orders", "queue_ids": (5,)}])
    )
    assert shard.pop_count - before == 1


def test_a_pull_that_has_ended_leaves_no_arrivals_to_listen_to(shard):
    shard.poll(QueueName(BROKER, "orders", "", 17, queue_id=3))
    shard.settle()
    shard.pass_time(POLL_SECONDS + 1)
    assert not shard.room._woken_by


def test_names_with_underscores_are_not_taken_apart(shard):
    """%RETRY%a_b_c is the retry topic of group a_b for topic c, and of group a for topic b_c."""
    for group, topic in (("a_b", "c"), ("a", "b_c"), ("a_b_c", "d")):
        shard.poll(QueueName(BROKER, topic, group, "*"))
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(BROKER, WatchArrivalsResponse(topics=("%RETRY%a_b_c",)))
    woken = {poll.name.consumer_group for poll, _ in shard.under_way}
    assert woken == {"a_b", "a", "a_b_c"}  # the last one by its group's own retry topic
    assert shard.pop_count - before == 3


def test_an_arrival_of_another_shard_wakes_nobody(shard):
    shard.poll()
    shard.settle()
    before = shard.pop_count
    shard.room.arrive("broker-b", WatchArrivalsResponse(topics=("orders",)))
    assert shard.pop_count == before


def test_groups_and_filters_wait_for_themselves(shard):
    for name in (NAME, NAME._replace(consumer_group="other"), NAME._replace(variant="tag")):
        shard.poll(name)
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(BROKER, WatchArrivalsResponse(topics=("orders",)))
    assert shard.pop_count - before == 3


def test_what_was_popped_for_one_that_has_gone_is_given_back_and_reaches_another(shard):
    first = shard.poll()
    second = shard.poll()
    shard.settle()
    shard.store("a")
    shard.tell()  # the first one looks, and has it
    shard.room.remove(first)
    shard.settle()
    assert (first.outcome, second.outcome) == (None, ["a"])


def test_a_poll_whose_look_takes_too_long_ends_all_the_same(shard):
    shard.store("a")
    poll = shard.poll()
    shard.pass_time(POLL_SECONDS + 0.5)
    assert poll.outcome is None
    shard.pass_time(1)
    assert poll.outcome == "gave up"
    shard.settle()
    assert shard.messages == deque(["a"]), "it was given back"


def test_a_failed_look_ends_its_poll_and_the_others_look_soon(shard):
    first, second = shard.poll(), shard.poll()
    shard.settle()
    shard.is_down = True
    shard.store("a")
    shard.settle()
    assert (first.outcome, second.outcome) == ("failed", None)
    shard.is_down = False
    shard.pass_time(RETRY_SECONDS + 0.1)
    shard.settle()
    assert second.outcome == ["a"]


def test_a_client_that_ends_takes_its_polls_with_it(shard):
    own, other = shard.poll(client_id="gone"), shard.poll(client_id="here")
    shard.settle()
    shard.room.end_client("gone", "billing")
    assert (own.outcome, other.outcome) == ([], None)


def test_after_the_end_nobody_waits(shard):
    poll = shard.poll()
    shard.settle()
    shard.room.close()
    late = shard.poll()
    assert (poll.outcome, late.outcome) == ([], [])


def test_queues_without_polls_are_forgotten(shard):
    for number in range(100):
        shard.poll(QueueName(BROKER, f"topic-{number}", "billing", "*"), seconds=1)
    shard.settle()
    shard.pass_time(2)
    assert len(shard.room._queues) == 100
    shard.pass_time(TRUST_SECONDS)
    shard.pass_time(TRUST_SECONDS)
    assert not shard.room._queues
    assert not shard.room._woken_by


def test_long_filters_filled_the_memory_of_queues_without_polls(shard):
    for length, is_remembered in ((FILTER_CHARACTERS_MAX, True), (FILTER_CHARACTERS_MAX + 1, False)):
        name = QueueName(BROKER, "orders", "billing", ("tags", "t" * length))
        shard.poll(name)
        shard.pass_time(POLL_SECONDS)
        shard.settle()
        assert (name in shard.room._queues) is is_remembered


def test_long_filters_of_polls_that_wait_have_a_limit_together_which_ends_with_them(shard):
    shard.room._filters = Shares(150)
    name = QueueName(BROKER, "orders", "billing", ("tags", "t" * 60))
    first = MemoryPoll(shard, name, filter_characters=60)
    shard.room.add(first)
    with pytest.raises(ResourceBusyError, match="shorter filter"):
        shard.room.add(MemoryPoll(shard, name, filter_characters=41))
    shard.room.add(MemoryPoll(shard, name, filter_characters=30))
    shard.settle()
    assert shard.room.poll_count == 2

    shard.room.remove(first)
    shard.room.add(MemoryPoll(shard, name, filter_characters=60))
    shard.settle()
    shard.pass_time(2 * POLL_SECONDS)
    assert shard.room.poll_count == 0
    shard.room.add(MemoryPoll(shard, name, filter_characters=100))


def test_a_client_whose_polls_keep_all_the_filters_they_can_leaves_room_for_those_of_another(shard):
    shard.room._filters = Shares(1_000)
    name = QueueName(BROKER, "orders", "billing", ("tags", "t" * 100))
    with pytest.raises(ResourceBusyError, match="share"):
        for _ in range(10):
            shard.room.add(MemoryPoll(shard, name, filter_characters=100, caller="identity:attacker"))
    shard.room.add(MemoryPoll(shard, name, filter_characters=100, caller="identity:victim"))


def test_everything_may_have_arrived_but_not_all_look_at_once(shard):
    for number in range(1_000):
        shard.poll(QueueName(BROKER, f"topic-{number}", "billing", "*"))
    shard.settle()
    before = shard.pop_count
    shard.room.arrive(BROKER, ALL)
    shard.pass_time(0.1)
    assert 0 < shard.pop_count - before < 500
    shard.pass_time(0.6)
    assert shard.pop_count - before == 1_000


OFTEN = [("poll",), ("store",), ("tell",), ("answer", 0), ("answer", 1)] * 4
SELDOM = [
    *(("leave", number) for number in range(3)),
    *(("pass", seconds) for seconds in (0.1, 1.0, 19.0, 70.0)),
    *(("lose",), ("down",), ("up",), ("end client",)),
]
STEPS = st.lists(st.sampled_from(OFTEN + SELDOM), max_size=20)


def check(steps):
    """At the end there is no message while a poll waits, and no message is lost or with two polls."""
    shard = Shard()
    shard.room.arrive(BROKER, ALL)
    polls, everybody, count = [], [], 0
    for step in steps:
        match step:
            case ("store",):
                shard.store(count)
                count += 1
            case ("tell",):
                shard.tell()
            case ("poll",):
                polls.append(shard.poll())
                everybody.append(polls[-1])
            case ("answer", number) if shard.under_way:
                shard.answer(number % len(shard.under_way))
            case ("leave", number) if polls:
                poll = polls.pop(number % len(polls))
                shard.room.remove(poll)
            case ("pass", seconds):
                shard.pass_time(seconds)
            case ("lose",):  # what was on its way is lost; the next arrival says that all may have come
                shard.room.lose_sight(BROKER)
                shard.news.clear()
                shard.news.append(ALL)
            case ("down",):
                shard.is_down = True
            case ("up",):
                shard.is_down = False
            case ("end client",):
                shard.room.end_client("client", "billing")
    shard.is_down = False
    shard.settle()
    for _ in range(3):
        shard.pass_time(RETRY_SECONDS + 0.1)
        shard.settle()
    assert not (shard.messages and shard.room.poll_count), "a poll waits, and there is a message for it"
    got = [message for poll in everybody if isinstance(poll.outcome, list) for message in poll.outcome]
    assert sorted([*got, *shard.messages]) == list(range(count)), "each message is with one poll or still there"


@given(STEPS)
def test_whatever_happens_nothing_is_missed_and_nothing_kept(steps):
    check(steps)


def test_in_no_order_of_few_steps_anything_is_missed():
    """All orders, because only few of them end where something could get lost."""
    kinds = [("poll",), ("store",), ("tell",), ("answer", 0), ("answer", 1), ("leave", 0), ("down",)]
    for count in range(1, 6):
        for steps in itertools.product(kinds, repeat=count):
            check(steps)


def test_a_timer_that_was_dropped_is_never_due():
    clock = Clock()
    timers = Timers(clock)
    due = []
    for number in range(100):
        tick = timers.set(number, clock.now + number, lambda number=number: due.append(number))
        if number % 2:
            timers.drop(number, tick)
    assert timers.count == 50
    for _ in range(101):
        timers.run_due()
        clock.now += 1
    assert due == list(range(0, 100, 2))
    assert timers.count == 0


def test_polls_behind_a_look_that_hung_waited_for_its_end(shard):
    """Two members of a group got nothing for 3 and 11 seconds: 11 are the deadline of a look, and a pause after its error."""
    hung, second, third = shard.poll(), shard.poll(), shard.poll()
    shard.settle()
    shard.store("a")
    shard.tell()
    (look,) = shard.under_way  # of the first one; it has the message, and no answer
    for body in "bc":
        shard.store(body)
    shard.tell()
    shard.pass_time(SLOW_LOOK_SECONDS - 0.1)
    assert shard.under_way == [look]

    shard.pass_time(WATCH_SECONDS + 0.1)
    shard.answer(1)
    while len(shard.under_way) > 1:
        shard.answer(1)

    assert (hung.outcome, second.outcome, third.outcome) == (None, ["b"], ["c"])
    shard.settle()
    assert hung.outcome == ["a"]
    assert not shard.room._woken


def test_looks_that_hang_are_no_stampede(shard):
    polls = [shard.poll() for _ in range(10)]
    shard.settle()
    for number in range(10):
        shard.store(number)
    shard.tell()
    for seconds in range(1, 6):
        shard.pass_time(SLOW_LOOK_SECONDS + 0.05)
        assert len(shard.under_way) == 1 + seconds
    shard.settle()
    assert sorted(body for poll in polls for body in poll.outcome or ()) == list(range(10))


def test_polls_waited_for_arrivals_of_a_shard_whose_stream_stood_still(shard):
    poll = shard.poll()
    shard.settle()
    shard.is_silent = True
    shard.store("a")
    shard.news.clear()
    shard.pass_time(SILENT_SECONDS - 1)
    shard.settle()
    assert poll.outcome is None

    shard.pass_time(1.5)
    shard.pass_time(0.5)
    shard.settle()

    assert poll.outcome == ["a"]
    shard.is_silent = False
    shard.room.arrive(BROKER, ALL)
    shard.settle()
    looks = shard.pop_count
    for _ in range(4):  # heartbeats, and nothing to look for
        shard.pass_time(SILENT_SECONDS - 1)
    assert shard.pop_count == looks
