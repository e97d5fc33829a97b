"""Which messages a query reads: chooses queues by the subscription, resolves positions, and cuts ranges into tasks.

All decisions depend only on their arguments and on what the queues hold (`HeldRange`), so a restart from a checkpoint makes
the same ones.

How far one micro-batch reads when a limit is set.

Each queue gets a share in proportion to its unread messages, so that all catch up together, and at least one message: a short
queue does not wait for one that is always long. When there are more queues than messages allowed, they take turns.
"""

import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.rocketmq.errors import DataLostError, OffsetError
from pipeline.rocketmq.gateway import HeldRange
from pipeline.rocketmq.options import Subscription
from pipeline.rocketmq.positions import ANY_BROKER, EARLIEST, LATEST, Bound, Positions, QueueKey
from reput_client.errors import QueueNotFoundError, TopicNotFoundError

Ranges = Mapping[QueueKey, HeldRange]
_log = logging.getLogger("reput.pipeline")


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Messages `[begin, end)` of a queue, as queue offsets, and the gateway that serves them."""

    endpoint: str
    key: QueueKey
    begin: int
    end: int

    @property
    def message_count(self) -> int:
        """Messages in the range, if none is lost."""
        return self.end - self.begin


def choose_queues(ranges: Ranges, subscription: Subscription) -> dict[QueueKey, HeldRange]:
    """The queues of the subscription, sorted.

    Raises:
        TopicNotFoundError: no shard has a named topic. A pattern may match no topic.
        QueueNotFoundError: an assigned queue does not exist.
    """
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return {key: ranges[key] for key in sorted(ranges) if pattern.fullmatch(key.topic)}
    if subscription.assigned is None:
        _require_topics(ranges, subscription.topics)
        return {key: ranges[key] for key in sorted(ranges) if key.topic in subscription.topics}
    _require_topics(ranges, list(subscription.assigned))
    chosen = {}
    for topic, brokers in subscription.assigned.items():
        for broker_name, queue_ids in brokers.items():
            for queue_id in queue_ids:
                keys = [
                    key
                    for key in ranges
                    if (key.topic, key.queue_id) == (topic, queue_id) and broker_name in (ANY_BROKER, key.broker_name)
                ]
                if not keys:
                    missing = QueueKey(topic, broker_name, queue_id)
                    raise QueueNotFoundError(
                        f"Option assign names {missing}, which no shard has: assign existing queues."
                    )
                chosen.update({key: ranges[key] for key in keys})
    return dict(sorted(chosen.items()))


def _require_topics(ranges: Ranges, topics: Sequence[str]) -> None:
    known = {key.topic for key in ranges}
    for topic in topics:
        if topic not in known:
            raise TopicNotFoundError(
                f"No shard has a topic {topic!r}: check its name, or create it.", metadata={"topic": topic}
            )


def resolve(bound: Bound, ranges: Ranges, search: Callable[[QueueKey, int], int], option: str) -> Positions:
    """A position for each queue.

    Args:
        bound: the bound that the options give.
        ranges: the queues.
        search: returns the position of a queue for a store time in milliseconds since 1970 UTC.
        option: the option's name, for errors.

    Raises:
        OffsetError: the option's positions are not exactly those of the queues.
    """
    if bound.time_millis is not None:
        return {key: search(key, bound.time_millis) for key in ranges}
    if bound.positions is None:
        return {key: _named(bound.everywhere, held) for key, held in ranges.items()}
    given = _with_brokers(bound.positions, ranges, option)
    # As in Spark's Kafka source: positions must name every queue, so that none is left out by mistake.
    if missing := [key for key in ranges if key not in given]:
        raise OffsetError(
            f"Option {option} has no position for {missing[0]}"
            f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}: give one for each queue (-2 is the "
            "earliest, -1 the latest), or choose queues by option assign."
        )
    return {key: _named(given[key], ranges[key]) for key in ranges}


def _named(position: int | None, held: HeldRange) -> int:
    if position == EARLIEST:
        return held.min_offset
    if position == LATEST:
        return held.max_offset
    assert position is not None, "a bound without a value"
    return position


def _with_brokers(positions: Mapping[QueueKey, int], ranges: Ranges, option: str) -> Positions:
    brokers = sorted({key.broker_name for key in ranges})
    full: Positions = {}
    for key, position in positions.items():
        if key.broker_name == ANY_BROKER and len(brokers) > 1:
            raise OffsetError(
                f"Option {option} names {key}, but there are several shards ({', '.join(brokers)}): write "
                f'{{"{key.topic}":{{"{brokers[0]}":{{"{key.queue_id}":...}}}}}}.'
            )
        whole = key._replace(broker_name=brokers[0]) if key.broker_name == ANY_BROKER and brokers else key
        if whole not in ranges:
            raise OffsetError(
                f"Option {option} names {key}, which is not among the queues that are read: leave it out."
            )
        full[whole] = position
    return full


def held_part(key: QueueKey, begin: int, end: int, held: HeldRange | None, *, fail_on_data_loss: bool) -> range:
    """The part of `[begin, end)` that the queue still holds, or does not have yet.

    Raises:
        DataLostError: messages at the begin are gone, and `fail_on_data_loss` is true.
    """
    if begin >= end:
        return range(begin, begin)
    if held is None:
        report_loss(key, begin, end, "there is no such queue any more", fail_on_data_loss=fail_on_data_loss)
        return range(end, end)
    if held.min_offset > begin:
        lost_end = min(held.min_offset, end)
        report_loss(key, begin, lost_end, f"the queue begins at {held.min_offset}", fail_on_data_loss=fail_on_data_loss)
        begin = lost_end
    return range(begin, end)


def report_loss(key: QueueKey, begin: int, end: int, why: str, *, fail_on_data_loss: bool) -> None:
    """Raises DataLostError, or logs a warning, as `fail_on_data_loss` states."""
    what = f"Messages {begin} to {end - 1} of {key} are lost: {why}."
    if fail_on_data_loss:
        raise DataLostError(f"{what} With failOnDataLoss=false the query goes on without them.", *key, begin, end)
    _log.warning("%s The query goes on without them (failOnDataLoss=false).", what)


def cut_into_tasks(ranges: Sequence[MessageRange], min_count: int) -> list[MessageRange]:
    """One task for each queue with messages; large ranges are cut in proportion to reach `min_count` tasks."""
    filled = [each for each in ranges if each.message_count > 0]
    total = sum(each.message_count for each in filled)
    if len(filled) >= min_count:
        return filled
    tasks = []
    for each in filled:
        count = min(-(-each.message_count * min_count // total), each.message_count)
        cuts = [each.begin + each.message_count * i // count for i in range(count + 1)]
        tasks += [MessageRange(each.endpoint, each.key, begin, end) for begin, end in itertools.pairwise(cuts)]
    return tasks


# Records sampled at the begin and at the end of a queue's part, to estimate the size of its records.
SAMPLE_COUNT = 16

RecordSizes = Callable[[QueueKey, int, int], list[int]]


def limit_by_count(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], count_max: int) -> Positions:
    """End positions of a batch of at most `count_max` messages; an end before its start stays as it is."""
    behind = {key: max(end[key] - start[key], 0) for key in sorted(end)}
    total = sum(behind.values())
    if total <= count_max:
        return dict(end)
    shares = _shares({key: count for key, count in behind.items() if count}, count_max, sum(start.values()))
    return {key: min(start[key] + shares.get(key, 0), end[key]) for key in end}


def _shares(behind: Mapping[QueueKey, int], count_max: int, turn: int) -> dict[QueueKey, int]:
    keys = list(behind)
    if count_max <= len(keys):
        first = turn % len(keys)
        return dict.fromkeys((keys[first:] + keys[:first])[:count_max], 1)
    # One for each, and the rest in proportion to what is left of each: at most that, and in sum exactly the rest.
    rest, left = count_max - len(keys), sum(behind.values()) - len(keys)
    shares = {}
    for key in keys:
        more = (behind[key] - 1) * rest // left if left else 0
        shares[key] = 1 + more
        rest -= more
        left -= behind[key] - 1
    return shares


def limit_by_bytes(
    start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], bytes_max: int, sizes: RecordSizes
) -> Positions:
    """End positions of a batch whose records have about `bytes_max` bytes; the batch has at least one message.

    The gateway gives sizes of records only with the records. So sizes are estimated from a sample of each queue: exact where
    all records have one size, close where sizes change little within a batch.

    Args:
        start: position of each queue where the batch begins.
        end: the greatest end of each queue.
        bytes_max: bytes of the batch's records in the log.
        sizes: called with queue, position and count; returns `store_size_bytes` of up to `count` records from there.
    """
    behind = [key for key in sorted(end) if end[key] > start[key]]
    seen = {key: sizes(key, start[key], SAMPLE_COUNT) for key in behind}
    ends = _ends_for(start, end, bytes_max, seen)
    # Records at the end of the batch may have another size than those at its begin.
    for key in behind:
        if ends[key] - start[key] > SAMPLE_COUNT:
            seen[key] = seen[key] + sizes(key, ends[key] - SAMPLE_COUNT, SAMPLE_COUNT)
    return _ends_for(start, end, bytes_max, seen)


def _ends_for(
    start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], bytes_max: int, seen: Mapping[QueueKey, list[int]]
) -> Positions:
    count = sum(end[key] - start[key] for key in seen)
    size = sum((end[key] - start[key]) * sum(each) / len(each) for key, each in seen.items() if each)
    if size <= bytes_max:
        return dict(end)
    return limit_by_count(start, end, max(int(count * bytes_max / size), 1))
