"""The table of RPCs: how each one is served, repeated, timed, and which callers may call it.

    kind        the shape of the call and how it ends
    lane        the pool of threads that serves it (services/serving/lanes.py); each kind has its own
    retry       whether a caller may send it again when the outcome is not known
    roles       the callers that may call it. Inner services: roles of services (services/settings/certificates.py).
                Gateway: roles of clients (gateway/auth/access.py); gateway/auth/rules.py adds the topics.
                None: every caller
    seconds     the time that a call gets when its caller sets no deadline; None: it may last as long as its caller wants
    query_mode  the label `mode` of the query metrics (gateway/reput/query_methods.py); empty: not a query

A test compares the table with the descriptors of all services. A server does not serve an RPC without a row, so a new RPC
is closed until it has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from services.settings.certificates import BUILDERS, GATEWAY, MOVERS, OPERATOR, REPLICAS, ROLES

# Prefixes of paths, by service.
COMMITLOG_SERVICE = "/reput.commitlog.v1.CommitLogService/"
CONSUMEQUEUE_SERVICE = "/reput.consumequeue.v1.ConsumeQueueService/"
INDEX_SERVICE = "/reput.index.v1.IndexService/"
CONSUMER_SERVICE = "/reput.consumer.v1.ConsumerService/"
SCHEDULE_SERVICE = "/reput.schedule.v1.ScheduleService/"
NAMESERVER_SERVICE = "/reput.nameserver.v1.NameServerService/"
GATEWAY_SERVICE = "/reput.gateway.v1.GatewayService/"
MESSAGING_SERVICE = "/apache.rocketmq.v2.MessagingService/"
ROCKETMQ_ADMIN_SERVICE = "/apache.rocketmq.v2.Admin/"
HEALTH_SERVICE = "/grpc.health.v1.Health/"
REFLECTION_SERVICES = ("/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/")
ROCKETMQ_PREFIX = "/apache.rocketmq.v2."

# Default deadlines. A query may ask several shards in turn; an append may wait for a busy disk.
INNER_SECONDS = 10.0
QUERY_SECONDS = 30.0
APPEND_SECONDS = 60.0
# A long poll waits for 20 s at most.
POLL_SECONDS = 30.0

Roles = frozenset[str]
READ: Roles = frozenset({"read"})
WRITE: Roles = frozenset({"write"})
READ_OR_WRITE = READ | WRITE
ADMIN: Roles = frozenset({"admin"})
ANY_CLIENT = READ | WRITE | ADMIN
CONSUMEQUEUE: Roles = frozenset({"consumequeue"})


class Kind(Enum):
    """The shape of a call and how it ends."""

    UNARY = "one request, one answer"
    SERVER_STREAM = "one request; the stream of answers ends by itself"
    POLL = "one request; the stream of answers ends by itself, as soon as there is something or after a wait without a thread"
    PULL = "one request; the stream of answers waits for more at its end, and ends by itself when nothing comes for a while"
    TAIL = "one request; the stream of answers ends only when the caller or the service ends it"
    TWO_WAY = "a stream of requests; each gets one answer, in order"
    SESSION = "a two-way stream that lasts as long as its client, mostly idle; not every request has an answer"


class LaneName(Enum):
    """The pools of threads; the values stand in errors, logs and metrics."""

    HEALTH = "health"
    REFLECTION = "reflection"
    CALLS = "calls"
    STREAMS = "streams"
    DOWNLOADS = "downloads"
    TAILS = "tails"
    SESSIONS = "sessions"
    POLLS = "polls"
    PULLS = "pulls"


LANE_BY_KIND = {
    Kind.UNARY: LaneName.CALLS,
    Kind.SERVER_STREAM: LaneName.DOWNLOADS,
    Kind.POLL: LaneName.POLLS,
    Kind.PULL: LaneName.PULLS,
    Kind.TAIL: LaneName.TAILS,
    Kind.TWO_WAY: LaneName.STREAMS,
    Kind.SESSION: LaneName.SESSIONS,
}


class Retry(Enum):
    """What a caller may do when a call broke after it was sent."""

    SAFE = "the call is idempotent: it may be sent again"
    NEVER = "the call may have been carried out: report that the outcome is not known"


@dataclass(frozen=True, slots=True)
class Method:
    """One row; see the top of this file."""

    path: str
    kind: Kind
    retry: Retry
    roles: Roles | None
    seconds: float | None
    query_mode: str = ""
    lane_of_its_own: LaneName | None = None

    @property
    def lane(self) -> LaneName:
        """The lane of its kind, unless it has another."""
        return self.lane_of_its_own or LANE_BY_KIND[self.kind]

    @property
    def is_ours(self) -> bool:
        """Whether the RPC belongs to a contract in `protos/`, not to gRPC itself (health, reflection)."""
        return self.lane not in (LaneName.HEALTH, LaneName.REFLECTION)


_UNARY, _DOWNLOAD, _TAIL, _TWO_WAY, _SESSION = Kind.UNARY, Kind.SERVER_STREAM, Kind.TAIL, Kind.TWO_WAY, Kind.SESSION
_POLL, _PULL = Kind.POLL, Kind.PULL
_SAFE, _NEVER = Retry.SAFE, Retry.NEVER
_HEALTH, _REFLECTION = LaneName.HEALTH, LaneName.REFLECTION

_ROWS = (
    Method(COMMITLOG_SERVICE + "AppendMessages", _UNARY, _NEVER, GATEWAY, APPEND_SECONDS),
    Method(COMMITLOG_SERVICE + "AppendMessageStream", _TWO_WAY, _NEVER, GATEWAY, None),
    Method(COMMITLOG_SERVICE + "AppendInternal", _UNARY, _NEVER, MOVERS, APPEND_SECONDS),
    # The consumequeue service reads store times, for SearchOffset.
    Method(COMMITLOG_SERVICE + "GetMessage", _UNARY, _SAFE, GATEWAY | CONSUMEQUEUE | MOVERS, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "BatchGetMessages", _UNARY, _SAFE, GATEWAY | CONSUMEQUEUE | MOVERS, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "ListTopics", _UNARY, _SAFE, GATEWAY | CONSUMEQUEUE | MOVERS, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "CreateTopic", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "UpdateTopic", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "DeleteTopic", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "ReadConfigFile", _DOWNLOAD, _SAFE, MOVERS, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "WriteConfigFile", _TWO_WAY, _SAFE, MOVERS, None),
    Method(COMMITLOG_SERVICE + "Reput", _TAIL, _SAFE, BUILDERS | MOVERS, None),
    Method(COMMITLOG_SERVICE + "Replicate", _SESSION, _SAFE, REPLICAS, None),
    # Of one leader and its few replicas; a file of 1 GiB takes its time.
    Method(COMMITLOG_SERVICE + "FetchLog", _DOWNLOAD, _SAFE, REPLICAS, None, lane_of_its_own=LaneName.SESSIONS),
    Method(COMMITLOG_SERVICE + "ReportProgress", _UNARY, _SAFE, BUILDERS | MOVERS, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "RemoveFollower", _UNARY, _SAFE, OPERATOR, INNER_SECONDS),
    Method(COMMITLOG_SERVICE + "GetStatus", _UNARY, _SAFE, ROLES, INNER_SECONDS),
    Method(CONSUMEQUEUE_SERVICE + "ListQueues", _UNARY, _SAFE, GATEWAY | MOVERS, INNER_SECONDS),
    Method(CONSUMEQUEUE_SERVICE + "ListLightQueues", _UNARY, _SAFE, GATEWAY | MOVERS, INNER_SECONDS),
    Method(CONSUMEQUEUE_SERVICE + "GetQueueUnits", _UNARY, _SAFE, GATEWAY | MOVERS, INNER_SECONDS),
    Method(CONSUMEQUEUE_SERVICE + "SearchOffset", _UNARY, _SAFE, GATEWAY | MOVERS, INNER_SECONDS),
    Method(CONSUMEQUEUE_SERVICE + "GetStatus", _UNARY, _SAFE, GATEWAY | MOVERS, INNER_SECONDS),
    Method(INDEX_SERVICE + "SearchKey", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(INDEX_SERVICE + "GetFilterPages", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(INDEX_SERVICE + "GetStatus", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "PopMessages", _UNARY, _NEVER, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "AckMessages", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "ChangeInvisibleDuration", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "ForwardToDeadLetterTopic", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "PullMessages", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "SendBackMessages", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "LockQueues", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "CommitOffsets", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "GetOffsets", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "ResetOffsets", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "KeepClients", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "EndClient", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "SyncLiteSubscription", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "ListLiteTopics", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "WatchArrivals", _TAIL, _SAFE, GATEWAY, None),
    Method(CONSUMER_SERVICE + "ListGroups", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "GetGroup", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "UpdateGroup", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "DeleteGroup", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "SeeTopics", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "GetFigures", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "TrackMessage", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(CONSUMER_SERVICE + "GetStatus", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "EndTransaction", _UNARY, _NEVER, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "EndTransactions", _UNARY, _NEVER, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "RecallMessage", _UNARY, _NEVER, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "ListPendingTransactions", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "ListScheduledMessages", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "KeepProducers", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(SCHEDULE_SERVICE + "WatchChecks", _TAIL, _SAFE, GATEWAY, None),
    Method(SCHEDULE_SERVICE + "GetStatus", _UNARY, _SAFE, GATEWAY, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "ListBrokers", _UNARY, _SAFE, ROLES, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "ListTopics", _UNARY, _SAFE, ROLES, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "GetRoute", _UNARY, _SAFE, ROLES, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "SetWritePerm", _UNARY, _SAFE, OPERATOR, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "DeleteTopic", _UNARY, _SAFE, OPERATOR, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "ListKvConfig", _UNARY, _SAFE, ROLES, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "PutKvConfig", _UNARY, _SAFE, OPERATOR, INNER_SECONDS),
    Method(NAMESERVER_SERVICE + "DeleteKvConfig", _UNARY, _SAFE, OPERATOR, INNER_SECONDS),
    Method(GATEWAY_SERVICE + "AppendMessages", _UNARY, _NEVER, WRITE, APPEND_SECONDS),
    Method(GATEWAY_SERVICE + "AppendMessageStream", _TWO_WAY, _NEVER, WRITE, None),
    Method(GATEWAY_SERVICE + "QueryMessageByKey", _UNARY, _SAFE, READ, QUERY_SECONDS, "by-key"),
    Method(GATEWAY_SERVICE + "QueryMessageById", _UNARY, _SAFE, READ, QUERY_SECONDS, "by-id"),
    Method(GATEWAY_SERVICE + "QueryMessageByUniqueKey", _UNARY, _SAFE, READ, QUERY_SECONDS, "by-unique-key"),
    Method(GATEWAY_SERVICE + "QueryMessageByOffset", _UNARY, _SAFE, READ, QUERY_SECONDS, "by-offset"),
    Method(GATEWAY_SERVICE + "FindMessage", _UNARY, _SAFE, READ, QUERY_SECONDS, "find"),
    Method(GATEWAY_SERVICE + "SearchMessages", _UNARY, _SAFE, READ, QUERY_SECONDS, "search"),
    Method(GATEWAY_SERVICE + "ExplainQuery", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "DownloadBody", _DOWNLOAD, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "SearchOffset", _UNARY, _SAFE, READ, QUERY_SECONDS, "search-offset"),
    Method(GATEWAY_SERVICE + "ListTopics", _UNARY, _SAFE, READ, QUERY_SECONDS, "list-topics"),
    Method(GATEWAY_SERVICE + "CreateTopic", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "UpdateTopic", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "DeleteTopic", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "PullMessages", _PULL, _SAFE, READ, None),
    Method(GATEWAY_SERVICE + "SendBackMessages", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "LockQueues", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "CommitOffsets", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "GetOffsets", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ResetOffsets", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ListConsumerGroups", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ListLiteTopics", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ListTenants", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "GetConsumerGroup", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "GetConsumerRunningInfo", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "UpdateConsumerGroup", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "DeleteConsumerGroup", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "TrackMessage", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ResendDeadLetters", _UNARY, _NEVER, ADMIN, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "RecallMessage", _UNARY, _NEVER, WRITE, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "EndTransaction", _UNARY, _NEVER, WRITE, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ListPendingTransactions", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "ListScheduledMessages", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(GATEWAY_SERVICE + "SendRequest", _UNARY, _NEVER, WRITE, APPEND_SECONDS),
    Method(GATEWAY_SERVICE + "GetStatus", _UNARY, _SAFE, ADMIN, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "QueryRoute", _UNARY, _SAFE, READ_OR_WRITE, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "Heartbeat", _UNARY, _SAFE, ANY_CLIENT, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "SendMessage", _UNARY, _NEVER, WRITE, APPEND_SECONDS),
    Method(MESSAGING_SERVICE + "QueryAssignment", _UNARY, _SAFE, READ, QUERY_SECONDS),
    # A poll that is sent again leaves the messages of the lost answer hidden for their time.
    Method(MESSAGING_SERVICE + "ReceiveMessage", _POLL, _NEVER, READ, POLL_SECONDS),
    Method(MESSAGING_SERVICE + "AckMessage", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "ChangeInvisibleDuration", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "ForwardMessageToDeadLetterQueue", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "PullMessage", _POLL, _SAFE, READ, POLL_SECONDS),
    Method(MESSAGING_SERVICE + "UpdateOffset", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "GetOffset", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "QueryOffset", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "EndTransaction", _UNARY, _NEVER, WRITE, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "RecallMessage", _UNARY, _NEVER, WRITE, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "Telemetry", _SESSION, _SAFE, ANY_CLIENT, None),
    Method(MESSAGING_SERVICE + "NotifyClientTermination", _UNARY, _SAFE, ANY_CLIENT, QUERY_SECONDS),
    Method(MESSAGING_SERVICE + "SyncLiteSubscription", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(ROCKETMQ_ADMIN_SERVICE + "QueryMessage", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(ROCKETMQ_ADMIN_SERVICE + "QueryTimeSpan", _UNARY, _SAFE, READ, QUERY_SECONDS),
    Method(HEALTH_SERVICE + "Check", _UNARY, _SAFE, None, INNER_SECONDS, lane_of_its_own=_HEALTH),
    Method(HEALTH_SERVICE + "List", _UNARY, _SAFE, None, INNER_SECONDS, lane_of_its_own=_HEALTH),
    Method(HEALTH_SERVICE + "Watch", _TAIL, _SAFE, None, None, lane_of_its_own=_HEALTH),
    # Every caller that has any role, of a service or of a client.
    *(
        Method(service + "ServerReflectionInfo", _TWO_WAY, _SAFE, ROLES | ANY_CLIENT, None, lane_of_its_own=_REFLECTION)
        for service in REFLECTION_SERVICES
    ),
)
METHODS: Mapping[str, Method] = {method.path: method for method in _ROWS}


@lru_cache(maxsize=256)
def short_name(path: str) -> str:
    """An RPC as labels and spans name it: `GatewayService/GetStatus`, or `v2.Admin/QueryMessage` for RocketMQ's."""
    service, _, name = path.strip("/").rpartition("/")
    prefix = "v2." if path.startswith(ROCKETMQ_PREFIX) else ""
    return f"{prefix}{service.rpartition('.')[2]}/{name}"
