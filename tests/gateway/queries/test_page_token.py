"""Page tokens go on exactly where and for what they were made."""

import base64

import pytest

from gateway.queries.page import PageTokens
from services.serving.server_options import RECEIVE_BYTES_MAX
from store.errors import InvalidPageTokenError

QUERY = {"topic": "orders", "key": "订单", "begin": None, "end": 5}
CURSORS = {"broker-a": 1234, "broker-b": 0}


def test_a_token_gives_its_cursors_back():
    tokens = PageTokens("secret")

    assert tokens.open(tokens.seal("Q", QUERY, CURSORS), "Q", QUERY) == CURSORS
    assert tokens.open("", "Q", QUERY) == {}


def test_a_token_outlives_the_gateway_that_made_it():
    token = PageTokens("secret").seal("Q", QUERY, CURSORS)

    assert PageTokens("secret").open(token, "Q", QUERY) == CURSORS


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("Other", QUERY),
        ("Q", QUERY | {"key": "订"}),
        ("Q", QUERY | {"begin": 0}),
        ("Q", {"topic": "orders", "key": "订单"}),
    ],
)
def test_a_token_of_another_query_is_refused(method, query):
    token = PageTokens("secret").seal("Q", QUERY, CURSORS)

    with pytest.raises(InvalidPageTokenError):
        PageTokens("secret").open(token, method, query)


def test_a_token_of_another_secret_is_refused():
    with pytest.raises(InvalidPageTokenError):
        PageTokens("one").open(PageTokens("two").seal("Q", QUERY, CURSORS), "Q", QUERY)


def test_a_token_with_any_character_changed_added_or_missing_is_refused():
    tokens = PageTokens("secret")
    token = tokens.seal("Q", QUERY, CURSORS)
    changed = [token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in range(len(token))]
    for wrong in [*changed, *(token[:end] for end in range(1, len(token))), token + "A", token + "=", " " + token]:
        with pytest.raises(InvalidPageTokenError):
            tokens.open(wrong, "Q", QUERY)


@pytest.mark.parametrize("wrong", ["x", "====", "not a token", "é", "\0", "A" * 100, "A" * 1_000_000])
def test_what_is_no_token_is_refused(wrong):
    with pytest.raises(InvalidPageTokenError):
        PageTokens("secret").open(wrong, "Q", QUERY)


def test_a_token_over_a_thousand_shards_with_long_names_was_refused_by_its_own_gateway():
    tokens = PageTokens("secret")
    cursors = {f"{number:040d}.{'n' * 63}": (1 << 62) + number for number in range(1_000)}
    token = tokens.seal("Q", QUERY, cursors)

    assert len(token) > 64 * 1024
    assert tokens.open(token, "Q", QUERY) == cursors
    assert len(token) < RECEIVE_BYTES_MAX // 8, "a request with it is still one"


@pytest.mark.parametrize("size", range(0, 50, 7))
def test_a_token_tells_nothing_of_its_place_and_has_the_length_of_others(size) -> None:
    """The place was plain base64: the times of messages that the caller may not see."""
    tokens = PageTokens("secret")
    place = {"token": "8" * size}
    token = tokens.seal("Q", QUERY, place)

    assert len(token) == len(tokens.seal("Q", QUERY, {}))
    plain = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert b"token" not in plain
    assert size < 8 or b"8" * 8 not in plain
    assert token != tokens.seal("Q", QUERY, place), "equal places have equal tokens"
    assert tokens.open(token, "Q", QUERY) == place
