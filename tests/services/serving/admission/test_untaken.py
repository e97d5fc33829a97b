"""Answers that are not taken: counted, divided, and ended for those that wait."""

from collections.abc import Callable
from types import SimpleNamespace

from services.serving.admission.shares import client_of_peer
from services.serving.admission.untaken import (
    CALL_BYTES,
    GRACE_SECONDS,
    STALE_SECONDS,
    UNKNOWN_ANSWER_BYTES,
    UNTAKEN_BYTES_MAX,
    UntakenAnswers,
)
from services.serving.stall_watch import ANSWER_SECONDS_MAX

MIB = 1 << 20
METHOD = "/reput.X/Query"


class Clock:
    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


class Caller:
    """A call whose answer is taken when the test says so."""

    def __init__(self, *, has_gone: bool = False) -> None:
        self.is_cancelled = False
        self.taken: Callable[[], None] = lambda: None
        self._has_gone = has_gone

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self.taken = callback
        return not self._has_gone

    def cancel(self) -> None:
        self.is_cancelled = True
        self.taken()

    def peer(self) -> str:
        return "ipv4:10.0.0.1:1"


def host(number: int, connection: int = 1):
    return client_of_peer(f"ipv4:10.0.0.{number}:{connection}")


def held(answers: UntakenAnswers, client, count: int, size_bytes: int) -> list[Caller]:
    callers = [Caller() for _ in range(count)]
    for caller in callers:
        answers.add(client, caller, size_bytes, METHOD)
    return callers


def test_an_answer_counts_until_it_is_taken() -> None:
    freed: list[int] = []
    answers = UntakenAnswers(Clock())
    answers.freed = lambda: freed.append(1)
    (caller,) = held(answers, host(1), 1, MIB)
    assert answers.size_bytes == MIB + CALL_BYTES
    caller.taken()
    assert (answers.size_bytes, freed) == (0, [1])


def test_an_answer_to_a_caller_that_has_gone_does_not_count() -> None:
    answers = UntakenAnswers(Clock())
    answers.add(host(1), Caller(has_gone=True), MIB, METHOD)
    assert answers.size_bytes == 0


def test_an_answer_that_is_never_taken_is_ended() -> None:
    clock = Clock()
    answers = UntakenAnswers(clock)
    old = held(answers, host(1), 1, MIB)
    clock.now += ANSWER_SECONDS_MAX
    young = held(answers, host(1), 1, MIB)
    clock.now += 0.1
    answers.end_some()
    assert [caller.is_cancelled for caller in old + young] == [True, False]
    assert (answers.ended_count, answers.size_bytes) == (1, MIB + CALL_BYTES)


def test_a_client_that_takes_nothing_has_no_more_than_half() -> None:
    answers = UntakenAnswers(Clock())
    count = 0
    while answers.has_room(host(1), METHOD):
        held(answers, host(1), 1, MIB)
        count += 1
    assert count == UNTAKEN_BYTES_MAX // 2 // (MIB + CALL_BYTES)
    assert answers.has_room(host(2), METHOD)
    assert answers.has_room(host(1, 2), METHOD)


def test_who_waits_gets_room_from_those_that_have_most_the_oldest_first() -> None:
    clock = Clock()
    answers = UntakenAnswers(clock)
    small = held(answers, host(2), 1, 10 * MIB)
    clock.now += 0.001
    most = held(answers, host(1), 90, MIB)
    good = host(3), METHOD
    assert not answers.has_room(*good)
    answers.end_some([good])
    assert not any(caller.is_cancelled for caller in most), "they have just been given"

    clock.now += 2 * GRACE_SECONDS
    answers.end_some([good])
    assert [caller.is_cancelled for caller in small + most] == [False, True] + [False] * 89


def test_an_answer_that_is_being_read_slowly_was_ended_for_a_client_that_could_wait() -> None:
    clock = Clock()
    answers = UntakenAnswers(clock)
    slow = held(answers, host(1), 60, MIB)
    held(answers, host(2), 20, MIB)
    waiting = host(2), METHOD
    assert not answers.has_room(*waiting)
    clock.now += STALE_SECONDS
    answers.end_some([waiting])
    assert not any(caller.is_cancelled for caller in slow)
    clock.now += 0.1
    answers.end_some([waiting])
    assert sum(caller.is_cancelled for caller in slow) == 1


def test_a_call_of_an_unknown_client_counts_a_little_and_of_a_known_one_as_its_last_of_the_method() -> None:
    answers = UntakenAnswers(Clock())
    expected = answers.expect(host(1), METHOD)
    assert (expected, answers.size_bytes) == (UNKNOWN_ANSWER_BYTES, UNKNOWN_ANSWER_BYTES)
    answers.add(host(1), Caller(has_gone=True), 1000, METHOD)
    answers.release(host(1), expected, METHOD)
    assert answers.expect(host(1), METHOD) == answers.size_bytes == 1000 + CALL_BYTES
    assert answers.expect(host(1), "/reput.X/Append") == UNKNOWN_ANSWER_BYTES


def test_slow_calls_of_new_clients_left_no_room_for_anybody() -> None:
    answers = UntakenAnswers(Clock())
    for number in range(1, 30):
        answers.add(host(number), Caller(has_gone=True), 4 * MIB, METHOD)
        for _ in range(4):
            answers.expect(host(number), METHOD)
    assert answers.size_bytes > UNTAKEN_BYTES_MAX
    assert answers.has_room(host(200), METHOD)
    assert answers.has_room(host(1), METHOD)
    assert answers.has_room(host(1, 2), METHOD)


def test_a_client_with_one_large_answer_was_slowed_down_in_all_it_did() -> None:
    answers = UntakenAnswers(Clock())
    answers.add(host(1), Caller(has_gone=True), 4 * MIB, METHOD)
    answers.add(host(1), Caller(has_gone=True), 100, "/reput.X/Append")
    count = 0
    while count < 100 and answers.has_room(host(1), "/reput.X/Append"):
        answers.expect(host(1), "/reput.X/Append")
        count += 1
    assert count >= 64


def test_what_is_remembered_of_clients_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("services.serving.admission.untaken.EXPECTED_COUNT_MAX", 10)
    answers = UntakenAnswers(Clock())
    for number in range(30):
        answers.add(host(1, number), SimpleNamespace(add_callback=lambda _: False), 1, METHOD)
    assert len(answers._expected) == 10
