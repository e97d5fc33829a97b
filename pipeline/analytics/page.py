"""The analytics page: one self-contained HTML file without script, in one language. Pure.

Producers choose topics and keys, so every text passes `text_of`. As a second protection, the page's content security
policy forbids the browser to load or run anything. A phone of 360 px shows it without scrolling sideways: the rows of tables
become blocks there (`style.py`).
"""

from html import escape

from pipeline.analytics import charts
from pipeline.analytics.charts import Axes, Series, text_of
from pipeline.analytics.digest import OTHERS, Digest, Timeline
from pipeline.analytics.groups.section import groups_section, retries_section, waits_section
from pipeline.analytics.growth_section import full_text, growth_section
from pipeline.analytics.index_page import index_section
from pipeline.analytics.page_parts import card, legend, none_found, section, tiles
from pipeline.analytics.style import STYLE
from pipeline.analytics.texts import HTML_LANGUAGES, LANGUAGES, PAGE_NAMES, Texts
from pipeline.analytics.topic_sections import duplicates_section, keys_section, queues_section, topics_section
from pipeline.analytics.words import (
    DURATION_MARKS,
    axis_times,
    bytes_rate_text,
    bytes_text,
    count_text,
    millis_text,
    rate_text,
    seconds_text,
    time_text,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
# Delays that differ by more than this factor are drawn on a logarithmic axis.
UNEVEN_DELAYS = 50


def page(digest: Digest, say: Texts | None = None) -> str:
    """The HTML of the whole page; in English if no texts are given."""
    say = say or Texts()
    body = [_head(digest, say)]
    if not digest.totals["message_count"]:
        body.append(none_found(say("The log has no message."), is_good=False))
    else:
        assert digest.timeline is not None
        body += [
            groups_section(digest, say),
            waits_section(digest, say),
            retries_section(digest, say),
            growth_section(digest, say),
            _traffic(digest.timeline, say),
            _delays(digest.timeline, digest, say),
            topics_section(digest, say),
            queues_section(digest, say),
            keys_section(digest, say),
            duplicates_section(digest, say),
        ]
    body += [index_section(digest, say), _foot(digest, say)]
    title = escape(say("Log analytics"))
    return (
        f'<!doctype html><html lang="{HTML_LANGUAGES[say.language]}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{title}: {text_of(digest.store)}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(body)
        + "</main></body></html>\n"
    )


def _head(digest: Digest, say: Texts) -> str:
    totals = digest.totals
    begin, end = totals["first_store_time"], totals["last_store_time"]
    span = (end - begin) / 1000
    when = ""
    if totals["message_count"]:
        values = {"begin": time_text(begin), "end": time_text(end), "span": seconds_text(span)}
        when = say("{begin} to {end} UTC ({span})", **values)
    peak = max(map(sum, zip(*digest.timeline.messages.values(), strict=True)), default=0) if digest.timeline else 0
    queue_count = count_text(digest.row_counts.get("queues", 0))
    missing, spare, behind = totals["missing_count"], totals["spare_copy_count"], totals["lag_count"]
    shown = [
        (count_text(totals["message_count"]), say("messages"), ""),
        (bytes_text(totals["store_size_bytes"]), say("of records"), ""),
        (count_text(digest.row_counts.get("topics", 0)), say("topics, {queues} queues", queues=queue_count), ""),
        (
            rate_text(totals["message_count"] / span) if span > 0 else "–",
            say("on average, {peak} at most", peak=rate_text(peak)),
            "",
        ),
    ]
    if digest.lags:
        shown.append((count_text(behind), say("messages behind, all groups"), "warn" if behind else "good"))
    if digest.growth:
        shown.append((full_text(digest.growth), say("until the disk is full, as it grows now"), ""))
    shown += [
        (count_text(missing), say("queue offsets missing"), "warn" if missing else "good"),
        (count_text(spare), say("messages stored again"), "warn" if spare else "good"),
    ]
    links = {
        "groups": say("Consumers"), "waits": say("Waiting"), "retries": say("Retries"), "growth": say("Growth"),
        "traffic": say("Traffic"), "delay": say("Delay"), "topics": say("Topics"), "queues": say("Queues"),
        "keys": say("Keys"), "duplicates": say("Duplicates"), "index": say("Index"),
    }  # fmt: skip
    if not totals["message_count"]:
        links = {"index": links["index"]}
    nav = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name in links.items())
    others = "".join(
        f'<a href="{PAGE_NAMES[other]}" lang="{HTML_LANGUAGES[other]}">{name}</a>'
        for other, name in LANGUAGES.items()
        if other != say.language
    )
    return (
        f'<header><h1>{escape(say("Log analytics"))}</h1><p class="lead">{text_of(digest.store, 200)}<br>{escape(when)}</p>'
        f"<nav>{nav}{others}</nav></header>{tiles(shown)}"
    )


def _traffic(timeline: Timeline, say: Texts) -> str:
    names = {name: say("all others") if name == OTHERS else name for name in timeline.messages}
    names_of_times, titles = axis_times(timeline.begins_millis, timeline.bucket_seconds), timeline.titles()
    parts = []
    for title, values, unit in (
        (say("Messages per second"), timeline.messages, rate_text),
        (say("Bytes per second"), timeline.bytes, bytes_rate_text),
    ):
        bands = [Series(shown, values[name]) for name, shown in names.items()]
        label = say("{title}, by topic, over time", title=title)
        chart = charts.stacked_areas(Axes(label, names_of_times, unit, titles=titles), bands)
        parts.append(card(f"<h3>{escape(title)}</h3>{chart}{legend(list(names.values()))}"))
    step = seconds_text(timeline.bucket_seconds)
    hint = say("By store time, in steps of {step}; topics stacked, the largest at the bottom.", step=step)
    return section("traffic", say("Traffic"), hint, *parts)


def _delays(timeline: Timeline, digest: Digest, say: Texts) -> str:
    series = [
        Series(say("half of the messages (p50)"), timeline.delay_p50),
        Series(say("99 of 100 (p99)"), timeline.delay_p99),
    ]
    values = [value for one in series for value in one.values if value is not None and value > 0]
    marks = DURATION_MARKS if values and max(values) > UNEVEN_DELAYS * min(values) else ()
    names_of_times = axis_times(timeline.begins_millis, timeline.bucket_seconds)
    axes = Axes(say("Delay from birth to store over time"), names_of_times, millis_text, marks, timeline.titles())
    hint = say(
        "From the creation of a message by its producer until the store wrote it; delayed messages wait on purpose."
    )
    early = digest.totals["born_after_store_count"]
    if early:
        hint += " " + say(
            "{count} messages were born after they were stored: their producers' clocks were ahead.",
            count=count_text(early),
        )
    names = [one.name for one in series]
    chart = f"<h3>{escape(say('Delay, all topics'))}</h3>{charts.curves(axes, series)}{legend(names)}"
    return section("delay", say("Delay"), hint, card(chart))


def _foot(digest: Digest, say: Texts) -> str:
    names = sorted(digest.row_counts)
    links = ", ".join(f'<a href="{name}.csv">{name}</a> ({digest.row_counts[name]:,})' for name in names)
    tables = escape(say("All rows are in the tables beside this page, as CSV and as Parquet:"))
    made = escape(say("Made by {command} on {time} UTC.", command="\0", time=time_text(digest.made_at_millis)))
    made = made.replace("\0", "<code>reput pipeline analytics</code>")
    return f"<footer>{tables} {links}.<br>{made}</footer>"
