"""The sections of the analytics page about topics, their queues, keys and duplicates. Pure."""

from html import escape
from typing import Any

from pipeline.analytics import charts
from pipeline.analytics.charts import text_of
from pipeline.analytics.digest import TOPIC_COUNT_MAX, Digest
from pipeline.analytics.page_parts import card, meter, name_of, none_found, section, table
from pipeline.analytics.texts import Texts
from pipeline.analytics.words import bytes_text, count_text, millis_text, rate_text, share_text

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
