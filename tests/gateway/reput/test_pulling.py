"""PullMessages over a shard in memory: how a stream waits, ends, and what it holds."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf.duration_pb2 import Duration

from gateway.delivery import queue_end
from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.shards import Shards
from gateway.queries.page import PAGE_BYTES_MAX
from gateway.reput.pulling import (
    ALL_BODY_BYTES_MAX,
    BODY_BYTES_DEFAULT,
    SHARE_BYTES_MIN,
    BodyBytes,
    PullStreams,
    responses_of,
)
from gateway.shards.encoded_messages import EncodedMessages
from reput.consumer.v1.consumer_service_pb2 import WatchArrivalsResponse
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_LIVE, StoredMessage
from services.serving.calls.cancellation import Cancellation
from store.errors import (
    DeadlineExceededError,
    QueueNotFoundError,
    ServiceUnavailableError,
    StoreRecoveringError,
    TopicNotFoundError,
)
from store.format.record import patch_record, prepare_record
from tests.gateway.delivery.memory_delivery import MemoryDelivering, pulled_of
from tests.gateway.memory_shard import MemoryShard, queue_of, with_log_end
from tests.store.walk.logs import message as ordinary_message

# The promise is 200 ms; the rest is for a machine that is busy.
END_SECONDS_MAX = 50.0  # less than the 60 s that a stream waits here


parsed = pb.PullMessagesResponse.FromString


class LogEnd:
    """The port: a log that ends at byte 1,000, as far as its commitlog says it."""

    def __init__(self):
        self.offsets = [1_000]  # the answers; the last one again and again
        self.files_say = None
        self.asked_count = 0

    def is_written_at(self, commit_log_offset, deadline=None):
        return self.files_say

    def offset(self, request, deadline):
        assert request.flush_soon
        self.asked_count += 1
        answer = self.offsets.pop(0) if len(self.offsets) > 1 else self.offsets[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Pulling:
    """Streams over one shard whose topic `T` has four queues."""

    def __init__(self, fan_out):
        self.timers = Timers()
        self.room = WaitingRoom(self.timers)
        self.delivering = MemoryDelivering()
        self.source = DeliveryShards(self.room)
        self.streams = PullStreams(self.source, self.room)
        self.log_end = LogEnd()
        self.shards = Shards([with_log_end(MemoryShard([], {"T": 4}).shard(), self.log_end)], fan_out)
        self.timers.start()
        self.source.keep([self.delivering])

    def answers(self, cancellation=None, **fields):
        request = pb.PullMessagesRequest(topic="T", **fields)
        return map(parsed, self.streams.answers(self.shards, request, cancellation or Cancellation()))

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
        cancellation.cancel()

        assert answers.result(END_SECONDS_MAX) == []
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


@pytest.mark.parametrize("known_count", [0, 2])
def test_a_queue_ended_before_a_message_that_the_consumer_service_had_not_seen_yet(pulling, known_count):
    """After a change of leaders all of a topic may be missing; the replicas had given 500 messages of it."""
    for number in range(known_count):
        pulling.delivering.store("T", b"%d" % number)
    pulling.delivering.seen_offset = 500
    pull, looks = pulling.delivering.pull, []

    def noted(question, seconds, then):
        looks.append(question.queue_offset)
        if looks.count(known_count) == 3 and question.queue_offset == known_count:
            pulling.delivering.store("T", b"last")
            pulling.delivering.seen_offset = 1_000
        pull(question, seconds, then)

    pulling.delivering.pull = noted
    answers = list(pulling.answers())
    bodies = [message.body for answer in answers for message in answer.messages]
    assert bodies == [*(b"%d" % number for number in range(known_count)), b"last"]
    assert (answers[-1].status, answers[-1].next_offset) == (pb.PULL_STATUS_NO_NEW_MSG, known_count + 1)


def test_a_stream_that_cannot_know_whether_its_queue_ends_fails_and_says_so(pulling, monkeypatch):
    monkeypatch.setattr(queue_end, "BEHIND_SECONDS_MAX", 0.05)
    pulling.delivering.store("T", b"one")
    pulling.delivering.seen_offset = 999
    stream = pulling.answers()
    assert [message.body for message in next(stream).messages] == [b"one"]
    with pytest.raises(ServiceUnavailableError, match="up to byte 999, and the log had 1000 bytes") as raised:
        next(stream)
    assert raised.value.metadata == {"service": "consumer", "brokerName": "broker-a"}
    pulling.log_end.offsets = [None]
    with pytest.raises(ServiceUnavailableError, match="is being recovered"):
        list(pulling.answers())
    pulling.log_end.offsets = [StoreRecoveringError("later")]
    with pytest.raises(StoreRecoveringError):
        list(pulling.answers())


@pytest.mark.parametrize("seen_offset", [None, 999, 1_000], ids=["older service", "the files tell", "the log tells"])
def test_a_stream_ends_at_once_where_it_is_sure_that_its_queue_does(pulling, seen_offset):
    pulling.delivering.store("T", b"one")
    pulling.delivering.seen_offset = seen_offset
    pulling.log_end.files_say = False if seen_offset == 999 else None
    pull, looks = pulling.delivering.pull, []

    def noted(question, seconds, then):
        looks.append(question.queue_offset)
        pull(question, seconds, then)

    pulling.delivering.pull = noted
    *_, last = list(pulling.answers())
    assert (last.status, last.next_offset, looks) == (pb.PULL_STATUS_NO_NEW_MSG, 1, [0, 1])
    assert pulling.log_end.asked_count == (seen_offset == 1_000)


def test_a_service_of_an_older_release_is_asked_again_while_queries_find_more(pulling, monkeypatch):
    pulling.delivering.store("T", b"one")
    memory = MemoryShard([], {"T": 4})
    ranges = iter([[queue_of("T", 0, 0, 2)], [queue_of("T", 1, 0, 9), queue_of("T", 0, 0, 1)]])
    monkeypatch.setattr(memory, "list_queues", lambda topic, deadline: next(ranges))
    pulling.shards = Shards([with_log_end(memory.shard(), pulling.log_end)], pulling.shards.fan_out)
    answers = list(pulling.answers())
    assert [answer.status for answer in answers] == [pb.PULL_STATUS_FOUND, pb.PULL_STATUS_NO_NEW_MSG]
    assert next(ranges, None) is None


def test_the_end_of_the_log_is_asked_for_again_when_a_stream_is_at_the_end_again(pulling):
    pulling.delivering.store("T", b"one")
    pulling.delivering.seen_offset = 1_000
    pulling.log_end.offsets = [2_000, 1_000]
    pull, looks = pulling.delivering.pull, []

    def noted(question, seconds, then):
        looks.append(question.queue_offset)
        if looks == [0, 1, 1]:
            pulling.delivering.store("T", b"two")  # it has seen no more of the log than before
        pull(question, seconds, then)

    pulling.delivering.pull = noted
    assert [message.body for answer in pulling.answers() for message in answer.messages] == [b"one", b"two"]
    assert pulling.log_end.asked_count == 2


def test_a_position_behind_the_end_was_waited_at_and_then_went_past_what_had_arrived(pulling):
    """As RocketMQ's PULL_OFFSET_MOVED, the answer comes at once: what arrives later comes from there on."""
    pulling.delivering.store("T", b"one")
    pulling.delivering.seen_offset = 1_000
    (answer,) = pulling.answers(queue_offset=1_000, wait=Duration(seconds=60))
    assert (answer.status, answer.next_offset, answer.max_offset) == (pb.PULL_STATUS_OFFSET_ILLEGAL, 1, 1)


def test_an_empty_queue_that_is_configured_is_empty_and_one_that_is_not_is_absent(pulling):
    (answer,) = list(pulling.answers(queue_id=3))
    assert (answer.status, answer.next_offset) == (pb.PULL_STATUS_NO_NEW_MSG, 0)

    with pytest.raises(QueueNotFoundError):
        list(pulling.answers(queue_id=4))
    request = pb.PullMessagesRequest(topic="Other")
    with pytest.raises(TopicNotFoundError):
        list(pulling.streams.answers(pulling.shards, request, Cancellation()))


def test_a_stream_went_on_waiting_when_its_topic_was_deleted(pulling):
    pulling.delivering.store("T", b"one")
    stream = pulling.answers(wait=Duration(seconds=60))
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(next, stream)
        while pulling.room.poll_count == 0:
            threading.Event().wait(0.001)
        pulling.delivering.deleted.add("T")
        pulling.room.arrive("broker-a", WatchArrivalsResponse(topics=["T"]))
        with pytest.raises(TopicNotFoundError):
            waits.result(END_SECONDS_MAX)


def test_a_failure_of_the_consumer_service_ends_the_stream_with_its_error(pulling):
    pulling.delivering.store("T", b"one")
    stream = pulling.answers(wait=Duration(seconds=60))
    next(stream)
    pulling.delivering.pull = lambda question, seconds, then: then(ServiceUnavailableError("away"))

    with pytest.raises(ServiceUnavailableError):
        next(stream)


def encoded(messages, broker_name):
    """The messages as a consumer service sends them."""
    for message in messages:
        message.broker_name, message.source = broker_name, MESSAGE_SOURCE_LIVE
    return EncodedMessages(memoryview(pb.PullMessagesResponse(messages=messages).SerializeToString()), "broker-a")


@pytest.mark.parametrize("form", [lambda messages, _: messages, encoded], ids=["messages", "bytes"])
def test_a_batch_is_cut_into_answers_that_clients_take_by_default(form):
    body = bytes(1 << 20)
    messages = [StoredMessage(queue_offset=10 + number, body=body) for number in range(5)]
    pulled = pulled_of(form(messages, "broker-a"), 20, 3, 99, pb.PULL_STATUS_FOUND, is_whole=True)

    sent = list(responses_of(pulled, "broker-a"))
    answers = [parsed(answer) for answer in sent]

    assert [len(answer.messages) for answer in answers] == [3, 2]
    assert [answer.next_offset for answer in answers] == [13, 20]
    assert {(answer.min_offset, answer.max_offset, answer.status, answer.is_whole) for answer in answers} == {
        (3, 99, pb.PULL_STATUS_FOUND, True)
    }
    shown = [message for answer in answers for message in answer.messages]
    assert [message.queue_offset for message in shown] == [10, 11, 12, 13, 14]
    assert {(message.broker_name, message.source) for message in shown} == {("broker-a", MESSAGE_SOURCE_LIVE)}
    assert all(len(answer) < 4 << 20 for answer in sent)
    huge = StoredMessage(queue_offset=1, body=bytes(PAGE_BYTES_MAX + 1))
    (alone,) = responses_of(pulled_of(form([huge], "broker-a"), 2, 0, 2, pb.PULL_STATUS_FOUND), "broker-a")
    assert len(parsed(alone).messages) == 1
    (none,) = responses_of(pulled_of(form([], "broker-a"), 2, 0, 2, pb.PULL_STATUS_NO_NEW_MSG), "broker-a")
    assert parsed(none) == pb.PullMessagesResponse(next_offset=2, max_offset=2, status=pb.PULL_STATUS_NO_NEW_MSG)


def test_records_are_cut_into_answers_as_messages_are():
    prepared = [prepare_record(ordinary_message(body=bytes(1 << 20))) for _ in range(5)]
    for number, frame in enumerate(prepared):
        patch_record(frame, 10 + number, 5_000 + number, 1_700_000_000_000)
    frames = [bytes(frame) for frame in prepared]
    messages = EncodedMessages(memoryview(pb.PullMessagesResponse(records=frames).SerializeToString()), "broker-a")

    answers = [
        parsed(answer) for answer in responses_of(pulled_of(messages, 20, 3, 99, pb.PULL_STATUS_FOUND), "broker-a")
    ]

    assert [len(answer.records) for answer in answers] == [3, 2]
    assert [answer.next_offset for answer in answers] == [13, 20]
    assert [frame for answer in answers for frame in answer.records] == frames
    assert (messages[-1].commit_log_offset, messages[-1].broker_name) == (5_004, "broker-a")


def test_many_streams_together_get_no_more_bytes_than_there_are_but_each_gets_its_share():
    body_bytes = BodyBytes()

    given = [body_bytes.take(4 << 20) for _ in range(200)]

    assert given[0] == 4 << 20
    assert given[-1] == SHARE_BYTES_MIN
    assert sum(given) <= ALL_BODY_BYTES_MAX + len(given) * SHARE_BYTES_MIN
    for each in given:
        body_bytes.give_back(each)
    assert body_bytes.take(4 << 20) == 4 << 20


def test_while_a_caller_takes_a_batch_one_more_is_pulled_if_the_queue_has_it(pulling):
    for number in range(5):
        pulling.delivering.store("T", b"%d" % number)
    pull, asked = pulling.delivering.pull, []

    def noted(question, seconds, then):
        asked.append(question.queue_offset)
        pull(question, seconds, then)

    pulling.delivering.pull = noted
    stream = pulling.answers(max_messages=2)
    bodies = [[message.body for message in next(stream).messages]]
    assert asked == [0, 2]
    bodies.append([message.body for message in next(stream).messages])
    assert asked == [0, 2, 4]
    bodies.append([message.body for message in next(stream).messages])
    assert asked == [0, 2, 4]
    assert bodies == [[b"0", b"1"], [b"2", b"3"], [b"4"]]
    (last,) = list(stream)
    assert (last.status, last.next_offset) == (pb.PULL_STATUS_NO_NEW_MSG, 5)
    assert pulling.streams._body_bytes._free_bytes == ALL_BODY_BYTES_MAX


def test_a_caller_that_goes_in_the_middle_leaves_no_bytes_taken(pulling):
    for number in range(5):
        pulling.delivering.store("T", b"%d" % number)
    stream = pulling.streams.answers(pulling.shards, pb.PullMessagesRequest(topic="T", max_messages=2), Cancellation())
    next(stream)
    assert pulling.streams._body_bytes._free_bytes == ALL_BODY_BYTES_MAX - 2 * BODY_BYTES_DEFAULT
    stream.close()
    assert pulling.streams._body_bytes._free_bytes == ALL_BODY_BYTES_MAX


def test_a_pull_of_a_service_that_hung_took_longer_than_its_caller_waited(pulling):
    pulling.delivering.pull = lambda *_: None  # never answers
    request = pb.PullMessagesRequest(topic="T")
    answers = pulling.streams.answers(pulling.shards, request, Cancellation(), seconds=lambda: 0.05)
    with pytest.raises(DeadlineExceededError, match="consumer service of shard") as raised:
        next(answers)
    assert raised.value.metadata["service"] == "consumer"
