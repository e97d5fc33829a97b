"""No client takes the room of another: hostile connections beside a good one, over real sockets."""

import threading
import time
from types import SimpleNamespace

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from services import status
from services.serving.admission import lane as lane_module
from services.serving.admission.lane import Lane
from services.serving.admission.shares import client_of_peer
from services.serving.admission.untaken import UntakenAnswers
from services.serving.server import ServiceServer
from services.serving.stall_watch import StallWatch
from services.settings.service_settings import ServiceSettings
from store.errors import ResourceBusyError, UnauthenticatedError
from tests.services.loopback import commit_log_server, get_request
from tests.support.raw_http2 import RawClient, announced
from tests.support.waiting import wait_until

GET_MESSAGE = "/reput.commitlog.v1.CommitLogService/GetMessage"
REPUT = "/reput.commitlog.v1.CommitLogService/Reput"
APPEND_STREAM = "/reput.commitlog.v1.CommitLogService/AppendMessageStream"
CALL_SECONDS_MAX = 25.0  # less than the 30 s after which a server ends a call whose answers are not read
CONNECTION_CALL_COUNT = 32  # of loopback.py's servers
EMPTY = announced(0, b"")


def good_client(server):
    channel = grpc.insecure_channel(server.address, options=(("grpc.use_local_subchannel_pool", 1),))
    return pb_grpc.CommitLogServiceStub(channel)


def answer_calls(**others):
    return {"get_message": lambda *_: pb.GetMessageResponse(), **others}


@pytest.mark.parametrize("connection_count", [1, 5])
def test_half_requests_of_a_few_connections_refused_every_other_clients_calls(connection_count):
    with commit_log_server(**answer_calls()) as server, RawClient(server.address) as hostile:
        good = good_client(server)
        good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)
        for _ in range(connection_count):
            connection = hostile.connect()
            for _ in range(CONNECTION_CALL_COUNT):
                connection.call(GET_MESSAGE, announced(100, b"x"))
        wait_until(lambda: server.lanes.calls.call_count >= 8, "half requests are there")

        for _ in range(50):
            good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)


def test_a_client_that_comes_when_half_requests_fill_all_room_waits_for_a_moment_only():
    with commit_log_server(**answer_calls()) as server, RawClient(server.address) as hostile:
        for _ in range(40):
            hostile.connect().call(GET_MESSAGE, announced(100, b"x"))
        wait_until(lambda: server.lanes.calls.call_count >= 8, "half requests are there")
        for _ in range(3):
            good_client(server).GetMessage(get_request(), timeout=CALL_SECONDS_MAX)


def test_half_requests_of_a_tail_held_its_threads():
    def reput(request, context):
        yield pb.ReputResponse(next_offset=1)

    with commit_log_server(**answer_calls(reput=reput)) as server, RawClient(server.address) as hostile:
        for _ in range(3):
            connection = hostile.connect()
            for _ in range(CONNECTION_CALL_COUNT):
                connection.call(REPUT, announced(100, b"x"))
        wait_until(lambda: server.lanes.tails.call_count >= 8, "half requests are there")
        answers = list(good_client(server).Reput(pb.ReputRequest(), timeout=CALL_SECONDS_MAX))
        assert [answer.next_offset for answer in answers] == [1]


def test_slow_calls_of_one_client_left_no_place_for_another():
    release = threading.Event()

    def get_message(request, context):
        if request.commit_log_offset:
            release.wait(60)
        return pb.GetMessageResponse()

    with commit_log_server(get_message=get_message) as server:
        slow, good = good_client(server), good_client(server)
        calls = [slow.GetMessage.future(get_request(1), timeout=60) for _ in range(CONNECTION_CALL_COUNT)]
        wait_until(lambda: server.lanes.calls.call_count == CONNECTION_CALL_COUNT, "the slow calls are there")
        for _ in range(20):
            good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)
        release.set()
        for call in calls:
            call.result()


class OnlyKnown:
    """A guard that lets nobody in without the header `x-name`."""

    def __init__(self):
        self.asked_count = 0

    def client_of(self, method, context):
        self.asked_count += 1
        names = [value for name, value in context.invocation_metadata() if name == "x-name"]
        if not names:
            raise UnauthenticatedError("nobody knows this caller")
        return names[0]

    def guard(self, method, handler):
        return handler


def test_a_call_without_credentials_took_a_place_before_anybody_looked_at_them(monkeypatch):
    server = ServiceServer("gateway", ServiceSettings(worker_count=8))

    class Gateway(gateway_grpc.GatewayServiceServicer):
        def QueryMessageByKey(self, request, context):
            return gateway_pb.QueryMessageByKeyResponse()

    server.add("reput.gateway.v1.GatewayService", gateway_grpc.add_GatewayServiceServicer_to_server, Gateway())
    server.guard_calls(OnlyKnown())
    server.start()
    try:
        with RawClient(server.address) as hostile:
            connection = hostile.connect()
            path = "/reput.gateway.v1.GatewayService/QueryMessageByKey"
            streams = {connection.call(path, announced(100, b"x")) for _ in range(CONNECTION_CALL_COUNT)}
            wait_until(lambda: connection.ended >= streams, "calls without credentials have ended")
            # The client hears of an end before the server has counted it.
            wait_until(lambda: server.lanes.calls.call_count == 0, lambda: server.lanes.calls.call_count)
            (ended,) = [family for family in server.meters.counters if family.name == "rpc_ended"]
            refused_count = ended.of("GatewayService/QueryMessageByKey", "UNAUTHENTICATED").read()
            assert refused_count == CONNECTION_CALL_COUNT, "a refusal before the handler is in the metrics"
            with grpc.insecure_channel(server.address) as channel:
                stub = gateway_grpc.GatewayServiceStub(channel)
                stub.QueryMessageByKey(
                    gateway_pb.QueryMessageByKeyRequest(), timeout=CALL_SECONDS_MAX, metadata=[("x-name", "good")]
                )
    finally:
        server.stop()
        server.serve_until_stopped()


def test_answers_that_nobody_takes_take_a_share_of_the_memory_only(monkeypatch):
    monkeypatch.setattr("services.serving.admission.untaken.UNTAKEN_BYTES_MAX", 6_000_000)
    large = pb.GetMessageResponse(message={"body": bytes(400_000)})

    def get_message(request, context):
        return large if request.commit_log_offset else pb.GetMessageResponse()

    with commit_log_server(get_message=get_message) as server, RawClient(server.address) as hostile:
        good = good_client(server)
        request = get_request(1).SerializeToString()
        for _ in range(2):
            connection = hostile.connect(window_bytes=0)
            for _ in range(20):
                connection.call(GET_MESSAGE, announced(len(request), request), is_whole=True)
        wait_until(lambda: server.lanes.untaken.size_bytes > 2_000_000, "answers are not taken")
        for _ in range(20):
            good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)
    # A call that got its turn as the connections closed may still be in its thread: the server's end does not wait for it.
    wait_until(lambda: server.lanes.untaken.size_bytes == 0, "no answer is counted any longer")


def test_answers_that_nobody_takes_leave_room_for_other_addresses(monkeypatch):
    monkeypatch.setattr("services.serving.admission.untaken.UNTAKEN_BYTES_MAX", 6_000_000)
    large = pb.GetMessageResponse(message={"body": bytes(400_000)})
    with commit_log_server(get_message=lambda *_: large) as server, RawClient(server.address) as hostile:
        request = get_request(1).SerializeToString()
        for _ in range(40):
            connection = hostile.connect(window_bytes=0, source="127.0.0.2")
            connection.call(GET_MESSAGE, announced(len(request), request), is_whole=True)
        wait_until(lambda: server.lanes.untaken.size_bytes > 4_000_000, "answers are not taken")
        for _ in range(3):
            good_client(server).GetMessage(get_request(), timeout=CALL_SECONDS_MAX)


def test_idle_streams_kept_every_further_one_out(monkeypatch):
    monkeypatch.setattr(lane_module, "IDLE_STREAM_SECONDS", 0.05)

    def append(requests, context):
        for _ in requests:
            yield pb.AppendMessageStreamResponse()

    with (
        commit_log_server(**answer_calls(append_message_stream=append)) as server,
        RawClient(server.address) as hostile,
    ):
        for _ in range(8):
            connection = hostile.connect()
            for _ in range(16):
                connection.call(APPEND_STREAM)
        wait_until(lambda: server.lanes.streams.call_count >= 24, "idle streams are there")
        time.sleep(0.2)  # as long as a stream must have been idle
        one = [pb.AppendMessageStreamRequest()]
        for _ in range(10):
            good = good_client(server)
            assert len(list(good.AppendMessageStream(iter(one), timeout=CALL_SECONDS_MAX))) == 1


def test_a_stream_that_is_refused_says_when_to_come_back(monkeypatch):
    monkeypatch.setattr(lane_module, "IDLE_STREAM_SECONDS", 1_000.0)
    stop = threading.Event()

    def append(requests, context):
        for _ in requests:
            yield pb.AppendMessageStreamResponse()
            stop.wait(60)

    refusals, streams = [], []
    with commit_log_server(**answer_calls(append_message_stream=append)) as server:
        while not refusals:
            call = good_client(server).AppendMessageStream(iter([pb.AppendMessageStreamRequest()]), timeout=60)
            try:
                next(call)
                streams.append(call)
            except grpc.RpcError as error:
                refusals.append(status.from_rpc_error(error))
        stop.set()
    assert isinstance(refusals[0], ResourceBusyError)
    assert len(streams) >= 8


def test_a_stream_that_ended_gave_no_place_back():
    def append(requests, context):
        for _ in requests:
            yield pb.AppendMessageStreamResponse()

    with commit_log_server(**answer_calls(append_message_stream=append)) as server:
        good = good_client(server)
        for _ in range(3):
            assert (
                len(list(good.AppendMessageStream(iter([pb.AppendMessageStreamRequest()]), timeout=CALL_SECONDS_MAX)))
                == 1
            )
        wait_until(lambda: server.lanes.streams.call_count == 0, "the places are free")


def test_a_bug_at_the_admission_of_a_call_ended_the_whole_server(monkeypatch):
    with commit_log_server(**answer_calls()) as server:
        good = good_client(server)
        with monkeypatch.context() as patch, pytest.raises(grpc.RpcError) as caught:
            patch.setattr(type(server.lanes.callers), "of", lambda *_: 1 // 0)
            good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)


def test_a_thread_that_could_not_be_started_ended_the_whole_server(monkeypatch):
    def no_thread(_lane):
        raise RuntimeError("can't start new thread")

    with commit_log_server(**answer_calls()) as server:
        good = good_client(server)
        with monkeypatch.context() as patch, pytest.raises(grpc.RpcError) as caught:
            patch.setattr(lane_module.Lane, "_adjust_thread_count", no_thread)
            good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)
        assert isinstance(status.from_rpc_error(caught.value), ResourceBusyError)
        assert server.lanes.calls.call_count == 0
        assert server.lanes.untaken.size_bytes == 0
        for _ in range(3):
            good.GetMessage(get_request(), timeout=CALL_SECONDS_MAX)


def test_half_requests_ended_for_calls_that_needed_other_room(monkeypatch):
    """A client whose own answers are its obstacle needs no half request of another to end."""
    now = [1_000.0]
    monkeypatch.setattr(lane_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Lane, "_receive", lambda self, call: None)
    lane = Lane("calls", 16, 64, StallWatch(), untaken=UntakenAnswers())
    slow = [QueuedCall("ipv4:10.0.0.1:1") for _ in range(3)]
    for call in slow:
        lane._enter(call)
    monkeypatch.setattr(Lane, "_has_answer_room", lambda self, client, call: False)
    lane._enter(QueuedCall("ipv4:10.0.0.2:1"))
    now[0] += 30
    lane.make_room()
    assert [call.is_failed for call in slow] == [False] * 3


def test_a_client_ended_its_own_half_requests_for_its_own_calls(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(lane_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Lane, "_receive", lambda self, call: None)
    lane = Lane("calls", 16, 64, StallWatch())
    calls = [QueuedCall("ipv4:10.0.0.1:1") for _ in range(10)]
    for call in calls:
        lane._enter(call)
    now[0] += 30
    lane.make_room()
    assert not any(call.is_failed for call in calls)
    lane._enter(QueuedCall("ipv4:10.0.0.1:2"))
    assert sum(call.is_failed for call in calls) == 1


def test_calls_whose_callers_have_gone_kept_their_room(monkeypatch):
    monkeypatch.setattr(Lane, "_receive", lambda self, call: None)
    lane = Lane("calls", 16, 64, StallWatch())
    calls = [QueuedCall("ipv4:10.0.0.1:1") for _ in range(12)]
    for call in calls:
        lane._enter(call)
    for call in calls:
        call.is_gone = True
    lane.make_room()
    assert lane._waiting_room.count == lane._waiting.count == 0


class QueuedCall:
    """A call of one request as a lane sees it."""

    behaviour = SimpleNamespace(method=GET_MESSAGE, has_one_request=True)

    def __init__(self, peer):
        self.client = client_of_peer(peer)
        self.is_failed = self.is_gone = False

    def is_active(self):
        return not self.is_gone

    def peer(self):
        return ""

    def fail(self, _status):
        self.is_failed = True
