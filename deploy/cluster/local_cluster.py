"""LocalCluster: etcd, the replicas of one shard and a gateway on loopback, started, watched, started again and stopped.

Rules of this file:
- Each replica is a `reput serve --replica`, the gateway and etcd are processes beside them. All end with this process, also
  when it is killed (tether.py), and have sessions of their own, so that Ctrl-C stops them in order.
- A process that ends is started again after a pause. Its ports stay, so nothing else has to be told.
- The status file is written when there is a leader and a gateway, and replaced at each change. A replica is `away` until all
  its services run. Its `pid` is the process of its commit log: with it the replica ends.
- The stop goes against the flow: the gateway, the leader, the other replicas, etcd. The leader goes before the others, because
  what it still writes waits for them.
"""

import contextlib
import json
import os
import pathlib
import select
import socket
import sys
import time
from collections.abc import Mapping

from deploy.cluster.layout import Layout
from deploy.cluster.member import Member, MemberFailedError
from deploy.cluster.roles import AWAY, LEADER, RoleWatch, role_words
from deploy.cluster.tether import tethered
from deploy.processes import STOP_SIGNALS, environ_of_services, say, signals_as_bytes, write_by_rename

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
        environ: the environment that settings come from.
    """

    def __init__(
        self,
        layout: Layout,
        etcd: str,
        port_file: pathlib.Path,
        gateway_port: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._layout = layout
        self._port_file = port_file.absolute()
        self._environ = environ_of_services(os.environ if environ is None else environ)
        own_port, console_port = layout.front_ports
        self._gateway_address = f"127.0.0.1:{gateway_port or own_port}"
        self._console_address = f"127.0.0.1:{console_port}"
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
            console = f", console http://{self._console_address}/"
            say(f"serving {self._layout.directory}, gateway {self._gateway_address}{console}, status {self._port_file}")
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
        command = [sys.executable, "-P", "-m", "cli.main", "serve", "--store", str(self._layout.store(name))]
        command += ["--replica", name, "--coordinator", self._layout.coordinator]
        command += ["--port-file", str(self._layout.port_file(name))]
        environ = {
            "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_SIZE_BYTES),
            "REPUT_COMMITLOG_FLUSH_MODE": "replicated",
            "REPUT_COMMITLOG_MIN_IN_SYNC": str(min(MIN_IN_SYNC, len(self._layout.replicas))),
            "REPUT_CONSUMER_RECEIPT_SECRET": self._layout.receipt_secret,
            **self._environ,
        }
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
        return Member(
            "gateway", tethered([sys.executable, "-P", "-m", "gateway"]), environ, self._layout.log("gateway")
        )

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
