"""A schedule service in memory, as the gateway's ports have it."""

import queue
from collections.abc import Iterator

from gateway.ports.waiting import (
    PendingTransaction,
    ScheduledMessage,
    WaitingPage,
    WaitingQuestion,
)
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import (
    ScheduledMessageNotFoundError,
    ServiceUnavailableError,
    TransactionNotFoundError,
)
from store.format.topic import name_matcher

_END = object()


class MemoryChecks:
    """A CheckStream that is fed by its test."""

    def __init__(self) -> None:
        self._fed: queue.SimpleQueue = queue.SimpleQueue()

    def feed(self, *checks: pb.WatchChecksResponse.Check) -> None:
        self._fed.put(pb.WatchChecksResponse(checks=checks))

    def cancel(self) -> None:
        self._fed.put(_END)

    def __iter__(self) -> Iterator[pb.WatchChecksResponse]:
        while (answer := self._fed.get()) is not _END:
            yield answer
        raise ServiceUnavailableError("cancelled")


class MemoryScheduling:
    """Scheduling and WaitingLists: what waits is given by the test.

    Args:
        broker_name: the shard's name.
        transactions: half messages that wait.
        scheduled: messages that wait for a time.
    """

    def __init__(self, broker_name="broker-a", transactions=(), scheduled=()) -> None:
        self.broker_name = broker_name
        self.halves: list[PendingTransaction] = list(transactions)
        self.messages: list[ScheduledMessage] = list(scheduled)
        self.verdicts: list[pb.EndTransactionRequest] = []
        self.told: queue.SimpleQueue = queue.SimpleQueue()
        self.stream = MemoryChecks()
        self.is_down = False
        self.asked: list[WaitingQuestion] = []
        self.known = 0
        self.levels_millis = (2_000, 3_600_000)

    def end_transaction(self, verdict, seconds, then):
        self.verdicts.append(verdict)
        found = [each for each in self.halves if each.unique_key == verdict.unique_key]
        if not found:
            then(TransactionNotFoundError("it has ended"))
            return
        self.halves.remove(found[0])
        then(pb.EndTransactionResponse(result=message_pb2.AppendResult(offset_msg_id="A" * 32)))

    def recall(self, request, seconds, then):
        wanted = (request.topic, request.unique_key, request.delivery_time.ToMilliseconds())
        found = [each for each in self.messages if (each.topic, each.unique_key, each.due_millis) == wanted]
        if not found:
            then(ScheduledMessageNotFoundError("it was delivered"))
            return
        self.messages.remove(found[0])
        then(pb.RecallMessageResponse(offset_msg_id=found[0].offset_msg_id))

    def keep_producers(self, gateway_id, topics, seconds):
        if self.is_down:
            raise ServiceUnavailableError("down")
        self.told.put((gateway_id, sorted(topics)))

    def checks(self, gateway_id):
        return self.stream

    def known_offset(self, deadline):
        return self.known

    def delay_levels_millis(self, deadline):
        if self.is_down:
            raise ServiceUnavailableError("down", service="schedule")
        return self.levels_millis

    def transactions(self, question, deadline):
        return self._page(self.halves, question)

    def scheduled(self, question, deadline):
        return self._page(self.messages, question)

    def _page(self, everything, question: WaitingQuestion) -> WaitingPage:
        if self.is_down:
            raise ServiceUnavailableError("down", service="schedule")
        begin = int(question.page_token or 0)
        self.asked.append(question)
        wanted = [each for each in everything if question.topic in ("", each.topic)]
        if question.topic_patterns:
            holds = name_matcher(question.topic_patterns).fullmatch
            wanted = [each for each in wanted if holds(each.topic)]
        end = begin + question.page_size
        return WaitingPage(wanted[begin:end], str(end) if end < len(wanted) else "", len(everything))


def half(unique_key: str, topic: str = "Orders", **fields) -> PendingTransaction:
    """A half message."""
    return PendingTransaction(topic, unique_key, f"id of {unique_key}", topic, "0" * 32, 1_000, 0, None, **fields)


def delayed(unique_key: str, due_millis: int = 5_000, topic: str = "Orders") -> ScheduledMessage:
    """A message that waits for its time."""
    return ScheduledMessage(topic, unique_key, "1" * 32, due_millis, 0, "handle")
