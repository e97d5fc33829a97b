"""What every action has: a token, a check, one confirmation, an audit line; and what is attacked."""

import re

import pytest

from console.parts.formats import visible
from console.web.app import ACTION_BYTES_MAX, ACTIONS, AUDIT_CHARACTERS_MAX
from console.web.confirmations import session_of
from console.web.sign_in import NoSignIn
from store.errors import PermissionDeniedError, ServiceUnavailableError
from tests.console.actions.conftest import Acting, Log, encoded
from tests.console.asking import Browser, Tags, console_over

NAMES = [action.name for _, action in ACTIONS]
SENT = {"topic": "orders", "body": "hello"}
HOSTILE = "<script>alert(1)</script>\"'&\u202e"


def test_the_check_changes_nothing_and_the_confirmation_does_what_was_shown(acting: Acting, log: Log, lines) -> None:
    shown = acting.check("send", SENT)
    assert (shown.status, log.asked, lines) == (200, [], [])
    assert "A new message would be stored." in shown.text

    done = acting.confirm("send", shown)

    assert done.status == 200
    assert "The message is stored." in done.text
    assert [(message.topic, message.body) for message in log.messages] == [("orders", b"hello")]
    assert lines == [
        {
            "event": "audit.console",
            "action": "send",
            "client": "",
            "peer": "console:127.0.0.1:1",
            "outcome": "OK",
            "target": {"topic": "orders"},
        }
    ]


def test_a_confirmation_that_is_sent_again_does_nothing(acting: Acting, log: Log) -> None:
    shown = acting.check("send", SENT)
    acting.confirm("send", shown)

    again = acting.confirm("send", shown)

    assert again.status == 400
    assert "This was confirmed before" in again.text
    assert len(log.asked) == 1


def test_fields_beside_a_confirmation_do_not_change_what_was_shown(acting: Acting, log: Log) -> None:
    shown = acting.check("send", SENT)
    confirmation = re.search('name="confirmation" value="([0-9a-f]+)"', shown.text)[1]

    acting.check("send", {"topic": "other", "body": "other", "confirmation": confirmation})

    assert [(message.topic, message.body) for message in log.messages] == [("orders", b"hello")]


@pytest.mark.parametrize("name", NAMES)
def test_no_action_is_done_by_a_get(acting: Acting, app, log: Log, lines, name: str) -> None:
    shown = acting.check("send", SENT)
    confirmation = re.search('name="confirmation" value="([0-9a-f]+)"', shown.text)[1]

    for query in (f"form_token={acting.form_token}", f"confirmation={confirmation}"):
        assert acting.get(f"/actions/{name}?{query}", cookie=acting.cookie).status == 400
    assert acting.get(f"/actions/{name}", cookie=acting.cookie).status == 200
    assert (log.asked, lines) == ([], [])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("token", ["", "0" * 64])
def test_a_form_without_its_token_shows_and_does_nothing(acting: Acting, log: Log, name: str, token: str) -> None:
    answer = acting.check(name, {"form_token": token, **SENT})

    assert answer.status == 400
    assert "load the page again" in answer.text
    assert log.asked == []


def test_the_token_and_the_confirmation_of_another_session_are_refused(acting: Acting, app, log: Log) -> None:
    other = Acting(app, "f" * 32)
    shown = acting.check("send", SENT)

    assert acting.check("send", {**SENT, "form_token": other.form_token}).status == 400
    assert other.confirm("send", shown).status == 400
    assert other.check("send", SENT, cookie="").status == 400
    assert log.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "null", "sec_fetch_site": "cross-site"},
        {"origin": "", "sec_fetch_site": ""},
    ],
)
def test_another_origin_can_neither_check_nor_confirm(acting: Acting, log: Log, headers: dict[str, str]) -> None:
    shown = acting.check("send", SENT)

    assert acting.check("send", SENT, **headers).status == 403
    assert acting.confirm("send", shown, **headers).status == 403
    assert log.asked == []


def test_a_form_that_is_too_large_is_refused_and_says_its_limit(acting: Acting, log: Log) -> None:
    answer = acting.check("send", {**SENT, "body": "x" * ACTION_BYTES_MAX})

    assert answer.status == 400
    assert str(ACTION_BYTES_MAX) in answer.text
    assert log.asked == []


@pytest.mark.parametrize("name", NAMES)
def test_names_of_html_are_shown_as_text(acting: Acting, name: str) -> None:
    fields = ("topic", "group", "id", "body", "handle", "transaction", "keys", "tags", "properties", "broker")
    answer = acting.check(name, dict.fromkeys(fields, f"a={HOSTILE}"))

    assert b"<script>alert" not in answer.body
    assert not [tag for tag, attributes in Tags(answer.text).tags if tag == "script" and "src" not in attributes]


def test_the_page_of_an_action_gives_a_browser_its_session(app) -> None:
    answer = Browser(app).get("/actions/send?topic=orders")

    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    session = re.search("reput_form=([0-9a-f]+)", answer.headers["set-cookie"])[1]
    assert f'value="{app._confirmations.form_token(session)}"' in answer.text
    assert 'value="orders"' in answer.text


def test_a_failure_is_told_and_audited_and_counts_as_the_one_time(acting: Acting, log: Log, lines) -> None:
    shown = acting.check("send", SENT)
    log.error = ServiceUnavailableError("the log is down")

    assert acting.confirm("send", shown).status == 503
    log.error = None
    assert acting.confirm("send", shown).status == 400
    assert [(line["action"], line["outcome"]) for line in lines] == [("send", "UNAVAILABLE")]


def test_a_right_that_was_lost_between_form_and_confirmation_stops_the_action(acting: Acting, log: Log, lines) -> None:
    shown = acting.check("send", SENT)
    log.error = PermissionDeniedError("the client may not write to orders")

    answer = acting.confirm("send", shown)

    assert answer.status == 403
    assert "may not write to orders" in answer.text
    assert lines[-1]["outcome"] == "PERMISSION_DENIED"


class Rights(NoSignIn):
    """Names who may do what, and takes it away."""

    is_on = True

    def __init__(self) -> None:
        self.methods = {"AppendMessages"}

    def name_of(self, token: str, peer: str) -> str:
        return f"name of {token}"

    def may(self, token: str, peer: str, method: str, request: object) -> bool:
        return method in self.methods


def test_the_console_asks_for_the_right_at_the_form_the_check_and_the_confirmation(
    shard, fan_out, log: Log, lines
) -> None:
    """The gateway's guard would refuse as well: this is the console's own answer, before anything is sent."""
    rights = Rights()
    app = console_over(
        [shard],
        fan_out,
        sign_in=rights,
        offers=log.offers(),
        audit=lambda event, **fields: lines.append({"event": event, **fields}),
    )
    acting = Acting(app, session_of("key", ""))
    acting.cookie = "reput_session=key"
    shown, other = acting.check("send", SENT), acting.check("send", SENT)
    assert acting.confirm("send", other).status == 200
    rights.methods.clear()

    assert acting.get("/actions/send", cookie=acting.cookie).status == 403
    assert acting.check("send", SENT).status == 403
    assert acting.confirm("send", shown).status == 403
    app.close()
    assert [message.topic for message in log.messages] == ["orders"]
    assert [(line["client"], line["outcome"]) for line in lines] == [("name of key", "OK")]


def test_an_action_that_was_done_in_part_says_so_on_its_page_and_in_the_audit_log(
    acting: Acting, log: Log, lines
) -> None:
    ids = [each["offsetMsgId"] for each in acting.get_json("/groups/b_cg/dead-letters").json["answer"]["messages"]]
    shown = acting.check("resend-dead-letters", {"group": "b_cg", "id": ids[:2]})
    log.error_after = 1

    done = acting.confirm("resend-dead-letters", shown)

    assert (done.status, len(log.asked)) == (200, 1)
    assert "those behind it were not sent" in done.text
    assert [line["outcome"] for line in lines] == ["PARTLY"]


def test_what_an_audit_line_names_is_visible_and_short(acting: Acting, lines) -> None:
    topic = "\u202e" * 80

    acting.confirm("send", acting.check("send", {**SENT, "topic": topic}))

    (line,) = lines
    assert len(visible(topic)) > AUDIT_CHARACTERS_MAX
    assert line["target"] == {"topic": visible(topic)[:AUDIT_CHARACTERS_MAX]}
    assert line["target"]["topic"].startswith("⟦U+202E⟧")


def test_an_installation_that_is_only_read_shows_no_action_and_does_none(shard, fan_out, log: Log) -> None:
    app = console_over([shard], fan_out, offers=log.offers(), acts=lambda: False)
    acting = Acting(app)
    message = acting.get_json("/?mode=key&topic=b_log&key=bk3_3").json["answer"]["messages"][0]["offsetMsgId"]
    paths = (
        "/topics",
        "/topics/b_log",
        "/groups",
        "/groups/g",
        "/groups/b_cg/dead-letters",
        "/waiting",
        "/half-messages",
    )
    for path in (*paths, f"/messages/{message}"):
        page = acting.get(path)
        assert page.status == 200, path
        links = [str(each.get("href") or each.get("action")) for _, each in Tags(page.text).tags]
        hidden = "/actions/resend-dead-letters" if path.endswith("dead-letters") else ""
        assert [link for link in links if link.startswith("/actions/") and link != hidden] == [], path
    for name in NAMES:
        assert acting.get(f"/actions/{name}").status == 409
        assert acting.check(name, SENT).status == 409
    app.close()
    assert log.asked == []


def test_actions_are_shown_where_the_store_takes_writes(acting: Acting) -> None:
    shown = {
        "/topics": "create-topic",
        "/topics/b_log": "send?topic=b_log",
        "/groups": "update-group",
        "/groups/g": "reset-offset?group=g",
        "/groups/b_cg/dead-letters": "drop-dead-letters?group=b_cg",
    }
    for path, link in shown.items():
        assert f'href="/actions/{link}"' in acting.get(path).text, path


def test_pages_of_an_action_are_whole_in_both_languages(acting: Acting) -> None:
    for language in ("en", "zh"):
        for name in NAMES:
            page = acting.get(f"/actions/{name}", cookie=f"{acting.cookie}; reput_language={language}")
            assert page.status == 200
            Tags(page.text)


def test_too_many_forms_at_once_are_answered_that_it_is_busy(acting: Acting, app, monkeypatch) -> None:
    monkeypatch.setattr(app, "_actions_being_read", 4)

    assert acting.check("send", SENT).status == 429


def test_an_unknown_field_of_a_form_changes_nothing(acting: Acting, log: Log) -> None:
    assert acting.check("send", {**SENT, "unknown": "1"}).status == 200
    assert encoded({"a": "b"}) == b"a=b"
    assert log.asked == []
