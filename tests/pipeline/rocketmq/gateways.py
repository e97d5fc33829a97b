"""Gateways for tests of `format("rocketmq")`, and its readers driven as Spark drives them, without Java."""

import contextlib
import pathlib
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from pipeline.rocketmq.source import RocketMQDataSource, RocketMQStreamReader
from reput_client import Producer, SendReceipt
from tests.support.stack import HostedStack, hosted_gateway, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

Row = dict[str, Any]


def data_source(endpoint: str, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource(
        CaseInsensitiveDict({"endpoint": endpoint, "retrySeconds": f"{WAIT_SECONDS_MAX}", **options})
    )


def read_partitions(reader: Any, partitions: Sequence[InputPartition]) -> list[Row]:
    """The rows, each partition read by a reader that went through a pickle as on its way to an executor."""
    rows: list[Row] = []
    for partition in partitions:
        copy = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.to_pylist()
    return rows


def read_batch(endpoint: str, **options: str) -> list[Row]:
    """The rows of a batch."""
    source = data_source(endpoint, **options)
    reader = source.reader(schema=source.schema())
    return read_partitions(reader, reader.partitions())


def stream_reader(endpoint: str, **options: str) -> RocketMQStreamReader:
    source = data_source(endpoint, **options)
    reader = source.streamReader(schema=source.schema())
    assert isinstance(reader, RocketMQStreamReader)
    return reader


def micro_batches(reader: RocketMQStreamReader, start: dict[str, Any], count_max: int = 1000) -> Iterator[list[Row]]:
    """Micro-batches as Spark makes them, until there is nothing new."""
    for _ in range(count_max):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return
        yield read_partitions(reader, reader.partitions(start, end))
        reader.commit(end)
        start = end


def append(endpoint: str, topic: str, bodies: Sequence[bytes], **fields: Any) -> list[SendReceipt]:
    """Append messages; returns when all are stored."""
    with Producer(endpoint, delivery_seconds_max=WAIT_SECONDS_MAX) as producer:
        futures = [producer.send(topic, body, **fields) for body in bodies]
        return [future.result(WAIT_SECONDS_MAX) for future in futures]


@contextlib.contextmanager
def two_shards(directory: pathlib.Path) -> Iterator[tuple[str, HostedStack, HostedStack]]:
    """Two stacks, `broker-a` and `broker-b`, and a third gateway in front of both."""
    with contextlib.ExitStack() as running:
        stacks = [
            running.enter_context(hosted_stack(directory / name, settings={"REPUT_BROKER_NAME": name}))
            for name in ("broker-a", "broker-b")
        ]
        shards = ";".join(
            f"{name}=" + ",".join(stack.addresses[service] for service in ("commitlog", "consumequeue", "index"))
            for name, stack in zip(("broker-a", "broker-b"), stacks, strict=True)
        )
        gateway = running.enter_context(hosted_gateway(directory, {"REPUT_GATEWAY_SHARDS": shards}))
        yield gateway, stacks[0], stacks[1]
