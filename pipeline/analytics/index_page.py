"""The section of the analytics page about the index files. Pure."""

import math
from html import escape

from pipeline.analytics import charts
from pipeline.analytics.charts import Axes, Series, text_of
from pipeline.analytics.digest import Digest, Row
from pipeline.analytics.page_parts import card, meter, none_found, section, table
from pipeline.analytics.texts import Texts
from pipeline.analytics.words import count_text, time_text

FILES_SHOWN_MAX = 24  # the newest ones
BARS_MAX = 24  # lengths with a bar of their own; all longer ones share the last


def index_section(digest: Digest, say: Texts) -> str:
    """The section: load of the files, and lengths of chains."""
    hint = say(
        "A lookup walks the chain of one hash slot. More long chains than expected by chance (the lines) mean that keys "
        "collide or that few keys are used often."
    )
    if not digest.index_files:
        none = none_found(say("The store has no index file with entries."), is_good=False)
        return section("index", say("Index"), hint, none)
    heads = [
        say("file"), say("from"), say("to"), say("#entries"), say("filled"), say("#entries / slot"), "#p50", "#p99",
        say("#longest"), say("#walked"),
    ]  # fmt: skip
    rows = [_file_row(row) for row in digest.index_files[-FILES_SHOWN_MAX:]]
    hidden = len(digest.index_files) - len(rows)
    caption = say("Chain lengths of used slots; walked: entries that a lookup of a stored key walks on average")
    caption += say("; {count} older files are left out", count=hidden) if hidden > 0 else ""
    slots, chance = escape(say("slots")), escape(say("by chance"))
    key = f'<ul class="key"><li><i class="c0"></i>{slots}</li><li><i class="line"></i>{chance}</li></ul>'
    chart = f"<h3>{escape(say('Slots by chain length'))}</h3>{_chains(digest, say)}{key}"
    return section("index", say("Index"), hint, card(table(heads, rows, caption)), card(chart))


def by_chance(entry_count: int, slot_count: int, length: int) -> float:
    """Expected count of slots with a chain of this length if hashes are random (Poisson)."""
    mean = entry_count / slot_count
    if mean <= 0:
        return 0.0
    return slot_count * math.exp(length * math.log(mean) - mean - math.lgamma(length + 1))


def chain_bars(digest: Digest) -> tuple[list[str], list[float], list[float]]:
    """Name, count of slots and expected count of slots for each chain length, over all files."""
    longest = max((row["chain_length"] for row in digest.chains), default=1)
    last = min(longest, BARS_MAX)
    slots = [0.0] * last
    for row in digest.chains:
        slots[min(row["chain_length"], last) - 1] += row["slot_count"]
    ideal = [
        sum(by_chance(file["entry_count"], file["slot_count"], length) for file in digest.index_files)
        for length in range(1, last + 1)
    ]
    names = [f"{length:,}" for length in range(1, last + 1)]
    if longest > last:
        names[-1] += "+"
        covered = [
            sum(by_chance(f["entry_count"], f["slot_count"], n) for n in range(last)) for f in digest.index_files
        ]
        ideal[-1] = sum(
            max(file["slot_count"] - below, 0.0) for file, below in zip(digest.index_files, covered, strict=True)
        )
    return names, slots, ideal


def _chains(digest: Digest, say: Texts) -> str:
    names, slots, ideal = chain_bars(digest)
    axes = Axes(say("Slots by chain length"), names, count_text)
    return charts.bars(axes, Series(say("slots"), slots), Series(say("by chance"), ideal))


def _file_row(row: Row) -> list[str]:
    filled = row["entry_count"] / row["entry_capacity"]
    return [
        f"<code>{text_of(row['file'])}</code>",
        time_text(row["begin_time"]),
        time_text(row["end_time"]),
        count_text(row["entry_count"]),
        meter(filled),
        f"{row['load_factor']:.2f}",
        count_text(row["chain_p50_count"]),
        count_text(row["chain_p99_count"]),
        count_text(row["chain_max_count"]),
        f"{row['walked_per_lookup_count']:.2f}",
    ]
