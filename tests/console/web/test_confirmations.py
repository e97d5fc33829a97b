"""Tokens of forms and confirmations: for one session, once, for a time, within limits."""

import pytest

from console.web.confirmations import CONFIRMATION_SECONDS, KEPT_BYTES_MAX, KEPT_COUNT_MAX, Confirmations, session_of
from store.errors import InvalidArgumentError


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def confirmations(clock: Clock) -> Confirmations:
    return Confirmations(clock)


@pytest.mark.parametrize("token", ["", "0" * 64, "ünïcode"])
def test_a_form_without_the_token_of_its_session_is_refused(confirmations: Confirmations, token: str) -> None:
    with pytest.raises(InvalidArgumentError):
        confirmations.check_form("one", token)


def test_the_token_of_another_session_or_of_none_is_refused(confirmations: Confirmations) -> None:
    confirmations.check_form("one", confirmations.form_token("one"))
    with pytest.raises(InvalidArgumentError):
        confirmations.check_form("two", confirmations.form_token("one"))
    with pytest.raises(InvalidArgumentError):
        confirmations.check_form("", confirmations.form_token(""))
    with pytest.raises(InvalidArgumentError):
        Confirmations(lambda: 0.0).check_form("one", confirmations.form_token("one"))


def test_a_confirmation_counts_once(confirmations: Confirmations) -> None:
    token = confirmations.keep("one", "send", "command", 1)

    assert confirmations.take("one", "send", token) == "command"
    with pytest.raises(InvalidArgumentError):
        confirmations.take("one", "send", token)


@pytest.mark.parametrize(("session", "action"), [("two", "send"), ("one", "drop"), ("", "send")])
def test_a_confirmation_counts_for_its_session_and_its_action_only(
    confirmations: Confirmations, session: str, action: str
) -> None:
    token = confirmations.keep("one", "send", "command", 1)

    with pytest.raises(InvalidArgumentError):
        confirmations.take(session, action, token)
    assert confirmations.take("one", "send", token) == "command"


def test_a_confirmation_ends_with_its_time(confirmations: Confirmations, clock: Clock) -> None:
    token, other = (confirmations.keep("one", "send", "command", 1) for _ in range(2))
    clock.seconds = CONFIRMATION_SECONDS - 1

    assert confirmations.take("one", "send", token) == "command"
    clock.seconds = CONFIRMATION_SECONDS
    with pytest.raises(InvalidArgumentError):
        confirmations.take("one", "send", other)


@pytest.mark.parametrize(("count", "size_bytes"), [(KEPT_COUNT_MAX + 20, 1), (20, KEPT_BYTES_MAX // 8)])
def test_a_session_that_keeps_very_much_loses_its_own_and_nobody_elses(
    confirmations: Confirmations, count: int, size_bytes: int
) -> None:
    mine = confirmations.keep("one", "send", "mine", 1)
    tokens = [confirmations.keep("greedy", "send", number, size_bytes) for number in range(count)]

    assert confirmations.take("one", "send", mine) == "mine"
    assert confirmations.take("greedy", "send", tokens[-1]) == count - 1
    with pytest.raises(InvalidArgumentError):
        confirmations.take("greedy", "send", tokens[0])
    assert sum(kept.size_bytes for kept in confirmations._kept.values()) <= KEPT_BYTES_MAX


def test_the_session_of_a_signed_in_browser_is_its_token_and_does_not_show_it() -> None:
    assert session_of("the-key", "cookie") == session_of("the-key", "")
    assert "the-key" not in session_of("the-key", "")
    assert session_of("", "cookie") == "cookie"
