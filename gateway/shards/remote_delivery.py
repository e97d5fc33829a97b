"""The port of delivery over gRPC."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration

from gateway.ports.delivery import (
    DELIVERY_ATTEMPTS_DEFAULT,
    AckOutcome,
    Arrivals,
    ClientFacts,
    Delivery,
    Filter,
    FilterKind,
    GroupSettings,
    PopQuestion,
    Pulled,
    PullOutcome,
    PullQuestion,
    Then,
)
from gateway.shards.ack_batches import AckBatches
from gateway.shards.encoded_messages import EncodedMessages
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.client import EndlessStream, ServiceClient
from services.calling.pulled_bytes import PULL_BYTES, PulledBytes
from services.convert import timestamp_to_millis
from services.rpcs import consumer as rpc
from services.serving.admission.callers import caller_here
from store.errors import GroupNotFoundError, StoreError

ACK_OUTCOMES = {
    pb.AckMessagesResponse.OUTCOME_OK: AckOutcome.OK,
    pb.AckMessagesResponse.OUTCOME_TOO_LATE: AckOutcome.TOO_LATE,
    pb.AckMessagesResponse.OUTCOME_INVALID: AckOutcome.INVALID,
}
PULL_OUTCOMES = {
    pb.PULL_STATUS_FOUND: PullOutcome.FOUND,
    pb.PULL_STATUS_NO_NEW_MSG: PullOutcome.NO_NEW,
    pb.PULL_STATUS_NO_MATCHED_MSG: PullOutcome.NO_MATCHED,
    pb.PULL_STATUS_OFFSET_ILLEGAL: PullOutcome.OFFSET_ILLEGAL,
}

Response = TypeVar("Response")
Answer = TypeVar("Answer")


class RemoteArrivals:
    """An ArrivalStream."""

    def __init__(self, stream: EndlessStream[pb.WatchArrivalsResponse]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Arrivals]:
        """See the port."""
        for answer in self._stream:
            yield Arrivals(
                tuple(answer.topics),
                tuple((each.consumer_group, each.topic) for each in answer.group_topics),
                answer.all,
            )

    def cancel(self) -> None:
        """See the port."""
        self._stream.cancel()


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

    def pop(self, question: PopQuestion, seconds: float, then: Then[Sequence[Delivery[StoredMessage]]]) -> None:
        """See the port."""
        request = pb.PopMessagesRequest(
            consumer_group=question.consumer_group,
            topic=question.topic,
            max_messages=question.max_messages,
            client_id=question.client_id,
            attempt_id=question.attempt_id,
            filter=filter_of(question.filter),
            max_per_message_group=question.max_per_message_group,
            known_only=question.known_only,
            caller=question.caller,
        )
        if question.invisible_millis is not None:
            request.invisible_duration.CopyFrom(_duration(question.invisible_millis))
        self._client.later(rpc.POP_MESSAGES, request, seconds, _then(then, _deliveries))

    def ack(
        self, consumer_group: str, handles: Sequence[str], seconds: float, then: Then[Sequence[AckOutcome]]
    ) -> None:
        """See the port."""
        self._acks.ack(consumer_group, handles, seconds, then)

    def _ack(
        self, consumer_group: str, handles: Sequence[str], seconds: float, then: Then[Sequence[AckOutcome]]
    ) -> None:
        request = pb.AckMessagesRequest(consumer_group=consumer_group, receipt_handles=handles)
        then_outcomes = _then(then, lambda answer: [ACK_OUTCOMES[outcome] for outcome in answer.outcomes])
        self._client.later(rpc.ACK_MESSAGES, request, seconds, then_outcomes)

    def change_invisible(
        self, consumer_group: str, handle: str, millis: int, seconds: float, then: Then[str], *, give_back: bool = False
    ) -> None:
        """See the port."""
        request = pb.ChangeInvisibleDurationRequest(
            consumer_group=consumer_group,
            receipt_handle=handle,
            invisible_duration=_duration(millis),
            give_back=give_back,
        )
        self._client.later(
            rpc.CHANGE_INVISIBLE_DURATION, request, seconds, _then(then, lambda answer: str(answer.receipt_handle))
        )

    def pull(self, question: PullQuestion, seconds: float, then: Then[Pulled[StoredMessage]]) -> None:
        """See the port."""
        request = pb.PullMessagesRequest(
            topic=question.topic,
            queue_id=question.queue_id,
            queue_offset=question.queue_offset,
            max_messages=question.max_messages,
            filter=filter_of(question.filter),
            consumer_group=question.consumer_group,
            max_bytes=question.max_bytes,
            ignore_perm=question.ignore_perm,
        )
        if question.encoded:
            request.shown_as = self.broker_name
            request.as_records = question.as_records
            self._client.later(PULL_BYTES, request, seconds, _then(then, _pulled_bytes))
        else:
            self._client.later(rpc.PULL_MESSAGES, request, seconds, _then(then, _pulled))

    def forward_to_dead_letters(self, consumer_group: str, handle: str, seconds: float) -> None:
        """See the port."""
        request = pb.ForwardToDeadLetterTopicRequest(consumer_group=consumer_group, receipt_handle=handle)
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
        self, clients: Sequence[ClientFacts], seconds: float, delivered: Sequence[str] = ()
    ) -> Sequence[GroupSettings]:
        """See the port."""
        request = pb.KeepClientsRequest(clients=map(_client, clients), delivered_receipt_handles=delivered)
        answer = self._client.call(rpc.KEEP_CLIENTS, request, seconds)
        return [settings_of(group) for group in answer.groups]

    def make_group(self, settings: GroupSettings, caller: str, seconds: float) -> None:
        """See the port."""
        request = pb.UpdateGroupRequest(settings=settings_to(settings), if_unset=True, caller=caller)
        self._client.call(rpc.UPDATE_GROUP, request, seconds)

    def end_client(self, client_id: str, consumer_group: str, seconds: float) -> None:
        """See the port."""
        request = pb.EndClientRequest(client_id=client_id, consumer_group=consumer_group)
        self._client.call(rpc.END_CLIENT, request, seconds)

    def arrivals(self) -> RemoteArrivals:
        """See the port."""
        return RemoteArrivals(self._client.follow(rpc.WATCH_ARRIVALS, pb.WatchArrivalsRequest()))


def _then(then: Then[Answer], convert: Callable[[Any], Answer]) -> Callable[[Any], object]:
    def done(outcome: Any) -> object:
        return then(outcome if isinstance(outcome, StoreError) else convert(outcome))

    return done


def _deliveries(answer: pb.PopMessagesResponse) -> list[Delivery[StoredMessage]]:
    return [
        Delivery(
            each.message,
            each.receipt_handle,
            each.delivery_attempt,
            timestamp_to_millis(each.invisible_until, "invisible_until"),
        )
        for each in answer.deliveries
    ]


def _pulled(answer: pb.PullMessagesResponse) -> Pulled[StoredMessage]:
    return Pulled(
        answer.messages,
        answer.next_offset,
        answer.min_offset,
        answer.max_offset,
        PULL_OUTCOMES[answer.status],
        answer.is_whole,
        answer.seen_offset if answer.HasField("seen_offset") else None,
    )


def _pulled_bytes(answer: PulledBytes) -> Pulled[StoredMessage]:
    pulled, shown_as = _pulled(answer.head), answer.head.shown_as
    return replace(pulled, messages=EncodedMessages(answer.messages, shown_as)) if shown_as else pulled


def settings_of(group: pb.GroupSettings) -> GroupSettings:
    """The settings of a group."""
    return GroupSettings(
        group.consumer_group,
        group.ordered,
        group.delivery_attempts_max or DELIVERY_ATTEMPTS_DEFAULT,
        group.consume_enabled,
        group.broadcast,
        group.is_set,
    )


def settings_to(settings: GroupSettings) -> pb.GroupSettings:
    """The settings of a group, for a request."""
    return pb.GroupSettings(
        consumer_group=settings.consumer_group,
        ordered=settings.ordered,
        delivery_attempts_max=settings.delivery_attempts_max,
        consume_enabled=settings.consume_enabled,
        broadcast=settings.broadcast,
        is_set=settings.is_set,
    )


def filter_of(asked: Filter) -> pb.Filter:
    """The filter of a request."""
    return pb.Filter(sql=asked.expression) if asked.kind is FilterKind.SQL else pb.Filter(tags=asked.expression)


def _duration(millis: int) -> Duration:
    return Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)


def _client(client: ClientFacts) -> pb.Client:
    return pb.Client(
        client_id=client.client_id,
        consumer_group=client.consumer_group,
        subscriptions=[pb.Subscription(topic=topic, filter=filter_of(asked)) for topic, asked in client.subscriptions],
        language=client.language,
        address=client.address,
        version=client.version,
        kind=client.kind,
        caller=client.caller,
    )
