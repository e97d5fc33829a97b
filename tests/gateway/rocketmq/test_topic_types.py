"""Which messages a topic takes: in its route, at its senders, and how that is kept up to date."""

import threading

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard
from gateway.ports.shards import FanOut, Shards
from gateway.rocketmq.routes import query_assignment
from gateway.rocketmq.status import RefusedError
from gateway.rocketmq.topic_types import LOOK_SECONDS, TopicTypes
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.message.v1 import message_pb2
from store.errors import ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard, topic_row
from tests.gateway.reput.test_topics import MemoryTopicAdmin
from tests.gateway.rocketmq.test_servicer import ENDPOINTS, new_message, serving
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX

NONE, NORMAL, FIFO, DELAY, TRANSACTION, MIXED, PRIORITY, LITE = (
    message_pb2.MessageType.Value(f"MESSAGE_TYPE_{name}")
    for name in ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")
)
ALL = [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]


class Typed(MemoryShard):
    """A shard with a topic table."""

    def with_table(self, **types: int) -> "Typed":
        self.admin = MemoryTopicAdmin()
        self.admin.new_topic_queues = self.new_topic_queues
        self.admin.topics = {name: topic_row(name, 2, kind=number) for name, number in types.items()}
        return self

    def shard(self, broker_name: str = "broker-a") -> Shard:
        return self.admin.of(super().shard(broker_name))


def typed(new_topic_queues: int = 2, **types: int) -> Typed:
    return Typed([], new_topic_queues=new_topic_queues).with_table(**types)


def route(stubs, topic):
    return stubs.messaging.QueryRoute(v2.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=ENDPOINTS))


@pytest.mark.parametrize(
    ("number", "types"),
    [
        (NONE, ALL),
        (NORMAL, [v2.NORMAL]),
        (FIFO, [v2.FIFO]),
        (DELAY, [v2.DELAY]),
        (TRANSACTION, [v2.TRANSACTION]),
        (MIXED, ALL),
        (PRIORITY, [v2.PRIORITY]),
        (LITE, [v2.LITE]),
    ],
)
def test_a_route_names_the_types_that_the_topic_takes(number, types):
    with serving(typed(Orders=number)) as stubs:
        response = route(stubs, "Orders")
    assert response.status.code == v2.OK
    assert [list(queue.accept_message_types) for queue in response.message_queues] == [types, types]


def test_an_unknown_topic_has_a_route_only_where_it_would_be_created():
    with serving(typed()) as stubs:
        response = route(stubs, "Unheard")
        assert [list(queue.accept_message_types) for queue in response.message_queues] == 2 * [ALL]
    with serving(typed(new_topic_queues=0)) as stubs:
        assert route(stubs, "Unheard").status.code == v2.TOPIC_NOT_FOUND


@pytest.mark.parametrize(
    ("written", "read", "perm", "permissions"),
    [
        (2, 2, 6, [v2.READ_WRITE, v2.READ_WRITE]),
        (1, 3, 6, [v2.READ_WRITE, v2.READ, v2.READ]),
        (3, 1, 6, [v2.READ_WRITE, v2.WRITE, v2.WRITE]),
        (2, 2, 4, [v2.READ, v2.READ]),
        (2, 2, 2, [v2.WRITE, v2.WRITE]),
        (1, 1, 0, [v2.NONE]),
    ],
)
def test_a_route_tells_what_each_queue_may_be_used_for(written, read, perm, permissions):
    shard = typed(Orders=NONE)
    shard.admin.topics["Orders"] = topic_row("Orders", written, read, perm)
    with serving(shard) as stubs:
        queues = route(stubs, "Orders").message_queues
    assert [queue.permission for queue in queues] == permissions
    assert [queue.id for queue in queues] == list(range(len(permissions)))


@pytest.mark.parametrize(
    ("read", "perm", "ordered", "ids"),
    [(3, 6, False, [-1]), (3, 6, True, [0, 1, 2]), (3, 2, False, None), (0, 6, True, None)],
)
def test_an_assignment_has_only_queues_that_may_be_read(read, perm, ordered, ids, fan_out):
    shard = typed(Orders=NONE)
    shard.admin.topics["Orders"] = topic_row("Orders", 2, read, perm)
    request = v2.QueryAssignmentRequest(topic=v2.Resource(name="Orders"), endpoints=ENDPOINTS)

    def assigned():
        return query_assignment(Shards([shard.shard()], fan_out), request, Deadline.after(60), ordered=ordered)

    if ids is None:
        with pytest.raises(RefusedError) as refused:
            assigned()
        assert refused.value.code == v2.FORBIDDEN
    else:
        assert [each.message_queue.id for each in assigned().assignments] == ids


def test_a_message_of_another_type_is_refused_and_one_of_the_right_type_is_stored():
    seen = []

    def append(request, _context):
        seen.extend(message.unique_key for message in request.messages)
        return commitlog_pb.AppendMessagesResponse(results=[message_pb2.AppendResult()] * len(request.messages))

    fifo = new_message(2, "Orders")
    fifo.system_properties.message_group = "g"
    with (
        commit_log_server(append_messages=append) as commitlog,
        serving(typed(Orders=FIFO, Later=DELAY), commitlog_address=commitlog.address) as stubs,
    ):

        def send(*messages):
            return stubs.messaging.SendMessage(
                v2.SendMessageRequest(messages=messages), timeout=WAIT_SECONDS_MAX
            ).status

        refused = send(new_message(1, "Orders"))
        assert refused.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert "NORMAL" in refused.message
        assert "FIFO" in refused.message
        assert send(fifo, new_message(3, "Orders")).code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert send(new_message(4, "Later")).code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        delayed = new_message(5, "Later")
        delayed.system_properties.message_type = v2.DELAY
        assert send(delayed).code == v2.OK
        assert send(fifo).code == v2.OK
        assert send(new_message(6, "Unheard")).code == v2.OK
    assert seen == ["ID5", "ID2", "ID6"]


@pytest.fixture
def types_of_two():
    fan_out = FanOut(2)
    first, second = MemoryTopicAdmin(), MemoryTopicAdmin()
    shards = [admin.of(MemoryShard([]).shard(name)) for name, admin in (("a", first), ("b", second))]
    now = [1_000.0]
    yield TopicTypes(Shards(shards, fan_out), lambda: now[0]), first, second, now
    fan_out.close()


def told(types, topic, **how):
    answered, numbers = threading.Event(), []

    def then(number):
        numbers.append(number)
        answered.set()

    types.tell(topic, then, **how)
    assert answered.wait(WAIT_SECONDS_MAX)
    return numbers[0]


def create(admin, topic, number):
    admin.topics[topic] = topic_row(topic, 1, kind=number)


def test_a_topic_that_was_created_after_a_look_is_known_to_its_first_sender(types_of_two):
    types, first, second, _ = types_of_two
    assert told(types, "Orders") == NONE
    create(second, "Orders", FIFO)
    assert told(types, "Orders") == FIFO
    create(first, "Bills", NORMAL)
    assert told(types, "Bills") == NORMAL


def test_a_changed_type_holds_after_some_seconds_without_a_call_for_each_message(types_of_two):
    types, first, _, now = types_of_two
    calls = []
    listed = first.list_topics
    first.list_topics = lambda request, deadline: calls.append(1) or listed(request, deadline)
    create(first, "Orders", FIFO)
    assert {told(types, "Orders") for _ in range(100)} == {FIFO}
    assert len(calls) == 1
    create(first, "Orders", NORMAL)
    assert told(types, "Orders") == FIFO
    now[0] += 60 * LOOK_SECONDS
    assert told(types, "Orders") == NORMAL


def test_messages_that_fit_a_changed_type_were_refused_for_five_seconds():
    def append(request, _context):
        return commitlog_pb.AppendMessagesResponse(results=[message_pb2.AppendResult()] * len(request.messages))

    shard = typed(Orders=NORMAL)
    with (
        commit_log_server(append_messages=append) as commitlog,
        serving(shard, commitlog_address=commitlog.address) as stubs,
    ):

        def code(message):
            request = v2.SendMessageRequest(messages=[message])
            return stubs.messaging.SendMessage(request, timeout=WAIT_SECONDS_MAX).status.code

        fifo = new_message(2, "Orders")
        fifo.system_properties.message_group = "g"
        assert code(new_message(1, "Orders")) == v2.OK
        assert code(fifo) == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        create(shard.admin, "Orders", FIFO)
        assert code(fifo) == v2.OK
        assert code(new_message(3, "Orders")) == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_types_are_read_again_only_when_the_table_has_another_version(types_of_two):
    types, first, _, _ = types_of_two
    asked = []

    def listed(request, _deadline):
        asked.append(request.known_version)
        rows = first.topics.values() if request.known_version != 7 else ()
        return commitlog_pb.ListTopicsResponse(version=7, topics=rows)

    first.list_topics = listed
    create(first, "Orders", FIFO)
    assert [told(types, "Orders", newest=True) for _ in range(3)] == [FIFO] * 3
    assert asked == [0, 7, 7]


def test_what_a_shard_said_holds_while_it_does_not_answer(types_of_two):
    types, first, second, now = types_of_two
    create(first, "Orders", FIFO)
    create(second, "Orders", NONE)
    assert told(types, "Orders") == FIFO

    def fail(_deadline):
        raise ServiceUnavailableError("down")

    first.settings = fail
    now[0] += 60 * LOOK_SECONDS
    create(second, "Bills", NORMAL)
    assert told(types, "Bills") == NORMAL
    assert told(types, "Orders") == FIFO
