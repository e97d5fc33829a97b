"""Charts are well formed, to scale, and stay inside their frame."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.svg import HEIGHT, WIDTH, Chart, draw, number

NAMESPACE = "{http://www.w3.org/2000/svg}"
_positive = st.floats(1e-6, 1e12)


def _points(svg: str) -> list[tuple[float, float]]:
    curve = ET.fromstring(svg).find(f"{NAMESPACE}polyline")
    assert curve is not None
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in curve.attrib["points"].split())]


def test_factors_are_even_steps_on_a_logarithmic_axis() -> None:
    svg = draw(Chart("growth", "messages", "ms", [(1e5, 1.0), (1e6, 2.0), (1e7, 0.0)], is_log_x=True))
    (x0, y0), (x1, y1), (x2, y2) = _points(svg)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 < y0 < y2, "more is higher up"
    assert y2 - y1 == pytest.approx(2 * (y2 - y0), abs=0.2)


def test_words_of_markup_are_only_words() -> None:
    svg = draw(Chart('<b>&"', "<x>", "a & b", [(1.0, 1.0)]))
    assert '<b>&"' in [element.text for element in ET.fromstring(svg).iter(f"{NAMESPACE}text")]


@given(st.lists(st.tuples(_positive, st.floats(0, 1e12)), max_size=30), st.booleans())
def test_every_point_lies_inside_the_picture(points: list[tuple[float, float]], is_log_x: bool) -> None:
    svg = draw(Chart("any", "x", "y", sorted(points), is_log_x))
    assert ET.fromstring(svg).attrib["viewBox"] == f"0 0 {WIDTH} {HEIGHT}"
    if points:
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in _points(svg))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (350, "350"),
        (1000, "1k"),
        (40_000, "40k"),
        (1e7, "10M"),
        (1500, "1500"),
        (1_500_000, "1.5M"),
    ],
)
def test_numbers_on_axes_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("smallest", [5e-324, 2.2e-308])
def test_a_value_that_is_hardly_more_than_nothing_is_drawn(smallest: float) -> None:
    svg = draw(Chart("any", "x", "y", [(1.0, smallest)], False))

    assert _points(svg)
