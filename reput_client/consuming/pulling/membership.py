"""The share of a pull consumer: which queues it has, by the members of its group and the queues of its topics."""

import logging
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from enum import Enum

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.link import Link
from reput_client.consuming.pulling.allocation import AllocationStrategy, MessageQueue, Queues, share_of
from reput_client.consuming.refusals import RETRY_PREFIX, AbsentTopics, error_of
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.consuming.subscription import Member, endpoints_of
from reput_client.consuming.threads import ThreadTransport
from reput_client.encoding import to_timestamp
from reput_client.errors import NotFoundError, PermissionDeniedError, ReputClientError, is_worth_retrying
from reput_client.querying.query_client import QueryClient

# A consumer that may not read it asks for it again after this time: each refusal is a line in the gateway's audit log.
DENIED_SECONDS = 300.0

_log = logging.getLogger("reput_client")


class StartFrom(Enum):
    """The message that a group begins with in a topic that it has no position in."""

    FIRST = v2.BEGINNING
    LAST = v2.END


class Share:
    """Decides which queues a member has.

    A queue that it did not have is taken when two looks in a row give it: the member that had it has committed by then.

    Args:
        member: its client id.
        strategy: how queues are shared.
    """

    def __init__(self, member: str, strategy: AllocationStrategy) -> None:
        self._member = member
        self._strategy = strategy
        self._given: frozenset[MessageQueue] = frozenset()
        self.taken: frozenset[MessageQueue] = frozenset()

    def look(self, members: Collection[str], queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """The queues that the member has now."""
        given = frozenset(share_of(self._strategy, self._member, members, queues))
        is_alone = set(members) == {self._member}
        self.taken = given if is_alone else given & (self.taken | self._given)
        self._given = given
        return self.taken


class Membership:
    """A member's standing with the gateway.

    Args:
        transport: makes the calls.
        client: asks for members and positions.
        target: the gateway.
        member: the consumer.
        settings: times and pauses.

    Attributes:
        failure: why the consumer is over; None while it works.
        retry_topic: where messages of the group come that were sent back; in earlier releases there is none before the first.
        are_retries_denied: this consumer may not read it.
        is_broadcast: each member of the group reads all queues and keeps its positions itself, as far as `members` has seen.
        known: the queues that `queues` has found last.
        absent: topics that were not there when `queues` looked.
    """

    def __init__(
        self,
        transport: ThreadTransport,
        client: QueryClient,
        target: str,
        member: Member,
        settings: PullConsumerSettings,
    ) -> None:
        self._transport = transport
        self._client = client
        self._target = target
        self._member = member
        self._settings = settings
        self.failure: ReputClientError | None = None
        self.retry_topic = RETRY_PREFIX + member.consumer_group
        self.are_retries_denied = False
        self.is_broadcast = False
        self.known: Queues = ()
        self.absent: set[str] = set()
        self._absent_topics = AbsentTopics(member.consumer_group)
        self._retries_at = 0.0
        self._link = Link(transport, target, member, settings, lambda _: None, self._failed)

    def begin(self) -> None:
        """Become a member."""
        with self._transport.lock:
            self._link.open()

    def end(self) -> None:
        """Leave; the others share the queues among themselves."""
        with self._transport.changed:
            self._link.close(self._settings.request_seconds_max, self._told)
            self._transport.changed.wait_for(lambda: self._link.is_ended, self._settings.request_seconds_max)

    def members(self) -> Sequence[str]:
        """The members that share the queues; of a group that there is not yet, or that broadcasts, only this one.

        Raises:
            ReputClientError: they cannot be had now.
        """
        try:
            details = self._client.consumer_group(self._member.consumer_group)
        except NotFoundError:
            return (self._member.client_id,)
        self.is_broadcast = details.settings.broadcast
        if self.is_broadcast:
            return (self._member.client_id,)
        return tuple(each.client_id for each in details.members)

    def queues(self) -> Queues:
        """The queues of all topics and of the retry topic, sorted; a topic that there is not has none.

        Raises:
            ReputClientError: they cannot be had now.
        """
        found: list[MessageQueue] = []
        for topic in self._member.subscriptions:
            found += self._queues_of(topic)
        if self.retry_topic not in self._member.subscriptions and time.monotonic() >= self._retries_at:
            try:
                found += self._queues_of(self.retry_topic)
                self.are_retries_denied = False
            except PermissionDeniedError as error:
                if not self.are_retries_denied:
                    _log.warning("messages that were sent back do not come to this consumer: %s", error.message)
                self.are_retries_denied = True
                self._retries_at = time.monotonic() + DENIED_SECONDS
        self.known = sorted(found)
        return self.known

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        request = v2.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=endpoints_of(self._target))
        answer = self._transport.ask(self._target, "QueryRoute", request, self._settings.request_seconds_max)
        error = error_of(answer.status)
        if isinstance(error, NotFoundError):
            self._absent_topics.is_absent_by(topic, error)
            self.absent.add(topic)
            return []
        if error is not None:
            raise error
        return [MessageQueue(topic, each.broker.name, each.id) for each in answer.message_queues]

    def committed(self) -> dict[MessageQueue, int]:
        """The positions of the group; none when its members keep them.

        Raises:
            ReputClientError: they cannot be had now.
        """
        if self.is_broadcast:
            return {}
        try:
            positions = self._client.offsets(self._member.consumer_group)
        except NotFoundError:
            return {}
        return {MessageQueue(each.topic, each.broker_name, each.queue_id): each.consumer_offset for each in positions}

    def start_offset(self, queue: MessageQueue, start: "StartFrom | datetime") -> int:
        """The position at which a group begins in a queue; in its retry topic the first message.

        Raises:
            ReputClientError: it cannot be had now.
        """
        request = v2.QueryOffsetRequest(query_offset_policy=v2.TIMESTAMP)
        if queue.topic == self.retry_topic:
            start = StartFrom.FIRST
        if isinstance(start, StartFrom):
            request.query_offset_policy = start.value
        else:
            request.timestamp.CopyFrom(to_timestamp(start, "start"))
        request.message_queue.topic.name = queue.topic
        request.message_queue.id = queue.queue_id
        request.message_queue.broker.name = queue.broker_name
        answer = self._transport.ask(self._target, "QueryOffset", request, self._settings.request_seconds_max)
        error = error_of(answer.status)
        if isinstance(error, NotFoundError):
            return 0  # a queue that no message has come to
        if error is not None:
            raise error
        return int(answer.offset)

    def note_fetch(self, topic: str, error: ReputClientError | None) -> None:
        """A fetch of a queue has failed, or None: it brought something."""
        if error is None:
            self._absent_topics.found(topic)
        elif not self._absent_topics.is_absent_by(topic, error):
            self.note(error)

    def note(self, error: ReputClientError) -> None:
        """Note a failure: an error that passes is logged, another one ends the consumer."""
        if is_worth_retrying(error) or isinstance(error, NotFoundError):
            _log.info("the group %s is asked for again: %s", self._member.consumer_group, error.message)
            return
        with self._transport.lock:
            self._failed(error)

    def _failed(self, error: ReputClientError) -> None:
        self.failure = self.failure or error
        self._transport.wake()

    def _told(self) -> None:
        with self._transport.lock:
            self._transport.wake()
