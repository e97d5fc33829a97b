"""The broker as tools see it: its state (28), configuration (26, 25), producers (204, 328), counts (315), copies (907), and
cleaning (306, 316, 329), which Reput does by itself.

Sources: `AdminBrokerProcessor`, `StoreStatsService`, `BrokerStatsManager` of RocketMQ 5.5.0; the bodies are those that it was
recorded with. It differs from a broker:

- Rates and counts are those of the shard, over all doors and gateways, since its consumer service started (ADR 0145); what
  Reput does not count, as pulls that found nothing, is 0, or not found.
- The configuration is read and not changed: settings belong to the start.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES, StatusRow, get_record, store_millis
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard, LogStatus, per_second
from gateway.remoting.groups import connection_row
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import dump_bytes
from store.errors import OffsetOutOfRangeError, RecordNotFoundError

# The release whose answers these are, as `clusterList` shows it.
VERSION_TEXT = "V5_5_0"
# Of the same release. Brokers of 5.x do not tell it; rocketmq-exporter, which is of 4.9, reads nothing of a state without it.
VERSION_NUMBER = "513"
# How long puts took, which is not measured here; rocketmq-exporter reads nothing of a state without it, either.
PUT_TIMES = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s"),
    *("5~10s", "10s~"),
)
# What tools read as numbers and Reput has none of: it keeps no queues of requests.
ZEROS = (
    *("sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "queryThreadPoolQueueSize", "EndTransactionQueueSize"),
    *("litePullThreadPoolQueueSize", "ackThreadPoolQueueSize"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("queryThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills"),
    *("timerReadBehind", "timerOffsetBehind", "startAcceptSendRequestTimeStamp", "dispatchMaxBuffer"),
    *("putMessageFailedTimes", "putMessageEntireTimeMax", "getMessageEntireTimeMax", "remainTransientStoreBufferNumbs"),
)
CAPACITIES = (
    *("sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity"),
    *("litePullThreadPoolQueueCapacity", "ackThreadPoolQueueCapacity", "EndTransactionThreadPoolQueueCapacity"),
)
CAPACITY = "4096"  # requests of one connection (services/rocketmq/remoting_server.py)
# By statistic (315): what is counted, and whether its messages or the bytes of their records are told.
STATISTICS: Mapping[str, tuple["pb.FigureKind", bool]] = {
    "TOPIC_PUT_NUMS": (pb.FIGURE_KIND_APPENDED, False),
    "TOPIC_PUT_SIZE": (pb.FIGURE_KIND_APPENDED, True),
    "GROUP_GET_NUMS": (pb.FIGURE_KIND_DELIVERED, False),
    "GROUP_GET_SIZE": (pb.FIGURE_KIND_DELIVERED, True),
    "SNDBCK_PUT_NUMS": (pb.FIGURE_KIND_SENT_BACK, False),
}
# The same of the whole shard, by the name of the cluster; whether system topics are left out.
BROKER_STATISTICS: Mapping[str, tuple["pb.FigureKind", bool]] = {
    "BROKER_PUT_NUMS": (pb.FIGURE_KIND_APPENDED, False),
    "BROKER_GET_NUMS": (pb.FIGURE_KIND_DELIVERED, False),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (pb.FIGURE_KIND_APPENDED, True),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (pb.FIGURE_KIND_DELIVERED, True),
}
# Figures of the state (28): appended and delivered, of all topics and without system topics.
STATE_KEYS = [
    pb.FigureKey(kind=kind, without_system_topics=without_system_topics)
    for without_system_topics in (False, True)
    for kind in (pb.FIGURE_KIND_APPENDED, pb.FIGURE_KIND_DELIVERED)
]


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
            (RequestCode.VIEW_BROKER_STATS_DATA, view_stats),
        )
    }
    at_once: dict[int, Handler] = {
        RequestCode.UPDATE_BROKER_CONFIG: refuse_configuration,
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
        **_counts(shard.figures(STATE_KEYS)),
        **_waiting(statuses),
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
        "bootTimestamp": str(started_millis),
        "brokerActive": "true",
        "brokerVersion": VERSION_NUMBER,
        "brokerVersionDesc": VERSION_TEXT,
        "putMessageDistributeTime": " ".join(f"[{each}]:0" for each in PUT_TIMES),
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


def view_stats(shard: DoorShard, ask: Ask) -> Answer:
    """315: a count by minute, hour and day; one that nothing was counted for is no statistic, as with a broker."""
    name, key = ask.text("statsName"), ask.text("statsKey")
    by_size = False
    wanted: pb.FigureKey | None = None
    if name in STATISTICS:
        kind, by_size = STATISTICS[name]
        topic, _, group = key.rpartition("@") if kind != pb.FIGURE_KIND_APPENDED else (key, "", "")
        ask.rights.check_topic(topic)
        if kind != pb.FIGURE_KIND_APPENDED:
            ask.rights.check_group(group)
        wanted = pb.FigureKey(kind=kind, topic=topic, consumer_group=group)
    elif name in BROKER_STATISTICS and key == shard.cluster_name:
        kind, without_system_topics = BROKER_STATISTICS[name]
        wanted = pb.FigureKey(kind=kind, without_system_topics=without_system_topics)
    figure = shard.figures([wanted])[0] if wanted is not None else pb.Figure()
    if not figure.is_known:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    document = {
        told: _statistic(span, by_size=by_size)
        for told, span in (("statsDay", figure.day), ("statsHour", figure.hour), ("statsMinute", figure.minute))
    }
    return Answer(body=dump_bytes(document))


def _statistic(span: pb.FigureSpan, *, by_size: bool) -> dict[str, object]:
    """BrokerStatsItem: of a span the sum, the rate (a second), and the average of a call."""
    count = span.size_bytes if by_size else span.message_count
    average = count / span.call_count if span.call_count else 0.0
    return {"avgpt": average, "sum": count, "tps": per_second(span, count)}


def _counts(figures: Sequence[pb.Figure]) -> dict[str, str]:
    """What StoreStatsService and BrokerStats tell; `figures` of STATE_KEYS."""
    appended, delivered, appended_today, delivered_today = figures

    def rates(figure: pb.Figure, field: str = "message_count") -> str:
        spans = (figure.ten_seconds, figure.minute, figure.ten_minutes)
        return " ".join(str(per_second(span, getattr(span, field))) for span in spans)

    total = appended.total
    return {
        "putTps": rates(appended),
        "getTotalTps": rates(delivered, "call_count"),
        "getFoundTps": rates(delivered, "call_count"),
        "getMissTps": "0.0 0.0 0.0",
        "getTransferredTps": rates(delivered),
        "putMessageTimesTotal": str(max(total.message_count, 1)),  # as a broker's, which divides by it
        "putMessageSizeTotal": str(total.size_bytes),
        "putMessageAverageSize": str(total.size_bytes / max(total.message_count, 1)),
        "msgPutTotalTodayNow": str(appended_today.total.message_count),
        "msgPutTotalTodayMorning": str(appended_today.message_count_today),
        "msgPutTotalYesterdayMorning": str(appended_today.message_count_yesterday),
        "msgGetTotalTodayNow": str(delivered_today.total.message_count),
        "msgGetTotalTodayMorning": str(delivered_today.message_count_today),
        "msgGetTotalYesterdayMorning": str(delivered_today.message_count_yesterday),
    }


def _waiting(statuses: Sequence[StatusRow]) -> dict[str, str]:
    """What ScheduleMessageService and TimerMessageStore tell; nothing of a schedule service that does not answer."""
    waiting = next((each.status for each in statuses if each.status.service == "schedule" and each.error is None), None)
    if waiting is None:
        return {}
    return {
        "timerCongestNum": str(waiting.timer_count),
        **{
            f"scheduleMessageOffset_{each.level}": f"{each.next_offset},{each.max_offset}"
            for each in waiting.delay_levels
        },
    }


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
