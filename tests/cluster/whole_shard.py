"""A shard whose replicas have all services, its replacement process by process, and a group that consumes meanwhile."""

import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping
from functools import partial

from google.protobuf.duration_pb2 import Duration

from deploy.cluster.layout import SERVICES
from store.errors import StoreError
from tests.cluster.history import Producers
from tests.cluster.shard import BROKER_NAME, Kept, Shard
from tests.releases.left_work import SETTINGS
from tests.support.background import Background
from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.lasting_clients import GrpcPops

GROUP = "billing"
MEMBER_COUNT = 2
HIDDEN_SECONDS = 60
PAUSE_SECONDS = 0.1
MESSAGES_BETWEEN = 30  # from one restart to the next


class WholeShard(Shard):
    """Replicas with all services, each a `reput serve --replica`, and gateways. Arguments as Shard."""

    def _environ(self, name: str) -> dict[str, str]:
        environ = {**super()._environ(name), **SETTINGS}
        del environ["REPUT_COMMITLOG_FOLLOWERS"]
        return environ

    def _replica(self, name: str) -> Kept:
        if not hasattr(self, "_services"):
            self._services = {
                each: {service: f"127.0.0.1:{free_port()}" for service in SERVICES} for each in self.names
            }
            for each in self.names:
                self._services[each]["commitlog"] = self._addresses[each]
        environ = {f"REPUT_{service.upper()}_ADDRESS": address for service, address in self._services[name].items()}
        command = [sys.executable, "-P", "-m", "cli.main", "serve", "--store", str(self.stores[name])]
        command += ["--replica", name, "--coordinator", f"etcd://{self.etcd.endpoint}/reput"]
        return Kept(name, command, {**self._environ(name), **environ}, self.directory / f"{name}.log")

    def _gateway(self, gateway: str) -> Kept:
        shards = ";".join(
            f"{BROKER_NAME}@{name}=" + ",".join(f"{service}={at}" for service, at in self._services[name].items())
            for name in self.names
        )
        environ = {"REPUT_GATEWAY_SHARDS": shards, "REPUT_GATEWAY_ADDRESS": self.gateways[gateway]}
        return self._member(gateway, "gateway", environ)


class Group(Background):
    """Consumes until it is stopped, and notes what it was given."""

    def __init__(self, gateway: str, topic: str, hidden_seconds: int = HIDDEN_SECONDS) -> None:
        self.given: list[tuple[str, float]] = []
        self.acked: dict[str, float] = {}
        self.maybe_acked: set[str] = set()  # an earlier try may have been carried out
        self._gateway = gateway
        self._topic = topic
        self._hidden = Duration(seconds=hidden_seconds)
        self._lock = threading.Lock()
        super().__init__(partial(self._run, number) for number in range(MEMBER_COUNT))

    def wait_for(self, names: Collection[str]) -> None:
        """Return once all of these are acknowledged."""
        wait_until(
            lambda: self.acked.keys() | self.maybe_acked >= set(names),
            lambda: f"not consumed: {sorted(set(names) - self.acked.keys() - self.maybe_acked)[:5]}",
            seconds=2 * WAIT_SECONDS_MAX,
        )

    def problems(self) -> list[str]:
        """Messages that were given again after their acknowledgement was answered."""
        return [name for name, asked_at in self.given if self.acked.get(name, asked_at) < asked_at]

    def _run(self, number: int) -> None:
        pops = GrpcPops(self._gateway, self._topic, f"member-{number}")
        while not self.stopping.is_set():
            asked_at = time.monotonic()
            try:
                popped = pops.pop(GROUP, 16, self._hidden, 16)
            except StoreError:
                self.stopping.wait(PAUSE_SECONDS)  # a leader, or the gateway, is being replaced
                continue
            for one in popped:
                name = one.name.partition("|")[0]
                with self._lock:
                    self.given.append((name, asked_at))
                if self._acks(pops, name, one.handle):
                    with self._lock:
                        self.acked.setdefault(name, time.monotonic())
        pops.close()

    def _acks(self, pops: GrpcPops, name: str, handle: str) -> bool:
        was_unanswered = False
        while not self.stopping.is_set():
            try:
                is_acked = pops.ack(GROUP, handle)
            except StoreError:
                was_unanswered = True
                self.stopping.wait(PAUSE_SECONDS)
                continue
            if was_unanswered and not is_acked:
                with self._lock:
                    self.maybe_acked.add(name)
            return is_acked
        return False


def roll(
    shard: WholeShard, producers: Producers, environs: Mapping[str, Mapping[str, str]], *, gateway_at: int
) -> None:
    """Replace each replica, the leader last, and the gateways before one of them; what is new of each process by its name."""
    leader = shard.wait_until_whole()
    for number, name in enumerate([*shard.others(leader), leader]):
        if number == gateway_at:
            for gateway in shard.gateways:
                replace(shard, gateway, environs[gateway])
        replace(shard, name, environs[name])
        shard.wait_until_whole()
        producers.wait_for(MESSAGES_BETWEEN)


def replace(shard: WholeShard, name: str, environ: Mapping[str, str]) -> None:
    """End a process in order, and start the other release in its place."""
    with shard.away(name, signal.SIGTERM):
        shard.set_environ(name, environ)
