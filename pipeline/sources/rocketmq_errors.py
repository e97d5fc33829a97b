"""How reading or writing a topic fails, besides what the client library and the options raise."""

from collections.abc import Sequence


class OffsetError(ValueError):
    """A position does not fit the queues that are there, or a checkpoint is not one of ours."""


class DataLostError(RuntimeError):
    """Messages between two positions are gone, and the query wants to know.

    Args:
        message: which, and what to do.
        topic: the topic.
        broker_name: the shard.
        queue_id: the queue.
        begin: the first position that is gone, in messages.
        end: the position behind the last one.
    """

    def __init__(self, message: str, topic: str, broker_name: str, queue_id: int, begin: int, end: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.begin = begin
        self.end = end

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.args[0], self.topic, self.broker_name, self.queue_id, self.begin, self.end))


class NotDeliveredError(RuntimeError):
    """Rows could not be appended to their topic; the cause is the client library's error."""


class ShardConflictError(RuntimeError):
    """Two gateways, or the rows of a sink, cannot be told apart by shard.

    Args:
        message: what and what to do.
        broker_names: the shards.
    """

    def __init__(self, message: str, broker_names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.broker_names = tuple(broker_names)
