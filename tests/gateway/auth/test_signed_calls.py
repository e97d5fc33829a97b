"""Calls that RocketMQ's clients sign, through the guard: what begins in the window of their date, and what goes on after it."""

import queue

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access_file import LOOK_SECONDS, WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.methods import GATEWAY_SERVICE, MESSAGING_SERVICE
from store.errors import PermissionDeniedError, UnauthenticatedError
from tests.gateway.auth.test_append_outcomes import STORED, Call
from tests.gateway.auth.test_sign_in import SIGNED_SECONDS, signed_call
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import serving
from tests.support.waiting import WAIT_SECONDS_MAX

ACCESS = '[[clients]]\nname = "shop"\naccess_keys = {shop-key = "its-secret"}\nwrite = ["shop-*"]\n'
APPEND = pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="shop-orders", body=b"x")]).SerializeToString()


@pytest.fixture
def clock():
    return [float(SIGNED_SECONDS)]


@pytest.fixture
def denied():
    return []


@pytest.fixture
def access_path(tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(ACCESS)
    return path


@pytest.fixture
def guard(access_path, clock, denied):
    clients = WatchedFile("access_file", access_path, parse_access_file, lambda: clock[0])
    sign_in = SignIn(clients, None, asks_certificates=False, dates=SignatureDates(300, (), lambda: clock[0]))

    def note(event, **fields):
        if "denied" in event:
            denied.append(fields["outcome"])

    return GatewayGuard(sign_in, Audit(note, lambda: 0.0), clock=lambda: clock[0])


def test_a_session_that_began_in_the_window_goes_on_and_none_begins_after_it(guard, clock, denied):
    signed = signed_call().invocation_metadata()
    commands = queue.Queue()
    settings = v2.Settings(client_type=v2.PRODUCER)
    settings.publishing.topics.append(v2.Resource(name="shop-orders"))
    with serving(MemoryDelivering(), guard=guard) as gateway:
        caller = gateway.consumer(client_id="client-1")
        metadata = [*caller.metadata, *signed]
        stream = caller.stub.Telemetry(iter(commands.get, None), metadata=metadata, timeout=WAIT_SECONDS_MAX)
        for _ in range(2):
            commands.put(v2.TelemetryCommand(settings=settings))
            assert next(stream).WhichOneof("command") == "settings"
            clock[0] += 3600
        commands.put(None)

        with pytest.raises(grpc.RpcError) as refused:
            caller.stub.Heartbeat(
                v2.HeartbeatRequest(client_type=v2.PRODUCER), metadata=metadata, timeout=WAIT_SECONDS_MAX
            )
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "7200 s behind" in refused.value.details()
    assert denied == ["UNAUTHENTICATED"]


class SignedCall(Call):
    def invocation_metadata(self):
        return signed_call().invocation_metadata()


def test_an_append_stream_goes_on_likewise(guard, clock):
    def echo(requests, _context):
        return (STORED for request in requests if request)

    def requests():
        for _ in range(3):
            yield APPEND
            clock[0] += 3600

    method = GATEWAY_SERVICE + "AppendMessageStream"
    handle = guard.guard(method, grpc.stream_stream_rpc_method_handler(echo)).stream_stream
    assert list(handle(requests(), SignedCall())) == [STORED] * 3
    with pytest.raises(UnauthenticatedError):
        handle(requests(), SignedCall())


@pytest.mark.parametrize(
    "after", ["", ACCESS.replace("its-secret", "a-later-secret"), ACCESS.replace("read = ", "write = ")]
)
def test_a_stream_of_answers_ends_with_the_key_or_the_role_of_its_caller(guard, access_path, clock, denied, after):
    def pull(_request, _context):
        while True:
            yield b"messages"

    method = GATEWAY_SERVICE + "PullMessages"
    handle = guard.guard(method, grpc.unary_stream_rpc_method_handler(pull)).unary_stream
    access_path.write_text(ACCESS.replace("write = ", "read = "))
    clock[0] += 2 * LOOK_SECONDS
    answers = handle(pb.PullMessagesRequest(topic="shop-orders"), SignedCall())
    for _ in range(3):
        assert next(answers) == b"messages"
        clock[0] += LOOK_SECONDS
    access_path.write_text(after)
    clock[0] += 2 * LOOK_SECONDS
    with pytest.raises((UnauthenticatedError, PermissionDeniedError)):
        next(answers)
    assert len(denied) == 1


def test_a_session_gets_no_question_after_its_key_is_gone(guard, access_path, clock):
    def ask(_requests, _context):
        while True:
            yield b"a question"

    handle = guard.guard(MESSAGING_SERVICE + "Telemetry", grpc.stream_stream_rpc_method_handler(ask)).stream_stream
    questions = handle(iter(()), SignedCall())
    assert next(questions) == b"a question"
    access_path.write_text("")
    clock[0] += 2 * LOOK_SECONDS
    with pytest.raises(UnauthenticatedError):
        next(questions)
