"""The topics that a request of the gateway names, and the outcome of an answer. Both need code, unlike services/methods.py.

    roles       from services/methods.py: any of these, for each topic that the request names; for any topic where the
                request names none
    topics      how the request names them; None: the method never names one
    groups      how the request names consumer groups; the rights of a client may be limited to some (access.py)
    written     how a request of a session names topics for which its caller wants to be a producer: it needs the right to write
    consumed    how it names those that its caller subscribes to: it needs the right to read
    client_ids  how a request names client ids besides the one of its metadata
    claims      raises PermissionDeniedError for what a client says of itself that only the server can know
    parse       how handlers that take bytes read the request
    outcome     how handlers that answer with bytes tell the audit log of an append, or of the end of a wait: `OK` or the
                name of a code; None: what they do is not recorded, only refusals are

caller_shards.py limits what an answer holds, independent of the rule. A method without a row in services/methods.py is denied
to every caller. Health is open to every caller, reflection to every known client (guard.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access import Role, Roles
from gateway.rocketmq.names import full_name
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.methods import GATEWAY_SERVICE, MESSAGING_SERVICE, METHODS, ROCKETMQ_ADMIN_SERVICE
from store.errors import PermissionDeniedError
from store.format.topic import dead_letter_topic_of

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


def _of_status(response: Any) -> Callable[[bytes], str]:
    """Reads the Status in an answer of RocketMQ's contract."""

    def outcome(answer: bytes) -> str:
        code = response.FromString(answer).status.code
        return OK if code == v2.OK else v2.Code.Name(code) if code in v2.Code.values() else "UNKNOWN"

    return outcome


@dataclass(frozen=True, slots=True)
class Rule:
    """The checks of one method; see above."""

    roles: Roles
    topics: Callable[[Any], Iterable[str]] | None = None
    groups: Callable[[Any], Iterable[str]] | None = None
    parse: Callable[[bytes], Any] | None = None
    outcome: Callable[[bytes], str] | None = None
    written: Callable[[Any], Iterable[str]] | None = None
    consumed: Callable[[Any], Iterable[str]] | None = None
    client_ids: Callable[[Any], Iterable[str]] | None = None
    claims: Callable[[Any], object] | None = None


def _own(request: Any) -> tuple[str, ...]:
    return (request.topic,) if request.topic else ()


def _of_message(request: Any) -> tuple[str, ...]:
    return (request.message.topic,)


def _of_messages(request: Any) -> list[str]:
    return [message.topic for message in request.messages]


def _claim_no_host(request: Any) -> None:
    """Who sent a message is what queries and the console show: a caller that signed in cannot name another host."""
    messages = request.messages if hasattr(request, "messages") else [request.message]
    for index, message in enumerate(messages):
        if message.born_host:
            raise PermissionDeniedError(
                f"message {index} names its own born_host: with sign-in it is the address that the server sees; leave it out",
                field="born_host",
                index=str(index),
            )


def _of_rocketmq_messages(request: Any) -> list[str]:
    return [full_name(message.topic) for message in request.messages]


def _of_resource(request: Any) -> tuple[str, ...]:
    return (full_name(request.topic),)


def _of_resources(request: Any) -> list[str]:
    return [full_name(topic) for topic in request.topics]


def _of_queue(request: Any) -> tuple[str, ...]:
    return (full_name(request.message_queue.topic),)


def _of_group(request: Any) -> tuple[str, ...]:
    return (full_name(request.group),) if request.group.name else ()


def _of_settings(command: Any) -> tuple[str, ...]:
    """Of a Telemetry command."""
    return _of_group(command.settings.subscription)


def _of_publishing(command: Any) -> list[str]:
    """Of a Telemetry command."""
    return list(dict.fromkeys(full_name(topic) for topic in command.settings.publishing.topics))


def _of_subscription(command: Any) -> list[str]:
    """Of a Telemetry command."""
    return list(dict.fromkeys(full_name(one.topic) for one in command.settings.subscription.subscriptions))


def _own_client_id(request: Any) -> tuple[str, ...]:
    return (request.client_id,) if request.client_id else ()


def _of_own_group(request: Any) -> tuple[str, ...]:
    """Of our own contract."""
    return (request.consumer_group,) if request.consumer_group else ()


def _of_positions(request: Any) -> list[str]:
    return list(dict.fromkeys(position.topic for position in request.positions if position.topic))


def _of_locked(request: Any) -> list[str]:
    return list(dict.fromkeys(queue.topic for queue in request.queues if queue.topic))


def _of_dead_letters(request: Any) -> tuple[str, ...]:
    return (dead_letter_topic_of(request.consumer_group),) if request.consumer_group else ()


def _explained(request: Any) -> tuple[str, ...]:
    kind = request.WhichOneof("query")
    return _own(getattr(request, kind)) if kind is not None else ()


Topics = Callable[[Any], Iterable[str]]
Parse = Callable[[bytes], Any]
Groups = Callable[[Any], Iterable[str]]
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
    GATEWAY_SERVICE + "CreateTopic": _own,
    GATEWAY_SERVICE + "UpdateTopic": _own,
    GATEWAY_SERVICE + "DeleteTopic": _own,
    GATEWAY_SERVICE + "PullMessages": _own,
    GATEWAY_SERVICE + "SendBackMessages": _own,
    GATEWAY_SERVICE + "LockQueues": _of_locked,
    GATEWAY_SERVICE + "CommitOffsets": _of_positions,
    GATEWAY_SERVICE + "GetOffsets": _own,
    GATEWAY_SERVICE + "ResetOffsets": _own,
    GATEWAY_SERVICE + "ListConsumerGroups": _own,
    GATEWAY_SERVICE + "ListLiteTopics": _own,
    GATEWAY_SERVICE + "TrackMessage": _own,
    GATEWAY_SERVICE + "ResendDeadLetters": _of_dead_letters,
    GATEWAY_SERVICE + "RecallMessage": _own,
    GATEWAY_SERVICE + "EndTransaction": _own,
    GATEWAY_SERVICE + "ListPendingTransactions": _own,
    GATEWAY_SERVICE + "ListScheduledMessages": _own,
    GATEWAY_SERVICE + "SendRequest": _of_message,
    MESSAGING_SERVICE + "QueryRoute": _of_resource,
    MESSAGING_SERVICE + "SendMessage": _of_rocketmq_messages,
    MESSAGING_SERVICE + "QueryOffset": _of_queue,
    MESSAGING_SERVICE + "QueryAssignment": _of_resource,
    MESSAGING_SERVICE + "ReceiveMessage": _of_queue,
    MESSAGING_SERVICE + "AckMessage": _of_resource,
    MESSAGING_SERVICE + "ChangeInvisibleDuration": _of_resource,
    MESSAGING_SERVICE + "ForwardMessageToDeadLetterQueue": _of_resource,
    MESSAGING_SERVICE + "PullMessage": _of_queue,
    MESSAGING_SERVICE + "UpdateOffset": _of_queue,
    MESSAGING_SERVICE + "GetOffset": _of_queue,
    MESSAGING_SERVICE + "EndTransaction": _of_resource,
    MESSAGING_SERVICE + "RecallMessage": _of_resource,
    MESSAGING_SERVICE + "SyncLiteSubscription": _of_resource,
    ROCKETMQ_ADMIN_SERVICE + "QueryMessage": _of_resource,
    ROCKETMQ_ADMIN_SERVICE + "QueryTimeSpan": _of_resources,
}
GROUPS: dict[str, Groups] = {
    GATEWAY_SERVICE + "PullMessages": _of_own_group,
    GATEWAY_SERVICE + "SendBackMessages": _of_own_group,
    GATEWAY_SERVICE + "LockQueues": _of_own_group,
    GATEWAY_SERVICE + "CommitOffsets": _of_own_group,
    GATEWAY_SERVICE + "GetOffsets": _of_own_group,
    GATEWAY_SERVICE + "ResetOffsets": _of_own_group,
    GATEWAY_SERVICE + "GetConsumerGroup": _of_own_group,
    GATEWAY_SERVICE + "ListLiteTopics": _of_own_group,
    GATEWAY_SERVICE + "GetConsumerRunningInfo": _of_own_group,
    GATEWAY_SERVICE + "UpdateConsumerGroup": _of_own_group,
    GATEWAY_SERVICE + "DeleteConsumerGroup": _of_own_group,
    GATEWAY_SERVICE + "ResendDeadLetters": _of_own_group,
    MESSAGING_SERVICE + "Heartbeat": _of_group,
    MESSAGING_SERVICE + "Telemetry": _of_settings,
    MESSAGING_SERVICE + "NotifyClientTermination": _of_group,
    MESSAGING_SERVICE + "QueryAssignment": _of_group,
    MESSAGING_SERVICE + "ReceiveMessage": _of_group,
    MESSAGING_SERVICE + "AckMessage": _of_group,
    MESSAGING_SERVICE + "ChangeInvisibleDuration": _of_group,
    MESSAGING_SERVICE + "ForwardMessageToDeadLetterQueue": _of_group,
    MESSAGING_SERVICE + "PullMessage": _of_group,
    MESSAGING_SERVICE + "UpdateOffset": _of_group,
    MESSAGING_SERVICE + "GetOffset": _of_group,
    MESSAGING_SERVICE + "SyncLiteSubscription": _of_group,
}
WRITTEN: dict[str, Topics] = {MESSAGING_SERVICE + "Telemetry": _of_publishing}
CONSUMED: dict[str, Topics] = {MESSAGING_SERVICE + "Telemetry": _of_subscription}
# A lock is its member's: another identity must not free or renew it.
CLIENT_IDS: dict[str, Callable[[Any], Iterable[str]]] = {GATEWAY_SERVICE + "LockQueues": _own_client_id}
# Methods whose handlers take and return bytes.
CLAIMS: dict[str, Callable[[Any], object]] = {
    GATEWAY_SERVICE + name: _claim_no_host for name in ("AppendMessages", "AppendMessageStream", "SendRequest")
}
BYTES: dict[str, tuple[Parse, Outcome | None]] = {
    GATEWAY_SERVICE + "AppendMessages": (pb.AppendMessagesRequest.FromString, _always_ok),
    GATEWAY_SERVICE + "AppendMessageStream": (pb.AppendMessageStreamRequest.FromString, _of_stream_answer),
    GATEWAY_SERVICE + "RecallMessage": (pb.RecallMessageRequest.FromString, _always_ok),
    GATEWAY_SERVICE + "EndTransaction": (pb.EndTransactionRequest.FromString, _always_ok),
    GATEWAY_SERVICE + "SendRequest": (pb.SendRequestRequest.FromString, _always_ok),
    MESSAGING_SERVICE + "SendMessage": (v2.SendMessageRequest.FromString, _of_status(v2.SendMessageResponse)),
    MESSAGING_SERVICE + "EndTransaction": (v2.EndTransactionRequest.FromString, _of_status(v2.EndTransactionResponse)),
    MESSAGING_SERVICE + "RecallMessage": (v2.RecallMessageRequest.FromString, _of_status(v2.RecallMessageResponse)),
    MESSAGING_SERVICE + "ReceiveMessage": (v2.ReceiveMessageRequest.FromString, None),
    MESSAGING_SERVICE + "PullMessage": (v2.PullMessageRequest.FromString, None),
    MESSAGING_SERVICE + "AckMessage": (v2.AckMessageRequest.FromString, None),
    MESSAGING_SERVICE + "ChangeInvisibleDuration": (v2.ChangeInvisibleDurationRequest.FromString, None),
}


def rule_of(path: str) -> Rule | None:
    """The rule for a method of the gateway; None when no client may call it."""
    method = METHODS.get(path)
    roles = frozenset(role for role in Role if method and method.roles and role.value in method.roles)
    if not roles:
        return None
    parse, outcome = BYTES.get(path, (None, None))
    return Rule(
        roles,
        TOPICS.get(path),
        GROUPS.get(path),
        parse,
        outcome,
        WRITTEN.get(path),
        CONSUMED.get(path),
        CLIENT_IDS.get(path),
        CLAIMS.get(path),
    )
