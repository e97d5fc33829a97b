"""Fetching: a thread for each queue of a pull consumer, which streams batches while there is room for them."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.channel import SERVICE
from reput_client.consuming.pulling.pull_queue import PullQueue
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.consuming.subscription import Member, message_filter_of
from reput_client.errors import ReputClientError
from reput_client.querying.message import message_of
from reput_client.querying.read_choice import ReadChoice, choose
from reput_client.status import error_of_call

_log = logging.getLogger("reput_client")


class Fetcher:
    """Fetches the queues of one consumer.

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
        self._pull: Any = channel.unary_stream(
            SERVICE + "PullMessages",
            request_serializer=pb.PullMessagesRequest.SerializeToString,
            response_deserializer=pb.PullMessagesResponse.FromString,
        )
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
