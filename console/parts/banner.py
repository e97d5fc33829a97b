"""The banner above an answer: how complete it is, which shards are missing and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

COMPLETENESS = {0: "unknown", 1: "complete", 2: "truncated", 3: "partial"}


@dataclass(frozen=True, slots=True)
class ShardNote:
    """A shard that is missing, with its error (google.rpc.Status), or behind.

    `replicas` answered instead of its leader; what was confirmed more than `stale_seconds` before is there, None: not known.
    """

    broker_name: str
    error: Any
    behind_bytes: int = 0
    replicas: str = ""
    stale_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Banner:
    """The banner above an answer.

    Attributes:
        kind: `complete`, `truncated` or `partial`.
        notes: shards that are missing or behind.
        took_millis: how long the answer took.
        begin_millis: begin of the window that was used; None without a limit.
        end_millis: its end.
        is_partial_before: whether it is `partial` only because of an earlier page.
    """

    kind: str
    notes: tuple[ShardNote, ...]
    took_millis: float
    begin_millis: int | None = None
    end_millis: int | None = None
    is_partial_before: bool = False


def banner_of(answer: Any, took_millis: float, *, has_next: bool = False, was_partial: bool = False) -> Banner:
    """The banner of any answer with `completeness` and `shards`.

    A complete answer that is not the end of a queue (`has_next`) is shown as `truncated`. An answer after a partial page
    (`was_partial`) is shown as `partial`.
    """
    kind = COMPLETENESS.get(answer.completeness, "unknown")
    is_partial_before = was_partial and kind in ("complete", "truncated")
    if is_partial_before:
        kind = "partial"
    return Banner(
        "truncated" if has_next and kind == "complete" else kind,
        tuple(_notes(getattr(answer, "shards", ()))),
        took_millis,
        _millis(answer, "begin_time"),
        _millis(answer, "end_time"),
        is_partial_before,
    )


def _notes(shards: Iterable[Any]) -> Iterable[ShardNote]:
    for shard in shards:
        behind_bytes = max(0, shard.log_end_offset - shard.indexed_up_to_offset)
        if shard.HasField("error"):
            yield ShardNote(shard.broker_name, shard.error, **_staleness(shard))
        elif shard.catching_up or behind_bytes:
            yield ShardNote(shard.broker_name, None, behind_bytes)


def _staleness(shard: Any) -> dict[str, Any]:
    """The last fields of a note."""
    seconds = shard.staleness.ToMilliseconds() / 1000 if shard.HasField("staleness") else None
    return {"replicas": ", ".join(shard.replicas), "stale_seconds": seconds}


def _millis(answer: Any, field: str) -> int | None:
    if field not in answer.DESCRIPTOR.fields_by_name or not answer.HasField(field):
        return None
    millis: int = getattr(answer, field).ToMilliseconds()
    return millis
