"""Rebuild, audit and the continuous rebuild on a Spark session."""

import json
import threading
from pathlib import Path

import pytest

from cli.pipeline.rebuild_builders import OnlineBuilders
from pipeline.audit import audit
from pipeline.rebuild import continuous, rebuild
from pipeline.rebuild.out import StoreLayout
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, RecordCorruptedError
from store.readers.index_reader import IndexLayout
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.support.dispatches import requests_of
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

LAYOUT = StoreLayout(4000, IndexLayout(500, 1000))
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
}


@pytest.mark.parametrize("mode", rebuild.MODES)
def test_a_rebuild_on_spark_equals_the_files_that_rocketmq_wrote(spark, mode, broker_store, tmp_path):
    moves: list[tuple[str, int, int]] = []

    report = rebuild.run(
        spark, broker_store, tmp_path / "out", mode=mode, split_bytes=400_000, progress=lambda *move: moves.append(move)
    )

    assert_same_store(tmp_path / "out", broker_store)
    assert report.counts["record_count"] == len(requests_of(broker_store))
    steps = {step for step, _, _ in moves}
    assert all(any(move == (step, move[2], move[2]) for move in moves) for step in steps), "each step came to its end"


def test_a_task_fails_with_the_stores_own_error(spark, copy_of_broker_store, tmp_path):
    requests = requests_of(copy_of_broker_store)
    with open(sorted((copy_of_broker_store / "commitlog").iterdir())[0], "r+b") as file:
        file.seek(requests[10].commit_log_offset)
        file.write(b"\x7f")

    with pytest.raises(RecordCorruptedError, match=str(requests[10].commit_log_offset)):
        rebuild.run(spark, copy_of_broker_store, tmp_path / "out")


def test_an_audit_on_spark_finds_one_flipped_bit_and_nothing_else(spark, copy_of_broker_store):
    before = audit.run(spark, copy_of_broker_store)
    path = sorted(path for path in (copy_of_broker_store / "consumequeue").rglob("*") if path.is_file())[0]
    data = bytearray(path.read_bytes())
    data[11] ^= 1
    path.write_bytes(data)

    report = audit.run(spark, copy_of_broker_store)

    assert audit.is_clean(before)
    assert not audit.is_clean(report)
    fresh = [row for row in report.findings if row not in before.findings]
    assert [(row["kind"], row["offset"]) for row in fresh] == [("QUEUE_UNIT_WRONG", 0)]


def append(stack: HostedStack, first: int, count: int) -> None:
    """Appends messages with keys, Chinese ones among them."""
    messages = [
        new_message(f"topic-{i % 3}", b"b" * (1 + i % 700), keys=[f"key-{i}", "所有"], tags=f"tag-{i % 5}")
        for i in range(first, first + count)
    ]
    for at in range(0, count, 100):
        stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=messages[at : at + 100]), timeout=WAIT_SECONDS_MAX
        )


@pytest.fixture
def stack(tmp_path: Path):
    with hosted_stack(tmp_path / "store", settings=SETTINGS) as running:
        yield running


@pytest.mark.spark
def test_a_continuous_rebuild_follows_a_live_log(spark, stack, tmp_path):
    """Batches smaller than the log; then more of it while it runs; then a second run that goes on."""
    out, target = tmp_path / "out", stack.addresses["commitlog"]
    append(stack, 0, 1500)
    stopping, builders = threading.Event(), OnlineBuilders(LAYOUT)

    def append_more(query) -> None:
        append(stack, 1500, 500)

    first = continuous.run(
        spark, target, out, builders, until_caught_up=True, batch_bytes_max=200_000, trigger_seconds=0.0,
        stop_event=stopping, on_started=append_more,
    )  # fmt: skip
    append(stack, 2000, 300)
    second = continuous.run(spark, target, out, builders, until_caught_up=True, trigger_seconds=0.0)
    stack.wait_until_built()
    stack.stop()

    assert first.counts["batch_count"] > 1
    assert first.counts["record_count"] + second.counts["record_count"] == 2300
    assert_same_store(out, tmp_path / "store")
    rebuild_here(tmp_path / "store", tmp_path / "again", split_bytes=100_000)
    assert_same_store(out, tmp_path / "again")


def test_a_continuous_rebuild_refuses_a_directory_that_it_did_not_make(spark, tmp_path):
    (tmp_path / "somebody's").write_text("data")
    with pytest.raises(InvalidArgumentError, match="holds other data"):
        continuous.run(spark, "127.0.0.1:1", tmp_path, OnlineBuilders(LAYOUT))


def test_the_verbs_print_a_report_and_end_as_fsck_does(spark, copy_of_crashed_store, tmp_path, capfd):
    from cli.main import main

    store, out, rows = str(copy_of_crashed_store), tmp_path / "out", tmp_path / "rows.jsonl"
    master = ["--master", "local[2]"]
    assert main(["pipeline", "rebuild", "--store", store, "--out", str(out), *master]) == 0
    rebuilt = json.loads(capfd.readouterr().out)
    assert_same_store(out, copy_of_crashed_store)
    damaged = sorted(path for path in (copy_of_crashed_store / "consumequeue").rglob("*") if path.is_file())[0]
    data = bytearray(damaged.read_bytes())
    data[11] ^= 1
    damaged.write_bytes(data)
    code = main(["pipeline", "audit", "--store", store, "--out", str(rows), *master])

    assert rebuilt["job"] == "rebuild"
    assert rebuilt["counts"]["record_count"] == len(requests_of(copy_of_crashed_store))
    assert code == 1
    report = json.loads(capfd.readouterr().out)
    assert "QUEUE_UNIT_WRONG" in [row["kind"] for row in report["findings"]]
    assert [json.loads(line) for line in rows.read_text().splitlines()] == report["findings"]
