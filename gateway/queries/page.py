"""Page: messages up to a count and a number of bytes."""

from dataclasses import dataclass, field
from typing import Generic

from gateway.ports.shard import FoundRecord, Message, Message_co
from gateway.queries.limits import PAGE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class PageEntry(Generic[Message_co]):
    """A message of a page; with `body_omitted` its body stays out of the answer."""

    broker_name: str
    record: FoundRecord[Message_co]
    body_omitted: bool


@dataclass(slots=True)
class Page(Generic[Message]):
    """Collects entries until the page is full.

    Args:
        count_max: messages that fit.
        bytes_max: bytes that fit, properties included.
    """

    count_max: int
    bytes_max: int = PAGE_BYTES_MAX
    entries: list[PageEntry[Message]] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def missing_count(self) -> int:
        """Messages that still fit by count."""
        return self.count_max - len(self.entries)

    @property
    def free_bytes(self) -> int:
        """Bytes that are left."""
        return max(self.bytes_max - self.size_bytes, 0)

    def wants_body(self, record: FoundRecord[object]) -> bool:
        """Whether the omitted body of the record would fit, so that the record must be read again with it."""
        return record.body_omitted and self._fits(record, with_body=True)

    def add(self, broker_name: str, record: FoundRecord[Message]) -> bool:
        """Add the record if it fits; False ends the page.

        A record whose body does not fit begins the next page; only a body too large for any page is omitted.
        """
        if self.missing_count <= 0:
            return False
        with_body = not record.body_omitted and self._fits(record, with_body=True)
        if not with_body and self.entries and not self._too_large_for_any_page(record):
            return False
        # An empty page accepts any message; otherwise no page could get past it.
        if not with_body and self.entries and not self._fits(record, with_body=False):
            return False
        self.entries.append(PageEntry(broker_name, record, not with_body))
        self.size_bytes += record.head_size_bytes + (record.body_size_bytes if with_body else 0)
        return True

    def _fits(self, record: FoundRecord[object], *, with_body: bool) -> bool:
        return record.head_size_bytes + (record.body_size_bytes if with_body else 0) <= self.free_bytes

    def _too_large_for_any_page(self, record: FoundRecord[object]) -> bool:
        return record.head_size_bytes + record.body_size_bytes > self.bytes_max
