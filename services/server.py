'''How a process of ours is served: bind, health, reflection, and a clean end.

A `__main__` is written like this:

    """Runs the commitlog service: `python -m commitlog_svc`."""

    from commitlog_svc.servicer import CommitLogServicer
    from commitlog_svc.settings import CommitLogSettings
    from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
    from services.server import ServiceServer, main
    from services.settings import Origins

    def serve(server: ServiceServer, settings: CommitLogSettings, origins: Origins) -> None:
        servicer = CommitLogServicer()              # answers StoreRecoveringError until it is given its log
        server.add("reput.commitlog.v1.CommitLogService", pb_grpc.add_CommitLogServiceServicer_to_server, servicer)

        def recover() -> None:                      # runs in a thread of its own, after the port is open
            log = CommitLog(...)
            log.recover()
            servicer.commit_log = log
            server.on_stop(log.close)               # after the last call; last registered, first called
            log.on_fenced = lambda: server.fail(3)  # a fenced store ends the process with this code
            server.set_serving(True)

        server.in_background(recover)               # an exception there is logged and ends the process with code 1

    if __name__ == "__main__":
        main("commitlog", CommitLogSettings, serve)

`main` reads flags, environment and files (exit code 2 and one line on stderr for a wrong setting), sets up logs, calls
`serve`, opens the port, writes the address file and stays until SIGTERM or SIGINT. Handlers get their caller's deadline
from `services.deadline.remaining_seconds(context, default)`, and tails watch `server.stopping`.

The end: NOT_SERVING; no new calls; open work (services/interceptors.py) has 5 s; the rest is cancelled; then the
`on_stop` callbacks; exit code 0, or what `fail` was given. When the parent process was killed there is no such end:
services/parent_watch.py.
'''

import contextlib
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services import parent_watch, tracing
from services.call_guard import CallGuard
from services.identity import IdentityGuard
from services.identity_names import parse_identities
from services.interceptors import OpenWork, StatusInterceptor
from services.lanes import Lanes
from services.meters import Meters
from services.reflection import add_reflection
from services.settings import Origins, ServiceSettings, load_from_process, print_and_exit
from services.telemetry import EVENTS, configure_logging
from services.tls import TlsIdentity, server_credentials
from services.tls_files import TlsFiles
from store.errors import InvalidSettingError, StoreError
from store.kernels import loading

RECEIVE_BYTES_MAX = 4 * 1024 * 1024 + 128 * 1024
# Our calls need no metadata; a proxy's tracing and a bearer token stay below 8 KiB.
METADATA_BYTES_MAX = 16 * 1024
# Calls of one connection at the same time; the others wait in the caller. A gateway has one connection to each service,
# which must carry all its threads' calls.
CONNECTION_CALL_COUNT_FACTOR = 4
# A caller that vanished without a word gives back its threads and places within half a minute.
KEEPALIVE_MILLIS = 20_000
KEEPALIVE_TIMEOUT_MILLIS = 10_000
# What a caller may send ahead of us on a stream; gRPC's own guess grows to many MiB, for each stream that sends faster than
# we read. A message that is being read may always come as a whole.
WINDOW_BYTES = 128 * 1024
# A forgotten connection costs a descriptor and some memory; whoever comes back connects anew without noticing.
CONNECTION_IDLE_MILLIS = 15 * 60_000
GRACE_SECONDS = 5.0
# Whoever may open a service's socket may do everything: that is the user who runs it.
SOCKET_MODE = 0o600
# A name that health answers SERVING for as long as the process answers at all: a liveness probe must not end what recovers.
LIVENESS_NAME = "liveness"
# Probes, of which there are two or three a minute; more are refused.
HEALTH_THREAD_COUNT = 2
HEALTH_CALL_COUNT_MAX = 64
# The last answers of finished handlers still have to be written.
LAST_ANSWERS_SECONDS = 0.25
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "*": "127.0.0.1"}  # noqa: S104  # to be replaced, not bound

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    # Otherwise gRPC refuses between the two at random.
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MILLIS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLIS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MILLIS),
    # A caller at its limit opens the next call as soon as one has ended for it. With this on, calls that are still being
    # tidied up count too, and that next one is refused; what it protects from (opening and resetting at once), lanes do.
    ("grpc.http.overload_protection", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    # Two processes on one port would share its connections in silence.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)

Settings = TypeVar("Settings", bound=ServiceSettings)


class ServiceServer:
    """One gRPC server with health and reflection, from bind to clean end.

    Args:
        name: the component, such as `commitlog`; stands in logs.
        settings: address, address_file, ready_file, worker_count and metrics_address are used.

    Attributes:
        work: what a clean stop waits for.
        stopping: set when the end begins; tails and background loops watch it.
        lanes: the threads, by kind of call.
        address: the bound address, after `start`: `HOST:PORT` or `unix:/path`.
        meters: what is counted and timed; shown on the page for Prometheus.
        metrics_address: where the page for Prometheus is, after `start`; empty when there is none.
        health_address: where health is told without TLS, after `start`; empty when nowhere.
        tls: the certificate of this process, for those that it calls; None: no TLS.
    """

    def __init__(self, name: str, settings: ServiceSettings) -> None:
        self.name = name
        self.address = ""
        self._settings = settings
        self._log = structlog.get_logger(f"reput.{name}")
        self.work = OpenWork()
        self.lanes = Lanes(settings.worker_count)
        self.metrics_address = ""
        self.health_address = ""
        self._identities: dict[TlsFiles, TlsIdentity] = {}
        self.tls = self.identity_of(settings.tls_files) if settings.tls_files is not None else None
        self.meters = Meters()
        self.meters.counters += [EVENTS, tracing.SPANS]
        self._servicers: list[tuple[str, object]] = []
        self.stopping = self.work.stopping
        self._exit_code = 0
        self._is_ready = False
        # Whoever asks for the end writes a byte here. Not an Event: a Python signal handler runs only when the main
        # thread gets to it, never while that is about to wait for a lock, and may hold that very lock itself.
        self._stop_reader, self._stop_writer = os.pipe()
        os.set_blocking(self._stop_writer, False)
        weakref.finalize(self, _close_all, self._stop_reader, self._stop_writer)
        self._callbacks: list[Callable[[], object]] = []
        self._service_names: list[str] = []
        self._lock = threading.Lock()
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._interceptor = StatusInterceptor(self.work, self.lanes, self.meters)
        self._server = grpc.server(
            self.lanes.health,  # every handler names its own lane: services/interceptors.py
            interceptors=[self._interceptor],
            options=(
                *SERVER_OPTIONS,
                *_age_options(settings.connection_age_seconds),
                ("grpc.max_concurrent_streams", settings.worker_count * CONNECTION_CALL_COUNT_FACTOR),
            ),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._health.set(health.OVERALL_HEALTH, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._health.set(LIVENESS_NAME, health_pb2.HealthCheckResponse.SERVING)

    def add(self, service_name: str, add_to_server: Callable[[Any, grpc.Server], None], servicer: object) -> None:
        """Serve a servicer: its full service name, the generated `add_...Servicer_to_server`, and itself."""
        add_to_server(servicer, self._server)
        self._servicers.append((service_name, servicer))
        self._declare(service_name)

    def start(self) -> str:
        """Open the port and serve, health NOT_SERVING; the bound address, also written to `address_file`.

        Raises:
            InvalidSettingError: an address cannot be bound.
        """
        add_reflection(self._server, [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, *self._service_names])
        self.address = self._bind(self._settings.address)
        self._server.start()
        self.lanes.start()
        if self._settings.health_address:
            self.health_address = self._serve_health(self._settings.health_address)
        if self._settings.metrics_address:
            self.metrics_address = self._serve_metrics(self._settings.metrics_address)
        if self._settings.address_file is not None:
            write_atomically(self._settings.address_file, self.address + "\n")
        if self._is_ready:
            self._make_ready_file()
        self._log.info("server.listening", address=self.address)
        return self.address

    def guard_calls(self, guard: CallGuard) -> None:
        """Have this decide who may call what; before `start`."""
        self._interceptor.guard = guard

    @property
    def call_guard(self) -> CallGuard:
        """What decides it."""
        return self._interceptor.guard

    def note_ready(self) -> None:
        """What this serves from is open, or could not be opened: make `ready_file`, once the port is open too."""
        if not self._is_ready:
            self._is_ready = True
            if self.address:
                self._make_ready_file()

    def _make_ready_file(self) -> None:
        # Two threads may come here at the same time: then it is made twice.
        if self._settings.ready_file is not None:
            with contextlib.suppress(OSError):  # whoever waited for it has gone
                self._settings.ready_file.touch()

    def stop_on_signals(self) -> None:
        """Take SIGTERM and SIGINT as `stop`; for the main thread of a process that is only this server.

        A second signal changes nothing: Ctrl-C reaches a whole process group, and its leader may send SIGTERM too.
        """
        signal.set_wakeup_fd(self._stop_writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def set_serving(self, is_serving: bool) -> None:
        """Tell health checks, overall and for each service; without effect once the end has begun."""
        state = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        with self._lock:
            if self.stopping.is_set():
                return
            for name in (health.OVERALL_HEALTH, *self._service_names):
                self._health.set(name, state)
        self._log.info("server.serving" if is_serving else "server.not_serving")
        if is_serving:
            self.note_ready()

    def in_background(self, work: Callable[[], object], name: str = "recover") -> threading.Thread:
        """Run work in a daemon thread of its own; an exception there is logged and ends the process with code 1."""

        def run() -> None:
            try:
                work()
            except StoreError as error:
                self._log.error(f"{name}.failed", error=error.message, reason=error.reason(), **error.metadata)
                self.fail(1)
            except Exception:
                self._log.exception(f"{name}.failed")
                self.fail(1)

        thread = threading.Thread(target=run, name=f"{self.name}-{name}", daemon=True)
        thread.start()
        return thread

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call this at the end, after the last RPC; last registered, first called."""
        with self._lock:
            self._callbacks.append(callback)

    def fail(self, exit_code: int) -> None:
        """Begin the end with this exit code; the first code given stays."""
        self._exit_code = self._exit_code or exit_code
        self.stop()

    def stop(self) -> None:
        """Begin the end, as SIGTERM does; returns at once."""
        with contextlib.suppress(BlockingIOError):  # full of such requests
            os.write(self._stop_writer, b"\0")

    def serve_until_stopped(self) -> int:
        """Wait for a signal, `stop` or `fail`, end cleanly, and return the exit code."""
        waiting = select.poll()  # select() knows no descriptor above 1023
        waiting.register(self._stop_reader, select.POLLIN)
        waiting.poll()
        self._drain()
        while True:
            with self._lock:
                if not self._callbacks:
                    break
                callback = self._callbacks.pop()
            try:
                callback()
            except Exception:
                self._log.exception("server.stop_callback_failed")
                self._exit_code = self._exit_code or 1
        self._log.info("server.stopped", exit_code=self._exit_code)
        return self._exit_code

    def run(self) -> NoReturn:
        """`serve_until_stopped`, then leave the process.

        By `os._exit`: the interpreter's own end would wait for every worker thread, also for one whose cancelled call
        is stuck. All that must be kept was kept by the `on_stop` callbacks.
        """
        exit_code = self.serve_until_stopped()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(exit_code)

    def identity_of(self, files: TlsFiles) -> TlsIdentity:
        """What stands in these files; one for all that show it, so that a change is noticed, and logged, once.

        Raises:
            InvalidSettingError: see TlsIdentity.
        """
        if files not in self._identities:
            self._identities[files] = TlsIdentity(files)
        return self._identities[files]

    def _declare(self, service_name: str) -> None:
        if service_name not in self._service_names:
            self._service_names.append(service_name)
        self._health.set(service_name, health_pb2.HealthCheckResponse.NOT_SERVING)

    def _bind(self, address: str) -> str:
        is_socket = address.startswith("unix:")
        files = None if is_socket else self._settings.server_tls_files
        if self._settings.checks_identities:
            self.guard_calls(IdentityGuard(parse_identities(self._settings.allowed_identities)))
        try:
            if files is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, server_credentials(self.identity_of(files)))
        except RuntimeError as error:
            raise self._cannot_listen("address", address) from error
        if is_socket:
            os.chmod(address.removeprefix("unix:"), SOCKET_MODE)
            return address
        return _reachable(address, port)

    def _serve_health(self, address: str) -> str:
        server = grpc.server(
            futures.ThreadPoolExecutor(HEALTH_THREAD_COUNT, thread_name_prefix="health"),
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=HEALTH_CALL_COUNT_MAX,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise self._cannot_listen("health_address", address) from error
        server.start()
        self.on_stop(lambda: server.stop(None))
        return _reachable(address, port)

    def _cannot_listen(self, name: str, address: str) -> InvalidSettingError:
        return InvalidSettingError(
            f"{self.name} cannot listen at {address}: the address is taken or not of this machine",
            name=name,
            source=address,
        )

    def _serve_metrics(self, address: str) -> str:
        from services.metrics import Metrics  # 20 ms that only those pay who ask for it

        metrics = Metrics(self.lanes, self.meters)
        for service_name, servicer in self._servicers:
            metrics.add_service(service_name, servicer)
        bound = metrics.serve(address)
        self.on_stop(metrics.close)
        return bound

    def _drain(self) -> None:
        with self._lock:
            self.stopping.set()
            self._health.enter_graceful_shutdown()
        stopped = self._server.stop(GRACE_SECONDS)
        if not self.work.wait_until_done(GRACE_SECONDS):
            self._log.warning("server.grace_over", seconds=GRACE_SECONDS)
        # A shorter grace takes the place of the longer one: idle streams need not be waited for.
        self._server.stop(LAST_ANSWERS_SECONDS)
        stopped.wait(GRACE_SECONDS)
        self.lanes.watch.stop()


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main(
    component: str,
    model: type[Settings],
    serve: Callable[[ServiceServer, Settings, Origins], None],
    argv: Sequence[str] | None = None,
) -> NoReturn:
    """Run a component's process: see the top of this module."""
    try:
        settings, origins = load_from_process(component, model, argv)
        configure_logging(component, settings.log_level)
        loading.switch(settings.kernels)
        tracing.switch_on(component, settings.otlp_endpoint)
    except InvalidSettingError as error:
        print_and_exit(error)
    if settings.parent_pid is not None:
        parent_watch.die_with_parent(settings.parent_pid)
    if origins.ignored_names:
        structlog.get_logger(f"reput.{component}").warning(
            "settings.ignored", source=origins.ignored_source, names=list(origins.ignored_names)
        )
    try:
        server = ServiceServer(component, settings)
        server.stop_on_signals()
        server.on_stop(tracing.switch_off)
        serve(server, settings, origins)
        server.start()
    except InvalidSettingError as error:
        print_and_exit(error)
    server.run()


def _age_options(seconds: int) -> tuple[tuple[str, int], ...]:
    """What has callers connect anew; no grace is set, so that a stream under way stays as long as it likes."""
    return (("grpc.max_connection_age_ms", seconds * 1000),) if seconds else ()


def _reachable(address: str, port: int) -> str:
    """Where this machine finds what listens at an address."""
    host = address.rpartition(":")[0]
    return f"{WILDCARD_HOSTS.get(host, host)}:{port}"


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or none of it."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)
