"""Pops that wait: messages of a topic for a group, for any door; they take no thread.

What is popped for a caller that has gone is given back at once, also when it goes while its answers are on their way.
"""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from google.protobuf.duration_pb2 import Duration

from gateway.delivery.polls import Poll, QueueName, not_answered
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Delivering, DeliveringSource, Then, expression_of, filter_key, is_absent
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import GroupNotFoundError, StoreError

# Of each call to a service; that of services/methods.py, which pure rooms do not import.
CALL_SECONDS = 10.0

# Calls a function with None when a shard knows the group of a pop that it did not know, else with the error. Of a pop that is
# over, as the last argument says, nothing is done.
JoinShard: TypeAlias = Callable[[Delivering, pb.PopMessagesRequest, StoreError, Then[None], Callable[[], bool]], object]


class OpenLooks(Protocol):
    """Counts looks whose messages are not on their way yet: services/serving/calls/open_work.py."""

    def add(self, count: int, /) -> object:
        """So many more."""


class PopChecks:
    """What pops ask besides messages.

    Args:
        shards: the consumer services.
        room: where pops wait.
        work: a clean stop waits for messages on their way; None: for none.
        check_topic: calls its function with None when some shard has a topic, else with the error; None: there is one shard.
        join: tells a shard of a group that it does not know; None: there is one shard.
    """

    def __init__(
        self,
        shards: DeliveringSource,
        room: WaitingRoom,
        work: OpenLooks | None = None,
        check_topic: Callable[[str, Callable[[StoreError | None], None]], object] | None = None,
        join: JoinShard | None = None,
    ) -> None:
        self._shards = shards
        self.join = join
        self._check_topic = check_topic
        self.room = room
        self._work = work

    @property
    def are_joined(self) -> bool:
        """Whether a shard may have to be told of a group."""
        return self.join is not None and len(self._shards.all()) > 1

    def count(self, more: int) -> None:
        """So many more looks are open."""
        if self._work is not None:
            self._work.add(more)

    def check_absent(self, absent: StoreError, topic: str, then: Callable[[StoreError | None], None]) -> None:
        """Call `then` with None when another shard has a topic that one has not, else with the error of that one."""
        if self._check_topic is None or len(self._shards.all()) == 1:
            then(absent)
        else:
            self._check_topic(topic, then)


class PopPoll(Poll):
    """One pop.

    Args:
        checks: see PopChecks.
        delivering: the consumer service.
        question: what is popped.
        ends_at: when it ends without messages, on the room's clock.
        gives_up_at: when it ends although its look is under way.
        owner: in whose share its filter counts.
        must_look: it looks at once, whatever earlier looks have found.
        variant: further names of what it waits for, beside its filter.
    """

    __slots__ = ("_checks", "_delivering", "_has_joined", "_question")

    def __init__(
        self,
        checks: PopChecks,
        delivering: Delivering,
        question: pb.PopMessagesRequest,
        *,
        ends_at: float,
        gives_up_at: float,
        owner: Any,
        must_look: bool = False,
        variant: tuple[Hashable, ...] = (),
    ) -> None:
        wanted = (*filter_key(question.filter), *variant)
        super().__init__(
            QueueName(
                delivering.broker_name,
                question.topic,
                question.consumer_group,
                wanted,
                client_id=question.client_id if question.is_lite else "",
            ),
            question.client_id,
            ends_at,
            gives_up_at,
            must_look=must_look,
            filter_characters=len(expression_of(question.filter)),
            owner=owner,
        )
        self._checks = checks
        self._delivering = delivering
        self._question = question.SerializeToString()  # it waits for long, and the object takes five times as much
        self._has_joined = False  # in this look: it joins once

    @property
    def question(self) -> pb.PopMessagesRequest:
        """What is popped; a new object each time."""
        return pb.PopMessagesRequest.FromString(self._question)

    @abstractmethod
    def answer(self, deliveries: Sequence[pb.Delivery]) -> None:
        """Answer with messages; `went` or `give_back` must be called once, or it raises, and they are given back."""

    @abstractmethod
    def refuse(self, error: StoreError) -> None:
        """Answer with a failure."""

    @property
    @abstractmethod
    def is_caller_there(self) -> bool:
        """Whether an answer may reach the caller."""

    def look(self) -> None:
        """See Poll."""
        self._checks.count(1)
        self._has_joined = False
        self._pop(self.question)

    def give_up(self) -> None:
        """See Poll."""
        self.refuse(not_answered(self._delivering.broker_name))

    def leave(self) -> None:
        """The caller has gone."""
        self._checks.room.remove(self)

    def went(self) -> None:
        """The messages are on their way whole."""
        self._checks.count(-1)

    def give_back(self, deliveries: Sequence[pb.Delivery]) -> None:
        """The messages did not reach the caller."""
        consumer_group = self.name.consumer_group
        left = itertools.count(len(deliveries) - 1, -1)

        def given_back(_outcome: object) -> None:
            if next(left) == 0:  # one that fails is delivered again when its time is over
                self.went()

        for each in deliveries:
            request = pb.ChangeInvisibleDurationRequest(
                consumer_group=consumer_group,
                receipt_handle=each.receipt_handle,
                invisible_duration=Duration(),
                give_back=True,
            )
            self._delivering.change_invisible(request, CALL_SECONDS, given_back)

    def _pop(self, question: pb.PopMessagesRequest) -> None:
        try:
            self._delivering.pop(question, CALL_SECONDS, self._popped)
        except Exception as error:  # a bug; the poll must not wait for ever
            self._popped(error if isinstance(error, StoreError) else StoreError(f"the pop failed: {error!r}"))

    def _joined(self, outcome: StoreError | None) -> None:
        """The shard knows the group now, or the error says why not."""
        if outcome is not None:
            self._failed(outcome)
            return
        self._has_joined = True
        question = self.question
        question.known_only = False
        self._pop(question)

    def _popped(self, outcome: pb.PopMessagesResponse | StoreError) -> None:
        room = self._checks.room
        join = self._checks.join
        if isinstance(outcome, GroupNotFoundError) and join is not None and not self._has_joined:
            join(self._delivering, self.question, outcome, self._joined, lambda: self.is_over)
        elif isinstance(outcome, StoreError) and is_absent(outcome):
            self._checks.check_absent(outcome, self.name.topic, self._failed)
        elif isinstance(outcome, StoreError):
            self._failed(outcome)
        elif not outcome.deliveries:
            room.found_nothing(self)
            self.went()
        elif room.found(self) and self.is_caller_there:
            try:
                self.answer(outcome.deliveries)
            except Exception:
                self.give_back(outcome.deliveries)
                raise
        else:
            self.give_back(outcome.deliveries)

    def _failed(self, error: StoreError | None) -> None:
        """The look has failed; None: the topic is in other shards, and this one may get it."""
        if error is None:
            self._checks.room.found_nothing(self)
        elif self._checks.room.failed(self):
            self.refuse(error)
        self.went()
