"""A schedule service in memory, as the gateway's ports have it."""

import queue
from collections.abc import Iterator

from gateway.ports.shard import Shard
from gateway.ports.time_window import set_millis
from gateway.ports.waiting import DELAY_LEVELS, KNOWN_OFFSET, LIST_SCHEDULED, LIST_TRANSACTIONS
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import (
    ScheduledMessageNotFoundError,
    ServiceUnavailableError,
    TransactionNotFoundError,
)
from store.format.topic import name_matcher
from tests.gateway.memory_shard import late

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
    """Scheduling, and the lists of what waits: all of it is given by the test.

    Args:
        broker_name: the shard's name.
        transactions: half messages that wait.
        scheduled: messages that wait for a time.
    """

    def __init__(self, broker_name="broker-a", transactions=(), scheduled=()) -> None:
        self.broker_name = broker_name
        self.halves: list[pb.PendingTransaction] = list(transactions)
        self.messages: list[pb.ScheduledMessage] = list(scheduled)
        self.verdicts: list[pb.EndTransactionRequest] = []
        self.told: queue.SimpleQueue = queue.SimpleQueue()
        self.unasked: list[str] = []
        self.stream = MemoryChecks()
        self.is_down = False
        self.asked: list[pb.ListPendingTransactionsRequest | pb.ListScheduledMessagesRequest] = []
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
        found = [
            each
            for each in self.messages
            if (each.topic, each.unique_key, each.delivery_time.ToMilliseconds()) == wanted
        ]
        if not found:
            then(ScheduledMessageNotFoundError("it was delivered"))
            return
        self.messages.remove(found[0])
        then(pb.RecallMessageResponse(offset_msg_id=found[0].offset_msg_id))

    def keep_producers(self, gateway_id, topics, producer_groups, seconds, unasked=()):
        if self.is_down:
            raise ServiceUnavailableError("down")
        self.unasked += unasked
        self.told.put((gateway_id, sorted([*topics, *producer_groups])))

    def checks(self, gateway_id):
        return self.stream

    def in_shard(self, shard: Shard) -> Shard:
        """The shard with this schedule service."""
        shard = shard.serving(LIST_TRANSACTIONS, late(self, "transactions"))
        shard = shard.serving(LIST_SCHEDULED, late(self, "scheduled"))
        shard = shard.serving(KNOWN_OFFSET, late(self, "known_offset"))
        return shard.serving(DELAY_LEVELS, late(self, "delay_levels_millis"))

    def known_offset(self, request, deadline):
        return self.known

    def delay_levels_millis(self, request, deadline):
        if self.is_down:
            raise ServiceUnavailableError("down", service="schedule")
        return self.levels_millis

    def transactions(self, request, deadline):
        rows, token = self._page(self.halves, request)
        return pb.ListPendingTransactionsResponse(
            transactions=rows, next_page_token=token, pending_count=len(self.halves)
        )

    def scheduled(self, request, deadline):
        rows, token = self._page(self.messages, request)
        return pb.ListScheduledMessagesResponse(messages=rows, next_page_token=token, pending_count=len(self.messages))

    def _page(self, everything, request):
        """The rows, and the token of the next page."""
        if self.is_down:
            raise ServiceUnavailableError("down", service="schedule")
        begin = int(request.page_token or 0)
        self.asked.append(type(request).FromString(request.SerializeToString()))
        wanted = [each for each in everything if request.topic in ("", each.topic)]
        if request.topic_patterns:
            holds = name_matcher(request.topic_patterns).fullmatch
            wanted = [each for each in wanted if holds(each.topic)]
        end = begin + request.page_size
        return wanted[begin:end], str(end) if end < len(wanted) else ""


def half(unique_key: str, topic: str = "Orders") -> pb.PendingTransaction:
    """A half message."""
    made = pb.PendingTransaction(
        topic=topic,
        unique_key=unique_key,
        transaction_id=f"id of {unique_key}",
        producer_group=topic,
        offset_msg_id="0" * 32,
    )
    set_millis(made.born_time, 1_000)
    return made


def delayed(unique_key: str, due_millis: int = 5_000, topic: str = "Orders") -> pb.ScheduledMessage:
    """A message that waits for its time."""
    made = pb.ScheduledMessage(topic=topic, unique_key=unique_key, offset_msg_id="1" * 32, recall_handle="handle")
    set_millis(made.delivery_time, due_millis)
    return made
