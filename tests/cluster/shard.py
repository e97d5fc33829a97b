"""The replicas of one shard as processes, with a coordinator and a gateway, on a network that can be cut between any two.

    r1 ──┐
    r2 ──┼── gateway ── clients          each line, and those between replicas, is a link of tests/support/network.py
    r3 ──┘

A replica is its commit log service: queues and indexes follow from the log, and tests/e2e/test_cluster.py has whole replicas. A
process that ends is started again, as a supervisor does, unless the test has taken it away. The test itself asks the services
at their own addresses, which are never cut.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from deploy.cluster.local_cluster import Member, MemberFailedError
from deploy.processes import environ_of_services
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.commitlog import CommitLogClient
from services.rpcs.commitlog import GET_STATUS
from store.errors import StoreError
from tests.support.etcd import Etcd
from tests.support.failures import watch_log
from tests.support.network import OUTSIDE, Network, both, process_of_connection
from tests.support.ports import free_port
from tests.support.processes import descendants_of
from tests.support.waiting import wait_until

BROKER_NAME = "broker-a"
COORDINATOR, GATEWAY = "coordinator", "gateway"
KEEP_SECONDS = 0.05
ASK_SECONDS_MAX = 2.0
CALLER_TRIES_MAX = 40  # only replicas dial replicas
# Files must not go because a disk is nearly full, and the disk itself is to say that it is.
KEEP_EVERYTHING = {
    "REPUT_COMMITLOG_CLEAN_FILE_FORCIBLY_ENABLED": "false",
    "REPUT_COMMITLOG_DISK_CLEAN_FREE_BYTES": "0",
    "REPUT_COMMITLOG_DISK_CLEAN_FORCIBLY_FREE_BYTES": "0",
    "REPUT_COMMITLOG_DISK_FULL_FREE_BYTES": "0",
}
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(16 << 20),
    "REPUT_COMMITLOG_FLUSH_MODE": "replicated",
    "REPUT_COMMITLOG_FOLLOWERS": "",  # nobody follows these logs
    "REPUT_GATEWAY_CONSOLE": "off",
    **KEEP_EVERYTHING,
}


class Shard:
    """See the top of this file.

    Args:
        directory: for stores, logs and the coordinator.
        replica_count: its replicas, r1 and so on; r1 leads at first.
        settings: `REPUT_...` of all processes.
        environs: more of the environment, by process.
        stores: store roots that lie elsewhere, by replica.
        gateway_count: its gateways, `gateway`, `gateway-2` and so on.

    Attributes:
        gateways: their addresses, by name.
    """

    def __init__(
        self,
        directory: Path,
        replica_count: int = 3,
        settings: Mapping[str, str] | None = None,
        environs: Mapping[str, Mapping[str, str]] | None = None,
        stores: Mapping[str, Path] | None = None,
        gateway_count: int = 1,
    ) -> None:
        self.directory = directory
        watch_log(directory)
        self.names = [f"r{number}" for number in range(1, replica_count + 1)]
        self.stores = {name: (stores or {}).get(name, directory / name) for name in self.names}
        self.network = Network()
        self.etcd = Etcd(directory / "etcd")
        self._environs = environs or {}
        self._settings = {**SETTINGS, **(settings or {})}
        self._addresses = {name: f"127.0.0.1:{free_port()}" for name in self.names}
        self._clients = {name: CommitLogClient(address) for name, address in self._addresses.items()}
        names = [GATEWAY, *(f"{GATEWAY}-{number}" for number in range(2, gateway_count + 1))]
        self.gateways = {name: f"127.0.0.1:{free_port()}" for name in names}
        self.gateway = self.gateways[GATEWAY]
        self._lock = threading.RLock()
        self._away: set[str] = set()
        self._failure = ""
        self._closing = threading.Event()
        self._members = {name: self._replica(name) for name in self.names}
        self._members |= {name: self._gateway(name) for name in self.gateways}
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        try:
            self.etcd.start()
            self._keeper.start()
            self.wait_until_whole()
        except BaseException:
            self.close()
            raise

    # -- what is so

    def status(self, name: str) -> pb.GetStatusResponse | None:
        """What a replica says of itself; None when it does not answer."""
        try:
            return self._clients[name].call(GET_STATUS, pb.GetStatusRequest(), ASK_SECONDS_MAX)
        except StoreError:
            return None

    def client(self, name: str) -> CommitLogClient:
        """Of a replica, by no link."""
        return self._clients[name]

    def leader(self) -> str | None:
        """Who leads: the one with the highest epoch of those that say so."""
        statuses = {name: self.status(name) for name in self.names if not self.is_stopped(name)}
        leaders = [(one.epoch, name) for name, one in statuses.items() if one is not None and one.role == "leader"]
        return max(leaders)[1] if leaders else None

    def wait_for_leader(self, besides: Collection[str] = ()) -> str:
        """The leader, once there is one that is none of these."""
        found = ""

        def is_found() -> bool:
            nonlocal found
            found = self.leader() or ""
            return found not in ("", *besides)

        wait_until(is_found, lambda: f"a leader besides {besides}\n{self.log()}", poll_seconds=0.05)
        return found

    def in_sync(self) -> frozenset[str]:
        """The in-sync set, as the leader says; empty while none leads."""
        leader = self.leader()
        status = self.status(leader) if leader is not None else None
        return frozenset(status.in_sync) if status is not None else frozenset()

    def wait_until_whole(self) -> str:
        """Return once one leads and all are in sync; the leader."""
        wait_until(lambda: self._is_sound() and self.in_sync() == set(self.names), self.log, poll_seconds=0.05)
        return self.wait_for_leader()

    def settle(self) -> None:
        """Return once every replica has and shows all of the leader's log; to be called when nobody appends."""
        self.wait_until_whole()

        def is_settled() -> bool:
            statuses = [status for status in map(self.status, self.names) if status is not None]
            offsets = {offset for one in statuses for offset in (one.log_end_offset, one.confirm_offset)}
            return len(statuses) == len(self.names) and len(offsets) == 1

        wait_until(is_settled, self.log, poll_seconds=0.1)

    def log(self) -> str:
        """The last lines of all processes."""
        paths = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2500:]}" for path in paths)

    def others(self, *names: str) -> list[str]:
        """The replicas besides these."""
        return [name for name in self.names if name not in names]

    def pid(self, name: str) -> int:
        """Of a process; it is another one after a restart."""
        return self._members[name].pid

    # -- what goes wrong

    def kill(self, name: str) -> None:
        """Kill a process; it is started again."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._members[name].pid, signal.SIGKILL)

    def kill_part(self, name: str, number: int) -> None:
        """Kill one of the processes that a process has started, the chosen one of them in turn; itself when it has none."""
        pids = descendants_of(self._members[name].pid) or [self._members[name].pid]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[number % len(pids)], signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """A process stands still inside the block."""
        pid = self._members[name].pid
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def is_stopped(self, name: str) -> bool:
        """Whether a replica's process stands still, or there is none: then it is not asked."""
        try:
            fields = (
                Path(f"/proc/{self._members[name].pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            )
        except (OSError, AssertionError):
            return True
        return fields[0] in ("T", "Z", "X")

    @contextlib.contextmanager
    def away(self, name: str, how: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """A process is ended and stays away inside the block."""
        with self._lock:
            self._away.add(name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._members[name].pid, how)
        wait_until(lambda: not self._members[name].is_running(), f"the end of {name}")
        try:
            yield
        finally:
            with self._lock:
                self._away.discard(name)

    @contextlib.contextmanager
    def coordinator_away(self) -> Iterator[None]:
        """The coordinator is down inside the block, and starts again with its data after it."""
        self.etcd.stop()
        try:
            yield
        finally:
            self.etcd.start()

    def set_environ(self, name: str, environ: Mapping[str, str]) -> None:
        """The environment of the next life of a replica, or of the gateway, that is away."""
        self._environs = {**self._environs, name: environ}
        self._members[name] = self._gateway(name) if name in self.gateways else self._replica(name)

    def cut_from_others(self, name: str) -> frozenset[tuple[str, str]]:
        """The ways between a replica and all other replicas."""
        return frozenset().union(*(both(name, other) for other in self.others(name)))

    # -- inside

    def _is_sound(self) -> bool:
        assert not self._failure, self._failure
        return True

    def _keep(self) -> None:
        """One thread starts all processes: a child may live only as long as the thread that started it."""
        while not self._closing.wait(KEEP_SECONDS):
            with self._lock:
                for name, member in self._members.items():
                    if name in self._away:
                        continue
                    try:
                        if not member.has_started:
                            member.start()
                        member.keep_running()
                    except MemberFailedError as error:
                        self._failure = str(error)
                        return

    def _environ(self, name: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        mine = {"REPUT_PARENT_PID": str(os.getpid())}
        return {**environ_of_services(inherited), **self._settings, **mine, **self._environs.get(name, {})}

    def _replica(self, name: str) -> "Kept":
        coordinator = self.network.link(COORDINATOR, self.etcd.endpoint, name)
        peers = self.network.link(name, self._addresses[name], self._caller)
        environ = {
            "REPUT_STORE": str(self.stores[name]),
            "REPUT_COMMITLOG_ADDRESS": self._addresses[name],
            "REPUT_COMMITLOG_COORDINATOR": f"etcd://{coordinator.address}/reput",
            "REPUT_COMMITLOG_COORDINATOR_CREATES_SHARD": str(name == "r1").lower(),
            "REPUT_COMMITLOG_REPLICA_NAME": name,
            "REPUT_COMMITLOG_REPLICA_ADDRESS": peers.address,
        }
        return self._member(name, "commitlog_svc", environ)

    def _gateway(self, gateway: str) -> "Kept":
        links = {name: self.network.link(name, address, gateway).address for name, address in self._addresses.items()}
        nobody = f"127.0.0.1:{free_port()}"
        shards = ";".join(
            f"{BROKER_NAME}@{name}=commitlog={address},consumequeue={nobody},index={nobody}"
            for name, address in links.items()
        )
        environ = {"REPUT_GATEWAY_SHARDS": shards, "REPUT_GATEWAY_ADDRESS": self.gateways[gateway]}
        return self._member(gateway, "gateway", environ)

    def _member(self, name: str, module: str, environ: Mapping[str, str]) -> "Kept":
        command = [sys.executable, "-P", "-m", module]
        return Kept(name, command, {**self._environ(name), **environ}, self.directory / f"{name}.log")

    def _caller(self, near_port: int, far_port: int) -> str:
        pids = {name: self._members[name].pid for name in self.names if self._members[name].has_started}
        for _ in range(CALLER_TRIES_MAX):
            caller = process_of_connection(near_port, far_port, pids)
            if caller != OUTSIDE:
                break
            self._closing.wait(KEEP_SECONDS)  # the kernel's table of connections is not read in one step
        return caller

    def close(self) -> None:
        """End everything."""
        self._closing.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for member in self._members.values():
            if member.has_started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
                member.wait_until_stopped(ASK_SECONDS_MAX)
        for client in self._clients.values():
            client.close()
        self.network.close()
        self.etcd.stop()


class Kept(Member):
    """A member that may not have been started yet."""

    has_started = False

    def start(self) -> None:
        """See Member."""
        super().start()
        self.has_started = True


@contextlib.contextmanager
def running_shard(
    directory: Path,
    replica_count: int = 3,
    settings: Mapping[str, str] | None = None,
    environs: Mapping[str, Mapping[str, str]] | None = None,
    stores: Mapping[str, Path] | None = None,
) -> Iterator[Shard]:
    """A shard that is gone after the block. Arguments as Shard."""
    shard = Shard(directory, replica_count, settings, environs, stores)
    try:
        yield shard
    finally:
        shard.close()


def pause(seconds: float) -> None:
    """How long a fault lasts is what is tested."""
    time.sleep(seconds)  # the fault is on meanwhile
