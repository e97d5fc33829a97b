"""Quotas of namespaces over both doors of a whole installation, changed while it runs (docs/tenants.md)."""

import os
import pathlib
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from services.rocketmq.codes import RequestCode, ResponseCode
from services.status import from_status, status_of
from store.errors import QuotaExceededError
from tests.gateway.remoting.requests import DoorClient, send_fields
from tests.support.ports import free_port
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

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
    with hosted_stack(directory / "store", settings=settings, remoting_port=0) as stack:
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
