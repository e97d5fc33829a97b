"""RocketMQ's names mean what they mean there, and events account for what is gone."""

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.observing.status_metrics import commitlog_metrics


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
