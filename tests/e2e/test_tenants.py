"""Quotas of namespaces over both doors of a whole installation, changed while it runs (docs/tenants.md)."""

import contextlib
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from cli.main import main
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from services.rocketmq.codes import RequestCode, ResponseCode
from services.status import from_status, status_of
from store.errors import QuotaExceededError
from store.format.topic import namespace_of
from store.walk.log_reader import LogReader
from tests.gateway.remoting.requests import DoorClient, heartbeat, send_fields
from tests.rocketmq import real_broker
from tests.support.ports import free_port
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

OFFICIAL_SOURCES = pathlib.Path(__file__).parents[1] / "gateway/rocketmq/java"
NONE = "[namespaces.team-a]\nsent_messages_per_second = 0\n"
MANY = "[namespaces.team-a]\nsent_messages_per_second = 1_000_000\n"


class Tenants:
    """A stack with quotas.

    Attributes:
        stack: the stack.
        door: a client of its remoting door.
    """

    def __init__(self, stack: HostedStack, file: pathlib.Path, page: str) -> None:
        self.stack = stack
        self.gateway: gateway_grpc.GatewayServiceStub = stack.gateway
        self._file = file
        self._page = page
        self.door = DoorClient(stack.addresses["remoting"])

    def write(self, text: str) -> None:
        scratch = self._file.with_suffix(".new")
        scratch.write_text(text)
        os.replace(scratch, self._file)

    def append(self, *topics: str) -> None:
        """Over our own contract; QuotaExceededError."""
        request = pb.AppendMessagesRequest(messages=[{"topic": topic, "body": b"x"} for topic in topics])
        try:
            self.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        except grpc.RpcError as error:
            status = status_of(error)  # type: ignore[arg-type]  # a call, too
            assert status is not None
            retry = error_details_pb2.RetryInfo()
            assert any(each.Unpack(retry) for each in status.details)
            assert retry.retry_delay.seconds >= 1
            raise from_status(status) from error

    def send(self, namespace: str) -> v2.Status:
        """As official clients do."""
        system = v2.SystemProperties(message_id="01" * 17, message_type=v2.NORMAL)
        topic = v2.Resource(resource_namespace=namespace, name="Orders")
        request = v2.SendMessageRequest(messages=[v2.Message(topic=topic, system_properties=system, body=b"x")])
        metadata = (("x-mq-client-id", "client"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7"))
        stub = v2_grpc.MessagingServiceStub(self.stack.channel)
        return stub.SendMessage(request, metadata=metadata, timeout=WAIT_SECONDS_MAX).status

    def send_at_door(self, topic: str, body: bytes = b"x") -> int:
        """The code of the answer."""
        return self.door.call(RequestCode.SEND_MESSAGE_V2, body, **send_fields(topic, queueId=0)).code

    def shown(self, name: str) -> dict[str, float]:
        """The numbers of a metric, by its labels."""
        with urllib.request.urlopen(self._page, timeout=WAIT_SECONDS_MAX) as page:
            lines = page.read().decode().splitlines()
        rows = (line.removeprefix(name).rpartition(" ") for line in lines if line.startswith(name + "{"))
        return {labels: float(value) for labels, _, value in rows}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    directory = tmp_path_factory.mktemp("tenants")
    file, port = directory / "tenants.toml", free_port()
    file.write_text(MANY)
    settings = {
        "REPUT_GATEWAY_TENANTS_FILE": str(file),
        "REPUT_GATEWAY_METRICS_ADDRESS": f"127.0.0.1:{port}",
    }
    with hosted_stack(directory / "store", settings=settings, remoting_port=0, nameserver_port=0) as stack:
        yield Tenants(stack, file, f"http://127.0.0.1:{port}/metrics")


def is_refused(tenants: Tenants) -> bool:
    try:
        tenants.append("team-a%Orders")
    except QuotaExceededError:
        return True
    return False


def test_a_namespace_over_its_quota_is_refused_at_every_door_and_others_are_served(tenants: Tenants) -> None:
    """And a changed file holds without a restart, in both directions."""
    tenants.append("team-a%Orders")
    assert tenants.send("team-a").code == v2.OK
    for _ in range(3):  # the later ones without being decoded
        assert tenants.send_at_door("team-a%Orders") == ResponseCode.SUCCESS

    tenants.write(NONE)
    wait_until(lambda: is_refused(tenants), "the changed file holds")
    with pytest.raises(QuotaExceededError) as caught:
        tenants.append("team-a%Orders")
    assert caught.value.metadata == {"namespace": "team-a", "quota": "sent_messages_per_second", "quotaMax": "0"}
    assert tenants.send("team-a").code == v2.TOO_MANY_REQUESTS
    for _ in range(3):
        assert tenants.send_at_door("team-a%Orders") == ResponseCode.FLOW_CONTROL
    assert tenants.send_at_door("team-a%Orders", bytes(100_000)) == ResponseCode.FLOW_CONTROL
    for namespace in ("team-b", ""):
        assert tenants.send(namespace).code == v2.OK
        topic = f"{namespace}%Orders" if namespace else "Orders"
        assert tenants.send_at_door(topic) == ResponseCode.SUCCESS
        tenants.append(topic)
    assert tenants.shown("reput_tenant_refused_total") == {
        '{namespace="team-a",quota="sent_messages_per_second"}': pytest.approx(
            7, abs=2
        )  # and those that were waited for
    }
    assert tenants.shown("reput_tenant_sent_messages_total")['{namespace="team-a"}'] >= 5

    tenants.write(MANY)
    wait_until(lambda: not is_refused(tenants), "the changed file holds")
    assert tenants.send("team-a").code == v2.OK
    assert tenants.send_at_door("team-a%Orders") == ResponseCode.SUCCESS


def test_a_file_that_is_not_valid_leaves_the_quotas_as_they_were(
    tenants: Tenants, caplog: pytest.LogCaptureFixture
) -> None:
    tenants.write(NONE)
    wait_until(lambda: is_refused(tenants), "the changed file holds")
    tenants.write("[namespaces.team-a]\nsent_mesages_per_second = 1_000\n")

    def is_told() -> bool:
        assert is_refused(tenants)
        return "auth.reload_failed" in caplog.text and "sent_mesages_per_second" in caplog.text

    wait_until(is_told, "the log says what is wrong")
    tenants.write(MANY)
    wait_until(lambda: not is_refused(tenants), "the changed file holds")


def test_requests_of_a_stream_are_refused_in_their_places(tenants: Tenants) -> None:
    tenants.write(NONE)
    wait_until(lambda: is_refused(tenants), "the changed file holds")
    topics = ["Orders", "team-a%Orders", "team-b%Orders"]
    requests = [pb.AppendMessageStreamRequest(messages=[{"topic": topic, "body": b"x"}]) for topic in topics]
    answers = list(tenants.gateway.AppendMessageStream(iter(requests), timeout=WAIT_SECONDS_MAX))
    assert [len(answer.results) for answer in answers] == [1, 0, 1]
    assert isinstance(from_status(answers[1].error), QuotaExceededError)
    tenants.write(MANY)
    wait_until(lambda: not is_refused(tenants), "the changed file holds")


def test_topics_and_groups_beyond_the_quota_are_refused_at_both_doors(tenants: Tenants) -> None:
    tenants.append("team-c%Orders")
    tenants.write("[namespaces.team-c]\ntopics = 1\ngroups = 1\n")
    topic = pb.CreateTopicRequest(topic="team-c%Refunds")

    def is_refused_by_now() -> bool:
        try:
            tenants.gateway.CreateTopic(topic, timeout=WAIT_SECONDS_MAX)
        except grpc.RpcError as error:
            status = status_of(error)  # type: ignore[arg-type]  # a call, too
            assert status is not None
            return isinstance(from_status(status), QuotaExceededError)
        tenants.gateway.DeleteTopic(pb.DeleteTopicRequest(topic="team-c%Refunds"), timeout=WAIT_SECONDS_MAX)
        return False

    wait_until(is_refused_by_now, "the gateway knows what the namespace has")
    with pytest.raises(QuotaExceededError) as caught:
        tenants.append("team-c%Refunds")
    refused = {"namespace": "team-c", "quota": "topics", "quotaMax": "1", "topic": "team-c%Refunds", "index": "0"}
    assert caught.value.metadata == refused
    assert tenants.send_at_door("team-c%Refunds") == ResponseCode.FLOW_CONTROL
    assert tenants.send_at_door("team-c%Orders") == ResponseCode.SUCCESS

    first = pb.UpdateConsumerGroupRequest(consumer_group="team-c%billing", delivery_attempts_max=3)
    tenants.gateway.UpdateConsumerGroup(first, timeout=WAIT_SECONDS_MAX)
    second = pb.UpdateConsumerGroupRequest(consumer_group="team-c%audit", delivery_attempts_max=3)
    with pytest.raises(grpc.RpcError, match="groups = 1"):
        tenants.gateway.UpdateConsumerGroup(second, timeout=WAIT_SECONDS_MAX)
    beat = heartbeat("member", "team-c%audit", topic="team-c%Orders")
    assert tenants.door.call(RequestCode.HEART_BEAT, beat).code == ResponseCode.FLOW_CONTROL
    beat = heartbeat("member", "team-c%billing", topic="team-c%Orders")
    assert tenants.door.call(RequestCode.HEART_BEAT, beat).code == ResponseCode.SUCCESS
    tenants.gateway.UpdateConsumerGroup(
        pb.UpdateConsumerGroupRequest(consumer_group="audit", delivery_attempts_max=3), timeout=WAIT_SECONDS_MAX
    )


def test_what_namespaces_use_is_listed_with_their_quotas_and_their_bytes_are_those_of_the_log(
    tenants: Tenants, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the RPC, page by page, by the command and by the console."""
    tenants.write("[namespaces.team-a]\nsent_messages_per_second = 7\n[namespaces.unused]\nstored_bytes = 5\n")
    wait_until(lambda: listed(tenants, "unused"), "the changed file holds")
    tenants.stack.wait_until_built()
    rows: list[pb.Tenant] = []
    request = pb.ListTenantsRequest(page_size=1)
    while True:
        page = tenants.gateway.ListTenants(request, timeout=WAIT_SECONDS_MAX)
        rows += page.tenants
        if not (token := page.next_page_token):
            break
        request.page_token = token
    stored: dict[str, int] = {}
    for record in LogReader(tenants.stack.store).dispatch_requests():
        namespace = namespace_of(record.topic)
        stored[namespace] = stored.get(namespace, 0) + record.record_size_bytes
    del stored[""]
    assert {each.namespace: each.stored_bytes for each in rows} == {**stored, "unused": 0}
    assert [each.namespace for each in rows] == sorted({**stored, "unused": 0})
    of = {each.namespace: each for each in rows}
    assert of["team-a"].quotas == pb.TenantQuotas(sent_messages_per_second=7)
    assert of["unused"].quotas == pb.TenantQuotas(stored_bytes=5)
    assert not of["team-b"].HasField("quotas")
    assert (of["team-c"].topic_count, of["team-c"].group_count) == (1, 1)
    assert of["team-b"].sent_messages_per_second > 0
    assert of["team-b"].sent_bytes_per_second > of["team-b"].sent_messages_per_second

    address = tenants.stack.addresses["gateway"]
    assert main(["tenant", "list", "--address", address, "-o", "json"]) == 0
    printed = {row["namespace"]: row for row in json.loads(capsys.readouterr().out)["tenants"]}
    assert printed["team-a"]["quotas"] == {"sent_messages_per_second": 7}
    assert {name: row["stored_bytes"] for name, row in printed.items()} == {**stored, "unused": 0}
    assert main(["tenant", "list", "--address", address, "-n", "nobody"]) == 1
    for language, word in (("en", "Stored bytes"), ("zh", "存储字节数")):
        asked = urllib.request.Request(
            f"http://{tenants.stack.addresses['console']}/tenants", headers={"Accept-Language": language}
        )
        with urllib.request.urlopen(asked, timeout=WAIT_SECONDS_MAX) as answer:
            text = answer.read().decode()
        assert word in text
        assert re.findall(r'<th scope="row"><bdi>([^<]*)</bdi>', text) == sorted(of)


def listed(tenants: Tenants, namespace: str) -> list[pb.Tenant]:
    request = pb.ListTenantsRequest(namespace=namespace)
    return list(tenants.gateway.ListTenants(request, timeout=WAIT_SECONDS_MAX).tenants)


def test_a_client_beyond_the_quota_of_its_namespace_is_refused_at_both_doors(tenants: Tenants) -> None:
    tenants.write("[namespaces.team-d]\nconnections = 1\n")
    wait_until(lambda: listed(tenants, "team-d"), "the changed file holds")
    metadata = (("x-mq-client-id", "first"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7"))
    stub = v2_grpc.MessagingServiceStub(tenants.stack.channel)
    group = v2.Resource(resource_namespace="team-d", name="billing")
    beat = v2.HeartbeatRequest(group=group, client_type=v2.SIMPLE_CONSUMER)
    assert stub.Heartbeat(beat, metadata=metadata, timeout=WAIT_SECONDS_MAX).status.code == v2.OK
    other = (("x-mq-client-id", "second"), *metadata[1:])
    assert stub.Heartbeat(beat, metadata=other, timeout=WAIT_SECONDS_MAX).status.code == v2.TOO_MANY_REQUESTS
    at_door = heartbeat("third", "team-d%billing", topic="team-d%Orders")
    assert tenants.door.call(RequestCode.HEART_BEAT, at_door).code == ResponseCode.FLOW_CONTROL
    assert listed(tenants, "team-d")[0].connection_count == 1

    ended = v2.NotifyClientTerminationRequest(group=group)
    stub.NotifyClientTermination(ended, metadata=metadata, timeout=WAIT_SECONDS_MAX)
    assert tenants.door.call(RequestCode.HEART_BEAT, at_door).code == ResponseCode.SUCCESS
    tenants.door.close()
    wait_until(lambda: not listed(tenants, "team-d")[0].connection_count, "the connection has ended")


class OfficialTenant:
    """The official Java client over gRPC, in any namespace (`java/OfficialTenant.java`)."""

    def __init__(self, gateway: str, work: pathlib.Path) -> None:
        classpath = real_broker.build_classpath(OFFICIAL_SOURCES, real_broker.TOOLS.with_name("official-client"))
        command = ["java", *real_broker.SHORT_LIFE[:2], f"-Duser.home={work}", "-cp", classpath, "OfficialTenant"]
        with open(work / "official.log", "wb") as log:
            self._process = subprocess.Popen(
                [*command, gateway, "Orders"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def send(self, namespace: str) -> str:
        """What it says of one message: `SENT`, or `REFUSED` and the exception."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{namespace}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@pytest.mark.rocketmq
@pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable()))
def test_unmodified_clients_are_refused_over_the_quota_of_their_namespace_and_served_again_behind_it(
    tenants: Tenants, tmp_path: pathlib.Path
) -> None:
    """One of gRPC and one of remoting; those of another namespace are served meanwhile."""
    tenants.write(MANY)
    wait_until(lambda: not is_refused(tenants), "the changed file holds")
    for namespace in ("team-a", "team-b"):
        tenants.append(f"{namespace}%Orders")
    nameserver = tenants.stack.addresses["nameserver"]
    with contextlib.closing(DoorClient(nameserver)) as names:
        for namespace in ("team-a", "team-b"):
            route = functools.partial(names.call, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=f"{namespace}%Orders")
            wait_until(lambda: route().code == ResponseCode.SUCCESS, "the topic is registered")  # noqa: B023

    def over_remoting() -> list[str]:
        said = real_broker.clients(real_broker.VERSION).run("NamespaceSends", nameserver, "Orders", "team-a", "team-b")
        return [line.removeprefix("> ") for line in said.splitlines() if line.startswith("> ")]

    def refused_count() -> float:
        return tenants.shown("reput_tenant_refused_total")['{namespace="team-a",quota="sent_messages_per_second"}']

    with contextlib.closing(OfficialTenant(tenants.stack.addresses["gateway"], tmp_path)) as official:
        for namespace in ("team-a", "team-b"):
            assert official.send(namespace) == "SENT"
        assert over_remoting() == ["SENT", "SENT"]

        tenants.write(NONE)
        wait_until(lambda: is_refused(tenants), "the changed file holds")
        before = refused_count()
        assert official.send("team-a") == "REFUSED TooManyRequestsException"
        attempted = refused_count()
        assert attempted - before > 1, "its own repetition is refused, too"
        assert official.send("team-b") == "SENT"
        assert over_remoting() == [f"REFUSED {ResponseCode.FLOW_CONTROL}", "SENT"]
        assert refused_count() - attempted == 1, "a producer of remoting does not repeat it"

        tenants.write(MANY)
        wait_until(lambda: not is_refused(tenants), "the changed file holds")
        assert official.send("team-a") == "SENT"
        assert over_remoting() == ["SENT", "SENT"]


def test_the_commands_and_the_file_of_the_page_work_as_they_stand(
    tenants: Tenants, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/tenants.md").read_text(encoding="utf-8")
    (file,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 3
    (tmp_path / "tenants.toml").write_text(file)
    tenants.write(file)
    wait_until(lambda: listed(tenants, "team-b")[0].HasField("quotas"), "the changed file holds")
    monkeypatch.chdir(tmp_path)
    for line in lines:
        command, *arguments = shlex.split(line, comments=True)
        assert command == "reput"
        if "--file" not in arguments:
            arguments += ["--address", tenants.stack.addresses["gateway"]]
        assert main(arguments) == 0, line
        assert "team-a" in capsys.readouterr().out
