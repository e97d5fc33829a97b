"""The RPCs of the consumer service; see protos/reput/consumer/v1."""

from reput.consumer.v1 import consumer_service_pb2 as pb
from services.methods import CONSUMER_SERVICE as PREFIX
from services.rpcs import Rpc

POP_MESSAGES = Rpc(PREFIX + "PopMessages", pb.PopMessagesRequest, pb.PopMessagesResponse)
ACK_MESSAGES = Rpc(PREFIX + "AckMessages", pb.AckMessagesRequest, pb.AckMessagesResponse)
CHANGE_INVISIBLE_DURATION = Rpc(
    PREFIX + "ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest, pb.ChangeInvisibleDurationResponse
)
FORWARD_TO_DEAD_LETTER_TOPIC = Rpc(
    PREFIX + "ForwardToDeadLetterTopic", pb.ForwardToDeadLetterTopicRequest, pb.ForwardToDeadLetterTopicResponse
)
PULL_MESSAGES = Rpc(PREFIX + "PullMessages", pb.PullMessagesRequest, pb.PullMessagesResponse)
SEND_BACK_MESSAGES = Rpc(PREFIX + "SendBackMessages", pb.SendBackMessagesRequest, pb.SendBackMessagesResponse)
LOCK_QUEUES = Rpc(PREFIX + "LockQueues", pb.LockQueuesRequest, pb.LockQueuesResponse)
COMMIT_OFFSETS = Rpc(PREFIX + "CommitOffsets", pb.CommitOffsetsRequest, pb.CommitOffsetsResponse)
GET_OFFSETS = Rpc(PREFIX + "GetOffsets", pb.GetOffsetsRequest, pb.GetOffsetsResponse)
RESET_OFFSETS = Rpc(PREFIX + "ResetOffsets", pb.ResetOffsetsRequest, pb.ResetOffsetsResponse)
KEEP_CLIENTS = Rpc(PREFIX + "KeepClients", pb.KeepClientsRequest, pb.KeepClientsResponse)
END_CLIENT = Rpc(PREFIX + "EndClient", pb.EndClientRequest, pb.EndClientResponse)
SYNC_LITE_SUBSCRIPTION = Rpc(
    PREFIX + "SyncLiteSubscription", pb.SyncLiteSubscriptionRequest, pb.SyncLiteSubscriptionResponse
)
LIST_LITE_TOPICS = Rpc(PREFIX + "ListLiteTopics", pb.ListLiteTopicsRequest, pb.ListLiteTopicsResponse)
WATCH_ARRIVALS = Rpc(PREFIX + "WatchArrivals", pb.WatchArrivalsRequest, pb.WatchArrivalsResponse)
LIST_GROUPS = Rpc(PREFIX + "ListGroups", pb.ListGroupsRequest, pb.ListGroupsResponse)
GET_GROUP = Rpc(PREFIX + "GetGroup", pb.GetGroupRequest, pb.GetGroupResponse)
UPDATE_GROUP = Rpc(PREFIX + "UpdateGroup", pb.UpdateGroupRequest, pb.UpdateGroupResponse)
DELETE_GROUP = Rpc(PREFIX + "DeleteGroup", pb.DeleteGroupRequest, pb.DeleteGroupResponse)
SEE_TOPICS = Rpc(PREFIX + "SeeTopics", pb.SeeTopicsRequest, pb.SeeTopicsResponse)
GET_FIGURES = Rpc(PREFIX + "GetFigures", pb.GetFiguresRequest, pb.GetFiguresResponse)
TRACK_MESSAGE = Rpc(PREFIX + "TrackMessage", pb.TrackMessageRequest, pb.TrackMessageResponse)
GET_STATUS = Rpc(PREFIX + "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse)
