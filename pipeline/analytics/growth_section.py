"""The section of the analytics page about growth, and when the disk is full. Pure."""

from collections.abc import Sequence

from pipeline.analytics.digest import Digest, Row
from pipeline.analytics.growth import window_of
from pipeline.analytics.page_parts import card, section, table
from pipeline.analytics.texts import Texts
from pipeline.analytics.words import bytes_rate_text, bytes_text, count_text, seconds_text


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
