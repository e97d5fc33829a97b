"""Page: messages up to a count and a number of bytes."""

from dataclasses import dataclass, field

from gateway.ports.shard import body_size_bytes, head_size_bytes
from gateway.queries.limits import PAGE_BYTES_MAX
from reput.message.v1.message_pb2 import StoredMessage


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
