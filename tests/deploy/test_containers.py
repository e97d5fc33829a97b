"""The image, built and run for real: six containers without rights that talk over a bridge."""

import ipaddress
import json
import pathlib
import re
import secrets
import sys
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from tests.support import containers
from tests.support.containers import Container, podman, wait_for
from tests.support.ports import free_port
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX

MISSING = containers.missing_programs()
pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

SERVICES = ("commitlog", "consumequeue", "index", "consumer", "schedule", "gateway")
MODULES = {name: name if name == "gateway" else f"{name}_svc" for name in SERVICES}
PORTS = {
    "gateway": 8081,
    "commitlog": 8082,
    "consumequeue": 8083,
    "index": 8084,
    "consumer": 8085,
    "schedule": 8086,
}
USER = 65532
MEMORY = "512m"
SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576",
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
}


class Installation:
    """The six services as containers on one bridge, each with a volume of its own; the gateway also on loopback."""

    def __init__(self, image: str) -> None:
        self.mark = f"reput-test-{secrets.token_hex(4)}"
        self.port = free_port()
        self.image = image
        self.containers: dict[str, Container] = {}

    def names(self) -> list[tuple[str, str]]:
        """Everything that is made."""
        made = [("container", self.name(service)) for service in SERVICES]
        made += [("volume", self.name(service)) for service in SERVICES[:-1]]
        return [*made, ("network", self.mark)]

    def name(self, service: str) -> str:
        return f"{self.mark}-{service}"

    def start(self) -> None:
        podman("network", "create", "--disable-dns", self.mark)
        subnet = json.loads(podman("network", "inspect", self.mark))[0]["subnets"][0]["subnet"]
        # A container that is started again has its address again, as a pod has its name.
        hosts = dict(zip(SERVICES, list(ipaddress.ip_network(subnet).hosts())[9:], strict=False))
        addresses: dict[str, str] = {}
        for service in SERVICES:
            environment = {f"REPUT_{service.upper()}_ADDRESS": f"0.0.0.0:{PORTS[service]}", **SMALL_FILES}
            environment |= {f"REPUT_{name.upper()}_TARGET": address for name, address in addresses.items()}
            flags = [f"--network={self.mark}", f"--ip={hosts[service]}", f"--memory={MEMORY}", "--tmpfs=/tmp"]
            flags += [f"--env={name}={value}" for name, value in environment.items()]
            if service == "gateway":
                flags.append(f"--publish=127.0.0.1:{self.port}:{PORTS[service]}")
            else:
                podman("volume", "create", f"--opt=o=uid={USER},gid={USER}", self.name(service))
                flags += [f"--volume={self.name(service)}:/store", "--env=REPUT_STORE=/store"]
            self.containers[service] = Container(
                self.name(service), self.image, flags, "python", "-m", MODULES[service]
            )
            addresses[service] = f"{hosts[service]}:{PORTS[service]}"

    def is_serving(self) -> bool:
        """Whether the gateway says so, and every service behind it."""
        try:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                health = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX
                )
                if health.status != health_pb2.HealthCheckResponse.SERVING:
                    return False
                status = gateway_grpc.GatewayServiceStub(channel).GetStatus(
                    pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX
                )
        except grpc.RpcError:
            return False
        return all(not row.HasField("error") and not row.catching_up for row in status.services)


@pytest.fixture(scope="module")
def installation(serve_image: str, whole_image: str) -> Iterator[Installation]:
    made = Installation(serve_image)
    with containers.removed_afterwards(*made.names()):
        made.start()
        seconds = wait_for(made.is_serving, "six containers serve")
        sizes = {name: image_size_bytes(name) // 1_000_000 for name in (serve_image, whole_image)}
        print(f"\nstart of six containers to serving: {seconds:.1f} s; images in MB: {sizes}", file=sys.stderr)
        yield made


def image_size_bytes(name: str) -> int:
    return int(podman("image", "inspect", "--format={{.Size}}", name))


def test_append_find_and_a_killed_log(installation: Installation) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{installation.port}") as channel:
        gateway = gateway_grpc.GatewayServiceStub(channel)
        messages = [new_message("Orders", f"body {i}".encode(), keys=[f"order-{i}", "all"]) for i in range(200)]
        receipts = gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=messages, flush=message_pb2.FLUSH_MODE_SYNC), timeout=WAIT_SECONDS_MAX
        ).results

        log = installation.containers["commitlog"]
        log.kill()
        log.start()
        wait_for(installation.is_serving, "serving after a kill")

        def found() -> set[str]:
            ids: set[str] = set()
            token = ""
            while True:
                page = gateway.QueryMessageByKey(
                    pb.QueryMessageByKeyRequest(topic="Orders", key="all", page_size=64, page_token=token),
                    timeout=WAIT_SECONDS_MAX,
                )
                ids |= {message.offset_msg_id for message in page.messages}
                token = page.next_page_token
                if not token:
                    return ids

        expected = {receipt.offset_msg_id for receipt in receipts}
        wait_for(lambda: found() == expected, "all found by key")
        one = gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=receipts[7].offset_msg_id), timeout=WAIT_SECONDS_MAX
        )
        assert b"body 7" == one.message.body
        copies = gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic="Orders", unique_key=receipts[9].unique_key),
            timeout=WAIT_SECONDS_MAX,
        )
        assert [b"body 9"] == [message.body for message in copies.messages]
        at = gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(
                topic="Orders", queue_id=receipts[3].queue_id, queue_offset=receipts[3].queue_offset, max_messages=1
            ),
            timeout=WAIT_SECONDS_MAX,
        )
        assert [b"body 3"] == [message.body for message in at.messages]


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_no_rights_and_no_tools(installation: Installation, service: str) -> None:
    container = installation.containers[service]
    # One call: each is a process of podman and one of runc. `command -v` takes one name.
    printed = container.run(
        "sh", "-c",
        "touch /opt/reput/x 2>/dev/null && echo written\n"
        "for tool in gcc cc g++ clang make pip pip3 curl wget; do command -v $tool; done\n"
        "cat /proc/1/status",
    )  # fmt: skip
    written_and_found, _, rest = printed.partition("Name:")
    status = dict(line.split(":\t", 1) for line in rest.splitlines() if ":\t" in line)

    assert "" == written_and_found
    assert {str(USER)} == set(status["Uid"].split())
    assert {str(USER)} == set(status["Gid"].split())
    assert 0 == int(status["CapEff"], 16) == int(status["CapBnd"], 16)
    assert "1" == status["NoNewPrivs"]
    memory = container.inspect()["HostConfig"]["Memory"]  # type: ignore[index]
    assert 512 * 1024 * 1024 == memory


def test_the_command_is_found_without_a_profile_of_a_shell(installation: Installation) -> None:
    assert re.fullmatch(r"reput \d+\.\d+\.\d+", installation.containers["gateway"].run("reput", "--version"))


def test_kernels_that_were_compiled_with_the_image_are_used(installation: Installation) -> None:
    listing = installation.containers["commitlog"].run(
        "python", "-c",
        "from store.compiled import built\n"
        "from deploy import build_kernels\n"
        "print(all(built.load(name) is not None for name in build_kernels.kernel_names()))",
    )  # fmt: skip

    assert "True" == listing


def test_the_bill_of_materials_names_what_is_pinned(whole_image: str) -> None:
    printed = podman(
        "run", "--rm", "--network=none", *containers.HARDENED, whole_image, "cat", "/opt/reput/sbom.cdx.json"
    )
    bill = json.loads(printed)
    listed = {part["purl"].partition("?")[0] for part in bill["components"]}
    pinned = pathlib.Path(containers.ROOT / "requirements" / "pipeline.txt").read_text()
    expected = {
        f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        for name, version, marker in re.findall(
            r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==(\S+?)( ;[^\\\n]*)? *\\?$", pinned, re.MULTILINE
        )
        if not marker
    }

    assert ("CycloneDX", "1.5") == (bill["bomFormat"], bill["specVersion"])
    assert len(expected) > 20
    assert expected <= listed
    assert any(purl.startswith("pkg:deb/debian/libc6@") for purl in listed)


def test_the_whole_image_runs_the_pipeline_without_a_network(whole_image: str) -> None:
    script = (
        "import os; os.chdir('/tmp')\n"
        "import pipeline\n"
        "spark = pipeline.session(**{'spark.master': 'local[1]', 'spark.driver.memory': '512m'})\n"
        "print(spark.range(1000).selectExpr('sum(id)').first()[0])\n"
        "spark.stop()\n"
    )
    flags = ["--rm", "--network=none", "--tmpfs=/tmp:exec", *containers.HARDENED]
    assert "499500" == podman("run", *flags, whole_image, "python", "-c", script).splitlines()[-1]
