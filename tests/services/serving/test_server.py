"""From bind to clean end: health, the address file, what a stop waits for, and processes that end as they should."""

import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from services.serving.server import GRACE_SECONDS, ServiceServer
from services.serving.server_options import RECEIVE_BYTES_MAX
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidSettingError
from tests.services.loopback import SERVICE_NAME, commit_log_server, get_request, stub
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = pathlib.Path(__file__).parents[3]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

CHILD = """
import pathlib, sys
from reput.commitlog.v1 import commitlog_service_pb2 as pb, commitlog_service_pb2_grpc as pb_grpc
from services.serving.process import main
from services.serving.server import Service
from services.settings.service_settings import StoreSettings

class Servicer(pb_grpc.CommitLogServiceServicer):
    def GetMessage(self, request, context):
        if request.commit_log_offset == 9:
            SERVER.fail(3)
        return pb.GetMessageResponse()

def serve(server, settings, origins):
    global SERVER
    SERVER = server
    server.add("reput.commitlog.v1.CommitLogService", pb_grpc.add_CommitLogServiceServicer_to_server, Servicer())
    server.on_stop(lambda: (settings.store / "closed").write_text("first registered, last called"))
    def recover():
        if settings.broker_name == "damaged":
            raise ValueError("a bug in recovery")
        server.set_serving(True)
    server.in_background(recover)

main(Service("commitlog", StoreSettings, serve))
"""


@pytest.fixture
def descriptors_above_1023() -> Iterator[None]:
    """What is opened from now on has a number that select() does not know."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"this machine allows no more than {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1024:
        held.append(os.dup(held[0]))
    yield
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_with_many_descriptors_serves_and_ends(descriptors_above_1023: None) -> None:
    server = ServiceServer("commitlog", ServiceSettings(address="127.0.0.1:0"))
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped, daemon=True)
    ended.start()

    server.stop()

    assert server.stopping.wait(WAIT_SECONDS_MAX)
    ended.join(WAIT_SECONDS_MAX)
    assert not ended.is_alive()


def clean_environment(**settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    return {**inherited, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protos'}", **settings}


def start_child(tmp_path: pathlib.Path, **settings: str) -> tuple[subprocess.Popen, str]:
    """A service in a process of its own and its address."""
    address_file = tmp_path / "address"
    flags = ["--store", str(tmp_path), "--address", "127.0.0.1:0", "--address-file", str(address_file)]
    environment = clean_environment(**settings)
    child = subprocess.Popen([sys.executable, "-c", CHILD, *flags], env=environment, stderr=subprocess.PIPE)
    wait_until(lambda: address_file.exists() or child.poll() is not None, address_file)
    assert address_file.exists(), child.stderr.read().decode()
    return child, address_file.read_text().strip()


def wait_until_serving(address: str) -> None:
    states = health_pb2_grpc.HealthStub(grpc.insecure_channel(address)).Watch(health_pb2.HealthCheckRequest())
    assert any(response.status == SERVING for response in states)
    states.cancel()


def health(address: str, service: str = "") -> int:
    checker = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))
    return checker.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_SECONDS_MAX).status


def test_health_is_told_overall_and_for_each_service():
    with commit_log_server() as server:
        assert (health(server.address), health(server.address, SERVICE_NAME)) == (SERVING, SERVING)

        server.set_serving(False)
        assert (health(server.address), health(server.address, SERVICE_NAME)) == (NOT_SERVING, NOT_SERVING)


def test_a_service_is_not_serving_until_it_says_so():
    server = ServiceServer("commitlog", ServiceSettings())
    server.start()

    assert health(server.address) == NOT_SERVING

    server.stop()
    server.serve_until_stopped()


def test_a_unix_socket_is_an_address_too(tmp_path):
    address = f"unix:{tmp_path}/s"
    with commit_log_server(address, get_message=lambda *_: pb.GetMessageResponse()) as server:
        assert server.address == address
        assert stub(server).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX) == pb.GetMessageResponse()


def test_the_address_file_names_a_port_that_can_be_dialled(tmp_path):
    """A wildcard host is for listening; who reads the file wants to call."""
    settings = ServiceSettings(address="0.0.0.0:0", address_file=tmp_path / "address")
    server = ServiceServer("commitlog", settings)
    server.start()

    address = (tmp_path / "address").read_text().strip()
    assert address == server.address
    assert address.startswith("127.0.0.1:")
    assert health(address) == NOT_SERVING
    assert [path.name for path in tmp_path.iterdir()] == ["address"]

    server.stop()
    server.serve_until_stopped()


def test_a_taken_port_is_refused_by_name():
    """Without so_reuseport=0 two services would share a port and each would get some of the calls."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidSettingError, match=address):
            ServiceServer("commitlog", ServiceSettings(address=address)).start()


def test_two_services_never_share_a_port():
    with commit_log_server() as server, pytest.raises(InvalidSettingError):
        ServiceServer("index", ServiceSettings(address=server.address)).start()


@pytest.mark.parametrize(("body_bytes", "is_taken"), [(4 * 1024 * 1024, True), (RECEIVE_BYTES_MAX, False)])
def test_requests_are_taken_up_to_four_mebibytes_and_their_trimmings(body_bytes, is_taken):
    def append(request, context):
        return pb.AppendMessagesResponse()

    request = pb.AppendMessagesRequest()
    request.messages.add(topic="orders", body=bytes(body_bytes))
    with commit_log_server(append_messages=append) as server:
        code = grpc.StatusCode.OK
        try:
            stub(server).AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        except grpc.RpcError as error:
            code = error.code()

    assert code is (grpc.StatusCode.OK if is_taken else grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_a_stop_waits_for_calls_that_run_and_then_calls_back_in_reverse_order():
    entered, release = threading.Event(), threading.Event()
    order = []

    def get(request, context):
        entered.set()
        release.wait(WAIT_SECONDS_MAX)
        order.append("answered")
        return pb.GetMessageResponse()

    with commit_log_server(get_message=get) as server:
        server.on_stop(lambda: order.append("opened first"))
        server.on_stop(lambda: order.append("opened last"))
        call = stub(server).GetMessage.future(get_request(), timeout=WAIT_SECONDS_MAX)
        assert entered.wait(WAIT_SECONDS_MAX)
        server.stop()
        assert server.stopping.wait(WAIT_SECONDS_MAX)
        release.set()
        assert call.result() == pb.GetMessageResponse()

    assert order == ["answered", "opened last", "opened first"]


def test_a_stop_ends_tails_and_idle_streams_without_using_up_the_grace_time():
    beat = threading.Event()

    def reput(request, context):
        while context.is_active():
            yield pb.ReputResponse()
            beat.wait(0.05)

    def append(requests, context):
        for _ in requests:
            yield pb.AppendMessageStreamResponse()

    open_end = threading.Event()

    def one_request_then_silence():
        yield pb.AppendMessageStreamRequest()
        open_end.wait(60)

    with commit_log_server(reput=reput, append_message_stream=append) as server:
        tail = stub(server).Reput(pb.ReputRequest())
        next(tail)
        appends = stub(server).AppendMessageStream(one_request_then_silence())
        next(appends)
        watch = health_pb2_grpc.HealthStub(grpc.insecure_channel(server.address)).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == SERVING
        started = time.monotonic()
        server.stop()
        with pytest.raises(grpc.RpcError) as caught:
            list(tail)
        assert next(watch).status == NOT_SERVING
    elapsed = time.monotonic() - started
    open_end.set()

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert elapsed < GRACE_SECONDS / 2


def test_a_request_on_a_stream_that_was_taken_is_answered_before_the_end():
    taken, release, open_end = threading.Event(), threading.Event(), threading.Event()

    def append(requests, context):
        for _ in requests:
            taken.set()
            release.wait(WAIT_SECONDS_MAX)
            yield pb.AppendMessageStreamResponse()

    def one_request_then_silence():
        yield pb.AppendMessageStreamRequest()
        open_end.wait(60)

    with commit_log_server(append_message_stream=append) as server:
        responses = stub(server).AppendMessageStream(one_request_then_silence())
        assert taken.wait(WAIT_SECONDS_MAX)
        server.stop()
        assert server.stopping.wait(WAIT_SECONDS_MAX)
        release.set()
        assert next(responses) == pb.AppendMessageStreamResponse()
    open_end.set()


def test_sigterm_ends_a_process_cleanly_with_code_0(tmp_path):
    child, address = start_child(tmp_path)
    wait_until_serving(address)

    child.send_signal(signal.SIGTERM)

    assert child.wait(WAIT_SECONDS_MAX) == 0
    assert (tmp_path / "closed").exists()


def test_a_second_signal_does_not_cut_the_clean_end_short(tmp_path):
    """Ctrl-C reaches the whole process group, and then its leader sends SIGTERM as well.

    Both once came just before the main thread waited on an Event, whose handlers then never ran: it waited for ever.
    """
    child, address = start_child(tmp_path)
    wait_until_serving(address)

    for _ in range(20):
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)

    assert child.wait(WAIT_SECONDS_MAX) == 0
    assert (tmp_path / "closed").exists()


def test_a_store_that_fails_ends_its_process_with_the_code_it_names(tmp_path):
    child, address = start_child(tmp_path)

    pb_grpc.CommitLogServiceStub(grpc.insecure_channel(address)).GetMessage(get_request(9), timeout=WAIT_SECONDS_MAX)

    assert child.wait(WAIT_SECONDS_MAX) == 3
    assert (tmp_path / "closed").exists()


def test_a_failed_recovery_ends_the_process_with_code_1_and_its_cause_in_the_log(tmp_path):
    child, _ = start_child(tmp_path, REPUT_BROKER_NAME="damaged")

    assert child.wait(WAIT_SECONDS_MAX) == 1
    assert b"a bug in recovery" in child.stderr.read()


def test_a_wrong_setting_is_one_line_and_code_2(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=clean_environment(REPUT_COMMITLOG_FLUSH_MOD="sync"),
        capture_output=True,
        timeout=WAIT_SECONDS_MAX,
    )

    assert child.returncode == 2
    assert child.stderr.decode().count("\n") == 1
    assert b"REPUT_COMMITLOG_FLUSH_MODE" in child.stderr


PARENT = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], env={**os.environ, "REPUT_PARENT_PID": str(os.getpid())})
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_ends_at_once_without_draining_when_its_parent_is_killed(tmp_path):
    address_file = tmp_path / "address"
    flags = ["--store", str(tmp_path), "--address", "127.0.0.1:0", "--address-file", str(address_file)]
    command = [sys.executable, "-c", PARENT, sys.executable, "-c", CHILD, *flags]
    parent = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    child_pid = int(parent.stdout.readline())
    wait_until(address_file.exists, address_file)
    wait_until_serving(address_file.read_text().strip())

    parent.kill()
    parent.wait()

    wait_until(lambda: not is_running(child_pid), "the child ends")
    assert not (tmp_path / "closed").exists()


def test_a_child_whose_parent_is_gone_before_it_starts_ends_too(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    child = subprocess.run(
        [sys.executable, "-c", CHILD, "--address", "127.0.0.1:0", "--store", str(tmp_path)],
        env=clean_environment(REPUT_PARENT_PID=str(gone.pid)),
        stderr=subprocess.DEVNULL,
        timeout=WAIT_SECONDS_MAX,
    )

    assert child.returncode == 137


def is_running(pid: int) -> bool:
    """False also for a zombie that nobody has reaped yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
