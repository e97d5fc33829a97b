"""The analytics page: one self-contained HTML file without script. Pure.

Producers choose topics and keys, so every text passes `text_of`. As a second protection, the page's content security
policy forbids the browser to load or run anything.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.analytics import charts
from pipeline.analytics.charts import Axes, Series, text_of
from pipeline.analytics.digest import TOPIC_COUNT_MAX, Digest, Timeline
from pipeline.analytics.index_page import index_section
from pipeline.analytics.page_parts import card, legend, meter, none_found, section, table, tiles
from pipeline.analytics.style import STYLE
from pipeline.analytics.words import (
    DURATION_MARKS,
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

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
QUEUES_SHOWN_MAX = 64  # squares of one topic
HOT_KEYS_SHOWN = 6  # of one topic
HOT_TOPICS_SHOWN = 6
# A queue is marked if its message count differs from its topic's mean by more than this share of the mean.
UNEVEN = 0.5
# Delays that differ by more than this factor are drawn on a logarithmic axis.
UNEVEN_DELAYS = 50


def page(digest: Digest) -> str:
    """The HTML of the whole page."""
    body = [_head(digest)]
    if not digest.totals["message_count"]:
        body.append(none_found("The log has no message.", is_good=False))
    else:
        assert digest.timeline is not None
        body += [
            _traffic(digest.timeline),
            _delays(digest.timeline, digest),
            _topics(digest),
            _queues(digest),
            _keys(digest),
            _duplicates(digest),
        ]
    body += [index_section(digest), _foot(digest)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>Log analytics: {text_of(digest.store)}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(body)
        + "</main></body></html>\n"
    )


def _head(digest: Digest) -> str:
    totals = digest.totals
    begin, end = totals["first_store_time"], totals["last_store_time"]
    span = (end - begin) / 1000
    when = ""
    if totals["message_count"]:
        when = f"{time_text(begin)} to {time_text(end)} UTC ({seconds_text(span)})"
    peak = max(map(sum, zip(*digest.timeline.messages.values(), strict=True)), default=0) if digest.timeline else 0
    queue_count, missing, spare = (
        digest.row_counts.get("queues", 0),
        totals["missing_count"],
        totals["spare_copy_count"],
    )
    shown = [
        (count_text(totals["message_count"]), "messages", ""),
        (bytes_text(totals["store_size_bytes"]), "of records", ""),
        (count_text(digest.row_counts.get("topics", 0)), f"topics, {count_text(queue_count)} queues", ""),
        (rate_text(totals["message_count"] / span) if span > 0 else "–", f"on average, {rate_text(peak)} at most", ""),
        (count_text(missing), "queue offsets missing", "warn" if missing else "good"),
        (count_text(spare), "messages stored again", "warn" if spare else "good"),
    ]
    links = ("traffic", "delay", "topics", "queues", "keys", "duplicates", "index")
    nav = "".join(f'<a href="#{name}">{name.capitalize()}</a>' for name in links)
    return (
        f'<header><h1>Log analytics</h1><p class="lead">{text_of(digest.store, 200)}<br>{when}</p>'
        f"<nav>{nav}</nav></header>{tiles(shown)}"
    )


def _traffic(timeline: Timeline) -> str:
    names = list(timeline.messages)
    names_of_times, titles = _times(timeline)
    parts = []
    for title, values, unit in (
        ("Messages per second", timeline.messages, rate_text),
        ("Bytes per second", timeline.bytes, bytes_rate_text),
    ):
        bands = [Series(name, values[name]) for name in names]
        chart = charts.stacked_areas(Axes(f"{title}, by topic, over time", names_of_times, unit, titles=titles), bands)
        parts.append(card(f"<h3>{title}</h3>{chart}{legend(names)}"))
    hint = f"By store time, in steps of {seconds_text(timeline.bucket_seconds)}; topics stacked, the largest at the bottom."
    return section("traffic", "Traffic", hint, *parts)


def _delays(timeline: Timeline, digest: Digest) -> str:
    series = [Series("half of the messages (p50)", timeline.delay_p50), Series("99 of 100 (p99)", timeline.delay_p99)]
    values = [value for one in series for value in one.values if value is not None and value > 0]
    marks = DURATION_MARKS if values and max(values) > UNEVEN_DELAYS * min(values) else ()
    names_of_times, titles = _times(timeline)
    axes = Axes("Delay from birth to store over time", names_of_times, millis_text, marks, titles)
    hint = "From the creation of a message by its producer until the store wrote it; delayed messages wait on purpose."
    early = digest.totals["born_after_store_count"]
    if early:
        hint += f" {count_text(early)} messages were born after they were stored: their producers' clocks were ahead."
    names = [one.name for one in series]
    return section(
        "delay", "Delay", hint, card(f"<h3>Delay, all topics</h3>{charts.curves(axes, series)}{legend(names)}")
    )


def _topics(digest: Digest) -> str:
    most = max(row["message_count"] for row in digest.topics)
    rows = []
    for row in digest.topics:
        rate = row["messages_per_second"]
        trend = ""
        if digest.timeline is not None and row["topic"] in digest.timeline.messages:
            trend = charts.sparkline("messages per second", digest.timeline.messages[row["topic"]])
        rows.append(
            [
                _name(row["topic"]),
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
        "topic", "", "#messages", "over time", "#on average", "#bytes", "#record, p50", "#largest", "#delay, p50",
        "#delay, p99",
    ]  # fmt: skip
    hidden = digest.row_counts.get("topics", 0) - len(digest.topics)
    hint = f"The {TOPIC_COUNT_MAX} topics with the most messages." if hidden > 0 else "Most messages first."
    return section("topics", "Topics", hint, card(table(heads, rows)))


def _queues(digest: Digest) -> str:
    rows = []
    for row in digest.topics:
        queues = digest.queues.get(row["topic"], [])
        if not queues:
            continue
        mean = sum(queue["message_count"] for queue in queues) / len(queues)
        squares = "".join(_square(queue, mean) for queue in queues[:QUEUES_SHOWN_MAX])
        rows.append(
            [
                _name(row["topic"]),
                f'<span class="strip">{squares}</span>',
                count_text(len(queues)),
                f"{max(queue['message_count'] for queue in queues) / mean:.2f} ×",
                count_text(sum(queue["gap_count"] for queue in queues)),
                count_text(sum(queue["missing_count"] for queue in queues)),
                count_text(sum(queue["repeated_count"] for queue in queues)),
            ]
        )
    heads = ["topic", "messages by queue", "#queues", "#fullest / mean", "#gaps", "#missing", "#repeated"]
    hint = (
        "A square is a queue; the more messages, the darker. A marked queue has more than one and a half times, or less "
        "than half, its topic's mean. A gap is a range of missing offsets between others of a queue."
    )
    parts = [card(table(heads, rows))]
    if digest.gaps:
        listed = [
            [
                _name(gap["topic"]),
                str(gap["queue_id"]),
                f"{gap['first_missing_queue_offset']:,}",
                f"{gap['missing_count']:,}",
            ]
            for gap in digest.gaps
        ]
        caption = f"The largest of {count_text(digest.row_counts['gaps'])} gaps"
        parts.append(card(table(["topic", "#queue", "#first offset missing", "#missing"], listed, caption)))
    else:
        parts.append(none_found("No gaps: every queue has all offsets between its first and its last."))
    return section("queues", "Queues", hint, *parts)


def _square(queue: dict[str, Any], mean: float) -> str:
    ratio = queue["message_count"] / mean
    mark = ' class="off"' if abs(ratio - 1) > UNEVEN else ""
    title = (
        f"queue {queue['queue_id']}: {queue['message_count']:,} messages, offsets "
        f"{queue['first_queue_offset']:,} to {queue['last_queue_offset']:,}"
    )
    return f'<i{mark} style="opacity:{min(max(ratio * 0.55, 0.12), 1):.2f}" title="{text_of(title, 200)}"></i>'


def _keys(digest: Digest) -> str:
    keyed = [row for row in digest.topics if row.get("key_use_count")]
    hint = "Business keys (KEYS). The share of the most used key shows how uneven the load on the index is."
    if not keyed:
        return section("keys", "Keys", hint, none_found("No message has a key.", is_good=False))
    heads = ["topic", "#uses", "#different keys", "#used once", "#uses, p99", "#most uses", "share of the most used"]
    rows = [
        [
            _name(row["topic"]),
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
            hot.append(card(f"<h3>{text_of(row['topic'])}</h3>{table(['key', '#uses', 'share'], listed)}"))
    return section("keys", "Keys", hint, card(table(heads, rows)), f'<div class="pair">{"".join(hot)}</div>')


def _duplicates(digest: Digest) -> str:
    hint = "Unique keys that several messages of a topic have: a producer sent a message again that was already stored."
    if not digest.duplicates:
        return section("duplicates", "Duplicates", hint, none_found("No unique key occurs twice in a topic."))
    rows = [
        [
            _name(row["topic"]),
            f"<code>{text_of(row['unique_key'], 48)}</code>",
            count_text(row["copy_count"]),
            millis_text(row["last_store_time"] - row["first_store_time"]),
            f"{row['first_commit_log_offset']:,}",
            f"{row['last_commit_log_offset']:,}",
        ]
        for row in digest.duplicates
    ]
    heads = ["topic", "unique key", "#copies", "#first to last", "#first at", "#last at"]
    caption = f"The keys with the most copies, of {count_text(digest.row_counts['duplicates'])} such keys"
    return section("duplicates", "Duplicates", hint, card(table(heads, rows, caption)))


def _foot(digest: Digest) -> str:
    names = sorted(digest.row_counts)
    links = ", ".join(f'<a href="{name}.csv">{name}</a> ({digest.row_counts[name]:,})' for name in names)
    return (
        f"<footer>All rows are in the tables beside this page, as CSV and as Parquet: {links}.<br>"
        f"Made by <code>reput pipeline analytics</code> on {time_text(digest.made_at_millis)} UTC.</footer>"
    )


def _name(topic: str) -> str:
    return f'<span title="{text_of(topic, 200)}">{text_of(topic, 48)}</span>'


def _times(timeline: Timeline) -> tuple[Sequence[str], Sequence[str]]:
    titles = [f"{time_text(begin)} UTC" for begin in timeline.begins_millis]
    return axis_times(timeline.begins_millis, timeline.bucket_seconds), titles
