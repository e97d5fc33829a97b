"""The sections of the analytics page about consumer groups: lag, waiting, retries and dead letters. Pure."""

from html import escape

from pipeline.analytics import charts
from pipeline.analytics.charts import Axes, Series, visible
from pipeline.analytics.digest import BAND_COUNT_MAX, LISTED_COUNT_MAX, Digest, GroupLag
from pipeline.analytics.groups.moves import DEAD_LETTER, SENT_BACK
from pipeline.analytics.page_parts import card, legend, name_of, none_found, section, table
from pipeline.analytics.texts import Texts
from pipeline.analytics.words import axis_times, count_text, millis_text, time_text


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
