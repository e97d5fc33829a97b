"""What is the same for all pages: language and colours, forms of strangers, sign-in."""

import re
from pathlib import Path

import pytest

from console.web.exchange import FORM_BYTES_MAX
from store.errors import UnauthenticatedError
from tests.console.asking import Browser, Tags, console_over

ROOT = Path(__file__).resolve().parents[3]


def test_the_language_is_the_browsers_until_the_reader_chooses(browser: Browser) -> None:
    assert "Find a message" in browser.get("/").text
    assert "查找消息" in browser.get("/", accept_language="zh-CN").text
    chosen = browser.post("/preferences", b"language=zh&next=%2Ftopics%3Fq%3Da")

    assert (chosen.status, chosen.headers["location"]) == (303, "/topics?q=a")
    assert "reput_language=zh" in chosen.headers["set-cookie"]
    assert 'lang="zh-CN"' in browser.get("/", cookie="reput_language=zh", accept_language="en").text


def test_colours_are_the_systems_until_the_reader_chooses(browser: Browser) -> None:
    assert 'data-theme="auto"' in browser.get("/").text
    assert 'data-theme="dark"' in browser.get("/", cookie="reput_theme=dark").text
    assert 'data-theme="auto"' in browser.get("/", cookie='reput_theme="><script>').text
    assert "HttpOnly" in browser.post("/preferences", b"theme=dark").headers["set-cookie"]


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\r\nb", "/ü"])
def test_a_form_leads_nowhere_else(target: str, browser: Browser) -> None:
    from urllib.parse import quote

    answer = browser.post("/preferences", f"theme=dark&next={quote(target)}".encode())
    assert answer.headers["location"] == "/"


def test_a_form_of_a_stranger_changes_nothing(browser: Browser) -> None:
    answer = browser.post("/preferences", b"theme=dark", origin="http://evil.example")

    assert answer.status == 403
    assert "set-cookie" not in answer.headers


def test_a_form_that_is_too_large_is_not_read(browser: Browser) -> None:
    assert "set-cookie" not in browser.post("/preferences", b"theme=dark&x=" + b"y" * FORM_BYTES_MAX).headers


def test_a_form_with_fields_without_end_is_not_read(browser: Browser) -> None:
    assert browser.post("/preferences", b"&".join([b"theme=dark"] * 99)).status == 303


def test_pages_cannot_be_posted_to(browser: Browser) -> None:
    assert browser.post("/topics", b"").status == 405


def test_files_beside_the_pages_are_only_the_three(browser: Browser) -> None:
    for name in ("console.css", "console.js", "icon.svg"):
        assert browser.get(f"/static/{name}").status == 200
    for name in ("..%2fapp.py", "layout.html", "%2e%2e/app.py", "console.css/x"):
        assert browser.get(f"/static/{name}").status == 404


def test_every_answer_forbids_what_is_not_ours(browser: Browser) -> None:
    for path in ("/", "/topics", "/nope", "/static/console.js", "/?mode=x", "/openapi.json", "/api"):
        headers = browser.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_the_api_page_has_each_rpc_with_the_lines_that_call_it(browser: Browser) -> None:
    proto = (ROOT / "protos/reput/gateway/v1/gateway_service.proto").read_text(encoding="utf-8")
    page = browser.get("/api").text

    for rpc in re.findall(r"^  rpc (\w+)\(", proto, re.MULTILINE):
        assert f'<section id="{rpc}">' in page
        assert f"/reput.gateway.v1.GatewayService/{rpc}</code>" in page
    assert 'href="/api"' in browser.get("/").text
    assert browser.get("/api?format=json").text == browser.get("/openapi.json").text


def test_nothing_is_loaded_from_elsewhere(browser: Browser) -> None:
    for _, attributes in Tags(browser.get("/").text).tags:
        for name in ("src", "href", "action"):
            assert str(attributes.get(name, "/")).startswith(("/", "#"))


def test_a_bug_in_a_page_is_an_answer_and_not_the_end(shard, fan_out, monkeypatch: pytest.MonkeyPatch) -> None:
    app = console_over([shard], fan_out)
    monkeypatch.setattr(app._source.gateway, "ListTopics", lambda *_: 1 / 0, raising=False)

    answer = Browser(app).get("/topics")
    app.close()

    assert answer.status == 500
    assert "ZeroDivisionError" in answer.text


@pytest.mark.parametrize(
    "path", ["//evil.example/x", "//evil.example/?q=1", "/topics/%25RETRY%25ab", "/topics/%25DLQ%25ab?a=b"]
)
def test_links_to_here_lead_here_whatever_the_path_looks_like(path: str, browser: Browser) -> None:
    page = Tags(browser.get(path).text)
    as_json = [str(attributes["href"]) for _, attributes in page.tags if "format=json" in str(attributes.get("href"))]

    here = path if not path.startswith("//") else "/"
    assert as_json == [f"{here}{'&' if '?' in here else '?'}format=json"]


class KeySignIn:
    is_on = True

    def name_of(self, token: str, peer: str) -> str:
        if token != "the-key":
            raise UnauthenticatedError("the API key is not known here")
        return "someone"

    def sees_store(self, token: str, peer: str) -> bool:
        return self.name_of(token, peer) == "someone"

    def may(self, token: str, peer: str, method: str, request: object) -> bool:
        return self.sees_store(token, peer)


@pytest.fixture
def guarded(shard, fan_out):
    app = console_over([shard], fan_out, sign_in=KeySignIn())
    yield Browser(app)
    app.close()


def test_who_has_not_signed_in_sees_the_form_and_nothing_else(guarded: Browser) -> None:
    for path in ("/", "/topics", "/topics/b_log", "/topics/b_log/tail", "/store", "/reports", "/messages/x/body"):
        answer = guarded.get(path)
        assert (answer.status, answer.headers["location"].partition("?")[0]) == (303, "/sign-in"), path
        assert guarded.get_json(path).status == 401
    assert 'type="password"' in guarded.get("/sign-in").text


def test_a_good_token_becomes_a_cookie_that_only_we_get_and_a_bad_one_does_not(guarded: Browser) -> None:
    good = guarded.post("/sign-in?next=%2Ftopics", b"token=the-key")
    bad = guarded.post("/sign-in?next=%2Ftopics", b"token=a-wrong-key")

    assert (good.status, good.headers["location"]) == (303, "/topics")
    for attribute in ("reput_session=the-key", "HttpOnly", "SameSite=strict"):
        assert attribute in good.headers["set-cookie"]
    assert "Max-Age" not in good.headers["set-cookie"]
    assert (bad.status, "set-cookie" in bad.headers) == (401, False)
    assert "the API key is not known here" in bad.text
    assert "a-wrong-key" not in bad.text


def test_signed_in_pages_are_there_and_programs_may_send_a_header(guarded: Browser) -> None:
    assert guarded.get("/topics", cookie="reput_session=the-key").status == 200
    assert guarded.get("/topics", authorization="Bearer the-key", accept="application/json").status == 200
    assert guarded.get("/topics", cookie="reput_session=old").status == 303
    assert "Max-Age=0" in guarded.post("/sign-out", b"", cookie="reput_session=the-key").headers["set-cookie"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/?mode=search&topic=TopicTest&text=x", "body is meant"),
        ("/?mode=offset&topic=TopicTest&queue_id=1", "queue is meant"),
        ("/explain?mode=key&topic=TopicTest&kye=x", "key is meant"),
        ("/topics?name=x", "It takes from, page, q, size, sort."),
        ("/topics/TopicTest/0?ofset=1", "offset is meant"),
        ("/topics/TopicTest/tail?tags=a", "tag is meant"),
        ("/store?since=1", "It takes none."),
    ],
)
def test_a_parameter_that_a_page_does_not_take_is_refused_with_the_nearest_name(browser, path, meant):
    """A defect: `text=` instead of `body=` was ignored, and the answer to another question was called complete."""
    answer = browser.get_json(path)

    assert answer.status == 400
    assert meant in answer.json["message"]
    assert browser.get(path).status == 400
