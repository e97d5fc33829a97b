"""Commands for topics over several shards: which are asked, what is answered, and what an error says of the others."""

import pytest

from gateway.auth.access import Access, Role
from gateway.auth.caller_shards import CallerShards, VisibleTopics, work_for
from gateway.ports.deadline import Deadline
from gateway.ports.shard import CREATE_TOPIC, DELETE_TOPIC, LIST_TOPICS, UPDATE_TOPIC, Shard, topics_of
from gateway.ports.shards import Shards
from gateway.queries.freshness import FreshnessWaits
from gateway.queries.page import PageTokens
from gateway.reput.queries import Call, topics
from gateway.reput.topics import create_topic, delete_topic, update_topic
from gateway.shards.guard import guarded
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import (
    BrokerNotFoundError,
    DeadlineExceededError,
    InvalidArgumentError,
    PermissionDeniedError,
    ServiceUnavailableError,
    StoreError,
    TopicExistsError,
    TopicNotFoundError,
)
from tests.gateway.memory_shard import MemoryShard, late, topic_row

FIFO = message_pb2.MESSAGE_TYPE_FIFO


class MemoryTopicAdmin:
    """The topics of one shard; `failure` is raised instead of an answer."""

    def __init__(self, *topics: str) -> None:
        self.topics = {topic: topic_row(topic, 8) for topic in topics}
        self.failure: StoreError | None = None
        self.new_topic_queues = 0

    def of(self, shard: Shard) -> Shard:
        """The shard with these topics, which takes commands."""
        methods = {
            LIST_TOPICS: "list_topics",
            CREATE_TOPIC: "create",
            UPDATE_TOPIC: "update",
            DELETE_TOPIC: "delete",
        }
        for method, name in methods.items():
            shard = shard.serving(method, late(self, name))
        return shard

    def list_topics(self, request: log_pb.ListTopicsRequest, deadline: Deadline) -> log_pb.ListTopicsResponse:
        return log_pb.ListTopicsResponse(topics=self.topics.values(), new_topic_queue_count=self.new_topic_queues)

    def create(self, request: log_pb.CreateTopicRequest, deadline: Deadline) -> log_pb.CreateTopicResponse:
        count = request.queue_count or 8
        self._check()
        wanted = topic_row(request.topic, count, perm=request.perm or 6, kind=request.message_type)
        if self.topics.setdefault(request.topic, wanted) != wanted:
            raise TopicExistsError(f"there is {request.topic}", topic=request.topic)
        return log_pb.CreateTopicResponse(topic=wanted)

    def update(self, request: log_pb.UpdateTopicRequest, deadline: Deadline) -> log_pb.UpdateTopicResponse:
        if request.topic not in self.topics:
            raise TopicNotFoundError(f"no {request.topic}", topic=request.topic)
        self._check()
        for field, value in request.ListFields():  # those that are set
            setattr(self.topics[request.topic], field.name, value)
        return log_pb.UpdateTopicResponse(topic=self.topics[request.topic])

    def delete(self, request: log_pb.DeleteTopicRequest, deadline: Deadline) -> log_pb.DeleteTopicResponse:
        self._check()
        return log_pb.DeleteTopicResponse(existed=self.topics.pop(request.topic, None) is not None)

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def admins():
    return {"a": MemoryTopicAdmin("Both", "OnlyA"), "b": MemoryTopicAdmin("Both")}


@pytest.fixture
def shards(admins, fan_out):
    return Shards([admin.of(MemoryShard([]).shard(name)) for name, admin in admins.items()], fan_out)


@pytest.fixture
def call(shards):
    return Call(shards, PageTokens("a secret"), FreshnessWaits(), Deadline.after(60))


def test_a_topic_is_created_on_every_shard_and_again_without_harm(call, admins):
    request = pb.CreateTopicRequest(topic="New", queue_count=4, message_type=FIFO)
    answer = create_topic(call, request)

    assert [
        (row.broker_name, row.topic, row.write_queue_count, row.read_queue_count, row.perm, row.message_type)
        for row in answer.topics
    ] == [
        ("a", "New", 4, 4, 6, FIFO),
        ("b", "New", 4, 4, 6, FIFO),
    ]
    assert create_topic(call, request) == answer
    assert all("New" in admin.topics for admin in admins.values())


def test_a_named_shard_is_the_only_one_that_is_asked(call, admins):
    create_topic(call, pb.CreateTopicRequest(topic="New", broker_name="b"))
    update_topic(call, pb.UpdateTopicRequest(topic="Both", perm=4, broker_name="b"))
    assert list(delete_topic(call, pb.DeleteTopicRequest(topic="Both", broker_name="a")).broker_names) == ["a"]

    assert set(admins["a"].topics) == {"OnlyA"}
    assert set(admins["b"].topics) == {"Both", "New"}
    assert admins["b"].topics["Both"].perm == 4
    for command, request in (
        (create_topic, pb.CreateTopicRequest(topic="New", broker_name="c")),
        (update_topic, pb.UpdateTopicRequest(topic="New", broker_name="c")),
        (delete_topic, pb.DeleteTopicRequest(topic="New", broker_name="c")),
    ):
        with pytest.raises(BrokerNotFoundError):
            command(call, request)


def test_an_update_reaches_the_shards_that_have_the_topic(call):
    assert [row.broker_name for row in update_topic(call, pb.UpdateTopicRequest(topic="OnlyA", perm=4)).topics] == ["a"]
    with pytest.raises(TopicNotFoundError):
        update_topic(call, pb.UpdateTopicRequest(topic="OnlyB", perm=4))
    with pytest.raises(TopicNotFoundError):
        update_topic(call, pb.UpdateTopicRequest(topic="OnlyA", perm=4, broker_name="b"))


def test_one_count_stands_for_both_unless_one_of_them_is_given(call, admins):
    update_topic(call, pb.UpdateTopicRequest(topic="Both", queue_count=12, write_queue_count=4))
    assert admins["b"].topics["Both"] == topic_row("Both", 4, 12)
    update_topic(call, pb.UpdateTopicRequest(topic="Both", message_type=FIFO))
    assert admins["b"].topics["Both"] == topic_row("Both", 4, 12, kind=FIFO)
    update_topic(call, pb.UpdateTopicRequest(topic="Both", message_type=message_pb2.MESSAGE_TYPE_UNSPECIFIED))
    assert admins["b"].topics["Both"] == topic_row("Both", 4, 12)
    for count in (0, -1, 65_537):
        with pytest.raises(InvalidArgumentError) as refused:
            update_topic(call, pb.UpdateTopicRequest(topic="Both", queue_count=count))
        assert refused.value.metadata["field"] == "queue_count"


def test_a_deletion_says_where_the_topic_was(call, admins):
    assert list(delete_topic(call, pb.DeleteTopicRequest(topic="Both")).broker_names) == ["a", "b"]
    assert list(delete_topic(call, pb.DeleteTopicRequest(topic="Both")).broker_names) == []
    assert set(admins["a"].topics) == {"OnlyA"}


def test_an_error_names_its_shard_and_those_that_have_done_it(call, admins):
    admins["a"].failure = ServiceUnavailableError("it is away", service="commitlog")

    with pytest.raises(ServiceUnavailableError) as failed:
        create_topic(call, pb.CreateTopicRequest(topic="New"))

    assert failed.value.metadata == {"service": "commitlog", "brokerName": "a"}
    assert "it is away" in failed.value.message
    assert "shard b has done it" in failed.value.message
    assert "New" in admins["b"].topics
    admins["a"].failure = None
    assert len(create_topic(call, pb.CreateTopicRequest(topic="New")).topics) == 2


def test_an_update_that_fails_on_the_shard_with_the_topic_is_no_unknown_topic(call, admins):
    admins["a"].failure = ServiceUnavailableError("it is away", service="commitlog")
    with pytest.raises(ServiceUnavailableError):
        update_topic(call, pb.UpdateTopicRequest(topic="OnlyA", perm=4))


def test_listed_topics_have_the_settings_of_each_shard_and_a_deleted_one_has_none(records, fan_out, admins):
    """`b_order` has messages on shard a and is configured nowhere."""
    shards = Shards(
        [admin.of(MemoryShard(records if name == "a" else []).shard(name)) for name, admin in admins.items()],
        fan_out,
    )
    call = Call(shards, PageTokens("a secret"), FreshnessWaits(), Deadline.after(60))
    update_topic(call, pb.UpdateTopicRequest(topic="Both", write_queue_count=2, broker_name="b"))

    rows = {row.topic: row for row in topics(call, pb.ListTopicsRequest(page_size=1000)).topics}

    assert [(each.broker_name, each.write_queue_count, each.read_queue_count) for each in rows["Both"].settings] == [
        ("a", 8, 8),
        ("b", 2, 8),
    ]
    assert rows["Both"].queue_count == 16
    assert [each.broker_name for each in rows["OnlyA"].settings] == ["a"]
    assert list(rows["b_order"].settings) == []
    assert rows["b_order"].queue_count > 0


def test_a_shard_that_does_not_list_its_topics_in_time_is_named_by_its_guard(admins):
    clock = [0.0]

    def late(request: log_pb.ListTopicsRequest, deadline: Deadline) -> log_pb.ListTopicsResponse:
        clock[0] += 3
        raise DeadlineExceededError("late")

    admins["a"].list_topics = late
    shard = guarded(admins["a"].of(MemoryShard([]).shard("a")), 2, lambda: clock[0])

    with pytest.raises(ServiceUnavailableError) as named:
        topics_of(shard, Deadline.after(60))
    assert named.value.metadata == {"service": "commitlog", "brokerName": "a"}


def test_the_ports_check_the_topic_once_more_below_the_commands(shards):
    """An admin of some topics; the guard has checked the request before."""
    access = Access("shop", {Role.ADMIN: ["Only*"]})
    source = CallerShards(shards)
    with work_for(VisibleTopics(access, frozenset({Role.ADMIN}))):
        seen = Call(source.now(), PageTokens("a secret"), FreshnessWaits(), Deadline.after(60))

    for command, request in (
        (create_topic, pb.CreateTopicRequest(topic="Both")),
        (update_topic, pb.UpdateTopicRequest(topic="Both", perm=4)),
        (delete_topic, pb.DeleteTopicRequest(topic="Both")),
    ):
        with pytest.raises(PermissionDeniedError):
            command(seen, request)
    assert list(delete_topic(seen, pb.DeleteTopicRequest(topic="OnlyA")).broker_names) == ["a"]
    (first, _) = seen.shards
    assert topics_of(first, Deadline.after(60)) == {}
