"""Errors of reading or writing a topic, besides those of the client library and of options."""

from collections.abc import Sequence


class OffsetError(ValueError):
    """A position does not fit the existing queues, or this source did not write the checkpoint."""


class DataLostError(RuntimeError):
    """Messages between two positions are gone, and failOnDataLoss is true.

    Args:
        message: which messages, and what to do.
        topic: the topic.
        broker_name: the shard.
        queue_id: the queue.
        begin: the first lost queue offset.
        end: the queue offset after the last lost one.
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


class FilterNotAppliedError(RuntimeError):
    """Messages of a range can be read, but not by a filter that the query has."""


class NotDeliveredError(RuntimeError):
    """Rows could not be appended to their topic; the cause is the client library's error."""


class ShardConflictError(RuntimeError):
    """Two gateways have a shard of the same name, or a sink's gateway has several shards.

    Args:
        message: the conflict, and what to do.
        broker_names: the shards.
    """

    def __init__(self, message: str, broker_names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.broker_names = tuple(broker_names)
