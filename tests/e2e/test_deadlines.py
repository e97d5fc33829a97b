"""A millisecond for every call: each ends in time and cleanly, and leaves services that are as well as before.

The calls come from the descriptors of the contract, so that a new one is tested with the day it is there.
"""

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from apache.rocketmq.v2 import rocketmq_pb2
from reput.commitlog.v1 import commitlog_service_pb2
from reput.consumequeue.v1 import consumequeue_service_pb2
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.index.v1 import index_service_pb2
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "Deadlines"
KEY = "all"
COUNT = 2_000
DEADLINES_SECONDS = (0.001, 0.001, 0.002, 0.004, 0.008)  # so that it passes in many places
MODULES = {
    "gateway": [pb, rocketmq_pb2],
    "commitlog": [commitlog_service_pb2],
    "consumequeue": [consumequeue_service_pb2],
    "index": [index_service_pb2],
}
# Whatever the request is worth: these say that a service broke, not that it refused.
BROKEN = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.DATA_LOSS)


def methods() -> list[tuple[str, MethodDescriptor]]:
    found: list[tuple[str, MethodDescriptor]] = []
    for component, modules in MODULES.items():
        for module in modules:
            services: list[ServiceDescriptor] = list(module.DESCRIPTOR.services_by_name.values())
            found += [(component, method) for service in services for method in service.methods]
    return found


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("deadlines") / "store", "--single-process") as running:
        messages = [new_message(TOPIC, b"%d" % n, keys=[KEY], unique_key=f"id-{n}") for n in range(COUNT)]
        for begin in range(0, COUNT, 500):
            request = pb.AppendMessagesRequest(messages=messages[begin : begin + 500])
            running.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        running.wait_until_built()
        yield running


@pytest.fixture(scope="module")
def served(stack: Stack) -> set[str]:
    """The full names of the services that the gateway says it has; a stack without one has nothing to test in it."""
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    names: set[str] = set()
    for address in stack.addresses.values():
        with grpc.insecure_channel(address) as channel:
            try:
                names |= set(ProtoReflectionDescriptorDatabase(channel).get_services())
            except grpc.RpcError:
                continue  # an address that speaks no gRPC, such as a page
    return names


def plausible_request(method: MethodDescriptor, offset_msg_id: str) -> Message:
    """A request that is work: whatever field has a name that we know is filled."""
    values: dict[str, Any] = {
        "key": KEY, "text": KEY, "unique_key": "id-7", "offset_msg_id": offset_msg_id, "page_size": 1000,
        "max_messages": 1000, "batch_bytes_max": 1 << 20,
    }  # fmt: skip
    request = message_factory.GetMessageClass(method.input_type)()
    for field in method.input_type.fields:
        if field.name == "topic" and field.message_type is None:
            request.topic = TOPIC
        elif field.name == "messages" and field.message_type.name == "NewMessage":
            request.messages.append(new_message("Late", b"maybe"))
        elif field.name in values and field.message_type is None and not field.is_repeated:
            setattr(request, field.name, values[field.name])
    return request


def outcome(channel: grpc.Channel, method: MethodDescriptor, request: Message, seconds: float) -> grpc.StatusCode:
    path = f"/{method.containing_service.full_name}/{method.name}"
    answer_class = message_factory.GetMessageClass(method.output_type)
    coding = {"request_serializer": type(request).SerializeToString, "response_deserializer": answer_class.FromString}
    argument = iter([request]) if method.client_streaming else request
    try:
        if method.client_streaming and method.server_streaming:
            list(channel.stream_stream(path, **coding)(argument, timeout=seconds))
        elif method.client_streaming:
            channel.stream_unary(path, **coding)(argument, timeout=seconds)
        elif method.server_streaming:
            list(channel.unary_stream(path, **coding)(argument, timeout=seconds))
        else:
            channel.unary_unary(path, **coding)(argument, timeout=seconds)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def test_every_call_with_a_millisecond_ends_cleanly_and_the_services_are_well_afterwards(
    stack: Stack, served: set[str]
) -> None:
    by_key = pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=1)
    before = stack.gateway.QueryMessageByKey(by_key, timeout=WAIT_SECONDS_MAX).messages[0]
    channels = {name: grpc.insecure_channel(stack.addresses[name]) for name in MODULES}
    outcomes: dict[str, list[grpc.StatusCode]] = {}
    try:
        for component, method in methods():
            if method.containing_service.full_name not in served:
                continue
            request = plausible_request(method, before.offset_msg_id)
            for seconds in DEADLINES_SECONDS:
                begun = time.monotonic()
                code = outcome(channels[component], method, request, seconds)
                assert time.monotonic() - begun < WAIT_SECONDS_MAX, method.full_name
                outcomes.setdefault(method.full_name, []).append(code)
        broken = {name: codes for name, codes in outcomes.items() if set(codes) & set(BROKEN)}
        allowed = {
            name for name in broken if name.startswith("apache.") and grpc.StatusCode.UNIMPLEMENTED in broken[name]
        }
        assert broken.keys() == allowed, broken
        assert sum(codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) for codes in outcomes.values()) > 10
        for component, channel in channels.items():
            health = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING, component
    finally:
        for channel in channels.values():
            channel.close()
    stack.wait_until_built()
    after = stack.gateway.QueryMessageByKey(by_key, timeout=WAIT_SECONDS_MAX).messages[0]
    before.deleted_with_topic = after.deleted_with_topic  # DeleteTopic is among the calls
    assert after == before
    found = stack.gateway.QueryMessageByKey(
        pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=1000), timeout=WAIT_SECONDS_MAX
    )
    assert len(found.messages) == 1000
    assert "Traceback" not in stack.log(), stack.log()[-4000:]
    assert stack.process.poll() is None


def test_the_log_stands_where_a_late_append_was_answered_or_not(stack: Stack, tmp_path: pathlib.Path) -> None:
    """A millisecond's append is there whole or not at all, and the queue has no hole."""
    codes = []
    for number in range(30):
        request = pb.AppendMessagesRequest(
            messages=[new_message("Whole", b"%d-%d" % (number, n), queue_id=0) for n in range(3)]
        )
        try:
            stack.gateway.AppendMessages(request, timeout=0.001 + number / 5000)
            codes.append(True)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            codes.append(False)
    # One that has time is behind all that were late: the commit log answers in order.
    stack.gateway.AppendMessages(
        pb.AppendMessagesRequest(messages=[new_message("Whole", b"last", queue_id=0)]), timeout=WAIT_SECONDS_MAX
    )
    stack.wait_until_built()
    answer = stack.gateway.QueryMessageByOffset(
        pb.QueryMessageByOffsetRequest(topic="Whole", queue_id=0, max_messages=1000), timeout=WAIT_SECONDS_MAX
    )
    assert [message.queue_offset for message in answer.messages] == list(range(answer.max_offset))
    stored = [tuple(map(int, message.body.split(b"-"))) for message in answer.messages if message.body != b"last"]
    whole = {number for number, _ in stored}
    assert sorted(stored) == [(number, n) for number in sorted(whole) for n in range(3)]
    assert {number for number, answered in enumerate(codes) if answered} <= whole
