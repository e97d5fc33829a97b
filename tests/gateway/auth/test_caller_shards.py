"""Groups and what waits, method by method, as a caller has them that may see some topics and consume for some groups only."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.auth.access import ADMIN, READ, Access, Role
from gateway.auth.caller_shards import CallerShards, VisibleTopics, work_for
from gateway.ports import groups as group_ports
from gateway.ports import waiting as waiting_ports
from gateway.ports.chain import ShardMethod
from gateway.ports.groups import (
    COMMIT_OFFSETS,
    DELETE_GROUP,
    GET_FIGURES,
    GET_GROUP,
    GET_OFFSETS,
    LIST_GROUPS,
    LIST_LITE_TOPICS,
    LOCK_QUEUES,
    MAKE_GROUP,
    RESET_OFFSETS,
    SEE_TOPICS,
    SEND_BACK,
    TRACK,
    UPDATE_GROUP,
)
from gateway.ports.shard import STATUSES, Shard
from gateway.ports.shards import Shards
from gateway.ports.waiting import DELAY_LEVELS, KNOWN_OFFSET, LIST_SCHEDULED, LIST_TRANSACTIONS
from gateway.reput.status import status_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1.gateway_service_pb2 import TopicQueue
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from store.errors import PermissionDeniedError

OWN, HIDDEN = "own", "hidden"
BOTH = (OWN, HIDDEN)
# The requests of each method, of a group and a topic.
REQUESTS: Mapping[ShardMethod[Any, Any], Callable[[str, str], Any]] = {
    LIST_GROUPS: lambda group, topic: pb.ListGroupsRequest(page_size=64),
    GET_GROUP: lambda group, topic: pb.GetGroupRequest(consumer_group=group),
    GET_OFFSETS: lambda group, topic: pb.GetOffsetsRequest(consumer_group=group),
    COMMIT_OFFSETS: lambda group, topic: pb.CommitOffsetsRequest(
        consumer_group=group, offsets=[pb.QueueOffset(topic=OWN), pb.QueueOffset(topic=topic)]
    ),
    SEE_TOPICS: lambda group, topic: pb.SeeTopicsRequest(),
    GET_FIGURES: lambda group, topic: pb.GetFiguresRequest(),
    SEND_BACK: lambda group, topic: pb.SendBackMessagesRequest(consumer_group=group, topic=topic),
    LOCK_QUEUES: lambda group, topic: pb.LockQueuesRequest(
        consumer_group=group, queues=[TopicQueue(topic=OWN), TopicQueue(topic=topic)]
    ),
    RESET_OFFSETS: lambda group, topic: pb.ResetOffsetsRequest(consumer_group=group, topic=topic),
    UPDATE_GROUP: lambda group, topic: pb.UpdateGroupRequest(settings=pb.GroupSettings(consumer_group=group)),
    MAKE_GROUP: lambda group, topic: pb.UpdateGroupRequest(settings=pb.GroupSettings(consumer_group=group)),
    DELETE_GROUP: lambda group, topic: pb.DeleteGroupRequest(consumer_group=group),
    TRACK: lambda group, topic: pb.TrackMessageRequest(page_size=64),
    LIST_LITE_TOPICS: lambda group, topic: pb.ListLiteTopicsRequest(consumer_group=group, topic=topic),
    LIST_TRANSACTIONS: lambda group, topic: schedule_pb.ListPendingTransactionsRequest(topic=topic, page_size=64),
    LIST_SCHEDULED: lambda group, topic: schedule_pb.ListScheduledMessagesRequest(topic=topic, page_size=64),
    KNOWN_OFFSET: lambda group, topic: schedule_pb.GetStatusRequest(),
    DELAY_LEVELS: lambda group, topic: schedule_pb.GetStatusRequest(),
}
# What a shard answers that has something of both topics and of both groups.
ANSWERS: Mapping[ShardMethod[Any, Any], Callable[[], Any]] = {
    LIST_GROUPS: lambda: pb.ListGroupsResponse(groups=[pb.GroupSettings(consumer_group=name) for name in BOTH]),
    GET_GROUP: lambda: pb.GetGroupResponse(
        settings=pb.GroupSettings(consumer_group=OWN),
        clients=[client(OWN, BOTH), client(HIDDEN, (HIDDEN,))],
        queues=[pb.GroupQueue(topic=name, queue_id=3) for name in BOTH],
        problems=["hidden consumes something else"],
    ),
    GET_OFFSETS: lambda: pb.GetOffsetsResponse(offsets=[pb.QueueOffset(topic=name) for name in BOTH]),
    TRACK: lambda: pb.TrackMessageResponse(
        tracks=[pb.TrackMessageResponse.Track(consumer_group=name) for name in BOTH]
    ),
    LIST_LITE_TOPICS: lambda: pb.ListLiteTopicsResponse(
        lite_topics=[
            pb.LiteTopic(lite_topic="one", groups=[gateway_pb.LiteTopicGroup(consumer_group=name) for name in BOTH])
        ]
    ),
    LIST_TRANSACTIONS: lambda: schedule_pb.ListPendingTransactionsResponse(
        transactions=[schedule_pb.PendingTransaction(topic=name) for name in BOTH], pending_count=2
    ),
    LIST_SCHEDULED: lambda: schedule_pb.ListScheduledMessagesResponse(
        messages=[schedule_pb.ScheduledMessage(topic=name) for name in BOTH], pending_count=2
    ),
}
NAMES_A_GROUP = {
    GET_GROUP, GET_OFFSETS, COMMIT_OFFSETS, SEND_BACK, LOCK_QUEUES, RESET_OFFSETS, UPDATE_GROUP, MAKE_GROUP, DELETE_GROUP,
    LIST_LITE_TOPICS,
}  # fmt: skip
NAMES_A_TOPIC = {
    COMMIT_OFFSETS, SEND_BACK, LOCK_QUEUES, RESET_OFFSETS, LIST_TRANSACTIONS, LIST_SCHEDULED, LIST_LITE_TOPICS,
}  # fmt: skip


def client(name: str, topics) -> pb.Client:
    subscriptions = [gateway_pb.TopicSubscription(topic=topic) for topic in topics]
    return pb.Client(client_id=name, subscriptions=subscriptions, caller="identity:hidden")


@pytest.fixture
def asked() -> list[Any]:
    """What reached the shard."""
    return []


@pytest.fixture
def seen(fan_out, asked):
    """The shard as a caller has it that may see these topics and consume for these groups; None: for all."""
    shard = Shard("broker-a")
    for method in REQUESTS:
        answer = ANSWERS.get(method, lambda: "done")
        shard = shard.serving(method, lambda request, deadline, answer=answer: (asked.append(request), answer())[1])
    source = CallerShards(Shards([shard], fan_out))

    def of(topics: str, groups: str | None) -> Shard:
        with work_for(VisibleTopics(Access("c", {Role.READ: [topics]}, None if groups is None else [groups]), READ)):
            (one,) = source.now()
        return one

    return of


def name_of(method: ShardMethod[Any, Any]) -> str:
    return method.name


def test_every_method_of_groups_and_of_what_waits_is_asked_here():
    ports = [*vars(group_ports).values(), *vars(waiting_ports).values()]
    assert {each for each in ports if isinstance(each, ShardMethod)} == set(REQUESTS)


@pytest.mark.parametrize("method", REQUESTS, ids=name_of)
def test_a_caller_that_names_a_hidden_group_is_refused_before_the_shard_is_asked(method, seen, asked, deadline):
    request = REQUESTS[method](HIDDEN, OWN)
    if method not in NAMES_A_GROUP:
        seen("*", OWN).call(method, request, deadline)
        return
    with pytest.raises(PermissionDeniedError, match="may not read for consumer group 'hidden'"):
        seen("*", OWN).call(method, request, deadline)
    assert asked == []


@pytest.mark.parametrize("method", REQUESTS, ids=name_of)
def test_a_caller_that_names_a_hidden_topic_is_refused_before_the_shard_is_asked(method, seen, asked, deadline):
    request = REQUESTS[method](OWN, HIDDEN)
    if method not in NAMES_A_TOPIC:
        seen(OWN, None).call(method, request, deadline)
        return
    with pytest.raises(PermissionDeniedError, match="may not read topic 'hidden'"):
        seen(OWN, None).call(method, request, deadline)
    assert asked == []


@pytest.mark.parametrize("method", ANSWERS, ids=name_of)
def test_an_answer_tells_a_limited_caller_nothing_of_hidden_groups_and_topics(method, seen, deadline):
    answer = seen(OWN, OWN).call(method, REQUESTS[method](OWN, OWN), deadline)
    assert HIDDEN.encode() not in answer.SerializeToString()
    assert OWN.encode() in answer.SerializeToString()
    assert getattr(answer, "pending_count", 0) == 0
    assert not getattr(answer, "has_more", False)


@pytest.mark.parametrize("method", ANSWERS, ids=name_of)
def test_an_answer_is_whole_for_a_caller_that_may_see_all_topics_and_groups(method, seen, deadline):
    assert seen("*", "*").call(method, REQUESTS[method](OWN, OWN), deadline) == ANSWERS[method]()


def test_a_group_cannot_begin_in_a_hidden_topic(seen, asked, deadline):
    request = pb.CommitOffsetsRequest(consumer_group=OWN)
    request.beginning.topic = HIDDEN
    with pytest.raises(PermissionDeniedError, match="may not read topic 'hidden'"):
        seen(OWN, None).call(COMMIT_OFFSETS, request, deadline)
    assert asked == []
    request.beginning.topic = OWN
    assert seen(OWN, None).call(COMMIT_OFFSETS, request, deadline) == "done"


@pytest.mark.parametrize(
    ("topics", "groups", "sees_everything"),
    [("*", None, True), ("*", "*", True), ("*", OWN, False), (OWN, None, False), ("**", None, False)],
)
def test_the_status_says_whether_lists_leave_something_out(topics, groups, sees_everything, fan_out, deadline):
    shard = Shard("broker-a").serving(STATUSES, lambda request, deadline: [])
    shards = Shards([shard], fan_out)
    assert status_of(shards, deadline).sees_everything
    access = Access("c", {Role.ADMIN: [topics]}, None if groups is None else [groups])
    with work_for(VisibleTopics(access, ADMIN)):
        assert status_of(CallerShards(shards).now(), deadline).sees_everything is sees_everything


def test_a_limited_caller_learns_nothing_of_the_number_of_what_waits(seen, asked, deadline):
    for method in (LIST_TRANSACTIONS, LIST_SCHEDULED):
        seen(OWN, None).call(method, REQUESTS[method](OWN, ""), deadline)
    assert [list(request.topic_patterns) for request in asked] == [[OWN], [OWN]]
