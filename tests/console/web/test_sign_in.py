"""The console behind the gateway's own guard: what a token may see, and what the audit log has of those that may not."""

from pathlib import Path

import pytest

from console.opening import SERVICE_PREFIX
from console.pages.reports import Reports
from console.web.app import ConsoleApp, ConsoleSource
from console.web.request_guard import RequestGuard
from console.web.sign_in import GuardedGateway, GuardedSignIn
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.caller_shards import CallerShards
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from gateway.ports.shards import Shards
from gateway.queries.page import PageTokens
from gateway.reput.servicer import GatewayServicer
from tests.console.asking import Browser
from tests.gateway.auth.conftest import access_text, key_of

STRANGER = "reput_nobody-knows-this-key"


@pytest.fixture
def lines() -> list[dict[str, object]]:
    return []


@pytest.fixture
def guarded(tmp_path: Path, shard, fan_out, lines):
    access = tmp_path / "access.toml"
    access.write_text(access_text({"reader": {"read": ["*"]}, "chief": {"admin": ["*"]}}))
    (tmp_path / "analytics").mkdir()
    (tmp_path / "analytics" / "report.html").write_text("<p>the whole store</p>")
    sign_in = SignIn(
        WatchedFile("access_file", access, parse_access_file, lambda: 0.0),
        tokens=None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    guard = GatewayGuard(sign_in, Audit(lambda event, **fields: lines.append({"event": event, **fields}), lambda: 0.0))
    servicer = GatewayServicer(CallerShards(Shards([shard.shard("broker-a")], fan_out)), PageTokens("secret"))
    gateway = GuardedGateway(servicer, guard, SERVICE_PREFIX)
    app = ConsoleApp(ConsoleSource(gateway, GuardedSignIn(guard), RequestGuard(), Reports(tmp_path)))
    yield Browser(app)
    app.close()


def test_only_admins_may_send_dead_letters_again_and_the_refusal_is_audited(guarded: Browser, lines) -> None:
    path, form = "/groups/b_cg/dead-letters", b"confirmed=1"

    refused = guarded.post(path, form, cookie=cookie(key_of("reader")), accept="application/json")
    allowed = guarded.post(path, form, cookie=cookie(key_of("chief")), accept="application/json")

    assert refused.status == 403
    assert ("audit.denied", "reader") in [(line["event"], line["client"]) for line in lines]
    # This gateway of the test delivers nothing: the call got past the guard.
    assert (allowed.status, "delivers no messages" in allowed.text) == (503, True)
    assert guarded.post(path, form, accept="application/json").status == 401
    assert guarded.ask("POST", path, form, {"cookie": cookie(key_of("chief")), "origin": "http://evil"}).status == 403


def test_a_reader_is_told_who_may_send_dead_letters_again(guarded: Browser) -> None:
    path = "/groups/b_cg/dead-letters"

    assert "clients with the role admin" in guarded.get(path, cookie=cookie(key_of("reader"))).text
    assert 'name="check"' in guarded.get(path, cookie=cookie(key_of("chief"))).text


def test_nobody_uploads_a_schema_with_a_bogus_token(guarded: Browser) -> None:
    assert guarded.post("/schemas?name=x.binpb", b"", cookie=cookie(STRANGER)).status == 401


def cookie(token: str) -> str:
    return f"reput_session={token}"


def test_a_report_page_is_shown_to_admins_and_refused_to_bogus_tokens_and_readers(guarded: Browser) -> None:
    path = "/reports/analytics/page"

    assert guarded.get(path, cookie=cookie(key_of("chief"))).body == b"<p>the whole store</p>"
    for token, status in ((STRANGER, 401), (key_of("reader"), 403)):
        answer = guarded.get(path, cookie=cookie(token), accept="application/json")
        assert answer.status == status
        assert b"the whole store" not in answer.body
    assert guarded.get(path, cookie=cookie(STRANGER)).headers["location"].startswith("/sign-in")


@pytest.mark.parametrize("token", [STRANGER, "neither key nor token", "eyJ.no.jwt", ""])
def test_a_refused_sign_in_leaves_an_audit_line_without_what_was_shown(
    token: str, guarded: Browser, lines: list[dict[str, object]]
) -> None:
    answer = guarded.post("/sign-in", f"token={token}".encode())

    assert answer.status == 401
    assert [(line["event"], line["method"], line["outcome"]) for line in lines] == [
        ("audit.denied", "console/sign-in", "UNAUTHENTICATED")
    ]
    assert str(lines[0]["peer"]).startswith("console:127.0.0.1")
    assert not token or token not in str(lines)


def test_a_page_asked_for_with_a_bogus_token_leaves_an_audit_line(
    guarded: Browser, lines: list[dict[str, object]]
) -> None:
    guarded.get("/topics/secret-topic", cookie=cookie(STRANGER))

    assert [(line["event"], line["method"]) for line in lines] == [("audit.denied", "console")]
    assert "secret-topic" not in str(lines)


def test_a_good_sign_in_leaves_no_refusal(guarded: Browser, lines: list[dict[str, object]]) -> None:
    assert guarded.post("/sign-in", f"token={key_of('reader')}".encode()).status == 303
    assert guarded.get("/topics", cookie=cookie(key_of("reader"))).status == 200
    assert lines == []
