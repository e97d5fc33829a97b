"""How far one micro-batch reads when a limit is set.

Each queue gets a share in proportion to its unread messages, so that all catch up together, and at least one message: a short
queue does not wait for one that is always long. When there are more queues than messages allowed, they take turns.
"""

from collections.abc import Callable, Mapping

from pipeline.rocketmq.positions import Positions, QueueKey

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
