"""Which appends pass, with a clock that stands still until it is moved."""

import pytest

from gateway.tenants.tenants import Tenants
from gateway.tenants.tenants_file import TenantsFile, parse_tenants_file
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.observing.meters import Meters
from store.errors import QuotaExceededError


class File:
    """A file that is read again when it changes."""

    def __init__(self, text: str) -> None:
        self.now_seconds = 0.0
        self.write(text)
        self.tenants = Tenants(lambda: self.parsed, lambda: self.now_seconds)

    def write(self, text: str) -> None:
        self.parsed: TenantsFile = parse_tenants_file(text.encode())

    def append(self, *topics: str, body: bytes = b"x") -> None:
        self.tenants.check_append(request_of(*topics, body=body))

    def refused(self, *topics: str) -> dict[str, str]:
        """The metadata of the refusal."""
        with pytest.raises(QuotaExceededError) as caught:
            self.append(*topics)
        return caught.value.metadata

    def shown(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The numbers of the page of metrics."""
        meters = Meters()
        self.tenants.show(meters)
        counted = {
            each.name: {labels: float(count.read()) for labels, count in each.items()} for each in meters.counters
        }
        return counted | {each.name: dict(each.read()) for each in meters.gauges}


def request_of(*topics: str, body: bytes = b"x") -> bytes:
    messages = [message_pb2.NewMessage(topic=topic, body=body) for topic in topics]
    return pb.AppendMessagesRequest(messages=messages).SerializeToString()


def test_messages_above_the_rate_are_refused_and_pass_when_a_second_has_passed() -> None:
    file = File("[namespaces.a]\nsent_messages_per_second = 2")
    file.append("a%T", "a%T")
    assert file.refused("a%T") == {"namespace": "a", "quota": "sent_messages_per_second", "quotaMax": "2"}
    file.now_seconds = 1.0
    file.append("a%T")


def test_bytes_above_the_rate_are_refused_too() -> None:
    file = File("[namespaces.a]\nsent_bytes_per_second = 100")
    file.append("a%T", body=bytes(200))
    assert file.refused("a%T")["quota"] == "sent_bytes_per_second"


def test_retry_and_dead_letter_topics_count_for_the_namespace_of_their_group() -> None:
    file = File("[namespaces.a]\nsent_messages_per_second = 1")
    file.append("%RETRY%a%group")
    assert file.refused("%DLQ%a%group")["namespace"] == "a"


def test_others_pass_whatever_a_namespace_has_used_up() -> None:
    """One without quotas in the file, one that it does not name, and topics without a namespace."""
    file = File("[namespaces.a]\nsent_messages_per_second = 0\n[namespaces.b]")
    file.refused("a%T")
    for topic in ("b%T", "c%T", "T", "%RETRY%group"):
        for _ in range(100):
            file.append(topic)


def test_a_request_of_two_namespaces_is_refused_whole_and_takes_nothing() -> None:
    file = File("[namespaces.a]\nsent_messages_per_second = 0\n[namespaces.b]\nsent_messages_per_second = 1")
    for _ in range(3):
        assert file.refused("b%T", "a%T")["namespace"] == "a"
    file.append("b%T")


def test_each_of_several_gateways_lets_its_part_pass() -> None:
    file = File("gateway_count = 4\n[namespaces.a]\nsent_messages_per_second = 8")
    file.append("a%T", "a%T")
    assert file.refused("a%T")["quotaMax"] == "8"
    file.now_seconds = 0.6
    file.append("a%T")


def test_a_file_that_changes_holds_from_the_next_request_on() -> None:
    file = File("[namespaces.a]\nsent_messages_per_second = 1")
    file.append("a%T")
    file.refused("a%T")
    file.write("[namespaces.a]\nsent_bytes_per_second = 1_000")
    file.append("a%T")
    file.write("[namespaces.a]\nsent_messages_per_second = 0")
    file.refused("a%T")
    file.write("")
    file.append("a%T")


def test_the_same_quotas_written_again_give_no_new_second() -> None:
    file = File("[namespaces.a]\nsent_messages_per_second = 1")
    file.append("a%T")
    file.write("[namespaces.a]\nsent_messages_per_second = 1\n[namespaces.b]")
    file.refused("a%T")


def test_what_cannot_be_parsed_is_left_to_the_commit_log() -> None:
    File("[namespaces.a]\nsent_messages_per_second = 0").tenants.check_append(b"\x0a\x05a%")


def test_what_passed_and_what_was_refused_is_shown_by_namespace() -> None:
    file = File("[namespaces.a]\nsent_messages_per_second = 2\n[namespaces.b]")
    file.append("a%T", "a%T", "b%T", body=b"12345")
    for _ in range(3):
        file.refused("a%T")
    size_bytes = message_pb2.NewMessage(topic="a%T", body=b"12345").ByteSize()
    assert file.shown() == {
        "tenant_refused": {("a", "sent_messages_per_second"): 3.0},
        "reput_tenant_sent_messages_total": {("a",): 2.0, ("b",): 1.0},
        "reput_tenant_sent_bytes_total": {("a",): 2.0 * size_bytes, ("b",): 1.0 * size_bytes},
    }
