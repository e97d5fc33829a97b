"""RocketMQ's names mean what they mean there, and events account for what is gone."""

import time

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import replication_pb2 as pb_replica
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.observing.status_metrics import commitlog_metrics, consumer_metrics, schedule_metrics


def samples(status: pb.GetStatusResponse) -> dict[str, float]:
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for metric in commitlog_metrics(status)
        for sample in metric.samples
    }


def serving(**fields: object) -> pb.GetStatusResponse:
    return pb.GetStatusResponse(broker_name="broker-a", state="serving", **fields)


def test_rocketmqs_names_have_its_labels_and_meanings():
    shown = samples(
        serving(
            log_end_offset=1_000, log_flushed_offset=900, builder_next_offsets={"consumequeue": 850, "index": 600},
            disk=pb.DiskUsage(total_bytes=10_000, free_bytes=4_000, level="ok"),
        )
    )  # fmt: skip

    labels = "broker broker-a local disk"
    assert shown[f"rocketmq_storage_size {labels}"] == 6_000
    assert shown[f"rocketmq_storage_flush_behind_bytes {labels}"] == 100
    assert shown[f"rocketmq_storage_dispatch_behind_bytes {labels}"] == 300, "the slowest of queues and index"
    assert shown["reput_commitlog_flush_behind_bytes"] == 100


def test_a_leader_shows_the_lag_of_its_replicas_and_a_shard_with_one_copy_shows_none():
    replicas = [pb_replica.Replica(name="r1"), pb_replica.Replica(name="r2", lag_bytes=700, lag_millis=2500)]
    shown = samples(serving(role="leader", epoch=3, in_sync=["r1"], replicas=replicas))
    assert shown["reput_replica_leads"] == shown["reput_replicas_in_sync"] == 1
    assert shown["reput_replica_epoch"] == 3
    assert (shown["reput_replica_lag_bytes r2"], shown["reput_replica_lag_seconds r2"]) == (700, 2.5)
    assert not [name for name in samples(serving()) if "replica" in name]


def test_a_follower_shows_how_stale_it_may_be_once_it_knows():
    status = serving(role="follower", epoch=3)
    assert "reput_replica_staleness_seconds" not in samples(status)
    status.reach.staleness.FromMilliseconds(2_500)
    assert samples(status)["reput_replica_staleness_seconds"] == 2.5


def test_a_builder_that_is_switched_off_is_not_behind():
    shown = samples(serving(log_end_offset=900, log_flushed_offset=900, builder_next_offsets={"index": -1}))

    assert shown["rocketmq_storage_dispatch_behind_bytes broker broker-a local disk"] == 0


def test_a_recovering_log_shows_its_part_done_and_nothing_that_it_does_not_know():
    recovery = pb.RecoveryProgress(begin_offset=100, next_offset=325, end_offset=1_000)
    shown = samples(pb.GetStatusResponse(state="recovering", recovery=recovery))

    assert shown["reput_commitlog_recovery_ratio"] == 0.25
    assert not [name for name in shown if name.startswith("rocketmq_storage_")]


def test_what_retention_took_is_counted_and_what_a_builder_lost_is_its_hole():
    events = [
        pb.RetentionEvent(begin_offset=0, end_offset=300, file_count=3, reason="expired"),
        pb.RetentionEvent(
            begin_offset=300, end_offset=500, file_count=2, reason="disk-clean-forcibly",
            lost_builder_next_offsets={"index": 420},
        ),
    ]  # fmt: skip
    shown = samples(
        serving(
            log_first_offset=500, log_flushed_offset=900, log_end_offset=900, retention_events=events,
            builder_next_offsets={"index": 900, "consumequeue": 900},
        )
    )  # fmt: skip

    assert shown["reput_retention_removed_files_total"] == 5
    assert shown["reput_retention_removed_bytes_total"] == 500
    assert shown["reput_builder_hole_bytes_total index"] == 80
    assert shown["reput_builder_hole_bytes_total consumequeue"] == 0


def test_a_log_that_is_followed_shows_its_lag_and_another_has_none():
    followed = pb.FollowedLog(lag_bytes=700)
    followed.lag_age.FromMilliseconds(1_500)
    shown = samples(pb.GetStatusResponse(broker_name="broker-a", state="following", followed=followed))

    assert (shown["reput_followed_lag_bytes"], shown["reput_followed_lag_seconds"]) == (700, 1.5)
    assert not [name for name in samples(serving()) if "followed" in name]


def test_levels_of_the_disk_rise():
    levels = [
        samples(serving(disk=pb.DiskUsage(total_bytes=9, free_bytes=1, level=word)))["reput_disk_level"]
        for word in ("ok", "clean", "clean-forcibly", "full")
    ]

    assert levels == [0, 1, 2, 3]


def test_lag_counts_from_what_may_be_shown_and_every_follower_that_reported_has_its_place():
    shown = samples(
        serving(
            log_end_offset=1_000, log_flushed_offset=900, confirm_offset=700,
            builder_next_offsets={"consumequeue": 650},
            followers=[pb.Follower(name="consumequeue", next_offset=650), pb.Follower(name="schedule", next_offset=10),
                       pb.Follower(name="index")],
        )
    )  # fmt: skip

    assert shown["reput_commitlog_confirm_offset_bytes"] == 700
    assert shown["rocketmq_storage_dispatch_behind_bytes broker broker-a local disk"] == 50, "of queues and index alone"
    places = {name: value for name, value in shown.items() if name.startswith("reput_commitlog_follower_")}
    assert list(places.values()) == [650, 10]


def test_a_consumer_service_shows_its_counts_and_how_far_it_is_behind_the_log():
    status = consumer_pb.GetStatusResponse(
        next_offset=700, log_end_offset=900, catching_up=True, failure_count=2,
        group_count=3, in_flight_count=70, client_count=5,
    )  # fmt: skip
    shown = {sample.name: sample.value for metric in consumer_metrics(status) for sample in metric.samples}

    assert shown == {
        "reput_consumer_groups": 3,
        "reput_consumer_in_flight_messages": 70,
        "reput_consumer_clients": 5,
        "reput_consumer_next_offset_bytes": 700,
        "reput_consumer_behind_bytes": 200,
        "reput_consumer_failures": 2,
        "reput_consumer_catching_up": 1,
    }


def schedule_samples(status: schedule_pb.GetStatusResponse) -> dict[str, float]:
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for metric in schedule_metrics(status)
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


def test_a_schedule_service_shows_what_waits_by_kind_and_what_became_of_it():
    shown = schedule_samples(
        schedule_pb.GetStatusResponse(
            next_offset=700, log_end_offset=900, catching_up=True, failure_count=2,
            delayed_count=3, timer_count=1 << 33, transaction_count=5,
            delivered_count=70, check_count=11, recalled_count=2, committed_count=13, rolled_back_count=4,
            skipped_count=6, removed_transaction_count=8,
        )
    )  # fmt: skip

    assert shown == {
        "reput_schedule_pending_messages delay": 3,
        "reput_schedule_pending_messages timer": 1 << 33,
        "reput_schedule_pending_messages transaction": 5,
        "reput_schedule_overdue_seconds": 0,
        "reput_schedule_delivered_messages_total": 70,
        "reput_schedule_skipped_messages_total": 6,
        "reput_schedule_checks_total": 11,
        "reput_schedule_recalled_messages_total": 2,
        "reput_schedule_committed_transactions_total": 13,
        "reput_schedule_rolled_back_transactions_total": 4,
        "reput_schedule_removed_transactions_total": 8,
        "reput_schedule_next_offset_bytes": 700,
        "reput_schedule_behind_bytes": 200,
        "reput_schedule_failures": 2,
        "reput_schedule_catching_up": 1,
    }


def test_a_message_that_is_due_and_not_delivered_is_overdue_since_its_time_and_one_due_later_is_not():
    status = schedule_pb.GetStatusResponse()
    before = time.time()
    status.oldest_due_time.FromMilliseconds(int((before - 60) * 1000))
    overdue = schedule_samples(status)["reput_schedule_overdue_seconds"]
    assert 60 <= overdue <= 60 + (time.time() - before) + 0.01

    status.oldest_due_time.FromMilliseconds(int((before + 3_600) * 1000))
    assert schedule_samples(status)["reput_schedule_overdue_seconds"] == 0
