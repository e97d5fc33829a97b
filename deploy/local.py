"""Starts, watches and stops the four services on one machine together.

Rules of this file:
- The children stay in the process group of this process. The kernel kills them when the thread that started them ends, also
  when this process is killed: each child asks for it at its start, given `REPUT_PARENT_PID`. So that thread must outlive them.
- Only the gateway has a port of its own. The inner three listen on sockets in a private directory, unless a setting
  (`REPUT_COMMITLOG_ADDRESS`, ...) names an address, so that two stacks never clash.
- A clean stop goes against the flow of a request: gateway first, then the builders, then the commit log, so that no service
  calls one that has already stopped.
- A child that ends unexpectedly ends the stack, with that child's exit code.
- The children report their progress by files in that directory. This process does not load gRPC, which would take 30 MiB
  permanently and a tenth of the start time, unless it shows the progress of a long recovery.
"""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from deploy.progress import RecoveryDisplay
from services.settings.setting_names import COMMAND_ENVIRONMENT_NAMES

STOP_ORDER = (("gateway",), ("consumequeue", "index"), ("commitlog",))
MODULES = {
    "commitlog": "commitlog_svc",
    "consumequeue": "consumequeue_svc",
    "index": "index_svc",
    "gateway": "gateway",
}
CALLEES = {
    "commitlog": (),
    "consumequeue": ("commitlog",),
    "index": ("commitlog",),
    "gateway": ("commitlog", "consumequeue", "index"),
}
GATEWAY_PORT_DEFAULT = 8081
CONSOLE_ADDRESS_FILE = "console.address"
DRAIN_SECONDS_MAX = 15.0  # a service's own grace is 5 s; a builder may have to finish a flush
POLL_SECONDS = 0.02
PROBE_SECONDS_MAX = 1.0
# Opening queues and index takes tenths of a second; `reput status` shows one that takes longer.
OPEN_SECONDS_MAX = 10.0
SOCKET_PATH_BYTES_MAX = 100  # the kernel allows 107 (sockaddr_un); the rest is a reserve
CLIENT_VARIABLES = COMMAND_ENVIRONMENT_NAMES  # settings of the command that services do not need, API keys among them
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ROOT = pathlib.Path(__file__).resolve().parent.parent


class ChildDiedError(Exception):
    """A service ended unexpectedly.

    Args:
        name: the service.
        exit_code: its exit code; 128 + n when signal n ended it; never 0.
    """

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(f"{name} ended with exit code {exit_code}; its last lines above say why")
        self.name = name
        self.exit_code = exit_code


class StopAskedError(Exception):
    """A signal asked for the stop."""


class LocalStack:
    """The four services on one store root.

    Args:
        store: the store root.
        read_only: write nothing under it.
        gateway_port: where the gateway listens on loopback; 0 takes a free port; None: its setting, or 8081.
        console_port: the same for the console; None: its setting, or 8080 if that is free.
        port_file: the file to write the addresses to, once every service answers and the log is recovered.
        environ: the environment that settings come from; default: this process's own.

    Attributes:
        addresses: by service name, once `start` has returned; `console` too, if there is one.
    """

    def __init__(
        self,
        store: pathlib.Path,
        *,
        read_only: bool = False,
        gateway_port: int | None = None,
        console_port: int | None = None,
        port_file: pathlib.Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store.absolute()
        self._read_only = read_only
        self._gateway_port = gateway_port
        self._console_port = console_port
        self._port_file = port_file.absolute() if port_file else None
        given = os.environ if environ is None else environ
        self._environ = {variable: value for variable, value in given.items() if variable not in CLIENT_VARIABLES}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self.addresses: dict[str, str] = {}

    def run(self) -> int:
        """Start, serve until a signal or the end of a service, stop; returns the exit code."""
        with self.started() as failure:
            if failure is not None:
                return failure
            how = " read-only" if self._read_only else ""
            console = f", console http://{self.addresses['console']}/" if "console" in self.addresses else ""
            say(f"serving {self._store}{how}, gateway {self.addresses['gateway']}{console}")
            return self.wait()

    @contextlib.contextmanager
    def started(self) -> Iterator[int | None]:
        """The services run inside the block and are stopped after it; yields an exit code when they did not start, else None.

        Raises:
            InvalidSettingError: a setting is unknown or unusable; nothing was started.
        """
        with _signals_as_bytes() as wakeups, _short_directory() as scratch:
            self._wakeups = wakeups
            try:
                try:
                    self._start(scratch)
                except ChildDiedError as death:
                    say(str(death))
                    yield death.exit_code
                except StopAskedError:
                    yield 0
                else:
                    yield None
            finally:
                self._stop()

    def wait(self) -> int:
        """Return when a signal asks for the stop (0) or a child has ended (its exit code; prints which child)."""
        try:
            while not self._stopping:
                self._check(timeout_seconds=None)
        except ChildDiedError as death:
            say(str(death))
            return death.exit_code
        except StopAskedError:
            pass
        return 0

    def check(self) -> None:
        """Raise StopAskedError or ChildDiedError if one of these has happened, without waiting."""
        self._check(timeout_seconds=0)

    def _start(self, scratch: pathlib.Path) -> None:
        if self._port_file:
            self._port_file.unlink(missing_ok=True)
        listen = self._listen_addresses(scratch)
        address_files = {name: scratch / f"{name}.address" for name in MODULES}
        ready_files = {name: scratch / f"{name}.ready" for name in MODULES}
        known = {name: address for name, address in listen.items() if address.startswith("unix:")}
        for name in MODULES:
            # A service may have port 0 as its setting: its callers must know the port that it chose.
            for callee in CALLEES[name]:
                if callee not in known:
                    known[callee] = self._bound_address(callee, address_files[callee])
            settings = self._settings(name, listen[name], known)
            settings["REPUT_ADDRESS_FILE"] = str(address_files[name])
            settings["REPUT_READY_FILE"] = str(ready_files[name])
            if name == "gateway":
                settings |= self._console_settings(scratch)
            self._spawn(name, settings)
        self.addresses = {name: self._bound_address(name, path) for name, path in address_files.items()}
        with contextlib.suppress(FileNotFoundError):  # the gateway has written it before its own, if there is a console
            self.addresses["console"] = (scratch / CONSOLE_ADDRESS_FILE).read_text(encoding="utf-8").strip()
        self._wait_until_ready(ready_files)
        if self._port_file:
            _write_by_rename(self._port_file, json.dumps(self.addresses) + "\n")

    def _listen_addresses(self, scratch: pathlib.Path) -> dict[str, str]:
        from services.settings.setting_sources import DEFAULT, config_rows

        rows, _ = config_rows(environ=self._environ)
        set_rows = {
            row.setting.component: row for row in rows if row.setting.name == "address" and row.origin != DEFAULT
        }
        listen = {name: set_rows[name].value if name in set_rows else "" for name in MODULES}
        for name in MODULES:
            if name != "gateway" and not listen[name]:
                listen[name] = f"unix:{scratch / name}.sock"
        if self._gateway_port is not None or not listen["gateway"]:
            port = GATEWAY_PORT_DEFAULT if self._gateway_port is None else self._gateway_port
            listen["gateway"] = f"127.0.0.1:{port}"
        return listen

    def _settings(self, name: str, address: str, known: Mapping[str, str]) -> dict[str, str]:
        settings = dict(self._environ)
        settings["REPUT_STORE"] = str(self._store)
        if self._read_only:
            settings["REPUT_READ_ONLY"] = "true"
        settings[f"REPUT_{name.upper()}_ADDRESS"] = address
        settings["REPUT_PARENT_PID"] = str(os.getpid())
        for callee, callee_address in known.items():
            if callee != name:
                settings[f"REPUT_{callee.upper()}_TARGET"] = callee_address
        roots = [str(ROOT), str(ROOT / "protos"), settings.get("PYTHONPATH", "")]
        settings["PYTHONPATH"] = os.pathsep.join(root for root in roots if root)
        return settings

    def _console_settings(self, scratch: pathlib.Path) -> dict[str, str]:
        settings = {"REPUT_GATEWAY_CONSOLE_ADDRESS_FILE": str(scratch / CONSOLE_ADDRESS_FILE)}
        if self._console_port is not None:
            settings["REPUT_GATEWAY_CONSOLE_ADDRESS"] = f"127.0.0.1:{self._console_port}"
        return settings

    def _spawn(self, name: str, settings: Mapping[str, str]) -> None:
        # -P: a module in the working directory must not take a service's place.
        command = [sys.executable, "-P", "-m", MODULES[name]]
        # Ctrl-C and a hang-up reach the whole process group. The children inherit them blocked, because this process
        # stops them in the right order.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        try:
            self._children[name] = subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

    def _bound_address(self, name: str, address_file: pathlib.Path) -> str:
        while True:
            with contextlib.suppress(FileNotFoundError):
                return address_file.read_text(encoding="utf-8").strip()
            self._check(timeout_seconds=POLL_SECONDS)

    def _wait_until_ready(self, ready_files: Mapping[str, pathlib.Path]) -> None:
        """Wait until the log is recovered, then at most OPEN_SECONDS_MAX until queues and index are open."""
        with RecoveryDisplay(say) as display:
            while not ready_files["commitlog"].exists():
                if display.wants_update():
                    self._show_recovery(display)
                self._check(timeout_seconds=POLL_SECONDS)
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        for ready_file in ready_files.values():
            while not ready_file.exists() and time.monotonic() < deadline:
                self._check(timeout_seconds=POLL_SECONDS)

    def _show_recovery(self, display: RecoveryDisplay) -> None:
        from services.calling.commitlog import CommitLogClient
        from store.errors import StoreError

        with (
            contextlib.closing(CommitLogClient(self.addresses["commitlog"])) as client,
            contextlib.suppress(StoreError),
        ):
            display.update(client.get_status(timeout_seconds=PROBE_SECONDS_MAX).recovery)

    def _check(self, timeout_seconds: float | None) -> None:
        ready, _, _ = select.select([self._wakeups], [], [], timeout_seconds)
        if ready:
            received = self._wakeups.recv(4096)
            if any(number in received for number in STOP_SIGNALS):
                self._stopping = True
                raise StopAskedError
        for name, child in self._children.items():
            if child.poll() is not None:
                raise ChildDiedError(name, _exit_code(child.returncode))

    def _stop(self) -> None:
        self._stopping = True
        for names in STOP_ORDER:
            running = [self._children[name] for name in names if name in self._children]
            for child in running:
                if child.poll() is None:
                    child.terminate()
            deadline = time.monotonic() + DRAIN_SECONDS_MAX
            for child in running:
                try:
                    child.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        if self._port_file and self.addresses:
            self._port_file.unlink(missing_ok=True)


def say(text: str) -> None:
    """Print one line on stderr."""
    print(f"reput: {text}", file=sys.stderr, flush=True)


def _exit_code(returncode: int) -> int:
    """The exit code for a child that ended unexpectedly: 128 + n for signal n, as in a shell; never 0."""
    return 128 - returncode if returncode < 0 else returncode or 1


def _write_by_rename(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


@contextlib.contextmanager
def _short_directory() -> Iterator[pathlib.Path]:
    """A private directory whose path leaves room for a socket's name."""
    path = tempfile.mkdtemp(prefix="reput-")
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX - len("consumequeue.sock"):
        os.rmdir(path)
        path = tempfile.mkdtemp(prefix="reput-", dir="/tmp")  # mkdtemp makes it private
    try:
        yield pathlib.Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _signals_as_bytes() -> Iterator[socket.socket]:
    """Stop signals and ends of children arrive as bytes on a socket, so that one `select` waits for all of them."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    handled = (*STOP_SIGNALS, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in handled}
    for number in handled:
        signal.signal(number, lambda _number, _frame: None)
    wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
