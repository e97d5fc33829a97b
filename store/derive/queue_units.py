"""The queue unit of a record: which records have one, and where it belongs.

Records of prepared and of rolled-back transactions have none: RocketMQ moves a committed message to its real queue by a
record of its own. Batches of batch queues have none. Source: `CommitLogDispatcherBuildConsumeQueue` of RocketMQ 5.3.3.

`queue_placement.py` decides whether the unit stands in the queue. `queue_runs.py` does the same for many records at once.
"""

from typing import NamedTuple

from store.derive.dispatch import DispatchRequest
from store.format.derived.queue_unit import UNIT
from store.format.sys_flag import INNER_BATCH, TransactionType

# A record whose sys_flag has this bit has no unit. PREPARED and ROLLBACK have it, NONE and COMMIT do not.
NO_UNIT_BIT = int(TransactionType.PREPARED)
# A record that is an inner batch takes several positions of a queue of another form (`batchconsumequeue/`): no unit, either.
NO_UNIT_BITS = NO_UNIT_BIT | INNER_BATCH

assert {kind for kind in TransactionType if kind & NO_UNIT_BIT} == {TransactionType.PREPARED, TransactionType.ROLLBACK}


def is_batch(sys_flag: int) -> bool:
    """Whether a record is an inner batch, and no part of a transaction that is open or rolled back.

    A broker takes such records only for topics in batch queues.
    """
    return sys_flag & NO_UNIT_BITS == INNER_BATCH


class PlacedUnit(NamedTuple):
    """A unit (20 bytes), its queue, and its position in the queue."""

    topic: str
    queue_id: int
    queue_offset: int
    unit: bytes


def place_unit(request: DispatchRequest) -> PlacedUnit | None:
    """The unit of a record; None if it has none."""
    if request.sys_flag & NO_UNIT_BITS:
        return None
    unit = UNIT.pack(request.commit_log_offset, request.record_size_bytes, request.tags_code)
    return PlacedUnit(request.topic, request.queue_id, request.queue_offset, unit)
