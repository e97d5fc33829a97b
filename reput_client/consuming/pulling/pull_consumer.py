"""`PullConsumer`: reads queues by position; the members of a group share the queues."""

import logging
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from types import TracebackType

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.calls import ADDRESS_DEFAULT
from reput_client.channel import open_channel
from reput_client.consuming.core import new_client_id
from reput_client.consuming.pulling.allocation import MessageQueue, Queues, strategy_of
from reput_client.consuming.pulling.held_queues import LOCK_SECONDS, RENEW_SECONDS, HeldQueues, QueueLocks
from reput_client.consuming.pulling.membership import Membership, Share, StartFrom
from reput_client.consuming.pulling.pull_queue import Fetcher
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.consuming.subscription import Member, Subscriptions, checked
from reput_client.consuming.threads import ThreadTransport, close_at_exit
from reput_client.errors import ConsumerClosedError, ReputClientError
from reput_client.querying.groups import SendBackOutcome
from reput_client.querying.message import Message
from reput_client.querying.query_client import QueryClient
from reput_client.querying.question import ReadChoice
from reput_client.security import ClientSecurity
from reput_client.tracing import ConsumeReturn, ThreadTracing, TraceWriter

# RocketMQ's property of a message that was sent back.
RETRY_TOPIC = "RETRY_TOPIC"

_log = logging.getLogger("reput_client")


class PullConsumer:
    """Reads the queues of topics, each from a position that the gateway keeps for the group.

        with PullConsumer("127.0.0.1:8081", "analytics", {"Orders": "*"}) as consumer:
            while True:
                for message in consumer.poll():
                    print(message.queue_id, message.queue_offset, message.body)

    The queues are shared among the members of the group, again at each join and leave. What a poll has given counts as
    processed when `poll` or `commit` is called the next time, and at `close`; positions of what is processed are committed
    every `commit_seconds`. A member that dies leaves its queues to the others after 2 minutes; they read what it had not
    committed again. Messages that were sent back come in the topic `%RETRY%<group>`.

    In a group that broadcasts (`broadcast` of its settings) each member reads all queues. Its positions are in its memory: it
    begins at `start` each time, or where `seek` sets it.

    An ordered consumer polls only queues that it has locked. No other member polls or commits such a queue before what was
    polled of it is processed. When a lock is lost, nothing further of its queue is polled or committed.

    One thread polls; the other methods are for any thread.

    Args:
        target: the gateway, `HOST:PORT`.
        consumer_group: the group; made when it is new.
        subscriptions: topics, each with the tags that are wanted (`a || b`, `*`) or an `Sql` filter.
        start: where the group begins in a topic that it has no position in: FIRST, LAST, or the first message stored at or
            after a time. A queue or a shard that comes later is read from its first message on.
        allocation: how queues are shared, RocketMQ's AVG, AVG_BY_CIRCLE, MACHINE_ROOM or CONSISTENT_HASH; the same for all
            members.
        ordered: queues are locked; the same for all members.
        machine_rooms: with MACHINE_ROOM: the rooms whose shards, named `ROOM@NAME`, are read.
        read: which replicas of a shard messages may come from; positions are always the leader's.
        settings: limits and times.
        security: TLS and credentials.

    Raises:
        OSError, ValueError, TypeError: an argument cannot be used.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        consumer_group: str = "",
        subscriptions: Subscriptions | None = None,
        *,
        start: StartFrom | datetime = StartFrom.FIRST,
        allocation: str = "AVG",
        ordered: bool = False,
        machine_rooms: Collection[str] = (),
        read: ReadChoice | None = None,
        settings: PullConsumerSettings | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        self._is_closed = True  # for __del__, should the next lines fail
        if not consumer_group:
            raise ValueError("consumer_group is empty: name the group")
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ValueError(f"start is {start!r} without a time zone: give one, for example datetime.now(UTC)")
        self.target = target
        self.settings = settings or PullConsumerSettings()
        self.client_id = new_client_id()
        self._member = Member(self.client_id, consumer_group, checked(subscriptions or {}), v2.PULL_CONSUMER)
        self._share = Share(self.client_id, strategy_of(allocation, machine_rooms))
        channel = open_channel(target, security)
        self._channel = channel
        self._transport = ThreadTransport(self.client_id, security)
        self._changed = self._transport.changed
        self._client = QueryClient(target, channel=channel, timeout_seconds=self.settings.request_seconds_max)
        self._membership = Membership(self._transport, self._client, target, self._member, self.settings)
        self._fetcher = Fetcher(
            channel, self._changed, self._member, self.settings, self._membership.note_fetch, read or ReadChoice()
        )
        self._is_ordered = ordered
        self._held = HeldQueues(
            self._changed,
            self._client,
            consumer_group,
            self._membership,
            self._fetcher,
            QueueLocks(self._client, self._member) if ordered else None,
            start,
            self.settings,
        )
        self._queues = self._held.by_name
        self._tracing: ThreadTracing | None = None
        self._told: PolledTraces | None = None
        if self.settings.trace:
            self._tracing = ThreadTracing.of(target, None, security, self.settings.trace_topic, consumer_group)
            self._told = PolledTraces(self._tracing.writer)
        self._known: Queues = ()
        self._awaits_retries = False  # messages were sent back, and no queue of the retry topic is known
        self._turn = 0
        self._keeper = threading.Thread(target=self._keep, name="reput-pull-keeper", daemon=True)
        self._is_closed = False
        close_at_exit(self, lambda consumer: consumer._close(is_processed=False))

    # -- reading

    def poll(self, max_messages: int = 500, timeout_seconds: float = 5.0) -> list[Message]:
        """The next messages of any queues, in the order of each queue; what the poll before gave counts as processed.

        Args:
            max_messages: at most so many.
            timeout_seconds: how long to wait for the first one.

        Returns:
            The messages; none when the time is over.

        Raises:
            ConsumerClosedError: closed.
            ReputClientError: the gateway does not let this consumer consume.
        """
        self._start()
        ends_at = time.monotonic() + timeout_seconds
        with self._changed:
            self._finish()
            while True:
                self._raise_if_over()
                messages = self._take(max_messages)
                now = time.monotonic()
                if messages or now >= ends_at:
                    if self._told is not None:
                        self._told.began(messages)
                    return messages
                wakes = [each.suspended_until for each in self._queues.values() if each.suspended_until > now]
                self._changed.wait(min(ends_at, *wakes) - now if wakes else ends_at - now)

    def commit(self) -> None:
        """Keep the positions behind the polled messages, which are processed. They are in the log when this returns.

        Raises:
            ReputClientError: they could not be kept; they are tried again with the next ones.
        """
        with self._changed:
            self._finish()
        self._held.commit()

    def send_back(self, messages: Iterable[Message], delay_level: int = 0) -> list[SendBackOutcome]:
        """Messages that were polled and could not be processed come again later, in the topic `%RETRY%<group>`, to any member.

        They still count as processed where they were polled. Their property RETRY_TOPIC names the topic that they were sent to.

        Args:
            messages: of any queues.
            delay_level: RocketMQ's, 1 (1 s) to 18 (2 h); 0: 3 (10 s), and one more for each attempt before; negative: they
                become dead letters, as they do after the attempts of the group.

        Returns:
            What became of each, in order. This is in the log.

        Raises:
            ReputClientError: some may not be sent back; the call may be repeated, and sends each back once.
        """
        given = list(messages)
        with self._changed:
            went_back = any(each.done_offset < (each.committed_offset or 0) for each in self._queues.values())
        if went_back:
            self._held.commit()  # else the shard would take them for messages that were sent back before
        group = self._member.consumer_group
        outcomes = sent_back(given, lambda queue, offsets: self._client.send_back(group, queue, offsets, delay_level))
        with self._changed:
            self._awaits_retries = not self._knows_retries
            if self._told is not None:
                self._told.ended(ConsumeReturn.FAILED, given)
        return outcomes

    def suspend(self, queue: MessageQueue, seconds: float = 1.0) -> None:
        """Poll again, after a time, the messages of a queue that were polled and are not processed; the others follow them.

        RocketMQ's way to try again in an ordered group; `send_back` with level -1 gives a message up. KeyError when this member
        does not have the queue.
        """
        with self._changed:
            self._queues[queue].suspend(time.monotonic() + seconds)
            if self._told is not None:
                self._told.ended(ConsumeReturn.FAILED, self._told.polled_of(queue))
            self._changed.notify_all()

    @property
    def assignment(self) -> Queues:
        """The queues that this member has now, sorted."""
        with self._changed:
            return sorted(self._queues)

    def position(self, queue: MessageQueue) -> int:
        """The position of the next message that a poll gives of a queue; KeyError when this member does not have it."""
        with self._changed:
            return self._queues[queue].position

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on at another position of a queue; KeyError when this member does not have it."""
        with self._changed:
            self._queues[queue].seek(queue_offset)
            self._changed.notify_all()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Poll nothing of queues, until `resume` or until another member has had them."""
        self._set_paused(queues, is_paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Poll queues again."""
        self._set_paused(queues, is_paused=False)

    # -- beginning and ending

    def close(self) -> None:
        """Commit the positions behind the polled messages, which are processed, and leave the group."""
        self._close(is_processed=True)

    def _close(self, *, is_processed: bool) -> None:
        if self._is_closed:
            return
        with self._changed:
            self._is_closed = self._fetcher.is_closed = True
            queues = list(self._queues.values())
            if is_processed:
                self._finish()
            for each in queues:
                each.cancel()
            self._changed.notify_all()
        if self._keeper.ident is not None:
            self._keeper.join()
            try:
                if self.settings.commit_seconds:
                    self._held.commit()
            except ReputClientError as error:
                _log.warning("the last positions could not be committed, what follows them comes again: %s", error)
            self._held.unlock(list(self._queues))
            self._membership.end()
        self._transport.close()
        if self._tracing is not None:
            self._tracing.close()
        self._channel.close()

    def _finish(self) -> None:
        """What was polled is processed. The lock is held."""
        for each in self._queues.values():
            each.finish()
        if self._told is not None:
            self._told.ended(ConsumeReturn.SUCCESS)

    def _start(self) -> None:
        with self._changed:
            if self._keeper.ident is None and not self._is_closed:
                self._membership.begin()
                self._keeper.start()

    def _raise_if_over(self) -> None:
        if self._membership.failure is not None:
            raise self._membership.failure
        if self._is_closed:
            raise ConsumerClosedError("the consumer is closed: make another one")

    def _take(self, max_messages: int) -> list[Message]:
        now = time.monotonic()
        queues = [each for each in self._queues.values() if each.may_give(now)]
        self._turn += 1
        messages: list[Message] = []
        for number in range(len(queues)):
            messages += queues[(self._turn + number) % len(queues)].take(max_messages - len(messages))
            if len(messages) >= max_messages:
                break
        if messages:
            self._changed.notify_all()  # there is room for more
        return messages

    def _set_paused(self, queues: Iterable[MessageQueue], *, is_paused: bool) -> None:
        with self._changed:
            for queue in queues:
                if queue in self._queues:
                    self._queues[queue].is_paused = is_paused
                    if is_paused:
                        self._queues[queue].cancel()
            self._changed.notify_all()

    @property
    def _knows_retries(self) -> bool:
        return any(queue.topic == self._membership.retry_topic for queue in self._known)

    # -- the keeper's thread: shares and commits

    def _keep(self) -> None:
        routes_at = commit_at = 0.0
        while True:
            try:
                self._held.renew()
                now = time.monotonic()
                if now >= routes_at or not self._known or self._awaits_retries:
                    self._known = self._membership.queues()
                    routes_at = now + self.settings.rebalance_seconds
                    is_over = self._knows_retries or self._membership.are_retries_denied
                    self._awaits_retries = self._awaits_retries and not is_over
                self._held.rebalance(self._share.look(self._membership.members(), self._known))
                if self.settings.commit_seconds and now >= commit_at:
                    commit_at = now + self.settings.commit_seconds
                    self._held.commit()
            except ReputClientError as error:
                self._membership.note(error)
            seconds = self.settings.members_seconds
            if self.settings.commit_seconds:
                seconds = min(seconds, self.settings.commit_seconds)
            if self._is_ordered:
                seconds = min(seconds, (LOCK_SECONDS - RENEW_SECONDS) / 2)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, seconds)
                if self._is_closed:
                    return

    def __enter__(self) -> "PullConsumer":
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What an exception interrupted is not processed.
        if error is not None and self._told is not None:
            with self._changed:
                self._told.ended(ConsumeReturn.EXCEPTION)
        self._close(is_processed=error is None)

    def __del__(self) -> None:
        if not self._is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"PullConsumer({self.target!r})"


class PolledTraces:
    """What is told of polled messages, until it is known how they ended. Its caller locks.

    RocketMQ's lite pull consumer tells of each message twice at the poll, as a success that took no time; here the end is told
    when the program has said it.
    """

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._polled: dict[tuple[MessageQueue, int], tuple[Message, tuple[str, int]]] = {}
        self._count = 0

    def began(self, messages: Sequence[Message]) -> None:
        """A poll gives messages; of those without a unique key, and of traces, nothing is told."""
        told = [each for each in messages if each.unique_key and self._writer.topic not in _topics_of(each)]
        self._count = len(told)
        for each in told:
            begin = self._writer.began(each.unique_key, each.keys, each.reconsume_times)
            self._polled[_queue_of(each), each.queue_offset] = each, begin

    def ended(self, code: ConsumeReturn, messages: Iterable[Message] | None = None) -> None:
        """How messages ended; None: all that were polled."""
        places = list(self._polled) if messages is None else [(_queue_of(each), each.queue_offset) for each in messages]
        for place in places:
            if place in self._polled:
                message, begin = self._polled.pop(place)
                self._writer.ended(begin, message.unique_key, message.keys, code, self._count)

    def polled_of(self, queue: MessageQueue) -> list[Message]:
        """Those of a queue that have not ended."""
        return [message for (place, _), (message, _) in self._polled.items() if place == queue]


def _topics_of(message: Message) -> tuple[str, str]:
    """Its topic, and that in which a message that was sent back was first."""
    return message.topic, message.properties.get(RETRY_TOPIC, "")


def _queue_of(message: Message) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name, message.queue_id)


# Of a SendBackMessages.
SENT_BACK_COUNT_MAX = 32


def sent_back(
    messages: Sequence[Message], call: Callable[[MessageQueue, Sequence[int]], Sequence[SendBackOutcome]]
) -> list[SendBackOutcome]:
    """Send messages of any queues back, in one call for each queue; the outcomes in order.

    Args:
        messages: of any queues.
        call: sends positions of one queue back, at most SENT_BACK_COUNT_MAX; the outcomes in order.
    """
    places: dict[MessageQueue, list[int]] = {}
    for place, message in enumerate(messages):
        places.setdefault(_queue_of(message), []).append(place)
    outcomes: dict[int, SendBackOutcome] = {}
    for queue, of_queue in places.items():
        for begin in range(0, len(of_queue), SENT_BACK_COUNT_MAX):
            some = of_queue[begin : begin + SENT_BACK_COUNT_MAX]
            answer = call(queue, [messages[place].queue_offset for place in some])
            outcomes.update(zip(some, answer, strict=True))
    return [outcomes[place] for place in range(len(messages))]
