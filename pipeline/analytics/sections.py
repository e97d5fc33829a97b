"""The sections of the analytics page, and the building blocks that they share. Pure. Arguments that are HTML are escaped by the
caller.

Topics with their queues, keys and duplicates; growth, and when the disk is full; the index files; consumer groups with their
lag, waiting, retries and dead letters.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from pipeline.analytics import charts
from pipeline.analytics.charts import PALETTE_SIZE, Axes, Series, text_of, visible
from pipeline.analytics.digest import BAND_COUNT_MAX, LISTED_COUNT_MAX, TOPIC_COUNT_MAX, Digest, GroupLag, Row
from pipeline.analytics.groups import DEAD_LETTER, SENT_BACK
from pipeline.analytics.growth import window_of
from pipeline.analytics.texts import (
    Texts,
    axis_times,
    bytes_rate_text,
    bytes_text,
    count_text,
    millis_text,
    rate_text,
    seconds_text,
    share_text,
    time_text,
)


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


QUEUES_SHOWN_MAX = 64  # squares of one topic
HOT_KEYS_SHOWN = 6  # of one topic
HOT_TOPICS_SHOWN = 6
# A queue is marked if its message count differs from its topic's mean by more than this share of the mean.
UNEVEN = 0.5


def topics_section(digest: Digest, say: Texts) -> str:
    """Messages, sizes and delays of each topic."""
    most = max(row["message_count"] for row in digest.topics)
    rows = []
    for row in digest.topics:
        rate = row["messages_per_second"]
        trend = ""
        if digest.timeline is not None and row["topic"] in digest.timeline.messages:
            trend = charts.sparkline(say("Messages per second"), digest.timeline.messages[row["topic"]])
        rows.append(
            [
                name_of(row["topic"]),
                meter(row["message_count"] / most, ""),
                count_text(row["message_count"]),
                trend,
                rate_text(rate) if rate is not None else "–",
                bytes_text(row["store_size_bytes"]),
                bytes_text(row["size_p50_bytes"]),
                bytes_text(row["size_max_bytes"]),
                millis_text(row["delay_p50_millis"]),
                millis_text(row["delay_p99_millis"]),
            ]
        )
    heads = [
        say("topic"), "", say("#messages"), say("over time"), say("#on average"), say("#bytes"), say("#record, p50"),
        say("#largest"), say("#delay, p50"), say("#delay, p99"),
    ]  # fmt: skip
    hint = say("Most messages first.")
    if digest.row_counts.get("topics", 0) > len(digest.topics):
        hint = say("The {count} topics with the most messages.", count=TOPIC_COUNT_MAX)
    return section("topics", say("Topics"), hint, card(table(heads, rows)))


def queues_section(digest: Digest, say: Texts) -> str:
    """How even the queues of each topic are, and which of their offsets are missing."""
    rows = []
    for row in digest.topics:
        queues = digest.queues.get(row["topic"], [])
        if not queues:
            continue
        mean = sum(queue["message_count"] for queue in queues) / len(queues)
        squares = "".join(_square(queue, mean, say) for queue in queues[:QUEUES_SHOWN_MAX])
        rows.append(
            [
                name_of(row["topic"]),
                f'<span class="strip">{squares}</span>',
                count_text(len(queues)),
                f"{max(queue['message_count'] for queue in queues) / mean:.2f} ×",
                count_text(sum(queue["gap_count"] for queue in queues)),
                count_text(sum(queue["missing_count"] for queue in queues)),
                count_text(sum(queue["repeated_count"] for queue in queues)),
            ]
        )
    heads = [
        say("topic"), say("messages by queue"), say("#queues"), say("#fullest / mean"), say("#gaps"), say("#missing"),
        say("#repeated"),
    ]  # fmt: skip
    hint = say(
        "A square is a queue; the more messages, the darker. A marked queue has more than one and a half times, or less "
        "than half, its topic's mean. A gap is a range of missing offsets between others of a queue."
    )
    parts = [card(table(heads, rows))]
    if digest.gaps:
        listed = [
            [
                name_of(gap["topic"]),
                str(gap["queue_id"]),
                f"{gap['first_missing_queue_offset']:,}",
                f"{gap['missing_count']:,}",
            ]
            for gap in digest.gaps
        ]
        caption = say("The largest of {count} gaps", count=count_text(digest.row_counts["gaps"]))
        heads = [say("topic"), say("#queue"), say("#first offset missing"), say("#missing")]
        parts.append(card(table(heads, listed, caption)))
    else:
        parts.append(none_found(say("No gaps: every queue has all offsets between its first and its last.")))
    return section("queues", say("Queues"), hint, *parts)


def keys_section(digest: Digest, say: Texts) -> str:
    """How often keys are used, and the hot ones."""
    keyed = [row for row in digest.topics if row.get("key_use_count")]
    hint = say("Business keys (KEYS). The share of the most used key shows how uneven the load on the index is.")
    if not keyed:
        return section("keys", say("Keys"), hint, none_found(say("No message has a key."), is_good=False))
    heads = [
        say("topic"), say("#uses"), say("#different keys"), say("#used once"), say("#uses, p99"), say("#most uses"),
        say("share of the most used"),
    ]  # fmt: skip
    rows = [
        [
            name_of(row["topic"]),
            count_text(row["key_use_count"]),
            count_text(row["distinct_key_count"]),
            share_text(row["used_once_count"] / row["distinct_key_count"]),
            count_text(row["uses_per_key_p99"]),
            count_text(row["top_key_use_count"]),
            meter(row["top_key_share"]),
        ]
        for row in keyed
    ]
    hot = []
    for row in sorted(keyed, key=lambda row: -row["top_key_use_count"])[:HOT_TOPICS_SHOWN]:
        used = [key for key in digest.hot_keys.get(row["topic"], []) if key["use_count"] > 1][:HOT_KEYS_SHOWN]
        if used:
            listed = [
                [f"<code>{text_of(key['key'], 48)}</code>", count_text(key["use_count"]), meter(key["share"])]
                for key in used
            ]
            shown = table([say("key"), say("#uses"), say("share")], listed)
            hot.append(card(f"<h3>{text_of(row['topic'])}</h3>{shown}"))
    return section("keys", say("Keys"), hint, card(table(heads, rows)), f'<div class="pair">{"".join(hot)}</div>')


def duplicates_section(digest: Digest, say: Texts) -> str:
    """Messages that producers sent twice."""
    title = say("Duplicates")
    hint = say(
        "Unique keys that several messages of a topic have: a producer sent a message again that was already stored."
    )
    if not digest.duplicates:
        return section("duplicates", title, hint, none_found(say("No unique key occurs twice in a topic.")))
    rows = [
        [
            name_of(row["topic"]),
            f"<code>{text_of(row['unique_key'], 48)}</code>",
            count_text(row["copy_count"]),
            millis_text(row["last_store_time"] - row["first_store_time"]),
            f"{row['first_commit_log_offset']:,}",
            f"{row['last_commit_log_offset']:,}",
        ]
        for row in digest.duplicates
    ]
    heads = [
        say("topic"), say("unique key"), say("#copies"), say("#first to last"), say("#first at"), say("#last at"),
    ]  # fmt: skip
    caption = say(
        "The keys with the most copies, of {count} such keys", count=count_text(digest.row_counts["duplicates"])
    )
    return section("duplicates", title, hint, card(table(heads, rows, caption)))


def _square(queue: dict[str, Any], mean: float, say: Texts) -> str:
    ratio = queue["message_count"] / mean
    mark = ' class="off"' if abs(ratio - 1) > UNEVEN else ""
    title = say(
        "queue {queue}: {count} messages, offsets {first} to {last}",
        queue=queue["queue_id"],
        count=f"{queue['message_count']:,}",
        first=f"{queue['first_queue_offset']:,}",
        last=f"{queue['last_queue_offset']:,}",
    )
    return f'<i{mark} style="opacity:{min(max(ratio * 0.55, 0.12), 1):.2f}" title="{escape(title, quote=True)}"></i>'


def full_text(rows: Sequence[Row]) -> str:
    """How long until the disk is full; a dash if the store does not grow."""
    row = window_of(rows)
    return "–" if row is None else seconds_text(row["full_after_seconds"])


def growth_section(digest: Digest, say: Texts) -> str:
    """How fast the store grew, and how long its disk lasts."""
    names = {
        "hour": say("the last hour"), "day": say("the last day"), "week": say("the last week"), "log": say("the whole log"),
    }  # fmt: skip
    rows = [
        [
            names[row["window"]],
            count_text(row["message_count"]),
            bytes_text(row["log_bytes"]),
            bytes_text(row["derived_bytes"]),
            bytes_rate_text(row["bytes_per_second"]),
            _seconds(row["full_after_seconds"]),
            _seconds(row["fits_seconds"]),
        ]
        for row in digest.growth
    ]
    heads = [
        say("over"), say("#messages"), say("#log"), say("#queues and index"), say("#growth"), say("#full in"),
        say("#holds a log of"),
    ]  # fmt: skip
    hint = say(
        "Full in: if the store goes on growing like this and nothing is removed. If log files are kept for less than what the "
        "disk holds, retention keeps it from becoming full."
    )
    caption = ""
    if digest.growth and digest.growth[0]["disk_size_bytes"] is not None:
        free, size = digest.growth[0]["disk_free_bytes"], digest.growth[0]["disk_size_bytes"]
        caption = say("The disk has {free} of {size} free.", free=bytes_text(free), size=bytes_text(size))
    return section("growth", say("Growth"), hint, card(table(heads, rows, caption)))


def _seconds(value: float | None) -> str:
    return "–" if value is None else seconds_text(value)


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


def groups_section(digest: Digest, say: Texts) -> str:
    """How far each group was behind, over time."""
    title = say("Consumers")
    hint = say(
        "How many messages each group had still to consume, at the end of each step. In flight counts as not consumed. The "
        "groups that are furthest behind come first."
    )
    if not digest.lags:
        none = none_found(say("The log does not say where any consumer group was."), is_good=False)
        return section("groups", title, hint, none)
    drawn = digest.lags[:BAND_COUNT_MAX]
    begins = drawn[0].begins_millis
    parts = []
    if len(begins) > 1:
        series = [Series(_title(lag), lag.counts) for lag in drawn]
        step = (begins[1] - begins[0]) // 1000
        titles = [f"{time_text(begin)} UTC" for begin in begins]
        axes = Axes(say("Messages behind over time"), axis_times(begins, step), count_text, titles=titles)
        names = [one.name for one in series]
        heading = escape(say("Messages behind over time"))
        parts.append(card(f"<h3>{heading}</h3>{charts.curves(axes, series)}{legend(names)}"))
    rows = []
    for lag in digest.lags[:LISTED_COUNT_MAX]:
        behind, most = lag.counts[-1] or 0, max(count or 0 for count in lag.counts)
        waited = lag.millis[-1]
        rows.append(
            [
                name_of(lag.consumer_group),
                name_of(lag.topic),
                count_text(lag.queue_count),
                charts.sparkline(say("Messages behind over time"), [count or 0 for count in lag.counts]),
                count_text(behind),
                count_text(most),
                "–" if waited is None else millis_text(waited),
            ]
        )
    heads = [
        say("group"), say("topic"), say("#queues"), say("over time"), say("#behind at the end"), say("#at most"),
        say("#oldest waits for"),
    ]  # fmt: skip
    caption = ""
    if len(digest.lags) > len(rows):
        caption = say("The {count} that are furthest behind", count=len(rows))
    parts.append(card(table(heads, rows, caption)))
    return section("groups", title, hint, *parts)


def waits_section(digest: Digest, say: Texts) -> str:
    """How long messages waited until they were consumed."""
    title = say("Waiting")
    hint = say(
        "From storing, and from birth, until a group acknowledged a message or committed a position behind it. Messages that "
        "were retried, filtered out or skipped by a reset do not count."
    )
    if not digest.waits:
        none = none_found(say("The log does not say when any message was consumed."), is_good=False)
        return section("waits", title, hint, none)
    rows = [
        [
            name_of(row["consumer_group"]),
            name_of(row["topic"]),
            count_text(row["consumed_count"]),
            *(millis_text(row[f"stored_to_consumed_{name}_millis"]) for name in ("p50", "p99", "max")),
            *(millis_text(row[f"born_to_consumed_{name}_millis"]) for name in ("p50", "p99")),
        ]
        for row in digest.waits
    ]
    heads = [
        say("group"), say("topic"), say("#consumed"), say("#stored to consumed, p50"),
        say("#stored to consumed, p99"), say("#stored to consumed, longest"),
        say("#born to consumed, p50"), say("#born to consumed, p99"),
    ]  # fmt: skip
    return section("waits", title, hint, card(table(heads, rows)))


def retries_section(digest: Digest, say: Texts) -> str:
    """Messages that came again, and those that were given up."""
    title = say("Retries")
    hint = say(
        "Copies in retry and dead-letter topics. Not acknowledged: a message was handed out, and no acknowledgement came in "
        "time. Sent back: a consumer that pulls returned it."
    )
    if not digest.retries:
        return section("retries", title, hint, none_found(say("No message was retried or became a dead letter.")))
    rows = [
        [
            name_of(row["consumer_group"]),
            name_of(row["source_topic"]),
            escape(say("dead letter") if row["kind"] == DEAD_LETTER else say("retry")),
            escape(say("sent back") if row["cause"] == SENT_BACK else say("not acknowledged")),
            count_text(row["copy_count"]),
            count_text(row["message_count"]),
            count_text(row["attempts_max"]),
            time_text(row["last_store_time"]),
        ]
        for row in digest.retries
    ]
    heads = [
        say("group"), say("topic"), say("kind"), say("cause"), say("#copies"), say("#messages"), say("#most attempts"),
        say("#last one (UTC)"),
    ]  # fmt: skip
    return section("retries", title, hint, card(table(heads, rows)))


def _title(lag: GroupLag) -> str:
    return f"{visible(lag.consumer_group, 30)} · {visible(lag.topic, 30)}"
