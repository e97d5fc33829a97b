"""Pulls that wait: messages of a queue from a position on, for any door; they take no thread.

The consumer service knows only topics that have messages. Whether there is a queue without any is asked in a few threads, once
for each pull; and so is whether a position is really behind the end of its queue: a client that is told to go on before it gets
messages twice.
"""

import itertools
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gateway.delivery.polls import Poll, QueueName, not_answered
from gateway.delivery.queue_end import QueueEnd, is_at_end
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Delivering, Pulled, expression_of, is_absent, pulled_from_no_message
from gateway.ports.shards import ShardsSource, has_unwritten_queue, require_topic
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import StoreError, TopicNotFoundError

# Of each call to a service; that of services/methods.py, which pure rooms do not import.
CALL_SECONDS = 10.0
# Pulls of empty queues that are checked at once; each takes a call to the commit log.
CHECK_THREAD_COUNT_MAX = 4

_numbers = itertools.count()


class PullChecks:
    """What pulls ask besides messages.

    Args:
        room: where they wait.
        catalogs: the shards, whoever asks; they know which queues there are.
        clock: that of the room.
        pause: waits for so many seconds.
    """

    def __init__(
        self,
        room: WaitingRoom,
        catalogs: ShardsSource,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.room = room
        self.clock = clock
        self._catalogs = catalogs
        self._pause = pause
        self._checks = ThreadPoolExecutor(CHECK_THREAD_COUNT_MAX, "pull-checks")
        self._ends = ThreadPoolExecutor(CHECK_THREAD_COUNT_MAX, "pull-ends")  # these wait

    def check(
        self, broker_name: str, question: pb.PullMessagesRequest, then: Callable[[StoreError | None], None]
    ) -> None:
        """Call `then` with the error for a queue that there is not, None: there is such a queue, without messages."""

        def look() -> None:
            error: StoreError | None = None
            try:
                shard = self._catalogs.now().named(broker_name)
                has_unwritten_queue(shard, question.topic, question.queue_id, Deadline.after(CALL_SECONDS))
            except StoreError as failure:
                error = failure
            then(error)

        self._checks.submit(look)

    def check_topic(self, topic: str, then: Callable[[StoreError | None], None]) -> None:
        """Call `then` with None when some shard has the topic, else with the error that says why it is not known."""

        def look() -> None:
            error: StoreError | None = None
            try:
                require_topic(self._catalogs.now(), topic, Deadline.after(CALL_SECONDS))
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
            end = QueueEnd(self._catalogs.now().named(delivering.broker_name), self.clock)
        except StoreError as error:
            then(error)
            return

        def look() -> None:
            found = pulled
            failure: StoreError | None = None
            try:
                while is_at_end(question, found) and not end.is_seen_by(question, found, Deadline.after(CALL_SECONDS)):
                    self._pause(end.pause())
                    asked: Future[Pulled | StoreError] = Future()
                    delivering.pull(question, CALL_SECONDS, asked.set_result)
                    again = asked.result(CALL_SECONDS + 1.0)  # the call has a deadline of its own
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


class PullPoll(Poll):
    """One pull. Each waits for itself: others have other positions.

    Args:
        checks: see PullChecks.
        delivering: the consumer service.
        question: what is pulled.
        client_id: who waits.
        ends_at: when it ends without messages, on the room's clock.
        gives_up_at: when it ends although its look is under way.
        owner: in whose share its filter counts.
        is_lasting: there is such a queue, also while the shard has no such topic: its first message makes it.

    Attributes:
        question: the same.
        seen: the newest answer in which nothing was found; None before it.
    """

    __slots__ = ("_checks", "_delivering", "_is_known", "_is_lasting", "_room", "question", "seen")

    def __init__(
        self,
        checks: PullChecks,
        delivering: Delivering,
        question: pb.PullMessagesRequest,
        client_id: str,
        *,
        ends_at: float,
        gives_up_at: float,
        owner: Any,
        is_lasting: bool = False,
    ) -> None:
        name = QueueName(delivering.broker_name, question.topic, "", next(_numbers), question.queue_id)
        super().__init__(
            name,
            client_id,
            ends_at,
            gives_up_at,
            filter_characters=len(expression_of(question.filter)),
            owner=owner,
        )
        self._checks = checks
        self._room = checks.room
        self._delivering = delivering
        self.question = question
        self._is_known = self._is_lasting = is_lasting
        self.seen: Pulled | None = None

    @abstractmethod
    def answer(self, pulled: Pulled) -> None:
        """Answer with what was found: messages, or where to go on."""

    @abstractmethod
    def refuse(self, error: StoreError) -> None:
        """Answer with a failure."""

    def look(self) -> None:
        """See Poll."""
        self._delivering.pull(self.question, CALL_SECONDS, self._pulled)

    def give_up(self) -> None:
        """See Poll."""
        self.refuse(not_answered(self._delivering.broker_name))

    def leave(self) -> None:
        """The caller has gone."""
        self._room.remove(self)

    def _pulled(self, outcome: Pulled | StoreError) -> None:
        if isinstance(outcome, TopicNotFoundError) and (self._is_lasting or not is_absent(outcome)):
            outcome = pulled_from_no_message(self.question, outcome, is_lasting=self._is_lasting)
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

            self._checks.check(self._delivering.broker_name, self.question, checked)

    def _failed(self, error: StoreError) -> None:
        if self._room.failed(self):
            self.refuse(error)

    def _known(self, pulled: Pulled) -> None:
        """What was found in a queue that there is."""
        if pulled.answer.status == gateway_pb.PULL_STATUS_OFFSET_ILLEGAL and is_at_end(self.question, pulled):
            self._checks.settle(self._delivering, self.question, pulled, self._settled)
        else:
            self._settled(pulled)

    def _settled(self, pulled: Pulled | StoreError) -> None:
        """What was found, and is the truth."""
        if isinstance(pulled, StoreError):
            self._failed(pulled)
        elif pulled.answer.status == gateway_pb.PULL_STATUS_NO_NEW_MSG:
            self.seen = pulled
            self._room.found_nothing(self)
        elif self._room.found(self):
            self.answer(pulled)
