"""From a dispatched record to its queue unit.

Prepared and rolled-back transaction records have no place in a queue: RocketMQ moves a committed message into its real
queue by a record of its own. Source: `CommitLogDispatcherBuildConsumeQueue` of RocketMQ 5.3.3.
"""

from typing import NamedTuple

from store.dispatch import DispatchRequest
from store.format.queue_unit import UNIT
from store.format.sys_flag import TRANSACTION_MASK, TransactionType

_SKIPPED = frozenset((int(TransactionType.PREPARED), int(TransactionType.ROLLBACK)))


class PlacedUnit(NamedTuple):
    """A unit and where it belongs; `unit` are the 20 bytes, `queue_offset` counts units."""

    topic: str
    queue_id: int
    queue_offset: int
    unit: bytes


def place_unit(request: DispatchRequest) -> PlacedUnit | None:
    """The unit of a record, or None when queues skip it."""
    if request.sys_flag & TRANSACTION_MASK in _SKIPPED:
        return None
    unit = UNIT.pack(request.commit_log_offset, request.record_size_bytes, request.tags_code)
    return PlacedUnit(request.topic, request.queue_id, request.queue_offset, unit)
