"""What lies where under the directory of a cluster, and the ports of its processes: kept in `cluster.json` between starts."""

import dataclasses
import json
import pathlib
import secrets
from collections.abc import Sequence

from deploy.ports import free_ports, is_free
from deploy.processes import write_by_rename

SERVICES = ("commitlog", "consumequeue", "index", "consumer", "schedule")
ETCD_PORT_COUNT = 2
FRONT = ("gateway", "console", "nameserver", "remoting", "nameserver_grpc")
BROKER_NAME = "broker-a"
PREFIX = "reput"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """A cluster on loopback.

    Attributes:
        directory: of the cluster.
        replicas: the names of the replicas.
        ports: of etcd for clients and for peers; of what FRONT names; of each service of each replica.
        receipt_secret: signs receipt handles: one of the leader before is good at the next one.
    """

    directory: pathlib.Path
    replicas: Sequence[str]
    ports: Sequence[int]
    receipt_secret: str

    @classmethod
    def of(cls, directory: pathlib.Path, replica_count: int) -> "Layout":
        """The layout of a directory: as before if its ports are free, otherwise with others. OSError: there are none."""
        names = [f"r{number}" for number in range(1, replica_count + 1)]
        count = ETCD_PORT_COUNT + len(FRONT) + len(SERVICES) * replica_count
        path = directory / "cluster.json"
        ports: list[int] = []
        receipt_secret = ""
        if path.exists():
            saved = json.loads(path.read_text(encoding="utf-8"))
            ports, receipt_secret = saved["ports"], saved["receipt_secret"]
        if len(ports) != count or not all(map(is_free, ports)):
            ports = free_ports(count)
        layout = cls(directory, names, ports, receipt_secret or secrets.token_hex(16))
        write_by_rename(path, json.dumps({"ports": ports, "receipt_secret": layout.receipt_secret}) + "\n")
        path.chmod(0o600)
        return layout

    @property
    def coordinator(self) -> str:
        """The address of etcd, as the services take it."""
        return f"etcd://127.0.0.1:{self.ports[0]}/{PREFIX}"

    @property
    def front_ports(self) -> dict[str, int]:
        """Of what is in the gateway's process, by FRONT's names."""
        return dict(zip(FRONT, self.ports[ETCD_PORT_COUNT:], strict=False))

    def store(self, replica: str) -> pathlib.Path:
        """The store root of a replica."""
        return self.directory / replica

    def log(self, name: str) -> pathlib.Path:
        """The file with the output of a process."""
        return self.directory / "logs" / f"{name}.log"

    def port_file(self, replica: str) -> pathlib.Path:
        """The file with the addresses of a replica's services."""
        return self.directory / "run" / f"{replica}.json"

    def addresses(self, replica: str) -> dict[str, str]:
        """Of the services of a replica."""
        begin = ETCD_PORT_COUNT + len(FRONT) + len(SERVICES) * list(self.replicas).index(replica)
        return {service: f"127.0.0.1:{self.ports[begin + number]}" for number, service in enumerate(SERVICES)}

    def shards(self) -> str:
        """The setting `shards` of the gateway."""
        return ";".join(
            f"{BROKER_NAME}@{name}=" + ",".join(f"{service}={at}" for service, at in self.addresses(name).items())
            for name in self.replicas
        )

    def etcd_command(self, binary: str) -> list[str]:
        """The command line of etcd."""
        client, peer = (f"http://127.0.0.1:{port}" for port in self.ports[:ETCD_PORT_COUNT])
        return [
            binary,
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
        ]
