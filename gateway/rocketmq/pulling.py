"""PullMessage: messages of a queue from an offset on. It waits for some like ReceiveMessage (gateway/delivery/pulls.py)."""

import time
from collections.abc import Callable

from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.pulls import PullChecks, PullPoll
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Delivering, DeliveringSource, Pulled
from gateway.ports.shards import ShardsSource
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
from services.methods import POLL_SECONDS
from services.serving.admission.callers import caller_of_call
from services.serving.admission.shares import client_of_name
from services.serving.calls.streamed_later import Streamable
from services.serving.deadline import remaining_seconds
from store.errors import InvalidArgumentError, StoreError

BATCH_SIZE_DEFAULT = 32
BATCH_SIZE_MAX = 1_024


def refused(error: StoreError) -> bytes:
    """The answer for a poll that has no room."""
    busy = v2.Status(code=v2.TOO_MANY_REQUESTS, message=error.message)
    return v2.PullMessageResponse(status=busy).SerializeToString()


class Pulling(PullChecks):
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
        super().__init__(room, catalogs, clock, pause)
        self._shards = shards

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

    def _poll(self, request: v2.PullMessageRequest, call: Streamable) -> "OfficialPull":
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
            filter=filter_of(request.filter_expression),
            consumer_group=group_of(request.group),
        )
        wait = request.long_polling_timeout
        asked_seconds = min(max(wait.seconds + wait.nanos / 1e9, 0.0), POLL_SECONDS_MAX)
        left_seconds = remaining_seconds(call, POLL_SECONDS + GIVE_UP_SECONDS)
        now = self.clock()
        return OfficialPull(
            self,
            self._shards.named(request.message_queue.broker.name),
            question,
            call,
            caller.client_id,
            ends_at=now + min(asked_seconds, left_seconds - END_MARGIN_SECONDS),
            gives_up_at=now + left_seconds - GIVE_UP_MARGIN_SECONDS,
        )


class OfficialPull(PullPoll):
    """One pull of an official client."""

    __slots__ = ("_call",)

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
        owner = client_of_name(caller_of_call(call))
        super().__init__(
            pulling, delivering, question, client_id, ends_at=ends_at, gives_up_at=gives_up_at, owner=owner
        )
        self._call = call

    def end(self) -> None:
        """See Poll."""
        self._call.send(
            v2.PullMessageResponse(
                status=v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no new message")
            ).SerializeToString()
        )
        next_offset = self.question.queue_offset if self.seen is None else self.seen.answer.next_offset
        self._call.end(v2.PullMessageResponse(next_offset=next_offset).SerializeToString())

    def refuse(self, error: StoreError) -> None:
        """See PullPoll."""
        _end_with(self._call, error)

    def answer(self, pulled: Pulled) -> None:
        """See PullPoll."""
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
