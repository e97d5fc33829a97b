"""What lies where under the directory of a cluster, and the ports of its processes: kept in `cluster.json` between starts.

claim_port: ports of loopback that stay free between two starts of a service.
"""

import dataclasses
import json
import pathlib
import random
import secrets
import socket
from collections.abc import Iterator, Sequence

from deploy.processes import write_by_rename

RANGE_FILE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
RANGE_BEGIN_DEFAULT = 32_768
PORT_MIN = 10_000


def free_ports(count: int) -> list[int]:
    """So many ports that nothing listens on, below those that the kernel gives to outgoing connections.

    A port of that range could be taken by a connection while the service that has it is started again.

    Raises:
        OSError: there are not so many.
    """
    found: list[int] = []
    for port in _candidates():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} free ports of loopback were not found")


def is_free(port: int) -> bool:
    """Whether a service could listen on a port of loopback; connections of one that has stopped may still linger."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def claim_port(port: int) -> socket.socket | None:
    """Keep other clusters from a port until the socket is closed, or the process ends; None: it is taken.

    The service that is to have it starts seconds later: without the claim two clusters could find it free.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0reput-cluster-port-{port}")
    except OSError:
        claim.close()
        return None
    if is_free(port):
        return claim
    claim.close()
    return None


def _candidates() -> Iterator[int]:
    try:
        end = int(RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        end = RANGE_BEGIN_DEFAULT
    if end <= PORT_MIN:  # the kernel uses them all
        end = RANGE_BEGIN_DEFAULT
    begin = random.randrange(PORT_MIN, end)  # noqa: S311  # two clusters that start together shall not meet
    yield from range(begin, end)
    yield from range(PORT_MIN, begin)


SERVICES = ("commitlog", "consumequeue", "index", "consumer", "schedule")
ETCD_PORT_COUNT = 2
FRONT_PORT_COUNT = 2
BROKER_NAME = "broker-a"
PREFIX = "reput"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """A cluster on loopback.

    Attributes:
        directory: of the cluster.
        replicas: the names of the replicas.
        ports: of etcd for clients and for peers; of the gateway and the console; of each service of each replica.
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
        count = ETCD_PORT_COUNT + FRONT_PORT_COUNT + len(SERVICES) * replica_count
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
    def front_ports(self) -> tuple[int, int]:
        """Of the gateway and the console."""
        return self.ports[ETCD_PORT_COUNT], self.ports[ETCD_PORT_COUNT + 1]

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
        begin = ETCD_PORT_COUNT + FRONT_PORT_COUNT + len(SERVICES) * list(self.replicas).index(replica)
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
