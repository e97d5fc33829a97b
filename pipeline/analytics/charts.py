"""Charts as inline SVG, without script. Pure.

Every colour is a class or a custom property of the page's style sheet (`page.STYLE`), so that a chart follows a light or
dark page. The meaning of a mark is in its `<title>`, which browsers show under the pointer and screen readers read aloud.
Every text passes `text_of`, because producers choose the names.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 30
SHOWN_LENGTH_MAX = 72
TICK_COUNT = 4
X_NAME_COUNT = 8  # names of the x axis that fit side by side
PALETTE_SIZE = 8  # .c0 to .c7 in the style sheet


def visible(text: str, length_max: int = SHOWN_LENGTH_MAX) -> str:
    """The text with control and direction characters as escapes, cut to `length_max` characters; not escaped for HTML."""
    shown = "".join(
        f"\\u{ord(c):04x}" if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} else c
        for c in text[: length_max + 1]
    )
    return shown if len(shown) <= length_max else f"{shown[: length_max - 1]}…"


def text_of(text: str, length_max: int = SHOWN_LENGTH_MAX) -> str:
    """A text escaped for HTML and SVG, as content or as an attribute in double quotes."""
    return escape(visible(text, length_max), quote=True)


@dataclass(frozen=True)
class Series:
    """One band, curve or set of bars.

    Args:
        name: shown in the legend.
        values: one for each place of the x axis; None if there is no value.
    """

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Axes:
    """The axes of a chart.

    Args:
        label: the content of the chart, for screen readers.
        x_names: a name for each place of the x axis.
        unit: formats a value of the y axis.
        marks: round values, ascending and above 0; if given, the y axis is logarithmic with these marks.
        titles: full names of the places, for the pointer; `x_names` if empty.
    """

    label: str
    x_names: Sequence[str]
    unit: Callable[[float], str]
    marks: Sequence[float] = ()
    titles: Sequence[str] = ()

    def title(self, i: int) -> str:
        """The full name of a place."""
        return self.titles[i] if self.titles else self.x_names[i]


def stacked_areas(axes: Axes, bands: Sequence[Series]) -> str:
    """Stacked bands; their sum is the upper edge."""
    count = len(axes.x_names)
    sums = [0.0] * count
    top = _nice(max((sum(band.values[i] or 0 for band in bands) for i in range(count)), default=0))
    frame = _Frame(axes, 0, top)
    parts = frame.grid()
    for number, band in enumerate(bands):
        lower = list(sums)
        sums = [below + (value or 0) for below, value in zip(sums, band.values, strict=True)]
        if count == 1:
            xs = [float(LEFT), float(WIDTH - RIGHT)]
            edge = [(x, frame.y(sums[0])) for x in xs] + [(x, frame.y(lower[0])) for x in reversed(xs)]
        else:
            edge = [(frame.x(i), frame.y(sums[i])) for i in range(count)]
            edge += [(frame.x(i), frame.y(lower[i])) for i in reversed(range(count))]
        parts.append(
            f'<polygon class="area c{number % PALETTE_SIZE}" points="{_points(edge)}">'
            f"<title>{text_of(band.name)}</title></polygon>"
        )
    for i in range(count):
        lines = [axes.title(i), *(f"{visible(b.name, 40)}: {axes.unit(b.values[i] or 0)}" for b in reversed(bands))]
        parts.append(frame.touch(i, lines))
    return frame.close(parts)


def curves(axes: Axes, series: Sequence[Series]) -> str:
    """Overlaid curves, with gaps where there is no value."""
    values = [value for one in series for value in one.values if value is not None]
    low, high = 0.0, _nice(max(values, default=0.0))
    if axes.marks:
        low = max((mark for mark in axes.marks if mark <= min(values, default=0)), default=axes.marks[0])
        high = min((mark for mark in axes.marks if mark >= max(values, default=0)), default=axes.marks[-1])
    frame = _Frame(axes, low, high)
    parts = frame.grid()
    for number, one in enumerate(series):
        for stretch in _stretches(one.values):
            places = [(frame.x(i), frame.y(value)) for i, value in stretch]
            style = f"c{number % PALETTE_SIZE}"
            if len(places) == 1:
                (x, y), *_ = places
                parts.append(f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
            else:
                parts.append(f'<polyline class="curve {style}" points="{_points(places)}"/>')
    for i in range(len(axes.x_names)):
        lines = [axes.title(i)]
        lines += [f"{one.name}: {axes.unit(value)}" for one in series if (value := one.values[i]) is not None]
        parts.append(frame.touch(i, lines))
    return frame.close(parts)


def bars(axes: Axes, measured: Series, expected: Series) -> str:
    """Bars, each with a line at the expected value."""
    top = _nice(max([value or 0 for value in (*measured.values, *expected.values)], default=0))
    frame = _Frame(axes, 0, top, is_banded=True)
    parts = frame.grid()
    width = frame.band * 0.62
    for i, (value, ideal) in enumerate(zip(measured.values, expected.values, strict=True)):
        y = frame.y(value or 0)
        parts.append(
            f'<rect class="bar c0" x="{frame.x(i) - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{HEIGHT - BOTTOM - y:.1f}" rx="2"/>'
        )
        if ideal is not None:
            at = frame.y(ideal)
            parts.append(
                f'<line class="ideal" x1="{frame.x(i) - width / 2 - 3:.1f}" x2="{frame.x(i) + width / 2 + 3:.1f}" '
                f'y1="{at:.1f}" y2="{at:.1f}"/>'
            )
        lines = [axes.title(i), f"{measured.name}: {axes.unit(value or 0)}"]
        lines += [f"{expected.name}: {axes.unit(ideal)}"] if ideal is not None else []
        parts.append(frame.touch(i, lines))
    return frame.close(parts)


def sparkline(label: str, values: Sequence[float]) -> str:
    """A small area without axes."""
    width, height = 120.0, 26.0
    top = max(values, default=0) or 1
    step = width / max(len(values) - 1, 1)
    places = [(i * step, height - 1 - value / top * (height - 3)) for i, value in enumerate(values)]
    if len(places) == 1:
        places = [(0.0, places[0][1]), (width, places[0][1])]
    area = [(0.0, height), *places, (width, height)]
    return (
        f'<svg class="spark" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{text_of(label)}">'
        f'<polygon class="area" points="{_points(area)}"/><polyline class="curve" points="{_points(places)}"/></svg>'
    )


class _Frame:
    """Maps places and values to coordinates of the picture."""

    def __init__(self, axes: Axes, low: float, high: float, *, is_banded: bool = False) -> None:
        self._axes = axes
        self._low = low
        self._high = high if high > low else low * 10 if axes.marks else low + 1
        self._is_banded = is_banded
        self.band = (WIDTH - LEFT - RIGHT) / max(len(axes.x_names), 1)

    def x(self, i: int) -> float:
        """The x coordinate of a place of the x axis."""
        count = len(self._axes.x_names)
        if self._is_banded or count == 1:
            return LEFT + (i + 0.5) * self.band
        return LEFT + i / (count - 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The y coordinate of a value; a value outside the axis is drawn at its edge."""
        if self._axes.marks:
            value = min(max(value, self._low), self._high)
            part = math.log10(value / self._low) / math.log10(self._high / self._low)
        else:
            part = (min(max(value, self._low), self._high) - self._low) / (self._high - self._low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        """Lines and names of both axes."""
        parts = []
        for value in self._ticks():
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            name = escape(self._axes.unit(value))
            parts.append(f'<text class="tick y" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
        count = len(self._axes.x_names)
        every = max(1, math.ceil(count / X_NAME_COUNT))
        for i in range(0, count, every):
            across, anchor = self.x(i), "middle"
            if not self._is_banded and across > WIDTH - 48:
                across, anchor = WIDTH - RIGHT, "end"
            name = text_of(self._axes.x_names[i], 24)
            # A phone has room for every second name (`page.STYLE`).
            kind = "tick more" if i // every % 2 else "tick"
            parts.append(f'<text class="{kind}" x="{across:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{name}</text>')
        return parts

    def touch(self, i: int, lines: Sequence[str]) -> str:
        """An invisible strip whose title has all values of a place."""
        width = self.band if self._is_banded or len(self._axes.x_names) == 1 else self._step()
        title = "\n".join(text_of(line) for line in lines)
        return (
            f'<rect class="touch" x="{max(self.x(i) - width / 2, 0):.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"><title>{title}</title></rect>'
        )

    def close(self, parts: Sequence[str]) -> str:
        """The whole picture."""
        label = text_of(self._axes.label)
        head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        return "".join([head, *parts, "</svg>"])

    def _step(self) -> float:
        return (WIDTH - LEFT - RIGHT) / (len(self._axes.x_names) - 1)

    def _ticks(self) -> list[float]:
        if self._axes.marks:
            return [mark for mark in self._axes.marks if self._low <= mark <= self._high]
        return [self._low + (self._high - self._low) * i / TICK_COUNT for i in range(TICK_COUNT + 1)]


def _stretches(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Places and values between the gaps."""
    found: list[list[tuple[int, float]]] = [[]]
    for i, value in enumerate(values):
        if value is not None:
            found[-1].append((i, value))
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _nice(value: float) -> float:
    """The least round number that is at least `value`; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if value <= step * power * (1 + 1e-9))
