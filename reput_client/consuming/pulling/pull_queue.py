"""`PullQueue`: one queue of a pull consumer, its fetched messages and its positions. `Fetcher`: fetches the queues."""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.calls import Stubs
from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.consuming.subscription import Member, message_filter_of
from reput_client.errors import ReputClientError, error_of_call
from reput_client.querying.message import Message, message_of
from reput_client.querying.question import ReadChoice, choose


class PullQueue:
    """One queue. Its caller locks.

    Attributes:
        queue: its name.
        next_offset: where fetching goes on.
        done_offset: everything before it is processed.
        committed_offset: the position that the gateway has; None: none.
        is_paused: it is neither fetched nor polled.
        is_removed: this member does not have it any more.
        is_leaving: another member gets it when what was polled is processed; nothing further is polled.
        is_polled: something was polled and is not processed.
        locked_until: of an ordered consumer: after it, another member may have it (seconds of the clock).
        suspended_until: before it, nothing is polled (seconds of the clock).
        generation: a batch that was asked for in an earlier one is dropped.
        call: the fetch under way.
    """

    def __init__(
        self, queue: MessageQueue, offset: int, committed_offset: int | None, settings: PullConsumerSettings
    ) -> None:
        self.queue = queue
        self.next_offset = offset
        self.done_offset = offset
        self.committed_offset = committed_offset
        self.is_paused = False
        self.is_removed = False
        self.is_leaving = False
        self.is_polled = False
        self.locked_until = math.inf
        self.suspended_until = 0.0
        self.generation = 0
        self.call: Any = None
        self._settings = settings
        self._fetched: deque[Message] = deque()
        self.size_bytes = 0
        # A batch never asks for more than the cache holds.
        self.batch_count = min(settings.batch_count_max, settings.cache_count_max)
        self.batch_bytes = min(settings.batch_bytes_max, settings.cache_bytes_max)

    @property
    def count(self) -> int:
        """Messages that are fetched and not polled."""
        return len(self._fetched)

    @property
    def span(self) -> int:
        """Positions from the first of them to the last."""
        return self._fetched[-1].queue_offset - self._fetched[0].queue_offset if self._fetched else 0

    @property
    def position(self) -> int:
        """Everything before it was polled, or did not match."""
        return self._fetched[0].queue_offset if self._fetched else self.next_offset

    @property
    def may_fetch(self) -> bool:
        """Whether another batch fits."""
        settings = self._settings
        return (
            not self.is_paused
            and not self.is_removed
            and not self.is_leaving
            and self.count + self.batch_count <= settings.cache_count_max
            and self.size_bytes + self.batch_bytes <= settings.cache_bytes_max
            and self.span <= settings.cache_span_max
        )

    def add(self, messages: Iterable[Message], next_offset: int) -> None:
        """A batch has come."""
        for message in messages:
            self._fetched.append(message)
            self.size_bytes += len(message.stored_body)
        self.next_offset = next_offset

    def may_give(self, now: float) -> bool:
        """Whether messages may be polled at a time of the clock."""
        return not self.is_paused and not self.is_leaving and self.suspended_until <= now < self.locked_until

    def take(self, count: int) -> list[Message]:
        """At most so many messages, in order."""
        if self.is_paused or self.is_leaving:
            return []
        taken = [self._fetched.popleft() for _ in range(min(count, len(self._fetched)))]
        self.size_bytes -= sum(len(message.stored_body) for message in taken)
        self.is_polled = self.is_polled or bool(taken)
        return taken

    def finish(self) -> None:
        """The polled messages are processed."""
        self.done_offset = self.position
        self.is_polled = False

    def seek(self, offset: int) -> None:
        """Go on at another position."""
        self._refetch(offset)
        self.done_offset = offset
        self.is_polled = False

    def suspend(self, until: float) -> None:
        """Poll again, after a time of the clock, the messages that were polled and are not processed."""
        self.suspended_until = until
        self.seek(self.done_offset)

    def leave(self) -> None:
        """Another member gets it when what was polled is processed."""
        self.is_leaving = True
        self._refetch(self.position)

    def _refetch(self, offset: int) -> None:
        self._fetched.clear()
        self.size_bytes = 0
        self.generation += 1
        self.next_offset = offset
        self.cancel()

    def remove(self) -> None:
        """Another member has it from now on."""
        self.is_removed = True
        self._fetched.clear()
        self.size_bytes = 0
        self.cancel()

    def cancel(self) -> None:
        """End the fetch under way."""
        if self.call is not None:
            self.call.cancel()


_log = logging.getLogger("reput_client")


class Fetcher:
    """Fetches the queues of one consumer: a thread for each queue streams batches while there is room for them.

    Args:
        channel: to the gateway.
        changed: the condition of the consumer; its lock guards the queues.
        member: the consumer.
        settings: limits and times.
        note: told the topic and the error of each failure, and None for each batch.
        read: which replicas may answer.

    Attributes:
        is_closed: the consumer is closed. The lock is held when it is set.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        changed: threading.Condition,
        member: Member,
        settings: PullConsumerSettings,
        note: Callable[[str, ReputClientError | None], None],
        read: ReadChoice,
    ) -> None:
        self._pull = Stubs(channel).stream("PullMessages")
        self._changed = changed
        self._member = member
        self._settings = settings
        self._note = note
        self._read = read
        self.is_closed = False

    def begin(self, queue: PullQueue) -> None:
        """Fetch a queue until it is removed or the consumer is closed."""
        threading.Thread(target=self._fetch, args=(queue,), name="reput-pull-fetch", daemon=True).start()

    def _is_over(self, queue: PullQueue) -> bool:
        return self.is_closed or queue.is_removed

    def _fetch(self, queue: PullQueue) -> None:
        failure_count = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over(queue) or queue.may_fetch)
                if self._is_over(queue):
                    return
                generation = queue.generation
                call = queue.call = self._pull(self._request(queue))
            try:
                for response in call:
                    failure_count = 0
                    self._note(queue.queue.topic, None)
                    if not self._add(queue, generation, response):
                        break
            except grpc.RpcError as rpc_error:
                with self._changed:
                    was_cancelled = self._is_over(queue) or queue.is_paused or queue.generation != generation
                if not was_cancelled:
                    failure_count += 1
                    self._note(queue.queue.topic, error_of_call(rpc_error))
                    with self._changed:
                        pause = self._settings.retry.pause_seconds(failure_count)
                        self._changed.wait_for(lambda: self._is_over(queue), pause)
            finally:
                call.cancel()

    def _add(self, queue: PullQueue, generation: int, response: pb.PullMessagesResponse) -> bool:
        """Take a batch; whether the next one of the call is wanted."""
        messages = [message_of(each) for each in response.messages]
        with self._changed:
            if queue.generation != generation or self._is_over(queue):
                return False
            if response.status == pb.PULL_STATUS_OFFSET_ILLEGAL:
                _log.warning(
                    "%s has no position %d: going on at %d", queue.queue, queue.next_offset, response.next_offset
                )
            queue.add(messages, response.next_offset)
            self._changed.notify_all()
            return queue.may_fetch

    def _request(self, queue: PullQueue) -> pb.PullMessagesRequest:
        name = queue.queue
        request = pb.PullMessagesRequest(
            topic=name.topic,
            queue_id=name.queue_id,
            broker_name=name.broker_name,
            queue_offset=queue.next_offset,
            max_messages=queue.batch_count,
            max_bytes=queue.batch_bytes,
            filter=message_filter_of(self._member.subscriptions.get(name.topic, "*")),
            consumer_group=self._member.consumer_group,
        )
        request.wait.FromMilliseconds(int(self._settings.wait_seconds * 1000))
        choose(request, self._read)
        return request
