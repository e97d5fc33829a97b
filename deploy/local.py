"""Starts, watches and stops the six services on one machine together.

This is the only wiring of a stack: addresses, settings, order. Where the services run, each in a process of its own or all in
this one, is the host's choice (deploy/hosts.py).

Rules of this file:
- Processes stay in the process group of this process. The kernel kills them when the thread that started them ends, also when
  this process is killed: each child asks for it at its start, given `REPUT_PARENT_PID`. So that thread must outlive them.
- Only the gateway's process has ports of its own; in a private stack it has none. The others listen on sockets in a private
  directory, unless a setting (`REPUT_COMMITLOG_ADDRESS`, ...) names an address, so that two stacks never clash.
- The gateway's process hosts the name server (deploy/beside.py). Its port and that of the remoting door are chosen before any
  service starts, because the commit log registers the shard at the one with the other as its address. A default port that is
  taken is left out, and one line says so; the default ports of this stack are claimed, so that another one that starts at the
  same time leaves them out.
- The followers (consumer, consumequeue, index, schedule) share a process, and there one Reput stream, unless they shall be
  apart, or one of them calls an address that is not known before it listens. What ends one of them ends all (ADR 0169).
- A clean stop goes against the flow of a request: gateway first, then the consumer and schedule services, then the builders,
  then the commit log, so that no service calls one that has already stopped.
- A child that ends unexpectedly ends the stack, with that child's exit code. One end is expected: the broker whose log is
  followed or mirrored cut it. Then the commit log is started again, and the others find it at the same address.
- A replica of a shard has no gateway of its own, and its services listen on loopback. When its commit log ends, the others are
  killed: what they derive is rebuilt from the log. Exit code 4: the replica gives up its role and is to be started again.
- The children report their progress by files in that directory. This process calls none of them, because a process with the
  threads of gRPC must not fork (deploy/forks.py): only for the progress of a long recovery it does, when all have been started.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from deploy.hosts import Child, ChildDiedError, Processes, ServiceHost
from deploy.modules import FOLLOWERS, MODULES
from deploy.processes import STOP_SIGNALS, environ_of_services, exit_code_of, say, short_directory, write_by_rename
from deploy.progress import RecoveryDisplay
from deploy.remoting_ports import (
    OFF,
    REMOTING_SETTINGS,
    REMOTING_WORDS,
    Claims,
    Port,
    RemotingPorts,
    choose_remoting_ports,
    values_that_are_set,
)
from store.compiled import built, loading

STOP_ORDER = (("gateway",), ("consumer", "schedule"), ("consumequeue", "index"), ("commitlog",))
CALLEES = {
    "commitlog": (),
    "consumequeue": ("commitlog",),
    "index": ("commitlog",),
    "consumer": ("commitlog", "consumequeue"),
    "schedule": ("commitlog", "consumequeue"),
    "gateway": ("commitlog", "consumequeue", "index", "consumer", "schedule"),
}
GATEWAY_PORT_DEFAULT = 8081
EXIT_CODE_CHANGED = 4  # of the commit log: the log that it follows is another one; see commitlog_svc/__main__.py
CONSOLE_ADDRESS_FILE = "console.address"
DRAIN_SECONDS_MAX = 15.0  # a service's own grace is 5 s; a builder may have to finish a flush
POLL_SECONDS = 0.02
MIRROR_NICENESS = 19  # the threads of a broker on the same machine come first
PROBE_SECONDS_MAX = 1.0
# Opening queues and index takes tenths of a second; `reput status` shows one that takes longer.
OPEN_SECONDS_MAX = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a shard: its name, and the address of the coordinator (docs/replicas.md)."""

    name: str
    coordinator: str


def is_settled(address: str) -> bool:
    """Whether callers reach a service there before it has said where it listens."""
    host, _, port = address.rpartition(":")
    return address.startswith("unix:") or (port != "0" and host not in ("0.0.0.0", "[::]", "*"))  # noqa: S104  # not bound


class StopAskedError(Exception):
    """A signal asked for the stop."""


KERNEL = "store.walk.log_walk_kernel"  # where it is not compiled, none is


def line_on_kernels(environ: Mapping[str, str]) -> str | None:
    """What to say at the start where nothing is compiled; None where kernels are, or are switched off."""
    if environ.get(loading.SETTING, "").lower() == loading.OFF or built.binary_of(KERNEL).exists():
        return None
    return f"kernels: plain Python, 10 to 100 times slower, does their work: {built.HOW_TO_BUILD}"


class LocalStack:
    """The six services on one store root.

    Args:
        store: the store root.
        read_only: write nothing under it.
        mirror: the HA port of the broker whose log the store copies, `rocketmq://host:port`; None: its setting.
        mirror_broker: the broker's own port, `host:port`; None: its setting.
        derived: follow the log of a broker that runs on the store root, with queues and index here; None: serve the store.
        gateway_port: where the gateway listens on loopback; 0 takes a free port; None: its setting, or 8081.
        console_port: the same for the console; OFF: none; None: its setting, or 8080 if that is free.
        nameserver_port: the same for the name server, or 9876.
        remoting_port: the same for the gateway's remoting door, or 10911. Neither is there by default in a private stack,
            nor with the log of a broker, which has those ports.
        is_private: unless a setting names an address, the gateway has a socket beside those of the others, and no port.
        port_file: the file to write the addresses to, once every service answers and the log is recovered.
        replica: the services are a replica of a shard, without a gateway; the port file gets the pid of its commit log, too.
        followers_apart: each follower of the log has a process of its own.
        environ: the environment that settings come from; default: this process's own.
        host: where the services run; default: each in a process of its own.
        say: prints a line about the stack.

    Attributes:
        addresses: by service name, once `start` has returned; `console`, `nameserver` and `remoting`, too, if there are such.
        death: the unexpected end of a service; None while there is none.
        stop_exit_code: that of a service that had to be killed at the stop; 0 where all ended by themselves.
    """

    def __init__(
        self,
        store: pathlib.Path,
        *,
        read_only: bool = False,
        mirror: str | None = None,
        mirror_broker: str | None = None,
        derived: pathlib.Path | None = None,
        gateway_port: int | None = None,
        console_port: Port = None,
        nameserver_port: Port = None,
        remoting_port: Port = None,
        is_private: bool = False,
        port_file: pathlib.Path | None = None,
        replica: Replica | None = None,
        followers_apart: bool = False,
        environ: Mapping[str, str] | None = None,
        host: ServiceHost | None = None,
        say: Callable[[str], None] = say,
    ) -> None:
        self._host = Processes() if host is None else host
        self._say = say
        self._store = store.absolute()
        self._read_only = read_only
        self._derived = derived.absolute() if derived else None
        self._gateway_port = gateway_port
        self._console_port = console_port
        self._remoting_ports: dict[str, Port] = {"nameserver": nameserver_port, "remoting": remoting_port}
        self._claims = Claims()
        self._set_values: Mapping[tuple[str, str], str] | None = None
        self._remoting = RemotingPorts()
        self._is_private = is_private
        self._port_file = port_file.absolute() if port_file else None
        self._replica = replica
        self._followers_apart = followers_apart
        self._modules = {name: MODULES[name] for name in CALLEES if name != "gateway" or replica is None}
        self._environ = environ_of_services(os.environ if environ is None else environ)
        self._environ |= {"REPUT_MIRROR": mirror} if mirror else {}
        self._environ |= {"REPUT_MIRROR_BROKER": mirror_broker} if mirror_broker else {}
        # A commit log that copies the log of a broker begins anew where that one went on.
        self._follows_broker = bool(self._derived or self._environ.get("REPUT_MIRROR"))
        self._children: dict[str, Child] = {}
        self._spawned: dict[str, Mapping[str, str]] = {}
        self._ready_files: dict[str, pathlib.Path] = {}
        self._stopping = False
        self.addresses: dict[str, str] = {}
        self.death: ChildDiedError | None = None
        self.stop_exit_code = 0

    def run(self) -> int:
        """Start, serve until a signal or the end of a service, stop; returns the exit code."""
        return self._run() or self.stop_exit_code

    def _run(self) -> int:
        if self._follows_broker:
            os.nice(MIRROR_NICENESS)
        with self.started() as failure:
            if failure is not None:
                return failure
            if self._replica is not None:
                self._say(f"serving {self._store} as {self._replica.name}, commitlog {self.addresses['commitlog']}")
                return self.wait()
            how = (
                " read-only"
                if self._read_only
                else f" beside its broker, with {self._derived}"
                if self._derived
                else ""
            )
            console = f", console http://{self.addresses['console']}/" if "console" in self.addresses else ""
            remoting = "".join(
                f", {words} {self.addresses[key]}" for key, words in REMOTING_WORDS.items() if key in self.addresses
            )
            self._say(f"serving {self._store}{how}, gateway {self.addresses['gateway']}{remoting}{console}")
            if line := line_on_kernels(self._environ):
                self._say(line)
            return self.wait()

    @contextlib.contextmanager
    def started(self) -> Iterator[int | None]:
        """The services run inside the block and are stopped after it; yields an exit code when they did not start, else None.

        Raises:
            InvalidSettingError: a setting is unknown or unusable; nothing is left running.
        """
        with self._host.wakeups() as wakeups, short_directory() as scratch:
            self._wakeups = wakeups
            try:
                try:
                    self._start(scratch)
                except ChildDiedError as death:
                    self._died(death)
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
            self._died(death)
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
        if self._replica is None:  # it has no gateway
            self.choose_remoting_ports()
        address_files = {name: scratch / f"{name}.address" for name in self._modules}
        self._ready_files = ready_files = {name: scratch / f"{name}.ready" for name in self._modules}
        called = {callee for callees in CALLEES.values() for callee in callees}
        known = {name: listen[name] for name in called if listen[name].startswith("unix:")}
        beside = {"gateway": self._remoting.beside_gateway}
        together: dict[str, str] = {}  # settings of followers that wait for the last one of them
        if self._have_one_process(listen):
            beside[FOLLOWERS[0]] = FOLLOWERS[1:]
            known |= {name: listen[name] for name in FOLLOWERS if is_settled(listen[name])}
        for name in self._modules:
            # A service may have port 0 as its setting: its callers must know the port that it chose.
            for callee in CALLEES[name]:
                if callee not in known:
                    known[callee] = self._bound_address(callee, address_files[callee])
            settings = self._settings(name, listen[name], known)
            settings["REPUT_ADDRESS_FILE"] = str(address_files[name])
            settings["REPUT_READY_FILE"] = str(ready_files[name])
            if name == "gateway":
                settings |= self._console_settings(scratch)
            settings |= self.remoting_settings(name, scratch)
            if name in FOLLOWERS and FOLLOWERS[0] in beside:
                together |= settings
                if name != FOLLOWERS[-1]:
                    continue
                first = FOLLOWERS[0]
                files = {"REPUT_ADDRESS_FILE": str(address_files[first]), "REPUT_READY_FILE": str(ready_files[first])}
                self._spawn(first, together | files, beside[first])
            else:
                self._spawn(name, settings, beside.get(name, ()))
        self.addresses = {name: self._bound_address(name, path) for name, path in address_files.items()}
        with contextlib.suppress(FileNotFoundError):  # the gateway has written it before its own, if there is a console
            self.addresses["console"] = (scratch / CONSOLE_ADDRESS_FILE).read_text(encoding="utf-8").strip()
        self.addresses |= self._remoting.bound
        self._wait_until_ready(ready_files)
        if self._port_file:
            pid = {} if self._replica is None else {"pid": self._children["commitlog"].pid}
            write_by_rename(self._port_file, json.dumps(self.addresses | pid) + "\n")

    def _have_one_process(self, listen: Mapping[str, str]) -> bool:
        """Whether the followers share a process: those that others of them call must be at addresses that are known now."""
        called = {callee for name in FOLLOWERS for callee in CALLEES[name] if callee in FOLLOWERS}
        return (
            self._host.has_processes and not self._followers_apart and all(is_settled(listen[name]) for name in called)
        )

    def _listen_addresses(self, scratch: pathlib.Path) -> dict[str, str]:
        listen = {name: self._set_value(name, "address") for name in self._modules}
        for name in self._modules:
            if not listen[name] and (name != "gateway" or self._is_private):
                listen[name] = f"unix:{scratch / name}.sock" if self._replica is None else "127.0.0.1:0"
        if self._replica is not None:
            return listen
        if self._gateway_port is not None or not listen["gateway"]:
            port = GATEWAY_PORT_DEFAULT if self._gateway_port is None else self._gateway_port
            listen["gateway"] = f"127.0.0.1:{port}"
        return listen

    def _settings(self, name: str, address: str, known: Mapping[str, str]) -> dict[str, str]:
        settings = dict(self._environ)
        settings["REPUT_STORE"] = str(self._store)
        if self._read_only:
            settings["REPUT_READ_ONLY"] = "true"
        if self._derived:
            settings |= {"REPUT_FOLLOW": "true", "REPUT_DERIVED": str(self._derived)}
        settings[f"REPUT_{name.upper()}_ADDRESS"] = address
        if self._replica is not None:
            settings["REPUT_COMMITLOG_REPLICA_NAME"] = self._replica.name
            settings["REPUT_COMMITLOG_COORDINATOR"] = self._replica.coordinator
        for callee, callee_address in known.items():
            if callee != name:
                settings[f"REPUT_{callee.upper()}_TARGET"] = callee_address
        return settings

    def _console_settings(self, scratch: pathlib.Path) -> dict[str, str]:
        settings = {"REPUT_GATEWAY_CONSOLE_ADDRESS_FILE": str(scratch / CONSOLE_ADDRESS_FILE)}
        if self._console_port == OFF:
            settings["REPUT_GATEWAY_CONSOLE"] = OFF
        elif self._console_port is not None:
            settings["REPUT_GATEWAY_CONSOLE_ADDRESS"] = f"127.0.0.1:{self._console_port}"
        return settings

    def _set_value(self, component: str, name: str) -> str:
        """A setting of the environment or a file; empty where there is none but its default."""
        if self._set_values is None:
            self._set_values = values_that_are_set(self._environ)
        return self._set_values.get((component, name), "")

    def _has_log_of_broker(self) -> bool:
        """Whether a broker has the log, and the ports of its clients."""
        is_followed = self._set_value("", "follow").lower() in ("true", "1")
        return self._follows_broker or is_followed or bool(self._set_value("", "mirror"))

    def choose_remoting_ports(self) -> None:
        """Choose where the name server and the remoting door are to listen."""
        if self._has_log_of_broker():
            if any(self._set_value(*names) not in ("", OFF) for *names, _ in REMOTING_SETTINGS.values()):
                self._say("no name server and no remoting door: remoting clients reach the broker that has the log")
            return
        self._remoting = choose_remoting_ports(
            self._remoting_ports, self._set_value, self._say, is_on=not self._is_private, claims=self._claims.take
        )

    def remoting_settings(self, name: str, scratch: pathlib.Path) -> dict[str, str]:
        """What the commit log and the gateway are told of both ports."""
        if name == "commitlog":
            return self._remoting.of_commitlog(self._set_value("", "nameservers"))
        if name == "gateway":
            grpc = self._set_value("nameserver", "address") or f"unix:{scratch / 'nameserver.sock'}"
            return self._remoting.of_gateway(grpc)
        return {}

    def _spawn(self, name: str, settings: Mapping[str, str], beside: Sequence[str] = ()) -> None:
        self._spawned[name] = settings
        child = self._host.start(name, settings, beside)
        self._children |= dict.fromkeys([name, *(each for each in beside if each in CALLEES)], child)

    def _bound_address(self, name: str, address_file: pathlib.Path) -> str:
        while True:
            with contextlib.suppress(FileNotFoundError):
                return address_file.read_text(encoding="utf-8").strip()
            self._check(timeout_seconds=POLL_SECONDS)

    def _wait_until_ready(self, ready_files: Mapping[str, pathlib.Path]) -> None:
        """Wait until the log is recovered, then at most OPEN_SECONDS_MAX until the services have opened their files."""
        with RecoveryDisplay(self._say) as display:
            while not ready_files["commitlog"].exists():
                if display.wants_update():
                    self._show_recovery(display)
                self._check(timeout_seconds=POLL_SECONDS)
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        for ready_file in ready_files.values():
            while not ready_file.exists() and time.monotonic() < deadline:
                self._check(timeout_seconds=POLL_SECONDS)

    def _show_recovery(self, display: RecoveryDisplay) -> None:
        from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
        from services.calling.commitlog import CommitLogClient
        from services.rpcs.commitlog import GET_STATUS
        from store.errors import StoreError

        with (
            contextlib.closing(CommitLogClient(self.addresses["commitlog"])) as client,
            contextlib.suppress(StoreError),
        ):
            display.update(client.call(GET_STATUS, GetStatusRequest(), PROBE_SECONDS_MAX).recovery)

    def _check(self, timeout_seconds: float | None) -> None:
        poll = (
            select.poll()
        )  # `select` takes no descriptor above 1,023, and a program that hosts services may have more
        poll.register(self._wakeups, select.POLLIN)
        if poll.poll(None if timeout_seconds is None else timeout_seconds * 1000):
            received = self._wakeups.recv(4096)
            if any(number in received for number in STOP_SIGNALS):
                self._stopping = True
                raise StopAskedError
        for name, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            exit_code = exit_code_of(code)
            if name == "commitlog" and self._follows_broker and exit_code == EXIT_CODE_CHANGED and not self._stopping:
                self._say("the broker cut its log, or began another one: the log is read again")
                self._spawn(name, self._spawned[name])
            else:
                died = self._first_to_end(child)
                raise ChildDiedError(died, exit_code, self._cause(died), getattr(child, "failure", None))

    def _died(self, death: ChildDiedError) -> None:
        self.death = death
        self._say(str(death))

    def _first_to_end(self, child: Child) -> str:
        """The service whose end ended its process: one beside the first that says why, else the first; all, if none does."""
        of_process = [name for name in (*FOLLOWERS, "gateway", "commitlog") if self._children.get(name) is child]
        says_why = [name for name in of_process[1:] + of_process[:1] if self._cause(name)]
        return says_why[0] if says_why else ", ".join(of_process)

    def _cause(self, name: str) -> str:
        """The reason that a service wrote into its ready file: why it could not open its files or had to end."""
        with contextlib.suppress(OSError, KeyError):
            return self._ready_files[name].read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def _lost_its_log(self) -> bool:
        """Whether this is a replica whose commit log has ended: nothing that is open can be finished."""
        log = self._children.get("commitlog")
        return self._replica is not None and log is not None and log.poll() is not None

    def _stop(self) -> None:
        self._stopping = True
        killed = []
        for names in STOP_ORDER:
            running = {name: self._children[name] for name in names if name in self._children}
            for child in running.values():
                if child.poll() is None:
                    child.kill() if self._lost_its_log() else child.terminate()
            begin = time.monotonic()
            for name, child in running.items():
                # A process with services of several steps has the time of each.
                steps = sum(any(self._children.get(each) is child for each in step) for step in STOP_ORDER)
                try:
                    child.wait(max(0.0, begin + steps * DRAIN_SECONDS_MAX - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.kill()
                    self.stop_exit_code = exit_code_of(child.wait())
                    killed.append(name)
        self._claims.close()
        if self._port_file and self.addresses:
            self._port_file.unlink(missing_ok=True)
        for name in killed:  # at last, because the reader of the lines may be gone
            self._say(f"{name} did not end within {DRAIN_SECONDS_MAX:g} s and was killed")
