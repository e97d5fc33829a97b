"""What a store says of its messages as a whole, from its commitlog service."""

from gateway.ports.deadline import Deadline
from gateway.ports.store_facts import ANY_TOPIC, StoreFacts
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.reading.deleted_topics import DeletedTopics
from store.errors import UnsupportedStoreError


class RemoteStoreFacts:
    """One call each LOOK_SECONDS at most, whose answer is small while nothing changes.

    Args:
        topics: asks the commit log.
    """

    def __init__(self, topics: DeletedTopics) -> None:
        self._topics = topics
        self._known: tuple[pb.ListTopicsResponse | None, StoreFacts] = None, StoreFacts()

    def facts(self, request: None, deadline: Deadline) -> StoreFacts:
        """STORE_FACTS."""
        table = self._topics.table(deadline.remaining_seconds())
        seen, facts = self._known  # one field: another caller may have an older table, and put its facts here meanwhile
        if table is not seen:
            facts = _facts(table)
            self._known = table, facts
        return facts


def _facts(table: pb.ListTopicsResponse) -> StoreFacts:
    held = {topic: _not_read(topic, held) for topic, held in table.held_elsewhere.items()}
    return StoreFacts(held, dict(table.deleted_before))


def _not_read(topic: str, held: pb.ListTopicsResponse.HeldElsewhere) -> UnsupportedStoreError:
    error = UnsupportedStoreError(f"Messages may be missing: {held.text}.", feature=held.feature)
    if topic != ANY_TOPIC:
        error.metadata["topic"] = topic
    return error
