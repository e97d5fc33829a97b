"""The position of a message: log file and byte, queue and queue offset, as numbers and as the geometry of a picture.

commitlog/00000000001073741824      a bar as long as the file, a mark where the record starts
queue 3 of Orders                   [min ........ x .... max)
"""

from dataclasses import dataclass

# A mark thinner than this cannot be seen.
MARK_PERCENT_MIN = 0.6


@dataclass(frozen=True, slots=True)
class Track:
    """A range `[begin, end)` and a mark in it; percents of the range for the picture.

    Attributes:
        name: of the file or queue.
        begin: first position.
        end: behind the last one.
        at: the mark's position.
        mark_percent: where the mark begins.
        width_percent: how wide it is.
    """

    name: str
    begin: int
    end: int
    at: int
    mark_percent: float
    width_percent: float


def log_track(commit_log_offset: int, size_bytes: int, file_size_bytes: int) -> Track:
    """The record in its log file; positions are bytes in the file."""
    begin = commit_log_offset // file_size_bytes * file_size_bytes
    return _track(f"commitlog/{begin:020d}", 0, file_size_bytes, commit_log_offset - begin, size_bytes)


def queue_track(name: str, min_offset: int, max_offset: int, queue_offset: int) -> Track:
    """The message among those of its queue; positions are queue offsets."""
    return _track(name, min_offset, max_offset, queue_offset, 1)


def _track(name: str, begin: int, end: int, at: int, size: int) -> Track:
    length = max(1, end - begin)
    width = max(MARK_PERCENT_MIN, min(100.0, 100 * size / length))
    mark = min(max(0.0, 100 * (at - begin) / length), 100 - width)
    return Track(name, begin, end, at, round(mark, 2), round(width, 2))
