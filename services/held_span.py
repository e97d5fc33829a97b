"""The store times that a store holds: the console and the command tell them when a query found no message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from store.format.host import Host
from store.format.message_id import encode_offset_msg_id

HELD = "The store holds messages from {begin} to {end}."
OLDER_GONE = "Older messages are gone."
# Of each shard the first message is read.
SHARD_COUNT_MAX = 8
# The gateway reads the offset of an id and never dials its address.
_ANY_HOST = Host("127.0.0.1", 10911)


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """The store times of the messages in the log.

    Attributes:
        oldest_millis: of the first one.
        newest_millis: of the last one.
        has_removed: whether older messages were there and retention removed them.
    """

    oldest_millis: int
    newest_millis: int
    has_removed: bool


@dataclass(frozen=True, slots=True)
class LogSpan:
    """The log of one shard: its name, its range in bytes, and the store time of its newest message; None: not known."""

    broker_name: str
    first_offset: int
    end_offset: int
    newest_millis: int | None


def held_span(logs: Sequence[LogSpan], first_millis: Callable[[str, str], int]) -> HeldSpan | None:
    """The span of all shards; None when it is not known, or there are too many shards.

    Args:
        logs: of all shards.
        first_millis: the store time of a message by its offsetMsgId and its shard.
    """
    filled = [log for log in logs if log.end_offset > log.first_offset]
    newest = [log.newest_millis for log in filled if log.newest_millis is not None]
    if not filled or len(logs) > SHARD_COUNT_MAX or len(newest) < len(filled):
        return None
    oldest = min(first_millis(encode_offset_msg_id(_ANY_HOST, log.first_offset), log.broker_name) for log in filled)
    return HeldSpan(oldest, max(newest), any(log.first_offset > 0 for log in filled))


def log_spans(services: Sequence[Any], millis_of: Callable[[Any], int | None]) -> list[LogSpan]:
    """The logs among the rows of a status; `millis_of` gives the newest store time of a row."""
    return [
        LogSpan(row.broker_name, row.log_first_offset, row.log_end_offset, millis_of(row))
        for row in services
        if row.service == "commitlog"
    ]
