"""Cursor: the position inside a page token at which a scan goes on.

    shard, queue, begin, end    what is left: `[begin, end)` of this queue, the queues behind it in this shard, and all
                                shards behind this one
    queue = -1                  the scan of this shard has not begun
    skipped:NAME                a shard that did not answer on an earlier page: no later page is complete
    passed, total               the positions that the scan has passed, of all counted ones; only if the caller counts

A queue's range is fixed when the scan reaches the queue. So a scan ends although messages are appended meanwhile, and it
returns each message once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_SKIPPED = "skipped:"
QUEUE_NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the order of shards and queues. `skipped` names shards of earlier pages. The scan has passed
    `passed_count` of `total_count` positions; both are 0 when they are not counted."""

    broker_name: str
    queue_id: int = QUEUE_NOT_BEGUN
    begin_offset: int = 0
    end_offset: int = 0
    skipped: frozenset[str] = frozenset()
    passed_count: int = 0
    total_count: int = 0

    def to_fields(self) -> dict[str, str | int]:
        """The fields of a page token."""
        fields: dict[str, str | int] = {
            "shard": self.broker_name,
            "queue": self.queue_id,
            "begin": self.begin_offset,
            "end": self.end_offset,
        }
        if self.total_count:
            fields |= {"passed": self.passed_count, "total": self.total_count}
        return fields | {_SKIPPED + name: 1 for name in self.skipped}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str | int]) -> "Cursor | None":
        """The cursor of these fields; None at the beginning. The token is sealed, so the fields come from `to_fields`."""
        if not fields:
            return None
        skipped = frozenset(name.removeprefix(_SKIPPED) for name in fields if name.startswith(_SKIPPED))
        return cls(
            str(fields["shard"]),
            int(fields["queue"]),
            int(fields["begin"]),
            int(fields["end"]),
            skipped,
            int(fields.get("passed", 0)),
            int(fields.get("total", 0)),
        )
