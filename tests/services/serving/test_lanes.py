"""Each kind of call has its own threads, sleepers make room, and every limit refuses at once: over real sockets."""

import threading
import time
from types import SimpleNamespace

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from services import status
from services.serving import lanes as lanes_module
from services.serving import stall_watch
from services.serving.admission import lane as lane_module
from services.serving.admission.lane import Lane
from services.serving.admission.shares import client_of_peer
from services.serving.lanes import DOWNLOAD_COUNT_MAX, REFLECTION_COUNT_MAX, STREAM_FACTOR, TAIL_COUNT_MAX
from services.serving.server import ServiceServer
from services.serving.server_options import CONNECTION_CALL_COUNT_FACTOR, METADATA_BYTES_MAX
from services.serving.stall_watch import ANSWER_SECONDS_MAX, REQUEST_SECONDS_MAX, StallWatch
from services.settings.service_settings import ServiceSettings
from store.errors import ResourceBusyError
from tests.services.loopback import commit_log_server, get_request, stub
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

WORKER_COUNT = 8  # of loopback.py's servers
LARGE_ANSWER = pb.ReputResponse(requests=[pb.DispatchRequest(topic="t" * 200_000)])  # more than a caller's window
HEALTH = health_pb2.HealthCheckRequest()


def own_channel(address, *options):
    return grpc.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1), *options))


def is_healthy(server):
    channel = own_channel(server.address)
    answer = health_pb2_grpc.HealthStub(channel).Check(HEALTH, timeout=WAIT_SECONDS_MAX)
    channel.close()
    return answer.status == health_pb2.HealthCheckResponse.SERVING


class Held:
    """Behaviours that hold their thread until the test lets go."""

    def __init__(self):
        self.release = threading.Event()

    def append_message_stream(self, requests, context):
        for _ in requests:
            yield pb.AppendMessageStreamResponse()
            self.release.wait(WAIT_SECONDS_MAX)

    def get_message(self, request, context):
        self.release.wait(WAIT_SECONDS_MAX)
        return pb.GetMessageResponse()

    def append_messages(self, request, context):
        return pb.AppendMessagesResponse()

    def reput(self, request, context):
        while not self.release.is_set():
            yield pb.ReputResponse()
            self.release.wait(0.2)

    def behaviours(self, **others):
        names = ("append_message_stream", "get_message", "append_messages", "reput")
        return {name: getattr(self, name) for name in names} | others


def refusal_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def assert_busy(error):
    """RESOURCE_EXHAUSTED with our ErrorInfo and a RetryInfo."""
    assert type(status.from_rpc_error(error)) is ResourceBusyError
    rich = status.status_of(error)
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in rich.details)
    assert retry.retry_delay.seconds >= 1


def until_refused(server, open_one, stub_of=pb_grpc.CommitLogServiceStub):
    """Opens one stream on each of many connections until one is refused: the others, and the refusal."""
    opened = []
    while True:
        call = open_one(stub_of(own_channel(server.address)))
        try:
            next(call)
        except grpc.RpcError as error:
            return opened, error
        opened.append(call)


def places_of_one_address(place_count):
    """What clients of one address get."""
    return place_count * 3 // 4


def test_full_streams_refuse_at_once_and_leave_calls_tails_and_health_alone(monkeypatch):
    monkeypatch.setattr(lane_module, "IDLE_STREAM_SECONDS", 1_000.0)
    held = Held()
    with commit_log_server(**held.behaviours(get_message=lambda *_: pb.GetMessageResponse())) as server:
        one = [pb.AppendMessageStreamRequest()]
        calls, error = until_refused(server, lambda own: own.AppendMessageStream(iter(one), timeout=WAIT_SECONDS_MAX))
        answer = stub(server).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)
        tail = stub(server).Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX)
        batch = next(tail)

        assert is_healthy(server)
        held.release.set()

    assert_busy(error)
    assert len(calls) == places_of_one_address(STREAM_FACTOR * WORKER_COUNT)
    assert answer == pb.GetMessageResponse()
    assert batch == pb.ReputResponse()


def test_full_tails_refuse_at_once_and_leave_appends_and_health_alone():
    held = Held()
    with commit_log_server(**held.behaviours()) as server:
        tails, error = until_refused(server, lambda own: own.Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX))
        stub(server).AppendMessages(pb.AppendMessagesRequest(), timeout=WAIT_SECONDS_MAX)

        assert is_healthy(server)
        held.release.set()

    assert_busy(error)
    assert len(tails) == places_of_one_address(TAIL_COUNT_MAX)
    assert f"{TAIL_COUNT_MAX} tails" in error.details()


def test_full_calls_wait_then_refuse_and_leave_streams_and_health_alone(monkeypatch):
    """Some are worked on, some wait, the next is refused; and the waiting ones get their answers."""
    monkeypatch.setattr(lanes_module, "CALL_WAITING_COUNT_MAX", 4)
    held = Held()
    with commit_log_server(**held.behaviours()) as server:
        calls = []
        while True:
            own = pb_grpc.CommitLogServiceStub(own_channel(server.address))
            call = own.GetMessage.future(get_request(), timeout=WAIT_SECONDS_MAX)
            wait_until(lambda call=call: call.done() or server.lanes.calls.call_count == len(calls) + 1)
            if call.done():
                break
            calls.append(call)

        error = refusal_of(call.result)
        assert WORKER_COUNT < len(calls) < 4 * WORKER_COUNT
        tail = stub(server).Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX)
        next(tail)

        assert is_healthy(server)
        held.release.set()
        answers = [call.result() for call in calls]

    assert_busy(error)
    assert answers == [pb.GetMessageResponse()] * len(calls)


def test_idle_reflection_streams_do_not_take_health_with_them():
    release = threading.Event()

    def silence():
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        release.wait(WAIT_SECONDS_MAX)

    with commit_log_server() as server:
        streams, error = until_refused(
            server, lambda own: own.ServerReflectionInfo(silence()), reflection_pb2_grpc.ServerReflectionStub
        )
        assert len(streams) <= REFLECTION_COUNT_MAX
        assert is_healthy(server)
        release.set()

    assert_busy(error)


def test_callers_who_never_send_their_request_do_not_take_health_with_them(monkeypatch):
    """Four threads answer health checks; announced and never sent requests once held all of them for ever."""
    monkeypatch.setattr(lane_module, "EVICT_SECONDS", 0.05)
    release = threading.Event()

    def nothing():
        release.wait(WAIT_SECONDS_MAX)
        return iter(())
        yield

    with commit_log_server() as server:
        check = own_channel(server.address).stream_unary("/grpc.health.v1.Health/Check")
        silent = [check.future(nothing()) for _ in range(lanes_module.HEALTH_COUNT_MAX)]
        wait_until(lambda: server.lanes.health.call_count >= lanes_module.HEALTH_COUNT_MAX)
        wait_until(lambda: is_healthy_within_a_second(server))
        wait_until(lambda: any(call.done() for call in silent))
        assert is_healthy_within_a_second(server)
        release.set()

    ends = (grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert any(call.done() and call.code() in ends for call in silent)


def is_healthy_within_a_second(server):
    try:
        health_pb2_grpc.HealthStub(own_channel(server.address)).Check(HEALTH, timeout=1)
    except grpc.RpcError:
        return False
    return True


def test_a_newcomer_gets_the_place_of_the_reader_that_sleeps_longest(monkeypatch):
    # On a busy machine the reader that is awake, too, may wait for a tenth of a second.
    monkeypatch.setattr(lane_module, "EVICT_SECONDS", 1.0)
    monkeypatch.setattr(lanes_module, "TAIL_COUNT_MAX", 16)
    place_count = 8  # of a client that is alone

    def reput(request, context):
        while True:
            yield LARGE_ANSWER if request.start_offset == 1 else pb.ReputResponse()
            time.sleep(0.01)  # a log that grows slowly: a reader that keeps up gets little

    with commit_log_server(reput=reput) as server:
        awake = stub(server).Reput(pb.ReputRequest())
        next(awake)
        sleepers = [stub(server).Reput(pb.ReputRequest(start_offset=1)) for _ in range(place_count - 1)]
        for sleeper in sleepers:
            next(sleeper)
        # Each sleeper's second answer does not fit into its window.
        wait_until(lambda: is_admitted(server))

        for _ in range(3):
            next(awake)  # who reads keeps his place
        assert server.lanes.watch.ended_count == {"tails": 1}


def is_admitted(server):
    call = stub(server).Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX)
    try:
        next(call)
    except grpc.RpcError:
        return False
    return True


def test_a_reader_that_takes_nothing_for_too_long_is_ended_and_its_memory_and_place_come_back(monkeypatch):
    monkeypatch.setattr(stall_watch, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(stall_watch.Wait.begin, "__defaults__", (0.1,))
    ended = threading.Event()

    def reput(request, context):
        try:
            while True:
                yield LARGE_ANSWER
        finally:
            ended.set()

    with commit_log_server(reput=reput) as server:
        sleeper = stub(server).Reput(pb.ReputRequest())
        next(sleeper)

        assert ended.wait(WAIT_SECONDS_MAX)
        wait_until(lambda: server.lanes.tails.call_count == 0)
        with pytest.raises(grpc.RpcError) as caught:
            list(sleeper)

    assert caught.value.code() is grpc.StatusCode.CANCELLED


def test_a_sender_that_does_not_read_its_answers_is_ended_too(monkeypatch):
    monkeypatch.setattr(stall_watch, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(stall_watch.Wait.begin, "__defaults__", (0.1,))

    ended = threading.Event()

    def append(requests, context):
        try:
            for _ in requests:
                yield pb.AppendMessageStreamResponse(error={"message": "x" * 100_000})
        finally:
            ended.set()

    def for_ever():
        while not ended.wait(0.01):
            yield pb.AppendMessageStreamRequest()

    with commit_log_server(append_message_stream=append) as server:
        call = stub(server).AppendMessageStream(for_ever())

        assert ended.wait(WAIT_SECONDS_MAX)
        wait_until(lambda: server.lanes.streams.call_count == 0)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)

    assert caught.value.code() is grpc.StatusCode.CANCELLED


def test_more_downloads_than_places_wait_for_their_turn():
    place_count = DOWNLOAD_COUNT_MAX // 2
    release = threading.Event()
    running = []

    class Gateway(gateway_grpc.GatewayServiceServicer):
        def DownloadBody(self, request, context):
            running.append(1)
            release.wait(WAIT_SECONDS_MAX)
            yield gateway_pb.DownloadBodyResponse(chunk=b"x")

    server = ServiceServer("gateway", ServiceSettings(worker_count=WORKER_COUNT))
    server.add("reput.gateway.v1.GatewayService", gateway_grpc.add_GatewayServiceServicer_to_server, Gateway())
    server.start()
    server.set_serving(True)
    gateway = gateway_grpc.GatewayServiceStub(own_channel(server.address))
    request = gateway_pb.DownloadBodyRequest()
    calls = [gateway.DownloadBody(request, timeout=WAIT_SECONDS_MAX) for _ in range(place_count + 2)]
    wait_until(lambda: server.lanes.downloads.call_count == place_count + 2)
    wait_until(lambda: len(running) == place_count)
    assert is_healthy(server)

    release.set()
    assert [[answer.chunk for answer in call] for call in calls] == [[b"x"]] * (place_count + 2)
    server.stop()
    server.serve_until_stopped()


def test_one_connection_runs_a_limited_number_of_calls_and_the_rest_wait_in_the_caller(monkeypatch):
    """The limit is HTTP/2's SETTINGS_MAX_CONCURRENT_STREAMS; another connection is not held up."""
    held = Held()
    limit = WORKER_COUNT * CONNECTION_CALL_COUNT_FACTOR
    with commit_log_server(**held.behaviours()) as server:
        channel = own_channel(server.address)
        get = channel.unary_unary(
            "/reput.commitlog.v1.CommitLogService/GetMessage", pb.GetMessageRequest.SerializeToString
        )
        # The server tells its limit when a connection begins; what a caller sends before it knows is refused.
        health_pb2_grpc.HealthStub(channel).Check(HEALTH, timeout=WAIT_SECONDS_MAX)
        calls = [get.future(get_request(), timeout=WAIT_SECONDS_MAX) for _ in range(limit + 5)]
        wait_until(lambda: server.lanes.calls.call_count == limit)
        other = own_channel(server.address).unary_unary(
            "/reput.commitlog.v1.CommitLogService/AppendMessages", pb.AppendMessagesRequest.SerializeToString
        )
        assert server.lanes.calls.call_count == limit
        assert is_healthy(server)
        held.release.set()
        assert other(pb.AppendMessagesRequest(), timeout=WAIT_SECONDS_MAX) == b""
        assert [call.result() for call in calls] == [b""] * (limit + 5)


@pytest.mark.parametrize(("size_bytes", "is_taken"), [(METADATA_BYTES_MAX // 2, True), (METADATA_BYTES_MAX, False)])
def test_metadata_is_taken_up_to_its_limit(size_bytes, is_taken):
    with commit_log_server(get_message=lambda *_: pb.GetMessageResponse()) as server:
        # The caller has a limit of its own, for what it receives.
        channel = own_channel(server.address, ("grpc.max_metadata_size", 1 << 20))
        get = channel.unary_unary(
            "/reput.commitlog.v1.CommitLogService/GetMessage", pb.GetMessageRequest.SerializeToString
        )
        code = grpc.StatusCode.OK
        try:
            get(get_request(), timeout=WAIT_SECONDS_MAX, metadata=[("x-filler", "f" * size_bytes)])
        except grpc.RpcError as error:
            code = error.code()

    assert code is (grpc.StatusCode.OK if is_taken else grpc.StatusCode.RESOURCE_EXHAUSTED)


class Clock:
    def __init__(self):
        self.now = 1.0

    def __call__(self):
        return self.now


def sleeper(watch, lane, ended, name):
    return watch.add(lane, "/reput.X/Y", SimpleNamespace(cancel=lambda: ended.append(name), peer=lambda: "ipv4:x"))


def test_the_watch_ends_what_waits_longer_than_it_may_and_nothing_else():
    clock, ended = Clock(), []
    watch = StallWatch(clock)
    for name in ("answer", "request", "moving", "never"):
        wait = sleeper(watch, "tails", ended, name)
        if name == "request":
            wait.begin(REQUEST_SECONDS_MAX)
        elif name != "never":
            wait.begin()
        if name == "moving":
            moving = wait
    clock.now += ANSWER_SECONDS_MAX
    moving.end()
    moving.begin()
    clock.now += 0.5
    watch.end_overdue()
    assert ended == ["answer"]

    clock.now += REQUEST_SECONDS_MAX - ANSWER_SECONDS_MAX - 0.6
    moving.end()
    watch.end_overdue()
    assert ended == ["answer"]

    clock.now += 0.2
    watch.end_overdue()
    assert ended == ["answer", "request"]
    assert watch.ended_count == {"tails": 2}


def test_the_first_failure_of_the_watch_was_its_end():
    def fail():
        raise ZeroDivisionError

    seen = threading.Semaphore(0)
    watch = StallWatch()
    watch.start(fail, seen.release)
    try:
        for _ in range(2):
            assert seen.acquire(timeout=WAIT_SECONDS_MAX)
    finally:
        watch.stop()


def test_the_longest_wait_of_a_lane_ends_first_and_only_once():
    clock, ended = Clock(), []
    watch = StallWatch(clock)
    for name, lane in (("first", "tails"), ("other lane", "streams"), ("second", "tails"), ("short", "tails")):
        if name == "short":
            clock.now += 6
        sleeper(watch, lane, ended, name).begin()
        clock.now += 1

    assert watch.end_longest("tails", 5.0)
    assert watch.end_longest("tails", 5.0)
    assert not watch.end_longest("tails", 5.0)
    assert ended == ["first", "second"]


class HeldCall:
    """A call of one request, each of another client, as a lane sees it: its request is whole at once."""

    behaviour = SimpleNamespace(method="", has_one_request=True, take=lambda request, call: None)

    def __init__(self, number):
        self.client = client_of_peer(f"ipv4:10.0.0.{number}:1")
        self.answer_bytes, self.context, self.status = 0, None, None

    def receive(self, then):
        then(b"")

    def is_active(self):
        return True

    def fail(self, status):
        self.status = status


def test_a_lane_counts_what_it_refuses():
    lane = Lane("tails", 1, 0, StallWatch())
    first, second = HeldCall(1), HeldCall(2)
    lane._enter(first)
    lane._enter(second)

    assert second.status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert lane.refused_count == 1
    first.ended()
    assert lane.call_count == 0


def test_one_newcomer_ends_one_sleeper_however_long_that_takes_to_leave():
    """Between a sleeper's end and its thread's, the watch looks around and must not end another."""

    class Sleepers:
        ended_count = 0

        def end_longest(self, lane, over_seconds):
            self.ended_count += 1
            return True

    watch = Sleepers()
    lane = Lane("calls", 2, 8, watch)
    for number in range(3):
        lane._enter(HeldCall(number))
    lane.make_room()
    lane.make_room()
    assert watch.ended_count == 1
    lane._enter(HeldCall(3))
    lane.make_room()
    assert watch.ended_count == 2
