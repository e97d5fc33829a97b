"""The RPCs of the consumequeue service; see protos/reput/consumequeue/v1."""

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.methods import CONSUMEQUEUE_SERVICE as PREFIX
from services.rpcs import Rpc

LIST_QUEUES = Rpc(PREFIX + "ListQueues", pb.ListQueuesRequest, pb.ListQueuesResponse)
LIST_LIGHT_QUEUES = Rpc(PREFIX + "ListLightQueues", pb.ListLightQueuesRequest, pb.ListLightQueuesResponse)
GET_QUEUE_UNITS = Rpc(PREFIX + "GetQueueUnits", pb.GetQueueUnitsRequest, pb.GetQueueUnitsResponse)
SEARCH_OFFSET = Rpc(PREFIX + "SearchOffset", pb.SearchOffsetRequest, pb.SearchOffsetResponse)
GET_STATUS = Rpc(PREFIX + "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse)
