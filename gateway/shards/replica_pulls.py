"""ReplicaPulls: where one stream of pulls reads next, as RocketMQ's PullMessageProcessor suggests a broker id.

A batch is the same whoever gives it: a position of a queue has the same message on all replicas. Only the leader knows where
the queue ends. So a replica's batch is passed on, and where a replica has nothing, or fails, the leader is asked.
"""

from collections.abc import Sequence
from typing import Protocol

from gateway.ports.delivery import Pulled, Then
from gateway.shards.reading import ANSWERED, AWAY, FAILED, FIRST_SECONDS_MAX
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import ServiceUnavailableError, StoreError, TopicNotFoundError

PASSED_ON = (gateway_pb.PULL_STATUS_FOUND, gateway_pb.PULL_STATUS_NO_MATCHED_MSG)


class Puller(Protocol):
    """What a stream of pulls needs of a consumer service."""

    @property
    def broker_name(self) -> str:
        """The shard's name."""

    def pull(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """See Delivering."""


class ReplicaPulls:
    """A Puller for one stream, which has one pull at a time.

    Args:
        leader: of the shard.
        replicas: those that may be read, by name, the best first; at least one.
        is_led: whether the shard has a leader.
        old_end: records before it (bytes) are not expected in the leader's memory.
        prefers_replica: whether replicas are asked first for everything.
    """

    def __init__(
        self,
        leader: Puller,
        replicas: Sequence[tuple[str, Puller]],
        *,
        is_led: bool,
        old_end: int,
        prefers_replica: bool,
    ) -> None:
        self._leader = leader
        self._replicas = list(replicas)
        self._is_led = is_led
        self._old_end = old_end
        self._prefers_replica = prefers_replica
        self._is_old = False

    @property
    def broker_name(self) -> str:
        """See Puller."""
        return self._leader.broker_name

    def pull(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """See Puller; ServiceUnavailableError where only a leader could answer and there is none."""
        if not self._is_led:
            self._pull_without_leader(question, seconds, then, 0)
        elif self._replicas and (self._prefers_replica or self._is_old):
            self._pull_from_replica(question, seconds, then)
        else:
            self._pull_from_leader(question, seconds, then)

    def _pull_from_leader(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        def done(outcome: Pulled | StoreError) -> None:
            if not isinstance(outcome, StoreError):
                self._note(outcome)
            elif isinstance(outcome, AWAY) and self._replicas:
                self._is_led = False
                self._pull_without_leader(question, seconds, then, 0)
                return
            then(outcome)

        # Half of the time, so that a replica can answer instead of a leader that hangs.
        self._leader.pull(question, seconds / 2 if self._replicas else seconds, done)

    def _pull_from_replica(self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        def done(outcome: Pulled | StoreError) -> None:
            if not isinstance(outcome, StoreError) and outcome.answer.status in PASSED_ON:
                ANSWERED.add()
                self._note(outcome)
                then(outcome)
                return
            if isinstance(outcome, StoreError):
                FAILED.add()
                self._replicas = self._replicas[1:] if isinstance(outcome, AWAY) else self._replicas
            self._pull_from_leader(question, seconds, then)

        self._replicas[0][1].pull(question, min(seconds, FIRST_SECONDS_MAX), done)

    def _pull_without_leader(
        self, question: pb.PullMessagesRequest, seconds: float, then: Then[Pulled], number: int
    ) -> None:
        def done(outcome: Pulled | StoreError) -> None:
            if not isinstance(outcome, StoreError) and outcome.answer.status in PASSED_ON:
                ANSWERED.add()
                then(outcome)
                return
            if isinstance(outcome, StoreError) and not isinstance(outcome, (*AWAY, TopicNotFoundError)):
                then(outcome)
                return
            FAILED.add()
            self._pull_without_leader(question, seconds, then, number + 1)

        if number < len(self._replicas):
            self._replicas[number][1].pull(question, min(seconds, FIRST_SECONDS_MAX), done)
            return
        names = ", ".join(name for name, _ in self._replicas)
        then(
            ServiceUnavailableError(
                f"No leader of shard {self.broker_name} answers, and {names} has nothing at position {question.queue_offset} "
                f"of queue {question.queue_id} of {question.topic!r}: whether it ends there is not known. Ask again.",
                service="consumer",
                brokerName=self.broker_name,
            )
        )

    def _note(self, batch: Pulled) -> None:
        """Where the stream is: behind what the leader has in memory, or in it."""
        if batch.messages:
            self._is_old = getattr(batch.messages[-1], "commit_log_offset", self._old_end) < self._old_end
