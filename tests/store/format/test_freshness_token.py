"""Freshness tokens: they say what they were made of, and nothing else that looks like one is taken."""

import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store.errors import InvalidFreshnessTokenError
from store.format.freshness_token import (
    FRAME_CHARACTER_COUNT,
    TOKEN_BYTES_MAX,
    FreshnessToken,
    decode_freshness_token,
    encode_freshness_token,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
OFFSETS = st.integers(0, (1 << 63) - 1)


@settings(deadline=None)
@given(NAMES, OFFSETS)
@example("broker-a", 0)
@example("0" * 40, (1 << 63) - 1)
def test_a_token_says_what_it_was_made_of(broker_name, commit_log_offset):
    token = encode_freshness_token(broker_name, commit_log_offset)
    assert decode_freshness_token(token) == FreshnessToken(broker_name, commit_log_offset)
    assert len(token) == FRAME_CHARACTER_COUNT + len(broker_name)


def test_a_token_is_as_its_drawing_says():
    text = "1" + "00000000DEADBEEF" + "broker-ä"
    expected = text + f"{zlib.crc32(text.encode()):08X}"
    assert encode_freshness_token("broker-ä", 0xDEADBEEF) == expected


@settings(deadline=None)
@given(NAMES, OFFSETS, st.data())
def test_a_token_with_another_character_anywhere_is_refused(broker_name, commit_log_offset, data):
    token = encode_freshness_token(broker_name, commit_log_offset)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(exclude_categories=["Cs"]).filter(lambda each: each != token[at]))
    with pytest.raises(InvalidFreshnessTokenError):
        decode_freshness_token(token[:at] + other + token[at + 1 :])


@settings(deadline=None)
@given(NAMES, OFFSETS, st.data())
def test_a_part_of_a_token_is_refused(broker_name, commit_log_offset, data):
    token = encode_freshness_token(broker_name, commit_log_offset)
    begin = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(begin, len(token)))
    if token[begin:end] != token:
        with pytest.raises(InvalidFreshnessTokenError):
            decode_freshness_token(token[begin:end])


@settings(deadline=None)
@given(st.text(max_size=60))
@example("")
@example("1")
@example("é" * TOKEN_BYTES_MAX)
def test_any_other_text_is_refused_by_name(text):
    with pytest.raises(InvalidFreshnessTokenError) as refused:
        decode_freshness_token(text)
    assert refused.value.metadata["field"] == "freshness_tokens"


def sealed(text: str) -> str:
    return text + f"{zlib.crc32(text.encode()):08X}"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (sealed("2" + "0" * 16 + "broker-a"), "version '2'"),
        (sealed("1" + "F" * 16 + "broker-a"), "names no offset"),
        (sealed("1" + "00000000deadbeef" + "broker-a"), "names no offset"),
        (sealed("1" + "0" * 16), "cut short"),
        (sealed("1" + "0" * 16 + "broker-a").lower(), "check"),
    ],
)
def test_what_is_sealed_but_not_ours_is_refused_with_its_reason(token, reason):
    with pytest.raises(InvalidFreshnessTokenError, match=reason):
        decode_freshness_token(token)
