"""PullMessages over a shard in memory: how a stream waits, ends, and what it holds."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf.duration_pb2 import Duration

from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Pulled, PullOutcome
from gateway.ports.shards import Shards
from gateway.pull_call import ALL_BODY_BYTES_MAX, SHARE_BYTES_MIN, BodyBytes, PullStreams, responses_of
from gateway.queries.limits import PAGE_BYTES_MAX
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.serving.cancellation import Cancellation
from store.errors import DeadlineExceededError, QueueNotFoundError, ServiceUnavailableError, TopicNotFoundError
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.memory_shard import MemoryShard

# The promise is 200 ms; the rest is for a machine that is busy.
END_SECONDS_MAX = 2.0


class Pulling:
    """Streams over one shard whose topic `T` has four queues."""

    def __init__(self, fan_out):
        self.timers = Timers()
        self.room = WaitingRoom(self.timers)
        self.delivering = MemoryDelivering()
        self.source = DeliveryShards(self.room)
        self.streams = PullStreams(self.source, self.room)
        self.shards = Shards([MemoryShard([], {"T": 4}).shard()], fan_out)
        self.timers.start()
        self.source.keep([self.delivering])

    def answers(self, cancellation=None, **fields):
        request = pb.PullMessagesRequest(topic="T", **fields)
        return self.streams.answers(self.shards, request, cancellation or Cancellation())

    def close(self):
        self.room.close()
        self.source.close()
        self.timers.close()


@pytest.fixture
def pulling(fan_out):
    made = Pulling(fan_out)
    yield made
    made.close()


def test_a_stream_ends_at_once_when_its_caller_goes_while_it_waits(pulling):
    cancellation = Cancellation()
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(lambda: list(pulling.answers(cancellation, wait=Duration(seconds=60))))
        while pulling.room.poll_count == 0:
            threading.Event().wait(0.001)
        began = time.monotonic()
        cancellation.cancel()

        assert answers.result(END_SECONDS_MAX) == []
        assert time.monotonic() - began < END_SECONDS_MAX
    assert pulling.room.poll_count == 0


def test_a_call_that_was_cancelled_before_it_began_asks_and_answers_nothing(pulling):
    cancellation = Cancellation()
    cancellation.cancel()
    pulling.delivering.pull = lambda *_: None

    assert list(pulling.answers(cancellation)) == []


def test_a_stream_that_waits_gets_what_arrives_and_goes_on_until_it_is_quiet(pulling):
    stream = pulling.answers(wait=Duration(seconds=1))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, stream)
        while pulling.room.poll_count == 0:
            threading.Event().wait(0.001)
        pulling.delivering.store("T", b"one")

        assert [each.body for each in first.result(END_SECONDS_MAX).messages] == [b"one"]
    (last,) = list(stream)
    assert (last.status, last.next_offset) == (pb.PULL_STATUS_NO_NEW_MSG, 1)


def test_an_empty_queue_that_is_configured_is_empty_and_one_that_is_not_is_absent(pulling):
    (answer,) = list(pulling.answers(queue_id=3))
    assert (answer.status, answer.next_offset) == (pb.PULL_STATUS_NO_NEW_MSG, 0)

    with pytest.raises(QueueNotFoundError):
        list(pulling.answers(queue_id=4))
    request = pb.PullMessagesRequest(topic="Other")
    with pytest.raises(TopicNotFoundError):
        list(pulling.streams.answers(pulling.shards, request, Cancellation()))


def test_a_failure_of_the_consumer_service_ends_the_stream_with_its_error(pulling):
    pulling.delivering.store("T", b"one")
    stream = pulling.answers(wait=Duration(seconds=60))
    next(stream)
    pulling.delivering.pull = lambda question, seconds, then: then(ServiceUnavailableError("away"))

    with pytest.raises(ServiceUnavailableError):
        next(stream)


def test_a_batch_is_cut_into_answers_that_clients_take_by_default():
    body = bytes(1 << 20)
    messages = [StoredMessage(queue_offset=10 + number, body=body) for number in range(5)]

    answers = list(responses_of(Pulled(messages, 20, 0, 99, PullOutcome.FOUND), "broker-a"))

    assert [len(answer.messages) for answer in answers] == [3, 2]
    assert [answer.next_offset for answer in answers] == [13, 20]
    assert all(answer.ByteSize() < 4 << 20 for answer in answers)
    huge = StoredMessage(queue_offset=1, body=bytes(PAGE_BYTES_MAX + 1))
    (alone,) = responses_of(Pulled([huge], 2, 0, 2, PullOutcome.FOUND), "broker-a")
    assert len(alone.messages) == 1


def test_many_streams_together_get_no_more_bytes_than_there_are_but_each_gets_its_share():
    body_bytes = BodyBytes()
    held = [body_bytes.some(4 << 20) for _ in range(200)]

    given = [each.__enter__() for each in held]

    assert given[0] == 4 << 20
    assert given[-1] == SHARE_BYTES_MIN
    assert sum(given) <= ALL_BODY_BYTES_MAX + len(given) * SHARE_BYTES_MIN
    for each in held:
        each.__exit__(None, None, None)
    with body_bytes.some(4 << 20) as again:
        assert again == 4 << 20


def test_a_pull_of_a_service_that_hung_took_longer_than_its_caller_waited(pulling):
    pulling.delivering.pull = lambda *_: None  # never answers
    request = pb.PullMessagesRequest(topic="T")
    answers = pulling.streams.answers(pulling.shards, request, Cancellation(), seconds=lambda: 0.05)
    with pytest.raises(DeadlineExceededError, match="consumer service of shard") as raised:
        next(answers)
    assert raised.value.metadata["service"] == "consumer"
