"""End what waits: recall a message before its time, commit or roll back a transaction."""

from collections.abc import Callable, Sequence
from typing import Any

from console.actions.action import Done, Fact, Field, Given, Plan
from console.calls import Calls
from console.parts.formats import time_text
from console.parts.message_row import message_href
from console.question import Question
from console.words import Words
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import timestamp_to_millis

# The lists are searched for what is to end, page by page.
PAGE_SIZE = 1_000
PAGE_COUNT_MAX = 16


class Recall:
    """Take back a message that waits for its time."""

    name = "recall"
    target = ("topic",)

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("RecallMessage", pb.RecallMessageRequest(topic=question.text("topic")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        return [
            Field("topic", words("Topic"), value=question.text("topic"), is_required=True),
            Field("handle", words("Recall handle"), value=question.text("handle"), is_required=True),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        topic, handle = given.question.text("topic"), given.question.text("handle")
        request = pb.RecallMessageRequest(topic=topic, recall_handle=handle)
        lists = pb.ListScheduledMessagesRequest(topic=topic, page_size=PAGE_SIZE)
        facts = [Fact(words("Topic"), topic), Fact(words("Recall handle"), handle)]
        if calls.may("ListScheduledMessages", lists):
            found, is_whole = _found(
                lists,
                lambda page: calls.ask(calls.gateway.ListScheduledMessages, page),
                lambda page: page.messages,
                lambda each: each.recall_handle == handle,
            )
            if found is None and is_whole:
                return Plan(words("No message waits with this handle: it was delivered or recalled."), facts)
            if found is not None:
                due = _time_text(found, "delivery_time")
                facts += [
                    Fact(words("Due"), due),
                    Fact(words("Unique key"), found.unique_key),
                    _message_fact(found, words),
                ]
        return Plan(words("The message would be taken back: no consumer gets it."), facts, command=request)

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        answer = calls.ask(calls.gateway.RecallMessage, command)
        facts = [Fact(words("Unique key"), answer.unique_key)]
        return Done(
            words("The message was taken back."),
            facts,
            onward=("/waiting", words("Messages that wait")),
            answer={"uniqueKey": answer.unique_key},
        )


class EndTransaction:
    """Give the verdict of a transaction that has none."""

    name = "end-transaction"
    target = ("topic", "verdict")

    def right(self, question: Question) -> Sequence[tuple[str, Any]]:
        """See Action."""
        return [("EndTransaction", pb.EndTransactionRequest(topic=question.text("topic")))]

    def fields(self, calls: Calls, question: Question, words: Words) -> Sequence[Field]:
        """See Action."""
        verdicts = (("rollback", words("Roll back")), ("commit", words("Commit")))
        return [
            Field("topic", words("Topic"), value=question.text("topic"), is_required=True),
            Field("transaction", words("Transaction id"), value=question.text("transaction"), is_required=True),
            Field("verdict", words("Verdict"), "choice", question.text("verdict"), verdicts),
        ]

    def plan(self, calls: Calls, given: Given, words: Words) -> Plan:
        """See Action."""
        question = given.question
        topic, transaction_id = question.text("topic"), question.text("transaction")
        commits = question.choice("verdict", ("rollback", "commit"), "rollback") == "commit"
        resolution = pb.TRANSACTION_RESOLUTION_COMMIT if commits else pb.TRANSACTION_RESOLUTION_ROLLBACK
        request = pb.EndTransactionRequest(
            topic=topic, transaction_id=transaction_id, resolution=resolution, is_from_check=True
        )
        facts = [Fact(words("Topic"), topic), Fact(words("Transaction id"), transaction_id)]
        lists = pb.ListPendingTransactionsRequest(topic=topic, page_size=PAGE_SIZE)
        if calls.may("ListPendingTransactions", lists):
            found, is_whole = _found(
                lists,
                lambda page: calls.ask(calls.gateway.ListPendingTransactions, page),
                lambda page: page.transactions,
                lambda each: each.transaction_id == transaction_id,
            )
            if found is None and is_whole:
                return Plan(words("No transaction with this id waits: it has ended."), facts)
            if found is not None:
                made = _time_text(found, "born_time")
                facts += [Fact(words("Made"), made), Fact(words("Unique key"), found.unique_key)]
                facts += [Fact(words("Producer group"), found.producer_group or "–"), _message_fact(found, words)]
        text = (
            words("The transaction would be committed: consumers get its message.")
            if commits
            else words("The transaction would be rolled back: no consumer gets its message.")
        )
        warning = words("Its producer is not asked: what it decided itself may differ.")
        return Plan(text, facts, warning=warning, command=request)

    def act(self, calls: Calls, command: Any, words: Words) -> Done:
        """See Action."""
        result = calls.ask(calls.gateway.EndTransaction, command).result
        commits = command.resolution == pb.TRANSACTION_RESOLUTION_COMMIT
        facts = []
        if result.offset_msg_id:
            href = message_href(result.offset_msg_id, result.broker_name)
            facts.append(Fact(words("New message"), result.offset_msg_id, href))
        text = words("The transaction was committed.") if commits else words("The transaction was rolled back.")
        onward = ("/half-messages", words("Half messages"))
        return Done(text, facts, onward=onward, answer={"offsetMsgId": result.offset_msg_id})


def _time_text(row: Any, field: str) -> str:
    return f"{time_text(timestamp_to_millis(getattr(row, field), field))} UTC"


def _message_fact(row: Any, words: Words) -> Fact:
    return Fact(words("Message"), row.offset_msg_id, message_href(row.offset_msg_id, row.broker_name))


def _found(
    request: Any, ask: Callable[[Any], Any], rows_of: Callable[[Any], Any], is_it: Callable[[Any], bool]
) -> tuple[Any, bool]:
    """The row of a list that is meant, or None; and whether the whole list was searched and nothing of it is missing."""
    for _ in range(PAGE_COUNT_MAX):
        page = ask(request)
        for each in rows_of(page):
            if is_it(each):
                return each, True
        if any(outcome.HasField("error") for outcome in page.shards):
            return None, False
        if not page.next_page_token:
            return None, True
        request.page_token = page.next_page_token
    return None, False
