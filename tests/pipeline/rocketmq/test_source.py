"""`format("rocketmq")` in a Spark session: batch, stream into files, sink, and what users see of errors."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.types import StructType

from pipeline import frames
from pipeline.rocketmq.bodies.json_bodies import struct_of
from tests.pipeline.rocketmq.bodies import test_ddl, test_protobuf
from tests.pipeline.rocketmq.bodies.json_cases import DDL_WITH_MAP, NO_OBJECTS, OBJECTS, WITH_MAPS
from tests.pipeline.rocketmq.gateways import append, read_batch
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("spark") / "store") as stack:
        yield stack


def fill(stack: HostedStack, topic: str, begin: int, end: int) -> None:
    append(stack.addresses["gateway"], topic, [b"%d" % i for i in range(begin, end)], tags="Even", keys=["k"])
    stack.wait_until_built()


def read(spark: SparkSession, stack: HostedStack, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(endpoint=stack.addresses["gateway"], **options).load()


def run_to_the_end(stream: Any, checkpoint: Path, **where: str) -> Any:
    """Start a prepared writer with AvailableNow; the query, once it has ended."""
    writer = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start(**where)
    assert query.awaitTermination(WAIT_SECONDS_MAX)
    return query


def test_a_batch_in_sql(spark: SparkSession, stack: HostedStack) -> None:
    fill(stack, "Sql", 0, 300)
    frame = read(spark, stack, subscribe="Sql")

    assert frame.count() == 300
    assert frame.where("queueId = 3 and queueOffset < 5").count() == 5
    row = frame.orderBy("physicalOffset").first()
    assert (row.topic, row.tags, row["keys"], row.properties["TAGS"]) == ("Sql", "Even", ["k"], "Even")
    small = spark.read.format("rocketmq").schema("queueOffset long, body binary")
    small = small.options(endpoint=stack.addresses["gateway"], subscribe="Sql", minPartitions="16").load()
    assert sorted(int(bytes(row.body)) for row in small.collect()) == list(range(300))


def test_the_columns_of_kafka(spark: SparkSession, stack: HostedStack) -> None:
    fill(stack, "View", 0, 20)
    frame = read(spark, stack, subscribe="View", view="kafka", includeHeaders="true")

    found = frame.selectExpr("cast(key as string) k", "cast(value as string) v", "headers[1].key h").collect()
    assert sorted((row.k, int(row.v), row.h) for row in found) == [("k", i, "TAGS") for i in range(20)]


def test_a_stream_into_files_goes_on_from_its_checkpoint(
    spark: SparkSession, stack: HostedStack, tmp_path: Path
) -> None:
    fill(stack, "Stream", 0, 100)

    def run() -> list[int]:
        stream = spark.readStream.format("rocketmq").options(
            endpoint=stack.addresses["gateway"],
            subscribe="Stream",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="40",
        )
        to_files = stream.load().writeStream.format("parquet")
        query = run_to_the_end(to_files, tmp_path / "checkpoint", path=str(tmp_path / "out"))
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert run() == [40, 40, 20]
    fill(stack, "Stream", 100, 130)
    assert run() == [30]
    written = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(int(bytes(row.body)) for row in written.select("body").collect()) == list(range(130))


def test_a_frame_is_appended(spark: SparkSession, stack: HostedStack) -> None:
    frame = spark.range(500, numPartitions=3).select(
        col("id").cast("string").alias("body"), lit("Spark").alias("tags"), (col("id") % 8).cast("int").alias("queueId")
    )
    frame.write.format("rocketmq").options(endpoint=stack.addresses["gateway"], topic="Sink").mode("append").save()
    stack.wait_until_built()

    rows = read_batch(stack.addresses["gateway"], subscribe="Sink")
    assert sorted(int(row["body"]) for row in rows) == list(range(500))
    assert all(row["queueId"] == int(row["body"]) % 8 and row["tags"] == "Spark" for row in rows)


def to_sink(frame: DataFrame, endpoint: str) -> Any:
    return frame.writeStream.format("rocketmq").options(endpoint=endpoint, topic="to_sink")


def to_sink_for_each_batch(frame: DataFrame, endpoint: str) -> Any:
    def write(batch: DataFrame, batch_id: int) -> None:
        topic = "to_sink_for_each_batch"
        batch.write.format("rocketmq").options(endpoint=endpoint, topic=topic).mode("append").save()

    return frame.writeStream.foreachBatch(write)


@pytest.mark.spark
@pytest.mark.parametrize("prepare", [to_sink, to_sink_for_each_batch])
def test_a_batch_of_a_stream_that_is_done_again_is_stored_once(
    prepare: Callable[[DataFrame, str], Any], spark: SparkSession, stack: HostedStack, tmp_path: Path
) -> None:
    """What is left when the driver is killed after its rows were stored and before Spark wrote that down."""
    topic = prepare.__name__
    fill(stack, f"For_{topic}", 0, 200)
    endpoint = stack.addresses["gateway"]
    source = spark.readStream.format("rocketmq").options(
        endpoint=endpoint, subscribe=f"For_{topic}", startingOffsets="earliest", maxOffsetsPerTrigger="120"
    )
    for _ in range(2):
        run_to_the_end(prepare(source.load().select("body", "keys"), endpoint), tmp_path)
        assert {path.name for path in (tmp_path / "commits").glob("[0-9]*")} == {"0", "1"}
        for path in (tmp_path / "commits").glob("*1*"):
            path.unlink()

    stack.wait_until_built()
    rows = read_batch(endpoint, subscribe=topic)
    assert sorted(int(row["body"]) for row in rows) == list(range(200))


def test_a_driver_that_was_killed_in_its_first_plan_can_start_its_stream_again(
    spark: SparkSession, stack: HostedStack, tmp_path: Path
) -> None:
    fill(stack, "FirstPlan", 0, 10)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / ".0.39ede5a6-f5ba-4710-a4cc-5cbeca0794fb.tmp").write_text(
        "v1"
    )  # as it was left
    source = spark.readStream.format("rocketmq").options(
        endpoint=stack.addresses["gateway"], subscribe="FirstPlan", startingOffsets="earliest"
    )
    query = run_to_the_end(
        source.load().writeStream.format("parquet"), tmp_path / "checkpoint", path=str(tmp_path / "out")
    )
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 10


def test_two_writes_of_a_micro_batch_with_ids_of_their_own_are_both_stored(
    spark: SparkSession, stack: HostedStack, tmp_path: Path
) -> None:
    fill(stack, "ForTwoWrites", 0, 20)
    ran = []

    def write(batch: DataFrame, batch_id: int) -> None:
        ran.append(batch_id)
        for write_id in ("", "copies"):
            sink = batch.write.format("rocketmq").options(endpoint=stack.addresses["gateway"], topic="TwoWrites")
            (sink.option("writeId", write_id) if write_id else sink).mode("append").save()

    source = spark.readStream.format("rocketmq").options(
        endpoint=stack.addresses["gateway"], subscribe="ForTwoWrites", startingOffsets="earliest"
    )
    for _ in range(2):
        run_to_the_end(source.load().select("body").writeStream.foreachBatch(write), tmp_path)
        for path in (tmp_path / "commits").glob("*0*"):  # as after a kill: the batch is done again
            path.unlink()

    assert ran == [0, 0]
    stack.wait_until_built()
    rows = read_batch(stack.addresses["gateway"], subscribe="TwoWrites")
    assert sorted(int(row["body"]) for row in rows) == sorted([*range(20)] * 2)


def test_json_bodies_are_what_from_json_makes_of_them(spark: SparkSession, stack: HostedStack) -> None:
    cases = [body for body in [*NO_OBJECTS, *OBJECTS, *WITH_MAPS] if body]
    append(stack.addresses["gateway"], "Json", cases, queue_id=0)
    append(stack.addresses["gateway"], "Json", [body for body in OBJECTS if b"Inf" not in body], queue_id=1)
    stack.wait_until_built()
    frame = read(spark, stack, subscribe="Json", bodyFormat="json", bodySchema=DDL_WITH_MAP)
    frame = frames.json_bodies(frame, DDL_WITH_MAP, "spark")
    fields = frame.schema["spark"].dataType.fieldNames()

    assert frame.schema["bodyValue"].dataType == frame.schema["spark"].dataType
    rows = frame.select(
        "body",
        *(col(f"bodyValue.{name}").alias(f"ours_{name}") for name in fields),
        *(f"spark.{name}" for name in fields),
    ).collect()
    assert len(rows) > len(cases)
    for row in rows:
        ours = {name: row[f"ours_{name}"] for name in fields}
        assert repr(ours) == repr({name: row[name] for name in fields}), bytes(row.body)  # NaN is NaN
    for text in test_ddl.DDL:
        assert StructType.fromDDL(text).simpleString() == struct_of(text).simpleString()
    inferred = read(spark, stack, subscribe="Json", bodyFormat="json").where("queueId = 1").select("bodyValue.id")
    assert [row.id for row in inferred.limit(1).collect()] == ["1"]  # it also comes as a text


def test_avro_and_protobuf_bodies_in_a_table(spark: SparkSession, stack: HostedStack, tmp_path: Path) -> None:
    test_avro = pytest.importorskip("tests.pipeline.rocketmq.bodies.test_avro")
    point = {"x": 1, "y": 2.0}
    append(stack.addresses["gateway"], "Avro", [test_avro.written(test_avro.POINT, point), b"bad"], queue_id=0)
    avro = read(spark, stack, subscribe="Avro", bodyFormat="avro", bodySchema=json.dumps(test_avro.POINT))
    found = avro.orderBy("queueOffset").select("bodyValue").collect()
    assert [row.bodyValue and row.bodyValue.asDict() for row in found] == [point, None]

    # id, large, counts of two, and the empty message of `cash`.
    body = bytes.fromhex("0805 10ffffffffffffffffff01 7205 0a0161 1001 7205 0a0162 1002 8a0100")
    append(stack.addresses["gateway"], "Protobuf", [body, b"\xff"], queue_id=0)
    test_protobuf.shop(tmp_path)
    options = {"bodyDescriptor": str(tmp_path / "shop.binpb"), "bodyMessage": test_protobuf.ORDER}
    frame = read(spark, stack, subscribe="Protobuf", bodyFormat="protobuf", **options).orderBy("queueOffset")
    assert frame.schema["bodyValue"].dataType.simpleString() == test_protobuf.COLUMNS
    first, second = frame.select("bodyValue", "bodyValue.*").collect()
    assert (first.id, first.large, first.counts, first.state) == (5, 2**64 - 1, {"a": 1, "b": 2}, "STATE_UNSPECIFIED")
    assert (first.card, first.cash, second.bodyValue) == (None, Row(), None)


def test_what_users_see_of_a_bad_option(spark: SparkSession, stack: HostedStack, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="did you mean failOnDataLoss"):
        read(spark, stack, subscribe="Sql", failOnDataLos="true")
    with pytest.raises(PySparkException, match="subscribe and assign are given"):
        read(spark, stack, subscribe="Sql", assign='{"Sql": [0]}')
    with pytest.raises(PySparkException, match="endingOffsets has no meaning for a stream"):
        stream = spark.readStream.format("rocketmq").options(
            endpoint=stack.addresses["gateway"], subscribe="Sql", endingOffsets="latest"
        )
        run_to_the_end(stream.load().writeStream.format("noop"), tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match="Option sql: The SQL filter is wrong in column 4"):
        read(spark, stack, subscribe="Sql", sql="a =! 1").count()
    with pytest.raises(PySparkException, match=r"bodyValue\.at has type timestamp, which JSON bodies are not read as"):
        read(spark, stack, subscribe="Sql", bodyFormat="json", bodySchema="at timestamp")
    with pytest.raises(PySparkException, match="No shard has a topic 'Nobody'"):
        read(spark, stack, subscribe="Nobody").count()
    with pytest.raises(PySparkException, match="use mode append"):
        rows = spark.range(1).selectExpr("cast(id as string) body")
        rows.write.format("rocketmq").options(endpoint="h:1", topic="T").mode("overwrite").save()
