"""StateTopic: what differs between the services that keep their state in a topic, and the kinds of its records.

The tag of a record says its kind. The state is what the newest whole full state says, changed by every record behind it:

    ... change change full-begin full full full-end change change ...
                      └──────── read from here ──────────────────┘
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError

from store.errors import StoreCorruptedError

CHANGE, FULL_BEGIN, FULL, FULL_END = "change", "full-begin", "full", "full-end"
STATE_QUEUE = 0

State = TypeVar("State")


class StateRecord(Protocol):
    """A body: `epoch` says which life of the service wrote it; each life has a larger number."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StateTopic(Generic[State]):
    """A topic of states.

    Attributes:
        name: of the topic.
        follower: name of the service as a follower.
        new_state: makes an empty state.
        parse: a record of a body; DecodeError when it is none.
        change_body: the body of a record with changes, given the epoch and the changes.
        piece_body: the body of a piece of a full state, given the epoch and the piece; None: of the records around them.
        apply: applies a record to a state, given its kind; returns how many changes it had. A full state that was not
            finished must have no effect.
    """

    name: str
    follower: str
    new_state: Callable[[], State]
    parse: Callable[[bytes], StateRecord]
    change_body: Callable[[int, Sequence[Any]], bytes]
    piece_body: Callable[[int, Any], bytes]
    apply: Callable[[State, str, Any], int]

    def record_of(self, commit_log_offset: int, body: bytes) -> StateRecord:
        """The record of a body; StoreCorruptedError when it is none."""
        try:
            return self.parse(body)
        except DecodeError as error:
            raise StoreCorruptedError(
                f"the record at {commit_log_offset} of topic {self.name} is no state record: {error}",
                file=self.name,
                offset=commit_log_offset,
            ) from error
