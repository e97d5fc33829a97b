"""Small line charts as SVG, readable on a light and on a dark page. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 48
TICK_COUNT = 4
SMALLEST = 1e-290  # below it, the steps of a power of ten are not distinct floats
STYLE = (
    "text{fill:#24292f;font:12px system-ui,sans-serif}.title{font-size:14px;font-weight:600}"
    ".grid{stroke:#d0d7de}.curve{stroke:#0969da;stroke-width:2;fill:none}.point{fill:#0969da}"
    "@media(prefers-color-scheme:dark){"
    "text{fill:#e6edf3}.grid{stroke:#3d444d}.curve{stroke:#58a6ff}.point{fill:#58a6ff}}"
)


@dataclass(frozen=True)
class Chart:
    """One curve and its labels.

    Args:
        title: the text above it.
        x_name: the text below it.
        y_name: the name of y, with its unit.
        points: (x, y), in order of x.
        is_log_x: a logarithmic x axis, for sizes that grow by factors.
    """

    title: str
    x_name: str
    y_name: str
    points: Sequence[tuple[float, float]]
    is_log_x: bool = False


def draw(chart: Chart) -> str:
    """The chart as a whole SVG document; y begins at 0, so that differences keep their proportion."""
    y_max = _nice(max((y for _, y in chart.points), default=1.0))
    xs = [x for x, _ in chart.points] or [1.0]
    first, last = _scale(chart, min(xs)), _scale(chart, max(xs))
    span = last - first or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = (_scale(chart, x) - first) / span if last > first else 0.5
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(chart.title, {chr(34): "&quot;"})}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="18">{escape(chart.title)}</text>',
        f'<text x="{LEFT}" y="36">{escape(chart.y_name)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_name)}</text>',
    ]
    for tick in range(TICK_COUNT + 1):
        value = y_max * tick / TICK_COUNT
        _, y = place(xs[0], value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>')
    for x in _labelled(xs):
        across, _ = place(x, 0)
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(x)}</text>')
    places = [place(x, y) for x, y in chart.points]
    if places:
        parts.append(f'<polyline class="curve" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
    if len(places) <= 20:
        parts += [f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places]
    return "\n".join([*parts, "</svg>", ""])


def number(value: float) -> str:
    """A number in about four characters: 0.25, 12.5, 1500, 40k, 1.5M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1e4 or (value and value % 1e3 == 0):
        return f"{value / 1e3:.3g}k"
    return f"{value:.4g}"


def _labelled(xs: Sequence[float]) -> list[float]:
    """Each x when there are few, otherwise some round values between the ends."""
    if len(xs) <= 6:
        return list(xs)
    step = _nice((max(xs) - min(xs)) / TICK_COUNT)
    first = math.ceil(min(xs) / step)
    return [i * step for i in range(first, first + TICK_COUNT + 1) if i * step <= max(xs)]


def _scale(chart: Chart, x: float) -> float:
    return math.log10(x) if chart.is_log_x and x > 0 else x


def _nice(value: float) -> float:
    """The least round number that is not smaller."""
    if not SMALLEST <= value < math.inf:  # also NaN
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if value <= step * power * (1 + 1e-9))
