"""The pages of a running stack: few series at a thousand topics, and the numbers of what was just done."""

import os
import pathlib
import re
import urllib.request

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.ports import free_port
from tests.support.stack import new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

COMPONENTS = ("gateway", "commitlog", "consumequeue", "index", "consumer", "schedule")
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS, ALERTS = ROOT / "docs" / "metrics.md", ROOT / "deploy" / "alerts" / "reput.rules.yaml"
DASHBOARDS = sorted((ROOT / "deploy" / "dashboards").glob("*.json"))
NAME = re.compile(r"\b(?:reput|rocketmq)_[a-z_]+[a-z]\b")
# While a log is being recovered, and once files have gone.
ONLY_SOMETIMES = {
    *(
        f"reput_commitlog_recovery_{what}"
        for what in ("ratio", "begin_offset_bytes", "next_offset_bytes", "end_offset_bytes")
    ),
    "reput_retention_last_timestamp_seconds",
    "reput_log_events_total",
    "reput_trace_spans_total",
    "reput_commitlog_rocketmq_slave_offset_bytes",  # with a slave of RocketMQ
    "reput_consumer_lag_messages",  # with REPUT_CONSUMER_GROUP_METRICS
    "reput_nameserver_registered",  # with REPUT_NAMESERVERS
    *(f"reput_nameserver_{what}" for what in ("brokers", "topics", "connections")),  # on a name server
    # With a tenants file.
    *(f"reput_tenant_{what}_total" for what in ("sent_messages", "sent_bytes", "delivered_messages", "refused")),
    *(f"reput_tenant_{what}" for what in ("connections", "topics", "groups", "stored_bytes")),
    "reput_gateway_remoting_connections",  # with a remoting door
    "reput_mirror_copying",  # on a mirror
    "reput_store_features",  # of a store that uses one
    "reput_replicas_in_sync",  # with replicas, as the next ones
    *(
        f"reput_replica_{what}"
        for what in ("leads", "epoch", "lag_bytes", "lag_seconds", "staleness_seconds", "put_aside_bytes")
    ),
    "reput_replicas_in_sync_min",
    "reput_gateway_shard_led",
    # Of `reput pipeline audit-cluster`.
    *(
        f"reput_audit_{what}"
        for what in ("findings", "new_findings", "replica_lag_bytes", "read_bytes", "duration_seconds")
    ),
    "reput_audit_completed_timestamp_seconds",
    *(f"reput_followed_lag_{unit}" for unit in ("bytes", "seconds")),  # the same, or beside a broker
}
TOPIC_COUNT = 1_000
SERIES_COUNT_MAX = 2_000  # of all six pages together
SETTINGS = {
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "200",
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 22),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
}


def page(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
        text = answer.read().decode()
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_thousand_topics_make_no_more_series_and_every_number_is_of_what_was_done(tmp_path: pathlib.Path) -> None:
    ports = {component: free_port() for component in COMPONENTS}
    settings = {f"REPUT_{name.upper()}_METRICS_ADDRESS": f"127.0.0.1:{port}" for name, port in ports.items()}
    with running_stack(tmp_path / "store", settings={**SETTINGS, **settings}) as stack:
        messages = [new_message(f"topic-{number}", b"x", keys=["k"], queue_id=0) for number in range(TOPIC_COUNT)]
        request = pb.AppendMessagesRequest(messages=messages, flush=message_pb2.FLUSH_MODE_SYNC)
        [*_, newest] = stack.gateway.AppendMessages(request, timeout=60).results
        stack.wait_until_built()
        by_key = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="topic-7", key="k"), timeout=WAIT_SECONDS_MAX
        )
        assert len(by_key.messages) == 1
        stack.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=newest.offset_msg_id), timeout=WAIT_SECONDS_MAX
        )
        stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="topic-7", queue_id=0, queue_offset=0), timeout=WAIT_SECONDS_MAX
        )
        with pytest.raises(grpc.RpcError):
            stack.gateway.QueryMessageByKey(
                pb.QueryMessageByKeyRequest(topic="nobody", key="k"), timeout=WAIT_SECONDS_MAX
            )

        pages = {component: page(port) for component, port in ports.items()}

        assert sum(map(len, pages.values())) <= SERIES_COUNT_MAX
        log, gateway = pages["commitlog"], pages["gateway"]
        assert log["reput_commitlog_appended_messages_total sync"] == TOPIC_COUNT
        assert log["reput_commitlog_append_seconds_count sync"] == 1
        assert log["reput_commitlog_flush_seconds_count"] >= 1
        assert log["reput_commitlog_flush_behind_bytes"] == 0
        labels = "broker-a broker disk local"
        assert 0 <= log[f"rocketmq_storage_message_reserve_time {labels}"] < 600_000
        disk = os.statvfs(tmp_path)
        assert log["reput_disk_total_bytes"] == pytest.approx(
            (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize, rel=0.1
        )
        levels = ("clean", "clean-forcibly", "full")
        watermarks = [log[f"reput_disk_watermark_free_bytes {level}"] for level in levels]
        assert watermarks == sorted(watermarks, reverse=True)
        assert pages["consumequeue"]["reput_builder_lag_seconds consumequeue"] == 0
        assert pages["index"]["reput_builder_lag_seconds index"] == 0
        assert pages["consumequeue"]["reput_consumequeue_topics"] == TOPIC_COUNT
        assert pages["index"]["reput_index_keys"] == 2 * TOPIC_COUNT  # its own key and the unique one
        assert pages["consumer"]["reput_consumer_groups"] == 0
        assert pages["schedule"]["reput_schedule_pending_messages transaction"] == 0
        assert pages["schedule"]["reput_schedule_overdue_seconds"] == 0
        assert gateway["reput_gateway_query_seconds_count complete by-key"] == 1
        assert gateway["reput_gateway_query_seconds_count refused by-key"] == 1
        assert gateway["reput_gateway_query_seconds_count complete by-id"] == 1
        assert gateway["reput_gateway_query_seconds_count complete by-offset"] == 1
        assert gateway["reput_gateway_port_seconds_count index.search"] == 2
        assert gateway["reput_rpc_ended_total OK GatewayService/AppendMessages"] == 1
        assert gateway["reput_rpc_ended_total NOT_FOUND GatewayService/QueryMessageByKey"] == 1
        assert gateway["reput_rpc_seconds_count GatewayService/QueryMessageById"] == 1
        assert not [name for name in gateway if "topic-" in name], "names of topics are nobody's labels"
        shown = {name.split()[0] for numbers in pages.values() for name in numbers} | ONLY_SOMETIMES
        for path in (DOCS, ALERTS, *DASHBOARDS):
            named = set(NAME.findall(path.read_text()))
            assert named
            assert {name for name in named if not {name, f"{name}_count"} & shown} == set(), path.name
        documented = set(NAME.findall(DOCS.read_text()))
        plain = {re.sub("_(bucket|count|sum)$", "", name) for name in shown}
        assert {name for name in plain if NAME.fullmatch(name)} - documented == set(), (
            "docs/metrics.md lists every name"
        )
