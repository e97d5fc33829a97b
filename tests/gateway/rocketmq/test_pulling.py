"""PullMessage of RocketMQ's clients: what it says of an offset behind the end of its queue."""

import threading
import time

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery import queue_end
from gateway.rocketmq.pulling import OfficialPull
from gateway.rocketmq.pulling import Pulling as OfficialPulling
from reput.consumer.v1.consumer_service_pb2 import PullMessagesRequest, WatchArrivalsResponse
from tests.gateway.reput.test_pulling import Pulling
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


class Call:
    """A Streamable that keeps what it got."""

    def __init__(self):
        self.sent = []
        self._ended = threading.Event()

    def peer(self):
        return "ipv4:127.0.0.1:1"

    def send(self, answer):
        self.sent.append(v2.PullMessageResponse.FromString(answer))

    def end(self, last=None, then=None):
        self.sent += [] if last is None else [v2.PullMessageResponse.FromString(last)]
        self._ended.set()

    def answers(self):
        assert self._ended.wait(WAIT_SECONDS_MAX)
        return self.sent


@pytest.fixture
def pulling(fan_out):
    """A shard whose topic has two messages; its consumer service has seen half of the log."""
    made = Pulling(fan_out)
    for number in range(2):
        made.delivering.store("T", b"%d" % number)
    made.delivering.seen_offset = 500
    yield made
    made.close()


def begun(pulling, queue_offset):
    call, now = Call(), time.monotonic()
    official = OfficialPulling(pulling.source, pulling.room, pulling.shards)
    question = PullMessagesRequest(topic="T", queue_offset=queue_offset, max_messages=32, consumer_group="g")
    pulling.room.add(
        OfficialPull(official, pulling.delivering, question, call, "c", ends_at=now + 10, gives_up_at=now + 20)
    )
    return call


def pulled(pulling, queue_offset):
    return begun(pulling, queue_offset).answers()


def test_a_pull_that_waited_when_its_topic_was_deleted_found_no_new_message(pulling):
    call = begun(pulling, 2)
    wait_until(lambda: pulling.room.poll_count == 1)
    pulling.delivering.deleted.add("T")
    pulling.room.arrive("broker-a", WatchArrivalsResponse(topics=["T"]))
    (answer,) = call.answers()
    assert answer.status.code == v2.TOPIC_NOT_FOUND


def test_a_client_was_sent_back_by_a_consumer_service_that_had_not_seen_its_messages_yet(pulling):
    """After a change of leaders; it got them from the leader before."""
    pull, looks = pulling.delivering.pull, []

    def noted(question, seconds, then):
        looks.append(question.queue_offset)
        if len(looks) == 3:
            for number in range(2, 12):
                pulling.delivering.store("T", b"%d" % number)
            pulling.delivering.seen_offset = 1_000
        pull(question, seconds, then)

    pulling.delivering.pull = noted
    status, message, last = pulled(pulling, 11)
    assert (status.status.code, message.message.body, last.next_offset) == (v2.OK, b"11", 12)


def test_an_offset_behind_the_end_is_illegal_once_all_of_the_log_was_seen(pulling):
    pulling.delivering.seen_offset = 1_000
    status, last = pulled(pulling, 10)
    assert (status.status.code, last.next_offset) == (v2.ILLEGAL_OFFSET, 2)


def test_where_the_end_is_not_known_a_pull_fails_and_moves_nobody(pulling, monkeypatch):
    monkeypatch.setattr(queue_end, "BEHIND_SECONDS_MAX", 0.05)
    (answer,) = pulled(pulling, 10)
    assert (answer.status.code, answer.next_offset) == (v2.HA_NOT_AVAILABLE, 0)
