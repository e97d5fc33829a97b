"""What a URL asks for.

RocketMQ's expression of tags; the cases are those of its FilterAPI and FilterAPITest.
"""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.question import LAST_SECONDS, TAG_COUNT_MAX, Question, Window, parse_tags, parse_time
from store.errors import InvalidArgumentError

NOW = 1_714_566_600_000


def question(**parameters: str) -> Question:
    return Question(parameters, {}, NOW)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)))
def test_a_time_is_read_as_utc_exactly(moment: datetime) -> None:
    millis = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    assert parse_time(f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".zfill(24), "begin") == millis


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2024-05-01", "2024-05-01T23:59:59.999"),
        ("2024-05-01T12:30", "2024-05-01T12:30:59.999"),
        ("2024-05-01T12:30:07", "2024-05-01T12:30:07.999"),
        ("2024-05-01T12:30:07.5", "2024-05-01T12:30:07.500"),
    ],
)
def test_an_end_without_more_is_the_end_of_its_unit(text: str, end: str) -> None:
    assert parse_time(text, "end", is_end=True) == parse_time(end, "end")


@pytest.mark.parametrize("text", ["yesterday", "2024-13-01", "2024-05-01T25:00", "0000-01-01", "9" * 30])
def test_no_time_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        question(begin=text).time_millis("begin")
    assert refused.value.metadata["field"] == "begin"


def test_a_picked_range_counts_from_now_and_two_times_are_taken_as_they_are() -> None:
    for name, seconds in LAST_SECONDS.items():
        assert question(last=name, begin="2024-01-01").window() == Window(NOW - seconds * 1000)
    assert question(last="all", begin="2024-01-01").window() == Window()
    assert question(begin="1970-01-01", end="1970-01-02").window() == Window(0, 2 * 86_400_000 - 1)


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "9" * 19, "٣"])
def test_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        question(offset=text).number("offset", 0)


def test_a_link_keeps_what_was_asked_and_changes_what_is_named() -> None:
    asked = question(q="a b&c", page="old", topic="")

    assert asked.link("/", page="new") == "/?q=a+b%26c&page=new"
    assert asked.link("/", page=None) == "/?q=a+b%26c"
    assert question().link("/") == "/"


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("", ()),
        (" ", ()),
        ("*", ()),
        (" * ", ()),
        ("TAG1 || Tag2 || tag3", ("TAG1", "Tag2", "tag3")),
        ("TagA", ("TagA",)),
        ("TagA||TagB", ("TagA", "TagB")),
        ("  TagA  ||  || TagB || TagA ", ("TagA", "TagB")),
        ("* || TagA", ("*", "TagA")),
        ("TagA | TagB", ("TagA | TagB",)),
    ],
)
def test_tags_are_read_as_rocketmq_reads_them(text: str, tags: tuple[str, ...]) -> None:
    assert parse_tags(text, "tag") == tags


@pytest.mark.parametrize("text", ["||", " || || ", " || ".join(f"T{number}" for number in range(TAG_COUNT_MAX + 1))])
def test_no_tag_or_too_many_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        parse_tags(text, "tag")
    assert refused.value.metadata == {"field": "tag"}
