"""SendMessage: the messages become one append request, which is forwarded like all others (appends/forwarder.py)."""

from collections.abc import Sequence
from functools import partial

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.appends.forwarder import AppendForwarder
from gateway.rocketmq.message_rules import DELIVERY_AHEAD_SECONDS_MAX, check_sent
from gateway.rocketmq.messages import to_new_message
from gateway.rocketmq.names import full_name, topic_of
from gateway.rocketmq.status import RefusedError, ok, status_of
from gateway.rocketmq.topic_types import TopicTypes, check_type
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing.meters import refusal_counter
from services.serving.calls.unary_call import Answerable
from services.status import from_status
from store.errors import InvalidArgumentError, StoreError

# Requests that only RocketMQ's contract refuses are errors of the caller, whatever their code there.
REFUSED_CODE: int = grpc.StatusCode.INVALID_ARGUMENT.value[0]

# protobuf copies it into each answer.
OK = ok()

_count_refusal = refusal_counter("v2.MessagingService/SendMessage")


class Sending:
    """Takes serialized SendMessageRequests.

    Args:
        forwarder: sends the append requests.
        types: which messages a topic takes.
        delivery_ahead_seconds_max: how far ahead a delivery time may lie.
    """

    def __init__(
        self,
        forwarder: AppendForwarder,
        types: TopicTypes,
        delivery_ahead_seconds_max: int = DELIVERY_AHEAD_SECONDS_MAX,
    ) -> None:
        self._forwarder = forwarder
        self._types = types
        self._delivery_ahead_seconds_max = delivery_ahead_seconds_max

    def send_message(self, request: bytes, caller: Answerable) -> None:
        """One request. The caller is answered later, or at once when the request is refused."""
        messages = _parse(request)
        try:
            topic = _only_topic(messages)
        except RefusedError as error:
            _refuse(caller, error)
            return

        def send(message_type: int, *, is_newest: bool) -> None:
            error = self._send(messages, message_type, caller)
            if error is not None and error.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE and not is_newest:
                self._types.tell(topic, partial(send, is_newest=True), newest=True)
            elif error is not None:
                _refuse(caller, error)

        self._types.tell(topic, partial(send, is_newest=False))

    def _send(self, messages: Sequence[v2.Message], message_type: int, caller: Answerable) -> RefusedError | None:
        """Forward the messages; the refusal of what a message says, which is not answered yet."""
        try:
            append = _append_request(messages, message_type, self._delivery_ahead_seconds_max)
            message_ids = [message.system_properties.message_id for message in messages]
            self._forwarder.append_messages(append.SerializeToString(), _Sender(caller, message_ids))
        except RefusedError as error:
            return error
        except StoreError as error:
            _refuse(caller, error)
        return None


def _refuse(caller: Answerable, error: RefusedError | StoreError) -> None:
    _count_refusal(REFUSED_CODE)
    caller.answer(v2.SendMessageResponse(status=status_of(error)).SerializeToString())


def _parse(request: bytes) -> Sequence[v2.Message]:
    try:
        messages: Sequence[v2.Message] = v2.SendMessageRequest.FromString(request).messages
    except DecodeError as error:
        raise InvalidArgumentError(f"the request is not a SendMessageRequest: {error}", field="request") from error
    return messages


def _only_topic(messages: Sequence[v2.Message]) -> str:
    if not messages:
        raise RefusedError(v2.MESSAGE_CORRUPTED, "the request has no message: send at least one")
    topics = {full_name(message.topic) for message in messages}
    if len(topics) > 1:
        raise RefusedError(
            v2.MESSAGE_CORRUPTED, f"the request has messages of {len(topics)} topics: send one request for each"
        )
    return topic_of(messages[0].topic)


def _append_request(
    messages: Sequence[v2.Message], message_type: int, delivery_ahead_seconds_max: int
) -> pb.AppendMessagesRequest:
    new = []
    for message in messages:
        check_sent(message, delivery_ahead_seconds_max=delivery_ahead_seconds_max)
        check_type(message, message_type)
        new.append(to_new_message(message))
    return pb.AppendMessagesRequest(messages=new)


class _Sender:
    """The caller of SendMessage: converts the response and failures of an append to RocketMQ's contract."""

    def __init__(self, caller: Answerable, message_ids: Sequence[str]) -> None:
        self._caller = caller
        self._message_ids = message_ids
        self.is_active = caller.is_active
        self.time_remaining = caller.time_remaining

    def answer(self, response: bytes) -> None:
        results = pb.AppendMessagesResponse.FromString(response).results
        entries = [
            v2.SendResultEntry(
                status=OK,
                message_id=message_id,
                offset=result.queue_offset,
                transaction_id=result.transaction_id,
                recall_handle=result.recall_handle,
            )
            for message_id, result in zip(self._message_ids, results, strict=True)
        ]
        self._caller.answer(v2.SendMessageResponse(status=OK, entries=entries).SerializeToString())

    def fail(self, status: status_pb2.Status) -> None:
        _count_refusal(status.code)
        error: StoreError = from_status(status)
        self._caller.answer(v2.SendMessageResponse(status=status_of(error)).SerializeToString())
