"""What the audit log says of appends that failed, in each of the ways in which they fail."""

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.auth.access_file import WatchedFile, parse_access_file
from gateway.auth.audit import Audit
from gateway.auth.guard import GatewayGuard
from gateway.auth.sign_in import SignatureDates, SignIn
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.methods import GATEWAY_SERVICE, MESSAGING_SERVICE
from services.serving.calls.append_pump import Pumped
from services.serving.calls.unary_call import AnsweredLater
from services.status import to_status
from store.errors import DiskFullError, InvalidArgumentError, PermissionDeniedError
from tests.gateway.auth.conftest import access_text, shown

APPEND = pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="t", body=b"x")]).SerializeToString()
SEND = v2.SendMessageRequest(messages=[v2.Message(topic=v2.Resource(name="t"))]).SerializeToString()
STORED = pb.AppendMessageStreamResponse(results=[message_pb2.AppendResult(queue_offset=7)]).SerializeToString()
NOT_STORED = pb.AppendMessageStreamResponse(error=to_status(DiskFullError("full"))).SerializeToString()


class Call:
    """A caller, as far as the guard and an append look at it."""

    def __init__(self):
        self.answers, self.statuses, self.ends = [], [], []
        self.context = self
        self.is_active = lambda: True
        self.time_remaining = lambda: 60.0
        self.answer = self.answers.append
        self.fail = self.statuses.append

    def invocation_metadata(self):
        return shown("writer")

    def peer(self):
        return "ipv4:127.0.0.1:1"

    def add_callback(self, callback):
        self.ends.append(callback)
        return True

    def end(self):
        for callback in self.ends:
            callback()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def guard(tmp_path, lines):
    path = tmp_path / "access.toml"
    path.write_text(access_text({"writer": {"write": ["t"]}}))
    sign_in = SignIn(
        WatchedFile("access_file", path, parse_access_file, lambda: 0.0),
        None,
        asks_certificates=False,
        dates=SignatureDates(300),
    )
    return GatewayGuard(sign_in, Audit(lambda event, **fields: lines.append((event, fields["outcome"])), lambda: 0.0))


def offer_of(guard, method, offer):
    return guard.guard(method, grpc.unary_unary_rpc_method_handler(AnsweredLater(offer))).unary_unary.offer


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (v2.Status(code=v2.OK), "OK"),
        (v2.Status(code=v2.TOO_MANY_REQUESTS), "TOO_MANY_REQUESTS"),
        (v2.Status(code=v2.ILLEGAL_TOPIC), "ILLEGAL_TOPIC"),
    ],
)
def test_a_send_that_is_answered_with_a_failure_is_not_ok(guard, lines, status, outcome):
    answer = v2.SendMessageResponse(status=status).SerializeToString()

    offer_of(guard, MESSAGING_SERVICE + "SendMessage", lambda _request, call: call.answer(answer))(SEND, Call())

    assert lines == [("audit.append", outcome)]


@pytest.mark.parametrize(
    ("error", "outcome"), [(InvalidArgumentError("no"), "INVALID_ARGUMENT"), (ZeroDivisionError(), "UNKNOWN")]
)
def test_an_append_that_raises_leaves_a_line(guard, lines, error, outcome):
    def fail(_request, _call):
        raise error

    with pytest.raises(type(error)):
        offer_of(guard, GATEWAY_SERVICE + "AppendMessages", fail)(APPEND, Call())

    assert lines == [("audit.append", outcome)]


class Pump:
    """A StreamPump whose requests are given by hand."""

    def __init__(self):
        self.sent = []

    def start(self, take, _count):
        self.take = take

    def send(self, answer):
        self.sent.append(answer)

    def wait_until_sent(self):
        pass


@pytest.mark.parametrize("is_pumped", [False, True])
def test_a_stream_answer_with_an_error_is_not_ok(guard, lines, is_pumped):
    answers = [STORED, NOT_STORED, b""]

    def by_thread(requests, _context):
        for _request in requests:
            yield answers.pop(0)

    def pump(stream_pump, _context):
        stream_pump.start(lambda _request: stream_pump.send(answers.pop(0)), 9)
        return True

    handler = grpc.stream_stream_rpc_method_handler(Pumped(by_thread, pump))
    guarded = guard.guard(GATEWAY_SERVICE + "AppendMessageStream", handler).stream_stream
    call, told = Call(), []
    if is_pumped:
        stream_pump = Pump()
        assert guarded.pump(stream_pump, call)
        for _ in range(3):
            stream_pump.take(APPEND)
        told = stream_pump.sent
    else:
        told = list(guarded(iter([APPEND] * 3), call))
    call.end()

    assert told == [STORED, NOT_STORED, b""]
    assert lines == [("audit.append", "OK"), ("audit.append", "RESOURCE_EXHAUSTED")]  # the second OK is counted


def test_requests_of_a_stream_that_ends_before_their_answers_leave_a_line(guard, lines):
    def by_thread(requests, _context):
        next(requests)
        next(requests)
        yield STORED
        raise PermissionDeniedError("no more")

    handler = grpc.stream_stream_rpc_method_handler(by_thread)
    guarded = guard.guard(GATEWAY_SERVICE + "AppendMessageStream", handler).stream_stream
    call = Call()
    answers = guarded(iter([APPEND] * 2), call)
    assert next(answers) == STORED
    with pytest.raises(PermissionDeniedError):
        next(answers)
    call.end()

    assert lines == [("audit.append", "OK"), ("audit.append", "UNANSWERED")]


def test_a_client_with_rights_on_a_topic_named_any_host_as_the_sender(guard, lines):
    forged = message_pb2.NewMessage(topic="t", body=b"x", born_host="10.0.0.1:1")
    honest = message_pb2.NewMessage(topic="t", body=b"x")
    for method, request in (
        ("AppendMessages", pb.AppendMessagesRequest(messages=[honest, forged])),
        ("SendRequest", pb.SendRequestRequest(message=forged)),
    ):
        offer = offer_of(guard, GATEWAY_SERVICE + method, lambda request, call: call.answer(b""))
        with pytest.raises(PermissionDeniedError, match="names its own born_host"):
            offer(request.SerializeToString(), Call())
    assert [outcome for _, outcome in lines] == ["PERMISSION_DENIED"] * 2
