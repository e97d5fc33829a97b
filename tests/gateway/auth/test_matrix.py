"""Who x every RPC x own or other topic, asked of a real gateway; RPCs and requests are made from the descriptors.

`NEEDS` states what each RPC must need, a second time and on purpose: it is compared with what the gateway does, not with the
table that it does it by.
"""

import itertools

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from apache.rocketmq.v2 import rocketmq_pb2
from gateway.auth.rules import BYTES, TOPICS, rule_of
from reput.gateway.v1 import gateway_service_pb2
from services.status import error_info, status_of
from tests.gateway.auth.conftest import CLIENTS, OTHER, OWN, SecuredStack, key_of, shown
from tests.support.waiting import WAIT_SECONDS_MAX

# read, write, admin: for the topic; ask: read or write for the topic; status: admin of any topic; some: read for any topic (its
# answers are limited); by_id: read for the topic, which the request does not name: to a reader of other topics the message is
# absent; known: to be signed in and have any right.
NEEDS = {
    "reput.gateway.v1.GatewayService": {
        "AppendMessages": "write",
        "AppendMessageStream": "write",
        "QueryMessageByKey": "read",
        "QueryMessageById": "read",
        "QueryMessageByUniqueKey": "read",
        "QueryMessageByOffset": "read",
        "FindMessage": "read",
        "SearchMessages": "read",
        "ExplainQuery": "read",
        "DownloadBody": "by_id",
        "SearchOffset": "read",
        "ListTopics": "some",
        "ListTenants": "some",
        "CreateTopic": "admin",
        "UpdateTopic": "admin",
        "DeleteTopic": "admin",
        "PullMessages": "read",
        "SendBackMessages": "read",
        "LockQueues": "some",
        "CommitOffsets": "some",
        "GetOffsets": "read",
        "ResetOffsets": "admin",
        "ListConsumerGroups": "read",
        "ListLiteTopics": "read",
        "GetConsumerGroup": "some",
        "GetConsumerRunningInfo": "status",
        "UpdateConsumerGroup": "status",
        "DeleteConsumerGroup": "status",
        "TrackMessage": "read",
        "ResendDeadLetters": "status",
        "RecallMessage": "write",
        "EndTransaction": "write",
        "ListPendingTransactions": "read",
        "ListScheduledMessages": "read",
        "SendRequest": "write",
        "GetStatus": "status",
    },
    "apache.rocketmq.v2.MessagingService": {
        "QueryRoute": "ask",
        "Heartbeat": "known",
        "SendMessage": "write",
        "QueryAssignment": "read",
        "ReceiveMessage": "read",
        "AckMessage": "read",
        "ChangeInvisibleDuration": "read",
        "ForwardMessageToDeadLetterQueue": "read",
        "PullMessage": "read",
        "UpdateOffset": "read",
        "GetOffset": "read",
        "QueryOffset": "read",
        "EndTransaction": "write",
        "RecallMessage": "write",
        "Telemetry": "known",
        "NotifyClientTermination": "known",
        "SyncLiteSubscription": "read",
    },
    "apache.rocketmq.v2.Admin": {"QueryMessage": "read", "QueryTimeSpan": "read"},
}
RIGHTS = {
    "own-reader": {("read", OWN)},
    "own-writer": {("write", OWN)},
    "own-admin": {("read", OWN), ("write", OWN), ("admin", OWN)},
    "other-reader": {("read", OTHER)},
    "other-writer": {("write", OTHER)},
    "chief": {(role, topic) for role in ("read", "write", "admin") for topic in (OWN, OTHER)},
    "idler": set(),
}
METHODS: list[MethodDescriptor] = [
    method
    for module in (gateway_service_pb2, rocketmq_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def is_allowed(client: str | None, needs: str, topic: str) -> bool:
    if client not in RIGHTS:
        return False
    roles = {role for role, of_topic in RIGHTS[client] if of_topic == topic}
    has = {role for role, _ in RIGHTS[client]}
    return {
        "read": "read" in roles,
        "by_id": "read" in roles,
        "write": "write" in roles,
        "admin": "admin" in roles,
        "ask": bool(roles & {"read", "write"}),
        "some": "read" in has,
        "status": "admin" in has,
        "known": bool(has),
    }[needs]


def fill(message: object, topic: str, secured: SecuredStack, depth: int = 0) -> object:
    """A request about a topic: every field that names one, or an id or a key of one of its messages."""
    texts = {
        "topic": topic,
        "offset_msg_id": secured.ids[topic],
        "unique_key": secured.unique_keys[topic],
        "message_id": secured.unique_keys[topic],
        "key": "common-key",
        "text": "common-key",
    }
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and field.containing_oneof.fields[0] is not field:
            continue
        if field.type == FieldDescriptor.TYPE_STRING and field.name in texts and not field.is_repeated:
            setattr(message, field.name, texts[field.name])
        elif field.type == FieldDescriptor.TYPE_BYTES and field.name == "body":
            message.body = b"x"
        elif field.message_type is None or depth > 3 or field.message_type.GetOptions().map_entry:
            continue
        elif field.message_type.name == "Resource":
            resource = getattr(message, field.name)
            (resource.add() if field.is_repeated else resource).name = topic
        elif field.name in ("messages", "message", "message_queue", "by_key"):
            inner = getattr(message, field.name)
            fill(inner.add() if field.is_repeated else inner, topic, secured, depth + 1)
        elif field.message_type.name == "Timestamp" and not field.is_repeated:
            getattr(message, field.name).seconds = 1
    return message


def outcome(channel: grpc.Channel, method: MethodDescriptor, request: object, metadata: object):
    """How a call ended, with its status when it failed."""
    kind = ("stream" if method.client_streaming else "unary") + ("_stream" if method.server_streaming else "_unary")
    call = getattr(channel, kind)(
        path_of(method),
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    try:
        answer = call(
            iter([request]) if method.client_streaming else request, timeout=WAIT_SECONDS_MAX, metadata=metadata
        )
        answers = list(answer) if method.server_streaming else [answer]
    except grpc.RpcError as error:
        return error.code(), status_of(error)
    for each in answers:
        if method.name == "AppendMessageStream" and each.HasField(
            "error"
        ):  # a refused request of a stream that goes on
            return next(code for code in grpc.StatusCode if code.value[0] == each.error.code), each.error
    return grpc.StatusCode.OK, None


def test_every_rpc_has_a_rule_and_a_line_in_the_matrix():
    served = {path_of(method) for method in METHODS}

    assert {f"/{service}/{name}" for service, rpcs in NEEDS.items() for name in rpcs} == served
    assert all(rule_of(path) for path in served)
    assert served >= set(TOPICS) >= set(BYTES)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.containing_service.name}.{method.name}")
def test_each_client_may_do_what_its_roles_say_and_nothing_else(secured: SecuredStack, method: MethodDescriptor):
    needs = NEEDS[method.containing_service.full_name][method.name]

    for client, topic in itertools.product((None, "stranger", *CLIENTS), (OWN, OTHER)):
        request = fill(GetMessageClass(method.input_type)(), topic, secured)
        code, status = outcome(secured.stack.channel, method, request, shown(client))
        if is_allowed(client, needs, topic):
            assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED), (
                client,
                topic,
                status,
            )
            continue
        is_known = client in CLIENTS
        if needs == "by_id" and is_known and "read" in {role for role, _ in RIGHTS[client]}:
            assert code is grpc.StatusCode.NOT_FOUND, (client, topic)
            continue
        assert code is (grpc.StatusCode.PERMISSION_DENIED if is_known else grpc.StatusCode.UNAUTHENTICATED), (
            client,
            topic,
        )
        info = error_info(status)
        assert info.reason == code.name
        assert info.metadata["method"] == path_of(method)
        assert key_of(client or "") not in f"{status}"
