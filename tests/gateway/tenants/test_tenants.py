"""Which appends pass, with a clock that stands still until it is moved."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.ports.chain import Concern
from gateway.ports.deadline import Deadline
from gateway.ports.groups import (
    COMMIT_OFFSETS,
    LIST_GROUPS,
    LOCK_QUEUES,
    MAKE_GROUP,
    RESET_OFFSETS,
    SEND_BACK,
    UPDATE_GROUP,
)
from gateway.ports.shard import CREATE_TOPIC, LIST_STORED, LIST_TOPICS, Shard
from gateway.ports.shards import FanOut
from gateway.ports.shards import Shards as PortShards
from gateway.tenants import tenants
from gateway.tenants.tenants import CLIENT_SECONDS_MAX, Tenants
from gateway.tenants.tenants_file import TenantsFile, parse_tenants_file
from gateway.tenants.usage import Usage
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.observing.meters import Meters
from store.errors import QuotaExceededError, ServiceUnavailableError

FAN_OUT = FanOut(1)


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
    file.tenants.delivered("b%T", 7)
    file.tenants.delivered("T", 7)
    assert file.shown() == {
        "tenant_refused": {("a", "sent_messages_per_second"): 3.0},
        "reput_tenant_sent_messages_total": {("a",): 2.0, ("b",): 1.0},
        "reput_tenant_sent_bytes_total": {("a",): 2.0 * size_bytes, ("b",): 1.0 * size_bytes},
        "reput_tenant_delivered_messages_total": {("a",): 0.0, ("b",): 7.0},
        "reput_tenant_connections": {("a",): 0.0, ("b",): 0.0},
        "reput_tenant_topics": {},
        "reput_tenant_groups": {},
        "reput_tenant_stored_bytes": {},
    }
    file.tenants.now()["b"].has = Usage({"b%T"}, {"b%g", "b%h"}, 99)
    shown = file.shown()
    assert [shown[f"reput_tenant_{what}"] for what in ("topics", "groups", "stored_bytes")] == [
        {("b",): 1.0},
        {("b",): 2.0},
        {("b",): 99.0},
    ]


def looked(text: str, **has: Usage) -> File:
    """A file whose namespaces have been looked at."""
    file = File(text)
    for name, usage in has.items():
        file.tenants.now()[name].has = usage
    return file


def test_an_append_that_would_make_one_topic_too_many_is_refused() -> None:
    file = looked("[namespaces.a]\ntopics = 2", a=Usage({"a%T"}, {"a%g"}))
    file.append("a%T", "a%U")
    refused = {"namespace": "a", "quota": "topics", "quotaMax": "2", "topic": "a%V"}
    assert file.refused("a%V") == refused | {"index": "0"}
    assert file.refused("a%T", "a%V", "a%V") == refused | {"index": "1"}
    file.append("a%U", "%RETRY%a%g", "%DLQ%a%g", "%RETRY%a%g_a%T", "%RETRY%a%g+a%U")


def test_an_append_with_several_new_topics_made_more_than_the_quota() -> None:
    file = looked("[namespaces.a]\ntopics = 2", a=Usage({"a%T"}, {"a%g"}))
    assert file.refused("a%T", "a%U", "%RETRY%a%g", "a%U", "a%V", "a%W")["index"] == "4"
    file.append("a%T", "a%U", "%RETRY%a%g", "a%U")
    assert file.refused("a%W", "a%T")["topic"] == "a%W"


def test_retry_topics_of_no_group_passed_the_quota_of_topics() -> None:
    file = looked("[namespaces.a]\ntopics = 1", a=Usage(set(), {"a%g"}))
    file.append("%RETRY%a%x")
    for topic in ("%RETRY%a%y", "%DLQ%a%y", "%RETRY%a%gone_T", "%RETRY%a%g_1", "%DLQ%a%g_1", "%RETRY%a%g_%RETRY%a%x"):
        file.refused(topic)
        with pytest.raises(QuotaExceededError):
            file.tenants.check_topic(topic)
    topics = ["a%T", "%RETRY%a%x", "%RETRY%a%g", "%RETRY%a%g_a%T", "%RETRY%a%g_1"]
    file.tenants.look(Shards(topics, ["a%g"]))  # type: ignore[arg-type]  # as good as one
    has = file.tenants.now()["a"].has
    assert has is not None
    assert has.topics == {"a%T", "%RETRY%a%x", "%RETRY%a%g_1"}


def test_the_retry_topic_of_a_group_that_has_just_been_made_is_its_own() -> None:
    """Also where groups have no quota, and before the first look."""
    file = File("[namespaces.a]\ntopics = 1")
    file.tenants.check_group("a%g")
    file.append("%RETRY%a%g")
    file.tenants.look(Shards(["%RETRY%a%g"], ["a%g"]))  # type: ignore[arg-type]  # as good as one
    file.append("a%T", "%RETRY%a%g")
    file.tenants.check_group("a%h")
    file.append("%RETRY%a%h")
    file.refused("a%U")


def test_a_command_that_would_make_one_topic_too_many_is_refused() -> None:
    file = looked("[namespaces.a]\ntopics = 1", a=Usage(set(), {"a%g"}))
    file.tenants.check_topic("a%T")
    file.tenants.check_topic("a%T")
    file.tenants.check_topic("%RETRY%a%g")
    file.tenants.check_topic("b%T")
    with pytest.raises(QuotaExceededError):
        file.tenants.check_topic("a%U")


def test_stored_bytes_at_the_quota_refuse_what_is_sent_until_there_is_room_again() -> None:
    """What passed since the last look counts."""
    file = looked("[namespaces.a]\nstored_bytes = 1_000", a=Usage(stored_bytes=900))
    file.append("a%T", body=bytes(200))
    assert file.refused("a%T") == {"namespace": "a", "quota": "stored_bytes", "quotaMax": "1000"}
    file.tenants.look(Shards(topics=["a%T"], stored_bytes=500))  # type: ignore[arg-type]  # as good as one
    file.append("a%T")


def test_nothing_that_has_to_be_looked_at_is_refused_before_the_first_look() -> None:
    file = File("[namespaces.a]\ntopics = 0\ngroups = 0\nstored_bytes = 0")
    file.append("a%T")
    file.tenants.check_group("a%g")
    file.tenants.check_topic("a%T")


class Shards:
    """A source of one shard whose answers are given."""

    def __init__(self, topics: Sequence[str] = (), groups: Sequence[str] = (), stored_bytes: int = 0) -> None:
        self._answers = {
            LIST_TOPICS: log_pb.ListTopicsResponse(topics=[{"topic": topic} for topic in topics]),
            LIST_GROUPS: consumer_pb.ListGroupsResponse(groups=[{"consumer_group": group} for group in groups]),
            LIST_STORED: [queue_pb.Queue(topic=topic, stored_bytes=stored_bytes) for topic in topics],
        }
        self.while_asked: Callable[[], object] = lambda: None

    def now(self) -> PortShards:
        shard = Shard("broker-a")
        for method in self._answers:
            shard = shard.serving(method, lambda request, deadline, method=method: self._answer(method))  # type: ignore[misc]
        return PortShards([shard], FAN_OUT)

    def _answer(self, method: Any) -> Any:
        self.while_asked()
        return self._answers[method]


def test_a_look_finds_topics_groups_and_bytes_and_leaves_retry_topics_to_their_groups() -> None:
    file = File("[namespaces.a]\ntopics = 9\n[namespaces.b]")
    topics = ["a%T", "a%U", "%RETRY%a%g", "%DLQ%a%g", "b%T", "T"]
    file.tenants.look(Shards(topics, ["a%g", "a%h", "g"], 10))  # type: ignore[arg-type]  # as good as one
    has = file.tenants.now()["a"].has
    assert has is not None
    assert (has.topics, has.groups, has.stored_bytes) == ({"a%T", "a%U"}, {"a%g", "a%h"}, 40)


def test_a_topic_that_passes_while_its_namespace_is_looked_at_is_not_lost() -> None:
    file = looked("[namespaces.a]\ntopics = 1\ngroups = 1", a=Usage())
    shards = Shards()
    shards.while_asked = lambda: (file.append("a%T"), file.tenants.check_group("a%g"))
    file.tenants.look(shards)  # type: ignore[arg-type]  # as good as one
    file.append("a%T")
    file.refused("a%U")
    with pytest.raises(QuotaExceededError):
        file.tenants.check_group("a%h")
    shards.while_asked = lambda: None
    file.tenants.look(shards)  # type: ignore[arg-type]  # as good as one
    file.append("a%U")  # nothing has come of the other one


def test_while_a_shard_does_not_answer_what_is_sent_counts_on() -> None:
    """Each look that failed once let as many bytes pass as there was room at the last one that did not."""
    file = looked("[namespaces.a]\nstored_bytes = 1_000", a=Usage(stored_bytes=700))
    shards = Shards()

    def fail() -> None:
        raise ServiceUnavailableError("gone", service="commitlog")

    shards.while_asked = fail
    file.append("a%T", body=bytes(200))
    with pytest.raises(ServiceUnavailableError):
        file.tenants.look(shards)  # type: ignore[arg-type]  # as good as one
    file.append("a%T", body=bytes(200))
    assert file.refused("a%T")["quota"] == "stored_bytes"
    shards.while_asked = lambda: None
    file.tenants.look(shards)  # type: ignore[arg-type]  # as good as one
    file.append("a%T", body=bytes(200))


def test_names_that_clients_invent_are_kept_only_where_a_quota_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without such a quota nobody looks, and nothing would ever be forgotten."""
    monkeypatch.setattr(tenants, "NOTED_COUNT_MAX", 5)
    file = File(
        "[namespaces.a]\nsent_messages_per_second = 1_000\n[namespaces.b]\ntopics = 2\n[namespaces.c]\ngroups = 99"
    )
    for number in range(20):
        file.append(f"a%{number}", f"b%{number}")
        file.tenants.check_group(f"a%{number}")
        file.tenants.check_group(f"c%{number}")
    noted = {name: tenant.unseen for name, tenant in file.tenants.now().items()}
    assert [len(noted[name].topics) for name in "abc"] == [0, 3, 0]
    assert [len(noted[name].groups) for name in "abc"] == [0, 0, 5]


def test_clients_that_invent_ids_are_forgotten_without_a_quota_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "CLIENT_COUNT_MAX", 10)
    file = File("[namespaces.a]")
    for number in range(20):
        file.tenants.check_client(number, ["a%g"])
    file.tenants.check_client(10, ["a%g"])
    assert list(file.tenants.now()["a"].clients) == [*range(11, 20), 10]
    file.now_seconds = CLIENT_SECONDS_MAX + 1
    file.tenants.check_client(99, ["a%g"])
    assert list(file.tenants.now()["a"].clients) == [99]


def test_no_shard_is_asked_where_no_quota_needs_it() -> None:
    File("[namespaces.a]\nsent_messages_per_second = 1").tenants.look(None)  # type: ignore[arg-type]  # not asked


@pytest.mark.parametrize(
    ("method", "request_of_it"),
    [
        (CREATE_TOPIC, log_pb.CreateTopicRequest(topic="a%new")),
        (UPDATE_GROUP, consumer_pb.UpdateGroupRequest(settings={"consumer_group": "a%new"})),
        (MAKE_GROUP, consumer_pb.UpdateGroupRequest(settings={"consumer_group": "a%new"})),
        (COMMIT_OFFSETS, consumer_pb.CommitOffsetsRequest(consumer_group="a%new")),
        (RESET_OFFSETS, consumer_pb.ResetOffsetsRequest(consumer_group="a%new")),
        (SEND_BACK, consumer_pb.SendBackMessagesRequest(consumer_group="a%new")),
        (LOCK_QUEUES, consumer_pb.LockQueuesRequest(consumer_group="a%new")),
    ],
)
def test_the_chain_of_a_shard_refuses_what_makes_one_too_many(method: Any, request_of_it: Any) -> None:
    file = looked("[namespaces.a]\ntopics = 1\ngroups = 1", a=Usage({"a%old"}, {"a%old"}))
    asked: list[Any] = []
    shard = Shard("broker-a").serving(method, lambda request, deadline: asked.append(request))
    shard = shard.with_link(Concern.QUOTAS, file.tenants.link)
    with pytest.raises(QuotaExceededError):
        shard.call(method, request_of_it, Deadline.after(1))
    assert asked == []
    file.write("")
    shard.call(method, request_of_it, Deadline.after(1))
    assert asked == [request_of_it]


def test_a_client_too_many_is_refused_and_those_that_are_there_go_on() -> None:
    file = File("[namespaces.a]\nconnections = 2\n[namespaces.b]")
    for client in (1, 2, 1, 2):
        file.tenants.check_client(client, ["a%g", "a%T", "T", ""])
    with pytest.raises(QuotaExceededError) as caught:
        file.tenants.check_client(3, ["b%g", "a%g"])
    assert caught.value.metadata == {"namespace": "a", "quota": "connections", "quotaMax": "2"}
    assert [file.tenants.connection_count(name) for name in ("a", "b", "c")] == [2, 0, 0]
    file.tenants.check_client(3, ["b%g", "c%g", "g"])
    assert file.tenants.connection_count("b") == 1


def test_a_client_that_ends_or_is_silent_makes_room_for_another() -> None:
    file = File("[namespaces.a]\nconnections = 1")
    file.tenants.check_client(1, ["a%g"])
    file.tenants.end_client(1)
    file.tenants.check_client(2, ["a%g"])
    file.now_seconds = CLIENT_SECONDS_MAX
    file.tenants.check_client(2, [])  # a heartbeat that names nothing
    file.now_seconds = 2 * CLIENT_SECONDS_MAX
    with pytest.raises(QuotaExceededError):
        file.tenants.check_client(3, ["a%g"])
    file.now_seconds += 1
    file.tenants.check_client(3, ["a%g"])


def test_each_of_several_gateways_takes_its_part_of_the_clients_rounded_up() -> None:
    file = File("gateway_count = 2\n[namespaces.a]\nconnections = 3")
    for client in (1, 2):
        file.tenants.check_client(client, ["a%g"])
    with pytest.raises(QuotaExceededError):
        file.tenants.check_client(3, ["a%g"])
