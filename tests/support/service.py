"""One service of ours for tests, on a free port, ended with the test: in this process (`hosted_service`), or in one of its own
(`Service`), for tests that kill it, measure it or read what it prints.

That is a fork (service_forks.py) or, with other variables than `REPUT_...`, below a tool and where this process has mounts of
its own, a new interpreter. It dies with the test process, also when that is killed. A `command_prefix` puts a tool in front:
`("strace", "-f", "-e", "inject=...", "-o", "/dev/null")`, `("faketime", "-f", "-2h")`.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.modules import MODULES, load_service
from reput.commitlog.v1 import commitlog_service_pb2_grpc as commitlog_grpc
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as consumequeue_grpc
from reput.consumer.v1 import consumer_service_pb2_grpc as consumer_grpc
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.index.v1 import index_service_pb2_grpc as index_grpc
from reput.nameserver.v1 import nameserver_service_pb2_grpc as nameserver_grpc
from reput.schedule.v1 import schedule_service_pb2_grpc as schedule_grpc
from services.observing.telemetry import LIBRARY_LOGS
from services.serving.hosted import HostedService
from tests.support import service_forks
from tests.support.failures import watch_log
from tests.support.waiting import wait_until

ROOT = pathlib.Path(__file__).parents[2]
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
# Of a new store, unless a test says another; the default of 1 GiB for each of many stores fills a disk.
LOG_FILE_BYTES = str(64 << 20)
STUBS: dict[str, Any] = {
    "commitlog": commitlog_grpc.CommitLogServiceStub,
    "consumequeue": consumequeue_grpc.ConsumeQueueServiceStub,
    "index": index_grpc.IndexServiceStub,
    "consumer": consumer_grpc.ConsumerServiceStub,
    "schedule": schedule_grpc.ScheduleServiceStub,
    "nameserver": nameserver_grpc.NameServerServiceStub,
    "gateway": gateway_grpc.GatewayServiceStub,
}
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class Service:
    """A service in a process of its own.

    Args:
        name: `commitlog`, `consumequeue`, `index`, `consumer`, `schedule`, `nameserver` or `gateway` (or the module's name).
        store: the store root.
        settings: `REPUT_...` environment variables; they replace the ones made here, and other variables go too.
        command_prefix: a tool to run it under.
        wait: `serving` returns once health says SERVING, `answering` once the port answers (a recovering one does),
            `""` at once: then `wait_until` is for the test to call.

    Attributes:
        address: `127.0.0.1:PORT`; empty until the port is bound.
        process: the fork or the Popen; of the tool when there is one.
        log_path: what it prints.
    """

    def __init__(
        self,
        name: str,
        store: pathlib.Path,
        settings: Mapping[str, str] | None = None,
        command_prefix: Sequence[str] = (),
        *,
        wait: str = "serving",
    ) -> None:
        self.name = name.removesuffix("_svc")
        self.store = store
        self.address = ""
        self._channel: grpc.Channel | None = None
        self._has_prefix = bool(command_prefix)
        self._scratch = tempfile.TemporaryDirectory(prefix="reput-test-")
        self._address_file = pathlib.Path(self._scratch.name) / "address"
        self.log_path = pathlib.Path(self._scratch.name) / "log"
        environ = {variable: value for variable, value in os.environ.items() if not variable.startswith("REPUT_")}
        environ |= {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos"))),
            "REPUT_PARENT_PID": str(os.getpid()),
            **_settings(self.name, store, self._address_file, settings),
        }
        watch_log(self.log_path)
        self.process: subprocess.Popen[bytes] | service_forks.ServiceFork
        with open(self.log_path, "wb") as log:
            forked = None
            if not command_prefix and all(variable.startswith("REPUT_") for variable in settings or ()):
                forked = service_forks.start(self.name, environ, self.log_path)
            command = [*command_prefix, sys.executable, "-P", "-m", MODULES[self.name]]
            self.process = forked or subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ
            )
        if wait:
            try:
                self.wait_until(wait)
            except BaseException:
                self.kill()
                raise

    @property
    def pid(self) -> int:
        """The service's own process, also behind a tool that runs it as its child."""
        if not self._has_prefix:
            return self.process.pid
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        listed = children.read_text().split() if children.exists() else []
        return int(listed[0]) if listed else self.process.pid

    @property
    def channel(self) -> grpc.Channel:
        """A channel to it, the same each time."""
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        return self._channel

    @property
    def stub(self) -> Any:
        """The stub of its own service."""
        return STUBS[self.name](self.channel)

    def wait_until(self, state: str = "serving") -> None:
        """Return once it is `serving`, `not-serving` or just `answering`; RuntimeError with its log otherwise."""
        health = ""

        def is_reached() -> bool:
            nonlocal health
            health = self.health()
            if health == state or (state == "answering" and health in ("serving", "not-serving")):
                return True
            assert self.process.poll() is None, f"it ended with {self.process.returncode}"
            return False

        try:
            wait_until(is_reached, state)
        except AssertionError as error:
            raise RuntimeError(f"{self.name} is not {state} but {health}: {error}\n{self.log()[-4000:]}") from error

    def health(self) -> str:
        """`serving`, `not-serving`, or `silent` when nothing answers."""
        if not self.address:
            if not self._address_file.exists():
                return "silent"
            self.address = self._address_file.read_text().strip()
        try:
            request = health_pb2.HealthCheckRequest()
            answer = health_pb2_grpc.HealthStub(self.channel).Check(request, timeout=5, wait_for_ready=True)
        except grpc.RpcError:
            return "silent"
        return "serving" if answer.status == health_pb2.HealthCheckResponse.SERVING else "not-serving"

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text(errors="replace")

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """End it cleanly (SIGTERM); the exit code. Killed when it does not end in time."""
        self._close_channel()
        if self.process.poll() is None:
            _signal(self.pid, signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End it at once (SIGKILL), as when its process crashed; also for one that has ended already."""
        self._close_channel()
        if self.process.poll() is None:
            pid = self.pid
            _signal(pid, signal.SIGKILL)
            if pid != self.process.pid:
                try:
                    self.process.wait(2)  # the tool ends with what it ran
                except subprocess.TimeoutExpired:
                    self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._scratch.cleanup()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class HostedAt:
    """A service in this process.

    Attributes:
        address: `127.0.0.1:PORT`.
        channel: to it.
        stub: the stub of its own service.
    """

    def __init__(self, name: str, address: str, channel: grpc.Channel) -> None:
        self.address = address
        self.channel = channel
        self.stub: Any = STUBS[name](channel)


@contextlib.contextmanager
def hosted_service(name: str, store: pathlib.Path, settings: Mapping[str, str] | None = None) -> Iterator[HostedAt]:
    """One service in this process, SERVING and on a free port, stopped cleanly after the block.

    It costs no interpreter, which takes 0.6 s of CPU; `umask`, `log_level`, `kernels` and `otlp_endpoint` have no effect.
    """
    with tempfile.TemporaryDirectory(prefix="reput-test-") as scratch, LIBRARY_LOGS.used():
        address_file = pathlib.Path(scratch) / "address"
        hosted = HostedService(load_service(name), _settings(name, store, address_file, settings), lambda: None)
        try:
            address = address_file.read_text().strip()
            with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
                states = health_pb2_grpc.HealthStub(channel).Watch(
                    health_pb2.HealthCheckRequest(), timeout=START_SECONDS_MAX, wait_for_ready=True
                )
                next(state for state in states if state.status == health_pb2.HealthCheckResponse.SERVING)
                states.cancel()
                yield HostedAt(name, address, channel)
        finally:
            hosted.terminate()
            assert hosted.wait(STOP_SECONDS_MAX) == 0


def _settings(
    name: str, store: pathlib.Path, address_file: pathlib.Path, more: Mapping[str, str] | None
) -> dict[str, str]:
    return {
        "REPUT_STORE": str(store),
        f"REPUT_{name.upper()}_ADDRESS": "127.0.0.1:0",
        "REPUT_ADDRESS_FILE": str(address_file),
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": LOG_FILE_BYTES,
        **(more or {}),
    }


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
