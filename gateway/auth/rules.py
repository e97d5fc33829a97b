"""THE table of rights: for each RPC of the gateway, which role is needed and for which topics.

    roles       any of these, for each topic that the request names; where it names none, for any topic at all
    topics      how the request names them; None: it names none, or never
    parse       for handlers that take bytes: how they are read
    outcome     for handlers that answer with bytes: what the audit log is told of an answer, `OK` or the name of a code

What an answer holds is limited by caller_shards.py, whatever the rule. A method that is not in the table is denied to
everybody; a test asks for the row of each RPC that there is. Health is for everybody, reflection for every client that is
known (guard.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access import ADMIN, ANY, READ, READ_OR_WRITE, WRITE, Roles
from gateway.rocketmq.messages import full_name
from reput.gateway.v1 import gateway_service_pb2 as pb

GATEWAY = "/reput.gateway.v1.GatewayService/"
MESSAGING = "/apache.rocketmq.v2.MessagingService/"
ROCKETMQ_ADMIN = "/apache.rocketmq.v2.Admin/"


OK = "OK"
# How an AppendMessageStreamResponse begins that has an `error`: it has nothing else.
STREAM_ERROR_TAG = bytes([pb.AppendMessageStreamResponse.ERROR_FIELD_NUMBER << 3 | 2])
_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def _always_ok(_answer: bytes) -> str:
    return OK


def _of_stream_answer(answer: bytes) -> str:
    if not answer.startswith(STREAM_ERROR_TAG):  # parsed only where it failed: it stands in the way of every append
        return OK
    return _CODE_NAMES.get(pb.AppendMessageStreamResponse.FromString(answer).error.code, "UNKNOWN")


def _of_rocketmq_answer(answer: bytes) -> str:
    code = v2.SendMessageResponse.FromString(answer).status.code
    return OK if code == v2.OK else v2.Code.Name(code) if code in v2.Code.values() else "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may call a method; see above."""

    roles: Roles
    topics: Callable[[Any], Iterable[str]] | None = None
    parse: Callable[[bytes], Any] | None = None
    outcome: Callable[[bytes], str] = _always_ok


def _own(request: Any) -> tuple[str, ...]:
    return (request.topic,) if request.topic else ()


def _of_messages(request: Any) -> list[str]:
    return [message.topic for message in request.messages]


def _of_rocketmq_messages(request: Any) -> list[str]:
    return [full_name(message.topic) for message in request.messages]


def _of_resource(request: Any) -> tuple[str, ...]:
    return (full_name(request.topic),)


def _of_resources(request: Any) -> list[str]:
    return [full_name(topic) for topic in request.topics]


def _of_queue(request: Any) -> tuple[str, ...]:
    return (full_name(request.message_queue.topic),)


def _explained(request: Any) -> tuple[str, ...]:
    kind = request.WhichOneof("query")
    return _own(getattr(request, kind)) if kind is not None else ()


RULES: dict[str, Rule] = {
    GATEWAY + "AppendMessages": Rule(WRITE, _of_messages, pb.AppendMessagesRequest.FromString),
    GATEWAY + "AppendMessageStream": Rule(
        WRITE, _of_messages, pb.AppendMessageStreamRequest.FromString, _of_stream_answer
    ),
    GATEWAY + "QueryMessageByKey": Rule(READ, _own),
    GATEWAY + "QueryMessageById": Rule(READ, _own),
    GATEWAY + "QueryMessageByUniqueKey": Rule(READ, _own),
    GATEWAY + "QueryMessageByOffset": Rule(READ, _own),
    GATEWAY + "FindMessage": Rule(READ, _own),
    GATEWAY + "SearchMessages": Rule(READ, _own),
    GATEWAY + "ExplainQuery": Rule(READ, _explained),
    GATEWAY + "DownloadBody": Rule(READ),
    GATEWAY + "SearchOffset": Rule(READ, _own),
    GATEWAY + "ListTopics": Rule(READ),
    GATEWAY + "GetStatus": Rule(ADMIN),
    MESSAGING + "QueryRoute": Rule(READ_OR_WRITE, _of_resource),
    MESSAGING + "Heartbeat": Rule(ANY),
    MESSAGING + "SendMessage": Rule(
        WRITE, _of_rocketmq_messages, v2.SendMessageRequest.FromString, _of_rocketmq_answer
    ),
    MESSAGING + "GetOffset": Rule(READ),
    MESSAGING + "QueryOffset": Rule(READ, _of_queue),
    MESSAGING + "Telemetry": Rule(ANY),
    MESSAGING + "NotifyClientTermination": Rule(ANY),
    ROCKETMQ_ADMIN + "QueryMessage": Rule(READ, _of_resource),
    ROCKETMQ_ADMIN + "QueryTimeSpan": Rule(READ, _of_resources),
}
