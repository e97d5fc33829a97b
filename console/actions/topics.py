"""Create a topic; change its queues, permission and message type."""

from collections.abc import Sequence
from typing import Any

from console.actions.action import Done, Fact, Field, Given, Plan, Table
from console.calls import Calls
from console.pages.page import to_json
from console.parts.message_row import topic_href
from console.question import Question
from console.words import Words
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError, TopicNotFoundError
from store.format.topic import TOPIC_QUEUE_COUNT_MAX

TYPES = tuple(name.removeprefix("MESSAGE_TYPE_") for name in dict(message_pb2.MessageType.items()))
UNCHANGED = ""


class CreateTopic:
    """Create a topic on every shard, or on one."""

    name = "create-topic"
    target = ("topic",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("CreateTopic", pb.CreateTopicRequest(topic=question.text("topic")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        types = [("UNSPECIFIED", words("not said")), *((name, name) for name in TYPES if name != "UNSPECIFIED")]
        return [
            Field("topic", words("Topic"), value=question.text("topic"), is_required=True),
            Field(
                "queues",
                words("Queues on each shard"),
                "number",
                question.text("queues"),
                hint=words("Empty: as many as the store gives a new topic."),
            ),
            Field("type", words("Message type"), "choice", question.text("type"), types),
            Field("perm", words("Permission"), "choice", question.text("perm"), _perms(words)),
            Field("broker", words("Shard"), value=question.text("broker"), hint=words("Empty: all shards.")),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        request = pb.CreateTopicRequest(
            topic=question.text("topic"),
            queue_count=question.number("queues", 0, TOPIC_QUEUE_COUNT_MAX),
            message_type=_type_of(question.choice("type", TYPES, TYPES[0])),
            perm=int(question.choice("perm", ("6", "4", "2"), "6")),
            broker_name=question.text("broker"),
        )
        if not request.topic:
            raise InvalidArgumentError("topic is empty: name the topic.", field="topic")
        if settings := _settings_of(calls, request.topic, request.broker_name):
            return Plan(words("There is such a topic: change it instead."), table=_table(settings, words))
        facts = [
            Fact(words("Topic"), request.topic),
            Fact(words("Queues on each shard"), str(request.queue_count or words("the store's default"))),
            Fact(words("Message type"), question.text("type") or TYPES[0]),
            Fact(words("Permission"), dict(_perms(words))[str(request.perm)]),
            Fact(words("Shard"), request.broker_name or words("all")),
        ]
        return Plan(words("The topic would be created."), facts, command=request, answer=to_json(request))

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        answer = calls.ask(calls.gateway.CreateTopic, command)
        onward = (topic_href(command.topic), command.topic)
        return Done(words("The topic was created."), (), _table(answer.topics, words), onward, answer=to_json(answer))


class UpdateTopic:
    """Change a topic on every shard that has it."""

    name = "update-topic"
    target = ("topic",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("UpdateTopic", pb.UpdateTopicRequest(topic=question.text("topic")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        as_before = (UNCHANGED, words("as before"))
        types = [as_before, ("UNSPECIFIED", words("not said"))]
        types += [(name, name) for name in TYPES if name != "UNSPECIFIED"]
        hint = words("Empty: as before.")
        return [
            Field("topic", words("Topic"), value=question.text("topic"), is_required=True),
            Field("write_queues", words("Queues to write"), "number", question.text("write_queues"), hint=hint),
            Field("read_queues", words("Queues to read"), "number", question.text("read_queues"), hint=hint),
            Field("type", words("Message type"), "choice", question.text("type"), types),
            Field("perm", words("Permission"), "choice", question.text("perm"), [as_before, *_perms(words)]),
            Field("broker", words("Shard"), value=question.text("broker"), hint=words("Empty: all shards.")),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        request = pb.UpdateTopicRequest(topic=question.text("topic"), broker_name=question.text("broker"))
        for field, name in (("write_queues", "write_queue_count"), ("read_queues", "read_queue_count")):
            if question.text(field):
                setattr(request, name, question.number(field, 0, TOPIC_QUEUE_COUNT_MAX))
        if wanted := question.choice("type", (UNCHANGED, *TYPES), UNCHANGED):
            request.message_type = _type_of(wanted)
        if perm := question.choice("perm", (UNCHANGED, "6", "4", "2"), UNCHANGED):
            request.perm = int(perm)
        settings = _settings_of(calls, request.topic, request.broker_name)
        if not settings:
            raise TopicNotFoundError(f"Topic {request.topic!r} is not configured: create it.", topic=request.topic)
        changes = ("write_queue_count", "read_queue_count", "message_type", "perm")
        names = [name for name in changes if request.HasField(name)]
        after = []
        for each in settings:
            changed = pb.TopicSettings()
            changed.CopyFrom(each)
            for name in names:
                setattr(changed, name, getattr(request, name))
            after.append(changed)
        if list(settings) == after:
            return Plan(words("Nothing would change."), table=_table(settings, words))
        warning = ""
        if any(new.write_queue_count < old.write_queue_count for old, new in zip(settings, after, strict=True)):
            warning = words("Lower the queues to write first, and those to read when consumers have read the others.")
        table = _table(after, words, settings)
        return Plan(words("The topic would be so:"), (), table, warning, request, answer=to_json(request))

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        answer = calls.ask(calls.gateway.UpdateTopic, command)
        onward = (topic_href(command.topic), command.topic)
        return Done(words("The topic was changed."), (), _table(answer.topics, words), onward, answer=to_json(answer))


def _type_of(name: str) -> message_pb2.MessageType:
    number: message_pb2.MessageType = getattr(message_pb2, f"MESSAGE_TYPE_{name}")
    return number


def _perms(words: Words) -> list[tuple[str, str]]:
    return [("6", words("write and read")), ("4", words("read only")), ("2", words("write only"))]


def _settings_of(calls: Calls, topic: str, broker_name: str) -> list[pb.TopicSettings]:
    """How a topic is configured on each shard, or on one."""
    topics = calls.ask(calls.gateway.ListTopics, pb.ListTopicsRequest(topic=topic)).topics
    rows = [each for found in topics[:1] for each in found.settings]
    return [each for each in rows if broker_name in ("", each.broker_name)]


def _table(
    settings: Sequence[pb.TopicSettings], words: Words, before: Sequence[pb.TopicSettings] | None = None
) -> Table:
    """The settings by shard; what changes with its value before."""
    heads = (
        words("Shard"),
        words("Queues to write"),
        words("Queues to read"),
        words("Permission"),
        words("Message type"),
    )
    perms = dict(_perms(words))

    def texts(each: pb.TopicSettings) -> list[str]:
        kind = message_pb2.MessageType.Name(each.message_type).removeprefix("MESSAGE_TYPE_")
        perm = perms.get(str(each.perm), str(each.perm))
        return [each.broker_name, str(each.write_queue_count), str(each.read_queue_count), perm, kind]

    rows = []
    for old, new in zip(before or settings, settings, strict=True):
        pairs = zip(texts(old), texts(new), strict=True)
        rows.append([value if value == was else f"{was} → {value}" for was, value in pairs])
    return Table(heads, rows)
