"""Building blocks for the sections of the analytics page. Pure. Arguments that are HTML are escaped by the caller."""

from collections.abc import Sequence
from html import escape

from pipeline.analytics.charts import PALETTE_SIZE, text_of
from pipeline.analytics.words import share_text


def section(anchor: str, title: str, hint: str, *parts: str) -> str:
    """A part of the page with a heading and a sentence below it."""
    return (
        f'<section id="{anchor}"><header><h2>{escape(title)}</h2><p class="hint">{escape(hint)}</p></header>'
        f"{''.join(parts)}</section>"
    )


def card(inner: str) -> str:
    """A box."""
    return f'<div class="card">{inner}</div>'


def tiles(shown: Sequence[tuple[str, str, str]]) -> str:
    """Figures in a row; each is the figure, its description, and its tone: `good`, `warn` or empty."""
    cells = "".join(
        f'<div class="tile {tone}"><b>{escape(figure)}</b><span>{escape(what)}</span></div>'
        for figure, what, tone in shown
    )
    return f'<div class="tiles">{cells}</div>'


def none_found(text: str, *, is_good: bool = True) -> str:
    """A notice in place of a table without rows."""
    return f'<p class="none{"" if is_good else " plain"}">{escape(text)}</p>'


def legend(names: Sequence[str]) -> str:
    """The legend of a chart; names are escaped here."""
    items = "".join(f'<li><i class="c{i % PALETTE_SIZE}"></i>{text_of(name, 40)}</li>' for i, name in enumerate(names))
    return f'<ul class="key">{items}</ul>'


def name_of(name: str) -> str:
    """A topic or group in a table; escaped here."""
    return f'<span title="{text_of(name, 200)}">{text_of(name, 48)}</span>'


def meter(part: float, text: str | None = None) -> str:
    """A share between 0 and 1 as a bar, with a text beside it; the percentage if None."""
    beside = share_text(part) if text is None else text
    bar = f'<span class="meter"><i style="width:{min(max(part, 0.0), 1.0) * 100:.1f}%"></i></span>'
    return f'<span class="share">{bar}<span>{escape(beside)}</span></span>' if beside else bar


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table; a head that begins with # marks a column of numbers.

    Args:
        heads: one for each column.
        rows: cells as HTML.
        caption: above it.
    """
    is_number = [head.startswith("#") for head in heads]
    labels = [escape(head.removeprefix("#"), quote=True) for head in heads]  # shown beside each cell on a phone
    top = "".join(
        f"<th{' class=n' if number else ''}>{label}</th>" for label, number in zip(labels, is_number, strict=True)
    )
    lines = []
    for row in rows:
        cells = []
        for place, (cell, number) in enumerate(zip(row, is_number, strict=True)):
            kind = " class=n" if number else " class=name" if place == 0 else ""
            cells.append(f'<td{kind} data-label="{labels[place]}">{cell}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
