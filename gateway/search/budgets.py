"""Budgets: what one call of a scan may cost. To search further, a caller sends the page token.

    budget    counts                                             default     at most
    records   positions of queues, also those that the tag       100,000     1,000,000
              code alone rules out
    bytes     sizes of the records that are read                 64 MiB      1 GiB
    millis    wall time                                          5,000       20,000

The limits bound the time for which one caller keeps a thread of the gateway busy. A time budget also ends when a fifth of
the time to the caller's deadline is left, so that the answer arrives in time. Each call decides at least one position, or
passes an empty queue, whatever its budgets. So a caller that follows the page tokens reaches the end.
"""

from dataclasses import dataclass

from gateway.ports.deadline import Deadline
from gateway.queries.limits import check_not_negative
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb

RECORDS_DEFAULT = 100_000
RECORDS_MAX = 1_000_000
BYTES_DEFAULT = 64 << 20
BYTES_MAX = 1 << 30
MILLIS_DEFAULT = 5_000
MILLIS_MAX = 20_000
# The time to decide the records of a batch, also when reading them took all the time. Without it, a slow read would be
# repeated for each message.
DECIDING_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets that a caller gave: 0 means the default, and larger values are cut to the limit (table above).

    Raises:
        InvalidArgumentError: one is negative.
    """

    max_records: int = 0
    max_bytes: int = 0
    max_millis: int = 0

    def __post_init__(self) -> None:
        for name in ("max_records", "max_bytes", "max_millis"):
            check_not_negative(getattr(self, name), name)


class Meter:
    """Counts one call against its budgets.

    Args:
        budgets: of the call.
        deadline: the caller's deadline.

    Attributes:
        record_count: positions decided.
        size_bytes: total size of the records read.
        has_moved: whether the page has decided at least one position or passed a queue.
    """

    def __init__(self, budgets: Budgets, deadline: Deadline) -> None:
        self._records_max = min(budgets.max_records or RECORDS_DEFAULT, RECORDS_MAX)
        self._bytes_max = min(budgets.max_bytes or BYTES_DEFAULT, BYTES_MAX)
        millis = min(budgets.max_millis or MILLIS_DEFAULT, MILLIS_MAX)
        self._deadline = deadline
        self._stop_at_seconds = deadline.clock() + millis / 1000
        self.record_count = 0
        self.size_bytes = 0
        self.has_moved = False
        self._decide_until_seconds = 0.0

    def begin_batch(self) -> None:
        """Call it after reading a batch of records, before deciding them."""
        self._decide_until_seconds = self._deadline.clock() + DECIDING_SECONDS

    @property
    def free_records(self) -> int:
        """Positions that may still be decided."""
        return self._records_max - self.record_count

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be read. The first record is read whatever its size."""
        return self._bytes_max - self.size_bytes

    @property
    def time_is_over(self) -> bool:
        """Whether the page must end now."""
        return self._deadline.clock() >= self._stop_at_seconds or self._deadline.is_near()

    @property
    def batch_is_over(self) -> bool:
        """Whether to leave the rest of the batch to the next page; False in the first DECIDING_SECONDS of the batch."""
        return self._deadline.clock() >= self._decide_until_seconds and self.time_is_over

    def stop(self) -> "gateway_pb.SearchStop | None":
        """The budget that is used up; None before the scan has moved."""
        if not self.has_moved:
            return None
        if self.free_records <= 0:
            return gateway_pb.SEARCH_STOP_RECORDS
        return gateway_pb.SEARCH_STOP_TIME if self.time_is_over else None
