"""Acknowledgements of one group share calls; each caller gets the outcomes of its own handles."""

from collections.abc import Sequence

from gateway.ports.delivery import Then
from gateway.shards.ack_batches import HANDLE_COUNT_MAX, AckBatches
from reput.consumer.v1.consumer_service_pb2 import AckMessagesRequest, AckMessagesResponse
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

Outcomes = Sequence[AckMessagesResponse.Outcome] | StoreError
OK, TOO_LATE = AckMessagesResponse.OUTCOME_OK, AckMessagesResponse.OUTCOME_TOO_LATE


class Shard:
    """Keeps the calls; the test ends them. A handle that begins with `late` is too late."""

    def __init__(self) -> None:
        self.calls: list[tuple[AckMessagesRequest, float, Then[AckMessagesResponse]]] = []
        self.now = 0.0
        self.acks = AckBatches(self._send, lambda: self.now)
        self.got: dict[str, Outcomes] = {}

    def _send(self, request: AckMessagesRequest, seconds: float, then: Then[AckMessagesResponse]) -> None:
        self.calls.append((request, seconds, then))

    def ack(self, name: str, *handles: str, group: str = "g", seconds: float = 10.0) -> None:
        def note(outcome: AckMessagesResponse | StoreError) -> None:
            assert name not in self.got
            self.got[name] = outcome if isinstance(outcome, StoreError) else list(outcome.outcomes)

        self.acks.ack(AckMessagesRequest(consumer_group=group, receipt_handles=handles), seconds, note)

    def handles(self) -> list[Sequence[str]]:
        return [list(request.receipt_handles) for request, _, _ in self.calls]

    def end(self, number: int) -> None:
        request, _, then = self.calls[number]
        outcomes = [TOO_LATE if handle.startswith("late") else OK for handle in request.receipt_handles]
        then(AckMessagesResponse(outcomes=outcomes))


def test_an_acknowledgement_alone_is_sent_at_once() -> None:
    shard = Shard()

    shard.ack("a", "1", "2")

    assert shard.handles() == [["1", "2"]]


def test_those_that_come_while_a_call_is_under_way_share_the_next_one() -> None:
    shard = Shard()
    shard.ack("a", "1")
    shard.ack("b", "late-2", "3")
    shard.ack("c", "4")
    assert len(shard.calls) == 1

    shard.end(0)
    assert shard.handles() == [["1"], ["late-2", "3", "4"]]
    assert list(shard.got) == ["a"]

    shard.end(1)
    assert shard.got == {
        "a": [OK],
        "b": [TOO_LATE, OK],
        "c": [OK],
    }
    shard.ack("d", "5")
    assert shard.handles()[2] == ["5"]


def test_groups_do_not_wait_for_each_other() -> None:
    shard = Shard()

    shard.ack("a", "1", group="g")
    shard.ack("b", "2", group="h")

    assert [request.consumer_group for request, *_ in shard.calls] == ["g", "h"]


def test_a_call_names_no_more_handles_than_the_service_takes() -> None:
    shard = Shard()
    shard.ack("first", "0")
    for number in range(3):
        shard.ack(str(number), *(f"{number}-{at}" for at in range(HANDLE_COUNT_MAX // 2)))

    shard.end(0)
    shard.end(1)

    assert [len(handles) for handles in shard.handles()] == [1, HANDLE_COUNT_MAX, HANDLE_COUNT_MAX // 2]


def test_a_failed_call_is_told_to_all_that_share_it_and_the_next_ones_are_sent() -> None:
    shard = Shard()
    shard.ack("a", "1")
    shard.ack("b", "2")
    shard.ack("c", "3")
    shard.end(0)
    shard.ack("d", "4")
    failure = ServiceUnavailableError("gone")

    shard.calls[1][2](failure)

    assert shard.got["b"] is failure
    assert shard.got["c"] is failure
    assert shard.handles()[2] == ["4"]


def test_one_whose_time_is_over_before_it_is_sent_fails_alone() -> None:
    shard = Shard()
    shard.ack("a", "1")
    shard.ack("short", "2", seconds=1.0)
    shard.ack("long", "3", seconds=10.0)

    shard.now = 2.0
    shard.end(0)

    assert isinstance(shard.got["short"], DeadlineExceededError)
    assert shard.handles()[1] == ["3"]
    assert shard.calls[1][1] == 8.0
