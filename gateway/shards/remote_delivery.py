"""The port of delivery over gRPC."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gateway.ports.delivery import Pulled, Then
from gateway.shards.ack_batches import AckBatches
from gateway.shards.encoded_messages import EncodedMessages
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.calling.client import EndlessStream, ServiceClient
from services.calling.pulled_bytes import PULL_BYTES, PulledBytes
from services.rpcs import consumer as rpc
from services.serving.admission.callers import caller_here
from store.errors import GroupNotFoundError, StoreError

Response = TypeVar("Response")
Answer = TypeVar("Answer")


class RemoteDelivering:
    """Delivering over a consumer service.

    Args:
        broker_name: the shard's name.
        client: calls its consumer service.
    """

    def __init__(self, broker_name: str, client: ServiceClient) -> None:
        self.broker_name = broker_name
        self._client = client
        self._acks = AckBatches(self._ack)

    def pop(self, request: pb.PopMessagesRequest, seconds: float, then: Then[pb.PopMessagesResponse]) -> None:
        """See the port."""
        self._client.later(rpc.POP_MESSAGES, request, seconds, then)

    def ack(self, request: pb.AckMessagesRequest, seconds: float, then: Then[pb.AckMessagesResponse]) -> None:
        """See the port."""
        self._acks.ack(request, seconds, then)

    def _ack(self, request: pb.AckMessagesRequest, seconds: float, then: Then[pb.AckMessagesResponse]) -> None:
        self._client.later(rpc.ACK_MESSAGES, request, seconds, then)

    def change_invisible(
        self,
        request: pb.ChangeInvisibleDurationRequest,
        seconds: float,
        then: Then[pb.ChangeInvisibleDurationResponse],
    ) -> None:
        """See the port."""
        self._client.later(rpc.CHANGE_INVISIBLE_DURATION, request, seconds, then)

    def pull(self, request: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """See the port."""
        if request.shown_as:
            self._client.later(PULL_BYTES, request, seconds, _then(then, _pulled_bytes))
        else:
            self._client.later(
                rpc.PULL_MESSAGES, request, seconds, _then(then, lambda answer: Pulled(answer, answer.messages))
            )

    def forward_to_dead_letters(self, request: pb.ForwardToDeadLetterTopicRequest, seconds: float) -> None:
        """See the port."""
        self._client.call(rpc.FORWARD_TO_DEAD_LETTER_TOPIC, request, seconds)

    def commit_offset(self, consumer_group: str, topic: str, queue_id: int, queue_offset: int, seconds: float) -> None:
        """See the port."""
        offset = pb.QueueOffset(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
        request = pb.CommitOffsetsRequest(
            consumer_group=consumer_group, offsets=[offset], known_only=True, caller=caller_here()
        )
        self._client.call(rpc.COMMIT_OFFSETS, request, seconds)

    def offsets(self, consumer_group: str, topic: str, seconds: float) -> Mapping[int, int]:
        """See the port."""
        request = pb.GetOffsetsRequest(consumer_group=consumer_group, topic=topic)
        try:
            offsets = self._client.call(rpc.GET_OFFSETS, request, seconds).offsets
        except GroupNotFoundError:
            return {}
        return {each.queue_id: each.queue_offset for each in offsets if each.topic == topic}

    def keep_clients(
        self, clients: Sequence[pb.Client], seconds: float, delivered: Sequence[str] = ()
    ) -> Sequence[pb.GroupSettings]:
        """See the port."""
        request = pb.KeepClientsRequest(clients=clients, delivered_receipt_handles=delivered)
        return self._client.call(rpc.KEEP_CLIENTS, request, seconds).groups

    def sync_lite(
        self, request: pb.SyncLiteSubscriptionRequest, seconds: float, then: Then[pb.SyncLiteSubscriptionResponse]
    ) -> None:
        """See the port."""
        self._client.later(rpc.SYNC_LITE_SUBSCRIPTION, request, seconds, then)

    def make_group(self, settings: pb.GroupSettings, caller: str, seconds: float) -> None:
        """See the port."""
        request = pb.UpdateGroupRequest(settings=settings, if_unset=True, caller=caller)
        self._client.call(rpc.UPDATE_GROUP, request, seconds)

    def end_client(
        self, client_id: str, consumer_group: str, seconds: float, *, keep_locks: bool = False, address: str = ""
    ) -> None:
        """See the port."""
        request = pb.EndClientRequest(
            client_id=client_id, consumer_group=consumer_group, keep_locks=keep_locks, address=address
        )
        self._client.call(rpc.END_CLIENT, request, seconds)

    def arrivals(self) -> EndlessStream[pb.WatchArrivalsResponse]:
        """See the port."""
        return self._client.follow(rpc.WATCH_ARRIVALS, pb.WatchArrivalsRequest())


def _then(then: Then[Answer], convert: Callable[[Any], Answer]) -> Callable[[Any], object]:
    def done(outcome: Any) -> object:
        return then(outcome if isinstance(outcome, StoreError) else convert(outcome))

    return done


def _pulled_bytes(answer: PulledBytes) -> Pulled:
    head = answer.head
    return Pulled(head, EncodedMessages(answer.messages, head.shown_as) if head.shown_as else head.messages)
