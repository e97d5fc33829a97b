"""Typed client of the consumer service; errors are raised as the classes that the service raised."""

from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.consumer.v1 import consumer_service_pb2_grpc as pb_grpc
from services import retry
from services.calling.channel import open_channel
from services.calling.endless_stream import EndlessStream
from services.calling.later import Done, call_later
from services.calling.local_later import LocalCalls
from services.calling.pulled_bytes import PulledBytes
from services.local.client import LocalClient
from services.local.wire import DELIVERIES, LocalMethod
from services.serving.deadline import SECONDS_DEFAULT
from services.serving.tls import TlsIdentity

SERVICE = "consumer"
Answer = TypeVar("Answer", bound=Message)


ArrivalStream = EndlessStream[pb.WatchArrivalsResponse]


class ConsumerClient:
    """Calls one consumer service. Each method is an RPC of reput.consumer.v1; see the proto.

    Calls are repeated as `services/methods.py` allows: all but `pop`, which might hand messages out twice. The methods
    that end with `_later` make one attempt; their caller waits in no thread (services/calling/later.py, local_later.py).

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: used for all calls instead of a channel of its own.
        tls: our certificate for its own channel; None: no TLS.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None, tls: TlsIdentity | None = None) -> None:
        self.target = target
        self.channel = channel or open_channel(target, tls)
        self._stub: Any = pb_grpc.ConsumerServiceStub(self.channel)
        self._local = LocalClient(DELIVERIES, target if channel is None else "", SERVICE)
        self._local_calls = LocalCalls(self._local)
        self._pull_bytes: Any = self.channel.unary_unary(
            LocalMethod.PULL_MESSAGES.rpc,
            request_serializer=pb.PullMessagesRequest.SerializeToString,
            response_deserializer=PulledBytes.of,
        )

    def pop(
        self, request: pb.PopMessagesRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.PopMessagesResponse:
        """Hands out messages. Never retried: the messages of a lost answer stay hidden."""
        response: pb.PopMessagesResponse = retry.call_once(
            lambda seconds: self._stub.PopMessages(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response

    def ack(
        self, request: pb.AckMessagesRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.AckMessagesResponse:
        """Says that messages are consumed."""
        return self._call(self._stub.AckMessages, request, pb.AckMessagesResponse, timeout_seconds)

    def change_invisible_duration(
        self, request: pb.ChangeInvisibleDurationRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.ChangeInvisibleDurationResponse:
        """Changes for how long a message stays hidden."""
        return self._call(
            self._stub.ChangeInvisibleDuration, request, pb.ChangeInvisibleDurationResponse, timeout_seconds
        )

    def forward_to_dead_letter_topic(
        self, request: pb.ForwardToDeadLetterTopicRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.ForwardToDeadLetterTopicResponse:
        """Moves a message to the group's dead-letter topic."""
        return self._call(
            self._stub.ForwardToDeadLetterTopic, request, pb.ForwardToDeadLetterTopicResponse, timeout_seconds
        )

    def pull(
        self, request: pb.PullMessagesRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.PullMessagesResponse:
        """Reads messages of a queue from a position on."""
        return self._call(self._stub.PullMessages, request, pb.PullMessagesResponse, timeout_seconds)

    def send_back(
        self, request: pb.SendBackMessagesRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.SendBackMessagesResponse:
        """Gives messages that were pulled to their group again."""
        return self._call(self._stub.SendBackMessages, request, pb.SendBackMessagesResponse, timeout_seconds)

    def lock_queues(
        self, request: pb.LockQueuesRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.LockQueuesResponse:
        """Locks queues for a member of a group, or unlocks them."""
        return self._call(self._stub.LockQueues, request, pb.LockQueuesResponse, timeout_seconds)

    def see_topics(
        self, request: pb.SeeTopicsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.SeeTopicsResponse:
        """Takes the groups past what was deleted of topics."""
        return self._call(self._stub.SeeTopics, request, pb.SeeTopicsResponse, timeout_seconds)

    def commit_offsets(
        self, request: pb.CommitOffsetsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.CommitOffsetsResponse:
        """Sets the positions of a group."""
        return self._call(self._stub.CommitOffsets, request, pb.CommitOffsetsResponse, timeout_seconds)

    def get_offsets(
        self, request: pb.GetOffsetsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.GetOffsetsResponse:
        """The positions of a group."""
        return self._call(self._stub.GetOffsets, request, pb.GetOffsetsResponse, timeout_seconds)

    def reset_offsets(
        self, request: pb.ResetOffsetsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.ResetOffsetsResponse:
        """Moves a group to other positions of a topic."""
        return self._call(self._stub.ResetOffsets, request, pb.ResetOffsetsResponse, timeout_seconds)

    def keep_clients(
        self, request: pb.KeepClientsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.KeepClientsResponse:
        """Says that clients live."""
        return self._call(self._stub.KeepClients, request, pb.KeepClientsResponse, timeout_seconds)

    def end_client(
        self, request: pb.EndClientRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.EndClientResponse:
        """Says that a client has ended."""
        return self._call(self._stub.EndClient, request, pb.EndClientResponse, timeout_seconds)

    def watch_arrivals(self) -> ArrivalStream:
        """The topics that may have something to deliver."""
        return EndlessStream(self._stub.WatchArrivals(pb.WatchArrivalsRequest()), SERVICE, "arrivals")

    def list_groups(
        self, request: pb.ListGroupsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.ListGroupsResponse:
        """The groups of the shard."""
        return self._call(self._stub.ListGroups, request, pb.ListGroupsResponse, timeout_seconds)

    def get_group(
        self, request: pb.GetGroupRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.GetGroupResponse:
        """A group with its members and queues."""
        return self._call(self._stub.GetGroup, request, pb.GetGroupResponse, timeout_seconds)

    def update_group(
        self, request: pb.UpdateGroupRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.UpdateGroupResponse:
        """Sets the settings of a group; makes it if it is absent."""
        return self._call(self._stub.UpdateGroup, request, pb.UpdateGroupResponse, timeout_seconds)

    def delete_group(
        self, request: pb.DeleteGroupRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.DeleteGroupResponse:
        """Forgets a group."""
        return self._call(self._stub.DeleteGroup, request, pb.DeleteGroupResponse, timeout_seconds)

    def track(
        self, request: pb.TrackMessageRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.TrackMessageResponse:
        """What has become of a message for each group."""
        return self._call(self._stub.TrackMessage, request, pb.TrackMessageResponse, timeout_seconds)

    def get_status(self, *, timeout_seconds: float = SECONDS_DEFAULT) -> pb.GetStatusResponse:
        """Progress and counts."""
        return self._call(self._stub.GetStatus, pb.GetStatusRequest(), pb.GetStatusResponse, timeout_seconds)

    def pop_later(
        self, request: pb.PopMessagesRequest, timeout_seconds: float, done: Done[pb.PopMessagesResponse]
    ) -> None:
        """`pop`, answered by `done`."""
        self._later(LocalMethod.POP_MESSAGES, request, pb.PopMessagesResponse, timeout_seconds, done)

    def ack_later(
        self, request: pb.AckMessagesRequest, timeout_seconds: float, done: Done[pb.AckMessagesResponse]
    ) -> None:
        """`ack`, likewise."""
        self._later(LocalMethod.ACK_MESSAGES, request, pb.AckMessagesResponse, timeout_seconds, done)

    def change_invisible_duration_later(
        self,
        request: pb.ChangeInvisibleDurationRequest,
        timeout_seconds: float,
        done: Done[pb.ChangeInvisibleDurationResponse],
    ) -> None:
        """`change_invisible_duration`, likewise."""
        self._later(
            LocalMethod.CHANGE_INVISIBLE_DURATION, request, pb.ChangeInvisibleDurationResponse, timeout_seconds, done
        )

    def pull_later(
        self, request: pb.PullMessagesRequest, timeout_seconds: float, done: Done[pb.PullMessagesResponse]
    ) -> None:
        """`pull`, likewise."""
        self._later(LocalMethod.PULL_MESSAGES, request, pb.PullMessagesResponse, timeout_seconds, done)

    def pull_bytes_later(
        self, request: pb.PullMessagesRequest, timeout_seconds: float, done: Done[PulledBytes]
    ) -> None:
        """`pull`, likewise; the messages stay bytes if the request has `shown_as`."""
        self._local_calls.call(
            LocalMethod.PULL_MESSAGES,
            request,
            PulledBytes.of,
            timeout_seconds,
            done,
            lambda seconds: call_later(self._pull_bytes, request, seconds, SERVICE, done),
        )

    def close(self) -> None:
        """Close the channel; running calls end with ServiceUnavailableError."""
        self._local_calls.close()
        self._local.close()
        self.channel.close()

    def _later(
        self, method: LocalMethod, request: Message, answer: type[Answer], timeout_seconds: float, done: Done[Answer]
    ) -> None:
        over_grpc = getattr(self._stub, method.rpc.rpartition("/")[2])
        self._local_calls.call(
            method,
            request,
            answer.FromString,
            timeout_seconds,
            done,
            lambda seconds: call_later(over_grpc, request, seconds, SERVICE, done),
        )

    def _call(self, method: Any, request: Message, _answer: type[Answer], timeout_seconds: float) -> Answer:
        """An idempotent call; `_answer` types its response."""
        response: Answer = retry.call_idempotent(
            lambda seconds: method(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response
