"""RocketMQ in controller mode on loopback: a name server with the controller inside, and three brokers of one name.

With `allAckInSyncStateSet` and `minInSyncReplicas=2` an acknowledged message is on two replicas at least, as with
FLUSH_MODE_REPLICATED, though not flushed there. Timeouts are RocketMQ's own.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

from benchmarks import processes
from benchmarks.sides import remoting
from benchmarks.sides.rocketmq_side import RocketMQ, classpath
from tests.rocketmq import real_broker

GET_SYNC_STATE_DATA = 1006
BROKER_NAME = "broker-a"
WHOLE_SECONDS_MAX = 120.0
IN_SYNC = {"allAckInSyncStateSet": "true", "minInSyncReplicas": 2}


class Replica(real_broker.RealRocketMQ):
    """A broker of the set; its name server is that of the cluster.

    Args:
        store, work: of this broker.
        namesrv_port: of the cluster.
        settings: lines of broker.conf.
    """

    def __init__(self, store: pathlib.Path, work: pathlib.Path, namesrv_port: int, **settings: object) -> None:
        super().__init__(store, work, **settings)
        self.namesrv_port = namesrv_port

    short_life, idle = RocketMQ.short_life, RocketMQ.idle

    def classpath(self) -> str:
        """As for the other benchmarks."""
        return classpath()

    def start_broker(self) -> None:
        """See RealRocketMQ; its directory for logs is made."""
        self.work.mkdir(parents=True, exist_ok=True)
        super().start_broker()

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed."""
        return bool(self._processes)

    def send_signal(self, number: int) -> None:
        """Send the broker a signal; SIGKILL ends it."""
        process = self._processes[-1]
        if number == signal.SIGKILL:
            processes.end(self._processes.pop(), number)
        else:
            process.send_signal(number)


class NameServer(real_broker.RealRocketMQ):
    """A name server with a controller inside, on `controller_port`."""

    def __init__(self, work: pathlib.Path) -> None:
        super().__init__(work / "none", work)
        self.controller_port = real_broker.broker_port()

    short_life, idle = RocketMQ.short_life, RocketMQ.idle

    def classpath(self) -> str:
        """As for the other benchmarks."""
        return classpath()

    def start_name_server(self) -> None:
        """Start both; return once the ports are open."""
        self.work.mkdir(parents=True, exist_ok=True)
        lines = {
            "listenPort": self.namesrv_port,
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self.controller_port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": self.work / "controller",
            "mappedFileSize": 16 << 20,
        }
        file = self.work / "namesrv.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self._launch("namesrv", self.controller_port, main, "-c", str(file), heap="256m")


class ControllerCluster:
    """See the top of this file.

    Args:
        directory: of everything.
        replica_count: brokers.
        settings: further lines of each broker.conf.
    """

    def __init__(self, directory: pathlib.Path, replica_count: int = 3, **settings: object) -> None:
        self.names = NameServer(directory / "names")
        controller = {
            "enableControllerMode": "true",
            "controllerAddr": f"127.0.0.1:{self.names.controller_port}",
            "brokerRole": "SLAVE",
            "brokerId": -1,
            "mappedFileSizeCommitLog": 64 << 20,
        }
        self.replicas = [
            Replica(
                directory / f"store-{number}",
                directory / f"work-{number}",
                self.names.namesrv_port,
                **controller,
                **settings,
            )
            for number in range(replica_count)
        ]

    def start(self) -> None:
        """Start all; return once one leads and all are in sync."""
        self.names.start_name_server()
        for replica in self.replicas:
            replica.start_broker()
        self.wait_until_whole()

    def stop(self) -> None:
        """End all."""
        for replica in self.replicas:
            with contextlib.suppress(subprocess.SubprocessError):
                replica.stop()
        self.names.stop()

    @property
    def ports(self) -> list[int]:
        """The brokers' ports."""
        return [replica.broker_port for replica in self.replicas]

    def sync_state(self) -> dict[str, Any]:
        """What the controller knows: `masterAddress`, `inSyncReplicas`, ..."""
        asked = json.dumps([BROKER_NAME]).encode()
        answer = json.loads(remoting.call(self.names.controller_port, GET_SYNC_STATE_DATA, {}, asked))
        return dict(answer["replicasInfoTable"].get(BROKER_NAME) or {})

    def in_sync_ports(self) -> set[int]:
        """The ports of the brokers of the sync state set."""
        rows = self.sync_state().get("inSyncReplicas") or []
        return {int(row["brokerAddress"].rpartition(":")[2]) for row in rows}

    def master(self) -> Replica | None:
        """The broker that leads."""
        address = self.sync_state().get("masterAddress") or ""
        return next((one for one in self.replicas if address.endswith(f":{one.broker_port}")), None)

    def wait_until_whole(self, seconds: float = WHOLE_SECONDS_MAX) -> Replica:
        """The master, once all replicas are in sync."""
        processes.wait_for(self._is_whole, f"all brokers in sync: {self._shown}", seconds, 0.2)
        master = self.master()
        assert master is not None
        return master

    @property
    def _shown(self) -> str:
        try:
            return json.dumps(self.sync_state())
        except (OSError, RuntimeError) as error:
            return str(error)

    def _is_whole(self) -> bool:
        try:
            return self.master() is not None and self.in_sync_ports() == set(self.ports)
        except (OSError, RuntimeError, KeyError):
            return False


@contextlib.contextmanager
def running_controller_cluster(
    directory: pathlib.Path, replica_count: int = 3, **settings: object
) -> Iterator[ControllerCluster]:
    """A cluster that is ended after the block."""
    cluster = ControllerCluster(directory, replica_count, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
