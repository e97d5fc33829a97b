"""QueueEnd: whether a queue really ends where the consumer service of its shard says.

The consumer service follows the log some milliseconds behind, and for longer after a change of leaders. Its answer is the truth
once it has seen what the log had when it was asked (ADR 0086).
"""

from collections.abc import Callable

from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Pulled
from gateway.ports.shard import IS_WRITTEN_AT, LOG_END, Shard, list_queues
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import ServiceUnavailableError

# A consumer service that has not seen what the log had is asked again after such pauses, and after this time the caller fails.
BEHIND_PAUSE_SECONDS_MIN = 0.005
BEHIND_PAUSE_SECONDS_MAX = 0.25
BEHIND_SECONDS_MAX = 5.0


def is_at_end(question: pb.PullMessagesRequest, batch: Pulled) -> bool:
    """Whether the position is the queue's end as the consumer service knows it, or behind it."""
    if batch.answer.status == gateway_pb.PULL_STATUS_OFFSET_ILLEGAL:
        return question.queue_offset > batch.answer.max_offset
    return batch.answer.status == gateway_pb.PULL_STATUS_NO_NEW_MSG


class QueueEnd:
    """Where the log ended when a caller was at the end of a queue; for one caller.

    Args:
        shard: that of the queue.
        clock: seconds, rising.
    """

    def __init__(self, shard: Shard, clock: Callable[[], float]) -> None:
        self._shard = shard
        self._clock = clock
        self._ends_at = clock() + BEHIND_SECONDS_MAX
        self._offset: int | None = None
        self._pause_seconds = BEHIND_PAUSE_SECONDS_MIN

    def is_seen_by(self, question: pb.PullMessagesRequest, batch: Pulled, deadline: Deadline) -> bool:
        """Whether an answer has taken into account what the log had; the deadline is that of the call to the commitlog.

        Raises:
            ServiceUnavailableError: it has not after BEHIND_SECONDS_MAX.
            StoreError: the commitlog does not say where its log ends.
        """
        shard, answer = self._shard, batch.answer
        seen_offset = answer.seen_offset if answer.HasField("seen_offset") else None
        if not shard.has(LOG_END):
            return True
        if seen_offset is None:
            return not self._has_more(question, batch, deadline)
        if self._offset is None:
            if seen_offset and shard.call(IS_WRITTEN_AT, seen_offset, deadline) is False:
                return True
            self._offset = shard.call(LOG_END, log_pb.GetStatusRequest(flush_soon=True), deadline)
        if self._offset is not None and self._offset <= seen_offset:
            return True
        if self._clock() < self._ends_at:
            return False
        had = "is being recovered" if self._offset is None else f"had {self._offset} bytes"
        raise ServiceUnavailableError(
            f"The consumer service of shard {self._shard.broker_name} has seen the log up to byte {seen_offset}, and the log "
            f"{had}: whether queue {question.queue_id} of {question.topic!r} ends at position {question.queue_offset} is not "
            "known. Ask again; reput status shows the service.",
            service="consumer",
            brokerName=self._shard.broker_name,
        )

    def _has_more(self, question: pb.PullMessagesRequest, batch: Pulled, deadline: Deadline) -> bool:
        """For a service of an older release, which does not say what it has seen: whether queries find more, for a while."""
        if self._clock() >= self._ends_at:
            return False
        return any(
            each.queue_id == question.queue_id
            and each.max_offset > batch.answer.max_offset
            and each.max_offset >= question.queue_offset
            for each in list_queues(self._shard, question.topic, deadline)
        )

    def pause(self) -> float:
        """Seconds until the next look."""
        seconds, self._pause_seconds = self._pause_seconds, min(self._pause_seconds * 2, BEHIND_PAUSE_SECONDS_MAX)
        return seconds
