"""The RPCs of GatewayService about consumer groups, pulls and tracks; GatewayServicer has them as its own."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc

from gateway import group_answers
from gateway.dead_letter_call import LetterAppends, resend
from gateway.ports.delivery import DeliveringSource
from gateway.pull_call import PullStreams
from gateway.query_answers import Call
from gateway.read_choice import choice_of
from gateway.shards.replica_choice import ReadFrom
from gateway.shards.replica_reads import ReplicaReads
from gateway.wire import MessageShardsSource
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.methods import INNER_SECONDS
from services.serving.calls.cancellation import Cancellation
from services.serving.calls.raw_handlers import AnyHandler
from services.serving.deadline import answer_seconds
from store.errors import ServiceUnavailableError


class GroupDelivery:
    """What delivers, for the methods that do more than ask the shards.

    Args:
        source: the consumer services of the shards.
        streams: serves PullMessages.
        appends: appends dead letters again.
    """

    def __init__(self, source: DeliveringSource, streams: PullStreams, appends: LetterAppends) -> None:
        self.source = source
        self.streams = streams
        self.appends = appends


class GroupMethods:
    """The methods; `_source` and `_call` are those of the servicer.

    Attributes:
        delivery: set by the gateway; None where nothing is delivered.
        reads, read_from: see GatewayServicer.
    """

    delivery: GroupDelivery | None = None
    reads: ReplicaReads | None = None
    read_from: ReadFrom = ReadFrom.LEADER
    _source: MessageShardsSource

    def _call(self, context: grpc.ServicerContext) -> Call:
        raise NotImplementedError

    @property
    def _delivery(self) -> GroupDelivery:
        if self.delivery is None:
            raise ServiceUnavailableError("this gateway delivers no messages", service="consumer")
        return self.delivery

    def PullMessages(self, request: pb.PullMessagesRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        """The messages of a queue in batches, which are PullMessagesResponses as bytes: see `raw_handlers`."""
        delivery, choice = self._delivery, choice_of(request, self.read_from)
        leader = delivery.source.named(request.broker_name)
        seconds = partial(answer_seconds, context, INNER_SECONDS)
        if self.reads is None or choice.read_from is ReadFrom.LEADER:
            return delivery.streams.answers(self._source.now(), request, Cancellation.of(context), leader, seconds)
        # Not a generator: the choice of the thread ends here, the stream goes on.
        with self.reads.reading(choice):
            shards = self._source.now()
        return delivery.streams.answers(
            shards, request, Cancellation.of(context), self.reads.pulls(leader, choice), seconds
        )

    def raw_handlers(self) -> dict[str, AnyHandler]:
        """The handlers of methods that answer with bytes."""
        pull: AnyHandler = grpc.unary_stream_rpc_method_handler(
            self.PullMessages, request_deserializer=pb.PullMessagesRequest.FromString
        )
        return {"PullMessages": pull}

    def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: grpc.ServicerContext
    ) -> pb.CommitOffsetsResponse:
        """Sets positions of a group."""
        return group_answers.commit(self._call(context), request)

    def SendBackMessages(
        self, request: pb.SendBackMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SendBackMessagesResponse:
        """Gives messages to a group again."""
        return group_answers.sent_back(self._call(context), request)

    def LockQueues(self, request: pb.LockQueuesRequest, context: grpc.ServicerContext) -> pb.LockQueuesResponse:
        """Locks queues for a member of a group."""
        return group_answers.locked(self._call(context), request)

    def GetOffsets(self, request: pb.GetOffsetsRequest, context: grpc.ServicerContext) -> pb.GetOffsetsResponse:
        """The positions of a group."""
        return group_answers.offsets(self._call(context), request)

    def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: grpc.ServicerContext) -> pb.ResetOffsetsResponse:
        """Moves a group to other positions."""
        return group_answers.reset(self._call(context), request)

    def ListConsumerGroups(
        self, request: pb.ListConsumerGroupsRequest, context: grpc.ServicerContext
    ) -> pb.ListConsumerGroupsResponse:
        """The groups of all shards."""
        return group_answers.groups(self._call(context), request)

    def GetConsumerGroup(
        self, request: pb.GetConsumerGroupRequest, context: grpc.ServicerContext
    ) -> pb.GetConsumerGroupResponse:
        """A group with its members, queues and lag."""
        return group_answers.group(self._call(context), request)

    def UpdateConsumerGroup(
        self, request: pb.UpdateConsumerGroupRequest, context: grpc.ServicerContext
    ) -> pb.UpdateConsumerGroupResponse:
        """Sets the settings of a group."""
        return group_answers.update(self._call(context), request)

    def DeleteConsumerGroup(
        self, request: pb.DeleteConsumerGroupRequest, context: grpc.ServicerContext
    ) -> pb.DeleteConsumerGroupResponse:
        """Forgets a group."""
        return group_answers.delete(self._call(context), request)

    def TrackMessage(self, request: pb.TrackMessageRequest, context: grpc.ServicerContext) -> pb.TrackMessageResponse:
        """What has become of a message."""
        return group_answers.track(self._call(context), request)

    def ResendDeadLetters(
        self, request: pb.ResendDeadLettersRequest, context: grpc.ServicerContext
    ) -> pb.ResendDeadLettersResponse:
        """Sends dead letters to their own topics again."""
        delivery = self._delivery
        return resend(self._call(context), request, delivery.source, delivery.appends)
