"""The manifests' own settings at work: a shard and a gateway as processes, with the Secrets that deploy/make-secrets makes.

What a cluster would add is played: names by a DNS server on loopback, ports and directories of this machine.
"""

import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from services.rocketmq.fastjson import loads
from services.serving.server import LIVENESS_NAME
from store.format.message_id import decode_offset_msg_id
from tests.deploy import manifests
from tests.deploy.manifests import COMPONENTS, OF_SHARD
from tests.deploy.test_kubernetes import INSTALLATION, _secrets
from tests.nameserver_svc.scenario import route
from tests.support.command import run_command
from tests.support.dns_server import DnsServer
from tests.support.fixture_stores import read_rows, unpack_store
from tests.support.ports import free_port
from tests.support.remoting import RemotingClient
from tests.support.service import Service
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

TOPIC = "Deployed"
SMALL_FILES = {
    "commitlog": {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576"},
    "consumequeue": {},
    "index": {"REPUT_INDEX_HASH_SLOT_COUNT": "500", "REPUT_INDEX_ENTRY_COUNT_MAX": "1000"},
    "consumer": {},
    "schedule": {},
    "gateway": {},
    "nameserver": {},
}
SERVERS = (*OF_SHARD, "gateway")  # what gRPC clients need


class Pods:
    """The pods of shard 0 and a gateway, as processes."""

    def __init__(self, directory: Path, dns: DnsServer, processes: contextlib.ExitStack) -> None:
        self.directory = directory
        self.secrets = _secrets(directory / "ca", "--namespace", manifests.NAMESPACE)
        self.ports: dict[tuple[str, str], int] = {}
        self._dns = dns
        self._processes = processes
        for component in OF_SHARD:
            dns.addresses[f"reput-{component}-0.reput-{component}.{manifests.NAMESPACE}.svc"] = "127.0.0.1"
        for component in COMPONENTS:
            (directory / component / "tls").mkdir(parents=True)
            for name, content in self.secrets[f"reput-tls-{component}"].items():
                (directory / component / "tls" / name).write_bytes(content)

    def start(self, component: str, *, read_only: bool = False) -> Service:
        """Run a component's container; returns at once.

        Args:
            component: of them.
            read_only: as the chart makes it with `commitlog.storage.readOnly` (tests/deploy/test_chart_ways.py).
        """
        (container,) = [box for name, _, box in manifests.containers(INSTALLATION) if name == component]
        settings = {
            name: self._here(component, value)
            for name, value in manifests.environment(container, ordinal=0).items()
            if name.startswith("REPUT_")
        }
        settings |= SMALL_FILES[component]
        if read_only and component in ("commitlog", "consumer", "schedule"):
            settings["REPUT_READ_ONLY"] = "true"
        if component == "gateway":
            settings["REPUT_GATEWAY_CONSOLE"] = "off"
        store = self.directory / component / "store"
        return self._processes.enter_context(Service(component, store, settings, wait=""))

    def health(self, component: str, service: str = "") -> str:
        """What a probe of the manifest would be told; `silent` when nothing answers."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port(component, '8090')}") as channel:
            try:
                request = health_pb2.HealthCheckRequest(service=service)
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_SECONDS_MAX)
            except grpc.RpcError:
                return "silent"
            return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    def await_health(self, component: str, state: str, service: str = "") -> None:
        wait_until(
            lambda: self.health(component, service) == state,
            lambda: f"{component} {service} is {self.health(component, service)}, not {state}",
        )

    def channel(self, component: str, *, client: str | None = None, name: str | None = None) -> grpc.Channel:
        """A channel with TLS, with the certificate of a component or none, that asks for a name."""
        secret = self.secrets[f"reput-tls-{client or 'gateway'}"]
        credentials = grpc.ssl_channel_credentials(
            secret["ca.crt"], secret["tls.key"] if client else None, secret["tls.crt"] if client else None
        )
        host = name or f"reput-{component}-0.reput-{component}.{manifests.NAMESPACE}.svc"
        port = self.port(component, {"gateway": "8081", "commitlog": "8082"}[component])
        return grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=[("grpc.ssl_target_name_override", host)])

    def port(self, component: str, number: str) -> int:
        """The port of this machine in place of a component's port in the manifests."""
        return self.ports.setdefault((component, number), free_port())

    def _here(self, component: str, value: str) -> str:
        value = value.replace("/etc/reput/tls", str(self.directory / component / "tls"))
        value = value.replace("/var/lib/reput", str(self.directory / component))
        value = re.sub(r"\b0\.0\.0\.0:(\d+)$", lambda found: f"127.0.0.1:{self.port(component, found[1])}", value)
        # The name of the Service before the gateways' door of shard 0, and those of the name servers, of which one runs.
        value = re.sub(r"^reput-broker-0\.[^:]+:10911$", f"localhost:{self.port('gateway', '10911')}", value)
        name = r"reput-nameserver-\d\.reput-nameserver\.[^:;]+:9876"
        value = re.sub(name, lambda found: f"127.0.0.1:{self.port('nameserver', '9876')}", value)
        return re.sub(
            r"dns:///([^:,]+\.reput-(\w+)\.[^:,]+):(\d+)",
            lambda found: self._dns.target(found[1], self.port(found[2], found[3])),
            value,
        )


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with DnsServer() as dns, contextlib.ExitStack() as processes:
        yield Pods(tmp_path, dns, processes)


def test_the_manifests_settings_and_secrets_make_a_working_installation(pods: Pods, tmp_path: Path) -> None:
    # A builder whose commit log is not there yet is alive and not ready: no probe may kill it.
    index = pods.start("index")
    pods.await_health("index", "SERVING", LIVENESS_NAME)
    assert pods.health("index") == "NOT_SERVING"

    others = ("nameserver", "commitlog", "consumequeue", "consumer", "schedule", "gateway")
    services = [pods.start(component) for component in others]
    for component in COMPONENTS:
        pods.await_health(component, "SERVING")
        assert pods.health(component, LIVENESS_NAME) == "SERVING"

    with pods.channel("gateway", name="reput-gateway") as channel:
        gateway = gateway_grpc.GatewayServiceStub(channel)
        message = new_message(TOPIC, b"from a pod", keys=["k"])
        request = pb.AppendMessagesRequest(messages=[message])
        (receipt,) = gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX, wait_for_ready=True).results
        assert receipt.broker_name == "broker-0"
        query = pb.QueryMessageByKeyRequest(topic=TOPIC, key="k")
        wait_until(
            lambda: gateway.QueryMessageByKey(query, timeout=WAIT_SECONDS_MAX).messages, "it is found by its key"
        )
        answer = gateway.QueryMessageByKey(query, timeout=WAIT_SECONDS_MAX)
        (found,) = answer.messages
        # What DNS says of the Service's name.
        assert (found.body, found.store_host) == (b"from a pod", f"127.0.0.1:{pods.port('gateway', '10911')}")
        assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE

    # A client of the remoting protocol is told the shard's door by the name server, and dials it and the address in the id.
    with socket.create_connection(("127.0.0.1", pods.port("nameserver", "9876")), WAIT_SECONDS_MAX) as connected:
        nameserver = RemotingClient(connected)
        wait_until(lambda: nameserver.ask(route(TOPIC).command()).code == 0, "the shard's registration")
        (broker,) = loads(nameserver.ask(route(TOPIC).command()).body)["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": f"localhost:{pods.port('gateway', '10911')}"}
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.crt"))
    host, offset = decode_offset_msg_id(found.offset_msg_id)
    with (
        socket.create_connection((host.ip, host.port), WAIT_SECONDS_MAX) as connected,
        trusted.wrap_socket(connected, server_hostname="reput-gateway") as door,
    ):
        seen = RemotingClient(door).ask(Command(RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(offset)}))
        assert seen.code == 0, seen.remark
        assert b"from a pod" in seen.body

    # The command of docs/kubernetes.md.
    command = [sys.executable, "-m", "cli.main", "send", "-t", TOPIC, "-b", "hello"]
    command += ["--address", f"localhost:{pods.port('gateway', '8081')}", "--tls-ca", str(tmp_path / "ca" / "ca.crt")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    subprocess.run(command, check=True, capture_output=True, env=environ)

    # Nobody without a certificate gets in behind the gateway.
    with pods.channel("commitlog") as channel, pytest.raises(grpc.RpcError) as refused:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    with pods.channel("commitlog", client="gateway") as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)

    assert [service.stop() for service in (*services, index)] == [0] * len(COMPONENTS)
    # Each wrote its own part on its own volume.
    for component in OF_SHARD:
        assert [path.name for path in (pods.directory / component / "store" / "reput").iterdir()] == [component]


def test_a_copied_store_is_served_read_only_with_queues_and_index_on_volumes_of_their_own(pods: Pods) -> None:
    root = unpack_store("broker", pods.directory / "commitlog" / "store")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    services = [pods.start(component, read_only=True) for component in SERVERS]
    for component in SERVERS:
        pods.await_health(component, "SERVING")

    sent = next(row for row in read_rows("broker.sends.jsonl") if row["keys"])
    here = ("--address", f"localhost:{pods.port('gateway', '8081')}", "--tls-ca", str(pods.directory / "ca" / "ca.crt"))
    found = run_command("queryMsgById", "-i", sent["offset_msg_id"], "-o", "json", *here)
    assert found.returncode == 0, found.stderr
    by_key = ("queryMsgByKey", "-t", sent["topic"], "-k", sent["keys"].split()[0], "-o", "json", *here)
    # Until queues and index are built, the answer says that it is partial.
    wait_until(lambda: run_command(*by_key).returncode == 0, lambda: run_command(*by_key).stderr)
    refused = run_command("send", "-t", sent["topic"], "-b", "x", *here)
    assert "STORE_READ_ONLY" in refused.stderr

    assert [service.stop() for service in services] == [0] * len(SERVERS)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
