"""The broker as tools see it: its state (28), configuration (26, 25), producers (204, 328), counts (315), copies (907), and
cleaning (306, 316, 329), which Reput does by itself.

Sources: `AdminBrokerProcessor` of RocketMQ 5.5.0; the bodies are those that it was recorded with. It differs from a broker:

- The state has what Reput knows; rates and counts of messages are its metrics, and 0 here.
- The configuration is read and not changed: settings belong to the start.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES, StatusRow, get_record, store_millis
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard, LogStatus
from gateway.remoting.groups import connection_row
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import dump_bytes
from store.errors import OffsetOutOfRangeError, RecordNotFoundError

# The release whose answers these are, as `clusterList` shows it.
VERSION_TEXT = "V5_5_0"
RATES = "0.0 0.0 0.0"  # of 10 s, 1 minute, 10 minutes
# What tools read as numbers and Reput has none of: it keeps no queues of requests.
ZEROS = (
    *("sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "queryThreadPoolQueueSize", "EndTransactionQueueSize"),
    *("litePullThreadPoolQueueSize", "ackThreadPoolQueueSize"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("queryThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills"),
    *("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "putMessageTimesTotal"),
    *("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow", "putMessageSizeTotal"),
    *(
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "startAcceptSendRequestTimeStamp",
        "dispatchMaxBuffer",
    ),
    *("putMessageFailedTimes", "putMessageEntireTimeMax", "getMessageEntireTimeMax", "remainTransientStoreBufferNumbs"),
)
CAPACITIES = ("sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity")
CAPACITY = "4096"  # requests of one connection (services/rocketmq/remoting_server.py)
TPS = ("putTps", "getTotalTps", "getFoundTps", "getMissTps", "getTransferredTps")


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    started_millis = time.time_ns() // 1_000_000
    waiting: dict[int, Handler] = {
        code: in_thread(partial(answer, shard))
        for code, answer in (
            (RequestCode.GET_BROKER_CONFIG, get_broker_config),
            (RequestCode.GET_BROKER_HA_STATUS, get_ha_status),
            (RequestCode.GET_PRODUCER_CONNECTION_LIST, get_producer_connections),
            (RequestCode.GET_ALL_PRODUCER_INFO, get_all_producers),
        )
    }
    at_once: dict[int, Handler] = {
        RequestCode.UPDATE_BROKER_CONFIG: refuse_configuration,
        RequestCode.VIEW_BROKER_STATS_DATA: view_stats,
        **dict.fromkeys(
            (
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                RequestCode.CLEAN_UNUSED_TOPIC,
                RequestCode.DELETE_EXPIRED_COMMITLOG,
            ),
            Ask.answer,
        ),
    }
    waiting[RequestCode.GET_BROKER_RUNTIME_INFO] = in_thread(partial(get_runtime_info, shard, started_millis))
    return waiting | at_once


def get_runtime_info(shard: DoorShard, started_millis: int, ask: Ask) -> Answer:
    """28: the state of the broker, as texts by name."""
    statuses = _statuses(shard)
    log = _log_of(statuses)
    builders = [each.status for each in statuses if each.status.service in ("consumequeue", "index")]
    behind = [log.log_end_offset - each.next_offset for each in builders]
    behind_bytes = max(0, *behind) if behind else 0
    used = log.disk_total_bytes - log.disk_free_bytes
    ratio = f"{used / log.disk_total_bytes if log.disk_total_bytes else 0:.2f}"
    capacity = f"Total : {_gibibytes(log.disk_total_bytes)}, Free : {_gibibytes(log.disk_free_bytes)}."
    now = time.time_ns() // 1_000_000
    table = {
        **dict.fromkeys(ZEROS, "0"),
        **dict.fromkeys(CAPACITIES, CAPACITY),
        **dict.fromkeys(TPS, RATES),
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
        "putMessageAverageSize": "0.0",
        "bootTimestamp": str(started_millis),
        "brokerActive": "true",
        "brokerVersionDesc": VERSION_TEXT,
        "commitLogDirCapacity": capacity,
        "commitLogDiskRatio": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogMinOffset": str(log.log_first_offset),
        "commitLogMaxOffset": str(log.log_end_offset),
        "dispatchBehindBytes": str(behind_bytes),
        "earliestMessageTimeStamp": str(_first_store_millis(shard, log)),
        "remainHowManyDataToFlush": "0 B",
        "runtime": _runtime((now - started_millis) // 1000),
    }
    return Answer(body=dump_bytes({"table": table}))


def get_broker_config(shard: DoorShard, ask: Ask) -> Answer:
    """26: the configuration as a properties file, as far as RocketMQ's names say it."""
    log = _log_status(shard)
    host, _, port = shard.address(log).rpartition(":")
    names = {
        "autoCreateTopicEnable": str(bool(shard.topics.new_topic_queue_count)).lower(),
        "brokerClusterName": shard.cluster_name,
        "brokerIP1": host,
        "brokerId": "0",
        "brokerName": shard.broker_name,
        "brokerPermission": "6",
        "brokerRole": "ASYNC_MASTER",
        "defaultTopicQueueNums": str(shard.topics.new_topic_queue_count),
        "listenPort": port,
        "mappedFileSizeCommitLog": str(log.file_size_bytes),
    }
    version = dump_bytes({"counter": 0, "stateVersion": 0, "timestamp": 0}).decode()
    return Answer({"version": version}, "".join(f"{name}={value}\n" for name, value in names.items()).encode())


def refuse_configuration(ask: Ask) -> None:
    """25: the configuration belongs to the start."""
    raise RefusedError(
        ResponseCode.SYSTEM_ERROR, "this broker is configured when it starts: set REPUT_... and start it again"
    )


def get_ha_status(shard: DoorShard, ask: Ask) -> Answer:
    """907: copies by RocketMQ's HA; replicas of Reput are told by `reput status`."""
    document = {
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": True,
        "masterCommitLogMaxOffset": _log_status(shard).log_end_offset,
    }
    return Answer(body=dump_bytes(document))


def get_producer_connections(shard: DoorShard, ask: Ask) -> Answer:
    """204: the producers of a group that have a connection here."""
    group = ask.text("producerGroup")
    found = shard.clients.producers(group)
    if not found:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    return Answer(body=dump_bytes({"connectionSet": [connection_row(client) for client in found]}))


def get_all_producers(shard: DoorShard, ask: Ask) -> Answer:
    """328: all producers that have a connection here, by group."""
    table: dict[str, list[dict[str, object]]] = {}
    now = time.time_ns() // 1_000_000
    for client in shard.clients.all():
        row = {
            "clientId": client.client_id,
            "language": client.language,
            "lastUpdateTimestamp": now,
            "remoteIP": f"/{client.connection.peer}",
            "version": client.version,
        }
        for group in client.producer_groups:
            table.setdefault(group, []).append(row)
    return Answer(body=dump_bytes({"data": dict(sorted(table.items()))}))


def view_stats(ask: Ask) -> None:
    """315: counts are metrics here, and none of RocketMQ's exists."""
    name, key = ask.text("statsName"), ask.text("statsKey")
    raise RefusedError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


def _log_status(shard: DoorShard) -> LogStatus:
    """The commit log's; its error when it does not answer."""
    return _log_of(_statuses(shard))


def _statuses(shard: DoorShard) -> Sequence[StatusRow]:
    return shard.shard.call(STATUSES, None, Deadline.after(CALL_SECONDS))


def _log_of(statuses: Sequence[StatusRow]) -> LogStatus:
    log = next(each for each in statuses if each.status.service == "commitlog")
    if log.error is not None:
        raise log.error
    return log.status


def _first_store_millis(shard: DoorShard, log: LogStatus) -> int:
    """When the first message of the log was stored (ms since 1970); -1 when there is none."""
    try:
        return store_millis(get_record(shard.shard, log.log_first_offset, Deadline.after(CALL_SECONDS)))
    except (RecordNotFoundError, OffsetOutOfRangeError):
        return -1


def _gibibytes(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _runtime(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
