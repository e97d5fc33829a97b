"""The RPCs of the commitlog service; see protos/reput/commitlog/v1."""

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import replication_pb2
from services.methods import COMMITLOG_SERVICE as PREFIX
from services.rpcs import Rpc

APPEND_MESSAGES = Rpc(PREFIX + "AppendMessages", pb.AppendMessagesRequest, pb.AppendMessagesResponse)
APPEND_MESSAGE_STREAM = Rpc(
    PREFIX + "AppendMessageStream", pb.AppendMessageStreamRequest, pb.AppendMessageStreamResponse
)
APPEND_INTERNAL = Rpc(PREFIX + "AppendInternal", pb.AppendInternalRequest, pb.AppendInternalResponse)
GET_MESSAGE = Rpc(PREFIX + "GetMessage", pb.GetMessageRequest, pb.GetMessageResponse)
BATCH_GET_MESSAGES = Rpc(PREFIX + "BatchGetMessages", pb.BatchGetMessagesRequest, pb.BatchGetMessagesResponse)
LIST_TOPICS = Rpc(PREFIX + "ListTopics", pb.ListTopicsRequest, pb.ListTopicsResponse)
CREATE_TOPIC = Rpc(PREFIX + "CreateTopic", pb.CreateTopicRequest, pb.CreateTopicResponse)
UPDATE_TOPIC = Rpc(PREFIX + "UpdateTopic", pb.UpdateTopicRequest, pb.UpdateTopicResponse)
DELETE_TOPIC = Rpc(PREFIX + "DeleteTopic", pb.DeleteTopicRequest, pb.DeleteTopicResponse)
READ_CONFIG_FILE = Rpc(PREFIX + "ReadConfigFile", pb.ReadConfigFileRequest, pb.ReadConfigFileResponse)
WRITE_CONFIG_FILE = Rpc(PREFIX + "WriteConfigFile", pb.WriteConfigFileRequest, pb.WriteConfigFileResponse)
REPUT = Rpc(PREFIX + "Reput", pb.ReputRequest, pb.ReputResponse)
REPLICATE = Rpc(PREFIX + "Replicate", replication_pb2.ReplicateRequest, replication_pb2.ReplicateResponse)
FETCH_LOG = Rpc(PREFIX + "FetchLog", replication_pb2.FetchLogRequest, replication_pb2.FetchLogResponse)
REPORT_PROGRESS = Rpc(PREFIX + "ReportProgress", pb.ReportProgressRequest, pb.ReportProgressResponse)
REMOVE_FOLLOWER = Rpc(PREFIX + "RemoveFollower", pb.RemoveFollowerRequest, pb.RemoveFollowerResponse)
GET_STATUS = Rpc(PREFIX + "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse)
