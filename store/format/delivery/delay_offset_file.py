"""RocketMQ's `config/delayOffset.json`: how far each delay level is delivered.

    {"dataVersion": {...}, "offsetTable": {"1": 10, "2": 10}}

How it is written and who wrote it last: config_json.py. Ours has two more numbers in the member `reput`, which belong into
`consumerOffset.json`: below the position `half` of the half topic every transaction has ended, and no operation below the
position `operation` of the operation topic is about one at or behind `half`. Source: `DelayOffsetSerializeWrapper` of RocketMQ
5.3.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from store.format.config_json import OWN_MEMBER, dump_document, load_document, next_document

# Whose positions a broker looks for in consumerOffset.json (`TransactionalMessageUtil.buildConsumerGroup`).
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
POSITION_MAX = (1 << 63) - 1
LEVEL_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class TransactionOffsets:
    """See the top of this file: positions in queue 0 of both topics."""

    half: int = 0
    operation: int = 0


def decode_delay_offsets(data: bytes) -> dict[int, int]:
    """The position of the next message of each level; entries that are none are left out.

    Raises:
        StoreCorruptedError: it is no JSON object; as the other functions.
    """
    table = load_document(data).get("offsetTable")
    return {
        int(level): position
        for level, position in (table.items() if isinstance(table, dict) else ())
        if _is_level(level) and _is_position(position)
    }


def problem_of_level(level: str, position: object) -> str:
    """Why the row of a level cannot be read; empty when it can. A negative position is none."""
    if not _is_level(level):
        return "it is no level"
    is_number = isinstance(position, int) and not isinstance(position, bool)
    return "" if is_number and position <= POSITION_MAX else f"its position is {str(position)[:20]!r}"  # type: ignore[operator]


def _is_level(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= LEVEL_DIGITS_MAX and int(text) > 0


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= POSITION_MAX


def decode_transaction_offsets(data: bytes) -> TransactionOffsets | None:
    """The two numbers; None in a file that a broker wrote."""
    own = load_document(data).get(OWN_MEMBER)
    positions = own.get("transactions") if isinstance(own, dict) else None
    if not isinstance(positions, dict):
        return None
    half, operation = positions.get("half"), positions.get("operation")
    if not isinstance(half, int) or not isinstance(operation, int) or half < 0 or operation < 0:
        return None
    return TransactionOffsets(half, operation)


def encode_delay_offsets(
    offsets: Mapping[int, int], transactions: TransactionOffsets, previous: bytes | None, *, time_millis: int
) -> bytes:
    """A new file with exactly these positions; members that are not known are kept from the file before."""
    document = next_document(previous, time_millis)
    document["offsetTable"] = {str(level): position for level, position in sorted(offsets.items())}
    document[OWN_MEMBER]["transactions"] = {"half": transactions.half, "operation": transactions.operation}
    return dump_document(document)
