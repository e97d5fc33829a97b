"""Requests and replies: what producers send and what they read for it, with RocketMQ's properties."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.calls import CallCore
from reput_client.commands import Command
from reput_client.consuming.received_message import ReceivedMessage
from reput_client.encoding import to_message
from reput_client.producing.messages import NewMessage

if TYPE_CHECKING:
    from reput_client.querying.message import Message

TIMEOUT_SECONDS_DEFAULT = 3.0
CORRELATION_ID, REPLY_TO_CLIENT, TTL, CLUSTER, MSG_TYPE = (
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "TTL",
    "CLUSTER",
    "MSG_TYPE",
)
REPLY = "reply"


async def ask_for_reply(calls: CallCore, message: NewMessage, timeout_seconds: float) -> "Message":
    """Send a request; the reply."""
    from reput_client.querying.message import message_of  # a producer that sends no requests loads no queries

    return message_of(await request_question(message, timeout_seconds).ask(calls))


async def make_reply(
    calls: CallCore, request: "ReceivedMessage | Message", body: bytes, properties: Mapping[str, str] | None
) -> NewMessage:
    """The reply to a request, as a consumer or a query has it.

    Raises:
        ValueError: the message is no request.
        ReputClientError: its properties cannot be read now.
    """
    if not isinstance(request, ReceivedMessage):
        return reply_of(request.properties, body, properties)
    known = await stored_question(request).ask(calls)
    if known is None:
        known = await by_key_question(request).ask(calls)
    return reply_of(known, body, properties)


def request_question(message: NewMessage, timeout_seconds: float) -> Command[Any]:
    """Sends a request: the reply, as the contract's StoredMessage."""
    millis = round(timeout_seconds * 1000)
    request = pb.SendRequestRequest(
        message=to_message(*message), timeout=Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)
    )
    return Command("SendRequest", request, lambda answer: answer.reply)


def stored_question(request: ReceivedMessage) -> Command[Mapping[str, str] | None]:
    """Reads all properties of a message that was received; None when another message lies in its place.

    RocketMQ's contract for consumers hides those of requests.
    """
    wanted = pb.QueryMessageByOffsetRequest(
        topic=request.topic,
        queue_id=request.queue_id,
        queue_offset=request.queue_offset,
        broker_name=request.broker_name,
        page_size=1,
    )

    def properties(answer: Any) -> Mapping[str, str] | None:
        found = [each for each in answer.messages if each.unique_key == request.message_id]
        return dict(found[0].properties) if found else None

    return Command("QueryMessageByOffset", wanted, properties)


def by_key_question(request: ReceivedMessage) -> Command[Mapping[str, str]]:
    """The same for a message that was delivered again: it lies in a retry topic by then."""
    wanted = pb.QueryMessageByUniqueKeyRequest(topic=request.topic, unique_key=request.message_id, page_size=1)
    return Command(
        "QueryMessageByUniqueKey",
        wanted,
        lambda answer: dict(answer.messages[0].properties) if answer.messages else {},
    )


def reply_of(request: Mapping[str, str], body: bytes, properties: Mapping[str, str] | None) -> NewMessage:
    """The reply to a request with these properties.

    Raises:
        ValueError: it is no request.
    """
    missing = [name for name in (CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER) if not request.get(name)]
    if missing:
        raise ValueError(f"the message is no request: it has no property {missing[0]}")
    own = {name: request[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in request}
    return NewMessage(
        f"{request[CLUSTER]}_REPLY_TOPIC", body, properties={**(properties or {}), **own, MSG_TYPE: REPLY}
    )
