"""Positions in queues, and their form in options and checkpoints.

    option      {"Orders": {"0": 12, "1": -2}}                        one shard: only the queue
                {"Orders": {"broker-a": {"0": 12, "1": -2}}}          several: with the shard
    checkpoint  {"v": 1, "q": {"Orders": {"broker-a": {"0": 12}}}}    always with the shard: more may join

-2 is the earliest and -1 the latest position. A position is the queue offset of the next message to read; an end is
exclusive.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.rocketmq.errors import OffsetError
from pipeline.scan.options import OptionError, parse_time

EARLIEST = -2
LATEST = -1
ANY_BROKER = ""
CHECKPOINT_VERSION = 1
_NAMED = {"earliest": EARLIEST, "latest": LATEST}


class QueueKey(NamedTuple):
    """A queue of a shard."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        where = f" of {self.broker_name}" if self.broker_name else ""
        return f"queue {self.queue_id} of topic {self.topic!r}{where}"


Positions = dict[QueueKey, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where queues begin or end; exactly one attribute is set.

    Attributes:
        everywhere: EARLIEST or LATEST, for all queues.
        time_millis: the first message stored at or after this time, milliseconds since 1970 UTC.
        positions: the position of each queue; the broker name may be ANY_BROKER where there is one shard.
    """

    everywhere: int | None = None
    time_millis: int | None = None
    positions: Mapping[QueueKey, int] | None = None


def bound_of(given: Mapping[str, str], offsets_name: str, time_name: str, default: int, refused: int | None) -> Bound:
    """The bound that a pair of options gives.

    Args:
        given: the options.
        offsets_name: the option with earliest, latest or JSON.
        time_name: the option with a time, in milliseconds since 1970 UTC or ISO 8601.
        default: EARLIEST or LATEST, without these options.
        refused: which of EARLIEST and LATEST makes no sense here; None: both are accepted.

    Raises:
        OptionError: an option has another form.
    """
    if time_name in given:
        try:
            return Bound(time_millis=max(parse_time(given[time_name]), 0))
        except ValueError as error:
            raise OptionError(f"Option {time_name} is {given[time_name]!r}: {error}.") from error
    text = given.get(offsets_name, "").strip()
    if not text:
        return Bound(everywhere=default)
    everywhere = _NAMED.get(text.lower())
    names = [name for name, value in _NAMED.items() if value != refused]
    if everywhere is None and not text.startswith("{"):
        raise OptionError(f'Option {offsets_name} is {text!r}: give {", ".join(names)} or {{"topic":{{"0":12}}}}.')
    if everywhere is not None:
        bound = Bound(everywhere=everywhere)
    else:
        bound = Bound(positions=_positions_of(parse_json(text, offsets_name), offsets_name))
    if refused is not None and refused in {bound.everywhere, *(bound.positions or {}).values()}:
        name = next(name for name, value in _NAMED.items() if value == refused)
        raise OptionError(f"Option {offsets_name}: {name} ({refused}) makes no sense here: give {' or '.join(names)}.")
    return bound


def parse_json(text: str, name: str) -> Any:
    """The JSON value of an option; OptionError for other texts."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"Option {name} is not JSON: {error}.") from error


def _positions_of(value: Any, name: str) -> Positions:
    positions = {}
    for key, position in _leaves(value, name):
        if not isinstance(position, int) or isinstance(position, bool) or position < EARLIEST:
            raise OptionError(
                f"Option {name}: {position!r} is not a position of {key}: give 0 or more, -2 (earliest) or -1 (latest)."
            )
        positions[key] = position
    return positions


def assigned_queues(text: str, name: str = "assign") -> dict[str, dict[str, tuple[int, ...]]]:
    """Queue ids by topic and broker name, from `{"Orders": [0, 1]}` or `{"Orders": {"broker-a": [0, 1]}}`."""
    value = parse_json(text, name)
    assigned: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, inner in _object(value, name, "topics").items():
        by_broker = inner if isinstance(inner, dict) else {ANY_BROKER: inner}
        for broker_name, queue_ids in by_broker.items():
            right = isinstance(queue_ids, list) and bool(queue_ids)
            if not right or any(type(queue_id) is not int or queue_id < 0 for queue_id in queue_ids):
                raise OptionError(
                    f"Option {name}: {queue_ids!r} is not a list of queue ids of topic {topic!r}: give, for example, [0]."
                )
            assigned.setdefault(topic, {})[broker_name] = tuple(dict.fromkeys(queue_ids))
    if not assigned:
        raise OptionError(f'Option {name} names no topic: give {{"topic": [0, 1]}}.')
    return assigned


def _leaves(value: Any, name: str) -> Iterator[tuple[QueueKey, Any]]:
    for topic, inner in _object(value, name, "topics").items():
        for first, below in _object(inner, name, f"queues of topic {topic!r}").items():
            if isinstance(below, dict):
                for queue_id, leaf in below.items():
                    yield QueueKey(topic, first, _queue_id(queue_id, name)), leaf
            else:
                yield QueueKey(topic, ANY_BROKER, _queue_id(first, name)), below


def _object(value: Any, name: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(f"Option {name}: {value!r} is not a JSON object of {what}.")
    return value


def _queue_id(text: str, name: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"Option {name}: {text!r} is not a queue id: give a whole number of 0 or more.")
    return int(text)


def to_checkpoint(positions: Mapping[QueueKey, int]) -> dict[str, Any]:
    """The offset that Spark stores for a stream; equal positions make equal JSON."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(positions):
        queues.setdefault(key.topic, {}).setdefault(key.broker_name, {})[str(key.queue_id)] = positions[key]
    return {"v": CHECKPOINT_VERSION, "q": queues}


def from_checkpoint(offset: Mapping[str, Any]) -> Positions:
    """The positions of a stream's offset.

    Raises:
        OffsetError: this source did not write it.
    """
    if offset.get("v") != CHECKPOINT_VERSION or not isinstance(offset.get("q"), dict):
        raise OffsetError(
            f"The checkpoint's offset {json.dumps(offset)[:200]} was not written by this source (version "
            f"{CHECKPOINT_VERSION}): start the query with a new checkpoint location."
        )
    return {
        QueueKey(topic, broker_name, int(queue_id)): int(position)
        for topic, brokers in offset["q"].items()
        for broker_name, queues in brokers.items()
        for queue_id, position in queues.items()
    }
