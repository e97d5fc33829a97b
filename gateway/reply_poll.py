"""Polls that wait for replies to requests (request_call.py)."""

import uuid
from collections.abc import Iterable
from typing import Protocol

from gateway.delivery.polls import Poll, QueueName
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Delivering, Pulled, changed
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import QueueNotFoundError, StoreError, TopicNotFoundError

PULL_SECONDS = 10.0
BATCH_COUNT = 256


class Replies(Protocol):
    """The requests that wait for replies."""

    def take(self, messages: Iterable[StoredMessage]) -> None:
        """Replies have come."""

    def go_on(self, poll: "ReplyPoll", question: consumer_pb.PullMessagesRequest) -> None:
        """A poll has ended: the next one goes on, if a request waits."""

    def go_on_later(self, poll: "ReplyPoll", question: consumer_pb.PullMessagesRequest) -> None:
        """The same after a failure."""


class ReplyPoll(Poll):
    """Waits for replies in one queue of the reply topic.

    Args:
        replies: gets them.
        room: where it waits.
        delivering: the shard.
        question: the queue and the position.
        ends_at: when it ends without replies, on the room's clock.
    """

    __slots__ = ("_question", "_replies", "_room", "delivering")

    def __init__(
        self,
        replies: Replies,
        room: WaitingRoom,
        delivering: Delivering,
        question: consumer_pb.PullMessagesRequest,
        ends_at: float,
    ) -> None:
        name = QueueName(delivering.broker_name, question.topic, "", uuid.uuid4().int)
        super().__init__(name, "", ends_at, ends_at + PULL_SECONDS)
        self._replies = replies
        self._room = room
        self.delivering = delivering
        self._question = question

    def look(self) -> None:
        """See Poll."""
        self.delivering.pull(self._question, PULL_SECONDS, self._pulled)

    def end(self) -> None:
        """See Poll."""
        self._replies.go_on(self, self._question)

    def give_up(self) -> None:
        """See Poll."""
        self._replies.go_on_later(self, self._question)

    def _pulled(self, outcome: Pulled | StoreError) -> None:
        if isinstance(outcome, TopicNotFoundError | QueueNotFoundError):  # it has no message yet
            self._room.found_nothing(self)
        elif isinstance(outcome, StoreError):
            if self._room.failed(self):
                self._replies.go_on_later(self, self._question)
        elif outcome.answer.status == consumer_pb.PULL_STATUS_NO_NEW_MSG:
            self._room.found_nothing(self)
        elif self._room.found(self):
            question = changed(self._question, queue_offset=outcome.answer.next_offset)
            self._replies.take(outcome.messages)
            self._replies.go_on(self, question)
