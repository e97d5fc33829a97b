"""A stream with `consumerGroup` shows in `reput lag` where it is, and goes by its checkpoint alone."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.rocketmq.options import OptionError
from reput_client import QueryClient
from tests.pipeline.rocketmq.gateways import append, data_source, micro_batches, stream_reader, two_shards
from tests.support.command import run_command
from tests.support.stack import hosted_stack


def positions(endpoint: str, group: str) -> dict[tuple[str, str, int], int]:
    with QueryClient(endpoint) as client:
        return {
            (each.topic, each.broker_name, each.queue_id): each.consumer_offset
            for each in client.consumer_group(group).queues
        }


def test_a_group_is_where_the_micro_batches_that_are_done_end(tmp_path: Path) -> None:
    with hosted_stack(tmp_path) as stack:
        endpoint = stack.addresses["gateway"]
        append(endpoint, "Orders", [b"%d" % number for number in range(50)], queue_id=0)
        stack.wait_until_built()
        options = {"subscribe": "Orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        reader = stream_reader(endpoint, consumerGroup="spark-job", **options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        begun = positions(endpoint, "spark-job")
        reader.commit(end)
        first = positions(endpoint, "spark-job")
        list(micro_batches(reader, end))
        last = positions(endpoint, "spark-job")
        # A restart from an older checkpoint: the group follows it back.
        list(micro_batches(stream_reader(endpoint, consumerGroup="spark-job", **options), start, count_max=1))
        again = positions(endpoint, "spark-job")
        reader.stop()
        shown = run_command("lag", "spark-job", "--address", endpoint, "-O", "json")

    queue = ("Orders", "broker-a", 0)
    assert [each[queue] for each in (begun, first, last, again)] == [0, 20, 50, 20]
    assert "spark-job" in shown.stdout


def test_each_gateway_is_told_about_its_own_queues(tmp_path: Path) -> None:
    with two_shards(tmp_path) as (_, *stacks):
        endpoints = [stack.addresses["gateway"] for stack in stacks]
        for endpoint, count in zip(endpoints, (3, 5), strict=True):
            append(endpoint, "Orders", [b"x"] * count, queue_id=1)
        for stack in stacks:
            stack.wait_until_built()
        reader = stream_reader(
            ",".join(endpoints), subscribe="Orders", startingOffsets="earliest", consumerGroup="spark-job"
        )
        list(micro_batches(reader, reader.initialOffset()))
        reader.stop()
        found = [positions(endpoint, "spark-job") for endpoint in endpoints]

    assert [each["Orders", broker, 1] for each, broker in zip(found, ("broker-a", "broker-b"), strict=True)] == [3, 5]
    assert [{broker for _, broker, _ in each} for each in found] == [{"broker-a"}, {"broker-b"}]


@pytest.mark.spark
def test_after_available_now_the_group_has_no_lag(spark: SparkSession, tmp_path: Path) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        endpoint = stack.addresses["gateway"]
        append(endpoint, "Orders", [b"%d" % number for number in range(60)])
        stack.wait_until_built()
        rows = (
            spark.readStream.format("rocketmq")
            .option("endpoint", endpoint)
            .option("subscribe", "Orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "25")
            .option("consumerGroup", "spark-job")
            .load()
        )
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        finished = run_command("lag", "spark-job", "--address", endpoint, "--max-lag", "0", "-O", "json")

    assert spark.read.parquet(str(tmp_path / "out")).count() == 60
    assert finished.returncode == 0, finished.stdout
    lags = [row["lag"] for row in json.loads(finished.stdout)["queues"]]
    assert lags
    assert not any(lags)


def test_a_batch_has_no_group(tmp_path: Path) -> None:
    source = data_source("127.0.0.1:1", subscribe="Orders", consumerGroup="spark-job")
    with pytest.raises(OptionError, match="consumerGroup has no meaning for a batch"):
        source.reader(schema=source.schema())
