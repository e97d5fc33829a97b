"""The methods of the gateway that pages call: those of `reput.gateway.v1.GatewayService`, in this process."""

from collections.abc import Iterator
from typing import Any, Protocol

from reput.gateway.v1 import gateway_service_pb2 as pb


class GatewayPort(Protocol):
    """Answers requests as the gateway's servicer does; `context` is a CallContext (calls.py)."""

    def QueryMessageByKey(self, request: pb.QueryMessageByKeyRequest, context: Any) -> pb.QueryMessageByKeyResponse:
        """Messages by key."""

    def QueryMessageById(self, request: pb.QueryMessageByIdRequest, context: Any) -> pb.QueryMessageByIdResponse:
        """A message by its offsetMsgId."""

    def QueryMessageByUniqueKey(
        self, request: pb.QueryMessageByUniqueKeyRequest, context: Any
    ) -> pb.QueryMessageByUniqueKeyResponse:
        """Messages by unique key."""

    def QueryMessageByOffset(
        self, request: pb.QueryMessageByOffsetRequest, context: Any
    ) -> pb.QueryMessageByOffsetResponse:
        """Messages of a queue by position."""

    def FindMessage(self, request: pb.FindMessageRequest, context: Any) -> pb.FindMessageResponse:
        """Messages by a text that may be an id, a unique key or a key."""

    def ExplainQuery(self, request: pb.ExplainQueryRequest, context: Any) -> pb.ExplainQueryResponse:
        """The work of a query in each shard."""

    def SearchMessages(self, request: pb.SearchMessagesRequest, context: Any) -> pb.SearchMessagesResponse:
        """Messages by conditions."""

    def DownloadBody(self, request: pb.DownloadBodyRequest, context: Any) -> Iterator[pb.DownloadBodyResponse]:
        """The body of a message in pieces."""

    def SearchOffset(self, request: pb.SearchOffsetRequest, context: Any) -> pb.SearchOffsetResponse:
        """The position of a queue at a time."""

    def ListTopics(self, request: pb.ListTopicsRequest, context: Any) -> pb.ListTopicsResponse:
        """Topics and their queues."""

    def ListLiteTopics(self, request: pb.ListLiteTopicsRequest, context: Any) -> pb.ListLiteTopicsResponse:
        """Lite topics of a topic, with how groups stand."""

    def ListTenants(self, request: pb.ListTenantsRequest, context: Any) -> pb.ListTenantsResponse:
        """Namespaces, what they use, and their quotas."""

    def ListConsumerGroups(self, request: pb.ListConsumerGroupsRequest, context: Any) -> pb.ListConsumerGroupsResponse:
        """Consumer groups."""

    def GetConsumerGroup(self, request: pb.GetConsumerGroupRequest, context: Any) -> pb.GetConsumerGroupResponse:
        """A consumer group with its members and lag."""

    def GetConsumerRunningInfo(
        self, request: pb.GetConsumerRunningInfoRequest, context: Any
    ) -> pb.GetConsumerRunningInfoResponse:
        """What a member of a group does now."""

    def ResendDeadLetters(self, request: pb.ResendDeadLettersRequest, context: Any) -> pb.ResendDeadLettersResponse:
        """Sends dead letters again."""

    def TrackMessage(self, request: pb.TrackMessageRequest, context: Any) -> pb.TrackMessageResponse:
        """What has become of a message."""

    def ListScheduledMessages(
        self, request: pb.ListScheduledMessagesRequest, context: Any
    ) -> pb.ListScheduledMessagesResponse:
        """Messages that wait for a time."""

    def ListPendingTransactions(
        self, request: pb.ListPendingTransactionsRequest, context: Any
    ) -> pb.ListPendingTransactionsResponse:
        """Half messages that wait for a verdict."""

    def AppendMessages(self, request: pb.AppendMessagesRequest, context: Any) -> pb.AppendMessagesResponse:
        """Stores messages."""

    def RecallMessage(self, request: pb.RecallMessageRequest, context: Any) -> pb.RecallMessageResponse:
        """Takes a message back that waits for its time."""

    def EndTransaction(self, request: pb.EndTransactionRequest, context: Any) -> pb.EndTransactionResponse:
        """Commits or rolls back a transaction."""

    def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: Any) -> pb.ResetOffsetsResponse:
        """Moves a consumer group."""

    def SendBackMessages(self, request: pb.SendBackMessagesRequest, context: Any) -> pb.SendBackMessagesResponse:
        """Gives messages to a consumer group again."""

    def UpdateConsumerGroup(
        self, request: pb.UpdateConsumerGroupRequest, context: Any
    ) -> pb.UpdateConsumerGroupResponse:
        """Sets settings of a consumer group."""

    def CreateTopic(self, request: pb.CreateTopicRequest, context: Any) -> pb.CreateTopicResponse:
        """Creates a topic."""

    def UpdateTopic(self, request: pb.UpdateTopicRequest, context: Any) -> pb.UpdateTopicResponse:
        """Changes a topic."""

    def DeleteTopic(self, request: pb.DeleteTopicRequest, context: Any) -> pb.DeleteTopicResponse:
        """Takes a topic away."""

    def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        """The state of all services."""
