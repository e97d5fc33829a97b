"""How complete an answer is: the outcome of each shard, and what they mean for the whole.

PARTIAL outweighs TRUNCATED: all pages of a partial answer together may still lack matches.

`was_dropped` tells records that retention has dropped from missing ones.

Retention shortens queues and index files later than the log, so they may point at expired records. Queries skip these. An
offset behind the log's end, or one where no record starts, is damage: the queue or index belongs to another log, or its
bytes have changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from gateway.ports.shard import BuildProgress
from reput.message.v1 import message_pb2
from store.errors import OffsetOutOfRangeError, StoreError


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """How one shard took part.

    `error` says why matches of it are missing. `progress` is its builder's, None when it was not asked.
    `complete` is False when matches of this shard may be missing from the answer.
    """

    broker_name: str
    error: StoreError | None = None
    progress: BuildProgress | None = None
    complete: bool = True


def least_built(progresses: Iterable[BuildProgress | None]) -> BuildProgress | None:
    """Of several answers of one builder the progress of the one that may lack most: it gives the reason. None without any."""
    known = (progress for progress in progresses if progress is not None)
    return min(known, key=lambda one: (not one.is_behind, one.is_final, one.next_offset), default=None)


def judge(outcomes: Iterable[ShardOutcome], *, more: bool) -> message_pb2.Completeness:
    """The completeness of the whole; `more` when a next page has further matches."""
    if not all(outcome.complete for outcome in outcomes):
        return message_pb2.COMPLETENESS_PARTIAL
    return message_pb2.COMPLETENESS_TRUNCATED if more else message_pb2.COMPLETENESS_COMPLETE


def raise_first_error(outcomes: Iterable[ShardOutcome]) -> NoReturn:
    """Raise the first shard's error: when every shard failed, an empty list would hide it."""
    raise next(outcome.error for outcome in outcomes if outcome.error is not None)


def was_dropped(error: StoreError, commit_log_offset: int) -> bool:
    """Whether `error`, the outcome of reading the record at that offset (bytes), says that it expired."""
    if not isinstance(error, OffsetOutOfRangeError):
        return False
    try:
        return 0 <= commit_log_offset < int(error.metadata["firstOffset"])
    except (KeyError, ValueError):
        return False
