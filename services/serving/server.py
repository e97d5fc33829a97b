"""How a service is served: bind, health, reflection, and a clean end.

    def serve(server: ServiceServer, settings: CommitLogSettings, origins: Origins) -> None:
        servicer = CommitLogServicer()              # answers StoreRecoveringError until it is given its log
        server.add("reput.commitlog.v1.CommitLogService", pb_grpc.add_CommitLogServiceServicer_to_server, servicer)

        log.hold()                                  # the lock of its files, before a socket is made
        def recover() -> None:                      # runs in a thread of its own, after the port is open
            ...
            server.on_stop(log.close)               # after the last call; last registered, first called
            server.set_serving(True)

        server.in_background(recover)               # an exception there is logged and ends the service with code 1

    SERVICE = Service("commitlog", CommitLogSettings, serve)

    if __name__ == "__main__":
        main(SERVICE)

A service runs in a process of its own (services/serving/process.py) or beside others in one (services/serving/hosted.py).
Nothing in this file changes the process: no signal, no exit, no logging. Handlers get their caller's deadline from
`services.serving.deadline.remaining_seconds(context, default)`. Tails watch `server.stopping`.

The end: NOT_SERVING; no new calls; 5 s for open work (services/serving/interceptors.py); the rest is cancelled; then the
`on_stop` callbacks; the exit code is 0, or the code that `fail` was given. `close` then releases what a process would keep
until its end: threads, and the descriptors of the stop signal.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services.observing import tracing
from services.observing.meters import Meters
from services.observing.telemetry import EVENTS
from services.serving.call_guard import CallGuard
from services.serving.calls import grpc_private
from services.serving.calls.direct_call import DirectChannel, handler_details
from services.serving.calls.open_work import OpenWork
from services.serving.calls.raw_handlers import AnyHandler, Registry
from services.serving.identity import IdentityGuard
from services.serving.interceptors import StatusInterceptor
from services.serving.lanes import Lanes
from services.serving.reflection import add_reflection
from services.serving.server_options import health_options, options_of
from services.serving.stop_signal import StopSignal
from services.serving.tls import TlsIdentity, server_credentials
from services.settings.certificates import TlsFiles, parse_identities
from services.settings.service_settings import Origins, ServiceSettings
from store.errors import InvalidSettingError, StoreError, StoreLockedError, failure_fields
from store.files.socket_file import SocketFile, UnixAddress

GRACE_SECONDS = 5.0
# Health answers SERVING for this name as long as the process runs: a liveness probe must not end a service that recovers.
LIVENESS_NAME = "liveness"
# On a shard with replicas: SERVING for this name while the replica leads, or has all that is confirmed and may lead next.
IN_SYNC_NAME = "in-sync"
# Probes come two or three times a minute; further calls are refused.
HEALTH_THREAD_COUNT = 2
HEALTH_CALL_COUNT_MAX = 64
# Time to write the last answers of finished handlers.
LAST_ANSWERS_SECONDS = 0.25
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "*": "127.0.0.1"}  # noqa: S104  # replaced, not bound

# After the end, for threads of calls that were cancelled.
THREADS_SECONDS = 5.0

Settings = TypeVar("Settings", bound=ServiceSettings)


class ServiceServer:
    """One gRPC server with health and reflection, from bind to clean end.

    Args:
        name: the component, such as `commitlog`; stands in logs.
        settings: address, address_file, ready_file, worker_count and metrics_address are used.
        is_hosted: other services run in this process, and make their lookups without a socket (services/local/in_process.py).

    Attributes:
        work: a clean stop waits for it.
        stopping: set when the end begins; tails and background threads watch it.
        stop_signal: begins the end.
        exit_code: of the service; 0 until `fail` is called.
        failure: the error of work in the background that began the end; None when there is none.
        lanes: the pools of threads.
        address: the bound address, after `start`: `HOST:PORT` or `unix:/path`.
        meters: counts and times for the metrics page.
        metrics_address: address of the metrics page, after `start`; empty when there is none.
        health_address: address of health without TLS, after `start`; empty when there is none.
        tls: the certificate that this process shows to services that it calls; None: no TLS.
    """

    def __init__(self, name: str, settings: ServiceSettings, *, is_hosted: bool = False) -> None:
        grpc_private.check()
        self.name = name
        self.is_hosted = is_hosted
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
        self.meters.gauges += self.lanes.gauges()
        self._servicers: list[tuple[str, object]] = []
        self.stopping = self.work.stopping
        self.listening = threading.Event()
        self.exit_code = 0
        self.failure: StoreError | None = None
        self._is_ready = False
        self._unix_address = UnixAddress.of(settings.address)
        self._socket_file: SocketFile | None = None
        self.stop_signal = StopSignal()
        self._callbacks: list[Callable[[], object]] = []
        self._is_over = False  # the callbacks were called
        self._background: list[threading.Thread] = []
        self._drain_callbacks: list[Callable[[], object]] = []
        self._service_names: list[str] = []
        self._lock = threading.Lock()
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._interceptor = StatusInterceptor(self.work, self.lanes, self.meters)
        self._server = grpc.server(
            self.lanes.health,  # each handler names its own lane: services/serving/interceptors.py
            interceptors=[self._interceptor],
            options=options_of(settings),
        )
        self._registry: Any = Registry(self._server)  # stands for a grpc.Server
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._health.set(health.OVERALL_HEALTH, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._health.set(LIVENESS_NAME, health_pb2.HealthCheckResponse.SERVING)

    def add(self, service_name: str, add_to_server: Callable[[Any, grpc.Server], None], servicer: object) -> None:
        """Serve a servicer: the full name of its service, the generated `add_...Servicer_to_server`, and the servicer."""
        add_to_server(servicer, self._registry)
        self._servicers.append((service_name, servicer))
        self._declare(service_name)

    def direct_channel(self, open_channel: Callable[[], grpc.Channel]) -> DirectChannel:
        """A channel for the program that hosts this service; `open_channel` opens one for what is not called directly."""

        def handler_of(path: str) -> AnyHandler | None:
            handler = self._registry.of(path)
            if handler is None or handler.request_streaming or handler.response_streaming:
                return None
            return self._interceptor.intercept_service(lambda _details: handler, handler_details(path))

        return DirectChannel(handler_of, self.work, open_channel)

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
        self.listening.set()
        self._log.info("server.listening", address=self.address)
        return self.address

    def hold_address(self) -> None:
        """Take a unix address for this process alone; before any of its sockets is made.

        Raises:
            InvalidSettingError: another process has it, or its directory is not there.
        """
        try:
            if self._unix_address is not None:
                self._unix_address.hold()
        except (OSError, StoreLockedError) as error:
            address = self._settings.address
            raise InvalidSettingError(
                f"{self.name} cannot listen at {address}: {error}", name="address", source=address
            ) from error

    def on_drain(self, callback: Callable[[], object]) -> None:
        """Call this when the end begins and no new call is taken, to end calls that would wait on."""
        with self._lock:
            self._drain_callbacks.append(callback)

    def guard_calls(self, guard: CallGuard) -> None:
        """Set the guard that decides which callers may call which methods; before `start`."""
        self._interceptor.guard = self.lanes.callers.guard = guard

    @property
    def call_guard(self) -> CallGuard | None:
        """The guard; None: no check."""
        return self._interceptor.guard

    def note_ready(self) -> None:
        """The files behind the service are open, or could not be opened: make `ready_file` when the port is open, too."""
        if not self._is_ready:
            self._is_ready = True
            if self.address:
                self._make_ready_file()

    def _make_ready_file(self) -> None:
        # Two threads may be here at the same time; making the file twice does no harm.
        if self._settings.ready_file is not None:
            with contextlib.suppress(OSError):  # the process that waited for it has gone
                self._settings.ready_file.touch()

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

    def set_health(self, name: str, is_serving: bool) -> None:
        """Tell health checks that ask for this name; without effect once the end has begun."""
        state = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        with self._lock:
            if not self.stopping.is_set():
                self._health.set(name, state)

    def in_background(self, work: Callable[[], object], name: str = "recover") -> threading.Thread:
        """Run work in a daemon thread of its own; an exception there is logged and ends the service with code 1."""

        def run() -> None:
            try:
                work()
            except StoreError as error:
                self.failure = self.failure or error
                self.log_failure(name, error)
                self.fail(1, error.message)
            except Exception as error:
                self._log.exception(f"{name}.failed")
                self.fail(1, repr(error))

        thread = threading.Thread(target=run, name=f"{self.name}-{name}", daemon=True)
        with self._lock:
            self._background.append(thread)
        thread.start()
        return thread

    def log_failure(self, work: str, error: StoreError) -> None:
        """Log that work of the process failed, as `<work>.failed`."""
        self._log.error(f"{work}.failed", **failure_fields(error))

    def leave_cause(self, cause: str) -> None:
        """Write into `ready_file` why this process ends, for the process that started it; nothing when it is empty."""
        if self._settings.ready_file is not None and cause:
            with contextlib.suppress(OSError):  # the process that waited for it has gone
                write_atomically(self._settings.ready_file, cause)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call this at the end, after the last RPC; the last one registered is called first. After the end: now."""
        with self._lock:
            if not self._is_over:
                self._callbacks.append(callback)
                return
        callback()

    def fail(self, exit_code: int, cause: str = "") -> None:
        """Begin the end with this exit code; the first code given stays. The cause goes into `ready_file`."""
        self.exit_code = self.exit_code or exit_code
        self.leave_cause(cause)
        self.stop()

    def stop(self) -> None:
        """Begin the end, as SIGTERM does; returns at once."""
        self.stop_signal.give()

    def serve_until_stopped(self) -> int:
        """Wait for `stop`, `fail` or a signal that was made to begin the end, end cleanly, and return the exit code."""
        self.stop_signal.wait()
        self._drain()
        while True:
            with self._lock:
                self._is_over = not self._callbacks
                if self._is_over:
                    break
                callback = self._callbacks.pop()
            try:
                callback()
            except Exception:
                self._log.exception("server.stop_callback_failed")
                self.exit_code = self.exit_code or 1
        if self._unix_address is not None:
            self._unix_address.release()
        self._log.info("server.stopped", exit_code=self.exit_code)
        return self.exit_code

    def close(self) -> None:
        """After the end, where the process lives on: end the threads and close the stop signal.

        A thread that still works after THREADS_SECONDS is left behind and named in the log.
        """
        deadline = time.monotonic() + THREADS_SECONDS
        stuck = self.lanes.close(THREADS_SECONDS)
        for thread in self._background:
            thread.join(max(0.0, deadline - time.monotonic()))
            stuck += [thread.name] if thread.is_alive() else []
        if stuck:
            self._log.error("server.threads_left", threads=stuck, seconds=THREADS_SECONDS)
        self.stop_signal.close()

    def identity_of(self, files: TlsFiles) -> TlsIdentity:
        """The certificate in these files. There is one TlsIdentity for them, so a change is noticed and logged once.

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
        unix_address = self._unix_address
        files = None if unix_address is not None else self._settings.server_tls_files
        if self._settings.checks_identities:
            self.guard_calls(IdentityGuard(parse_identities(self._settings.allowed_identities)))
        self.hold_address()
        try:
            if unix_address is not None:
                # gRPC unlinks what it is told to bind, at the begin and at the end, whosever it is.
                socket_file = SocketFile(unix_address.path)
                self._server.add_insecure_port(f"unix:{socket_file.bind_path}")
                socket_file.publish()
                self._socket_file = socket_file
                return address
            if files is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, server_credentials(self.identity_of(files)))
        except (RuntimeError, OSError) as error:
            raise self._cannot_listen("address", address, error) from error
        return _reachable(address, port)

    def _serve_health(self, address: str) -> str:
        pool = futures.ThreadPoolExecutor(HEALTH_THREAD_COUNT, thread_name_prefix="health")
        server = grpc.server(
            pool,
            options=health_options(),
            maximum_concurrent_rpcs=HEALTH_CALL_COUNT_MAX,
        )
        health_pb2_grpc.add_HealthServicer_to_server(_Probes(self._health), server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise self._cannot_listen("health_address", address, error) from error
        server.start()
        self.on_stop(partial(pool.shutdown, wait=False))
        self.on_stop(lambda: server.stop(None))
        return _reachable(address, port)

    def _cannot_listen(self, name: str, address: str, error: RuntimeError | OSError) -> InvalidSettingError:
        # gRPC's own error, a RuntimeError, does not give the reason.
        gives_reason = isinstance(error, OSError)
        why = error if gives_reason else "another process listens there, or the address is not one of this machine"
        return InvalidSettingError(f"{self.name} cannot listen at {address}: {why}", name=name, source=address)

    def _serve_metrics(self, address: str) -> str:
        from services.observing.metrics import Metrics  # takes 20 ms, only with this setting

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
        if self._socket_file is not None:
            self._socket_file.remove()
        stopped = self._server.stop(GRACE_SECONDS)
        for callback in self._drain_callbacks:
            try:
                callback()
            except Exception:
                self._log.exception("server.stop_callback_failed")
        if not self.work.wait_until_done(GRACE_SECONDS):
            self._log.warning("server.grace_over", seconds=GRACE_SECONDS)
        # A shorter grace replaces the longer one: idle streams are not waited for.
        self._server.stop(LAST_ANSWERS_SECONDS)
        stopped.wait(GRACE_SECONDS)
        self.lanes.watch.stop()


class _Probes(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Health without `Watch`, which probes do not use: its streams would take the places of their calls."""

    def __init__(self, servicer: health.HealthServicer) -> None:
        self._servicer = servicer

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        return self._servicer.Check(request, context)


def tell_ignored(component: str, origins: Origins) -> None:
    """Log the names in a broker.conf that are no settings here."""
    if origins.ignored_names:
        structlog.get_logger(f"reput.{component}").warning(
            "settings.ignored", source=origins.ignored_source, names=list(origins.ignored_names)
        )


def _reachable(address: str, port: int) -> str:
    """The address under which this machine reaches a listener."""
    host = address.rpartition(":")[0]
    return f"{WILDCARD_HOSTS.get(host, host)}:{port}"


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or nothing."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)


@dataclass(frozen=True, slots=True)
class Service(Generic[Settings]):
    """A service as its `__main__` declares it.

    Attributes:
        component: `commitlog`, ...
        settings: the class of its settings.
        serve: puts the service onto a server.
    """

    component: str
    settings: type[Settings]
    serve: Callable[[ServiceServer, Settings, Origins], None]
