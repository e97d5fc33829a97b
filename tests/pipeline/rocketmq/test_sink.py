"""The sink: rows become messages, and a task that is done again stores nothing twice; without Java."""

import pickle
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from pipeline.rocketmq.errors import NotDeliveredError, ShardConflictError
from pipeline.rocketmq.sink import (
    COLUMN_TYPES,
    RowError,
    SinkOptions,
    TaskIdentity,
    TaskKeys,
    TaskReceipt,
    append_rows,
    check_sink_columns,
    rows_of,
)
from pipeline.rocketmq.source import RocketMQDataSource
from pipeline.scan.schema import ColumnError
from reput_client import QueryClient
from tests.pipeline.rocketmq.gateways import read_batch, two_shards
from tests.support.ports import free_port
from tests.support.stack import HostedStack, hosted_stack

BORN = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
TASK = TaskIdentity("query", 7, 0)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("sink") / "store") as stack:
        yield stack


def options(stack: HostedStack, topic: str = "", write_id: str = "") -> SinkOptions:
    return SinkOptions((stack.addresses["gateway"],), topic, "sync", 20.0, write_id=write_id)


def bodies(stack: HostedStack, topic: str) -> list[bytes]:
    stack.wait_until_built()
    return sorted(row["body"] for row in read_batch(stack.addresses["gateway"], subscribe=topic, columns="body"))


def body_batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch({"body": values})


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def schema(text: str) -> StructType:
    """`body binary;tags string`, read without Java."""
    fields = StructType()
    for column in text.split(";"):
        name, kind = column.split()
        fields.add(name, KINDS[kind])
    return fields


def test_every_column_of_a_row_arrives(stack: HostedStack) -> None:
    batch = pa.record_batch(
        {
            "topic": ["Full", "Full"],
            "Body": [b"one", b"two"],
            "keys": [["k1", "k2"], None],
            "tags": ["Paid", None],
            "queueId": pa.array([3, None], pa.int32()),
            "properties": pa.array([[("color", "red")], None], pa.map_(pa.string(), pa.string())),
            "uniqKey": ["MY-KEY", None],
            "flag": pa.array([-5, None], pa.int32()),
            "bornTimestamp": pa.array([BORN, None], pa.timestamp("us", "UTC")),
        }
    )
    assert append_rows(iter([batch]), options(stack), TASK) == TaskReceipt(2, 0)
    stack.wait_until_built()

    rows = {row["body"]: row for row in read_batch(stack.addresses["gateway"], subscribe="Full")}
    one, two = rows[b"one"], rows[b"two"]
    assert (one["keys"], one["tags"], one["queueId"], one["flag"]) == (["k1", "k2"], "Paid", 3, -5)
    assert (one["uniqKey"], dict(one["properties"])["color"], one["bornTimestamp"]) == ("MY-KEY", "red", BORN)
    assert (two["keys"], two["tags"], two["flag"]) == (None, None, 0)
    assert len(two["uniqKey"]) == 56


def test_a_task_that_is_done_again_stores_each_row_once(stack: HostedStack) -> None:
    values = [b"%d" % i for i in range(3000)] + [b"twin"] * 3
    first = append_rows(iter([body_batch(values)]), options(stack, "Again"), TASK)
    # The same rows, in other batches, in another order.
    shuffled = values[:]
    random.Random(5).shuffle(shuffled)
    again = append_rows(
        (body_batch(shuffled[at : at + 500]) for at in range(0, len(shuffled), 500)),
        options(stack, "Again"),
        TASK,
    )

    assert first == TaskReceipt(3003, 0)
    assert again == TaskReceipt(3003, 3003)
    assert bodies(stack, "Again") == sorted(values)


def test_a_task_that_was_cut_short_goes_on_where_it_was(stack: HostedStack) -> None:
    values = [b"%d" % i for i in range(1000)]

    def broken() -> Iterator[pa.RecordBatch]:
        yield body_batch(values[:400])
        raise ConnectionError("the executor is gone")

    with pytest.raises(ConnectionError):
        append_rows(broken(), options(stack, "Short"), TASK)
    # Behind a shuffle the rows come in another order: a key by number would lose some.
    again = iter([body_batch(values[::-1])])
    assert append_rows(again, options(stack, "Short"), TASK) == TaskReceipt(1000, 400)
    assert bodies(stack, "Short") == sorted(values)


def test_equal_rows_of_other_tasks_batches_and_queries_are_rows_of_their_own(stack: HostedStack) -> None:
    tasks = [TASK, TaskIdentity("query", 7, 1), TaskIdentity("query", 8, 0), TaskIdentity("other", 7, 0)]
    for task in tasks:
        assert append_rows(iter([body_batch([b"same", b"same"])]), options(stack, "Same"), task) == TaskReceipt(2, 0)
    assert bodies(stack, "Same") == [b"same"] * 8


def test_a_second_write_of_a_micro_batch_lost_the_rows_that_the_first_one_had(stack: HostedStack) -> None:
    """In `foreachBatch`, both have the same query, batch and partitions: only ids of the writes tell them apart."""
    writes = [("", 0), ("", 1), ("alerts", 0), ("copies", 0), ("alerts", 1)]  # the id, and how many are known
    for write_id, known in writes:
        receipt = append_rows(iter([body_batch([b"same"])]), options(stack, "Writes", write_id), TASK)
        assert receipt == TaskReceipt(1, known), write_id
    assert bodies(stack, "Writes") == [b"same"] * 3


def test_keys_without_an_id_of_the_write_are_those_of_earlier_versions() -> None:
    """A micro-batch that is done again by a newer version finds its rows stored."""
    key = TaskKeys("query", 7, 0).key([b"body", b"alerts"])
    assert key == TaskKeys("query", 7, 0, "").key([b"body", b"alerts"]) == "5FA346A21B221C20A832BD146911674D" + "0" * 24
    assert TaskKeys("query", 7, 0, "0").key([b"body", b"alerts"]) != key


def test_keys_go_by_what_is_in_a_row_and_by_how_often() -> None:
    def keys(rows: list[list[bytes]]) -> list[tuple[bytes, str]]:
        task = TaskKeys("q", 1, 2)
        return sorted((b"|".join(row), task.key(row)) for row in rows)

    a, b, split = [b"a", b"bc"], [b"x", b""], [b"ab", b"c"]
    assert keys([b, a, split, a]) == keys([a, b, a, split])
    made = [key for _, key in keys([a, b, a, split])]
    assert len(set(made)) == 4
    assert all(len(key) == 56 and key == key.upper() and int(key, 16) >= 0 for key in made)
    # RocketMQ's tools read a time of the month out of digits 44 to 52: 0 is before anything of this month.
    assert {key[44:] for key in made} == {"000000000000"}


def test_a_message_is_found_by_the_key_that_the_sink_made(stack: HostedStack) -> None:
    append_rows(iter([body_batch([b"find me"])]), options(stack, "Find"), TASK)
    stack.wait_until_built()
    row = read_batch(stack.addresses["gateway"], subscribe="Find")[0]
    with QueryClient(stack.addresses["gateway"]) as client:
        assert [message.body for message in client.by_unique_key("Find", row["uniqKey"])] == [b"find me"]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (pa.record_batch({"body": [b"x", None]}), "has no body"),
        (pa.record_batch({"body": [b"x"], "topic": pa.array([None], pa.string())}), "has no topic"),
    ],
)
def test_a_row_that_is_no_message_is_an_error(batch: pa.RecordBatch, text: str) -> None:
    with pytest.raises(RowError, match=text):
        list(rows_of(batch, "" if "topic" in batch.schema.names else "T"))


def test_a_row_that_the_store_refuses_is_an_error(stack: HostedStack) -> None:
    with pytest.raises(NotDeliveredError, match="body"):
        append_rows(iter([body_batch([b"good", b""])]), options(stack, "Refused"), TASK)


def test_a_gateway_that_is_not_there_is_an_error_within_the_time_given() -> None:
    nowhere = SinkOptions((f"127.0.0.1:{free_port()}",), "T", "sync", 1.0)
    with pytest.raises(NotDeliveredError, match=nowhere.endpoints[0]):
        append_rows(iter([body_batch([b"x"])]), nowhere, TASK)


@pytest.mark.parametrize(
    ("columns", "topic", "text"),
    [
        ("body binary;tag string", "T", "no column 'tag': did you mean tags?"),
        ("body binary;queueOffset int", "T", "no column 'queueOffset'"),
        ("topic string", "", "no column 'body'"),
        ("body binary", "", "The topic is not given"),
        ("body int", "T", "'body' is int: cast it to binary or string"),
        ("body binary;keys int", "T", "'keys' is int: cast it to array<string> or string"),
        ("body binary;queueId string", "T", "'queueId' is string: cast it to int"),
    ],
)
def test_columns_that_make_no_messages_are_refused(columns: str, topic: str, text: str) -> None:
    with pytest.raises(ColumnError) as failure:
        check_sink_columns(schema(columns), topic)
    assert text in str(failure.value)


def test_columns_that_make_messages_are_taken() -> None:
    check_sink_columns(schema("TOPIC string;body string;keys array<string>;properties map<string,string>"), "")
    check_sink_columns(schema("body binary;keys string;tags string;queueId int;uniqKey string;flag int"), "T")
    assert "bornTimestamp" in COLUMN_TYPES


def test_the_option_rules_over_the_column() -> None:
    batch = pa.record_batch({"body": ["text"], "topic": ["Column"], "keys": [" a  b "]})
    assert [(row.topic, row.body, row.keys) for row in rows_of(batch, "Option")] == [("Option", b"text", ("a", "b"))]


def test_a_stream_goes_through_gateways_of_one_shard_only(tmp_path: Path) -> None:
    with two_shards(tmp_path) as (gateway, shard_a, shard_b):
        body = schema("body binary")
        both = RocketMQDataSource(CaseInsensitiveDict({"endpoint": gateway, "topic": "T"}))
        with pytest.raises(ShardConflictError, match=r"2 shards \(broker-a, broker-b\)"):
            both.streamWriter(body, overwrite=False)
        assert both.writer(body, overwrite=False)

        endpoints = (shard_a.addresses["gateway"], shard_b.addresses["gateway"])
        each = RocketMQDataSource(CaseInsensitiveDict({"endpoint": ",".join(endpoints), "topic": "T"}))
        assert pickle.loads(pickle.dumps(each.streamWriter(body, overwrite=False)))
        sink = SinkOptions(endpoints, "T", "sync", 20.0)
        for _ in range(2):  # a partition keeps to its shard
            for partition_id in range(4):
                append_rows(iter([body_batch([b"%d" % partition_id])]), sink, TaskIdentity("q", 0, partition_id))
        assert bodies(shard_a, "T") == [b"0", b"2"]
        assert bodies(shard_b, "T") == [b"1", b"3"]
