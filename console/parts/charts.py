"""Converts numbers to the SVG coordinates of lines and bars; templates draw them.

The position of a message in its log file or queue is a mark on a scale:

    commitlog/00000000001073741824      a bar as long as the file, a mark where the record starts
    queue 3 of Orders                   [min ........ x .... max)
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart; `count` is its value."""

    x: float
    y: float
    width: float
    height: float
    count: float


@dataclass(frozen=True, slots=True)
class Line:
    """A line over time.

    Attributes:
        path: the line, for the attribute `d`.
        area: the area below it, likewise.
        latest: the last value.
        maximum: the value at the top.
    """

    path: str
    area: str
    latest: float
    maximum: float


def bars(values: Sequence[float], width: float, height: float) -> list[Bar]:
    """A bar for each value, the largest as high as the chart; every value above 0 gets a visible bar."""
    top = max(values, default=0) or 1
    step = width / max(1, len(values))
    drawn = []
    for number, value in enumerate(values):
        bar_height = 0.0 if value <= 0 else max(1.5, height * value / top)
        drawn.append(
            Bar(
                round(number * step, 2),
                round(height - bar_height, 2),
                round(step * 0.8, 2),
                round(bar_height, 2),
                value,
            )
        )
    return drawn


def line(points: Sequence[tuple[float, float]], span: float, width: float, height: float) -> Line | None:
    """A line through points of (time, value), the newest at the right edge, `span` wide; None for less than two points."""
    if len(points) < 2:
        return None
    end = points[-1][0]
    maximum = nice_maximum(max(value for _, value in points))
    coordinates = [
        (round(width * (1 - (end - time) / span), 1), round(height * (1 - value / maximum), 1))
        for time, value in points
        if end - time <= span
    ]
    path = "M" + "L".join(f"{x} {y}" for x, y in coordinates)
    area = f"{path}L{coordinates[-1][0]} {height}L{coordinates[0][0]} {height}Z"
    return Line(path, area, points[-1][1], maximum)


def nice_maximum(value: float) -> float:
    """1, 2 or 5 times a power of ten, at least the value; 1 for 0."""
    if value <= 0:
        return 1.0
    step = 1.0
    while step < value:
        step *= 10
    while step / 10 >= value:
        step /= 10
    for part in (0.2, 0.5):
        if step * part >= value:
            return step * part
    return step


# A mark thinner than this cannot be seen.
MARK_PERCENT_MIN = 0.6


@dataclass(frozen=True, slots=True)
class Scale:
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


def log_scale(commit_log_offset: int, size_bytes: int, file_size_bytes: int) -> Scale:
    """The record in its log file; positions are bytes in the file."""
    begin = commit_log_offset // file_size_bytes * file_size_bytes
    return _scale(f"commitlog/{begin:020d}", 0, file_size_bytes, commit_log_offset - begin, size_bytes)


def queue_scale(name: str, min_offset: int, max_offset: int, queue_offset: int) -> Scale:
    """The message among those of its queue; positions are queue offsets."""
    return _scale(name, min_offset, max_offset, queue_offset, 1)


def _scale(name: str, begin: int, end: int, at: int, size: int) -> Scale:
    length = max(1, end - begin)
    width = max(MARK_PERCENT_MIN, min(100.0, 100 * size / length))
    mark = min(max(0.0, 100 * (at - begin) / length), 100 - width)
    return Scale(name, begin, end, at, round(mark, 2), round(width, 2))
