"""Which message is consumed next, and how much is held: against models.

How many messages are fetched ahead of a program.
"""

import contextvars
from collections import defaultdict
from datetime import UTC, datetime
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput_client.consuming.cache import (
    AHEAD_COUNT_MAX,
    MESSAGE_OVERHEAD_BYTES,
    QUICK_COUNT_MIN,
    QUICK_SECONDS,
    Cache,
    HeldMessage,
    Pace,
)
from reput_client.consuming.received_message import ReceivedMessage

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER = float("inf")


def held(
    body: bytes, message_group: str = "", *, ends_at: float = NEVER, queue_id: int = 0, offset: int = 0
) -> HeldMessage:
    message = ReceivedMessage(
        *("T", body, "id", (), "", message_group, MappingProxyType({}), 1),
        *(EPOCH, "", EPOCH, "broker-a", queue_id, offset),
    )
    return HeldMessage(message, "handle", "target", ends_at)


def cache(*, fifo: bool, count_max: int = 1000) -> Cache:
    made = Cache(count_max, 1 << 20, 32)
    made.fifo = fifo
    return made


@given(
    groups=st.lists(st.sampled_from("abc"), max_size=25),
    choices=st.lists(st.tuples(st.sampled_from(["take", "done", "fail", "wait"]), st.integers(0, 5)), max_size=80),
)
def test_in_a_fifo_group_nothing_overtakes_in_its_message_group(
    groups: list[str], choices: list[tuple[str, int]]
) -> None:
    queue = cache(fifo=True)
    queue.put([held(b"%d" % i, group, offset=i) for i, group in enumerate(groups)])
    now, out, done = 0.0, list[HeldMessage](), defaultdict[str, list[int]](list)

    def take() -> None:
        got = queue.take(now)
        if got is not None:
            assert got.message.message_group not in {each.message.message_group for each in out}
            out.append(got)

    def finish(got: HeldMessage) -> None:
        queue.settle(got, is_consumed=True)
        done[got.message.message_group].append(got.message.queue_offset)

    for what, number in choices:
        if what == "take":
            take()
        elif what == "wait":
            now += 1
        elif out:
            got = out.pop(number % len(out))
            if what == "done":
                finish(got)
            else:
                queue.retry(got, now + 1.5)
        assert queue.count == len(groups) - sum(map(len, done.values()))
        assert queue.taken_count == len(out)
    for _ in range(len(groups) + 1):
        now += 2
        for _ in "abc":
            take()
        while out:
            finish(out.pop())
    expected = {name: [i for i, group in enumerate(groups) if group == name] for name in set(groups)}
    assert dict(done) == expected
    assert (queue.count, queue.size_bytes, queue.taken_count) == (0, 0, 0)


def test_a_failed_message_waits_for_its_time_and_others_go_on() -> None:
    queue = cache(fifo=True)
    queue.put([held(b"a1", "a"), held(b"a2", "a"), held(b"b1", "b")])
    first = queue.take(0.0)
    assert first is not None
    queue.retry(first, 5.0)
    assert (queue.next_time(), first.is_gone) == (5.0, True)
    other = queue.take(0.0)
    assert other is not None
    assert other.message.body == b"b1"
    assert queue.take(4.9) is None
    again = queue.take(5.0)
    assert again is not None
    assert (again.message.body, again.attempt) == (b"a1", 2)
    assert queue.take(5.0) is None, "the second waits for the first"


def test_what_is_not_consumed_takes_those_behind_it_with_it() -> None:
    queue = cache(fifo=True)
    queue.put([held(b"a1", "a"), held(b"a2", "a"), held(b"b1", "b")])
    first = queue.take(0.0)
    assert first is not None
    queue.settle(first, is_consumed=False)
    rest = queue.take(0.0)
    assert rest is not None
    assert rest.message.body == b"b1"
    assert queue.take(0.0) is None
    assert queue.count == 1


@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_whose_time_is_over_is_not_handed_out(fifo: bool) -> None:
    queue = cache(fifo=fifo)
    queue.put([held(b"late", "a", ends_at=1.0), held(b"behind", "a"), held(b"other", "b")])
    bodies = []
    while (got := queue.take(2.0)) is not None:
        bodies.append(got.message.body)
    assert bodies == ([b"other"] if fifo else [b"behind", b"other"]), (
        "in a FIFO group what is behind it comes again too"
    )
    assert queue.count == len(bodies)


def test_messages_without_a_message_group_keep_the_order_of_their_queue_in_a_fifo_group() -> None:
    queue = cache(fifo=True)
    queue.put([held(b"q0", queue_id=0), held(b"q0-next", queue_id=0), held(b"q1", queue_id=1)])
    first, second = queue.take(0.0), queue.take(0.0)
    assert first is not None
    assert second is not None
    assert {first.message.body, second.message.body} == {b"q0", b"q1"}
    assert queue.take(0.0) is None


@given(
    count_max=st.integers(1, 200),
    poller_count=st.integers(1, 20),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 32)), max_size=60),
)
def test_no_more_is_asked_for_than_there_is_room(
    count_max: int, poller_count: int, steps: list[tuple[bool, int]]
) -> None:
    queue = cache(fifo=False, count_max=count_max)
    polls: list[int] = []
    for begins, number in steps:
        if begins and len(polls) < poller_count:
            count = queue.reserve(poller_count, 1_000)
            if count:
                polls.append(count)
        elif polls:
            asked = polls.pop(0)
            queue.release(asked)
            queue.put([held(b"x") for _ in range(min(asked, number))])
        elif (got := queue.take(0.0)) is not None:
            queue.settle(got, is_consumed=True)
        assert queue.count + sum(polls) <= count_max
        assert queue.reserved_count == sum(polls)


def test_pollers_that_wait_leave_room_for_the_others() -> None:
    queue = cache(fifo=False, count_max=40)
    assert [queue.reserve(4, 1_000) for _ in range(4)] == [10, 10, 10, 10]
    assert queue.reserve(4, 1_000) == 0


def test_no_poll_begins_while_the_bytes_are_used_up() -> None:
    queue = Cache(100, 2 * MESSAGE_OVERHEAD_BYTES, 32)
    assert queue.reserve(1, 1_000) == 32
    queue.release(32)
    queue.put([held(b""), held(b"")])
    assert queue.reserve(1, 1_000) == 0
    got = queue.take(0.0)
    assert got is not None
    queue.settle(got, is_consumed=True)
    assert queue.reserve(1, 1_000) == 32


@pytest.mark.parametrize("fifo", [False, True])
def test_draining_leaves_what_is_out(fifo: bool) -> None:
    queue = cache(fifo=fifo)
    queue.put([held(b"1", "a"), held(b"2", "a"), held(b"3", "b")])
    out = queue.take(0.0)
    assert out is not None
    assert sorted(each.message.body for each in queue.drain()) == [b"2", b"3"]
    assert (queue.count, queue.taken_count, queue.take(0.0)) == (1, 1, None)
    queue.settle(out, is_consumed=True)
    assert (queue.count, queue.taken_count) == (0, 0)


class Program:
    """Asks for messages, and gets each at once."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.now = 100.0
        self.pace.asked(self.now)

    def handle(self, seconds: float, count: int = 1) -> int:
        """Handle messages, each for so long; how many are fetched ahead then."""
        for _ in range(count):
            self.pace.given(self.now)
            self.now += seconds
            self.pace.asked(self.now)
        return self.pace.ahead_count


def test_nothing_is_fetched_ahead_of_a_program_that_takes_its_time() -> None:
    program = Program(Pace())
    assert program.handle(2 * QUICK_SECONDS, 1_000) == 0
    assert program.handle(0.0, QUICK_COUNT_MIN - 1) == 0, "a few quick ones say nothing"


def test_messages_are_fetched_ahead_of_a_quick_program_until_it_slows_down() -> None:
    program = Program(Pace())
    assert 0 < program.handle(0.001, QUICK_COUNT_MIN) < AHEAD_COUNT_MAX
    assert program.handle(0.001, 100) == AHEAD_COUNT_MAX
    assert program.handle(1.0, 2) == 0


def test_a_program_that_asks_again_and_again_for_a_message_that_does_not_come_is_not_quick() -> None:
    program = Program(Pace())
    program.handle(0.001, QUICK_COUNT_MIN - 1)
    for _ in range(100):
        program.pace.asked(program.now)
    assert program.pace.ahead_count == 0


def test_the_settings_limit_what_is_fetched_ahead() -> None:
    assert Program(Pace(0)).handle(0.0, 1_000) == 0
    assert Program(Pace(10)).handle(0.0, 1_000) == 10


def test_slow_handlers_that_began_together_are_no_quick_program() -> None:
    pace = Pace()
    programs = [(contextvars.copy_context(), Program(pace)) for _ in range(64)]
    for _ in range(4):
        for context, program in programs:
            context.run(program.handle, 1.0)
    assert pace.ahead_count == 0
