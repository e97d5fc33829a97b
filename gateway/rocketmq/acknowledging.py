"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of messages that were delivered.

A receipt handle names its shard. The first two are frequent, so they take no thread: they are answered when their shards are.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.delivery import Delivering, DeliveringSource
from gateway.rocketmq.caller import consumer_of
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.messages import resource_of
from gateway.rocketmq.names import group_of, topic_of
from gateway.rocketmq.receiving import invisible_of
from gateway.rocketmq.status import RefusedError, ok, status_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.methods import QUERY_SECONDS
from services.serving.calls.unary_call import Answerable
from services.serving.deadline import answer_seconds
from store.errors import BrokerNotFoundError, InvalidArgumentError, ReceiptHandleNotFoundError, StoreError
from store.format.delivery.receipt_handle import HandlePayload, decode_payload, split_handle
from store.format.topic import RETRY_PREFIX, split_lite_queue

# What one AckMessages of the consumer service may name.
HANDLE_COUNT_MAX = 1_024

Request = TypeVar("Request")

_ACK_STATUS = {
    pb.AckMessagesResponse.OUTCOME_OK: ok(),
    pb.AckMessagesResponse.OUTCOME_TOO_LATE: v2.Status(
        code=v2.INVALID_RECEIPT_HANDLE, message="the time of this delivery is over: the message is delivered again"
    ),
    pb.AckMessagesResponse.OUTCOME_INVALID: v2.Status(
        code=v2.INVALID_RECEIPT_HANDLE, message="this is no receipt handle of the group"
    ),
}


class Acknowledging:
    """Takes serialized requests.

    Args:
        shards: the consumer services.
        clients: need not report what is acknowledged already.
    """

    def __init__(self, shards: DeliveringSource, clients: Clients) -> None:
        self._shards = shards
        self._clients = clients

    def ack_message(self, request: bytes, caller: Answerable) -> None:
        """AckMessage. The caller is answered later, or at once when the request is refused."""
        try:
            parsed = _parse(v2.AckMessageRequest, request)
            _check(parsed, caller)
            if not parsed.entries:
                raise RefusedError(v2.BAD_REQUEST, "the request has no entry: name a message")
        except (RefusedError, StoreError) as error:
            caller.answer(v2.AckMessageResponse(status=status_of(error)).SerializeToString())
            return
        _Acks(parsed, caller, self._clients).send(self._of_handle, answer_seconds(caller, QUERY_SECONDS))

    def change_invisible_duration(self, request: bytes, caller: Answerable) -> None:
        """ChangeInvisibleDuration, likewise."""

        def changed(outcome: pb.ChangeInvisibleDurationResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                response = v2.ChangeInvisibleDurationResponse(status=status_of(outcome))
            else:
                # A message that was given back at once has no new handle; clients keep what they are given.
                handle = outcome.receipt_handle or parsed.receipt_handle
                response = v2.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=handle)
            caller.answer(response.SerializeToString())

        try:
            parsed = _parse(v2.ChangeInvisibleDurationRequest, request)
            _check(parsed, caller)
            invisible = invisible_of(parsed.invisible_duration, 0)
            delivering, handle = self._of_handle(parsed.receipt_handle, parsed.topic)
        except (RefusedError, StoreError) as error:
            caller.answer(v2.ChangeInvisibleDurationResponse(status=status_of(error)).SerializeToString())
            return
        seconds = answer_seconds(caller, QUERY_SECONDS)
        change = pb.ChangeInvisibleDurationRequest(
            consumer_group=group_of(parsed.group),
            receipt_handle=parsed.receipt_handle,
            invisible_duration=invisible,
        )
        # Without an attempt: one message, or all that the group has in flight of a lite topic.
        if split_lite_queue(handle.topic) is None:
            change.give_back = parsed.suspend
        else:
            change.suspend = parsed.suspend
        delivering.change_invisible(change, seconds, changed)

    def forward_to_dead_letter_queue(
        self, request: v2.ForwardMessageToDeadLetterQueueRequest, context: Any
    ) -> v2.Status:
        """ForwardMessageToDeadLetterQueue.

        Official clients repeat it without end until they are told OK, and their queue stands still meanwhile. So a delivery
        that is over (it was delivered again, or a reset came) is OK, too; its message goes its way without this client.

        Raises:
            RefusedError, StoreError: it is not moved.
        """
        _check(request, context)
        delivering, _ = self._of_handle(request.receipt_handle, request.topic)
        seconds = answer_seconds(context, QUERY_SECONDS)
        try:
            forward = pb.ForwardToDeadLetterTopicRequest(
                consumer_group=group_of(request.group), receipt_handle=request.receipt_handle
            )
            delivering.forward_to_dead_letters(forward, seconds)
        except ReceiptHandleNotFoundError as error:
            return ok(f"nothing is left to do: {error.message}")
        return ok()

    def _of_handle(self, receipt_handle: str, topic: v2.Resource) -> tuple[Delivering, HandlePayload]:
        """The shard that made a handle, and what the handle names.

        Raises:
            RefusedError: INVALID_RECEIPT_HANDLE: it is none, or of a message of another topic.
        """
        try:
            parts = split_handle(receipt_handle)
            handle = decode_payload(parts.payload)
            delivering = self._shards.named(parts.broker_name)
        except ValueError as error:
            raise RefusedError(
                v2.INVALID_RECEIPT_HANDLE, "this is no receipt handle: use the one of the message"
            ) from error
        except BrokerNotFoundError as error:
            raise RefusedError(
                v2.INVALID_RECEIPT_HANDLE, "the receipt handle is of a shard that is not known here"
            ) from error
        if not _is_of(handle, topic.name):
            raise RefusedError(
                v2.INVALID_RECEIPT_HANDLE, "the receipt handle is of another topic: name the one of the message"
            )
        return delivering, handle


def _is_of(handle: HandlePayload, topic_name: str) -> bool:
    """Whether a message was delivered for a topic: as it is, of a lite topic of it, or as a retry. Clients drop namespaces."""
    lite = split_lite_queue(handle.topic)
    if resource_of(handle.topic if lite is None else lite[0]).name == topic_name:
        return True
    if not handle.topic.startswith(RETRY_PREFIX):
        return False
    after = handle.topic.removeprefix(RETRY_PREFIX + handle.consumer_group)
    return after[:1] in ("_", "+") and resource_of(after[1:]).name == topic_name


class _Acks:
    """One AckMessage: its entries go to their shards, and its answer has them in order."""

    def __init__(self, request: v2.AckMessageRequest, caller: Answerable, clients: Clients) -> None:
        self._request = request
        self._caller = caller
        self._clients = clients
        self._group = group_of(request.group)
        self._statuses: list[v2.Status] = [v2.Status()] * len(request.entries)
        self._lock = threading.Lock()
        self._left_count = 0

    def send(self, of_handle: Callable[[str, v2.Resource], tuple[Delivering, HandlePayload]], seconds: float) -> None:
        """Send the entries; the last outcome answers the caller."""
        asked: list[tuple[Delivering, list[int]]] = []
        by_broker: dict[str, tuple[Delivering, list[int]]] = {}
        for number, entry in enumerate(self._request.entries):
            try:
                delivering, _ = of_handle(entry.receipt_handle, self._request.topic)
            except (RefusedError, StoreError) as error:
                self._statuses[number] = status_of(error)
                continue
            one = by_broker.get(delivering.broker_name)
            if one is None or len(one[1]) == HANDLE_COUNT_MAX:
                one = by_broker[delivering.broker_name] = delivering, []
                asked.append(one)
            one[1].append(number)
        self._left_count = len(asked) + 1
        for delivering, numbers in asked:
            handles = [self._request.entries[number].receipt_handle for number in numbers]
            ack = pb.AckMessagesRequest(consumer_group=self._group, receipt_handles=handles)
            delivering.ack(ack, seconds, self._noting(delivering.broker_name, handles, numbers))
        self._one_done()

    def _noting(
        self, broker_name: str, handles: Sequence[str], numbers: Sequence[int]
    ) -> Callable[[pb.AckMessagesResponse | StoreError], None]:
        def note(outcome: pb.AckMessagesResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                failed = status_of(outcome)
                for number in numbers:
                    self._statuses[number] = failed
            else:
                for number, each in zip(numbers, outcome.outcomes, strict=True):
                    self._statuses[number] = _ACK_STATUS[each]
                self._clients.note_acknowledged(broker_name, handles)
            self._one_done()

        return note

    def _one_done(self) -> None:
        with self._lock:
            self._left_count -= 1
            if self._left_count:
                return
        codes = {status.code for status in self._statuses}
        code = codes.pop() if len(codes) == 1 else v2.MULTIPLE_RESULTS
        overall = v2.Status(code=code, message=v2.Code.Name(code))  # the texts are the entries'; clients show this name
        entries = [
            v2.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            for entry, status in zip(self._request.entries, self._statuses, strict=True)
        ]
        self._caller.answer(v2.AckMessageResponse(status=overall, entries=entries).SerializeToString())


def _check(request: Any, call: Any) -> None:
    consumer_of(call)
    topic_of(request.topic)
    group_of(request.group)


def _parse(message: type[Request], request: bytes) -> Request:
    try:
        parsed: Request = message.FromString(request)  # type: ignore[attr-defined]  # of every generated class
    except DecodeError as error:
        raise InvalidArgumentError(f"the request cannot be read: {error}", field="request") from error
    return parsed
