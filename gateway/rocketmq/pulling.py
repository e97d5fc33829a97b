"""PullMessage: messages of a queue from an offset on. It waits for some like ReceiveMessage, and takes no thread.

The consumer service knows only topics that have messages. Whether there is a queue without any is asked in a few threads, once
for each pull; and so is whether an offset is really behind the end of its queue: a client that is told to go on before it gets
messages twice.
"""

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.polls import Poll, QueueName, not_answered
from gateway.delivery.queue_end import QueueEnd, is_at_end
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import (
    Delivering,
    DeliveringSource,
    Pulled,
    expression_of,
    is_absent,
    pulled_from_no_message,
)
from gateway.ports.shards import ShardsSource, has_unwritten_queue, require_topic
from gateway.rocketmq.caller import consumer_of
from gateway.rocketmq.filters import filter_of
from gateway.rocketmq.messages import to_pulled
from gateway.rocketmq.names import group_of, topic_of
from gateway.rocketmq.receiving import (
    END_MARGIN_SECONDS,
    GIVE_UP_MARGIN_SECONDS,
    GIVE_UP_SECONDS,
    POLL_SECONDS_MAX,
)
from gateway.rocketmq.status import RefusedError, ok, status_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.methods import INNER_SECONDS, POLL_SECONDS
from services.serving.admission.callers import caller_of_call
from services.serving.admission.shares import client_of_name
from services.serving.calls.streamed_later import Streamable
from services.serving.deadline import remaining_seconds
from store.errors import InvalidArgumentError, StoreError, TopicNotFoundError

BATCH_SIZE_DEFAULT = 32
BATCH_SIZE_MAX = 1_024
# Pulls of empty queues that are checked at once; each takes a call to the commit log.
CHECK_THREAD_COUNT_MAX = 4

_numbers = itertools.count()


def refused(error: StoreError) -> bytes:
    """The answer for a poll that has no room."""
    busy = v2.Status(code=v2.TOO_MANY_REQUESTS, message=error.message)
    return v2.PullMessageResponse(status=busy).SerializeToString()


class Pulling:
    """Takes serialized PullMessageRequests.

    Args:
        shards: the consumer services.
        room: where polls wait.
        catalogs: the shards, whoever asks; they know which queues there are.
        clock: that of the room.
        pause: waits for so many seconds.
    """

    def __init__(
        self,
        shards: DeliveringSource,
        room: WaitingRoom,
        catalogs: ShardsSource,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._shards = shards
        self.room = room
        self._catalogs = catalogs
        self._clock = clock
        self._pause = pause
        self._checks = ThreadPoolExecutor(CHECK_THREAD_COUNT_MAX, "pull-checks")
        self._ends = ThreadPoolExecutor(CHECK_THREAD_COUNT_MAX, "pull-ends")  # these wait

    def pull_message(self, request: bytes, call: Streamable) -> None:
        """One pull; it is answered later, or at once when it is refused."""
        try:
            poll = self._poll(v2.PullMessageRequest.FromString(request), call)
            self.room.add(poll)
        except DecodeError as error:
            _end_with(call, InvalidArgumentError(f"the request cannot be read: {error}", field="request"))
        except (RefusedError, StoreError) as error:
            _end_with(call, error)
        else:
            call.on_gone(poll.leave)

    def check(
        self, broker_name: str, question: pb.PullMessagesRequest, then: Callable[[StoreError | None], None]
    ) -> None:
        """Call `then` with the error for a queue that there is not, None: there is such a queue, without messages."""

        def look() -> None:
            error: StoreError | None = None
            try:
                shard = self._catalogs.now().named(broker_name)
                has_unwritten_queue(shard, question.topic, question.queue_id, Deadline.after(INNER_SECONDS))
            except StoreError as failure:
                error = failure
            then(error)

        self._checks.submit(look)

    def check_topic(self, topic: str, then: Callable[[StoreError | None], None]) -> None:
        """Call `then` with None when some shard has the topic, else with the error that says why it is not known."""

        def look() -> None:
            error: StoreError | None = None
            try:
                require_topic(self._catalogs.now(), topic, Deadline.after(INNER_SECONDS))
            except StoreError as failure:
                error = failure
            then(error)

        self._checks.submit(look)

    def settle(
        self,
        delivering: Delivering,
        question: pb.PullMessagesRequest,
        pulled: Pulled,
        then: Callable[[Pulled | StoreError], None],
    ) -> None:
        """Call `then` with an answer that has seen all of the log, or with the error that says why there is none."""

        try:
            # Its time counts from here: what had to wait for a thread asks once.
            end = QueueEnd(self._catalogs.now().named(delivering.broker_name), self._clock)
        except StoreError as error:
            then(error)
            return

        def look() -> None:
            found = pulled
            failure: StoreError | None = None
            try:
                while is_at_end(question, found) and not end.is_seen_by(question, found, Deadline.after(INNER_SECONDS)):
                    self._pause(end.pause())
                    asked: Future[Pulled | StoreError] = Future()
                    delivering.pull(question, INNER_SECONDS, asked.set_result)
                    again = asked.result(INNER_SECONDS + 1.0)  # the call has a deadline of its own
                    if isinstance(again, TopicNotFoundError):
                        again = pulled_from_no_message(question, again)
                    if isinstance(again, StoreError):
                        raise again
                    found = again
            except StoreError as error:
                failure = error
            except TimeoutError:
                failure = not_answered(delivering.broker_name)
            then(failure or found)

        self._ends.submit(look)

    def _poll(self, request: v2.PullMessageRequest, call: Streamable) -> "PullPoll":
        caller = consumer_of(call)
        topic = topic_of(request.message_queue.topic)
        if request.message_queue.id < 0:
            raise RefusedError(v2.BAD_REQUEST, f"queue {request.message_queue.id} cannot be: name one from 0 on")
        if request.offset < 0:
            raise RefusedError(v2.ILLEGAL_OFFSET, f"offset is {request.offset}: it must be 0 or more")
        question = pb.PullMessagesRequest(
            topic=topic,
            queue_id=request.message_queue.id,
            queue_offset=request.offset,
            max_messages=min(request.batch_size, BATCH_SIZE_MAX) if request.batch_size > 0 else BATCH_SIZE_DEFAULT,
            filter=filter_of(request.filter_expression).message(),
            consumer_group=group_of(request.group),
        )
        wait = request.long_polling_timeout
        asked_seconds = min(max(wait.seconds + wait.nanos / 1e9, 0.0), POLL_SECONDS_MAX)
        left_seconds = remaining_seconds(call, POLL_SECONDS + GIVE_UP_SECONDS)
        now = self._clock()
        return PullPoll(
            self,
            self._shards.named(request.message_queue.broker.name),
            question,
            call,
            caller.client_id,
            ends_at=now + min(asked_seconds, left_seconds - END_MARGIN_SECONDS),
            gives_up_at=now + left_seconds - GIVE_UP_MARGIN_SECONDS,
        )


class PullPoll(Poll):
    """One pull. Each waits for itself: others have other offsets."""

    __slots__ = ("_call", "_delivering", "_is_known", "_pulling", "_question", "_room", "_seen")

    def __init__(
        self,
        pulling: Pulling,
        delivering: Delivering,
        question: pb.PullMessagesRequest,
        call: Streamable,
        client_id: str,
        *,
        ends_at: float,
        gives_up_at: float,
    ) -> None:
        name = QueueName(delivering.broker_name, question.topic, "", next(_numbers))
        super().__init__(
            name,
            client_id,
            ends_at,
            gives_up_at,
            filter_characters=len(expression_of(question.filter)),
            owner=client_of_name(caller_of_call(call)),
        )
        self._pulling = pulling
        self._room = pulling.room
        self._delivering = delivering
        self._question = question
        self._call = call
        self._is_known = False
        self._seen = question.queue_offset

    def look(self) -> None:
        """See Poll."""
        self._delivering.pull(self._question, INNER_SECONDS, self._pulled)

    def end(self) -> None:
        """See Poll."""
        self._call.send(
            v2.PullMessageResponse(
                status=v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no new message")
            ).SerializeToString()
        )
        self._call.end(v2.PullMessageResponse(next_offset=self._seen).SerializeToString())

    def give_up(self) -> None:
        """See Poll."""
        _end_with(self._call, not_answered(self._delivering.broker_name))

    def leave(self) -> None:
        """The caller has gone."""
        self._room.remove(self)

    def _pulled(self, outcome: Pulled | StoreError) -> None:
        if isinstance(outcome, TopicNotFoundError) and not is_absent(outcome):
            outcome = pulled_from_no_message(self._question, outcome)
        if isinstance(outcome, StoreError):
            self._failed(outcome)
        elif outcome.answer.max_offset or self._is_known:
            self._known(outcome)
        else:
            empty = outcome

            def checked(error: StoreError | None) -> None:
                self._is_known = True
                if error is None:
                    self._known(empty)
                else:
                    self._failed(error)

            self._pulling.check(self._delivering.broker_name, self._question, checked)

    def _failed(self, error: StoreError) -> None:
        if self._room.failed(self):
            _end_with(self._call, error)

    def _known(self, pulled: Pulled) -> None:
        """What was found in a queue that there is."""
        if pulled.answer.status == gateway_pb.PULL_STATUS_OFFSET_ILLEGAL and is_at_end(self._question, pulled):
            self._pulling.settle(self._delivering, self._question, pulled, self._settled)
        else:
            self._settled(pulled)

    def _settled(self, pulled: Pulled | StoreError) -> None:
        """What was found, and is the truth."""
        if isinstance(pulled, StoreError):
            self._failed(pulled)
            return
        self._seen = pulled.answer.next_offset
        if pulled.answer.status == gateway_pb.PULL_STATUS_NO_NEW_MSG:
            self._room.found_nothing(self)
        elif self._room.found(self):
            self._answer(pulled)

    def _answer(self, pulled: Pulled) -> None:
        answer = pulled.answer
        if pulled.answer.status == gateway_pb.PULL_STATUS_OFFSET_ILLEGAL:
            status = v2.Status(
                code=v2.ILLEGAL_OFFSET,
                message=f"the queue has offsets {answer.min_offset} to {answer.max_offset}: go on at {answer.next_offset}",
            )
        elif pulled.answer.status == gateway_pb.PULL_STATUS_NO_MATCHED_MSG:
            status = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no message matches: go on at next_offset")
        else:
            status = ok()
        self._call.send(v2.PullMessageResponse(status=status).SerializeToString())
        for message in pulled.messages:
            self._call.send(v2.PullMessageResponse(message=to_pulled(message)).SerializeToString())
        self._call.end(v2.PullMessageResponse(next_offset=pulled.answer.next_offset).SerializeToString())


def _end_with(call: Streamable, error: RefusedError | StoreError) -> None:
    call.end(v2.PullMessageResponse(status=status_of(error)).SerializeToString())
