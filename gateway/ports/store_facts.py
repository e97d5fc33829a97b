"""What a shard's store says of its messages as a whole: where others may be that are not read, and which were deleted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from store.errors import StoreError

ANY_TOPIC = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """See the top of this file.

    Attributes:
        held_elsewhere: by topic, or ANY_TOPIC: why the store may hold more messages than its log, where they are not read.
        deleted_before: by topic: its messages before this byte of the log were deleted with the topic.
    """

    held_elsewhere: Mapping[str, StoreError] = field(default_factory=dict)
    deleted_before: Mapping[str, int] = field(default_factory=dict)

    def elsewhere(self, topic: str) -> StoreError | None:
        """Why messages of a topic, or of any topic with ANY_TOPIC, may be missing; None: the log has all that there are."""
        if topic == ANY_TOPIC:
            return next(iter(self.held_elsewhere.values()), None)
        return self.held_elsewhere.get(topic) or self.held_elsewhere.get(ANY_TOPIC)
