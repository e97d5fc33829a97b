"""Requests of a forwarded stream are held back while their answers are not taken."""

import threading

import pytest

from gateway.appends.backpressure import UNANSWERED_COUNT_MAX, Backpressure
from tests.support.waiting import WAIT_SECONDS_MAX


def take_in_background(gate: Backpressure) -> tuple[threading.Thread, list[bytes]]:
    taken: list[bytes] = []
    thread = threading.Thread(target=lambda: taken.extend(gate))
    thread.start()
    return thread, taken


def test_no_more_than_so_many_requests_are_taken_before_an_answer_is() -> None:
    asked_for = []
    full = threading.Event()

    def requests():
        for number in range(UNANSWERED_COUNT_MAX + 3):
            asked_for.append(number)
            if len(asked_for) == UNANSWERED_COUNT_MAX:
                full.set()
            yield b"%d" % number

    gate = Backpressure(requests())
    thread, taken = take_in_background(gate)
    assert full.wait(WAIT_SECONDS_MAX)
    thread.join(0.2)
    assert len(asked_for) == UNANSWERED_COUNT_MAX

    for _ in range(3):
        gate.answered()
    for _ in range(UNANSWERED_COUNT_MAX):
        gate.answered()
    thread.join(WAIT_SECONDS_MAX)
    assert taken == [b"%d" % number for number in range(UNANSWERED_COUNT_MAX + 3)]


def test_the_end_of_the_stream_lets_a_waiting_taker_go() -> None:
    gate = Backpressure(iter([b"1", b"2"]), unanswered_count_max=1)
    thread, taken = take_in_background(gate)
    thread.join(0.2)

    gate.close()

    thread.join(WAIT_SECONDS_MAX)
    assert not thread.is_alive()
    assert taken == [b"1"]


def test_a_caller_who_goes_away_ends_the_requests_like_one_who_is_done() -> None:
    def requests():
        yield b"1"
        raise RuntimeError("gone")

    gate = Backpressure(requests())

    assert next(gate) == b"1"
    with pytest.raises(StopIteration):
        next(gate)
