"""Batches through real gateways: rows are what the log holds, for every way to say from where to where."""

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from pipeline.rocketmq import source as sample
from pipeline.rocketmq.bodies.compression import decompressed
from pipeline.rocketmq.errors import DataLostError, OffsetError, ShardConflictError
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.options import read_options
from pipeline.rocketmq.positions import QueueKey
from pipeline.rocketmq.reading import filter_of
from pipeline.scan.options import OptionError
from pipeline.scan.schema import ColumnError
from reput_client import (
    BodyCompressionError,
    PartialAnswerError,
    Producer,
    TopicNotFoundError,
    UnavailableError,
)
from store.format.derived.queue_unit import tags_code
from store.format.record import decode_record
from tests.pipeline.rocketmq.gateways import (
    append,
    data_source,
    micro_batches,
    read_batch,
    read_partitions,
    stream_reader,
    two_shards,
)
from tests.support.fixture_stores import read_rows, walk_frames
from tests.support.ports import free_port
from tests.support.stack import HostedStack, hosted_stack

CLIENT_PROPERTIES = {"MIN_OFFSET", "MAX_OFFSET"}
COMPRESSED_BIT = 0x1
MESSAGE_COUNT = 500
QUEUE_COUNT = 4
LARGE_BODY = b"large" * 760_000  # with what surrounds it more than a page's 3.5 MiB, less than a body's 4 MiB


@pytest.fixture(scope="module")
def broker(broker_store: Path) -> Iterator[HostedStack]:
    """A store that RocketMQ wrote."""
    with hosted_stack(broker_store, read_only=True) as stack:
        stack.wait_until_built()
        yield stack


@pytest.fixture(scope="module")
def live_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    """A stack whose topic `Orders` has 500 messages in 4 of 8 queues, and `Large` one that fits no page."""
    with hosted_stack(tmp_path_factory.mktemp("live") / "store") as stack:
        endpoint = stack.addresses["gateway"]
        with Producer(endpoint) as producer:
            for i in range(MESSAGE_COUNT):
                producer.send(
                    "Orders",
                    b"body %d" % i,
                    keys=[f"k{i}", "shared"],
                    tags="ABC"[i % 3],
                    properties={"color": f"red {i}"},
                    queue_id=i % QUEUE_COUNT,
                    flag=i,
                    born_time=datetime.fromtimestamp(1_700_000_000 + i / 1000, UTC),
                )
            for body in (b"before", LARGE_BODY, b"behind"):
                producer.send("Large", body, queue_id=0)
        stack.wait_until_built()
        yield stack


@pytest.fixture
def live(live_stack: HostedStack) -> str:
    """Its gateway."""
    return live_stack.addresses["gateway"]


def as_fixture(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the fixture shows what RocketMQ's own clients gave."""
    return {
        "topic": row["topic"],
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "physical_offset": row["physicalOffset"],
        "store_size": row["storeSize"],
        "store_timestamp": millis(row["storeTimestamp"]),
        "born_timestamp": millis(row["bornTimestamp"]),
        "born_host": f"/{row['bornHost']}",
        "store_host": f"/{row['storeHost']}",
        "sys_flag": row["sysFlag"] & ~COMPRESSED_BIT,  # its client takes the bit away when it has inflated the body
        "flag": row["flag"],
        "body_crc": row["bodyCRC"],
        "reconsume_times": row["reconsumeTimes"],
        "prepared_transaction_offset": row["preparedTransactionOffset"],
        "body_sha256": hashlib.sha256(row["body"]).hexdigest(),
        "body_len": len(row["body"]),
        "properties": dict(row["properties"]),
    }


def millis(moment: datetime) -> int:
    assert moment.microsecond % 1000 == 0
    return round(moment.timestamp() * 1000)


def rows_of(mode: str) -> list[dict[str, Any]]:
    rows = [row for row in read_rows("broker.queries.jsonl") if row["mode"] == mode]
    assert rows, mode
    return rows


def test_rows_are_what_rocketmqs_own_pull_shows(broker: HostedStack) -> None:
    found = read_batch(broker.addresses["gateway"], subscribePattern=".*", decompress="true")
    by_place = {(row["topic"], row["queueId"], row["queueOffset"]): as_fixture(row) for row in found}

    for row in rows_of("offset"):
        for shown in row["messages"]:
            expected = {name: value for name, value in shown.items() if name != "msg_id"}
            expected["properties"] = {k: v for k, v in shown["properties"].items() if k not in CLIENT_PROPERTIES}
            assert by_place[shown["topic"], shown["queue_id"], shown["queue_offset"]] == expected


def test_queues_and_their_ranges_are_those_that_rocketmq_says(broker: HostedStack) -> None:
    source = data_source(broker.addresses["gateway"], subscribePattern=".*")
    tasks = [each.value for each in source.reader(schema=source.schema()).partitions()]
    ranges = {(task.key.topic, task.key.queue_id): (task.begin, task.end) for task in tasks}

    for row in rows_of("range"):
        expected = (row["min"], row["max"])
        assert ranges.get((row["topic"], row["queue_id"]), (row["min"], row["min"])) == expected


@pytest.mark.parametrize("store_name", ["broker_store", "engine_store", "engine_crc_store"])
def test_every_queued_record_of_a_log_is_a_row(store_name: str, request: pytest.FixtureRequest) -> None:
    """IPv6 hosts, long topics, negative flags, delays, transactions, compressed bodies: as stored, column by column."""
    store = request.getfixturevalue(store_name)
    log = {}
    for offset, frame in walk_frames(store):
        record = decode_record(frame, commit_log_offset=offset)
        log[record.commit_log_offset] = record
    with hosted_stack(store, read_only=True) as stack:
        stack.wait_until_built()
        rows = read_batch(stack.addresses["gateway"], subscribePattern=".*")

    # Of two records in one place of a queue, RocketMQ's queue shows one.
    places = {(record.topic, record.queue_id, record.queue_offset) for record in log.values() if _is_queued(record)}
    assert {(row["topic"], row["queueId"], row["queueOffset"]) for row in rows} == places
    assert len(rows) == len(places)
    for row in rows:
        record = log[row["physicalOffset"]]
        row["properties"].sort()
        assert row == {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "physicalOffset": record.commit_log_offset,
            "storeSize": record.store_size_bytes,
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "bornTimestamp": datetime.fromtimestamp(record.born_time_millis / 1000, UTC),
            "bornHost": str(record.born_host),
            "storeTimestamp": datetime.fromtimestamp(record.store_time_millis / 1000, UTC),
            "storeHost": str(record.store_host),
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyCRC": record.body_crc,
            "tags": record.properties.get("TAGS"),
            "tagsCode": tags_code(record.topic, record.properties, record.store_time_millis),
            "keys": record.properties["KEYS"].split() if "KEYS" in record.properties else None,
            "uniqKey": record.properties.get("UNIQ_KEY"),
            "properties": sorted(record.properties.items()),
            "priority": None,
            "lite_topic": None,
            "body": record.body,
        }


def _is_queued(record: Any) -> bool:
    """Prepared and rolled-back messages are in no queue of their own topic."""
    return record.sys_flag & 0xC not in (0x4, 0xC)


def test_positions_by_time_are_those_that_rocketmq_finds(broker: HostedStack) -> None:
    endpoint = broker.addresses["gateway"]
    for row in rows_of("offset_for_time")[::7]:
        assign = json.dumps({row["topic"]: [row["queue_id"]]})
        found = read_batch(endpoint, assign=assign, startingTimestamp=str(row["timestamp"]), columns="queueOffset")
        before = read_batch(endpoint, assign=assign, endingTimestamp=str(row["timestamp"]), columns="queueOffset")
        if found:
            assert found[0]["queueOffset"] == row["offset"], row
        assert [each["queueOffset"] for each in before] == list(range(row["offset"]))


def test_tags_choose_messages_as_rocketmqs_expressions_do(broker: HostedStack) -> None:
    for row in rows_of("tag_pull")[::5]:
        positions = json.dumps({row["topic"]: {str(row["queue_id"]): row["offset"]}})
        ends = json.dumps({row["topic"]: {str(row["queue_id"]): row["next_begin_offset"]}})
        found = read_batch(
            broker.addresses["gateway"],
            assign=json.dumps({row["topic"]: [row["queue_id"]]}),
            startingOffsets=positions,
            endingOffsets=ends,
            tags=row["expression"],
        )
        assert [each["queueOffset"] for each in found] == row["queue_offsets"], row


@pytest.mark.parametrize(
    ("options", "is_wanted"),
    [
        ({"tags": "A"}, lambda i: i % 3 == 0),
        ({"tags": "A||C || nobody"}, lambda i: i % 3 != 1),
        ({"sql": "TAGS = 'B' AND color BETWEEN 'red 1' AND 'red 3'"}, None),
        ({"sql": "color IN ('red 7', 'red 123', 'red 499')"}, lambda i: i in (7, 123, 499)),
        ({"sql": "color = 'blue'"}, lambda i: False),
    ],
)
def test_filters_travel_with_pulls_that_say_they_are_whole(
    live: str, options: dict[str, str], is_wanted: Callable[[int], bool] | None
) -> None:
    wanted = filter_of(read_options({"endpoint": live, "subscribe": "Orders", **options}).tags, options.get("sql", ""))
    if is_wanted is None:  # RocketMQ compares texts with = and IN only
        with pytest.raises(OptionError, match="Option sql: The SQL filter is wrong in column"):
            read_batch(live, subscribe="Orders", **options)
        return
    found = read_batch(live, subscribe="Orders", **options)
    assert sorted(row["flag"] for row in found) == [i for i in range(MESSAGE_COUNT) if is_wanted(i)]

    with Gateway(live, 20) as gateway:
        for queue_id in range(QUEUE_COUNT):
            *batches, _ = gateway.pulled(QueueKey("Orders", "broker-a", queue_id), 0, wanted)
            assert batches[-1].next_offset == MESSAGE_COUNT // QUEUE_COUNT
            assert all(batch.is_whole for batch in batches)
            flags = [message.flag for batch in batches for message in batch.messages]
            assert flags == [i for i in range(queue_id, MESSAGE_COUNT, QUEUE_COUNT) if is_wanted(i)]


def test_bad_sql_is_an_error_before_the_first_task(live: str) -> None:
    source = data_source(live, subscribe="Orders", sql="amount >")
    reader = source.reader(schema=source.schema())
    with pytest.raises(OptionError, match=r"Option sql: The SQL filter is wrong in column 9"):
        reader.partitions()
    with pytest.raises(OptionError, match="Option sql"):
        stream_reader(live, subscribe="Orders", sql="amount >").initialOffset()


def test_rows_are_what_was_appended(live: str) -> None:
    rows = read_batch(live, subscribe="Orders")

    assert len(rows) == MESSAGE_COUNT
    for row in rows:
        i = row["flag"]
        assert (row["topic"], row["queueId"], row["queueOffset"]) == ("Orders", i % QUEUE_COUNT, i // QUEUE_COUNT)
        assert (row["body"], row["keys"], row["tags"]) == (b"body %d" % i, [f"k{i}", "shared"], "ABC"[i % 3])
        assert dict(row["properties"])["color"] == f"red {i}"
        assert millis(row["bornTimestamp"]) == 1_700_000_000_000 + i
    assert sorted(row["flag"] for row in rows) == list(range(MESSAGE_COUNT))


def test_the_view_of_kafka(live: str) -> None:
    rows = read_batch(live, subscribe="Orders", view="kafka", includeHeaders="true")
    native = {(row["queueId"], row["queueOffset"]): row for row in read_batch(live, subscribe="Orders")}

    assert len(rows) == MESSAGE_COUNT
    for row in rows:
        stored = native[row["partition"], row["offset"]]
        assert row == {
            "key": stored["keys"][0].encode(),
            "value": stored["body"],
            "topic": "Orders",
            "partition": stored["queueId"],
            "offset": stored["queueOffset"],
            "timestamp": stored["storeTimestamp"],
            "timestampType": 1,
            "headers": [{"key": name, "value": value.encode()} for name, value in sorted(stored["properties"])],
        }
    assert "headers" not in read_batch(live, subscribe="Orders", view="kafka")[0]


def test_a_schema_of_ones_own_leaves_columns_out(live: str) -> None:
    source = data_source(live, subscribe="Orders")
    asked = source.schema()
    asked = type(asked)([asked["tags"], asked["queueOffset"]])
    reader = source.reader(schema=asked)

    rows = read_partitions(reader, reader.partitions())
    assert len(rows) == MESSAGE_COUNT
    assert set(rows[0]) == {"tags", "queueOffset"}
    with pytest.raises(ColumnError, match="'raw'"):
        source.reader(schema=type(asked)().add("raw", "binary"))


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ("earliest", "latest", [range(125)] * 4),
        ("Earliest", '{"Orders": {"0": 125, "1": -1, "2": 0, "3": 1}}', [range(125), range(125), range(0), range(1)]),
        (
            '{"Orders": {"0": 3, "1": -2, "2": 124, "3": 125}}',
            "LATEST",
            [range(3, 125), range(125), range(124, 125), []],
        ),
        (
            '{"Orders": {"broker-a": {"0": 9, "1": 9, "2": 9, "3": 9}}}',
            '{"Orders": {"broker-a": {"0": 9, "1": 5, "2": 10, "3": -1}}}',
            [[], [], range(9, 10), range(9, 125)],
        ),
        ("startingTimestamp=0", "latest", [range(125)] * 4),
        ("startingTimestamp=9999-01-01", "latest", [[]] * 4),
        ("earliest", "endingTimestamp=0", [[]] * 4),
        ("earliest", "endingTimestamp=9999-01-01", [range(125)] * 4),
    ],
)
def test_bounds_in_every_form(live: str, starting: str, ending: str, expected: list[range]) -> None:
    options = {}
    for name, text in (("startingOffsets", starting), ("endingOffsets", ending)):
        other_name, equals, value = text.partition("=")
        options[other_name if equals else name] = value if equals else text
    rows = read_batch(live, assign='{"Orders": [0, 1, 2, 3]}', columns="queueId,queueOffset", **options)

    for queue_id in range(QUEUE_COUNT):
        found = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert found == list(expected[queue_id])


def test_positions_of_a_subscription_are_positions_of_all_its_queues(live: str) -> None:
    with pytest.raises(OffsetError, match="no position for queue 4 of topic 'Orders' of broker-a and 3 more"):
        read_batch(live, subscribe="Orders", startingOffsets='{"Orders": {"0": 0, "1": 0, "2": 0, "3": 0}}')


def test_a_position_behind_the_end_of_a_queue_is_lost_data(live: str) -> None:
    for option in ("startingOffsets", "endingOffsets"):
        given = {"assign": '{"Orders": [0]}', option: '{"Orders": {"0": 900}}'}
        with pytest.raises(DataLostError, match="the queue ends at 125"):
            read_batch(live, **given)
        rows = read_batch(live, failOnDataLoss="false", **given)
        assert len(rows) == (0 if option == "startingOffsets" else 125)


def test_a_queue_is_cut_to_get_enough_tasks(live: str) -> None:
    source = data_source(live, subscribe="Orders", minPartitions="11", columns="flag")
    reader = source.reader(schema=source.schema())
    partitions = reader.partitions()

    assert len(partitions) >= 11
    assert sorted(row["flag"] for row in read_partitions(reader, partitions)) == list(range(MESSAGE_COUNT))


def test_a_body_that_fits_no_page_comes_all_the_same(live: str) -> None:
    rows = read_batch(live, subscribe="Large")
    assert [row["body"] == body for row, body in zip(rows, (b"before", LARGE_BODY, b"behind"), strict=True)] == [
        True
    ] * 3
    # Who asks for no bodies does not wait for any.
    assert [row["queueOffset"] for row in read_batch(live, subscribe="Large", includeBody="false")] == [0, 1, 2]


def test_no_partition_is_an_empty_batch(live: str) -> None:
    source = data_source(live, subscribePattern="Nothing.*")
    reader = source.reader(schema=source.schema())
    assert reader.partitions() == []
    assert list(reader.read(type("Empty", (), {"value": None})())) == []


def test_an_unknown_topic_is_an_error(live: str) -> None:
    with pytest.raises(TopicNotFoundError, match="'Order'"):
        read_batch(live, subscribe="Order")


def test_a_gateway_that_is_not_there_is_an_error_within_the_time_given() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match=f"The gateway {endpoint} was tried for 1 s"):
        read_batch(endpoint, subscribe="Orders", retrySeconds="1")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("sys_flag", "codec"), [(0x0, None), (0x1, "zlib"), (0x301, "zlib"), (0x101, "lz4"), (0x201, "zstd")]
)
def test_bodies_are_decompressed_as_their_flag_says(sys_flag: int, codec: str | None) -> None:
    body = b"again and again " * 1000
    if codec == "zlib":
        stored = zlib.compress(body)
    elif codec is None:
        stored = body
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(body)
        stored = sink.getvalue().to_pybytes()

    assert decompressed(stored, sys_flag, "id") == body


@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0x701])
def test_a_body_that_is_no_such_thing_is_named(sys_flag: int) -> None:
    with pytest.raises(BodyCompressionError, match="message 7F00 "):
        decompressed(b"nothing of the kind", sys_flag, "7F00")


def test_a_body_that_inflates_without_end_is_refused() -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(17):
            stream.write(bytes(1 << 20))
    with pytest.raises(BodyCompressionError, match="over 16777216 bytes"):
        decompressed(sink.getvalue().to_pybytes(), 0x201, "7F00")


def test_two_shards_are_twice_the_partitions(tmp_path: Path) -> None:
    with two_shards(tmp_path) as (gateway, shard_a, shard_b):
        bodies = {"broker-a": [b"a%d" % i for i in range(40)], "broker-b": [b"b%d" % i for i in range(30)]}
        for name, stack in (("broker-a", shard_a), ("broker-b", shard_b)):
            append(stack.addresses["gateway"], "Orders", bodies[name], queue_id=0)
            stack.wait_until_built()
        each_alone = f"{shard_a.addresses['gateway']},{shard_b.addresses['gateway']}"

        for endpoint in (gateway, each_alone):
            rows = read_batch(endpoint, subscribe="Orders", columns="brokerName,queueOffset,body", includeBroker="true")
            for name, expected in bodies.items():
                found = [(row["queueOffset"], row["body"]) for row in rows if row["brokerName"] == name]
                assert found == list(enumerate(expected))

        one_queue = {"assign": '{"Orders": {"broker-b": [0]}}', "columns": "body"}
        positions = '{"Orders": {"broker-b": {"0": 28}}}'
        rows = read_batch(gateway, startingOffsets=positions, **one_queue)
        assert rows == [{"body": b"b28"}, {"body": b"b29"}]
        with pytest.raises(OffsetError, match="several shards"):
            read_batch(gateway, subscribe="Orders", startingOffsets='{"Orders": {"0": 0}}')
        with pytest.raises(ShardConflictError, match="both have a shard 'broker-a'"):
            read_batch(f"{gateway},{shard_a.addresses['gateway']}", subscribe="Orders")

        shard_b.stop()
        with pytest.raises(PartialAnswerError, match="broker-b"):
            read_batch(gateway, subscribe="Orders", retrySeconds="1")


def test_json_bodies_are_a_column_also_compressed_ones_and_bad_ones_are_null(
    live: str, live_stack: HostedStack
) -> None:
    bodies = [b'{"id":%d,"note":"%d"}' % (i, i) for i in range(300)]
    bodies[7], bodies[8] = b"no JSON", zlib.compress(bodies[8])
    with Producer(live) as producer:
        for i, body in enumerate(bodies):
            producer.send("Json", body, queue_id=0, flag=i)
    live_stack.wait_until_built()
    given = {"subscribe": "Json", "bodyFormat": "json", "bodySchema": "id long, note string"}
    rows = read_batch(live, columns="flag,bodyValue", **given)
    whole = read_batch(live, includeBody="false", **given)
    streamed = stream_reader(live, startingOffsets="earliest", **given)

    expected = [{"id": i, "note": str(i)} for i in range(300)]
    expected[7] = expected[8] = None  # the second is compressed, and does not say so
    assert [row["bodyValue"] for row in rows] == expected
    assert [row["bodyValue"] for row in whole] == expected
    assert list(whole[0])[-1] == "bodyValue"
    assert "body" not in whole[0]
    (batch,) = micro_batches(streamed, streamed.initialOffset())
    assert [row["bodyValue"] for row in batch] == expected
    streamed.stop()


def test_the_schema_of_json_bodies_is_inferred_from_the_newest_messages(
    live: str, live_stack: HostedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(
        live, "Changing", [b'{"old":1}'] * 10 + [b'{"id":1}', b"no JSON", b'{"id":2.5,"at":"2026-01-01"}'], queue_id=0
    )
    append(live, "Changing", [b'{"other":true}'], queue_id=3, tags="T")
    live_stack.wait_until_built()
    given = {"subscribe": "Changing", "bodyFormat": "json"}

    def kind(**more: str) -> str:
        return data_source(live, **given, **more).schema()["bodyValue"].dataType.simpleString()

    assert kind() == "struct<at:string,id:double,old:bigint,other:boolean>"
    assert kind(tags="T") == "struct<other:boolean>"
    monkeypatch.setattr(sample, "SAMPLE_COUNT_MAX", 4)  # one of the short queue, so three are left for the long one
    assert kind() == "struct<at:string,id:double,other:boolean>"
    rows = read_batch(live, columns="queueOffset,bodyValue", **given)
    assert [row["bodyValue"] for row in rows if row["queueOffset"] == 12] == [
        {"at": "2026-01-01", "id": 2.5, "other": None}
    ]
    monkeypatch.setattr(sample, "SAMPLE_BYTES_MAX", 10)  # of decompressed bodies
    assert kind() == "struct<other:boolean>"
    with pytest.raises(OptionError, match="None of the 0 newest messages is a JSON object"):
        kind(tags="nobody")
    # Columns without it cost no call.
    assert data_source("127.0.0.1:1", columns="topic", **given).schema().fieldNames() == ["topic"]


def test_the_type_of_decoded_bodies_may_be_asked_for(live: str, live_stack: HostedStack) -> None:
    append(live, "Typed", [b'{"id":"7"}'], queue_id=0)
    live_stack.wait_until_built()
    source = data_source(live, subscribe="Typed", bodyFormat="json")
    asked = StructType([StructField("BODYVALUE", StructType([StructField("id", StringType())]))])
    reader = source.reader(schema=asked)
    assert read_partitions(reader, reader.partitions()) == [{"BODYVALUE": {"id": "7"}}]
    not_null = StructType([StructField("id", StringType(), nullable=False)])
    for wrong in (StringType(), StructType([StructField("at", TimestampType())]), not_null):
        with pytest.raises((OptionError, ColumnError), match=r"bodyValue|BODYVALUE"):
            source.reader(schema=StructType([StructField("bodyValue", wrong)]))
    with pytest.raises(ColumnError, match="There is no column 'bodyValue'"):
        data_source(live, subscribe="Typed").reader(schema=StructType([StructField("bodyValue", asked)]))
