"""Verdicts that come together are sent together, and each caller gets its own outcome once."""

from typing import Any

import pytest

from reput.schedule.v1 import schedule_service_pb2 as pb
from services.calling.verdict_batches import CALL_COUNT_MAX, VERDICT_COUNT_MAX, VerdictBatches
from services.status import to_status
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError, TransactionNotFoundError

SECONDS = 10.0


class Service:
    """Keeps calls until the test answers them.

    Attributes:
        calls: the keys of the verdicts of each EndTransactions, its timeout, and who gets its outcome.
        alone: likewise of each EndTransaction.
        told: the outcomes by key.
        now: the time (seconds).
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[list[str], float, Any]] = []
        self.alone: list[tuple[str, float, Any]] = []
        self.told: dict[str, list[Any]] = {}
        self.batches = VerdictBatches(self._end_all, self._end_one, lambda: self.now)

    def _end_all(self, request: pb.EndTransactionsRequest, seconds: float, done: Any) -> None:
        self.calls.append(([one.unique_key for one in request.verdicts], seconds, done))

    def _end_one(self, request: pb.EndTransactionRequest, seconds: float, done: Any) -> None:
        self.alone.append((request.unique_key, seconds, done))

    def send(self, *keys: str, seconds: float = SECONDS) -> None:
        """Callers send verdicts."""
        for key in keys:
            self.told.setdefault(key, [])
            self.batches.end(pb.EndTransactionRequest(unique_key=key), seconds, self.told[key].append)

    def answer(self, number: int, *, but: dict[str, StoreError | None] | None = None) -> None:
        """Answer a call; each verdict counts, but for those named."""
        outcomes = []
        for key in self.calls[number][0]:
            if but is None or key not in but:
                outcomes.append(pb.EndTransactionsResponse.Outcome(ended=ended(key)))
            elif (error := but[key]) is not None:
                outcomes.append(pb.EndTransactionsResponse.Outcome(error=to_status(error)))
            else:
                outcomes.append(pb.EndTransactionsResponse.Outcome())
        self.calls[number][2](pb.EndTransactionsResponse(outcomes=outcomes))


def ended(key: str) -> pb.EndTransactionResponse:
    """The answer of a verdict."""
    return pb.EndTransactionResponse(result={"unique_key": key})


@pytest.fixture
def service() -> Service:
    return Service()


def test_verdicts_collect_while_calls_are_under_way_and_each_gets_its_own_outcome(service: Service) -> None:
    service.send("a", "b", "c", "d", "e")

    assert [keys for keys, _, _ in service.calls] == [["a"]]
    service.answer(0)
    assert [keys for keys, _, _ in service.calls[1:]] == [["b", "c", "d", "e"]]
    service.answer(1, but={"d": TransactionNotFoundError("it was committed before", outcome="COMMITTED")})
    assert [service.told[key] for key in "abce"] == [[ended(key)] for key in "abce"]
    (error,) = service.told["d"]
    assert isinstance(error, TransactionNotFoundError)
    assert error.metadata["outcome"] == "COMMITTED"
    service.send("f", "g")
    assert [keys for keys, _, _ in service.calls[2:]] == [["f"]], "the place is free again"


def test_a_call_has_as_many_verdicts_as_the_service_takes(service: Service) -> None:
    keys = [str(number) for number in range(CALL_COUNT_MAX + VERDICT_COUNT_MAX + 1)]
    service.send(*keys)
    service.answer(0)
    service.answer(1)

    assert [len(sent) for sent, _, _ in service.calls] == [1, VERDICT_COUNT_MAX, 1]


def test_a_verdict_without_outcome_is_sent_alone_with_the_time_that_is_left(service: Service) -> None:
    service.send("a")
    service.now += 4
    service.answer(0, but={"a": None})

    ((key, seconds, done),) = service.alone
    assert (key, seconds, service.told["a"]) == ("a", SECONDS - 4, [])
    done(ended("a"))
    assert service.told["a"] == [ended("a")]


def test_a_failed_call_fails_its_verdicts_and_sends_none_again(service: Service) -> None:
    service.send("a", "b", "c")
    service.calls[0][2](ServiceUnavailableError("gone"))
    service.send("d")
    service.answer(1)
    service.calls[2][2](ServiceUnavailableError("gone"))

    assert [len(service.told[key]) for key in "abcd"] == [1, 1, 1, 1]
    assert [isinstance(service.told[key][0], StoreError) for key in "abcd"] == [True, False, False, True]
    assert service.alone == []


def test_a_verdict_whose_time_is_over_is_not_sent(service: Service) -> None:
    service.send("a", "c", seconds=1.0)
    service.send("d")
    service.now += 2
    service.answer(0)

    assert [keys for keys, _, _ in service.calls] == [["a"], ["d"]]
    assert isinstance(service.told["c"][0], DeadlineExceededError)
    assert service.calls[1][1] == SECONDS - 2
    service.answer(1)
    service.send("e", "f")
    assert len(service.calls) == 3, "the place is free again"


def test_an_answer_that_does_not_fit_its_request_fails_its_verdicts(service: Service) -> None:
    service.send("a")
    service.calls[0][2](pb.EndTransactionsResponse())

    assert isinstance(service.told["a"][0], ServiceUnavailableError)


def test_a_caller_that_fails_does_not_keep_the_others_from_their_outcomes(service: Service) -> None:
    service.send("a", "b")

    def fail(_outcome: object) -> None:
        raise RuntimeError("a caller's own")

    service.batches.end(pb.EndTransactionRequest(unique_key="bad"), SECONDS, fail)
    service.send("c")
    service.answer(0)
    service.answer(1)

    assert service.told["c"] == [ended("c")]
