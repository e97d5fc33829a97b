"""Appends of many callers through a gateway to a commitlog, over sockets: what each of them sees."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import grpc
import pytest
from google.protobuf.message import DecodeError

from gateway.appends import forwarder
from gateway.appends.coalescer import SENDER_COUNT, SMALL_REQUEST_BYTES_MAX, AppendFailedError
from gateway.appends.forwarder import AppendForwarder, SmallRequest
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.local.server import serve_local
from services.local.wire import APPENDS, LocalMethod
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from services.status import from_rpc_error, from_status
from store.errors import (
    InvalidArgumentError,
    InvalidMessageError,
    QuotaExceededError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for, wait_until

SERVICE_NAME = "reput.gateway.v1.GatewayService"
WORKER_COUNT = 32


class Commitlog:
    """Answers with the bodies as unique keys, refuses the body `bad` or the topic `unknown` by index, and can be held."""

    def __init__(self):
        self.requests = []
        self.release = threading.Event()
        self.release.set()
        self.arrived = threading.Semaphore(0)
        self.abort_code = None
        self.door = None

    def append(self, request, context):
        self.requests.append(request)
        self.arrived.release()
        assert self.release.wait(WAIT_SECONDS_MAX)
        if self.abort_code is not None:
            if context is None:
                self.door.close()
                raise AssertionError("nobody is told")
            context.abort(self.abort_code, "the connection broke")
        for index, message in enumerate(request.messages):
            if message.body == b"bad":
                raise InvalidMessageError(f"message {index} is bad", field="body", index=index)
            if message.topic == "unknown":
                raise TopicNotFoundError(f"there is no topic {message.topic}", topic=message.topic, index=index)
        results = [message_pb2.AppendResult(unique_key=message.body.decode()) for message in request.messages]
        return commitlog_pb.AppendMessagesResponse(results=results)

    def append_bytes(self, data):
        """As a commitlog takes it over the socket."""
        try:
            request = commitlog_pb.AppendMessagesRequest.FromString(data)
        except DecodeError as error:
            raise InvalidArgumentError("no message", field="request") from error
        return self.append(request, None).SerializeToString()

    def hold(self, gateway):
        """Keep all senders under way, so that who comes then is sent together; they are to be waited for."""
        self.release.clear()
        held = []
        for _ in range(SENDER_COUNT):
            held.append(gateway.AppendMessages.future(request_of(b"held"), timeout=WAIT_SECONDS_MAX))
            assert self.arrived.acquire(timeout=WAIT_SECONDS_MAX)
        return held


def request_of(*bodies, **fields):
    return pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic="t", body=body) for body in bodies], **fields
    )


def keys_of(call):
    return [result.unique_key for result in call.result().results]


def error_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call.result()
    return from_rpc_error(caught.value)


@contextlib.contextmanager
def gateway_to(
    address: str, target: str = "", check: Callable[[bytes], None] | None = None
) -> Iterator[tuple[ServiceServer, pb_grpc.GatewayServiceStub]]:
    """A gateway that appends at an address over gRPC, and with a target also over its socket."""
    server = ServiceServer("gateway", ServiceSettings(worker_count=WORKER_COUNT))
    with grpc.insecure_channel(address) as backend:
        forwarder = AppendForwarder([backend], targets=[target], check=check)

        def add(_servicer, grpc_server):
            grpc_server.add_registered_method_handlers(SERVICE_NAME, forwarder.handlers())

        server.add(SERVICE_NAME, add, None)
        ended = threading.Thread(target=server.serve_until_stopped)
        server.start()
        ended.start()
        try:
            with grpc.insecure_channel(server.address) as channel:
                yield server, pb_grpc.GatewayServiceStub(channel)
        finally:
            server.stop()
            ended.join()
            forwarder.close()


@pytest.fixture
def commitlog():
    return Commitlog()


@pytest.fixture(params=["socket", "grpc"])
def served(commitlog, request, tmp_path):
    address = f"unix:{tmp_path}/s.sock"
    with commit_log_server(address, append_messages=commitlog.append) as backend:
        if request.param == "socket":
            commitlog.door = serve_local(APPENDS, address, {LocalMethod.APPEND: commitlog.append_bytes}, backend)
            assert commitlog.door is not None
        with gateway_to(address, address) as served:
            yield served


@pytest.fixture
def gateway(served):
    return served[1]


def wait_for_calls(server, count):
    wait_until(lambda: server.lanes.calls.call_count == count, lambda: f"{server.lanes.calls.call_count} calls")


def test_callers_who_come_together_each_get_their_own_receipts_and_refusals(commitlog, served):
    server, gateway = served
    held = commitlog.hold(gateway)
    bodies = [(b"%d" % number, b"bad" if number % 5 == 0 else b"good-%d" % number) for number in range(20)]
    calls = [gateway.AppendMessages.future(request_of(*pair), timeout=WAIT_SECONDS_MAX) for pair in bodies]
    wait_for_calls(server, 20 + SENDER_COUNT)
    commitlog.release.set()

    assert [keys_of(call) for call in held] == [["held"]] * SENDER_COUNT
    for number, call in enumerate(calls):
        if number % 5:
            assert keys_of(call) == [str(number), f"good-{number}"]
        else:
            error = error_of(call)
            assert (type(error), error.message) == (InvalidMessageError, "message 1 is bad")
            assert error.metadata == {"field": "body", "index": "1"}
    written = [
        message.body for request in commitlog.requests for message in request.messages
        if all(other.body != b"bad" for other in request.messages)
    ]  # fmt: skip
    assert sorted(written) == sorted(
        [*([b"held"] * SENDER_COUNT), *(body for number, pair in enumerate(bodies) if number % 5 for body in pair)]
    )
    assert len(commitlog.requests) < len(calls)
    wait_for_calls(server, 0)


def test_an_unknown_topic_fails_its_own_request_and_nobody_elses(commitlog, served):
    server, gateway = served
    held = commitlog.hold(gateway)
    unknown = pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic=topic, body=b"lost") for topic in ("t", "unknown")]
    )
    requests = [request_of(b"0", b"1"), unknown, request_of(b"2"), unknown, request_of(b"3")]
    calls = [gateway.AppendMessages.future(request, timeout=WAIT_SECONDS_MAX) for request in requests]
    wait_for_calls(server, len(calls) + SENDER_COUNT)
    commitlog.release.set()

    assert [keys_of(call) for call in (*held, *calls[::2])] == [["held"]] * SENDER_COUNT + [["0", "1"], ["2"], ["3"]]
    for call in calls[1::2]:
        error = error_of(call)
        assert type(error) is TopicNotFoundError
        assert error.metadata == {"topic": "unknown", "index": "1"}
    assert len(commitlog.requests) > len(calls), "they were together, and were found out"


def test_a_request_that_is_no_message_fails_alone(commitlog, served):
    """Its outer bytes are in order, its inner ones are not: a commitlog cannot say which one it was."""
    server, gateway = served
    held = commitlog.hold(gateway)
    with grpc.insecure_channel(server.address) as channel:
        raw = channel.unary_unary(f"/{SERVICE_NAME}/AppendMessages")
        damaged = raw.future(b"\x0a\x02\xff\xff", timeout=WAIT_SECONDS_MAX)
        calls = [gateway.AppendMessages.future(request_of(b"x"), timeout=WAIT_SECONDS_MAX) for _ in range(3)]
        wait_for_calls(server, 4 + SENDER_COUNT)
        commitlog.release.set()

        assert type(error_of(damaged)) is InvalidArgumentError
        assert [keys_of(call) for call in (*held, *calls)] == [["held"]] * SENDER_COUNT + [["x"]] * 3


def test_a_broken_connection_fails_the_calls_under_way_and_no_later_one(commitlog, served):
    server, gateway = served
    held = commitlog.hold(gateway)
    calls = [gateway.AppendMessages.future(request_of(b"x"), timeout=WAIT_SECONDS_MAX) for _ in range(5)]
    wait_for_calls(server, 5 + SENDER_COUNT)
    commitlog.abort_code = grpc.StatusCode.UNAVAILABLE
    commitlog.release.set()

    for call in (*held, *calls):
        error = error_of(call)
        assert type(error) is ServiceUnavailableError
        assert error.metadata["service"] == "commitlog"
    assert sum(len(request.messages) for request in commitlog.requests) == 5 + SENDER_COUNT  # nothing was sent twice
    commitlog.abort_code = None
    assert keys_of(gateway.AppendMessages.future(request_of(b"later"), timeout=WAIT_SECONDS_MAX)) == ["later"]


def test_an_impatient_caller_and_one_who_goes_away_do_not_take_the_others_with_them(commitlog, served):
    server, gateway = served
    held = commitlog.hold(gateway)
    impatient = gateway.AppendMessages.future(request_of(b"impatient"), timeout=0.2)
    gone = gateway.AppendMessages.future(request_of(b"gone"), timeout=WAIT_SECONDS_MAX)
    patient = gateway.AppendMessages.future(request_of(b"patient"), timeout=WAIT_SECONDS_MAX)
    wait_for_calls(server, 3 + SENDER_COUNT)
    gone.cancel()
    assert impatient.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
    commitlog.release.set()

    assert [keys_of(call) for call in (*held, patient)] == [["held"]] * SENDER_COUNT + [["patient"]]
    wait_for_calls(server, 0)


@pytest.mark.parametrize(
    "request_alone",
    [request_of(b"a", b"b", deduplicate=True), request_of(bytes(SMALL_REQUEST_BYTES_MAX)), request_of()],
    ids=["deduplicate", "large", "empty"],
)
def test_what_has_to_travel_alone_does_and_waits_for_no_sender(commitlog, served, request_alone):
    _, gateway = served
    held = commitlog.hold(gateway)
    call = gateway.AppendMessages.future(request_alone, timeout=WAIT_SECONDS_MAX)
    assert commitlog.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    commitlog.release.set()

    assert len(call.result().results) == len(request_alone.messages)
    assert commitlog.requests[-1].SerializeToString() == request_alone.SerializeToString()
    assert [keys_of(one) for one in held] == [["held"]] * SENDER_COUNT


@pytest.mark.parametrize(
    ("outcome", "told"),
    [(b"receipts", "answer"), (AppendFailedError("full"), "fail"), (None, "answer")],
    ids=["answered", "refused", "over gRPC"],
)
def test_a_large_request_waits_in_no_thread_but_where_the_socket_has_failed(outcome, told, monkeypatch):
    with grpc.insecure_channel("unix:/nowhere") as channel:
        commitlog = forwarder.Commitlog(channel, "unix:/nowhere")
        begun, threads, caller = [], [], Mock()
        monkeypatch.setattr(
            commitlog, "_begin", lambda request, seconds, ended: begun.append((request, seconds, ended)) or True
        )

        def send(request, seconds):
            threads.append(threading.current_thread().name)
            return b"later"

        monkeypatch.setattr(commitlog, "_send", send)
        commitlog.send_alone(b"large", time.monotonic() + 5, caller)
        assert (caller.mock_calls, threads) == ([], [])
        ((request, seconds, ended),) = begun
        assert (request, seconds > 0) == (b"large", True)
        ended(outcome)
        wait_for(lambda: caller.mock_calls, "the caller was told")
        commitlog.close()
    ((name, (given,), _),) = caller.mock_calls
    assert name == told
    assert given == (b"later" if outcome is None else getattr(outcome, "status", outcome))
    assert [thread.startswith("append-alone") for thread in threads] == [True] * (outcome is None)


def test_a_large_request_whose_commit_log_is_closed_meanwhile_is_told_that_nothing_was_sent(monkeypatch):
    """It was never answered."""
    with grpc.insecure_channel("unix:/nowhere") as channel:
        commitlog = forwarder.Commitlog(channel, "unix:/nowhere")
        begun, before, after = [], Mock(), Mock()
        monkeypatch.setattr(commitlog, "_begin", lambda _request, _seconds, ended: begun.append(ended) or True)
        commitlog.send_alone(b"large", time.monotonic() + 5, before)
        commitlog.close()
        (ended,) = begun
        ended(None)
        monkeypatch.setattr(commitlog, "_begin", lambda *_: False)
        commitlog.send_alone(b"large", time.monotonic() + 5, after)
    for caller in (before, after):
        ((name, (status,), _),) = caller.mock_calls
        assert (name, "before the append was sent" in status.message) == ("fail", True)


@pytest.mark.parametrize("outcome", [b"receipts", AppendFailedError("full")], ids=["answered", "refused"])
def test_a_large_request_whose_caller_cannot_be_answered_fails_once_and_raises_nothing(outcome, monkeypatch):
    with grpc.insecure_channel("unix:/nowhere") as channel:
        commitlog = forwarder.Commitlog(channel, "unix:/nowhere")
        monkeypatch.setattr(commitlog, "_begin", lambda _request, _seconds, ended: ended(outcome) or True)
        caller = Mock()
        caller.answer.side_effect = caller.fail.side_effect = ValueError("a bug of the caller")
        commitlog.send_alone(b"large", time.monotonic() + 5, caller)
        commitlog.close()
    ((status,),) = [call.args for call in caller.fail.mock_calls]
    assert status == "full" or "its messages may be stored" in status.message


def refuse_hostile(request):
    if b"hostile" in request:
        raise QuotaExceededError("it has used up its quota", namespace="hostile", quota="sent_messages_per_second")


def test_a_refused_request_of_a_stream_is_answered_in_its_place_and_not_sent(commitlog):
    bodies = [b"1", b"hostile", b"2", b"hostile", b"3"]

    def append_stream(requests, context):
        for request in requests:
            yield pb.AppendMessageStreamResponse(results=commitlog.append(request, context).results)

    with (
        commit_log_server(append_messages=commitlog.append, append_message_stream=append_stream) as backend,
        gateway_to(backend.address, check=refuse_hostile) as (_, gateway),
    ):
        requests = [pb.AppendMessageStreamRequest(messages=request_of(body).messages) for body in bodies]
        answers = list(gateway.AppendMessageStream(iter(requests), timeout=WAIT_SECONDS_MAX))
        alone = gateway.AppendMessages.future(request_of(b"hostile"), timeout=WAIT_SECONDS_MAX)
        assert type(error_of(alone)) is QuotaExceededError
    told = [each.results[0].unique_key if each.results else from_status(each.error) for each in answers]
    assert [each for each in told if isinstance(each, str)] == ["1", "2", "3"]
    assert [type(each) for each in told] == [str, QuotaExceededError, str, QuotaExceededError, str]
    assert b"hostile" not in {message.body for request in commitlog.requests for message in request.messages}


def test_a_refused_request_over_several_shards_is_sent_to_none():
    logs = [Commitlog(), Commitlog()]
    with (
        commit_log_server(append_messages=logs[0].append) as first,
        commit_log_server(append_messages=logs[1].append) as second,
        grpc.insecure_channel(first.address) as to_first,
        grpc.insecure_channel(second.address) as to_second,
    ):
        forwarder = AppendForwarder([to_first, to_second], check=refuse_hostile)
        callers = [Mock() for _ in range(3)]
        request = request_of(b"hostile").SerializeToString()
        forwarder.append_messages(request, callers[0])
        forwarder.append_to("shard-1", request, callers[1])
        forwarder.append_small_to("shard-0", [SmallRequest(request, 0, callers[2])])
        for caller in callers:
            ((name, (status,), _),) = [call for call in caller.mock_calls if call[0] in ("answer", "fail")]
            assert (name, type(from_status(status))) == ("fail", QuotaExceededError)
        forwarder.close()
    assert [log.requests for log in logs] == [[], []]


def test_requests_take_turns_among_the_shards():
    logs = [Commitlog(), Commitlog()]
    with (
        commit_log_server(append_messages=logs[0].append) as first,
        commit_log_server(append_messages=logs[1].append) as second,
        grpc.insecure_channel(first.address) as to_first,
        grpc.insecure_channel(second.address) as to_second,
    ):
        forwarder = AppendForwarder([to_first, to_second])
        append = forwarder.handlers()["AppendMessages"].unary_unary
        for number in range(4):
            answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
            call = SimpleNamespace(time_remaining=lambda: None, is_active=lambda: True, answer=answers.put)
            append.offer(request_of(b"%d" % number).SerializeToString(), call)
            answers.get(timeout=WAIT_SECONDS_MAX)
        forwarder.close()

    assert [[message.body for request in log.requests for message in request.messages] for log in logs] == [
        [b"0", b"2"],
        [b"1", b"3"],
    ]


def test_a_shard_that_joins_in_the_middle_of_an_append_does_not_break_it(commitlog):
    class Joined(AppendForwarder):
        """A second shard joins whenever somebody has looked whether there is only one."""

        @property
        def _only(self):
            only, self.only = self.only, None
            return only

        @_only.setter
        def _only(self, only):
            self.only = only

    class Context:
        def time_remaining(self):
            return None

        def add_callback(self, callback):
            return True

    class Caller:
        def __init__(self):
            self.answers = queue.SimpleQueue()
            self.answer = self.answers.put
            self.fail = self.answers.put

        def is_active(self):
            return True

        def time_remaining(self):
            return None

    def append_stream(requests, context):
        yield from (commitlog.append(request, context) for request in requests)

    with (
        commit_log_server(append_messages=commitlog.append, append_message_stream=append_stream) as log,
        grpc.insecure_channel(log.address) as channel,
    ):
        forwarder = Joined([channel])
        only, request = forwarder.only, request_of(b"1").SerializeToString()
        caller = Caller()
        forwarder.append_messages(request, caller)
        answers = [caller.answers.get(timeout=WAIT_SECONDS_MAX)]
        forwarder.only = only
        answers += forwarder.append_message_stream(iter([request]), Context())
        forwarder.close()

    assert [pb.AppendMessagesResponse.FromString(answer).results[0].unique_key for answer in answers] == ["1", "1"]
