"""The console's actions over HTTP with a real gateway: what they change, and for whom."""

import html
import http.client
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.gateway.auth.conftest import As, access_text, key_of
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPIC = "shop-orders"
CLIENTS = {
    "reader": {"read": ["shop-*"]},
    "writer": {"read": ["shop-*"], "write": ["shop-*"]},
    "chief": {"admin": ["*"]},
}


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "access.toml"
    path.write_text(access_text(CLIENTS))
    return path


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, access: Path) -> Iterator[Stack]:
    settings = {"REPUT_GATEWAY_AUTH": "on", "REPUT_GATEWAY_ACCESS_FILE": str(access)}
    with running_stack(tmp_path_factory.mktemp("acting") / "store", settings=settings) as running:
        gateway = As(running.channel, "chief")
        messages = [new_message(TOPIC, b"body %d" % each, queue_id=0, keys=[f"k{each}"]) for each in range(4)]
        gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
        yield running


@pytest.fixture
def gateway(stack: Stack) -> As:
    return As(stack.channel, "chief")


class Person:
    """A signed-in browser."""

    def __init__(self, stack: Stack, client: str) -> None:
        self._address = stack.addresses["console"]
        self._client = client

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        host, _, port = self._address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS_MAX)
        own = {"Cookie": f"reput_session={key_of(self._client)}", "Origin": f"http://{self._address}"}
        kind = {"Content-Type": "application/x-www-form-urlencoded"} if method == "POST" else {}
        try:
            connection.request(method, path, body or None, {**own, **kind, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def page(self, path: str) -> str:
        status, text = self.ask("GET", path)
        assert status == 200, text
        return text

    def post(self, action: str, fields: Mapping[str, Any]) -> tuple[int, str]:
        token = re.search('name="form_token" value="([0-9a-f]+)"', self.page(f"/actions/{action}"))
        assert token is not None
        return self.ask(
            "POST", f"/actions/{action}", urlencode({"form_token": token[1], **fields}, doseq=True).encode()
        )

    def check(self, action: str, fields: Mapping[str, Any]) -> str:
        """What the action will do: its page."""
        status, text = self.post(action, fields)
        assert status == 200, text
        return text

    def confirm(self, action: str, shown: str) -> tuple[int, str]:
        confirmation = re.search('name="confirmation" value="([0-9a-f]+)"', shown)
        assert confirmation is not None, shown
        return self.post(action, {"confirmation": confirmation[1]})

    def do(self, action: str, fields: Mapping[str, Any]) -> str:
        """Check and confirm: the page of what was done."""
        status, text = self.confirm(action, self.check(action, fields))
        assert status == 200, text
        return text


def by_key(gateway: As, key: str, topic: str = TOPIC) -> list[Any]:
    request = pb.QueryMessageByKeyRequest(topic=topic, key=key)
    return list(gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX).messages)


def audit_lines(stack: Stack, event: str) -> list[dict[str, Any]]:
    lines = (line for line in stack.log().splitlines() if f'"{event}"' in line)
    return [json.loads(line[line.index("{") :]) for line in lines]


def test_a_writer_sends_and_a_reader_may_not_and_both_are_in_the_audit_log(stack: Stack, gateway: As) -> None:
    writer, reader = Person(stack, "writer"), Person(stack, "reader")
    assert f"/actions/send?topic={TOPIC}" in writer.page(f"/topics/{TOPIC}")
    assert "/actions/" not in reader.page(f"/topics/{TOPIC}")
    assert reader.ask("GET", "/actions/send")[0] == 403

    writer.do("send", {"topic": TOPIC, "keys": "sent", "tags": "a", "body": '{"a": 1}', "body_kind": "json"})

    (message,) = by_key(gateway, "sent")
    assert (message.body, message.tags) == (b'{"a": 1}', "a")
    status, _ = writer.post("send", {"topic": "bank", "body": "x"})
    assert status == 403
    lines = audit_lines(stack, "audit.console")
    assert [(line["client"], line["action"], line["outcome"]) for line in lines] == [("writer", "send", "OK")]
    appended = audit_lines(stack, "audit.append")
    assert ("writer", TOPIC, "OK") in [(line["client"], line["topic"], line["outcome"]) for line in appended]
    assert '{"a": 1}' not in stack.log()


def test_a_copy_has_a_new_unique_key(stack: Stack, gateway: As) -> None:
    (source,) = by_key(gateway, "k1")

    Person(stack, "writer").do("copy", {"id": source.offset_msg_id})

    copies = by_key(gateway, "k1")
    assert [each.body for each in copies] == [b"body 1"] * 2
    assert len({each.unique_key for each in copies}) == 2


def test_a_scheduled_message_is_sent_and_recalled(stack: Stack, gateway: As) -> None:
    writer = Person(stack, "writer")
    writer.do("send", {"topic": TOPIC, "keys": "later", "body": "x", "delay": "3600"})

    def waiting() -> list[Any]:
        return list(gateway.ListScheduledMessages(pb.ListScheduledMessagesRequest(topic=TOPIC)).messages)

    wait_until(lambda: len(waiting()) == 1, "the message waits")
    (message,) = waiting()
    assert message.recall_handle in writer.page("/waiting")
    shown = writer.check("recall", {"topic": TOPIC, "handle": message.recall_handle})
    assert message.unique_key in shown
    assert writer.confirm("recall", shown)[0] == 200
    wait_until(lambda: waiting() == [], "the message is taken back")
    assert "No message waits with this handle" in writer.check(
        "recall", {"topic": TOPIC, "handle": message.recall_handle}
    )


@pytest.mark.parametrize("verdict", ["commit", "rollback"])
def test_a_hanging_transaction_is_ended(stack: Stack, gateway: As, verdict: str) -> None:
    half = new_message(TOPIC, b"half", keys=[f"half-{verdict}"], properties={"TRAN_MSG": "true", "PGROUP": "makers"})
    gateway.AppendMessages(pb.AppendMessagesRequest(messages=[half]), timeout=WAIT_SECONDS_MAX)

    def waiting() -> list[Any]:
        return list(gateway.ListPendingTransactions(pb.ListPendingTransactionsRequest(topic=TOPIC)).transactions)

    wait_until(lambda: len(waiting()) == 1, "the half message waits")
    Person(stack, "writer").do(
        "end-transaction", {"topic": TOPIC, "transaction": waiting()[0].transaction_id, "verdict": verdict}
    )

    wait_until(lambda: waiting() == [], "the transaction has ended")
    assert len(by_key(gateway, f"half-{verdict}")) == (verdict == "commit")


def test_topics_and_groups_are_made_changed_and_moved(stack: Stack, gateway: As) -> None:
    chief = Person(stack, "chief")
    chief.do("create-topic", {"topic": "shop-new", "queues": "2", "type": "FIFO"})
    chief.do("update-topic", {"topic": "shop-new", "write_queues": "3", "read_queues": "3", "perm": "4"})
    (topic,) = gateway.ListTopics(pb.ListTopicsRequest(topic="shop-new")).topics
    assert [(each.write_queue_count, each.read_queue_count, each.perm) for each in topic.settings] == [(3, 3, 4)]
    assert "There is such a topic" in chief.check("create-topic", {"topic": "shop-new"})

    chief.do("update-group", {"group": "movers", "attempts": "5", "ordered": "yes"})
    shown = chief.check(
        "reset-offset", {"group": "movers", "topic": TOPIC, "to": "offset", "offset": "2", "queue": "0"}
    )
    asked = pb.GetOffsetsRequest(consumer_group="movers")
    assert list(gateway.GetOffsets(asked).positions) == []
    assert chief.confirm("reset-offset", shown)[0] == 200
    positions = {each.queue_id: each.consumer_offset for each in gateway.GetOffsets(asked).positions}
    assert positions[0] == 2
    settings = gateway.GetConsumerGroup(pb.GetConsumerGroupRequest(consumer_group="movers")).settings
    assert (settings.delivery_attempts_max, settings.ordered) == (5, True)
    assert Person(stack, "writer").ask("GET", "/actions/reset-offset")[0] == 403


def test_a_message_is_given_again_becomes_a_dead_letter_is_sent_again_and_dropped(stack: Stack, gateway: As) -> None:
    chief = Person(stack, "chief")
    (source,) = by_key(gateway, "k2")
    chief.do("update-group", {"group": "eaters"})
    chief.do("reset-offset", {"group": "eaters", "topic": TOPIC, "to": "latest"})
    shown = chief.check("redeliver", {"group": "eaters", "id": source.offset_msg_id})
    assert "No member of the group lives" in shown
    assert "gets the message again" in chief.confirm("redeliver", shown)[1]

    def end_of(topic: str) -> int:
        topics = gateway.ListTopics(pb.ListTopicsRequest(topic=topic)).topics
        return sum(queue.max_offset - queue.min_offset for each in topics for queue in each.queues)

    wait_until(lambda: end_of("%RETRY%eaters") == 1, "the group gets the message again")
    others = by_key(gateway, "k3")
    gateway.SendBackMessages(
        pb.SendBackMessagesRequest(
            consumer_group="eaters", topic=TOPIC, queue_offsets=[others[0].queue_offset], delay_level=-1
        )
    )
    wait_until(lambda: end_of("%DLQ%eaters") == 1, "there is a dead letter")
    shown = chief.check("resend-dead-letters", {"group": "eaters"})
    assert "1 dead letter would be stored" in shown
    assert "1 dead letter was sent again." in chief.confirm("resend-dead-letters", shown)[1]
    wait_until(lambda: len(by_key(gateway, "k3")) == 2, "it is in its topic again")
    assert json.loads(chief.page("/groups/eaters/dead-letters/export?as=jsonl"))["body"] == "body 3"
    assert "were dropped" in chief.do("drop-dead-letters", {"group": "eaters"})
    # The gateway hears of a deleted topic a little later.
    wait_until(lambda: "The group has no dead letter." in chief.page("/groups/eaters/dead-letters"), "none is left")


def test_more_dead_letters_than_a_step_has_are_sent_in_steps_and_each_once(stack: Stack, gateway: As) -> None:
    chief = Person(stack, "chief")
    messages = [new_message("shop-steps", b"x", queue_id=0, keys=[f"s{each}"]) for each in range(70)]
    gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)

    def count_of(topic: str) -> int:
        topics = gateway.ListTopics(pb.ListTopicsRequest(topic=topic)).topics
        return sum(queue.max_offset - queue.min_offset for each in topics for queue in each.queues)

    wait_until(lambda: count_of("shop-steps") == 70, "the messages are built")
    for begin in range(0, 70, 32):
        offsets = range(begin, min(begin + 32, 70))
        request = pb.SendBackMessagesRequest(
            consumer_group="steppers", topic="shop-steps", queue_offsets=offsets, delay_level=-1
        )
        gateway.SendBackMessages(request, timeout=WAIT_SECONDS_MAX)
    wait_until(lambda: count_of("%DLQ%steppers") == 70, "the dead letters are there")

    first = chief.do("resend-dead-letters", {"group": "steppers"})
    assert "64 dead letters were sent again." in first
    onward = html.unescape(re.search(r'href="(/actions/resend-dead-letters[^"]+)"', first)[1])
    fields = {name: values[0] for name, values in parse_qs(onward.partition("?")[2]).items()}
    assert 'name="sent"' in chief.page(onward)
    second = chief.do("resend-dead-letters", fields)

    assert "6 dead letters were sent again." in second
    assert "/actions/resend-dead-letters?" not in second
    wait_until(lambda: count_of("shop-steps") == 140, "the new messages are built")
    assert [len(by_key(gateway, f"s{each}", "shop-steps")) for each in (0, 63, 64, 69)] == [2, 2, 2, 2]


def test_a_right_that_ended_between_the_check_and_the_confirmation_stops_the_action(
    stack: Stack, gateway: As, access: Path
) -> None:
    writer = Person(stack, "writer")
    shown = writer.check("send", {"topic": TOPIC, "keys": "too-late", "body": "x"})
    access.write_text(access_text({**CLIENTS, "writer": {"read": ["shop-*"]}}))
    try:
        wait_until(lambda: writer.ask("GET", "/actions/send")[0] == 403, "the file is read again")
        token = re.search('name="form_token" value="([0-9a-f]+)"', shown)[1]
        confirmation = re.search('name="confirmation" value="([0-9a-f]+)"', shown)[1]
        form = urlencode({"form_token": token, "confirmation": confirmation}).encode()
        assert writer.ask("POST", "/actions/send", form)[0] == 403
    finally:
        access.write_text(access_text(CLIENTS))
    wait_until(lambda: writer.ask("GET", "/actions/send")[0] == 200, "the file is read again")
    assert by_key(gateway, "too-late") == []


def test_the_token_and_the_confirmation_of_another_client_are_refused(stack: Stack, gateway: As) -> None:
    writer, chief = Person(stack, "writer"), Person(stack, "chief")
    shown = writer.check("send", {"topic": TOPIC, "keys": "stolen", "body": "x"})
    token = re.search('name="form_token" value="([0-9a-f]+)"', shown)[1]
    confirmation = re.search('name="confirmation" value="([0-9a-f]+)"', shown)[1]

    for form in (
        {"form_token": token, "topic": TOPIC, "body": "x"},
        {"form_token": token, "confirmation": confirmation},
    ):
        assert chief.ask("POST", "/actions/send", urlencode(form).encode())[0] == 400
    assert chief.confirm("send", shown)[0] == 400
    assert writer.ask("POST", "/actions/send", b"x=1", Origin="http://evil.example")[0] == 403
    assert by_key(gateway, "stolen") == []


def test_a_store_that_is_served_read_only_shows_no_action(stack: Stack, tmp_path: Path) -> None:
    from tests.support.fixture_stores import unpack_store

    with running_stack(unpack_store("broker", tmp_path / "store"), "--read-only") as running:
        host, _, port = running.addresses["console"].rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS_MAX)
        for path, status in (("/topics/b_log", 200), ("/groups", 200), ("/actions/send", 409)):
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == status, text
            assert 'href="/actions/' not in text
        connection.close()
