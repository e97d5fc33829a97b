"""Page: messages up to a count and a number of bytes."""

from dataclasses import dataclass, field

from gateway.limits import PAGE_BYTES_MAX
from gateway.ports import FoundRecord


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A message of a page; with `body_omitted` its body stays out of the answer."""

    broker_name: str
    record: FoundRecord
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

    def wants_body(self, record: FoundRecord) -> bool:
        """Whether the record would be taken with a body that its reader left out: then it has to be read again."""
        return record.body_omitted and self._fits(record, with_body=True)

    def add(self, broker_name: str, record: FoundRecord) -> bool:
        """Take the record if it fits; False ends the page.

        A body that leaves no room begins the next page; only one too large for any page is omitted.
        """
        if self.missing_count <= 0:
            return False
        with_body = not record.body_omitted and self._fits(record, with_body=True)
        if not with_body and self.entries and not self._too_large_for_any_page(record):
            return False
        # An empty page takes a message in any case, or a query would never get past it.
        if not with_body and self.entries and not self._fits(record, with_body=False):
            return False
        self.entries.append(PageEntry(broker_name, record, not with_body))
        self.size_bytes += record.head_size_bytes + (record.body_size_bytes if with_body else 0)
        return True

    def _fits(self, record: FoundRecord, *, with_body: bool) -> bool:
        return record.head_size_bytes + (record.body_size_bytes if with_body else 0) <= self.free_bytes

    def _too_large_for_any_page(self, record: FoundRecord) -> bool:
        return record.head_size_bytes + record.body_size_bytes > self.bytes_max
