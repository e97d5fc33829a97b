"""Answers that are not taken: counted, divided, and ended for those that wait."""

from collections.abc import Callable
from types import SimpleNamespace

from services.serving.admission.shares import client_of_peer
from services.serving.admission.untaken import (
    ANSWER_BYTES_MAX,
    CALL_BYTES,
    GRACE_SECONDS,
    UNTAKEN_BYTES_MAX,
    UntakenAnswers,
)
from services.serving.stall_watch import ANSWER_SECONDS_MAX

MIB = 1 << 20


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
        answers.add(client, caller, size_bytes)
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
    answers.add(host(1), Caller(has_gone=True), MIB)
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
    while answers.has_room(host(1)):
        held(answers, host(1), 1, MIB)
        count += 1
    assert count == UNTAKEN_BYTES_MAX // 2 // (MIB + CALL_BYTES) + 1
    assert answers.has_room(host(2))
    assert answers.has_room(host(1, 2))


def test_who_waits_gets_room_from_those_that_have_most_the_oldest_first() -> None:
    clock = Clock()
    answers = UntakenAnswers(clock)
    small = held(answers, host(2), 1, 10 * MIB)
    clock.now += 0.001
    most = held(answers, host(1), 90, MIB)
    good = host(3)
    assert not answers.has_room(good)
    answers.end_some([good])
    assert not any(caller.is_cancelled for caller in most), "they have just been given"

    clock.now += 2 * GRACE_SECONDS
    answers.end_some([good])
    assert [caller.is_cancelled for caller in small + most] == [False, True] + [False] * 89


def test_a_call_of_an_unknown_client_counts_as_the_largest_and_of_a_known_one_as_its_last() -> None:
    answers = UntakenAnswers(Clock())
    expected = answers.expect(host(1))
    assert (expected, answers.size_bytes) == (ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)
    answers.add(host(1), Caller(has_gone=True), 1000)
    answers.release(host(1), expected)
    assert answers.expect(host(1)) == answers.size_bytes == 1000 + CALL_BYTES


def test_what_is_remembered_of_clients_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("services.serving.admission.untaken.CLIENT_COUNT_MAX", 10)
    answers = UntakenAnswers(Clock())
    for number in range(30):
        answers.add(host(1, number), SimpleNamespace(add_callback=lambda _: False), 1)
    assert len(answers._expected) == 10
