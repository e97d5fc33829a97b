"""What a door answers while the queues or the index are behind the log, without a socket."""

import queue
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gateway.ports.shards import Shards
from gateway.queries.freshness import FreshnessWaits
from gateway.remoting import positions, queries
from gateway.remoting.builder_waits import WAIT_SECONDS_MAX, BuilderWaits
from gateway.remoting.door import Door
from gateway.remoting.door_clients import DoorClients
from gateway.remoting.door_shard import DoorShard
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK, Command
from tests.gateway.memory_shard import MemoryShard, with_log_end
from tests.support import waiting
from tests.support.waiting import wait_until

BROKER, TOPIC, QUEUE_ID = "broker-a", "b_order", 1


class LateShard(MemoryShard):
    """A shard whose builders have nothing yet; its log has everything."""

    def _queue(self, topic, queue_id):
        if self.built_offset is None:
            return super()._queue(topic, queue_id)
        return MemoryShard([each for each in self.records if each.commit_log_offset < self.built_offset])._queue(
            topic, queue_id
        )

    def search(self, *arguments, **named):
        found = super().search(*arguments, **named)
        if self.built_offset is not None:
            del found.answer.commit_log_offsets[:]
            found.answer.next_page_token = ""
        return found

    def offset(self, request, deadline):
        return self._end

    def is_written_at(self, offset, deadline):
        return offset < self._end

    def build(self):
        self.built_offset, self.catching_up = None, False


class Timers:
    """Keeps what is due until the test lets it be due."""

    def __init__(self):
        self.due = []

    def set(self, key, at_seconds, due):
        self.due.append(due)

    def run_due(self):
        due, self.due = self.due, []
        for each in due:
            each()


class Asking:
    """A door of a shard that is late, and a connection to it."""

    peer, is_closed = Address("127.0.0.1", 1), False

    def __init__(self, records, fan_out, waiting_count_max=64):
        self.memory = LateShard(records, {TOPIC: 4}, built_offset=0)
        self.now, self.answers, self.timers = 0.0, queue.Queue(), Timers()
        shards = Shards([with_log_end(self.memory.shard(BROKER), self.memory)], fan_out)
        source = SimpleNamespace(now=lambda: shards)
        delivering = SimpleNamespace(broker_name=BROKER, offsets=lambda group, topic, seconds: {})
        nothing = dict.fromkeys(("endings", "producers", "forwarder", "room"), Mock())
        waits = FreshnessWaits(builder_wait_seconds=0)
        shard = DoorShard(
            broker_name=BROKER,
            cluster_name="c",
            listens_at="127.0.0.1:1",
            source=source,
            whole=source,
            deliverings=SimpleNamespace(named=lambda name: delivering, all=lambda: [delivering]),
            clients=DoorClients(),
            topics=Mock(**{"find_now.return_value": None}, new_topic_queue_count=0),
            waits=waits,
            builder_waits=BuilderWaits(self.timers, lambda: self.now, waiting_count_max),
            **nothing,
        )
        self.door = Door({**positions.handlers(shard), **queries.handlers(shard)}, shard.clients)
        self.closes = waits.close, self.door.close

    def answer(self, request, answer):
        self.answers.put(answer)

    def ask(self, code, **fields):
        fields = {"topic": TOPIC, "queueId": QUEUE_ID, "consumerGroup": "new", **fields}
        self.door.on_command(self, Command(code, {name: str(value) for name, value in fields.items()}))

    def later(self, change=lambda: None, *, seconds=0.0):
        """Wait until a request has left its thread, change something, and let it look again after these seconds."""
        wait_until(lambda: self.timers.due, "it has left its thread")
        assert self.answers.empty()
        change()
        self.now += seconds
        self.timers.run_due()

    def next_answer(self):
        found = self.answers.get(timeout=waiting.WAIT_SECONDS_MAX)
        return found.code, dict(found.fields)


@pytest.fixture
def asking(records, fan_out):
    asking = Asking(records, fan_out)
    yield asking
    for close in asking.closes:
        close()


def test_a_new_group_does_not_skip_a_first_message_that_is_not_in_its_queue_yet(asking):
    asking.ask(RequestCode.QUERY_CONSUMER_OFFSET)
    asking.later()
    asking.later(asking.memory.build)
    assert asking.next_answer() == (OK, {"offset": "0"})


def test_a_new_group_is_not_sent_to_the_end_of_a_queue_that_stays_behind(asking):
    asking.ask(RequestCode.QUERY_CONSUMER_OFFSET)
    asking.later(seconds=WAIT_SECONDS_MAX)
    assert asking.next_answer() == (ResponseCode.SERVICE_NOT_AVAILABLE, {})


@pytest.mark.parametrize(
    ("code", "fields", "name", "behind"),
    [
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": (1 << 63) - 1}, "offset", None),
        (RequestCode.GET_MAX_OFFSET, {}, "offset", None),
        (RequestCode.GET_MIN_OFFSET, {}, "offset", "0"),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {}, "timestamp", "-1"),
    ],
)
@pytest.mark.parametrize("is_in_time", [True, False])
def test_what_a_queue_tells_waits_for_its_builder_and_not_for_ever(
    asking, records, code, fields, name, behind, is_in_time
):
    of_queue = [each for each in records if (each.topic, each.queue_id) == (TOPIC, QUEUE_ID)]
    built = {
        RequestCode.GET_MIN_OFFSET: of_queue[0].queue_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: of_queue[0].store_time_millis,
    }
    asking.memory.catching_up = True
    asking.ask(code, **fields)
    if is_in_time:
        asking.later(asking.memory.build)
        assert asking.next_answer() == (OK, {name: str(built.get(code, len(of_queue)))})
    else:
        asking.later(seconds=WAIT_SECONDS_MAX)
        refused = ResponseCode.SERVICE_NOT_AVAILABLE, {}
        assert asking.next_answer() == (refused if behind is None else (OK, {name: behind}))


def test_a_search_by_key_waits_for_the_index(asking, records):
    record = next(each for each in records if each.topic == TOPIC and each.keys)
    window = {"maxNum": 1, "beginTimestamp": 0, "endTimestamp": (1 << 62)}
    asking.ask(RequestCode.QUERY_MESSAGE, key=record.keys[0], **window)
    asking.later()
    asking.later(asking.memory.build)
    assert asking.next_answer()[0] == OK


def test_what_waits_for_a_builder_holds_no_thread_and_its_number_is_limited(records, fan_out):
    asking = Asking(records, fan_out, waiting_count_max=8)
    for _ in range(64):  # more than the door has threads
        asking.ask(RequestCode.QUERY_CONSUMER_OFFSET)
    refused = [asking.next_answer() for _ in range(64 - 4)]  # a client that is alone has half of the places
    assert refused == [(ResponseCode.SERVICE_NOT_AVAILABLE, {})] * 60
    wait_until(lambda: len(asking.timers.due) == 4, "four have left their threads")
    asking.later(asking.memory.build)
    assert [asking.next_answer() for _ in range(4)] == [(OK, {"offset": "0"})] * 4
    for close in asking.closes:
        close()
