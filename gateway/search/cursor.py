"""Cursor: where a scan goes on, inside a page token.

    shard, queue, begin, end    of this queue only `[begin, end)` is left, of this shard only it and the queues behind it,
                                and all shards behind this one
    queue = -1                  the shard has not been begun
    skipped:NAME                a shard that did not answer on an earlier page: no later page is complete
    passed, total               positions that the scan has passed, of those that there were; only where they are counted

A queue's range is fixed when the scan gets to it. So a scan ends although others append, and gives what was there once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_SKIPPED = "skipped:"
QUEUE_NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the order of shards and queues; `skipped` names shards of earlier pages, `passed_count` of `total_count`
    positions lie behind it, 0 of 0 when they are not counted."""

    broker_name: str
    queue_id: int = QUEUE_NOT_BEGUN
    begin_offset: int = 0
    end_offset: int = 0
    skipped: frozenset[str] = frozenset()
    passed_count: int = 0
    total_count: int = 0

    def to_fields(self) -> dict[str, str | int]:
        """What a page token holds."""
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
        """The other way; None for the beginning. The fields come out of a seal and are what `to_fields` gave."""
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
