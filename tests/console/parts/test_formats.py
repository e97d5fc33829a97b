"""Texts in pages: no foreign character acts, none vanishes.

Errors of the gateway in the reader's language.
"""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.parts.formats import (
    count_text,
    duration_text,
    error_text,
    middle_cut,
    shortened,
    size_text,
    time_attribute,
    time_text,
    track_state,
    visible,
    visible_lines,
)
from console.words import LANGUAGES, Words
from console.words_zh import ERRORS
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.status import CODE_BY_ERROR, reason_of, to_status
from store.errors import ServiceUnavailableError, TopicNotFoundError
from tests.console.asking import Browser, console_over
from tests.gateway.memory_shard import MemoryShard


@given(st.text())
def test_nothing_that_acts_or_hides_is_left(text: str) -> None:
    for character in visible(text):
        assert unicodedata.category(character) not in ("Cc", "Cs")
        assert unicodedata.bidirectional(character) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
    assert len(visible(text)) >= len(text)


def test_what_was_replaced_is_named() -> None:
    assert visible("a\u202eb\x00\n") == "a⟦U+202E⟧b⟦U+0000⟧⟦U+000A⟧"
    assert visible_lines("a\tb\n\x1b") == "a\tb\n⟦U+001B⟧"
    assert visible("订单 שלום 🎉") == "订单 שלום 🎉"


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (1714566600123, "2024-05-01 12:30:00.123"),
        (-1, "1969-12-31 23:59:59.999"),
        (1 << 62, f"{1 << 62} ms"),
        (None, "–"),
    ],
)
def test_times_are_utc_to_the_millisecond(millis: int | None, text: str) -> None:
    assert time_text(millis) == text


def test_units_follow_the_size() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 1536, 10 << 20, 3 << 40)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 MiB", "3.0 TiB",
    ]  # fmt: skip
    assert [duration_text(millis) for millis in (3, 1_500, 300_000, 3 * 3_600_000, 3 * 86_400_000)] == [
        "3 ms", "1.5 s", "5.0 min", "3.0 h", "3.0 d",
    ]  # fmt: skip
    assert count_text(1234567) == "1,234,567"
    assert time_attribute(0) == "1970-01-01T00:00:00.000Z"


@given(st.text(max_size=200), st.integers(4, 64))
def test_cut_texts_are_no_longer_than_asked_and_keep_their_ends(text: str, characters_max: int) -> None:
    for cut in (shortened(text, characters_max), middle_cut(text, characters_max)):
        assert len(cut) <= max(characters_max, len(text) if len(text) <= characters_max else 0)
        assert (cut == text) == (len(text) <= characters_max) or "…" in text
    if len(text) > characters_max:
        assert middle_cut(text, characters_max)[-1] == text[-1]


CHINESE = {"accept-language": "zh-CN"}


def test_every_error_that_travels_is_explained_in_chinese_and_no_explanation_is_left_over() -> None:
    assert {reason_of(error) for error in CODE_BY_ERROR} == set(ERRORS)


@pytest.mark.parametrize("of", [lambda error: error, to_status], ids=["an error", "its status"])
def test_the_own_text_of_an_error_stays_beside_its_explanation(of) -> None:
    error = of(TopicNotFoundError("The store has no topic 'x'.", topic="x"))

    assert error_text(Words("en"), error) == "The store has no topic 'x'."
    assert error_text(Words("zh"), error) == "没有这个主题（The store has no topic 'x'.）"
    assert set(LANGUAGES) == {"en", "zh"}


@pytest.mark.parametrize(
    ("path", "explanation"),
    [
        ("/topics/nope", "没有这个主题"),
        ("/?mode=id&id=zz", "这不是 offsetMsgId"),
        ("/topics/b_log/77", "该主题没有这个队列"),
        ("/groups/no-such", "没有这个消费者组"),
    ],
)
def test_a_failed_page_explains_itself_in_chinese_and_keeps_the_reason(
    browser: Browser, path: str, explanation: str
) -> None:
    chinese, english = browser.ask("GET", path, b"", CHINESE), browser.get(path)

    assert explanation in chinese.text
    assert explanation not in english.text
    assert chinese.status == english.status >= 400


def test_a_shard_that_is_missing_is_explained_in_chinese(records, fan_out) -> None:
    down = MemoryShard(records, failures={"search": ServiceUnavailableError("nobody listens at port 1")})
    app = console_over([MemoryShard(records), down], fan_out)
    page = Browser(app).ask("GET", "/?q=bk3_3", b"", CHINESE).text
    app.close()

    assert "一个后端服务没有应答（nobody listens at port 1）" in page


def test_how_a_message_stands_with_a_group_is_in_the_readers_words() -> None:
    assert [track_state(Words(language), "NOT_CONSUMED") for language in LANGUAGES] == ["Not yet delivered", "尚未投递"]
    assert track_state(Words("zh"), "OF_A_LATER_RELEASE") == "OF_A_LATER_RELEASE"
    named = {state.removeprefix("TRACK_STATE_") for state in pb.TrackState.DESCRIPTOR.values_by_name} - {"UNSPECIFIED"}
    assert not [state for state in named if track_state(Words("zh"), state) == state]
