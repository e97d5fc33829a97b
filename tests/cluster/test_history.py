"""The judge of the histories finds what it is there for."""

import pytest

from tests.cluster.history import Acknowledged, Producers, Readers, problems_of_logs
from tests.torture.store_check import Frame

TOPIC = "T"
SIZE_BYTES = 100
A, B = (("a", 1.0, 2.0, 0, 0), ("b", 3.0, 4.0, 1, SIZE_BYTES))


def told(*acknowledged: tuple[str, float, float, int, int]) -> Producers:
    """Producers that were answered: key, asked at, answered at, queue offset, commit-log offset."""
    producers = Producers("127.0.0.1:1", TOPIC, count=0)
    for key, asked_at, answered_at, queue_offset, offset in acknowledged:
        producers.attempted.add(key)
        producers.acknowledged.append(Acknowledged(key, True, asked_at, answered_at, 0, queue_offset, offset))
    return producers


def log_of(*records: tuple[str, int]) -> list[Frame]:
    """A log of (key, queue offset) in queue 0."""
    return [
        Frame(number * SIZE_BYTES, SIZE_BYTES, TOPIC, 0, queue_offset, 0, key, "", ())
        for number, (key, queue_offset) in enumerate(records)
    ]


def test_equal_logs_with_all_that_was_acknowledged_are_right() -> None:
    log = log_of(("a", 0), ("b", 1))
    readers = Readers({})
    readers.shown[SIZE_BYTES].add((SIZE_BYTES, 0, 1))

    assert problems_of_logs({"r1": log, "r2": log}, TOPIC, told(A, B), readers) == []


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ([log_of(("a", 0))] * 2, "b was acknowledged as replicated and is lost"),
        ([log_of(("a", 0), ("b", 1)), log_of(("a", 0))], "the logs of r1 and r2 differ"),
        ([log_of(("a", 0), ("b", 1), ("b", 2))] * 2, "b is stored 2 times"),
        ([log_of(("a", 0), ("b", 2))] * 2, "has a hole"),
        ([log_of(("a", 0), ("b", 1), ("c", 2))] * 2, "c was never sent"),
        ([log_of(("b", 0), ("a", 1))] * 2, "lies elsewhere"),
    ],
)
def test_a_log_that_breaks_a_promise_is_found(logs: list[list[Frame]], said: str) -> None:
    problems = problems_of_logs({f"r{number}": log for number, log in enumerate(logs, 1)}, TOPIC, told(A, B))

    assert any(said in problem for problem in problems), problems


def test_a_message_before_one_that_was_acknowledged_earlier_is_found() -> None:
    log = log_of(("late", 0), ("early", 1))
    producers = told(("early", 1.0, 2.0, 1, SIZE_BYTES), ("late", 3.0, 4.0, 0, 0))

    problems = problems_of_logs({"r1": log}, TOPIC, producers)

    assert problems == ["late was asked for after early was acknowledged, and lies before it"]


@pytest.mark.parametrize("shown", [(10 * SIZE_BYTES, (SIZE_BYTES, 0, 2)), (SIZE_BYTES, (SIZE_BYTES, 0, 7))])
def test_a_record_that_was_shown_and_is_not_there_is_found(shown: tuple[int, tuple[int, int, int]]) -> None:
    readers = Readers({})
    readers.shown[shown[0]].add(shown[1])

    (problem,) = problems_of_logs({"r1": log_of(("a", 0), ("b", 1))}, TOPIC, told(A, B), readers)

    assert "was shown at" in problem
