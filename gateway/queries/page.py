"""Page: messages up to a count and a number of bytes.

Beside it, the limits of requests and answers, and the checks whose errors name the field.
"""

from dataclasses import dataclass, field

from gateway.ports.shard import body_size_bytes, head_size_bytes
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import InvalidArgumentError
from store.format.properties import PROPERTIES_SIZE_BYTES_MAX

PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1000
# 3.5 MiB: below the 4 MiB that gRPC clients receive by default, with room for what surrounds the messages.
PAGE_BYTES_MAX = 3_670_016
BODY_CHUNK_BYTES = 1 << 20
# Rounds of candidates asked of one shard's index in one call: a key that shares its hash with many others ends the page
# early, perhaps empty, with a token to go on.
CANDIDATE_ROUNDS_MAX = 16
# Candidates asked for at least, once the first round was not enough.
CANDIDATE_ROUND_COUNT = 64
QUEUE_OFFSET_MAX = (1 << 63) - 1
_NAME_BYTES_MAX = 255


def page_size(asked: int, field: str) -> int:
    """0 is the default, above the maximum is clamped; InvalidArgumentError when negative."""
    if asked < 0:
        raise InvalidArgumentError(f"{field} is {asked}: it must be 0 (the default) or more.", field=field, value=asked)
    return min(asked or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def check_topic(topic: str) -> None:
    """InvalidArgumentError for a text that cannot be a topic's name, because names become directories.

    It accepts more than an append does, so that every topic of a foreign store can be queried.
    """
    if not topic:
        raise InvalidArgumentError("topic is empty: name the topic to look in.", field="topic")
    check_topic_size(topic)
    if topic in {".", ".."} or any(character == "/" or character < " " or character == "\x7f" for character in topic):
        raise InvalidArgumentError(f"{topic!r} can be no topic's name.", field="topic", value=topic)


def check_topic_size(topic: str) -> None:
    """InvalidArgumentError for a name longer than a topic can have."""
    size_bytes = len(topic.encode())
    if size_bytes > _NAME_BYTES_MAX:
        raise InvalidArgumentError(
            f"topic has {size_bytes} bytes: at most {_NAME_BYTES_MAX} are possible.",
            field="topic",
            sizeBytes=size_bytes,
        )


def check_not_empty(text: str, field: str) -> None:
    """InvalidArgumentError when the text is empty."""
    if not text:
        raise InvalidArgumentError(f"{field} is empty.", field=field)


def check_key(text: str, field: str) -> None:
    """InvalidArgumentError when the text is empty, or longer than all properties of a message together.

    Its hash is made once for each topic that is looked in.
    """
    check_not_empty(text, field)
    size_bytes = len(text.encode())
    if size_bytes > PROPERTIES_SIZE_BYTES_MAX:
        raise InvalidArgumentError(
            f"{field} has {size_bytes} bytes: at most {PROPERTIES_SIZE_BYTES_MAX} are possible.",
            field=field,
            sizeBytes=size_bytes,
        )


def check_not_negative(number: int, field: str) -> None:
    """InvalidArgumentError when the number is below 0."""
    if number < 0:
        raise InvalidArgumentError(f"{field} is {number}: it must be 0 or more.", field=field, value=number)


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A message of a page; with `body_omitted` its body stays out of the answer."""

    broker_name: str
    record: StoredMessage
    body_omitted: bool


@dataclass(slots=True)
class Page:
    """Collects entries until the page is full.

    Args:
        count_max: messages that fit.
        bytes_max: bytes that fit, properties included.
    """

    count_max: int
    bytes_max: int = PAGE_BYTES_MAX
    entries: list[PageEntry] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def missing_count(self) -> int:
        """Messages that still fit by count."""
        return self.count_max - len(self.entries)

    @property
    def free_bytes(self) -> int:
        """Bytes that are left."""
        return max(self.bytes_max - self.size_bytes, 0)

    def wants_body(self, record: StoredMessage) -> bool:
        """Whether the omitted body of the record would fit, so that the record must be read again with it."""
        return record.body_omitted and head_size_bytes(record) + body_size_bytes(record) <= self.free_bytes

    def add(self, broker_name: str, record: StoredMessage) -> bool:
        """Add the record if it fits; False ends the page.

        A record whose body does not fit begins the next page; only a body too large for any page is omitted.
        """
        if self.missing_count <= 0:
            return False
        head_bytes, body_bytes, free_bytes = head_size_bytes(record), body_size_bytes(record), self.free_bytes
        with_body = not record.body_omitted and head_bytes + body_bytes <= free_bytes
        if not with_body and self.entries:
            is_too_large_for_any_page = head_bytes + body_bytes > self.bytes_max
            # An empty page accepts any message; otherwise no page could get past it.
            if not is_too_large_for_any_page or head_bytes > free_bytes:
                return False
        self.entries.append(PageEntry(broker_name, record, not with_body))
        self.size_bytes += head_bytes + (body_bytes if with_body else 0)
        return True
