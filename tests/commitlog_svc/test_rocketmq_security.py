"""Security holes of RocketMQ that must not open here: names that become paths (#1637), and RPCs that change what a server is
or runs (CVE-2023-33246, CVE-2023-37582).
"""

import random
import re
import threading
from pathlib import Path

import pytest

from apache.rocketmq.v2 import rocketmq_pb2
from reput.commitlog.v1 import commitlog_service_pb2
from reput.consumequeue.v1 import consumequeue_service_pb2
from reput.consumer.v1 import consumer_service_pb2
from reput.gateway.v1 import gateway_service_pb2
from reput.index.v1 import index_service_pb2
from reput.schedule.v1 import schedule_service_pb2
from store.errors import InvalidMessageError, StoreError
from store.format.topic import validate_topic
from tests.commitlog_svc.support import append, new_message, open_log


def hostile_names() -> list[str]:
    steps = [
        "..",
        "../..",
        "../../../../tmp/x",
        "/etc/passwd",
        "/",
        "a/b",
        "a/../b",
        ".",
        "./x",
        "~/x",
        "..\\x",
        "a\\b",
    ]
    odd = [
        "a\0b",
        "\0",
        "a\nb",
        "a\rb",
        "\x1b[31m",
        "a b",
        " a",
        "a ",
        "",
        "a.b",
        "a:b",
        "a;b",
        "a*b",
        "a?b",
        'a"b',
        "$(id)",
    ]
    odd += [
        "`id`",
        "%2e%2e%2fx",
        "..%2fx",
        "a%00b",
        "..;/x",
        "．．／x",
        "‥/x",
        "订单",
        "é",
        "\u202e",
        "\ufeffx",
        "a#b",
        "a@b",
        "a$b",
    ]
    long = ["x" * 128, "x" * 255, "x" * 4096, "%RETRY%" + "x" * 249, "%DLQ%" + "x" * 251, "../" * 500]
    joined = [
        f"{prefix}{name}{suffix}"
        for prefix in ("", "%RETRY%", "%DLQ%", "a/", "_")
        for name in steps
        for suffix in ("", "/", "\0", "/x", "%")
    ]
    control = [f"a{chr(code)}b" for code in [*range(0x20), 0x7F, 0x80, 0xA0, 0xFF, 0x2028, 0xFFFF]]
    printable = [
        f"a{chr(code)}"
        for code in range(0x20, 0x250)
        if not (chr(code).isascii() and (chr(code).isalnum() or chr(code) in "%|-_"))
    ]
    random_ = random.Random(1637)
    mixed = ["".join(random_.choices("./\\~%a\0\u2215 ", k=random_.randrange(1, 40))) + "/" for _ in range(400)]
    # Percent signs are allowed in RocketMQ's names: a few of these are ordinary, odd-looking topics.
    allowed = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
    names = dict.fromkeys([*steps, *odd, *long, *joined, *control, *printable, *mixed])
    return [name for name in names if not allowed.fullmatch(name)]


def test_rmq_1637_6747_no_topic_name_makes_a_file_anywhere(tmp_path: Path) -> None:
    """Over 1,000 names that climb, hide, escape or are too long: refused by name, and nothing is written (#6747)."""
    outside = tmp_path / "outside"
    root = tmp_path / "a" / "b" / "store"
    outside.mkdir()
    names = hostile_names()
    assert len(names) >= 1000
    with open_log(root) as log:
        append(log, new_message(topic="orders"))
        own = root / "reput"  # what the log remembers of itself is written as time passes

        def trace() -> dict[Path, bytes]:
            return {
                path: path.read_bytes() if path.is_file() and path.name != "checkpoint" else b""
                for path in tmp_path.rglob("*")
                if own not in path.parents
            }

        before, end_offset = trace(), log.status.end_offset
        for name in names:
            with pytest.raises(InvalidMessageError) as refused:
                append(log, new_message(topic=name))
            assert "topic" == refused.value.metadata["field"], name
        assert end_offset == log.status.end_offset
        assert before == trace()


def test_rmq_1637_names_that_rocketmq_allows_stay_allowed() -> None:
    for name in ("orders", "a-b_c|d%", "%RETRY%group", "%2e%2e%2fx", "x" * 127):
        validate_topic(name)


# Every RPC there is. A new one must be thought about here: does it change a path, a setting, or run anything?
KNOWN_RPCS = {
    "reput.commitlog.v1.CommitLogService": {
        "AppendMessages", "AppendMessageStream", "GetMessage", "BatchGetMessages", "Reput", "ReportProgress", "GetStatus",
        "ListTopics", "AppendInternal", "RemoveFollower", "CreateTopic", "UpdateTopic", "DeleteTopic",
        # By name out of eight, for two services: no path, and no settings of a service.
        "ReadConfigFile", "WriteConfigFile",
        # The other way round: what a leader sends to its replicas is named likewise, and checked by the one that takes it.
        "Replicate",
        # By numbers, and only what the leader has named.
        "FetchLog",
    },
    "reput.consumequeue.v1.ConsumeQueueService": {
        "ListQueues", "GetQueueUnits", "SearchOffset", "GetStatus", "ListLightQueues",
    },
    "reput.index.v1.IndexService": {"SearchKey", "GetFilterPages", "GetStatus"},
    "reput.consumer.v1.ConsumerService": {
        "PopMessages", "AckMessages", "ChangeInvisibleDuration", "ForwardToDeadLetterTopic", "PullMessages",
        "CommitOffsets", "GetOffsets", "ResetOffsets", "SeeTopics", "KeepClients", "EndClient", "WatchArrivals", "ListGroups",
        "GetGroup", "GetFigures", "UpdateGroup", "DeleteGroup", "TrackMessage", "GetStatus", "SendBackMessages", "LockQueues",
        "SyncLiteSubscription", "ListLiteTopics",
    },
    "reput.schedule.v1.ScheduleService": {
        "EndTransaction", "EndTransactions", "RecallMessage", "ListPendingTransactions", "ListScheduledMessages",
        "KeepProducers", "WatchChecks", "GetStatus",
    },
    "reput.gateway.v1.GatewayService": {
        "AppendMessages", "AppendMessageStream", "QueryMessageByKey", "QueryMessageById", "QueryMessageByUniqueKey",
        "QueryMessageByOffset", "FindMessage", "SearchMessages", "ExplainQuery", "DownloadBody", "SearchOffset",
        "ListTopics", "CreateTopic", "UpdateTopic", "DeleteTopic", "PullMessages", "CommitOffsets", "GetOffsets",
        "ResetOffsets", "ListConsumerGroups", "GetConsumerGroup", "UpdateConsumerGroup", "DeleteConsumerGroup",
        "GetConsumerRunningInfo", "ListLiteTopics",
        # Reads what is used; the quotas stand in a file that only the gateway's owner writes.
        "ListTenants",
        "SendBackMessages", "LockQueues", "TrackMessage", "ResendDeadLetters", "RecallMessage", "EndTransaction",
        "ListPendingTransactions", "ListScheduledMessages", "SendRequest", "GetStatus",
    },
    "apache.rocketmq.v2.MessagingService": {
        "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage",
        "ForwardMessageToDeadLetterQueue", "PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "Telemetry",
        "NotifyClientTermination", "ChangeInvisibleDuration", "EndTransaction", "RecallMessage",
        "SyncLiteSubscription",
    },
    "apache.rocketmq.v2.Admin": {"QueryMessage", "QueryTimeSpan"},
}  # fmt: skip
TELLTALE = (
    "path",
    "dir",
    "directory",
    "command",
    "cmd",
    "exec",
    "shell",
    "script",
    "config",
    "setting",
    "env",
    "url",
    "file",
)


def _services() -> dict[str, object]:
    modules = (
        commitlog_service_pb2,
        consumequeue_service_pb2,
        index_service_pb2,
        consumer_service_pb2,
        schedule_service_pb2,
        gateway_service_pb2,
        rocketmq_pb2,
    )
    return {service.full_name: service for module in modules for service in module.DESCRIPTOR.services_by_name.values()}


def test_rmq_cve_2023_33246_no_rpc_changes_paths_settings_or_commands() -> None:
    """RocketMQ's broker took its own configuration, paths and filter-server commands among it, from anybody."""
    services = _services()
    assert {name: {rpc.name for rpc in service.methods} for name, service in services.items()} == KNOWN_RPCS


def test_rmq_cve_2023_37582_no_request_carries_a_path_or_a_command() -> None:
    seen: set[str] = set()

    def fields(message: object) -> list[str]:
        if message.full_name in seen:
            return []
        seen.add(message.full_name)
        names = []
        for field in message.fields:
            names.append(f"{message.full_name}.{field.name}")
            if field.message_type is not None:
                names += fields(field.message_type)
        return names

    names = [name for service in _services().values() for rpc in service.methods for name in fields(rpc.input_type)]
    assert len(names) > 30
    suspicious = [name for name in names if set(name.rpartition(".")[2].split("_")) & set(TELLTALE)]
    # Telemetry has one message for both directions: these go to clients, and the gateway does not read them.
    assert suspicious == [
        # Numbers, from one replica to another.
        "reput.commitlog.v1.ReplicateRequest.Hello.file_size_bytes",
        "reput.commitlog.v1.ReplicateRequest.Report.config_version",
        "apache.rocketmq.v2.TelemetryCommand.recover_orphaned_transaction_command",
        "apache.rocketmq.v2.TelemetryCommand.print_thread_stack_trace_command",
        "apache.rocketmq.v2.TelemetryCommand.verify_message_command",
        "apache.rocketmq.v2.TelemetryCommand.notify_unsubscribe_lite_command",
    ]


def test_a_flood_of_hostile_requests_leaves_no_thread_behind(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        before = threading.active_count()
        for _ in range(50):
            with pytest.raises(StoreError):
                append(log, new_message(topic="../x"))
        assert before == threading.active_count()
