"""How far one micro-batch reads when it may not read all.

Every queue gets its share by how much it is behind, so that all catch up together, but at least one message: a queue
with little must not wait behind one that always has much. When there are more queues than messages allowed, they take
turns.
"""

from collections.abc import Callable, Mapping

from pipeline.sources.rocketmq_positions import Positions, QueueKey

# Records looked at, at the beginning and at the end of what a queue would give, to guess how large its records are.
SAMPLE_COUNT = 16

RecordSizes = Callable[[QueueKey, int, int], list[int]]


def limit_by_count(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], count_max: int) -> Positions:
    """Ends of a batch of at most `count_max` messages; a queue whose end lies before its start keeps that end."""
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
    # One for each, and the rest by what is left of each: never more than it has, and together exactly the rest.
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
    """Ends of a batch whose records have about `bytes_max` bytes, and at least one message.

    The gateway does not say how large records are before it gives them. So they are guessed from some of each queue:
    exact where all are of one size, near where sizes do not jump inside a batch.

    Args:
        start: where the batch begins.
        end: how far it may go.
        bytes_max: bytes of the log that the batch may cover.
        sizes: `store_size_bytes` of up to so many records from a position on.
    """
    behind = [key for key in sorted(end) if end[key] > start[key]]
    seen = {key: sizes(key, start[key], SAMPLE_COUNT) for key in behind}
    ends = _ends_for(start, end, bytes_max, seen)
    # The records at the end of the batch may be of another size than those at its beginning.
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
