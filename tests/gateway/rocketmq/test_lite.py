"""Lite topics over RocketMQ's contract: settings, subscriptions, polls, acknowledgements, and notices of what is lost."""

import contextlib
import queue
import threading

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.groups import default_settings
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import InvalidArgumentError, ResourceBusyError
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import ENDPOINTS, GROUP, TOPIC, serving
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

LITE, SIMPLE = v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER


def lite_group(**fields):
    settings = default_settings(GROUP)
    settings.lite.CopyFrom(gateway_pb.LiteSettings(bind_topic=TOPIC, **fields))
    return settings


@pytest.fixture
def shard():
    one = MemoryDelivering()
    one.groups[GROUP] = lite_group()
    return one


@pytest.fixture
def gateway(shard):
    with serving(shard) as one:
        yield one


def refused(consumer, client_type, **options):
    with pytest.raises(grpc.RpcError) as error:
        consumer.tell(consumer.settings(client_type, **options))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return error.value.details()


def sync(consumer, action, *lite_topics, **fields):
    request = v2.SyncLiteSubscriptionRequest(
        action=action, topic=consumer.topic, group=consumer.group, lite_topic_set=lite_topics, **fields
    )
    return consumer.call("SyncLiteSubscription", request).status


def subscriber(gateway, *lite_topics, client_id="client-1", **options):
    consumer = gateway.consumer(client_id=client_id, **options)
    assert consumer.tell(consumer.settings(LITE))[0].status.code == v2.OK
    assert sync(consumer, v2.PARTIAL_ADD, *lite_topics).code == v2.OK
    return consumer


@contextlib.contextmanager
def session(consumer):
    """What a consumer is told on a stream that stays open."""
    commands, told = queue.SimpleQueue(), queue.SimpleQueue()
    commands.put(v2.TelemetryCommand(settings=consumer.settings(LITE)))
    stream = consumer.call("Telemetry", iter(commands.get, None))

    def read():
        with contextlib.suppress(grpc.RpcError):
            for command in stream:
                told.put(command)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert told.get(timeout=WAIT_SECONDS_MAX).HasField("settings")
        yield told
    finally:
        commands.put(None)
        stream.cancel()
        reader.join()


@pytest.mark.parametrize("client_type", [LITE, SIMPLE])
def test_a_lite_consumer_is_told_its_quota_and_the_longest_name(shard, gateway, client_type):
    for asked, told in ((0, 2_000), (7, 7), (-1, (1 << 31) - 1)):
        shard.groups[GROUP] = lite_group(client_quota=asked)
        consumer = gateway.consumer(client_id=f"client-{asked}")
        gateway.clients.group(pb.Client(client_id="x", consumer_group=GROUP), ask_again=True)
        subscription = consumer.tell(consumer.settings(client_type))[0].settings.subscription
        assert (subscription.lite_subscription_quota, subscription.max_lite_topic_size) == (told, 64)
        assert not subscription.fifo


def test_an_ordinary_consumer_is_told_nothing_of_lite_topics(gateway):
    consumer = gateway.consumer(group="others")
    subscription = consumer.tell(consumer.settings())[0].settings.subscription
    assert not subscription.HasField("lite_subscription_quota")
    assert not subscription.HasField("max_lite_topic_size")


def test_a_client_of_the_other_kind_than_its_group_is_refused_both_ways(gateway):
    assert "regular group cannot use LITE mode" in refused(gateway.consumer(group="others"), LITE)
    for client_type in (v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER):
        assert "lite group must use LITE mode" in refused(gateway.consumer(), client_type)
    assert f"expected to bind topic Others, but actual is {TOPIC}" in refused(gateway.consumer(topic="Others"), LITE)
    assert gateway.clients.find("client-1") is None, "it is no member"


def test_a_group_that_was_just_bound_takes_lite_consumers_at_once(shard, gateway):
    del shard.groups[GROUP]
    consumer = gateway.consumer()
    refused(consumer, LITE)
    shard.groups[GROUP] = lite_group()
    assert consumer.tell(consumer.settings(LITE))[0].status.code == v2.OK


def test_a_lite_consumer_polls_each_shard_as_a_whole_also_in_an_ordered_group(shard, gateway):
    shard.groups[GROUP].ordered = True
    consumer = gateway.consumer()
    consumer.tell(consumer.settings(LITE))
    request = v2.QueryAssignmentRequest(topic=consumer.topic, group=consumer.group, endpoints=ENDPOINTS)
    answer = consumer.call("QueryAssignment", request)
    assert [each.message_queue.id for each in answer.assignments] == [-1]


@pytest.mark.parametrize("client_type", [LITE, SIMPLE])
def test_a_heartbeat_of_a_lite_consumer_is_one_of_its_group(shard, gateway, client_type):
    consumer = gateway.consumer()
    beat = v2.HeartbeatRequest(group=consumer.group, client_type=client_type)
    assert consumer.call("Heartbeat", beat).status.code == v2.OK
    assert gateway.clients.find("client-1").facts.consumer_group == GROUP


@pytest.mark.parametrize(
    ("action", "asked"),
    [
        (v2.PARTIAL_ADD, pb.LITE_ACTION_PARTIAL_ADD),
        (v2.PARTIAL_REMOVE, pb.LITE_ACTION_PARTIAL_REMOVE),
        (v2.COMPLETE_ADD, pb.LITE_ACTION_COMPLETE_ADD),
        (v2.COMPLETE_REMOVE, pb.LITE_ACTION_COMPLETE_REMOVE),
    ],
)
def test_subscriptions_are_told_to_every_shard(action, asked):
    shards = [MemoryDelivering("broker-a"), MemoryDelivering("broker-b")]
    shards[0].groups[GROUP] = lite_group()  # the other one does not know the group
    with serving(*shards) as gateway:
        consumer = gateway.consumer()
        assert sync(consumer, action, "a", "b", "a", version=7).code == v2.OK
        for shard in shards:
            question = shard.synced[-1]
            assert (question.consumer_group, question.topic, question.client_id) == (GROUP, TOPIC, "client-1")
            assert (question.action, list(question.lite_topics), question.version) == (asked, ["a", "b"], 7)
            assert not question.HasField("begins")
        assert shards[1].groups[GROUP].lite.bind_topic == TOPIC


@pytest.mark.parametrize(
    ("option", "begins"),
    [
        (v2.OffsetOption(policy=v2.OffsetOption.MIN), pb.LiteOffset(earliest=True)),
        (v2.OffsetOption(policy=v2.OffsetOption.MAX), pb.LiteOffset(latest=True)),
        (v2.OffsetOption(policy=v2.OffsetOption.LAST), None),
        (v2.OffsetOption(), None),
        (v2.OffsetOption(offset=5), pb.LiteOffset(queue_offset=5)),
        (v2.OffsetOption(tail_n=3), pb.LiteOffset(last_count=3)),
        (v2.OffsetOption(timestamp=1_500), pb.LiteOffset(time={"seconds": 1, "nanos": 500_000_000})),
        (v2.OffsetOption(timestamp=(1 << 63) - 1), pb.LiteOffset(time={"seconds": 253402300799, "nanos": 807_000_000})),
    ],
)
def test_an_offset_option_says_where_new_subscriptions_begin(shard, gateway, option, begins):
    consumer = gateway.consumer()
    assert sync(consumer, v2.PARTIAL_ADD, "a", offset_option=option).code == v2.OK
    question = shard.synced[-1]
    assert (question.begins if question.HasField("begins") else None) == begins
    assert sync(consumer, v2.COMPLETE_ADD, "a", offset_option=option).code == v2.OK
    assert not shard.synced[-1].HasField("begins"), "it counts for PARTIAL_ADD only"


@pytest.mark.parametrize(
    ("lite_topics", "fields", "code"),
    [
        (["a b"], {}, v2.ILLEGAL_LITE_TOPIC),
        ([""], {}, v2.ILLEGAL_LITE_TOPIC),
        (["a" * 65], {}, v2.ILLEGAL_LITE_TOPIC),
        (["fine", "a$b"], {}, v2.ILLEGAL_LITE_TOPIC),
        (["a"], {"offset_option": v2.OffsetOption(offset=-1)}, v2.ILLEGAL_OFFSET),
        (["a"], {"offset_option": v2.OffsetOption(tail_n=-1)}, v2.ILLEGAL_OFFSET),
        (["a"], {"offset_option": v2.OffsetOption(timestamp=-1)}, v2.ILLEGAL_OFFSET),
    ],
)
def test_a_subscription_that_is_none_is_refused_and_told_to_no_shard(shard, gateway, lite_topics, fields, code):
    assert sync(gateway.consumer(), v2.PARTIAL_ADD, *lite_topics, **fields).code == code
    assert not shard.synced


def test_subscriptions_of_another_group_or_topic_are_refused(shard, gateway):
    status = sync(gateway.consumer(group="others"), v2.PARTIAL_ADD, "a")
    assert (status.code, "regular group cannot use LITE mode" in status.message) == (v2.BAD_REQUEST, True)
    status = sync(gateway.consumer(topic="Others"), v2.PARTIAL_ADD, "a")
    assert (status.code, f"actual is {TOPIC}" in status.message) == (v2.BAD_REQUEST, True)
    assert sync(gateway.consumer(client_id=""), v2.PARTIAL_ADD, "a").code == v2.CLIENT_ID_REQUIRED
    assert not shard.synced


def test_a_shard_that_is_away_learns_subscriptions_later_but_not_where_they_begin():
    shards = [MemoryDelivering("broker-a"), MemoryDelivering("broker-b")]
    for shard in shards:
        shard.groups[GROUP] = lite_group()
    shards[1].is_down = True
    with serving(*shards) as gateway:
        consumer = gateway.consumer()
        assert sync(consumer, v2.COMPLETE_ADD, "a").code == v2.OK
        assert sync(consumer, v2.PARTIAL_ADD, "a").code == v2.OK
        option = v2.OffsetOption(policy=v2.OffsetOption.MIN)
        assert sync(consumer, v2.PARTIAL_ADD, "a", offset_option=option).code == v2.HA_NOT_AVAILABLE
        shards[0].is_down = True
        assert sync(consumer, v2.COMPLETE_ADD, "a").code == v2.HA_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgumentError("wildcard", field="action"), v2.BAD_REQUEST),
        (ResourceBusyError("busy"), v2.TOO_MANY_REQUESTS),
    ],
)
def test_what_a_shard_refuses_is_refused(shard, gateway, error, code):
    shard.sync_error = error
    assert sync(gateway.consumer(), v2.PARTIAL_ADD, "a").code == code


def test_a_poll_gets_messages_of_the_clients_lite_topics_only(shard, gateway):
    consumer = subscriber(gateway, "a")
    shard.store_lite(TOPIC, "b", b"other")
    shard.store_lite(TOPIC, "a", b"mine", (GROUP, "client-1"))
    code, (message,) = consumer.receive(attempt_id="attempt", batch_size=5)
    assert (code, message.body, message.topic.name) == (v2.OK, b"mine", TOPIC)
    assert message.system_properties.lite_topic == "a"
    assert message.system_properties.message_type == v2.LITE
    assert not message.user_properties
    question = shard.pops[-1]
    assert (question.is_lite, question.client_id, question.max_messages) == (True, "client-1", 5)
    assert not question.HasField("filter")


def test_news_of_a_client_wake_its_poll_and_no_other(shard, gateway):
    first, second = subscriber(gateway, "a"), subscriber(gateway, "a", client_id="client-2")
    polls = [each.poll() for each in (first, second)]
    wait_until(lambda: gateway.room.poll_count == 2 and len(shard.pops) == 2, "both wait")
    shard.store(TOPIC, b"of the parent")  # no news of any client
    shard.store_lite(TOPIC, "a", b"x", (GROUP, "client-2"))
    assert [answer.message.body for answer in polls[1] if answer.HasField("message")] == [b"x"]
    assert len(shard.pops) == 3
    polls[0].cancel()


def test_a_gateway_that_has_just_started_learns_that_a_group_consumes_lite_topics(shard, gateway):
    consumer = gateway.consumer()
    shard.wanted[GROUP, "client-1"].add("a")
    shard.store_lite(TOPIC, "a", b"x")
    assert consumer.receive() == (v2.MESSAGE_NOT_FOUND, [])
    assert [message.body for message in consumer.receive()[1]] == [b"x"]


def test_a_message_of_a_lite_topic_is_acknowledged_by_its_parent(shard, gateway):
    consumer = subscriber(gateway, "a")
    for body in (b"0", b"1", b"2", b"3"):
        shard.store_lite(TOPIC, "a", body)
    handles = [message.system_properties.receipt_handle for message in consumer.receive()[1]]
    entries = [v2.AckMessageEntry(message_id="m", receipt_handle=handles[0], lite_topic="a")]
    acked = consumer.call(
        "AckMessage", v2.AckMessageRequest(group=consumer.group, topic=consumer.topic, entries=entries)
    )
    assert acked.status.code == v2.OK
    change = v2.ChangeInvisibleDurationRequest(
        group=consumer.group, topic=consumer.topic, receipt_handle=handles[1], lite_topic="a", suspend=True
    )
    change.invisible_duration.seconds = 3
    assert consumer.call("ChangeInvisibleDuration", change).status.code == v2.OK
    assert (shard.suspended, shard.given_back) == (["a-1"], [])
    assert consumer.change(handles[2], 5).status.code == v2.OK
    assert shard.suspended == ["a-1"]
    assert consumer.forward(handles[3]).status.code == v2.OK
    assert shard.dead == ["a-3"]
    stranger = gateway.consumer(topic="a")
    assert stranger.ack(handles[0]).status.code == v2.INVALID_RECEIPT_HANDLE


def test_a_client_hears_of_lite_topics_that_it_has_lost(shard, gateway):
    consumer = subscriber(gateway, "a")
    with session(consumer) as told:
        lost = [
            pb.LostLiteTopic(consumer_group=group, topic=TOPIC, client_id=client_id, lite_topic=lite_topic)
            for group, client_id, lite_topic in (
                ("others", "client-1", "not-mine"),
                (GROUP, "client-2", "not-here"),
                (GROUP, "client-1", "a"),
            )
        ]
        shard.announce(pb.WatchArrivalsResponse(lost_lite_topics=lost))
        command = told.get(timeout=WAIT_SECONDS_MAX)
        assert command.notify_unsubscribe_lite_command.lite_topic == "a"

        shard.lost = ["c", "b"]  # the notice got lost
        assert sync(consumer, v2.COMPLETE_ADD, "b", "c", "d").code == v2.OK
        names = [told.get(timeout=WAIT_SECONDS_MAX).notify_unsubscribe_lite_command.lite_topic for _ in range(2)]
        assert names == ["b", "c"]
