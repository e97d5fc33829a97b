"""What each action shows and sends."""

import io
import json
import re

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from store.format.message_id import encode_offset_msg_id
from store.format.properties import SHARDING_KEY, TIMER_DELAY_MS
from tests.console.actions.conftest import Acting, Log
from tests.console.asking import Tags
from tests.console.web.test_posted import MULTIPART, multipart


def letters_of(acting: Acting) -> list[str]:
    return [each["offsetMsgId"] for each in acting.get_json("/groups/b_cg/dead-letters").json["answer"]["messages"]]


def sent(acting: Acting, log: Log, action: str, fields: dict[str, object]) -> None:
    done = acting.confirm(action, acting.check(action, fields))
    assert done.status == 200, done.text


def test_a_message_has_what_its_form_says(acting: Acting, log: Log) -> None:
    fields = {
        "topic": " orders ",
        "keys": "k1  k2",
        "tags": "a",
        "body": "one\r\ntwo\r\n",
        "properties": "color=blue = red\r\n\r\nsize=2\r\n",
        "message_group": "g1",
        "delay": "90",
    }
    sent(acting, log, "send", fields)

    (message,) = log.messages
    assert (message.topic, list(message.keys), message.tags, message.body) == (
        "orders",
        ["k1", "k2"],
        "a",
        b"one\ntwo\n",
    )
    assert dict(message.properties) == {
        "color": "blue = red",
        "size": "2",
        SHARDING_KEY: "g1",
        TIMER_DELAY_MS: "90000",
    }


def test_a_message_is_due_at_the_time_of_its_form(acting: Acting, log: Log) -> None:
    sent(acting, log, "send", {"topic": "orders", "body": "x", "at": "2030-01-02T03:04:05.000"})

    assert log.messages[0].delivery_time.ToJsonString() == "2030-01-02T03:04:05Z"


def test_a_file_is_the_body_byte_for_byte(acting: Acting, log: Log) -> None:
    content = bytes(range(256)) * 4
    form = multipart(
        ('"form_token"', acting.form_token.encode()),
        ('"topic"', b"orders"),
        ('"body"', b""),
        ('"file"; filename="a.bin"', content),
    )
    shown = acting.post("/actions/send", form, cookie=acting.cookie, content_type=MULTIPART)
    acting.confirm("send", shown)

    assert log.messages[0].body == content


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"body": "x"}, "topic is empty"),
        ({"topic": "orders"}, "body is empty"),
        ({"topic": "orders", "body": "{", "body_kind": "json"}, "body is no JSON"),
        ({"topic": "orders", "body": "[" * 20_000, "body_kind": "json"}, "body is no JSON"),
        ({"topic": "orders", "body": "x", "properties": "no value"}, "write NAME=VALUE"),
        ({"topic": "orders", "body": "x", "properties": "empty="}, "write NAME=VALUE"),
        ({"topic": "orders", "body": "x", "delay": "-1"}, "delay is"),
        ({"topic": "orders", "body": "x", "delay": "1", "at": "2030-01-02T03:04"}, "leave one out"),
        ({"topic": "orders", "body": "x", "body_kind": "xml"}, "body_kind is"),
    ],
)
def test_a_form_of_a_message_that_is_wrong_says_what(acting: Acting, fields: dict[str, str], said: str) -> None:
    answer = acting.check("send", fields)

    assert answer.status == 400
    assert said in answer.text
    assert 'name="confirmation"' not in answer.text
    assert '<textarea name="body"' in answer.text  # the form is there, to be mended


def test_a_new_topic_is_named_before_a_message_makes_it(acting: Acting) -> None:
    assert "There is no such topic yet" in acting.check("send", {"topic": "nowhere", "body": "x"}).text
    assert "Consumer groups that get it" in acting.check("send", {"topic": "b_log", "body": "x"}).text


def test_a_copy_is_what_its_producer_gave(acting: Acting, log: Log, records) -> None:
    source = acting.get_json("/?mode=key&topic=b_log&key=bk3_3").json["answer"]["messages"][0]
    sent(acting, log, "copy", {"id": source["offsetMsgId"]})

    (message,) = log.messages
    (record,) = [each for each in records if each.commit_log_offset == int(source["commitLogOffset"])]
    assert (message.topic, message.HasField("unique_key")) == ("b_log", False)
    assert list(message.keys) == ["bk3_3"]
    assert message.body == record.body
    assert not {"KEYS", "TAGS", "UNIQ_KEY", "__CRC32#", "WAIT"} & set(message.properties)


def test_a_copy_of_a_message_that_waits_warns_that_it_waits_for_nothing(acting: Acting, records) -> None:
    waiting = next(record for record in records if record.topic == "SCHEDULE_TOPIC_XXXX" and record.unique_key)
    its_id = encode_offset_msg_id(waiting.store_host, waiting.commit_log_offset)
    assert "the copy waits for nothing" in acting.check("copy", {"id": its_id}).text
    plain = next(record for record in records if record.topic == "b_log")
    its_id = encode_offset_msg_id(plain.store_host, plain.commit_log_offset)
    assert "the copy waits for nothing" not in acting.check("copy", {"id": its_id}).text


def test_a_message_that_does_not_wait_cannot_be_recalled(acting: Acting) -> None:
    unknown = acting.check("recall", {"topic": "waiting-topic", "handle": "no-such-handle"})

    assert "No message waits with this handle" in unknown.text
    assert 'name="confirmation"' not in unknown.text


@pytest.mark.parametrize("verdict", ["commit", "rollback"])
def test_a_transaction_is_ended_as_its_form_says(acting: Acting, log: Log, lines, verdict: str) -> None:
    half = acting.get_json("/half-messages").json["transactions"]["transactions"][0]
    fields = {"topic": half["topic"], "transaction": half.get("transactionId", ""), "verdict": verdict}
    shown = acting.check("end-transaction", fields)
    assert half["uniqueKey"] in shown.text
    acting.confirm("end-transaction", shown)

    (request,) = log.asked
    assert request.topic == half["topic"]
    assert pb.TransactionResolution.Name(request.resolution) == f"TRANSACTION_RESOLUTION_{verdict.upper()}"
    assert request.is_from_check
    assert lines[-1]["target"] == {"topic": half["topic"], "verdict": verdict}


def test_a_transaction_that_has_ended_cannot_be_ended(acting: Acting, log: Log) -> None:
    shown = acting.check("end-transaction", {"topic": "waiting-topic", "transaction": "gone"})

    assert "it has ended" in shown.text
    assert 'name="confirmation"' not in shown.text


def test_chosen_dead_letters_are_sent_to_the_topics_that_they_name(acting: Acting, log: Log) -> None:
    ids = letters_of(acting)[:2]
    shown = acting.check("resend-dead-letters", {"group": "b_cg", "id": ids})
    assert "2 dead letters would be stored" in shown.text
    done = acting.confirm("resend-dead-letters", shown)

    assert "2 dead letters were sent again." in done.text
    assert [message.topic for message in log.messages] == ["b_log", "b_log"]
    assert {request.broker_name for request in log.asked} == {"broker-a"}


def test_a_message_that_is_no_dead_letter_of_the_group_is_not_chosen(acting: Acting, log: Log) -> None:
    other = acting.get_json("/?mode=key&topic=b_log&key=bk3_3").json["answer"]["messages"][0]["offsetMsgId"]

    for fields in ({"group": "b_cg", "id": other}, {"group": "g", "id": letters_of(acting)[0]}):
        answer = acting.check("resend-dead-letters", fields)
        assert answer.status == 400
        assert "no dead letter of" in answer.text
    assert acting.check("resend-dead-letters", {"group": "b_cg", "id": ["A" * 32] * 99}).status == 400


def test_all_dead_letters_are_exported_as_lines_and_as_cells(acting: Acting, records) -> None:
    letters = [record for record in records if record.topic == "%DLQ%b_cg"]
    lines = acting.get("/groups/b_cg/dead-letters/export?as=jsonl")
    table = acting.get("/groups/b_cg/dead-letters/export?as=csv")

    rows = [json.loads(line) for line in lines.text.splitlines()]
    assert len(rows) == len(letters) > 0
    assert {row["body"].encode() if "body" in row else None for row in rows} <= {each.body for each in letters} | {None}
    assert {row["origin_topic"] for row in rows} == {"b_log"}
    import csv

    cells = list(csv.DictReader(io.StringIO(table.text)))
    assert [cell["offset_msg_id"] for cell in cells] == [row["offset_msg_id"] for row in rows]
    assert lines.headers["content-disposition"] == 'attachment; filename="dead-letters.jsonl"'
    assert "sandbox" in lines.headers["content-security-policy"]
    assert acting.get("/groups/b_cg/dead-letters/export?as=xml").status == 400


def test_chosen_dead_letters_are_exported_alone(acting: Acting) -> None:
    wanted = letters_of(acting)[:1]
    path = "/groups/b_cg/dead-letters/export"
    answer = acting.post(path, f"as=jsonl&id={wanted[0]}".encode(), cookie=acting.cookie)

    assert [json.loads(line)["offset_msg_id"] for line in answer.text.splitlines()] == wanted
    assert acting.post(path, b"as=jsonl", cookie=acting.cookie).status == 400
    assert acting.post(path, b"as=jsonl&id=x", cookie=acting.cookie, origin="http://evil.example").status == 403


def test_a_group_is_moved_after_its_queues_were_shown(acting: Acting, shard) -> None:
    fields = {"group": "g", "topic": "b_log", "to": "latest"}
    before = positions_of(acting)
    shown = acting.check("reset-offset", fields)
    assert "The group would be moved, queue by queue:" in shown.text
    assert "Messages that it does not get" in shown.text
    assert positions_of(acting) == before

    done = acting.confirm("reset-offset", shown)

    assert "The group was moved." in done.text
    acting.confirm("reset-offset", acting.check("reset-offset", {**fields, "to": "offset", "offset": "2"}))
    assert positions_of(acting)[0] == "2" != before[0]


def positions_of(acting: Acting) -> dict[int, str]:
    queues = acting.get_json("/groups/g").json["answer"]["queues"]
    return {each.get("queueId", 0): each["consumerOffset"] for each in queues if each["topic"] == "b_log"}


@pytest.mark.parametrize(("to", "field"), [("time", "time is empty"), ("offset", "offset is empty")])
def test_a_move_without_its_place_is_refused(acting: Acting, to: str, field: str) -> None:
    answer = acting.check("reset-offset", {"group": "g", "topic": "b_log", "to": to})

    assert answer.status == 400
    assert field in answer.text


def test_a_group_shows_what_of_its_settings_would_change(acting: Acting) -> None:
    shown = acting.check("update-group", {"group": "g", "attempts": "5", "consume": "no"})

    text = Tags(shown.text).text
    assert "3 → 5" in text
    assert "yes → no" in text
    assert "Nothing would change." in acting.check("update-group", {"group": "g", "attempts": "3"}).text
    assert re.search('name="confirmation"', acting.check("update-group", {"group": "new"}).text)


def test_dead_letters_that_came_after_the_check_are_not_dropped_unseen(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = acting._app._source.gateway
    counts, deleted = iter([2, 3, 3, 3]), []
    monkeypatch.setattr(
        gateway, "GetConsumerGroup", lambda *_: pb.GetConsumerGroupResponse(dead_letter_count=next(counts))
    )
    monkeypatch.setattr(
        gateway, "DeleteTopic", lambda request, _: deleted.append(request.topic) or pb.DeleteTopicResponse()
    )

    refused = acting.confirm("drop-dead-letters", acting.check("drop-dead-letters", {"group": "b_cg"}))
    assert (refused.status, deleted) == (400, [])
    assert "3 dead letters now, and 2 were shown" in Tags(refused.text).text
    done = acting.confirm("drop-dead-letters", acting.check("drop-dead-letters", {"group": "b_cg"}))

    assert "The dead letters were dropped." in done.text
    assert deleted == ["%DLQ%b_cg"]


def test_chosen_dead_letters_are_exported_up_to_a_size(acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = letters_of(acting)[:2]
    form = f"as=jsonl&id={wanted[0]}&id={wanted[1]}".encode()
    size_bytes = len(acting.post("/groups/b_cg/dead-letters/export", form, cookie=acting.cookie).body)
    monkeypatch.setattr("console.pages.dead_letter_export.EXPORT_BYTES_MAX", size_bytes - 1)

    answer = acting.post("/groups/b_cg/dead-letters/export", form, cookie=acting.cookie)

    first, last = map(json.loads, answer.text.splitlines())
    assert first["offset_msg_id"] == wanted[0]
    assert "it has 1 dead letters, which is the limit" in last["incomplete"]
    assert answer.headers["content-disposition"] == 'attachment; filename="dead-letters-incomplete.jsonl"'


def test_a_long_text_of_a_small_action_counts_as_much_as_it_holds(acting: Acting) -> None:
    handle = "h" * 20_000
    calls: list[int] = []
    keep = acting._app._confirmations.keep

    def kept(session: str, action: str, command: object, size_bytes: int) -> str:
        calls.append(size_bytes)
        return keep(session, action, command, size_bytes)

    acting._app._confirmations.keep = kept
    acting.check("send", {"topic": "orders", "body": "x", "keys": "k" * 20_000})
    acting._app._source.gateway.ListScheduledMessages = lambda *_: pb.ListScheduledMessagesResponse(
        shards=[pb.ShardOutcome(error={"code": 14})]
    )
    acting.check("recall", {"topic": "orders", "handle": handle})

    assert [size_bytes >= 20_000 for size_bytes in calls] == [True, True]


@pytest.mark.parametrize("delay", ["abc", "9" * 5_000, "-1", "²"])
def test_a_delay_among_the_properties_that_is_no_number_is_shown_as_it_is(acting: Acting, delay: str) -> None:
    shown = acting.check("send", {"topic": "orders", "body": "x", "properties": f"{TIMER_DELAY_MS}={delay}"})

    assert shown.status == 200
    assert f"{TIMER_DELAY_MS} {delay[:300]}" in Tags(shown.text).text


def test_a_step_of_dead_letters_that_name_no_topic_leads_to_the_next_step(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resend(request: pb.ResendDeadLettersRequest, _: object) -> pb.ResendDeadLettersResponse:
        letter = pb.ResendDeadLettersResponse.Resent(offset_msg_id="A" * 32)
        return pb.ResendDeadLettersResponse(
            resent=[letter], next_page_token="" if request.page_token else f"next-{request.dry_run}"
        )

    monkeypatch.setattr(acting._app._source.gateway, "ResendDeadLetters", resend)

    done = acting.confirm("resend-dead-letters", acting.check("resend-dead-letters", {"group": "b_cg"}))
    assert "shown=next-True&amp;sent=next-False" in done.text
    last = acting.check("resend-dead-letters", {"group": "b_cg", "shown": "next-True", "sent": "next-False"})

    assert "No dead letter would be sent." in last.text
    assert 'name="confirmation"' not in last.text
