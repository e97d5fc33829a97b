"""The console behind the gateway's own guard: what a token may see, and what the audit log has of those that may not."""

import re
from pathlib import Path

import pytest

from console.opening import SERVICE_PREFIX
from console.pages.reports import Reports
from console.web.app import ConsoleApp, ConsoleSource
from console.web.request_guard import RequestGuard
from console.web.sign_in import ConsoleGateway, GuardedSignIn
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.caller_shards import CallerShards
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from gateway.ports.shards import Shards
from gateway.queries.page import PageTokens
from gateway.reput.servicer import GatewayServicer
from tests.console.asking import NO_OFFERS, Browser
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
    gateway = ConsoleGateway(servicer, NO_OFFERS, guard, SERVICE_PREFIX)
    app = ConsoleApp(ConsoleSource(gateway, GuardedSignIn(guard, SERVICE_PREFIX), RequestGuard(), Reports(tmp_path)))
    yield Browser(app)
    app.close()


def form_token_of(browser: Browser, path: str, client: str) -> str:
    return str(re.search('name="form_token" value="([0-9a-f]+)"', browser.get(path, cookie=client).text)[1])


def test_only_admins_may_send_dead_letters_again_and_the_audit_log_has_it(guarded: Browser, lines) -> None:
    path = "/actions/resend-dead-letters"
    reader, chief = cookie(key_of("reader")), cookie(key_of("chief"))
    form = f"group=b_cg&form_token={form_token_of(guarded, path, chief)}".encode()

    assert guarded.get(path, cookie=reader).status == 403
    assert guarded.post(path, form, cookie=reader).status == 403
    allowed = guarded.post(path, form, cookie=chief, accept="application/json")

    # This gateway of the test delivers nothing: the call got past the guard.
    assert (allowed.status, "delivers no messages" in allowed.text) == (503, True)
    assert ("audit.admin", "chief", "b_cg") in [
        (line["event"], line["client"], line.get("group")) for line in lines if line["event"] == "audit.admin"
    ]
    assert guarded.post(path, form, accept="application/json").status == 401
    assert guarded.ask("POST", path, form, {"cookie": chief, "origin": "http://evil"}).status == 403


def test_a_reader_sees_no_action_and_is_told_who_may_send_dead_letters_again(guarded: Browser) -> None:
    path = "/groups/b_cg/dead-letters"
    reader, chief = (guarded.get(path, cookie=cookie(key_of(client))).text for client in ("reader", "chief"))

    assert "clients with the role admin" in reader
    for action in ("resend-dead-letters", "drop-dead-letters", "reset-offset", "update-group"):
        assert f'href="/actions/{action}' not in reader
    assert '<form class="fields resend"' not in reader
    assert '<form class="fields resend"' in chief
    assert 'href="/actions/drop-dead-letters?group=b_cg"' in chief


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


def test_a_form_of_an_action_is_not_read_for_a_token_that_nobody_has(
    guarded: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: object) -> bytes:
        raise AssertionError("the form was read")

    monkeypatch.setattr("console.web.app.read_content", read)

    answer = guarded.post("/actions/send", b"topic=a", cookie=cookie(STRANGER))

    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?next=%2Factions%2Fsend")
    with pytest.raises(AssertionError, match="the form was read"):
        guarded.post("/actions/send", b"topic=a", cookie=cookie(key_of("reader")))
