"""The topics that a request of the gateway names, and the outcome of an answer. Both need code, unlike services/methods.py.

    roles       from services/methods.py: any of these, for each topic that the request names; for any topic where the
                request names none
    topics      how the request names them; None: the method never names one
    parse       how handlers that take bytes read the request
    outcome     how handlers that answer with bytes tell the audit log of an answer: `OK` or the name of a code

caller_shards.py limits what an answer holds, independent of the rule. A method without a row in services/methods.py is denied
to every caller. Health is open to every caller, reflection to every known client (guard.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access import Role, Roles
from gateway.rocketmq.messages import full_name
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.methods import GATEWAY_SERVICE, MESSAGING_SERVICE, METHODS, ROCKETMQ_ADMIN_SERVICE

OK = "OK"
# The first byte of an AppendMessageStreamResponse with an `error`, which has no other field.
STREAM_ERROR_TAG = bytes([pb.AppendMessageStreamResponse.ERROR_FIELD_NUMBER << 3 | 2])
_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def _always_ok(_answer: bytes) -> str:
    return OK


def _of_stream_answer(answer: bytes) -> str:
    if not answer.startswith(STREAM_ERROR_TAG):  # parsing is left to failures: it would slow every append
        return OK
    return _CODE_NAMES.get(pb.AppendMessageStreamResponse.FromString(answer).error.code, "UNKNOWN")


def _of_rocketmq_answer(answer: bytes) -> str:
    code = v2.SendMessageResponse.FromString(answer).status.code
    return OK if code == v2.OK else v2.Code.Name(code) if code in v2.Code.values() else "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Rule:
    """The checks of one method; see above."""

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


Topics = Callable[[Any], Iterable[str]]
Parse = Callable[[bytes], Any]
Outcome = Callable[[bytes], str]

TOPICS: dict[str, Topics] = {
    GATEWAY_SERVICE + "AppendMessages": _of_messages,
    GATEWAY_SERVICE + "AppendMessageStream": _of_messages,
    GATEWAY_SERVICE + "QueryMessageByKey": _own,
    GATEWAY_SERVICE + "QueryMessageById": _own,
    GATEWAY_SERVICE + "QueryMessageByUniqueKey": _own,
    GATEWAY_SERVICE + "QueryMessageByOffset": _own,
    GATEWAY_SERVICE + "FindMessage": _own,
    GATEWAY_SERVICE + "SearchMessages": _own,
    GATEWAY_SERVICE + "ExplainQuery": _explained,
    GATEWAY_SERVICE + "SearchOffset": _own,
    MESSAGING_SERVICE + "QueryRoute": _of_resource,
    MESSAGING_SERVICE + "SendMessage": _of_rocketmq_messages,
    MESSAGING_SERVICE + "QueryOffset": _of_queue,
    ROCKETMQ_ADMIN_SERVICE + "QueryMessage": _of_resource,
    ROCKETMQ_ADMIN_SERVICE + "QueryTimeSpan": _of_resources,
}
# Methods whose handlers take and return bytes.
BYTES: dict[str, tuple[Parse, Outcome]] = {
    GATEWAY_SERVICE + "AppendMessages": (pb.AppendMessagesRequest.FromString, _always_ok),
    GATEWAY_SERVICE + "AppendMessageStream": (pb.AppendMessageStreamRequest.FromString, _of_stream_answer),
    MESSAGING_SERVICE + "SendMessage": (v2.SendMessageRequest.FromString, _of_rocketmq_answer),
}


def rule_of(path: str) -> Rule | None:
    """The rule for a method of the gateway; None when no client may call it."""
    method = METHODS.get(path)
    roles = frozenset(role for role in Role if method and method.roles and role.value in method.roles)
    if not roles:
        return None
    return Rule(roles, TOPICS.get(path), *BYTES.get(path, ()))
