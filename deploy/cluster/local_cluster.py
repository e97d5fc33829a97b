"""LocalCluster: etcd, the replicas of one shard and a gateway on loopback, started, watched, started again and stopped.

Rules of this file:
- Each replica is a `reput serve --replica`, the gateway and etcd are processes beside them. All end with this process, also
  when it is killed (tether.py), and have sessions of their own, so that Ctrl-C stops them in order.
- The gateway's process has the remoting door of the shard and a name server. Each replica has the address of both: the one that
  leads registers.
- A process that ends is started again after a pause. Its ports stay, so nothing else has to be told.
- The status file is written when there is a leader and a gateway, and replaced at each change. A replica is `away` until all
  its services run. Its `pid` is the process of its commit log: with it the replica ends.
- The stop goes against the flow: the gateway, the leader, the other replicas, etcd. The leader goes before the others, because
  what it still writes waits for them.

Member: one process of a cluster that is started again when it ends.

RoleWatch: asks the commit logs of all replicas for their roles, each in a thread of its own.
"""

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from deploy.cluster.layout import Layout
from deploy.cluster.tether import tethered
from deploy.processes import STOP_SIGNALS, environ_of_services, exit_code_of, say, signals_as_bytes, write_by_rename
from deploy.remoting_ports import (
    REMOTING_WORDS,
    Claims,
    Port,
    choose_remoting_ports,
    values_that_are_set,
)
from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
from services.calling.commitlog import CommitLogClient
from services.replica_role import ReplicaRole, replica_role
from services.rpcs.commitlog import GET_STATUS
from store.errors import StoreError

# A process that ends at once again and again is started after growing pauses.
PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 5.0
# A process that has run for so long did not fail at its start.
SETTLED_SECONDS = 10.0
USAGE_EXIT_CODE = 2
LOG_LINE_COUNT_SHOWN = 5


class MemberFailedError(Exception):
    """A process refuses its settings: another start would not help. `exit_code` is the one for the whole cluster."""

    exit_code = USAGE_EXIT_CODE


class Member:
    """A process; its output goes to the end of a file.

    Args:
        name: in messages.
        command: the command line.
        environ: its environment.
        log_path: where its output goes.
        clock: seconds, rising.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log_path: pathlib.Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._command = command
        self._environ = environ
        self._log_path = log_path
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at: float | None = None  # when an ended process is started again
        self._pause_seconds = PAUSE_SECONDS_FIRST

    @property
    def pid(self) -> int:
        """Of the process, or of the one before."""
        assert self._process is not None, "it was started"
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._started_at, self._start_at = self._clock(), None
        with open(self._log_path, "ab") as log:
            # A session of its own: Ctrl-C reaches the starter only, which stops all in order.
            self._process = subprocess.Popen(
                self._command,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep_running(self) -> None:
        """Start the process again if it has ended and its pause is over.

        Raises:
            MemberFailedError: it has ended because of its settings.
        """
        if self._process is None or self._process.poll() is None:
            return
        now = self._clock()
        if self._start_at is None:
            exit_code = exit_code_of(self._process.returncode)
            say(f"{self.name} ended with exit code {exit_code} and is started again; its log is {self._log_path}")
            if exit_code == USAGE_EXIT_CODE:
                lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
                raise MemberFailedError("\n".join([f"{self.name} cannot start:", *lines[-LOG_LINE_COUNT_SHOWN:]]))
            if now - self._started_at >= SETTLED_SECONDS:
                self._pause_seconds = PAUSE_SECONDS_FIRST
            self._start_at = now + self._pause_seconds
            self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)
        if now >= self._start_at:
            self.start()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self.is_running():
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self, seconds: float) -> None:
        """Wait for the end; after so many seconds it is killed."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


ASK_SECONDS_MAX = 1.0
ASK_SECONDS = 0.2
LEADER, FOLLOWER, AWAY = "leader", "follower", "away"
# It answers, but does not get the leader's log: it is damaged, refused or cut off; its own status says why.
DETACHED = "detached"


def role_words(
    roles: Mapping[str, ReplicaRole | None], connected: Mapping[str, frozenset[str]] | None = None
) -> dict[str, str]:
    """The role of each replica in a word; of several that claim to lead, the one with the highest epoch leads.

    Args:
        roles: by name; None: it does not answer.
        connected: by name of a leader: the replicas that it sends its log to.
    """
    newest = max((role.epoch for role in roles.values() if role is not None and role.leads), default=0)
    words = {}
    leaders = [name for name, role in roles.items() if role is not None and role.leads and role.epoch == newest]
    following = (connected or {}).get(leaders[0]) if leaders else None
    for name, role in roles.items():
        if role is None or (role.leads and role.epoch < newest):
            words[name] = AWAY
        else:
            is_apart = following is not None and name not in following
            words[name] = LEADER if role.leads else DETACHED if is_apart else FOLLOWER
    return words


class RoleWatch:
    """See the top of this file; thread-safe.

    Args:
        addresses: of the commit logs, by name of the replica.
        changed: called by the threads after each change.
    """

    def __init__(self, addresses: Mapping[str, str], changed: Callable[[], object]) -> None:
        self._addresses = addresses
        self._changed = changed
        self._stopped = threading.Event()
        self._roles: dict[str, ReplicaRole | None] = dict.fromkeys(addresses)
        self._connected: dict[str, frozenset[str]] = {}

    def start(self) -> None:
        """Ask from now on until `stop`."""
        for name, address in self._addresses.items():
            threading.Thread(target=self._run, args=(name, address), name=f"role-{name}", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def roles(self) -> dict[str, ReplicaRole | None]:
        """The newest answers."""
        return dict(self._roles)

    def connected(self) -> dict[str, frozenset[str]]:
        """By name of a replica that leads: those that it sends its log to."""
        return dict(self._connected)

    def _run(self, name: str, address: str) -> None:
        client = CommitLogClient(address)
        while not self._stopped.wait(ASK_SECONDS):
            connected: frozenset[str] | None = None
            try:
                status = client.call(GET_STATUS, GetStatusRequest(), ASK_SECONDS_MAX)
                role = None if status.state == "recovering" else replica_role(status)
                if role is not None and role.leads:
                    connected = frozenset(one.name for one in status.replicas if one.connected)
            except StoreError:
                role = None
            if role != self._roles[name] or connected != self._connected.get(name):
                self._roles[name] = role
                if connected is None:
                    self._connected.pop(name, None)
                else:
                    self._connected[name] = connected
                self._changed()
        client.close()


POLL_SECONDS = 0.1
ETCD_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0  # as long as a replica gives its own services
# Every replica allocates whole files: the default of 1 GiB is much for trying out.
FILE_SIZE_BYTES = 128 << 20
# What is acknowledged is on two disks, where there are two.
MIN_IN_SYNC = 2


class EtcdSilentError(Exception):
    """The coordinator did not begin to answer."""


class LocalCluster:
    """See the top of this file.

    Args:
        layout: directories and ports.
        etcd: the program.
        port_file: the status file.
        gateway_port: of the gateway; 0: the layout's.
        nameserver_port: of the name server; 0: the layout's; None: 9876, or the layout's where that is taken.
        remoting_port: likewise of the remoting door, 10911.
        environ: the environment that settings come from.

    Raises:
        InvalidSettingError: a setting is unknown, or an address of the remoting ports is none or not of this machine.
    """

    def __init__(
        self,
        layout: Layout,
        etcd: str,
        port_file: pathlib.Path,
        gateway_port: int = 0,
        *,
        nameserver_port: Port = None,
        remoting_port: Port = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._layout = layout
        self._port_file = port_file.absolute()
        self._environ = environ_of_services(os.environ if environ is None else environ)
        own_ports = layout.front_ports
        self._gateway_address = f"127.0.0.1:{gateway_port or own_ports['gateway']}"
        self._console_address = f"127.0.0.1:{own_ports['console']}"
        self._claims = Claims()
        self._set_values = values_that_are_set(self._environ)
        self._remoting = choose_remoting_ports(
            {"nameserver": nameserver_port, "remoting": remoting_port},
            lambda component, name: self._set_values.get((component, name), ""),
            say,
            is_on=True,
            claims=self._claims.take,
            own=own_ports,
        )
        self._gateway_ready = layout.directory / "run" / "gateway.ready"
        self._etcd = Member("etcd", tethered(layout.etcd_command(etcd)), self._environ, layout.log("etcd"))
        self._gateway = self._gateway_member()
        self._replicas = {name: self._replica_member(name) for name in layout.replicas}
        self._written = ""

    def run(self) -> int:
        """Start, serve until a signal, stop; returns the exit code."""
        self._port_file.unlink(missing_ok=True)
        with signals_as_bytes() as wakeups:
            poke_reader, poke = socket.socketpair()
            poke.setblocking(False)
            poke_reader.setblocking(False)
            self._waits_on = (wakeups, poke_reader)

            def changed() -> None:
                with contextlib.suppress(BlockingIOError):
                    poke.send(b"\0")

            addresses = {name: self._layout.addresses(name)["commitlog"] for name in self._layout.replicas}
            self._watch = RoleWatch(addresses, changed)
            try:
                return self._serve()
            except (MemberFailedError, EtcdSilentError) as failure:
                say(str(failure))
                return failure.exit_code if isinstance(failure, MemberFailedError) else 1
            finally:
                self._stop()
                poke.close()
                poke_reader.close()

    def _serve(self) -> int:
        self._etcd.start()
        deadline = time.monotonic() + ETCD_SECONDS_MAX
        while not self._etcd_answers():
            if time.monotonic() > deadline:
                raise EtcdSilentError(f"etcd does not answer; its log is {self._layout.log('etcd')}")
            if self._pause():
                return 0
        for name, replica in self._replicas.items():
            self._layout.port_file(name).unlink(missing_ok=True)
            replica.start()
        self._gateway_ready.parent.mkdir(exist_ok=True)
        self._gateway_ready.unlink(missing_ok=True)
        self._gateway.start()
        self._watch.start()
        while not self._pause():
            self._tell()
        return 0

    def _pause(self) -> bool:
        """Keep all processes running, and wait a moment; whether a signal asks for the stop."""
        for member in (self._etcd, *self._replicas.values(), self._gateway):
            member.keep_running()
        ready, _, _ = select.select(self._waits_on, [], [], POLL_SECONDS)
        for reader in ready:
            received = reader.recv(4096)
            if reader is self._waits_on[0] and any(number in received for number in STOP_SIGNALS):
                return True
        return False

    def _etcd_answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._layout.ports[0])) == 0

    def _tell(self) -> None:
        """Write the status file if anything has changed."""
        pids = {name: self._pid_of_log(name) for name in self._replicas}
        roles = self._watch.roles()
        roles = {name: role if pids[name] is not None else None for name, role in roles.items()}
        words = role_words(roles, self._watch.connected())
        if not self._written and not (LEADER in words.values() and self._gateway_ready.exists()):
            return
        status = {
            "gateway": self._gateway_address,
            "console": self._console_address,
            "coordinator": self._layout.coordinator,
            **self._remoting.bound,
            "replicas": {
                name: {
                    "pid": pids[name] or member.pid,
                    "role": words.get(name, AWAY),
                    "store": str(self._layout.store(name)),
                    "address": self._layout.addresses(name)["commitlog"],
                }
                for name, member in self._replicas.items()
            },
        }
        text = json.dumps(status, indent=1) + "\n"
        if text == self._written:
            return
        write_by_rename(self._port_file, text)
        if not self._written:
            remoting = "".join(f", {REMOTING_WORDS[key]} {status[key]}" for key in self._remoting.bound)
            console = f", console http://{self._console_address}/"
            where = f"gateway {self._gateway_address}{remoting}{console}"
            say(f"serving {self._layout.directory}, {where}, status {self._port_file}")
        self._written = text

    def _pid_of_log(self, name: str) -> int | None:
        """The process of a replica's commit log; None while not all of its services run."""
        if not self._replicas[name].is_running():
            self._layout.port_file(name).unlink(missing_ok=True)
            return None
        try:
            return int(json.loads(self._layout.port_file(name).read_text(encoding="utf-8"))["pid"])
        except FileNotFoundError:
            return None

    def _replica_member(self, name: str) -> Member:
        given = {
            "store": str(self._layout.store(name)),
            "replica": (name, self._layout.coordinator),
            "port_file": str(self._layout.port_file(name)),
        }
        # What `reput serve` becomes when it has checked its command line, without an interpreter for that.
        command = [sys.executable, "-P", "-m", "cli.serving", "reput serve", json.dumps(given)]
        environ = {
            "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_SIZE_BYTES),
            "REPUT_COMMITLOG_FLUSH_MODE": "replicated",
            "REPUT_COMMITLOG_MIN_IN_SYNC": str(min(MIN_IN_SYNC, len(self._layout.replicas))),
            "REPUT_CONSUMER_RECEIPT_SECRET": self._layout.receipt_secret,
            **self._environ,
        }
        environ |= self._remoting.of_commitlog(self._set_values.get(("", "nameservers"), ""))
        for service, address in self._layout.addresses(name).items():
            environ[f"REPUT_{service.upper()}_ADDRESS"] = address
        return Member(name, tethered(command), environ, self._layout.log(name))

    def _gateway_member(self) -> Member:
        environ = {
            **self._environ,
            "REPUT_GATEWAY_SHARDS": self._layout.shards(),
            "REPUT_GATEWAY_ADDRESS": self._gateway_address,
            "REPUT_GATEWAY_CONSOLE_ADDRESS": self._console_address,
            "REPUT_READY_FILE": str(self._gateway_ready),
        }
        environ |= self._remoting.of_gateway(f"127.0.0.1:{self._layout.front_ports['nameserver_grpc']}")
        beside = self._remoting.beside_gateway
        run = ["deploy.beside", "gateway", *beside] if beside else ["gateway"]
        return Member("gateway", tethered([sys.executable, "-P", "-m", *run]), environ, self._layout.log("gateway"))

    def _stop(self) -> None:
        self._port_file.unlink(missing_ok=True)
        words = role_words(self._watch.roles())
        self._watch.stop()
        leaders = [member for name, member in self._replicas.items() if words[name] == LEADER]
        others = [member for name, member in self._replicas.items() if words[name] != LEADER]
        for members in ([self._gateway], leaders, others, [self._etcd]):
            for member in members:
                member.ask_to_stop()
            for member in members:
                member.wait_until_stopped(STOP_SECONDS_MAX)
        self._claims.close()
