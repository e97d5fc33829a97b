"""Who is let near the console."""

import pytest

from console.web.request_guard import RequestGuard

BROWSER = {"host": "localhost:8080", "origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "[::1]:8080", "localhost", "LOCALHOST:1", "10.1.2.3", "a.localhost:80"]
)
def test_addresses_and_localhost_are_known(host: str) -> None:
    assert RequestGuard().refusal("GET", {"host": host}) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example", "[bad", "@"]
)
def test_a_name_that_a_stranger_can_point_at_us_is_not_answered(host: str) -> None:
    refusal = RequestGuard("console.example").refusal("GET", {"host": host})
    assert refusal is not None
    assert refusal[0] == 421


def test_names_of_the_settings_are_known() -> None:
    assert RequestGuard("console.example, other.example").knows("Console.example:443")
    assert not RequestGuard("console.example").knows("x.console.example")
    assert RequestGuard("*").knows("whatever.example")


def test_only_our_own_page_may_post() -> None:
    guard = RequestGuard()
    assert guard.refusal("POST", BROWSER) is None
    assert guard.refusal("POST", {"host": "localhost:8080", "origin": "http://localhost:8080"}) is None
    for headers in (
        {"host": "localhost:8080"},
        {**BROWSER, "sec-fetch-site": "cross-site"},
        {**BROWSER, "sec-fetch-site": "same-site"},
        {**BROWSER, "origin": "http://evil.example"},
        {**BROWSER, "origin": "null"},
        {**BROWSER, "origin": "http://localhost:9"},
    ):
        refusal = guard.refusal("POST", headers)
        assert refusal is not None, headers
        assert refusal[0] == 403


def test_an_origin_that_is_no_url_is_refused_and_raises_nothing() -> None:
    for origin in ("http://[", "null", "//"):
        refusal = RequestGuard().refusal("POST", {**BROWSER, "origin": origin})
        assert refusal is not None
        assert refusal[0] == 403
