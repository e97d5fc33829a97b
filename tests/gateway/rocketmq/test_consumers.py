"""What consumers call, over a real socket, in front of shards that deliver from memory."""

import hashlib
import threading
import zlib
from contextlib import suppress

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.receiving import PollLimits
from gateway.rocketmq.telemetry import SETTINGS_BYTES_MAX
from gateway.settings import CONNECTION_POLL_COUNT
from reput.consumer.v1.consumer_service_pb2 import WatchArrivalsResponse
from services.serving.server_options import CONNECTION_CALL_COUNT_FACTOR
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.groups.memory_groups import group_settings
from tests.gateway.rocketmq.consumers import ENDPOINTS, GROUP, TOPIC, WORKER_COUNT, serving
from tests.support.waiting import wait_until

# Ten times the threads that they may have; a busy machine opens so many before the first ones end.
IDLE_POLL_COUNT = 300


@pytest.fixture
def shard():
    return MemoryDelivering()


@pytest.fixture
def gateway(shard):
    with serving(shard) as one:
        yield one


def parked(gateway, count):
    wait_until(lambda: gateway.room.poll_count == count, lambda: gateway.room.poll_count)


def test_polls_of_a_topic_that_was_deleted_found_no_new_message(shard, gateway):
    """RocketMQ's proxy answers TOPIC_NOT_FOUND (TopicRouteHelper.isTopicNotExistError)."""
    polls = [gateway.consumer(client_id=name).poll() for name in ("a", "b")]
    parked(gateway, 2)
    shard.deleted.add(TOPIC)
    shard.announce(WatchArrivalsResponse(topics=(TOPIC,)))
    assert [next(iter(poll)).status.code for poll in polls] == [v2.TOPIC_NOT_FOUND] * 2
    assert gateway.consumer().receive() == (v2.TOPIC_NOT_FOUND, [])
    shard.deleted.clear()
    shard.store(TOPIC, b"new")
    code, (message,) = gateway.consumer().receive()
    assert (code, message.body) == (v2.OK, b"new")


def test_a_poll_waits_in_a_shard_without_the_topic_while_another_has_it(shard):
    """Messages make a deleted topic again in one shard first; assignments name all that would take its messages."""
    other = MemoryDelivering("broker-b")
    other.deleted.add(TOPIC)
    with serving(shard, other) as gateway:
        poll = gateway.consumer().poll(broker="broker-b")
        wait_until(lambda: other.pops)
        parked(gateway, 1)
        other.deleted.clear()
        other.store(TOPIC, b"here too")
        assert next(iter(poll)).status.code == v2.OK


def test_what_is_there_is_received_whole(shard, gateway):
    shard.store(TOPIC, b"body", tags="a", keys=["k1", "k2"], properties={"colour": "red", "__SHARDINGKEY": "g"})
    code, (message,) = gateway.consumer().receive()
    assert code == v2.OK
    system = message.system_properties
    assert (message.topic.name, message.body, dict(message.user_properties)) == (TOPIC, b"body", {"colour": "red"})
    assert (system.message_id, system.tag, list(system.keys)) == ("Orders-0-0", "a", ["k1", "k2"])
    assert (system.message_group, system.message_type) == ("g", v2.FIFO)
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
    assert (system.body_encoding, system.body_digest.type) == (v2.IDENTITY, v2.MD5)
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert 20 < system.invisible_duration.seconds <= 30
    assert system.receipt_handle


def test_a_body_that_the_store_has_packed_is_delivered_unpacked(shard, gateway):
    shard.store(TOPIC, zlib.compress(b"body" * 1_000), sys_flag=0x301)
    _, (message,) = gateway.consumer().receive()
    assert message.body == b"body" * 1_000
    assert message.system_properties.body_encoding == v2.IDENTITY
    assert message.system_properties.body_digest.checksum == hashlib.md5(message.body).hexdigest().upper()


def test_a_message_of_the_retry_topic_has_the_topic_that_was_asked_for(shard, gateway):
    stored = shard.store(TOPIC, b"x")
    stored.topic = f"%RETRY%{GROUP}_{TOPIC}"
    _, (message,) = gateway.consumer().receive()
    assert message.topic.name == TOPIC


def test_a_poll_waits_until_something_arrives(shard, gateway):
    poll = gateway.consumer().poll()
    parked(gateway, 1)
    shard.store(TOPIC, b"late")
    assert [answer.WhichOneof("content") for answer in poll] == ["status", "message", "delivery_timestamp"]


def test_nothing_in_time_is_message_not_found(gateway):
    """A poll of the shortest time, 5 s, ends before its deadline."""
    assert gateway.consumer().receive(seconds=5, timeout=20) == (v2.MESSAGE_NOT_FOUND, [])


def test_a_poll_whose_time_is_its_deadline_is_answered(gateway):
    """Rust's deadline is its poll time."""
    assert gateway.consumer().receive(seconds=6, timeout=6) == (v2.MESSAGE_NOT_FOUND, [])


@pytest.mark.parametrize(
    ("version", "code"), [("5.0.3", v2.ILLEGAL_POLLING_TIME), ("5.0.2", v2.BAD_REQUEST), ("", v2.BAD_REQUEST)]
)
def test_a_deadline_too_near_is_refused_at_once(gateway, version, code):
    assert gateway.consumer(version=version).receive(timeout=2) == (code, [])


@pytest.mark.parametrize(
    ("code", "options", "fields"),
    [
        (v2.CLIENT_ID_REQUIRED, {"client_id": ""}, {}),
        (v2.ILLEGAL_TOPIC, {"topic": ""}, {}),
        (v2.ILLEGAL_TOPIC, {"topic": "a b"}, {}),
        (v2.ILLEGAL_TOPIC, {"topic": "SCHEDULE_TOPIC_XXXX"}, {}),
        (v2.ILLEGAL_TOPIC, {"topic": "rmq_sys_wheel_timer"}, {}),
        (v2.ILLEGAL_TOPIC, {"topic": "t" * 128}, {}),
        (v2.ILLEGAL_CONSUMER_GROUP, {"group": ""}, {}),
        (v2.ILLEGAL_CONSUMER_GROUP, {"group": "g" * 121}, {}),
        (v2.ILLEGAL_CONSUMER_GROUP, {"group": "CID_RMQ_SYS_TRANS"}, {}),
        (v2.ILLEGAL_INVISIBLE_TIME, {}, {"invisible": 9}),
        (v2.ILLEGAL_INVISIBLE_TIME, {}, {"invisible": 12 * 3600 + 1}),
        (
            v2.ILLEGAL_FILTER_EXPRESSION,
            {},
            {"filter_expression": v2.FilterExpression(type=v2.SQL, expression="illegal")},
        ),
        (v2.NOT_FOUND, {}, {"broker": "broker-x"}),
    ],
)
def test_a_poll_that_cannot_be_served_is_refused_at_once(gateway, code, options, fields):
    assert gateway.consumer(**options).receive(**fields) == (code, [])
    assert gateway.room.poll_count == 0


def test_a_dead_letter_topic_is_a_topic_like_others(shard, gateway):
    shard.store("%DLQ%billing", b"dead")
    code, (message,) = gateway.consumer(topic="%DLQ%billing").receive()
    assert (code, message.topic.name) == (v2.OK, "%DLQ%billing")


def test_a_service_that_is_down_is_said_at_once(shard, gateway):
    shard.is_down = True
    assert gateway.consumer().receive() == (v2.HA_NOT_AVAILABLE, [])


def test_what_is_asked_reaches_the_service(shard, gateway):
    shard.store(TOPIC, b"x")
    tags = v2.FilterExpression(type=v2.TAG, expression="a || b")
    consumer = gateway.consumer(language="PYTHON")
    poll = consumer.poll(batch_size=7, filter_expression=tags, attempt_id="first", auto_renew=True, seconds=5)
    wait_until(lambda: shard.pops)
    asked = shard.pops[0]
    assert (asked.consumer_group, asked.topic, asked.max_messages, asked.client_id) == (GROUP, TOPIC, 7, "client-1")
    assert asked.filter.tags == "a || b"
    assert (asked.attempt_id, asked.max_per_message_group) == ("first", 0)
    assert not asked.HasField("invisible_duration")
    poll.cancel()


@pytest.mark.parametrize("language", ["GOLANG", "GO", "NODE_JS"])
def test_libraries_that_go_on_after_a_failure_get_one_of_each_message_group(shard, gateway, language):
    shard.store(TOPIC, b"x")
    gateway.consumer(language=language).receive(batch_size=100)
    assert (shard.pops[0].max_per_message_group, shard.pops[0].max_messages) == (1, 32)


def test_a_cancelled_poll_takes_no_message(shard, gateway):
    consumer = gateway.consumer()
    poll = consumer.poll()
    parked(gateway, 1)
    poll.cancel()
    parked(gateway, 0)
    shard.store(TOPIC, b"x")
    assert not shard.leases
    code, (message,) = consumer.receive()
    assert (code, message.system_properties.delivery_attempt) == (v2.OK, 1)


def test_a_poll_that_is_cancelled_while_it_looks_gives_back_at_once(shard, gateway):
    shard.store(TOPIC, b"x")
    shard.hold()
    consumer = gateway.consumer()
    poll = consumer.poll()
    parked(gateway, 1)
    poll.cancel()
    parked(gateway, 0)
    shard.release()
    wait_until(lambda: shard.given_back == ["Orders-0-0"])
    code, (message,) = consumer.receive()
    assert (code, message.system_properties.delivery_attempt) == (v2.OK, 1), "the attempt does not count"


def test_answers_that_were_not_taken_are_given_back(shard, gateway):
    """Thirty-two bodies of 1 MiB do not fit into the caller's window."""
    for _ in range(32):
        shard.store(TOPIC, bytes(1 << 20))
    poll = gateway.consumer().poll()
    assert next(poll).status.code == v2.OK
    poll.cancel()
    wait_until(lambda: len(shard.given_back) == 32)
    assert not shard.leases


def test_only_an_answer_that_was_sent_whole_is_renewed(shard, gateway):
    """The messages of an answer that its living client never got were once renewed for 3 hours."""
    for _ in range(32):
        shard.store(TOPIC, bytes(1 << 20))
    poll = gateway.consumer(client_id="broken").poll(auto_renew=True)
    assert next(poll).status.code == v2.OK
    poll.cancel()
    wait_until(lambda: len(shard.given_back) == 32)
    _, given = gateway.consumer().receive(auto_renew=True, batch_size=2)
    gateway.consumer().receive(invisible=30, batch_size=1)  # it is not renewed
    whole = [message.system_properties.receipt_handle for message in given]
    wait_until(lambda: shard.confirmed)
    gateway.clients.keep()
    assert shard.confirmed == whole


def test_one_message_goes_to_one_of_many_polls(shard, gateway):
    consumers = [gateway.consumer(client_id=f"client-{number}") for number in range(20)]
    polls = [consumer.poll() for consumer in consumers]
    parked(gateway, 20)
    shard.store(TOPIC, b"x")
    parked(gateway, 19)
    gateway.server.stop()  # it answers the others
    counts = [sum(answer.HasField("message") for answer in poll) for poll in polls]
    assert sum(counts) == 1


def test_polls_that_wait_have_no_threads():
    shard = MemoryDelivering()
    with serving(shard) as gateway:
        first = gateway.consumer().poll()
        parked(gateway, 1)
        before = threading.active_count()
        consumers = [gateway.consumer(client_id=f"client-{number}") for number in range(10)]
        polls = [consumers[number % 10].poll() for number in range(IDLE_POLL_COUNT)]
        parked(gateway, IDLE_POLL_COUNT + 1)
        # grpc's client here has a thread for each channel; the server makes each of its workers when all others are busy.
        assert threading.active_count() - before <= len(consumers) + WORKER_COUNT
        for poll in [first, *polls]:
            poll.cancel()
        parked(gateway, 0)


def test_a_client_that_polls_many_topics_on_one_connection_still_acknowledges(shard, gateway):
    """Its polls once took all calls that the connection carries, so an acknowledgement waited until one of them ended."""
    consumer = gateway.consumer()
    handle = receive_one(shard, consumer)
    count = CONNECTION_CALL_COUNT_FACTOR * WORKER_COUNT + CONNECTION_POLL_COUNT // 2
    polls = [consumer.poll() for _ in range(count)]
    parked(gateway, count)
    assert consumer.call("AckMessage", consumer.acks(handle)).status.code == v2.OK
    for poll in polls:
        poll.cancel()
    parked(gateway, 0)


def test_a_stop_ends_polls_with_message_not_found(shard, gateway):
    poll = gateway.consumer().poll()
    parked(gateway, 1)
    gateway.server.stop()
    assert next(answer.status.code for answer in poll) == v2.MESSAGE_NOT_FOUND


# Acknowledgements.


def receive_one(shard, consumer, body=b"x"):
    shard.store(TOPIC, body)
    code, (message,) = consumer.receive()
    assert code == v2.OK
    return message.system_properties.receipt_handle


def test_an_acknowledged_message_is_done(shard, gateway):
    consumer = gateway.consumer()
    handle = receive_one(shard, consumer)
    answer = consumer.ack(handle)
    assert (answer.status.code, answer.entries[0].status.code) == (v2.OK, v2.OK)
    assert (answer.entries[0].receipt_handle, answer.entries[0].message_id) == (handle, "id-0")
    assert not shard.leases


@pytest.mark.parametrize("handle", ["", "nonsense", "ä.b", "YnJva2VyLXg.1.x", "YnJva2VyLWE.999.x", "."])
def test_a_handle_that_is_none_is_invalid_for_good(gateway, handle):
    consumer = gateway.consumer()
    answer = consumer.ack(handle)
    assert answer.status.code == answer.entries[0].status.code == v2.INVALID_RECEIPT_HANDLE
    assert consumer.change(handle, 1).status.code == v2.INVALID_RECEIPT_HANDLE
    assert consumer.forward(handle).status.code == v2.INVALID_RECEIPT_HANDLE


def test_entries_have_outcomes_of_their_own_in_order(shard, gateway):
    consumer = gateway.consumer()
    first, second = receive_one(shard, consumer), receive_one(shard, consumer)
    answer = consumer.ack(first, "nonsense", second)
    assert answer.status.code == v2.MULTIPLE_RESULTS
    codes = [entry.status.code for entry in answer.entries]
    assert codes == [v2.OK, v2.INVALID_RECEIPT_HANDLE, v2.OK]
    assert [entry.receipt_handle for entry in answer.entries] == [first, "nonsense", second]


def test_a_handle_of_another_group_is_invalid(shard, gateway):
    handle = receive_one(shard, gateway.consumer())
    assert gateway.consumer(group="other").ack(handle).status.code == v2.INVALID_RECEIPT_HANDLE


def test_a_handle_of_another_topic_acknowledged_its_message(shard, gateway):
    handle = receive_one(shard, gateway.consumer())
    other = gateway.consumer(topic="Other")
    for answer in (other.ack(handle), other.change(handle, 60), other.forward(handle)):
        assert answer.status.code == v2.INVALID_RECEIPT_HANDLE
    assert list(shard.leases) == [handle]


@pytest.mark.parametrize(
    ("stored", "topic", "is_its"),
    [
        ("%RETRY%billing_Orders", "Orders", True),
        ("%RETRY%billing+Orders", "Orders", True),  # of a broker with enableRetryTopicV2
        ("%RETRY%billing_Orders", "%RETRY%billing_Orders", True),
        ("%RETRY%billing", "%RETRY%billing", True),
        ("%DLQ%billing", "%DLQ%billing", True),
        ("space%Orders", "Orders", True),
        ("%RETRY%billing_space%Orders", "Orders", True),
        ("%RETRY%billing_Orders", "Other", False),
        ("%RETRY%other_Orders", "Orders", False),
        ("%RETRY%billing", "Orders", False),
        ("Orders", "billing", False),
    ],
)
def test_a_retry_is_acknowledged_by_the_topic_that_was_asked_for(shard, gateway, stored, topic, is_its):
    handle = shard.handle_of(GROUP, stored)
    status = gateway.consumer(topic=topic).ack(handle).entries[0].status
    assert ("another topic" not in status.message) is is_its


def test_a_handle_goes_to_its_shard():
    shards = MemoryDelivering("broker-a"), MemoryDelivering("broker-b")
    with serving(*shards) as gateway:
        consumer = gateway.consumer()
        handles = []
        for shard in shards:
            shard.store(TOPIC, b"x")
            _, (message,) = consumer.receive(broker=shard.broker_name)
            handles.append(message.system_properties.receipt_handle)
        answer = consumer.ack(*handles)
        assert answer.status.code == v2.OK
        assert [len(shard.leases) for shard in shards] == [0, 0]


def test_a_shard_that_is_down_costs_only_its_own_entries():
    shards = MemoryDelivering("broker-a"), MemoryDelivering("broker-b")
    with serving(*shards) as gateway:
        consumer = gateway.consumer()
        handles = []
        for shard in shards:
            shard.store(TOPIC, b"x")
            _, (message,) = consumer.receive(broker=shard.broker_name)
            handles.append(message.system_properties.receipt_handle)
        shards[0].is_down = True
        answer = consumer.ack(*handles)
        assert [entry.status.code for entry in answer.entries] == [v2.HA_NOT_AVAILABLE, v2.OK]


def test_no_entry_is_a_bad_request(gateway):
    assert gateway.consumer().ack().status.code == v2.BAD_REQUEST


def test_a_changed_time_has_a_new_handle(shard, gateway):
    consumer = gateway.consumer()
    answer = consumer.change(receive_one(shard, consumer), 60)
    assert answer.status.code == v2.OK
    assert consumer.ack(answer.receipt_handle).status.code == v2.OK


def test_a_message_that_is_returned_wakes_a_poll_at_once(shard, gateway):
    consumer = gateway.consumer()
    handle = receive_one(shard, consumer)
    poll = gateway.consumer(client_id="other").poll()
    parked(gateway, 1)
    assert consumer.change(handle, 0).status.code == v2.OK
    answers = list(poll)
    assert answers[1].message.system_properties.delivery_attempt == 2


@pytest.mark.parametrize("seconds", [-1, 12 * 3600 + 1])
def test_a_time_outside_the_limits_is_refused(shard, gateway, seconds):
    consumer = gateway.consumer()
    assert consumer.change(receive_one(shard, consumer), seconds).status.code == v2.ILLEGAL_INVISIBLE_TIME


def test_a_message_that_is_given_up_goes_to_the_dead_letters(shard, gateway):
    consumer = gateway.consumer()
    assert consumer.forward(receive_one(shard, consumer)).status.code == v2.OK
    assert shard.dead == ["Orders-0-0"]


# Settings, assignments, heartbeats.


def test_settings_of_a_consumer_are_answered_with_those_of_its_group(shard, gateway):
    shard.groups[GROUP] = group_settings(GROUP, ordered=True, delivery_attempts_max=4)
    consumer = gateway.consumer()
    for kind in (v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER):
        first, second = consumer.tell(consumer.settings(kind), consumer.settings(kind))
        assert first == second
        assert first.status.code == v2.OK
        settings = first.settings
        assert settings.WhichOneof("pub_sub") == "subscription"
        subscription = settings.subscription
        assert (subscription.group.name, subscription.fifo, subscription.receive_batch_size) == (GROUP, True, 32)
        assert subscription.long_polling_timeout.seconds == 20
        assert settings.backoff_policy.max_attempts == 4
        seconds = [wait.seconds for wait in settings.backoff_policy.customized_backoff.next]
        assert seconds[:6] + seconds[-4:] == [1, 5, 10, 30, 60, 120, 1200, 1800, 3600, 7200]
        assert len(seconds) == 18
        assert not settings.metric.on


def test_an_unordered_group_has_seventeen_attempts(gateway):
    consumer = gateway.consumer()
    (answer,) = consumer.tell(consumer.settings())
    assert (answer.settings.subscription.fifo, answer.settings.backoff_policy.max_attempts) == (False, 17)


def test_one_stream_may_be_of_a_consumer_and_then_of_a_producer(gateway):
    consumer = gateway.consumer()
    publishing = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[consumer.topic]))
    answers = consumer.tell(consumer.settings(), publishing)
    assert [answer.settings.WhichOneof("pub_sub") for answer in answers] == ["subscription", "publishing"]
    assert answers[1].settings.publishing.max_body_size == 4_194_304
    assert answers[1].settings.backoff_policy.exponential_backoff.initial.nanos == 10_000_000


@pytest.mark.parametrize(
    "settings",
    [
        v2.Settings(client_type=v2.PUSH_CONSUMER),
        v2.Settings(subscription=v2.Subscription(group=v2.Resource(name="a b"))),
        v2.Settings(publishing=v2.Publishing(topics=[v2.Resource(name="a b")])),
    ],
)
def test_settings_of_no_client_end_the_stream(gateway, settings):
    with pytest.raises(grpc.RpcError) as caught:
        gateway.consumer().tell(settings)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_settings_that_cannot_be_had_end_the_stream(shard, gateway):
    shard.is_down = True
    consumer = gateway.consumer()
    with pytest.raises(grpc.RpcError) as caught:
        consumer.tell(consumer.settings())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("ordered", "ids"), [(False, [-1]), (True, [0, 1, 2, 3])])
def test_assignments_are_one_for_a_shard_or_one_for_each_queue(ordered, ids):
    shards = MemoryDelivering("broker-a"), MemoryDelivering("broker-b")
    for shard in shards:
        shard.groups[GROUP] = group_settings(GROUP, ordered=ordered)
    with serving(*shards) as gateway:
        consumer = gateway.consumer()
        request = v2.QueryAssignmentRequest(topic=consumer.topic, group=consumer.group, endpoints=ENDPOINTS)
        answer = consumer.call("QueryAssignment", request)
    assert answer.status.code == v2.OK
    queues = [assignment.message_queue for assignment in answer.assignments]
    assert [(queue.broker.name, queue.id) for queue in queues] == [
        (name, queue_id) for name in ("broker-a", "broker-b") for queue_id in ids
    ]
    assert all(queue.broker.endpoints == ENDPOINTS and queue.permission == v2.READ_WRITE for queue in queues)


def test_a_route_says_what_may_be_sent_and_where(gateway):
    consumer = gateway.consumer()
    route = consumer.call("QueryRoute", v2.QueryRouteRequest(topic=consumer.topic, endpoints=ENDPOINTS))
    for queue in route.message_queues:
        assert (queue.permission, queue.broker.name, queue.broker.id) == (v2.READ_WRITE, "broker-a", 0)
        assert queue.broker.endpoints == ENDPOINTS
        assert list(queue.accept_message_types) == [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]


def test_dead_letters_that_nobody_has_are_no_topic(gateway):
    request = v2.QueryRouteRequest(topic=v2.Resource(name="%DLQ%nobody"), endpoints=ENDPOINTS)
    assert gateway.consumer().call("QueryRoute", request).status.code == v2.TOPIC_NOT_FOUND


def beat(consumer, client_type=v2.PUSH_CONSUMER):
    request = v2.HeartbeatRequest(client_type=client_type)
    if client_type != v2.PRODUCER:
        request.group.CopyFrom(consumer.group)
    return consumer.call("Heartbeat", request).status.code


def test_heartbeats_reach_every_shard_within_a_second_or_two():
    shards = MemoryDelivering("broker-a"), MemoryDelivering("broker-b")
    with serving(*shards) as gateway:
        for number in range(3):
            assert beat(gateway.consumer(client_id=f"client-{number}")) == v2.OK
        expected = {(f"client-{number}", GROUP) for number in range(3)}
        for shard in shards:
            wait_until(lambda shard=shard: {client for call in shard.kept for client in call} == expected)


def test_a_client_of_another_gateway_is_taken_by_its_heartbeat(gateway):
    """A gateway that is killed costs nothing but time: its clients come here without telling their settings first."""
    assert beat(gateway.consumer()) == v2.OK
    assert gateway.consumer().receive(seconds=5)[0] == v2.MESSAGE_NOT_FOUND


def test_a_client_that_has_ended_is_not_known_until_it_comes_back(shard, gateway):
    consumer = gateway.consumer()
    consumer.tell(consumer.settings())
    assert beat(consumer) == v2.OK
    poll = consumer.poll()
    parked(gateway, 1)
    end = v2.NotifyClientTerminationRequest(group=consumer.group)
    assert consumer.call("NotifyClientTermination", end).status.code == v2.OK
    assert next(poll).status.code == v2.MESSAGE_NOT_FOUND
    assert shard.ended == [("client-1", GROUP)]
    assert beat(consumer) == v2.UNRECOGNIZED_CLIENT_TYPE
    assert beat(gateway.consumer(client_id="other")) == v2.OK
    consumer.tell(consumer.settings())
    assert beat(consumer) == v2.OK


def test_a_heartbeat_of_a_consumer_names_its_group(gateway):
    consumer = gateway.consumer(group="")
    assert beat(consumer) == v2.ILLEGAL_CONSUMER_GROUP
    assert beat(gateway.consumer(client_id="")) == v2.CLIENT_ID_REQUIRED


# Pulls and offsets.


def pull(consumer, offset, *, seconds=0, queue_id=0, batch_size=0):
    request = v2.PullMessageRequest(
        group=consumer.group,
        message_queue=v2.MessageQueue(topic=consumer.topic, id=queue_id, broker=v2.Broker(name="broker-a")),
        offset=offset,
        batch_size=batch_size,
    )
    request.long_polling_timeout.FromSeconds(seconds)
    return consumer.call("PullMessage", request)


def test_a_pull_reads_a_queue_and_says_where_to_go_on(shard, gateway):
    for number in range(5):
        shard.store(TOPIC, str(number).encode())
    answers = list(pull(gateway.consumer(), 1, batch_size=3))
    assert answers[0].status.code == v2.OK
    assert [answer.message.body for answer in answers[1:-1]] == [b"1", b"2", b"3"]
    assert answers[-1].next_offset == 4
    assert not shard.leases


def test_a_pull_at_the_end_waits_for_the_next_message(shard, gateway):
    consumer = gateway.consumer()
    answers = list(pull(consumer, 0))
    assert (answers[0].status.code, answers[-1].next_offset) == (v2.MESSAGE_NOT_FOUND, 0)
    waiting = pull(consumer, 0, seconds=20)
    parked(gateway, 1)
    shard.announce(WatchArrivalsResponse(topics=(TOPIC,)))
    shard.store(TOPIC, b"late")
    assert next(waiting).status.code == v2.OK
    assert next(waiting).message.body == b"late"


def test_a_pull_outside_the_queue_is_told_where_to_go_on(shard, gateway):
    shard.store(TOPIC, b"x")
    consumer = gateway.consumer()
    answers = list(pull(consumer, 9))
    assert (answers[0].status.code, answers[-1].next_offset) == (v2.ILLEGAL_OFFSET, 1)
    assert next(pull(consumer, -1)).status.code == v2.ILLEGAL_OFFSET
    assert next(pull(consumer, 0, queue_id=99)).status.code == v2.NOT_FOUND
    assert next(pull(consumer, 0, queue_id=-1)).status.code == v2.BAD_REQUEST


def test_a_topic_without_messages_was_no_topic_for_pulls(gateway):
    answers = list(pull(gateway.consumer(), 5))
    assert (answers[0].status.code, answers[-1].next_offset) == (v2.ILLEGAL_OFFSET, 0)
    answers = list(pull(gateway.consumer(), 0, seconds=1))
    assert (answers[0].status.code, answers[-1].next_offset) == (v2.MESSAGE_NOT_FOUND, 0)
    assert next(pull(gateway.consumer(topic="Unknown"), 0)).status.code == v2.TOPIC_NOT_FOUND


def test_an_offset_of_a_group_is_what_was_set(gateway):
    consumer = gateway.consumer()
    where = v2.MessageQueue(topic=consumer.topic, id=1, broker=v2.Broker(name="broker-a"))
    ask = v2.GetOffsetRequest(group=consumer.group, message_queue=where)
    assert consumer.call("GetOffset", ask).status.code == v2.OFFSET_NOT_FOUND
    update = v2.UpdateOffsetRequest(group=consumer.group, message_queue=where, offset=7)
    assert consumer.call("UpdateOffset", update).status.code == v2.OK
    assert consumer.call("GetOffset", ask).offset == 7
    update.offset = -1
    assert consumer.call("UpdateOffset", update).status.code == v2.ILLEGAL_OFFSET


def test_a_queue_that_came_after_its_group_began_had_no_offset_and_so_was_begun_at_its_end(shard, gateway):
    shard.store(TOPIC, b"first of a new queue", queue_id=2)
    consumer = gateway.consumer()
    where = v2.MessageQueue(topic=consumer.topic, id=2, broker=v2.Broker(name="broker-a"))
    ask = v2.GetOffsetRequest(group=consumer.group, message_queue=where)
    assert consumer.call("GetOffset", ask).status.code == v2.OFFSET_NOT_FOUND
    old = v2.MessageQueue(topic=consumer.topic, id=1, broker=v2.Broker(name="broker-a"))
    consumer.call("UpdateOffset", v2.UpdateOffsetRequest(group=consumer.group, message_queue=old, offset=7))

    answer = consumer.call("GetOffset", ask)

    assert (answer.status.code, answer.offset) == (v2.OK, 0)


@pytest.mark.parametrize(
    ("topic", "queue_id", "code"),
    [("Unknown", 0, v2.TOPIC_NOT_FOUND), (TOPIC, 99, v2.NOT_FOUND), (TOPIC, -1, v2.BAD_REQUEST)],
)
def test_an_offset_of_a_queue_that_there_is_not_was_kept(shard, gateway, topic, queue_id, code):
    consumer = gateway.consumer(topic=topic)
    where = v2.MessageQueue(topic=consumer.topic, id=queue_id, broker=v2.Broker(name="broker-a"))
    update = v2.UpdateOffsetRequest(group=consumer.group, message_queue=where, offset=7)
    assert consumer.call("UpdateOffset", update).status.code == code
    assert not shard.positions


def test_the_thread_that_follows_arrivals_comes_back(shard, gateway):
    consumer = gateway.consumer()
    poll = consumer.poll()
    parked(gateway, 1)
    shard.break_streams()
    shard.store(TOPIC, b"while nobody followed")
    assert next(poll).status.code == v2.OK


# What a caller sends is not kept before it is measured.


def test_a_poll_kept_an_attempt_id_of_any_length(shard, gateway):
    assert gateway.consumer().receive(seconds=5, attempt_id="a" * 1_025) == (v2.BAD_REQUEST, [])
    shard.store(TOPIC, b"x")
    assert gateway.consumer().receive(seconds=5, attempt_id="a" * 1_024)[0] == v2.OK


def test_client_ids_of_any_length_were_kept(gateway):
    consumer = gateway.consumer(client_id="c" * 256)
    end = v2.NotifyClientTerminationRequest(group=consumer.group)
    assert consumer.call("NotifyClientTermination", end).status.code == v2.CLIENT_ID_REQUIRED
    assert consumer.call("NotifyClientTermination", v2.NotifyClientTerminationRequest()).status.code == v2.OK
    publishing = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[consumer.topic]))
    (answer,) = consumer.tell(publishing)
    assert answer.status.code == v2.OK
    assert gateway.clients.find("c" * 256) is None
    assert not gateway.clients.has_ended("c" * 256)


def test_settings_of_megabytes_are_refused_and_not_kept(gateway):
    consumer = gateway.consumer()
    settings = consumer.settings()
    settings.access_point.addresses.add(host="h" * SETTINGS_BYTES_MAX)
    with pytest.raises(grpc.RpcError) as refused:
        consumer.tell(settings)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert gateway.clients.find("client-1") is None


@pytest.mark.parametrize("method", ["QueryRoute", "QueryAssignment"])
def test_endpoints_of_a_megabyte_stood_in_each_row_of_a_route(gateway, method):
    consumer = gateway.consumer()
    endpoints = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="h" * 1_024, port=80)])
    make = getattr(v2, f"{method}Request")
    answer = (
        consumer.call(method, make(topic=consumer.topic, group=consumer.group, endpoints=endpoints))
        if (method == "QueryAssignment")
        else consumer.call(method, make(topic=consumer.topic, endpoints=endpoints))
    )
    assert answer.status.code == v2.BAD_REQUEST
    assert answer.ByteSize() < 1_000


def test_a_name_in_a_status_text_is_clipped(gateway):
    code, _ = gateway.consumer().receive(broker="b" * 100_000)
    assert code == v2.NOT_FOUND
    first = next(iter(gateway.consumer().poll(broker="b" * 100_000)))
    assert first.ByteSize() < 1_000


def test_a_service_that_hung_was_a_queue_without_messages(shard):
    """A poll whose look did not end was answered MESSAGE_NOT_FOUND, though nobody knew."""
    with serving(shard, limits=PollLimits(poll_seconds_min=0.1)) as gateway:
        shard.hold()
        answers = []

        def is_answered():  # a tenth of a second before the deadline, which a busy machine may miss
            with suppress(grpc.RpcError):
                answers.extend(gateway.consumer().poll(seconds=0, timeout=1.0))
            return answers

        wait_until(is_answered, "an answer before the deadline")
        shard.release()
    assert answers[0].status.code == v2.PROXY_TIMEOUT
    assert "consumer service of shard broker-a" in answers[0].status.message
