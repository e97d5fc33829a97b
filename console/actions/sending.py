"""Send a message; send one that is stored again, as a new one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from console.actions.action import Done, Fact, Field, Given, Plan
from console.bodies.body import preview
from console.calls import Calls
from console.parts.formats import count_text, duration_text, size_text, time_text
from console.parts.message_row import message_href, topic_href
from console.question import Question
from console.words import Words
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage, StoredMessage
from services.convert import millis_to_timestamp
from services.message_copy import REAL_TOPIC, new_message, origin_topic_of
from store.errors import InvalidArgumentError
from store.format.properties import SHARDING_KEY, TIMER_DELAY_MS
from store.format.topic import WAITING_TOPICS

# What fits a browser's field; a file has the limit of the store.
SHOWN_BODY_CHARACTERS = 64 << 10
DELAY_SECONDS_MAX = 10 * 365 * 86_400
DELAY_DIGITS_MAX = 18  # of milliseconds
SHOWN_PROPERTY_COUNT = 20


class Send:
    """Send a message."""

    name = "send"
    target = ("topic",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        topic = question.text("topic")
        messages = [NewMessage(topic=topic)] if topic else []
        return [("AppendMessages", pb.AppendMessagesRequest(messages=messages))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""

        def given(name: str) -> str:
            return question.whole_text(name)

        body = given("body")
        kinds = (("text", words("Text")), ("json", "JSON"))
        kind = question.text("body_kind")
        return [
            Field("topic", words("Topic"), value=given("topic"), is_required=True),
            Field("keys", words("Keys"), value=given("keys"), hint=words("Separated by spaces.")),
            Field("tags", words("Tag"), value=given("tags")),
            Field("body_kind", words("The body is"), "choice", kind, kinds),
            Field("body", words("Body"), "area", body if len(body) <= SHOWN_BODY_CHARACTERS else ""),
            Field("file", words("Or a file"), "file", hint=words("Its bytes are the body, as they are; up to 4 MiB.")),
            Field(
                "properties", words("Properties"), "area", given("properties"), hint=words("NAME=VALUE, one a line.")
            ),
            Field(
                "message_group",
                words("Message group"),
                value=given("message_group"),
                hint=words("Messages of one group keep their order."),
            ),
            Field("delay", words("Deliver after (seconds)"), "number", given("delay")),
            Field("at", words("Deliver at"), "time", given("at")),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        return _plan_of(calls, _message_of(given), "", words)

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        return _sent(calls, command, words)


class Copy:
    """Send a stored message again, as a new one with a new unique key."""

    name = "copy"
    target = ("topic", "id")

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return Send().right(question)

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        return [
            Field("id", words("Offset message id"), value=question.text("id"), is_required=True),
            Field("broker", words("Shard"), "hidden", question.text("broker")),
            Field(
                "topic",
                words("Topic"),
                value=question.text("topic"),
                hint=words("Empty: the topic that the message came from."),
            ),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        stored = stored_of(calls, given.question.text("id"), given.question.text("broker"))
        topic = given.question.text("topic") or topic_of(stored)
        plan = _plan_of(calls, new_message(stored, topic), stored.offset_msg_id, words)
        if stored.topic not in WAITING_TOPICS:
            return plan
        waits = words("The original waits, or waited: the copy waits for nothing, and consumers get it at once.")
        return replace(plan, warning=f"{waits} {plan.warning}".rstrip())

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        return _sent(calls, command, words)


def stored_of(calls: Calls, offset_msg_id: str, broker_name: str) -> StoredMessage:
    """A stored message with its body, also one that fits no answer; errors as QueryMessageById."""
    request = pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id, broker_name=broker_name)
    message = calls.ask(calls.gateway.QueryMessageById, request).message
    if message.body_omitted:
        asked = pb.DownloadBodyRequest(offset_msg_id=message.offset_msg_id, broker_name=message.broker_name)
        message.body = b"".join(piece.chunk for piece in calls.ask(calls.gateway.DownloadBody, asked))
        message.body_omitted = False
    return message


def topic_of(stored: StoredMessage) -> str:
    """The topic that a stored message is for: its origin's, or that for which it waits."""
    return origin_topic_of(stored) or stored.properties.get(REAL_TOPIC) or stored.topic


def _message_of(given: Given) -> NewMessage:
    """The message of the form; InvalidArgumentError by field."""
    question = given.question
    properties = {}
    for line in question.whole_text("properties").splitlines():
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not name.strip() or not equals or not value:  # the store refuses an empty value
            raise InvalidArgumentError(f"properties has the line {line[:100]!r}: write NAME=VALUE.", field="properties")
        properties[name.strip()] = value
    if group := question.text("message_group"):
        properties[SHARDING_KEY] = group
    delay_seconds, due_millis = question.number("delay", 0, DELAY_SECONDS_MAX), question.time_millis("at")
    if delay_seconds and due_millis is not None:
        raise InvalidArgumentError("delay and at are both given: leave one out.", field="at")
    if delay_seconds:
        properties[TIMER_DELAY_MS] = str(delay_seconds * 1_000)
    return NewMessage(
        topic=question.text("topic"),
        body=given.files["file"] if "file" in given.files else _body_of(question),
        tags=question.text("tags"),
        keys=question.text("keys").split(),
        properties=properties,
        delivery_time=None if due_millis is None else millis_to_timestamp(due_millis),
    )


def _body_of(question: Question) -> bytes:
    # A browser sends each end of a line as CR LF.
    text = question.whole_text("body").replace("\r\n", "\n")
    if question.choice("body_kind", ("text", "json"), "text") == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"body is no JSON: {error}", field="body") from error
    if not text:
        raise InvalidArgumentError("body is empty: write one, or choose a file.", field="body")
    return text.encode("utf-8", "replace")


def _plan_of(calls: Calls, message: NewMessage, copy_of: str, words: Words) -> Plan:
    """What sending the message will do; InvalidArgumentError when it has no topic."""
    if not message.topic:
        raise InvalidArgumentError("topic is empty: name the topic.", field="topic")
    facts = [Fact(words("Topic"), message.topic, topic_href(message.topic))]
    warning = ""
    lists, asked = pb.ListTopicsRequest(topic=message.topic), pb.ListConsumerGroupsRequest(topic=message.topic)
    if calls.may("ListTopics", lists):
        topics = calls.ask(calls.gateway.ListTopics, lists).topics
        if not topics or not topics[0].settings:
            warning = words("There is no such topic yet: the message makes it, if the store lets messages make topics.")
    if calls.may("ListConsumerGroups", asked):
        groups = calls.ask(calls.gateway.ListConsumerGroups, asked).groups
        names = ", ".join(group.consumer_group for group in groups[:8]) + (" …" if len(groups) > 8 else "")
        facts.append(Fact(words("Consumer groups that get it"), names or words("None.")))
    if copy_of:
        facts.append(Fact(words("A copy of"), copy_of, message_href(copy_of, "")))
    facts += [
        Fact(words("Keys"), " ".join(message.keys) or "–"),
        Fact(words("Tag"), message.tags or "–"),
        Fact(words("Body"), f"{size_text(len(message.body))} {preview(message.body, 0)}".strip()),
    ]
    if message.HasField("delivery_time"):
        facts.append(Fact(words("Deliver at"), f"{time_text(message.delivery_time.ToMilliseconds())} UTC"))
    shown = sorted(message.properties.items())
    delay = message.properties.get(TIMER_DELAY_MS, "")
    if delay.isascii() and delay.isdigit() and len(delay) <= DELAY_DIGITS_MAX:  # any text may stand under properties
        facts.append(Fact(words("Delivered after"), duration_text(int(delay))))
        shown.remove((TIMER_DELAY_MS, delay))
    facts += [Fact(name, value) for name, value in shown[:SHOWN_PROPERTY_COUNT]]
    if len(shown) > SHOWN_PROPERTY_COUNT:
        facts.append(Fact(words("Properties"), count_text(len(shown))))
    text = words("A new message would be stored.")
    size_bytes = message.ByteSize()
    return Plan(text, facts, None, warning, message, size_bytes, {"topic": message.topic, "sizeBytes": str(size_bytes)})


def _sent(calls: Calls, message: NewMessage, words: Words) -> Done:
    answer = calls.ask(calls.gateway.AppendMessages, pb.AppendMessagesRequest(messages=[message]))
    result = answer.results[0]
    facts = [
        Fact(words("Offset message id"), result.offset_msg_id, message_href(result.offset_msg_id, result.broker_name)),
        Fact(words("Unique key"), result.unique_key),
        Fact(words("Topic"), message.topic, topic_href(message.topic)),
        Fact(words("Queue"), str(result.queue_id)),
    ]
    if result.recall_handle:
        facts.append(Fact(words("Recall handle"), result.recall_handle))
    return Done(words("The message is stored."), facts, answer={"offsetMsgId": result.offset_msg_id})
