"""Positions in queues, as options and checkpoints write them.

    option      {"Orders": {"0": 12, "1": -2}}                        one shard: the queue alone
                {"Orders": {"broker-a": {"0": 12, "1": -2}}}          several: the shard comes between
    checkpoint  {"v": 1, "q": {"Orders": {"broker-a": {"0": 12}}}}    always with the shard: one more may join

-2 is the earliest and -1 the latest position. A position is the queue offset of the next message, so as an end it is
exclusive.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.options import OptionError, parse_time
from pipeline.sources.rocketmq_errors import OffsetError

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
    """Where queues are to begin or to end; exactly one is set.

    Attributes:
        everywhere: EARLIEST or LATEST, for all queues.
        time_millis: the first message stored at or after this time.
        positions: for each queue; the broker may be ANY_BROKER where there is one shard.
    """

    everywhere: int | None = None
    time_millis: int | None = None
    positions: Mapping[QueueKey, int] | None = None


def bound_of(given: Mapping[str, str], offsets_name: str, time_name: str, default: int, refused: int | None) -> Bound:
    """The bound that a pair of options gives.

    Args:
        given: the options.
        offsets_name: the one that says earliest, latest or JSON.
        time_name: the one with a time, in milliseconds since 1970 UTC or as ISO.
        default: EARLIEST or LATEST.
        refused: the one of the two that makes no sense here.

    Raises:
        OptionError: not of this form.
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
        raise OptionError(
            f'Option {offsets_name} is {text!r}: {", ".join(names)} or {{"topic":{{"0":12}}}} is possible.'
        )
    if everywhere is not None:
        bound = Bound(everywhere=everywhere)
    else:
        bound = Bound(positions=_positions_of(parse_json(text, offsets_name), offsets_name))
    if refused is not None and refused in {bound.everywhere, *(bound.positions or {}).values()}:
        name = next(name for name, value in _NAMED.items() if value == refused)
        raise OptionError(f"Option {offsets_name}: {name} ({refused}) makes no sense here; {' or '.join(names)} does.")
    return bound


def parse_json(text: str, name: str) -> Any:
    """The JSON value of an option."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"Option {name} is no JSON: {error}.") from error


def _positions_of(value: Any, name: str) -> Positions:
    positions = {}
    for key, position in _leaves(value, name):
        if not isinstance(position, int) or isinstance(position, bool) or position < EARLIEST:
            raise OptionError(
                f"Option {name}: {position!r} is no position of {key}: a number from 0, -2 (earliest) or -1 (latest)."
            )
        positions[key] = position
    return positions


def assigned_queues(text: str, name: str = "assign") -> dict[str, dict[str, tuple[int, ...]]]:
    """Queue ids by topic and broker, from `{"Orders": [0, 1]}` or `{"Orders": {"broker-a": [0, 1]}}`."""
    value = parse_json(text, name)
    assigned: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, inner in _object(value, name, "topics").items():
        by_broker = inner if isinstance(inner, dict) else {ANY_BROKER: inner}
        for broker_name, queue_ids in by_broker.items():
            right = isinstance(queue_ids, list) and bool(queue_ids)
            if not right or any(type(queue_id) is not int or queue_id < 0 for queue_id in queue_ids):
                raise OptionError(f"Option {name}: {queue_ids!r} is no list of queue ids of topic {topic!r}.")
            assigned.setdefault(topic, {})[broker_name] = tuple(dict.fromkeys(queue_ids))
    if not assigned:
        raise OptionError(f"Option {name} names no topic.")
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
        raise OptionError(f"Option {name}: {value!r} is no JSON object of {what}.")
    return value


def _queue_id(text: str, name: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"Option {name}: {text!r} is no queue id.")
    return int(text)


def to_checkpoint(positions: Mapping[QueueKey, int]) -> dict[str, Any]:
    """What Spark writes down for a stream; equal positions make equal JSON."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(positions):
        queues.setdefault(key.topic, {}).setdefault(key.broker_name, {})[str(key.queue_id)] = positions[key]
    return {"v": CHECKPOINT_VERSION, "q": queues}


def from_checkpoint(offset: Mapping[str, Any]) -> Positions:
    """The positions of a stream's offset.

    Raises:
        OffsetError: it is not one that this source wrote.
    """
    if offset.get("v") != CHECKPOINT_VERSION or not isinstance(offset.get("q"), dict):
        raise OffsetError(
            f"The checkpoint's offset {json.dumps(offset)[:200]} is not one of this source (version "
            f"{CHECKPOINT_VERSION}): start with a checkpoint location of its own."
        )
    return {
        QueueKey(topic, broker_name, int(queue_id)): int(position)
        for topic, brokers in offset["q"].items()
        for broker_name, queues in brokers.items()
        for queue_id, position in queues.items()
    }
