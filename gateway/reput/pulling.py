"""PullMessages: the messages of a queue as a stream of batches, which waits for more when it is at the end.

A stream has a thread of its lane and holds one batch. While its caller takes it, the next one is pulled, if the queue has more.
The bytes that batches of all streams may have are limited: while many are on their way, further ones are smaller. At the end of
its queue a stream waits in the room (delivery/waiting_room.py) until something arrives, its time is over or its caller is gone.

A stream says that its queue has ended only when that is sure: the consumer service follows the log some milliseconds behind,
and for longer after a change of leaders. So its answer must have seen what the log had when the stream was at the end.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from gateway.delivery.polls import Poll, QueueName, not_answered
from gateway.delivery.queue_end import QueueEnd, is_at_end
from gateway.delivery.waiting_room import WaitingRoom
from gateway.groups.asking import check_consumed_topic, check_users_group
from gateway.ports.deadline import Cancellation, Deadline
from gateway.ports.delivery import (
    DeliveringSource,
    Pulled,
    changed,
    expression_of,
    is_absent,
    pulled_from_no_message,
)
from gateway.ports.shards import Shards, has_unwritten_queue
from gateway.queries.page import PAGE_BYTES_MAX, check_not_negative, check_topic
from gateway.reput.wire import filter_of, millis_of_duration
from gateway.shards.encoded_messages import EncodedMessages
from gateway.shards.replica_reads import Puller
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.methods import INNER_SECONDS
from services.serving.admission.callers import caller_here
from services.serving.admission.shares import client_of_name
from store.errors import StoreError, TopicNotFoundError

MESSAGE_COUNT_DEFAULT = 32
MESSAGE_COUNT_MAX = 1_024
BODY_BYTES_DEFAULT = 262_144  # RocketMQ's maxTransferBytesOnMessageInMemory
BODY_BYTES_MAX = 4 << 20
WAIT_MILLIS_MAX = 60_000
# Of all batches on their way; each takes about three times as much memory.
ALL_BODY_BYTES_MAX = 64 << 20
# What a stream gets also when all of that is taken, and while it waits.
SHARE_BYTES_MIN = 65_536
FOUND, NO_NEW = pb.PULL_STATUS_FOUND, pb.PULL_STATUS_NO_NEW_MSG
# After these a stream has nothing more to say.
ENDS = (NO_NEW, pb.PULL_STATUS_OFFSET_ILLEGAL)

_numbers = itertools.count()


class BodyBytes:
    """What batches on their way may have together; thread-safe.

    Args:
        size_bytes: in all.
    """

    def __init__(self, size_bytes: int = ALL_BODY_BYTES_MAX) -> None:
        self._lock = threading.Lock()
        self._free_bytes = size_bytes

    def take(self, asked_bytes: int) -> int:
        """What a batch may have until it is given back: at most what is asked, and a quarter of what is free."""
        with self._lock:
            given = max(min(asked_bytes, self._free_bytes // 4), min(asked_bytes, SHARE_BYTES_MIN))
            self._free_bytes -= given
        return given

    def give_back(self, given_bytes: int) -> None:
        """A batch is on its way no more."""
        with self._lock:
            self._free_bytes += given_bytes


class PullUnderWay:
    """A pull that was begun, and its share of the bytes.

    Args:
        question: what it asks.
        body_bytes: where its share is from.

    Attributes:
        question: with as many bytes as it was given.
        seconds: that it may take.
        outcome: done with what it has found.
    """

    def __init__(self, question: consumer_pb.PullMessagesRequest, body_bytes: BodyBytes, seconds: float) -> None:
        self._body_bytes = body_bytes
        self.seconds = seconds
        self.question = changed(question, max_bytes=body_bytes.take(question.max_bytes))
        self.outcome: Future[Pulled | StoreError] = Future()

    def close(self) -> None:
        """Give its share back; once."""
        self._body_bytes.give_back(self.question.max_bytes)


class PullStreams:
    """Serves PullMessages; thread-safe.

    Args:
        source: the consumer services.
        room: where streams wait.
        clock: that of the room.
    """

    def __init__(
        self,
        source: DeliveringSource,
        room: WaitingRoom,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._room = room
        self._clock = clock
        self._body_bytes = BodyBytes()

    def answers(
        self,
        shards: Shards,
        request: pb.PullMessagesRequest,
        cancellation: Cancellation,
        puller: Puller | None = None,
        seconds: Callable[[], float] = lambda: INNER_SECONDS,
    ) -> Iterator[bytes]:
        """The batches as PullMessagesResponses, until the stream ends. The last one has no message, and says why.

        `puller` is asked instead of the shard's consumer service; `seconds` says how much time a pull has now.

        Raises:
            InvalidArgumentError: by field; also IllegalFilterError.
            BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: there is no such queue.
            StoreError: the consumer service failed; the stream may be asked for again from the last `next_offset` on.
        """
        question = question_of(request)
        wait_seconds = min(millis_of_duration(request, "wait"), WAIT_MILLIS_MAX) / 1000
        delivering = puller or self._source.named(request.broker_name)
        question.shown_as = delivering.broker_name  # the messages may come as the bytes in which they go on
        shard = shards.named(delivering.broker_name)
        quiet_at = self._clock()
        is_known = False
        end: QueueEnd | None = None
        with contextlib.ExitStack() as held:
            pull = self._begin(delivering, question, held, seconds())
            while True:
                batch = self._found(delivering, pull, cancellation)
                if batch is not None and batch.answer.max_offset == 0 and not is_known:  # it is empty, or there is none
                    has_unwritten_queue(shard, question.topic, question.queue_id, Deadline.after(INNER_SECONDS))
                is_known = True
                before, ahead = held.pop_all(), None
                with before:  # it has the share of this batch
                    if batch is not None and not is_at_end(question, batch):
                        if batch.answer.next_offset < batch.answer.max_offset and not cancellation.is_set:
                            next_question = changed(question, queue_offset=batch.answer.next_offset)
                            ahead = self._begin(delivering, next_question, held, seconds())
                        yield from responses_of(batch, delivering.broker_name)
                if batch is not None and is_at_end(question, batch):
                    if batch.answer.status == NO_NEW:
                        waiting = changed(question, max_bytes=min(question.max_bytes, SHARE_BYTES_MIN))
                        batch = self._arrived(delivering, waiting, cancellation, quiet_at + wait_seconds) or batch
                    if is_at_end(question, batch) and not cancellation.is_set:
                        end = end or QueueEnd(shard, self._clock)
                        if not end.is_seen_by(question, batch, Deadline.after(INNER_SECONDS)):
                            wait((cancellation.happened,), end.pause())
                            pull = self._begin(delivering, question, held, seconds())
                            continue
                    if not cancellation.is_set:
                        yield from responses_of(batch, delivering.broker_name)
                if batch is None or cancellation.is_set or batch.answer.status in ENDS:
                    return
                if batch.answer.status == FOUND:
                    quiet_at, end = self._clock(), None
                question = changed(question, queue_offset=batch.answer.next_offset)
                pull = ahead or self._begin(delivering, question, held, seconds())

    def _begin(
        self,
        delivering: Puller,
        question: consumer_pb.PullMessagesRequest,
        held: contextlib.ExitStack,
        seconds: float,
    ) -> PullUnderWay:
        pull = PullUnderWay(question, self._body_bytes, min(seconds, INNER_SECONDS))
        held.callback(pull.close)
        delivering.pull(pull.question, pull.seconds, pull.outcome.set_result)
        return pull

    def _found(self, delivering: Puller, pull: PullUnderWay, cancellation: Cancellation) -> Pulled | None:
        """What a pull has found; None when the caller has gone."""
        # The call has a deadline of its own; the margin is the last resort.
        awaited: tuple[Future[Any], ...] = (pull.outcome, cancellation.happened)
        wait(awaited, pull.seconds + min(1.0, pull.seconds / 10), FIRST_COMPLETED)
        if pull.outcome.done():
            return batch_of(pull.question, pull.outcome.result())
        if cancellation.is_set:
            return None
        raise not_answered(delivering.broker_name)

    def _arrived(
        self,
        delivering: Puller,
        question: consumer_pb.PullMessagesRequest,
        cancellation: Cancellation,
        ends_at: float,
    ) -> Pulled | None:
        """What arrives until then; None when nothing does, or the caller has gone."""
        if ends_at <= self._clock():
            return None
        poll = StreamPoll(self._room, delivering, question, ends_at)
        self._room.add(poll)
        with cancellation.ending(poll.leave):
            outcome = poll.outcome.result()
        return None if outcome is None else batch_of(question, outcome)


class StreamPoll(Poll):
    """A stream that waits at the end of its queue.

    Attributes:
        outcome: done with what arrived; with None when nothing did, or the caller has gone.
    """

    __slots__ = ("_delivering", "_question", "_room", "outcome")

    def __init__(
        self,
        room: WaitingRoom,
        delivering: Puller,
        question: consumer_pb.PullMessagesRequest,
        ends_at: float,
    ) -> None:
        name = QueueName(delivering.broker_name, question.topic, "", ("stream", next(_numbers)), question.queue_id)
        filter_characters = len(expression_of(question.filter))
        super().__init__(
            name,
            "",
            ends_at,
            ends_at + INNER_SECONDS,
            filter_characters=filter_characters,
            owner=client_of_name(caller_here()),
        )
        self._room = room
        self._delivering = delivering
        self._question = question
        self.outcome: Future[Pulled | StoreError | None] = Future()

    def look(self) -> None:
        """See Poll."""
        self._delivering.pull(self._question, INNER_SECONDS, self._pulled)

    def end(self) -> None:
        """See Poll."""
        self.outcome.set_result(None)

    def give_up(self) -> None:
        """See Poll."""
        self.outcome.set_result(not_answered(self._delivering.broker_name))

    def leave(self) -> None:
        """The caller has gone."""
        if self._room.remove(self):
            self.outcome.set_result(None)

    def _pulled(self, outcome: Pulled | StoreError) -> None:
        is_empty = isinstance(outcome, TopicNotFoundError) and not is_absent(outcome)
        if is_empty or (not isinstance(outcome, StoreError) and is_at_end(self._question, outcome)):
            self._room.found_nothing(self)
        elif self._room.failed(self) if isinstance(outcome, StoreError) else self._room.found(self):
            self.outcome.set_result(outcome)


def question_of(request: pb.PullMessagesRequest) -> consumer_pb.PullMessagesRequest:
    """What a request asks for; InvalidArgumentError by field."""
    check_topic(request.topic)
    for field in ("queue_id", "queue_offset", "max_messages", "max_bytes"):
        check_not_negative(getattr(request, field), field)
    if request.consumer_group:
        check_users_group(request.consumer_group)
        check_consumed_topic(request.topic)
    return consumer_pb.PullMessagesRequest(
        topic=request.topic,
        queue_id=request.queue_id,
        queue_offset=request.queue_offset,
        max_messages=min(request.max_messages or MESSAGE_COUNT_DEFAULT, MESSAGE_COUNT_MAX),
        filter=filter_of(request.filter),
        consumer_group=request.consumer_group,
        max_bytes=min(request.max_bytes or BODY_BYTES_DEFAULT, BODY_BYTES_MAX),
        as_records=request.as_records,
    )


def batch_of(question: consumer_pb.PullMessagesRequest, outcome: Pulled | StoreError) -> Pulled:
    """What a pull has found. A topic without messages is an empty queue here; whether there is one is seen elsewhere."""
    if isinstance(outcome, TopicNotFoundError):
        return pulled_from_no_message(question, outcome)
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def responses_of(batch: Pulled, broker_name: str) -> Iterator[bytes]:
    """The batch in answers that a gRPC client takes by default, 4 MiB; a single message may be larger."""

    answer = batch.answer

    def rest(next_offset: int | None) -> bytes:
        return pb.PullMessagesResponse(
            next_offset=answer.next_offset if next_offset is None else next_offset,
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
            status=answer.status,
            is_whole=answer.is_whole,
        ).SerializeToString()

    messages = batch.messages
    if not isinstance(messages, EncodedMessages):
        for message in messages:
            message.broker_name = broker_name
            message.source = message_pb2.MESSAGE_SOURCE_LIVE
        messages = EncodedMessages(
            memoryview(pb.PullMessagesResponse(messages=messages).SerializeToString()), broker_name
        )
    for part, next_offset in messages.parts(PAGE_BYTES_MAX):
        yield b"".join((part, rest(next_offset)))
