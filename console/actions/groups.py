"""Move a consumer group; give it one message again; make it and change its settings."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from console.actions.action import SHOWN_ROW_COUNT, Done, Fact, Field, Given, Plan, Table
from console.actions.sending import stored_of
from console.calls import Calls
from console.pages.page import to_json
from console.parts.formats import count_text, track_state
from console.parts.message_row import message_href, topic_href
from console.question import Question
from console.words import Words
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp
from store.errors import GroupNotFoundError, InvalidArgumentError

ATTEMPTS_MAX = 10_000
# RocketMQ's delay level of a message that is given again: 1 second.
SOON_LEVEL = 1


def group_href(consumer_group: str) -> str:
    """The page of a group."""
    return f"/groups/{quote(consumer_group, safe='')}"


class ResetOffset:
    """Move a group to other positions of a topic."""

    name = "reset-offset"
    target = ("group", "topic")

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        request = pb.ResetOffsetsRequest(consumer_group=question.text("group"), topic=question.text("topic"))
        return [("ResetOffsets", request)]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        places = (
            ("time", words("to a time")),
            ("latest", words("to the end")),
            ("earliest", words("to the first message")),
            ("offset", words("to a position")),
        )
        hint = words("Of the choices above.")
        return [
            Field("group", words("Group"), value=question.text("group"), is_required=True),
            Field("topic", words("Topic"), value=question.text("topic"), is_required=True),
            Field("to", words("Where to"), "choice", question.text("to"), places),
            Field("time", words("Time"), "time", question.text("time"), hint=hint),
            Field("offset", words("Position"), "number", question.text("offset"), hint=hint),
            Field("queue", words("Queue"), "number", question.text("queue"), hint=words("Empty: all queues.")),
            Field("broker", words("Shard"), value=question.text("broker"), hint=words("Empty: all shards.")),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        request = pb.ResetOffsetsRequest(
            consumer_group=question.text("group"),
            topic=question.text("topic"),
            broker_name=question.text("broker"),
            dry_run=True,
        )
        to = question.choice("to", ("time", "latest", "earliest", "offset"), "time")
        if to == "time":
            millis = question.time_millis("time")
            if millis is None:
                raise InvalidArgumentError("time is empty: give one, or choose another place.", field="time")
            request.time.CopyFrom(millis_to_timestamp(millis))
        elif to == "offset":
            if not question.text("offset"):
                raise InvalidArgumentError("offset is empty: give the position.", field="offset")
            request.queue_offset = question.number("offset", 0)
        else:
            setattr(request, to, True)
        if question.text("queue"):
            request.queue_id = question.number("queue", 0, (1 << 31) - 1)
        answer = calls.ask(calls.gateway.ResetOffsets, request)
        table = _moves(answer, words)
        if not answer.resets:
            return Plan(words("No queue would be moved."))
        command = pb.ResetOffsetsRequest()
        command.CopyFrom(request)
        command.dry_run = False
        back = sum(max(0, each.before - each.after) for each in answer.resets if each.HasField("before"))
        over = sum(max(0, each.after - each.before) for each in answer.resets if each.HasField("before"))
        facts = [
            Fact(words("Group"), request.consumer_group, group_href(request.consumer_group)),
            Fact(words("Topic"), request.topic, topic_href(request.topic)),
            Fact(words("Messages that it gets again"), count_text(back)),
            Fact(words("Messages that it does not get"), count_text(over)),
        ]
        warning = words("What the group has in flight there is forgotten.")
        if not any(each.HasField("before") for each in answer.resets):
            warning = words("The group had no position in this topic: it would begin here.")
        text = words("The group would be moved, queue by queue:")
        return Plan(text, facts, table, warning, command, answer=to_json(answer))

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        answer = calls.ask(calls.gateway.ResetOffsets, command)
        onward = (group_href(command.consumer_group), command.consumer_group)
        return Done(words("The group was moved."), (), _moves(answer, words), onward, answer=to_json(answer))


def _moves(answer: Any, words: Words) -> Table:
    heads = (words("Shard"), words("Queue"), words("Position before"), words("Position after"))
    rows = [
        (each.broker_name, str(each.queue_id), count_text(each.before) if each.HasField("before") else "–",
         count_text(each.after))
        for each in answer.resets[:SHOWN_ROW_COUNT]
    ]  # fmt: skip
    if len(answer.resets) > SHOWN_ROW_COUNT:
        rows.append(
            ("…", words("{count} more {count:queue|queues}.", count=len(answer.resets) - SHOWN_ROW_COUNT), "", "")
        )
    return Table(heads, rows)


class Redeliver:
    """Deliver one message again to one group; other groups do not see it."""

    name = "redeliver"
    target = ("group", "id")

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("SendBackMessages", pb.SendBackMessagesRequest(consumer_group=question.text("group")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        return [
            Field("id", words("Offset message id"), value=question.text("id"), is_required=True),
            Field("broker", words("Shard"), "hidden", question.text("broker")),
            Field("group", words("Group"), value=question.text("group"), is_required=True),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        group = question.text("group")
        message = stored_of(calls, question.text("id"), question.text("broker"))
        asked = pb.TrackMessageRequest(offset_msg_id=message.offset_msg_id, consumer_group=group)
        state = words("no position in this topic")
        for track in calls.ask(calls.gateway.TrackMessage, asked).tracks:
            state = track_state(words, pb.TrackState.Name(track.state).removeprefix("TRACK_STATE_"))
        known = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=group))
        command = pb.SendBackMessagesRequest(
            consumer_group=group,
            topic=message.topic,
            queue_id=message.queue_id,
            broker_name=message.broker_name,
            queue_offsets=[message.queue_offset],
            delay_level=SOON_LEVEL,
        )
        facts = [
            Fact(words("Message"), message.offset_msg_id, message_href(message.offset_msg_id, message.broker_name)),
            Fact(words("Topic"), message.topic, topic_href(message.topic)),
            Fact(words("Keys"), " ".join(message.keys) or "–"),
            Fact(words("Group"), group, group_href(group)),
            Fact(words("How it stands with the group"), state),
        ]
        warning = ""
        if not known.members:
            warning = words(
                "No member of the group lives: only members that pull, over remoting, get it when they come."
            )
        elif known.settings.broadcast:
            warning = words("Each member of the group keeps its own positions: only one of them gets the message.")
        text = words("The group, and no other, would get the message again within a second or two.")
        return Plan(text, facts, None, warning, command, answer=to_json(command))

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        answer = calls.ask(calls.gateway.SendBackMessages, command)
        (outcome,) = answer.outcomes
        text = {
            pb.SEND_BACK_OUTCOME_OK: words(
                "The group gets the message again; one that was sent back before comes once."
            ),
            pb.SEND_BACK_OUTCOME_DEAD_LETTER: words("The message had all its attempts: it is a dead letter now."),
            pb.SEND_BACK_OUTCOME_REMOVED: words("Retention removed the message: it cannot come again."),
        }.get(outcome, pb.SendBackOutcome.Name(outcome))
        is_whole = outcome == pb.SEND_BACK_OUTCOME_OK
        onward = (group_href(command.consumer_group), command.consumer_group)
        return Done(text, onward=onward, is_whole=is_whole, answer=to_json(answer))


class UpdateGroup:
    """Make a consumer group, or change its settings."""

    name = "update-group"
    target = ("group",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("UpdateConsumerGroup", pb.UpdateConsumerGroupRequest(consumer_group=question.text("group")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        kept = (("", words("as before")), ("yes", words("yes")), ("no", words("no")))
        return [
            Field("group", words("Group"), value=question.text("group"), is_required=True),
            Field("ordered", words("In order"), "choice", question.text("ordered"), kept),
            Field(
                "attempts",
                words("Deliveries of a message at most"),
                "number",
                question.text("attempts"),
                hint=words("Empty: as before."),
            ),
            Field("consume", words("Gets messages"), "choice", question.text("consume"), kept),
            Field("broadcast", words("Each member gets every message"), "choice", question.text("broadcast"), kept),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        request = pb.UpdateConsumerGroupRequest(consumer_group=question.text("group"))
        if not request.consumer_group:
            raise InvalidArgumentError("group is empty: name the group.", field="group")
        for field, name, yes in (
            ("ordered", "ordered", True),
            ("consume", "consume_disabled", False),
            ("broadcast", "broadcast", True),
        ):
            if chosen := question.choice(field, ("", "yes", "no"), ""):
                setattr(request, name, (chosen == "yes") is yes)
        if question.text("attempts"):
            request.delivery_attempts_max = question.number("attempts", 0, ATTEMPTS_MAX)
        asked = pb.GetConsumerGroupRequest(consumer_group=request.consumer_group)
        try:
            before = calls.ask(calls.gateway.GetConsumerGroup, asked).settings
        except GroupNotFoundError:
            before = None
        after = pb.ConsumerGroupSettings(consumer_group=request.consumer_group)
        if before is not None:
            after.CopyFrom(before)
        for name in ("ordered", "delivery_attempts_max", "consume_disabled", "broadcast"):
            if request.HasField(name):
                setattr(after, name, getattr(request, name))
        table = _settings_table(before, after, words)
        if before == after:
            return Plan(words("Nothing would change."), table=table)
        text = words("The group would be made:") if before is None else words("The group would be so:")
        return Plan(text, table=table, command=request, answer=to_json(request))

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        settings = calls.ask(calls.gateway.UpdateConsumerGroup, command).settings
        table = _settings_table(settings, settings, words)
        onward = (group_href(command.consumer_group), command.consumer_group)
        return Done(words("The settings of the group are in force."), (), table, onward, answer=to_json(settings))


def _settings_table(before: Any, after: Any, words: Words) -> Table:
    """The settings, with those that change as they were before; `before` None: the group is new."""

    def said(yes: bool) -> str:
        return words("yes") if yes else words("no")

    texts: Sequence[tuple[str, Callable[[Any], str]]] = (
        (words("In order"), lambda each: said(each.ordered)),
        (
            words("Deliveries of a message at most"),
            lambda each: str(each.delivery_attempts_max or words("the default")),
        ),
        (words("Gets messages"), lambda each: said(not each.consume_disabled)),
        (words("Each member gets every message"), lambda each: said(each.broadcast)),
    )
    rows = []
    for name, text in texts:
        new, old = text(after), text(after if before is None else before)
        rows.append((name, new if new == old else f"{old} → {new}"))
    return Table((words("Setting"), words("Value")), rows)
