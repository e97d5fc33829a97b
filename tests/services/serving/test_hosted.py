"""Services beside others in one process: what one leaves behind when it has ended, and that is nothing."""

import pathlib
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from services.local.server import LocalServer
from services.local.wire import LOOKUPS
from services.serving.calls.open_work import OpenWork
from services.serving.hosted import EXIT_CODE_ABANDONED, HostedService
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins, StoreSettings
from store.errors import InvalidSettingError, StoreLockedError
from tests.services.loopback import SERVICE_NAME, get_request
from tests.support.process_state import nothing_left_behind
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


class Servicer(pb_grpc.CommitLogServiceServicer):
    """Answers, or ends the service with code 3."""

    def __init__(self, server: ServiceServer) -> None:
        self._server = server

    def GetMessage(self, request: pb.GetMessageRequest, context: grpc.ServicerContext) -> pb.GetMessageResponse:
        if request.commit_log_offset == 9:
            self._server.fail(3, "the log was fenced")
        return pb.GetMessageResponse()


class Hosts:
    """Starts services of one kind; `prepare` does more with the server before it starts."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.ended = threading.Event()

    def start(self, prepare: Any = lambda server: None, **environ: str) -> HostedService:
        def serve(server: ServiceServer, settings: StoreSettings, origins: Origins) -> None:
            server.add(SERVICE_NAME, pb_grpc.add_CommitLogServiceServicer_to_server, Servicer(server))
            prepare(server)

        named = {
            "REPUT_COMMITLOG_ADDRESS": f"unix:{self._directory}/a.sock",
            "REPUT_READY_FILE": str(self._directory / "ready"),
        }
        return HostedService(Service("commitlog", StoreSettings, serve), named | environ, self.ended.set)


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.fixture
def unchanged(tmp_path: pathlib.Path) -> Iterator[None]:
    """The process is afterwards what it was before."""
    (tmp_path / "first").mkdir()
    first = Hosts(tmp_path / "first").start()
    call(first)
    first.terminate()
    first.wait(WAIT_SECONDS_MAX)
    with nothing_left_behind():
        yield


def call(service: HostedService, offset: int = 0) -> None:
    with grpc.insecure_channel(service.server.address) as channel:
        pb_grpc.CommitLogServiceStub(channel).GetMessage(get_request(offset), timeout=WAIT_SECONDS_MAX)


@pytest.mark.usefixtures("unchanged")
def test_a_service_that_has_ended_leaves_nothing_behind(hosts: Hosts) -> None:
    for _ in range(3):  # on one address
        service = hosts.start()
        call(service)
        assert service.poll() is None
        service.terminate()
        assert service.wait(WAIT_SECONDS_MAX) == service.poll() == 0
        assert hosts.ended.wait(WAIT_SECONDS_MAX)


@pytest.mark.usefixtures("unchanged")
def test_the_pages_of_health_and_metrics_end_with_their_service(hosts: Hosts) -> None:
    addresses = {"REPUT_COMMITLOG_METRICS_ADDRESS": "127.0.0.1:0", "REPUT_COMMITLOG_HEALTH_ADDRESS": "127.0.0.1:0"}
    service = hosts.start(**addresses)
    with grpc.insecure_channel(service.server.health_address) as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)
    assert urllib.request.urlopen(f"http://{service.server.metrics_address}/metrics", timeout=WAIT_SECONDS_MAX).read()
    service.terminate()
    assert service.wait(WAIT_SECONDS_MAX) == 0


@pytest.mark.usefixtures("unchanged")
def test_a_service_that_fails_has_the_code_it_names_and_its_cause_in_the_ready_file(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    service = hosts.start()
    call(service, 9)
    assert service.wait(WAIT_SECONDS_MAX) == 3
    assert (tmp_path / "ready").read_text() == "the log was fenced"


@pytest.mark.usefixtures("unchanged")
def test_a_service_that_cannot_start_releases_what_it_has_taken(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    closed: list[str] = []

    def refuse(server: ServiceServer) -> None:
        server.on_stop(lambda: closed.append("files"))
        raise StoreLockedError("held by another: stop it first")

    with pytest.raises(StoreLockedError):
        hosts.start(refuse)
    assert closed == ["files"]
    assert (tmp_path / "ready").read_text() == "held by another: stop it first"


@pytest.mark.usefixtures("unchanged")
def test_an_address_that_is_taken_is_refused_and_the_first_goes_on(hosts: Hosts) -> None:
    service = hosts.start(REPUT_COMMITLOG_ADDRESS="127.0.0.1:0")
    try:
        with pytest.raises(InvalidSettingError):
            hosts.start(REPUT_COMMITLOG_ADDRESS=service.server.address)
        call(service)
    finally:
        service.terminate()
        service.wait(WAIT_SECONDS_MAX)


@pytest.mark.usefixtures("unchanged")
def test_an_unknown_setting_is_refused_before_anything_is_opened(hosts: Hosts) -> None:
    with pytest.raises(InvalidSettingError):
        hosts.start(REPUT_COMMITLOG_ADRESS="127.0.0.1:0")


@pytest.mark.usefixtures("unchanged")
def test_what_a_recovery_opens_after_the_end_began_is_closed_too(hosts: Hosts) -> None:
    may_go_on, closed = threading.Event(), threading.Event()

    def prepare(server: ServiceServer) -> None:
        def recover() -> None:
            may_go_on.wait(WAIT_SECONDS_MAX)
            server.on_stop(closed.set)
            server.set_serving(True)

        server.on_stop(may_go_on.set)
        server.in_background(recover)

    service = hosts.start(prepare)
    service.terminate()
    assert service.wait(WAIT_SECONDS_MAX) == 0
    assert closed.is_set()


@pytest.mark.usefixtures("unchanged")
def test_a_service_that_does_not_end_in_time_is_given_up(hosts: Hosts) -> None:
    may_end = threading.Event()
    service = hosts.start(lambda server: server.on_stop(lambda: may_end.wait(WAIT_SECONDS_MAX)))
    service.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        service.wait(0.05)
    service.kill()
    assert service.wait(0) == EXIT_CODE_ABANDONED
    may_end.set()
    assert hosts.ended.wait(WAIT_SECONDS_MAX)


def test_no_thread_accepts_on_a_descriptor_that_was_closed(tmp_path: pathlib.Path) -> None:
    """It would take connections from the socket that gets the same descriptor, of another stack in this process."""
    is_closed = threading.Event()
    descriptors: list[int] = []

    class SlowToEnd(LocalServer):
        def _accept(self, listener: socket.socket) -> None:
            super()._accept(listener)
            is_closed.wait(0.2)
            descriptors.append(listener.fileno())

    server = SlowToEnd(LOOKUPS, str(tmp_path / "a.lookup"), {}, OpenWork())
    server.start()
    server.close()
    is_closed.set()
    wait_until(lambda: descriptors, "the thread has ended")
    assert descriptors != [-1]
