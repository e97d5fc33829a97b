"""StateLog waits for the queues as long as a record can come, and no longer."""

from typing import Any

from consumer_svc.state_topic import TOPIC
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following.state_topic.state_log import StateLog
from tests.support.calls import Answers


class Queues(Answers):
    """GetStatus of a consumequeue service: it answers when its next offset passes, or when the wait is over."""

    def __init__(self, *next_offsets: int) -> None:
        self._next_offsets = list(next_offsets)
        self.waited_millis = 0

    def GetStatus(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        if request.wait_millis and len(self._next_offsets) > 1:
            self._next_offsets.pop(0)
        if self._next_offsets[0] <= request.past_offset:
            self.waited_millis += request.wait_millis
        return pb.GetStatusResponse(next_offset=self._next_offsets[0])


def _log(queues: Any) -> StateLog[Any]:
    return StateLog(TOPIC, queues, queues)


def test_an_empty_log_is_not_waited_for_at_a_start() -> None:
    queues = Queues(0)
    _log(queues).wait_for_queues(0)
    assert queues.waited_millis == 0


def test_queues_that_are_behind_are_waited_for() -> None:
    queues = Queues(0, 50, 100)
    _log(queues).wait_for_queues(100)
    assert queues.waited_millis > 0
