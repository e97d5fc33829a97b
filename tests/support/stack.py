"""A running stack for tests, ended with the test: `reput serve` with its processes, or all six services in this process.

`hosted_stack` starts in 0.2 s and costs 0.1 s of CPU, `running_stack` 0.6 s of CPU: it is for tests that need processes, for
kills, signals, descriptors, memory, umask, or what is printed. Those are forks of one process (service_forks.py), with other
variables than `REPUT_...` new interpreters.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from deploy.background import BackgroundStack
from deploy.modules import MODULES
from gateway.__main__ import SERVICE
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from services.observing.telemetry import LIBRARY_LOGS
from services.serving.hosted import HostedService
from tests.support import service_forks
from tests.support.failures import watch_log
from tests.support.processes import children_of
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

STOP_SECONDS_MAX = 60
# Unless a test says another: small files, because files are allocated whole, and 1 GiB for each of many stores fills a disk;
# and a disk with room, however full the disk of the test machine is.
SMALL_LOG_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(64 << 20),
    "REPUT_COMMITLOG_DISK_CLEAN_FREE_BYTES": "0",
    "REPUT_COMMITLOG_DISK_CLEAN_FORCIBLY_FREE_BYTES": "0",
    "REPUT_COMMITLOG_DISK_FULL_FREE_BYTES": "0",
}
# A test asks for a name server and a remoting door by flags or `choices`, at port 0: the default ports belong to one stack of a
# machine, and to the real RocketMQ.
NO_REMOTING = {"REPUT_NAMESERVER_REMOTING_ADDRESS": "off", "REPUT_GATEWAY_REMOTING_ADDRESS": "off"}


class _AnyStack:
    """What both have."""

    addresses: dict[str, str]
    gateway: gateway_grpc.GatewayServiceStub

    def wait_until_built(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Return once queues and index hold everything that the log holds now."""
        services: dict[str, pb.ServiceStatus] = {}

        def look() -> None:
            services.update(
                (row.service, row)
                for row in self.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
            )

        look()
        target = services["commitlog"].log_end_offset

        def are_built() -> bool:
            look()
            builders = [services[name] for name in ("consumequeue", "index")]
            return all(row.next_offset >= target and not row.catching_up for row in builders)

        wait_until(are_built, lambda: f"queues and index are built up to {target}: {services}", seconds=seconds)


class Stack(_AnyStack):
    """The six services on one store root.

    Args:
        store: the store root.
        flags: further flags of `reput serve`.
        settings: `REPUT_...` environment variables.

    Attributes:
        defaults: settings that hold unless `settings` has others.
        is_forked: False: it is started as a user starts it, to measure it.
        process: `reput serve`, the parent of the services.
        serving_time: when all services were SERVING, in seconds since the epoch.
    """

    defaults: Mapping[str, str] = SMALL_LOG_FILES | NO_REMOTING
    is_forked = True

    def __init__(self, store: pathlib.Path, *flags: str, settings: Mapping[str, str] | None = None) -> None:
        self.store = store
        self._scratch = tempfile.TemporaryDirectory(prefix="reput-test-")
        self.log_path = pathlib.Path(self._scratch.name) / "serve.log"
        port_file = pathlib.Path(self._scratch.name) / "ports.json"
        command = [sys.executable, "-m", "cli.main", "serve", "--store", str(store), "--gateway-port", "0"]
        command += ["--console-port", "0", "--port-file", str(port_file), *flags]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        environ |= {**self.defaults, **(settings or {})}
        environ["TMPDIR"] = self._scratch.name  # its sockets, which one that is killed leaves behind
        watch_log(self.log_path)
        self.process: subprocess.Popen[bytes] | service_forks.ServiceFork
        with open(self.log_path, "wb") as log:
            forked = None
            if self.is_forked and all(name.startswith("REPUT_") for name in settings or ()):
                forked = service_forks.start_stack(command, environ, self.log_path)
            self.process = forked or subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ
            )
        try:
            wait_until(lambda: port_file.exists() or self.process.poll() is not None, port_file)
            assert self.process.poll() is None, f"ended with {self.process.returncode}"
        except AssertionError as error:
            self.kill()
            raise RuntimeError(f"reput serve did not come up: {error}\n{self.log_path.read_text()[-4000:]}") from error
        self.addresses: dict[str, str] = json.loads(port_file.read_text())
        self.serving_time = port_file.stat().st_mtime
        self.channel = grpc.insecure_channel(self.addresses["gateway"])
        self.gateway = gateway_grpc.GatewayServiceStub(self.channel)

    def log(self) -> str:
        """What the services have printed so far."""
        return self.log_path.read_text()

    def children(self) -> dict[str, int]:
        """The services' process ids, by the name of their module."""
        listed = children_of(self.process.pid)
        commands = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in listed}
        modules = {pid: words[words.index(b"-m") + 1 :] for pid, words in commands.items() if b"-m" in words}
        # `python -m deploy.beside consumer index`: the first one's process hosts the others; a name server is left out.
        names = {
            pid: [MODULES[word.decode()] for word in words[1:] if word and word != b"nameserver"]
            if words[0] == b"deploy.beside"
            else [words[0].decode()]
            for pid, words in modules.items()
        }
        return {name: pid for pid, of_process in names.items() for name in of_process}

    def stop(self) -> int:
        """End it cleanly; the exit code."""
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """End it as a power cut of the process would (SIGKILL); its children die with it."""
        self.process.kill()
        self.process.wait()


class HostedStack(_AnyStack):
    """The six services on one store root, in this process.

    Args:
        store: the store root.
        settings: `REPUT_...` environment variables.
        choices: others of `deploy.local.LocalStack`, such as `read_only`.

    Attributes:
        background: the stack.
        addresses: by service name.
        channel: to the gateway.
    """

    defaults: Mapping[str, str] = SMALL_LOG_FILES | NO_REMOTING

    def __init__(self, store: pathlib.Path, *, settings: Mapping[str, str] | None = None, **choices: Any) -> None:
        self.store = store
        environ = {**self.defaults, **(settings or {})}
        self.background = BackgroundStack(store, environ, **{"gateway_port": 0, "console_port": 0, **choices})
        self.addresses = self.background.addresses
        self.channel = grpc.insecure_channel(self.addresses["gateway"])
        self.gateway = gateway_grpc.GatewayServiceStub(self.channel)

    def stop(self) -> int:
        """End it cleanly; the exit code."""
        self.channel.close()
        return self.background.stop()

    def __enter__(self) -> "HostedStack":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def hosted_stack(store: pathlib.Path, *, settings: Mapping[str, str] | None = None, **choices: Any) -> HostedStack:
    """A stack in this process that is gone when the block ends."""
    return HostedStack(store, settings=settings, **choices)


@contextlib.contextmanager
def hosted_gateway(directory: pathlib.Path, settings: Mapping[str, str]) -> Iterator[str]:
    """The address of a gateway alone, in this process, that is gone when the block ends; `settings` name its shards."""
    ready_file = directory / "gateway.ready"
    environ = {
        "REPUT_STORE": str(directory),
        "REPUT_GATEWAY_ADDRESS": "127.0.0.1:0",
        "REPUT_READY_FILE": str(ready_file),
    }
    with LIBRARY_LOGS.used():
        service = HostedService(SERVICE, {**environ, **settings}, lambda: None)
        try:
            wait_until(ready_file.exists, "the gateway is ready")
            yield service.server.address
        finally:
            service.terminate()
            service.wait(STOP_SECONDS_MAX)


@contextlib.contextmanager
def running_stack(store: pathlib.Path, *flags: str, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A stack that is gone when the block ends."""
    stack = Stack(store, *flags, settings=settings)
    try:
        yield stack
    finally:
        try:
            stack.stop()
        except subprocess.TimeoutExpired:
            stack.kill()


def new_message(topic: str, body: bytes, **fields: object) -> message_pb2.NewMessage:
    """A message to append."""
    return message_pb2.NewMessage(topic=topic, body=body, **fields)
