"""The RPCs of the schedule service; see protos/reput/schedule/v1."""

from reput.schedule.v1 import schedule_service_pb2 as pb
from services.methods import SCHEDULE_SERVICE as PREFIX
from services.rpcs import Rpc

END_TRANSACTION = Rpc(PREFIX + "EndTransaction", pb.EndTransactionRequest, pb.EndTransactionResponse)
END_TRANSACTIONS = Rpc(PREFIX + "EndTransactions", pb.EndTransactionsRequest, pb.EndTransactionsResponse)
RECALL_MESSAGE = Rpc(PREFIX + "RecallMessage", pb.RecallMessageRequest, pb.RecallMessageResponse)
LIST_PENDING_TRANSACTIONS = Rpc(
    PREFIX + "ListPendingTransactions", pb.ListPendingTransactionsRequest, pb.ListPendingTransactionsResponse
)
LIST_SCHEDULED_MESSAGES = Rpc(
    PREFIX + "ListScheduledMessages", pb.ListScheduledMessagesRequest, pb.ListScheduledMessagesResponse
)
KEEP_PRODUCERS = Rpc(PREFIX + "KeepProducers", pb.KeepProducersRequest, pb.KeepProducersResponse)
WATCH_CHECKS = Rpc(PREFIX + "WatchChecks", pb.WatchChecksRequest, pb.WatchChecksResponse)
GET_STATUS = Rpc(PREFIX + "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse)
