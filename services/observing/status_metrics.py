"""The numbers in a service's status, for the page of services/observing/metrics.py.

Besides our own metrics there are those that RocketMQ's dashboards use (its `DefaultStoreMetricsConstant`), with the labels and
the meaning of RocketMQ: `rocketmq_storage_size` is the used part of the disk in bytes, `rocketmq_storage_dispatch_behind_bytes`
the part of the log that is confirmed and not yet in queues and index.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.convert import confirm_offset
from services.observing.meters import ROCKETMQ_LABELS, rocketmq_labels

# As `DiskUsage.level` spells them; the gauge shows the place in this list.
DISK_LEVELS = ("ok", "clean", "clean-forcibly", "full")


def commitlog_metrics(status: commitlog_pb.GetStatusResponse) -> Iterator[Metric]:
    """The numbers in a commitlog's status."""
    yield gauge("commitlog_ready", "1 once the log is recovered.", not status.HasField("recovery"))
    yield gauge(
        "commitlog_fenced", "1 after a failed flush: no append is taken until a restart.", status.state == "fenced"
    )
    yield gauge("commitlog_problem", "1 while the status has a problem to tell.", bool(status.problem))
    if status.HasField("recovery"):
        yield from _recovery_metrics(status.recovery)
    else:
        yield from _log_metrics(status)
    if status.HasField("disk"):
        level = DISK_LEVELS.index(status.disk.level) if status.disk.level in DISK_LEVELS else 0
        yield gauge("disk_total_bytes", "Size of the disk under the log.", status.disk.total_bytes)
        yield gauge("disk_free_bytes", "What may still be written to it.", status.disk.free_bytes)
        yield gauge("disk_full", "1 while writes are refused for lack of space.", status.disk.level == "full")
        yield gauge("disk_level", "0 ok, 1 clean, 2 clean-forcibly (files go unexpired), 3 full.", level)
    reported = GaugeMetricFamily(
        "reput_commitlog_builder_next_offset_bytes", "What a builder has reported as applied.", labels=["builder"]
    )
    for builder, next_offset in sorted(status.builder_next_offsets.items()):
        reported.add_metric([builder], next_offset)
    yield reported
    followers = GaugeMetricFamily(
        "reput_commitlog_follower_next_offset_bytes", "What a follower has reported as durable.", labels=["follower"]
    )
    for follower in status.followers:
        if follower.HasField("next_offset"):
            followers.add_metric([follower.name], follower.next_offset)
    yield followers
    yield from _retention_metrics(status)
    if status.role:
        yield from _replica_metrics(status)
    yield from _rocketmq_metrics(status)


def builder_metrics(builder: str) -> Callable[[Any], Iterator[Metric]]:
    """The numbers in the status of a builder."""

    def to_metrics(status: queue_pb.GetStatusResponse | index_pb.GetStatusResponse) -> Iterator[Metric]:
        lag_bytes = max(0, status.log_end_offset - status.next_offset)
        for name, text, value in (
            ("next_offset_bytes", "The log before it is built.", status.next_offset),
            ("lag_bytes", "Flushed log that is not built yet.", lag_bytes),
            ("failures", "Failures since the last success.", status.failure_count),
            ("catching_up", "1 while answers may lack what is stored.", int(status.catching_up)),
        ):
            metric = GaugeMetricFamily(f"reput_builder_{name}", text, labels=["builder"])
            metric.add_metric([builder], value)
            yield metric
        if isinstance(status, index_pb.GetStatusResponse):
            yield gauge("index_files", "Index files.", status.file_count)
            yield gauge("index_keys", "Entries in them.", status.key_count)
        else:
            yield gauge("consumequeue_queues", "Queues with files.", status.queue_count)
            yield gauge("consumequeue_topics", "Topics with queues.", status.topic_count)

    return to_metrics


def consumer_metrics(status: consumer_pb.GetStatusResponse) -> Iterator[Metric]:
    """The numbers in a consumer service's status."""
    behind_bytes = max(0, status.log_end_offset - status.next_offset)
    yield gauge("consumer_groups", "Consumer groups.", status.group_count)
    yield gauge("consumer_in_flight_messages", "Messages with clients, not acknowledged yet.", status.in_flight_count)
    yield gauge("consumer_clients", "Clients of all groups that live.", status.client_count)
    yield gauge("consumer_next_offset_bytes", "The log before it is known.", status.next_offset)
    yield gauge("consumer_behind_bytes", "Log that is not known yet.", behind_bytes)
    yield gauge("consumer_failures", "Failures since the last success.", status.failure_count)
    yield gauge("consumer_catching_up", "1 until the state of the groups is read.", status.catching_up)


def schedule_metrics(status: schedule_pb.GetStatusResponse) -> Iterator[Metric]:
    """The numbers in a schedule service's status."""
    behind_bytes = max(status.log_end_offset - status.next_offset, 0)
    pending = GaugeMetricFamily("reput_schedule_pending_messages", "Messages that wait, by what for.", labels=["kind"])
    for kind, count in (
        ("delay", status.delayed_count),
        ("timer", status.timer_count),
        ("transaction", status.transaction_count),
    ):
        pending.add_metric([kind], count)
    yield pending
    overdue_seconds = 0.0
    if status.HasField("oldest_due_time"):
        overdue_seconds = max(time.time() - status.oldest_due_time.seconds - status.oldest_due_time.nanos / 1e9, 0.0)
    yield gauge(
        "schedule_overdue_seconds", "How late the oldest message is that is due and not delivered.", overdue_seconds
    )
    yield CounterMetricFamily(
        "reput_schedule_delivered_messages", "Messages appended because their time had come.", status.delivered_count
    )
    yield CounterMetricFamily(
        "reput_schedule_skipped_messages", "Messages that waited and are not delivered.", status.skipped_count
    )
    yield CounterMetricFamily("reput_schedule_checks", "Verdicts asked of producers.", status.check_count)
    yield CounterMetricFamily("reput_schedule_recalled_messages", "Messages recalled.", status.recalled_count)
    yield CounterMetricFamily(
        "reput_schedule_committed_transactions", "Transactions committed.", status.committed_count
    )
    yield CounterMetricFamily(
        "reput_schedule_rolled_back_transactions", "Transactions rolled back.", status.rolled_back_count
    )
    yield CounterMetricFamily(
        "reput_schedule_removed_transactions",
        "Half messages that retention removed before their verdict.",
        status.removed_transaction_count,
    )
    yield gauge("schedule_next_offset_bytes", "The log before it is known.", status.next_offset)
    yield gauge("schedule_behind_bytes", "Log that is not known yet.", behind_bytes)
    yield gauge("schedule_failures", "Failures since the last success.", status.failure_count)
    yield gauge("schedule_catching_up", "1 until what waits is known.", status.catching_up)


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """One number without labels, as `reput_<name>`."""
    return GaugeMetricFamily(f"reput_{name}", text, float(value))


def _recovery_metrics(recovery: commitlog_pb.RecoveryProgress) -> Iterator[Metric]:
    yield gauge("commitlog_recovery_begin_offset_bytes", "Where the recovery began.", recovery.begin_offset)
    yield gauge("commitlog_recovery_next_offset_bytes", "Everything before it is checked.", recovery.next_offset)
    yield gauge("commitlog_recovery_end_offset_bytes", "Where the log's files end.", recovery.end_offset)
    size_bytes = recovery.end_offset - recovery.begin_offset
    done_bytes = recovery.next_offset - recovery.begin_offset
    yield gauge(
        "commitlog_recovery_ratio",
        "Checked part of what is to be checked, 0 to 1.",
        min(1.0, max(0, done_bytes) / size_bytes) if size_bytes > 0 else 1.0,
    )


def _log_metrics(status: commitlog_pb.GetStatusResponse) -> Iterator[Metric]:
    yield gauge("commitlog_first_offset_bytes", "The log's first byte.", status.log_first_offset)
    yield gauge("commitlog_end_offset_bytes", "The byte behind the last record written.", status.log_end_offset)
    yield gauge("commitlog_flushed_offset_bytes", "Everything before it is on the disk.", status.log_flushed_offset)
    yield gauge("commitlog_confirm_offset_bytes", "Everything before it may be shown.", confirm_offset(status))
    yield gauge("commitlog_flush_behind_bytes", "Written and not yet on the disk.", _flush_behind_bytes(status))
    yield gauge("commitlog_files", "Log files.", status.file_count)
    if status.followed.state:
        yield gauge("mirror_copying", "1 while the log of a broker is copied.", status.followed.state == "copying")
    if status.HasField("followed"):
        age = status.followed.lag_age
        if status.followed.HasField("lag_bytes"):
            help_text = "Written by the broker that is followed and not shown yet."
            yield gauge("followed_lag_bytes", help_text, status.followed.lag_bytes)
        yield gauge(
            "followed_lag_seconds", "Age of the newest record shown, while some is not.", age.seconds + age.nanos / 1e9
        )
    if status.HasField("last_store_time"):
        newest = status.last_store_time
        yield gauge(
            "commitlog_last_store_timestamp_seconds",
            "Store time of the newest record, since 1970.",
            newest.seconds + newest.nanos / 1e9,
        )


def _replica_metrics(status: commitlog_pb.GetStatusResponse) -> Iterator[Metric]:
    """Of a shard with replicas; each leader shows what it knows of the others."""
    yield gauge("replica_leads", "1 while this replica leads its shard.", status.role == "leader")
    yield gauge("replica_epoch", "Epoch of the leader that this replica knows.", status.epoch)
    yield gauge("replicas_in_sync", "Replicas that must have a record before it is confirmed.", len(status.in_sync))
    if status.reach.HasField("staleness"):
        yield gauge(
            "replica_staleness_seconds",
            "Everything that was confirmed longer ago is shown by this replica.",
            status.reach.staleness.ToMicroseconds() / 1e6,
        )
    lag_bytes = GaugeMetricFamily("reput_replica_lag_bytes", "What a replica lacks of the log.", labels=["replica"])
    lag_seconds = GaugeMetricFamily(
        "reput_replica_lag_seconds", "How long ago a replica had all of the log.", labels=["replica"]
    )
    for replica in status.replicas:
        lag_bytes.add_metric([replica.name], replica.lag_bytes)
        lag_seconds.add_metric([replica.name], replica.lag_millis / 1000)
    yield lag_bytes
    yield lag_seconds


def _retention_metrics(status: commitlog_pb.GetStatusResponse) -> Iterator[Metric]:
    """The events account for every byte that is missing; merging them (at most 64 are kept) keeps their sums."""
    events = status.retention_events
    yield CounterMetricFamily(
        "reput_retention_removed_files",
        "Log files that went, also by others' hands.",
        sum(e.file_count for e in events),
    )
    yield CounterMetricFamily(
        "reput_retention_removed_bytes",
        "Bytes of the log that went with them.",
        sum(event.end_offset - event.begin_offset for event in events),
    )
    holes = CounterMetricFamily(
        "reput_builder_hole_bytes", "Log that went before this builder had applied it.", labels=["builder"]
    )
    lost_bytes = dict.fromkeys(status.builder_next_offsets, 0)
    for event in events:
        for builder, next_offset in event.lost_builder_next_offsets.items():
            lost = event.end_offset - max(event.begin_offset, next_offset)
            lost_bytes[builder] = lost_bytes.get(builder, 0) + max(0, lost)
    for builder, size_bytes in sorted(lost_bytes.items()):
        holes.add_metric([builder], size_bytes)
    yield holes
    if events:
        newest = max(event.time.seconds for event in events)
        yield gauge("retention_last_timestamp_seconds", "When files last went, since 1970.", newest)


def _rocketmq_metrics(status: commitlog_pb.GetStatusResponse) -> Iterator[Metric]:
    numbers: list[tuple[str, str, float]] = []
    if status.HasField("disk") and status.disk.total_bytes:
        used_bytes = status.disk.total_bytes - status.disk.free_bytes
        numbers.append(("rocketmq_storage_size", "Bytes used of the disk under the log.", used_bytes))
    if not status.HasField("recovery"):
        # -1: a follower that is switched off and needs nothing of the log.
        applied = [offset for offset in status.builder_next_offsets.values() if offset >= 0]
        end_offset = confirm_offset(status)
        behind = max(0, end_offset - min(applied, default=end_offset))
        numbers += [
            ("rocketmq_storage_flush_behind_bytes", "Written and not flushed.", _flush_behind_bytes(status)),
            ("rocketmq_storage_dispatch_behind_bytes", "Confirmed and not in queues and index.", behind),
        ]
    for name, text, value in numbers:
        metric = GaugeMetricFamily(name, text, labels=ROCKETMQ_LABELS)
        metric.add_metric(rocketmq_labels(status.broker_name), value)
        yield metric


def _flush_behind_bytes(status: commitlog_pb.GetStatusResponse) -> int:
    return max(0, status.log_end_offset - status.log_flushed_offset)
