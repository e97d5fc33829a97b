"""Lite topics in a whole installation: subscriptions and positions in its log, news over Reput, and both after a restart."""

import pathlib
import threading

from google.protobuf.duration_pb2 import Duration

from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.calling.client import ServiceClient
from services.rpcs import consumer as rpc
from store.format.properties import LITE_TOPIC
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

PARENT, GROUP, CLIENT = "Sessions", "assistants", "client-1"


def send(stack: HostedStack, *messages: tuple[str, bytes]) -> None:
    """Messages, each to a lite topic."""
    request = pb.AppendMessagesRequest(
        messages=[
            message_pb2.NewMessage(topic=PARENT, body=body, properties={LITE_TOPIC: name}) for name, body in messages
        ]
    )
    stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)


def consumer_of(stack: HostedStack) -> ServiceClient:
    """A client of the consumer service."""
    return ServiceClient("consumer", stack.addresses["consumer"])


def pop(consumer: ServiceClient) -> list[consumer_pb.Delivery]:
    """What the client gets now."""
    request = consumer_pb.PopMessagesRequest(
        consumer_group=GROUP, topic=PARENT, client_id=CLIENT, is_lite=True, invisible_duration=Duration(seconds=600)
    )
    return list(consumer.call(rpc.POP_MESSAGES, request, WAIT_SECONDS_MAX).deliveries)


def pop_count(consumer: ServiceClient, count: int) -> list[consumer_pb.Delivery]:
    """So many messages, when they have come."""
    delivered: list[consumer_pb.Delivery] = []

    def have_come() -> bool:
        delivered.extend(pop(consumer))
        return len(delivered) >= count

    wait_until(have_come, lambda: f"{len(delivered)} of {count} messages came")
    return delivered


def sync(consumer: ServiceClient, *lite_topics: str) -> int:
    """What the client subscribes to, too."""
    request = consumer_pb.SyncLiteSubscriptionRequest(
        consumer_group=GROUP,
        topic=PARENT,
        client_id=CLIENT,
        action=consumer_pb.LITE_ACTION_PARTIAL_ADD,
        lite_topics=lite_topics,
    )
    return consumer.call(rpc.SYNC_LITE_SUBSCRIPTION, request, WAIT_SECONDS_MAX).lite_topic_count


def test_subscriptions_positions_and_what_is_in_flight_outlive_a_restart(tmp_path: pathlib.Path) -> None:
    """RocketMQ loses subscriptions and what is in flight."""
    with hosted_stack(tmp_path / "store") as stack:
        topic = pb.CreateTopicRequest(topic=PARENT, message_type=message_pb2.MESSAGE_TYPE_LITE)
        stack.gateway.CreateTopic(topic, timeout=WAIT_SECONDS_MAX)
        consumer = consumer_of(stack)
        settings = consumer_pb.GroupSettings(
            consumer_group=GROUP, consume_enabled=True, lite=pb.LiteSettings(bind_topic=PARENT)
        )
        consumer.call(rpc.UPDATE_GROUP, consumer_pb.UpdateGroupRequest(settings=settings), WAIT_SECONDS_MAX)
        assert sync(consumer, *(f"s{number}" for number in range(500))) == 500
        send(stack, ("s1", b"a"), ("s2", b"b"), ("s1", b"c"), ("other", b"x"))
        first = pop_count(consumer, 3)
        assert [one.message.body for one in first if one.message.properties[LITE_TOPIC] == "s1"] == [b"a", b"c"]
        done = [one.receipt_handle for one in first if one.message.body != b"c"]
        acks = consumer_pb.AckMessagesRequest(consumer_group=GROUP, receipt_handles=done)
        consumer.call(rpc.ACK_MESSAGES, acks, WAIT_SECONDS_MAX)
        held = next(one.receipt_handle for one in first if one.message.body == b"c")
        send(stack, ("s1", b"d"), ("s3", b"e"))
        consumer.close()
    with hosted_stack(tmp_path / "store") as stack:
        consumer = consumer_of(stack)
        assert [one.message.body for one in pop_count(consumer, 1)] == [b"e"]
        acks = consumer_pb.AckMessagesRequest(consumer_group=GROUP, receipt_handles=[held])
        (outcome,) = consumer.call(rpc.ACK_MESSAGES, acks, WAIT_SECONDS_MAX).outcomes
        assert outcome == consumer_pb.AckMessagesResponse.OUTCOME_OK
        assert [one.message.body for one in pop_count(consumer, 1)] == [b"d"]
        group = consumer.call(rpc.GET_GROUP, consumer_pb.GetGroupRequest(consumer_group=GROUP), WAIT_SECONDS_MAX)
        assert list(group.queues) == []
        (row,) = group.lite_topics
        assert (row.topic, row.lite_topic_count, row.in_flight_count, row.lag_count) == (PARENT, 3, 2, 2)
        listed = consumer.call(
            rpc.LIST_LITE_TOPICS, consumer_pb.ListLiteTopicsRequest(topic=PARENT, page_size=3), WAIT_SECONDS_MAX
        )
        assert ([each.lite_topic for each in listed.lite_topics], listed.has_more) == (["other", "s0", "s1"], True)
        consumer.close()


def test_a_watcher_hears_which_client_has_news(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        topic = pb.CreateTopicRequest(topic=PARENT, message_type=message_pb2.MESSAGE_TYPE_LITE)
        stack.gateway.CreateTopic(topic, timeout=WAIT_SECONDS_MAX)
        consumer = consumer_of(stack)
        settings = consumer_pb.GroupSettings(
            consumer_group=GROUP, consume_enabled=True, lite=pb.LiteSettings(bind_topic=PARENT)
        )
        consumer.call(rpc.UPDATE_GROUP, consumer_pb.UpdateGroupRequest(settings=settings), WAIT_SECONDS_MAX)
        sync(consumer, "s1")
        heard, is_watching = threading.Event(), threading.Event()

        def watch() -> None:
            for arrived in consumer.follow(rpc.WATCH_ARRIVALS, consumer_pb.WatchArrivalsRequest()):
                is_watching.set()
                if any((one.consumer_group, one.client_id) == (GROUP, CLIENT) for one in arrived.lite_clients):
                    heard.set()
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        assert is_watching.wait(WAIT_SECONDS_MAX)
        send(stack, ("s1", b"a"))
        assert heard.wait(WAIT_SECONDS_MAX)
        thread.join()
        consumer.close()
