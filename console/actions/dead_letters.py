"""Dead letters of a group: send them to their topics again, all, by filter or chosen ones; drop them.

ResendDeadLetters sends what a filter matches, oldest first, in steps. Chosen ones are read by their ids and appended, each to
the shard where it lies.

The log keeps what was appended, so single dead letters cannot be taken out of it. Dropping ends the dead-letter topic: all of
them at once, as DeleteTopic does it. They are found by id and key until retention removes them (ADR 0166).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.actions.action import Done, Fact, Field, Given, Plan, Table
from console.actions.groups import group_href
from console.actions.sending import stored_of
from console.calls import Calls
from console.pages.page import to_json
from console.parts.formats import count_text
from console.parts.message_row import DEAD_LETTER_PREFIX, message_href
from console.question import Question, parse_time
from console.words import Words
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp
from services.message_copy import new_message, origin_topic_of
from store.errors import InvalidArgumentError, StoreError

STEP_COUNT = 64
# The fields that say which dead letters.
FILTER_FIELDS = ("tag", "begin", "end")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Dead letters that were chosen: the group, and id and shard of each."""

    consumer_group: str
    places: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Drop:
    """All dead letters of a group, as many as were shown."""

    consumer_group: str
    shown_count: int


class ResendDeadLetters:
    """Send dead letters to their own topics again."""

    name = "resend-dead-letters"
    target = ("group",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("ResendDeadLetters", pb.ResendDeadLettersRequest(consumer_group=question.text("group")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        return [
            Field("group", words("Group"), value=question.text("group"), is_required=True),
            Field("tag", words("Tag"), value=question.text("tag"), hint="TagA || TagB"),
            Field("begin", words("From"), "time", question.text("begin")),
            Field("end", words("To"), "time", question.text("end")),
            Field(
                "id",
                words("Only these (offset message ids)"),
                "area",
                question.whole_text("id"),
                hint=words("Separated by spaces."),
            ),
            # Where the step before ended: of what was shown, and of what was sent.
            Field("shown", "", "hidden", question.text("shown")),
            Field("sent", "", "hidden", question.text("sent")),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        group = question.text("group")
        if ids := question.text("id").split():
            return _chosen_plan(calls, group, ids, words)
        request = resend_request(group, {name: question.text(name) for name in FILTER_FIELDS})
        request.dry_run, request.page_token = True, question.text("shown")
        planned = calls.ask(calls.gateway.ResendDeadLetters, request)
        going = sum(bool(each.topic) for each in planned.resent)
        answer = to_json(planned)
        if not going and not planned.next_page_token:  # a step without any leads to the next one
            return Plan(words("No dead letter would be sent."), table=_letters(planned.resent, words), answer=answer)
        command = pb.ResendDeadLettersRequest()
        command.CopyFrom(request)
        command.dry_run, command.page_token = False, question.text("sent")
        text = words(
            "{count} {count:dead letter|dead letters} would be stored again, each in its topic, and consumers get it again.",
            count=count_text(going),
        )
        warning = words("These are the first; further ones follow in steps.") if planned.next_page_token else ""
        facts = [Fact(words("Group"), group, group_href(group))]
        command_and_next = (command, planned.next_page_token)
        return Plan(text, facts, _letters(planned.resent, words), warning, command_and_next, answer=answer)

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        if isinstance(command, _Chosen):
            return _send_chosen(calls, command, words)
        request, shown = command
        sent = calls.ask(calls.gateway.ResendDeadLetters, request)
        group = request.consumer_group
        count = sum(bool(each.new_offset_msg_id) for each in sent.resent)
        text = words("{count} {count:dead letter was|dead letters were} sent again.", count=count_text(count))
        onward = (f"{group_href(group)}/dead-letters", words("Back to the dead letters"))
        facts = []
        if sent.next_page_token and shown:
            question = Question(
                {
                    "group": group,
                    "tag": request.filter.tags,
                    **_times(request),
                    "shown": shown,
                    "sent": sent.next_page_token,
                },
                {},
                0,
            )
            facts.append(Fact(words("There are more."), words("The next ones"), question.link(f"/actions/{self.name}")))
        return Done(text, facts, _letters(sent.resent, words), onward, answer=to_json(sent))


class DropDeadLetters:
    """Drop all dead letters of a group."""

    name = "drop-dead-letters"
    target = ("group",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        group = question.text("group")
        topic = DEAD_LETTER_PREFIX + group if group else ""
        return [("DeleteTopic", pb.DeleteTopicRequest(topic=topic))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        return [Field("group", words("Group"), value=question.text("group"), is_required=True)]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        group = given.question.text("group")
        if not group:
            raise InvalidArgumentError("group is empty: name the group.", field="group")
        answer = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=group))
        facts = [
            Fact(words("Group"), group, group_href(group)),
            Fact(words("Dead letters"), count_text(answer.dead_letter_count), f"{group_href(group)}/dead-letters"),
        ]
        if not answer.dead_letter_count:
            return Plan(words("The group has no dead letter."), facts)
        warning = words("All of them go, and this cannot be taken back: export them first.")
        command = _Drop(group, answer.dead_letter_count)
        return Plan(words("The dead letters of the group would be dropped."), facts, None, warning, command)

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        group = command.consumer_group
        asked = pb.GetConsumerGroupRequest(consumer_group=group)
        count = calls.ask(calls.gateway.GetConsumerGroup, asked).dead_letter_count
        if count > command.shown_count:
            raise InvalidArgumentError(
                f"The group has {count} dead letters now, and {command.shown_count} were shown: none was dropped. Look at "
                "the new ones, and check again.",
                field="confirmation",
            )
        answer = calls.ask(calls.gateway.DeleteTopic, pb.DeleteTopicRequest(topic=DEAD_LETTER_PREFIX + group))
        return Done(words("The dead letters were dropped."), onward=(group_href(group), group), answer=to_json(answer))


def resend_request(consumer_group: str, fields: dict[str, str]) -> pb.ResendDeadLettersRequest:
    """The request for a step of the dead letters that the fields of the form match; InvalidArgumentError by field."""
    request = pb.ResendDeadLettersRequest(consumer_group=consumer_group, max_messages=STEP_COUNT)
    if fields["tag"]:
        request.filter.tags = fields["tag"]
    for field, is_end in (("begin", False), ("end", True)):
        if fields[field]:
            millis = parse_time(fields[field], field, is_end=is_end)
            getattr(request, f"{field}_time").CopyFrom(millis_to_timestamp(millis))
    return request


def _times(request: Any) -> dict[str, str]:
    """The times of a request as its form has them."""
    named = (("begin", "begin_time"), ("end", "end_time"))
    return {
        field: getattr(request, name).ToDatetime().isoformat(timespec="milliseconds")
        for field, name in named
        if request.HasField(name)
    }


def _chosen_plan(calls: Calls, group: str, ids: Sequence[str], words: Words) -> Plan:
    """What sending the dead letters with these ids will do; InvalidArgumentError for one that is not of the group."""
    if len(ids) > STEP_COUNT:
        raise InvalidArgumentError(f"{len(ids)} ids are given: at most {STEP_COUNT} at a time.", field="id")
    rows, places = [], []
    for offset_msg_id in dict.fromkeys(ids):
        letter = stored_of(calls, offset_msg_id, "")
        if letter.topic != DEAD_LETTER_PREFIX + group:
            raise InvalidArgumentError(
                f"{offset_msg_id} is a message of {letter.topic!r}, no dead letter of {group!r}.", field="id"
            )
        topic = origin_topic_of(letter)
        rows.append(pb.ResendDeadLettersResponse.Resent(offset_msg_id=letter.offset_msg_id, topic=topic))
        if topic:
            places.append((letter.offset_msg_id, letter.broker_name))
    if not places:
        return Plan(words("No dead letter would be sent."), table=_letters(rows, words))
    text = words(
        "{count} {count:dead letter|dead letters} would be stored again, each in its topic, and consumers get it again.",
        count=count_text(len(places)),
    )
    facts = [Fact(words("Group"), group, group_href(group))]
    answer = to_json(pb.ResendDeadLettersResponse(resent=rows))
    return Plan(text, facts, _letters(rows, words), command=_Chosen(group, places), answer=answer)


def _send_chosen(calls: Calls, chosen: _Chosen, words: Words) -> Done:
    """Send each, up to the first that fails; its StoreError when it is the first of all."""
    rows: list[Any] = []
    facts = []
    for offset_msg_id, broker_name in chosen.places:
        try:
            letter = stored_of(calls, offset_msg_id, broker_name)
            message = new_message(letter, origin_topic_of(letter))
            request = pb.AppendMessagesRequest(messages=[message], broker_name=broker_name)
            result = calls.ask(calls.gateway.AppendMessages, request).results[0]
        except StoreError as error:
            if not rows:
                raise
            facts.append(Fact(words("The next one failed, and those behind it were not sent"), error.message))
            break
        rows.append(
            pb.ResendDeadLettersResponse.Resent(
                offset_msg_id=offset_msg_id, topic=message.topic, new_offset_msg_id=result.offset_msg_id
            )
        )
    return Done(
        words("{count} {count:dead letter was|dead letters were} sent again.", count=count_text(len(rows))),
        facts,
        _letters(rows, words),
        (f"{group_href(chosen.consumer_group)}/dead-letters", words("Back to the dead letters")),
        is_whole=not facts,
        answer=to_json(pb.ResendDeadLettersResponse(resent=rows)),
    )


def _letters(resent: Sequence[Any], words: Words) -> Table | None:
    """The dead letters, where they go, and what they became."""
    if not resent:
        return None
    is_sent = any(each.new_offset_msg_id for each in resent)
    heads = [words("Dead letter"), words("Goes to"), *([words("New message")] if is_sent else [])]
    rows: list[list[str | Fact]] = []
    for each in resent:
        row: list[str | Fact] = [
            Fact("", each.offset_msg_id, message_href(each.offset_msg_id, "")),
            each.topic or words("It names no topic: it is not sent."),
        ]
        if is_sent:
            new = each.new_offset_msg_id
            row.append(Fact("", new, message_href(new, "")) if new else "–")
        rows.append(row)
    return Table(heads, rows)
