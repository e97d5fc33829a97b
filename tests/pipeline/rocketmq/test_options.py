"""Options and positions: what is taken, and what is refused by name."""

import pytest

from pipeline.rocketmq.errors import OffsetError
from pipeline.rocketmq.options import BATCH, STREAM, read_options
from pipeline.rocketmq.positions import Bound, QueueKey, from_checkpoint, to_checkpoint
from pipeline.rocketmq.rows import source_schema
from pipeline.rocketmq.sink import sink_options
from pipeline.scan.options import OptionError
from pipeline.scan.schema import ColumnError

GATEWAY = {"endpoint": "127.0.0.1:8081"}
ORDERS = GATEWAY | {"subscribe": "Orders"}

BAD_OPTIONS = [
    ({}, "endpoint is missing"),
    ({"endpoint": " , ", "subscribe": "Orders"}, "endpoint is missing"),
    ({"endpoint": "localhost", "subscribe": "Orders"}, "'localhost' is not HOST:PORT"),
    ({"endpoint": "a:1,a:1", "subscribe": "Orders"}, "names a gateway twice"),
    (GATEWAY, "one of subscribe, subscribePattern, assign"),
    (GATEWAY | {"subscribe": "A", "subscribePattern": "B.*"}, "subscribe and subscribePattern are given"),
    (GATEWAY | {"subscribe": "A", "assign": '{"A":[0]}'}, "subscribe and assign are given"),
    (ORDERS | {"startingOffsets": "earliest", "startingTimestamp": "0"}, "startingOffsets and startingTimestamp are"),
    (ORDERS | {"endingOffsets": "latest", "endingTimestamp": "0"}, "endingOffsets and endingTimestamp are"),
    (ORDERS | {"maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "maxOffsetsPerTrigger and maxBytesPerTrigger"),
    (ORDERS | {"failOnDataLos": "true"}, "no option 'failOnDataLos': did you mean failOnDataLoss?"),
    (ORDERS | {"STARTINGOFFSET": "latest"}, "did you mean startingOffsets?"),
    (ORDERS | {"path": "/store"}, "no option 'path': files are read by format commitlog"),
    (ORDERS | {"nameServer": "h:9876"}, "give the gateway as option endpoint"),
    (GATEWAY | {"subscribe": " , "}, "subscribe names no topic"),
    (GATEWAY | {"subscribePattern": "("}, "not a regular expression"),
    (GATEWAY | {"assign": "Orders"}, "assign is not JSON"),
    (GATEWAY | {"assign": "{}"}, "assign names no topic"),
    (GATEWAY | {"assign": '{"Orders": []}'}, "not a list of queue ids"),
    (GATEWAY | {"assign": '{"Orders": [-1]}'}, "not a list of queue ids"),
    (GATEWAY | {"assign": '{"Orders": [true]}'}, "not a list of queue ids"),
    (ORDERS | {"startingOffsets": "first"}, "'first': give earliest"),
    (ORDERS | {"startingOffsets": '{"Orders"'}, "startingOffsets is not JSON"),
    (ORDERS | {"startingOffsets": '{"Orders": 3}'}, "not a JSON object of queues"),
    (ORDERS | {"startingOffsets": '{"Orders": {"x": 3}}'}, "'x' is not a queue id"),
    (ORDERS | {"startingOffsets": '{"Orders": {"0": -3}}'}, "-3 is not a position of queue 0"),
    (ORDERS | {"startingOffsets": '{"Orders": {"0": 1.5}}'}, "1.5 is not a position"),
    (ORDERS | {"startingTimestamp": "noon"}, "startingTimestamp is 'noon'"),
    (ORDERS | {"endingOffsets": "earliest"}, "makes no sense here"),
    (ORDERS | {"endingOffsets": '{"Orders": {"0": -2}}'}, "makes no sense here"),
    (ORDERS | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
    (ORDERS | {"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger is 'many'"),
    (ORDERS | {"minPartitions": "-1"}, "minPartitions is '-1'"),
    (ORDERS | {"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes'"),
    (ORDERS | {"view": "avro"}, "view is 'avro'"),
    (ORDERS | {"includeHeaders": "true"}, "includeHeaders belongs to view=kafka"),
    (ORDERS | {"view": "kafka", "includeBroker": "true"}, "includeBroker belongs to view=native"),
    (ORDERS | {"tags": "A || "}, "TagA || TagB"),
    (ORDERS | {"tags": "A", "sql": "a = 1"}, "tags and sql are given"),
    (ORDERS | {"sql": " "}, "sql is empty: give an expression"),
    (ORDERS | {"bodyFormat": "xml"}, "bodyFormat is 'xml': give json, avro, protobuf"),
    (ORDERS | {"bodySchema": "id long"}, "bodySchema belongs to bodyFormat json or avro"),
    (ORDERS | {"bodyFormat": "avro"}, "bodySchema is missing: bodyFormat avro needs it"),
    (ORDERS | {"bodyFormat": "protobuf", "bodyDescriptor": "x"}, "bodyMessage is missing"),
    (ORDERS | {"bodyFormat": "json", "bodyMessage": "x"}, "bodyMessage belongs to bodyFormat protobuf"),
    (ORDERS | {"bodyFormat": "json", "bodySchema": " "}, "bodySchema is empty"),
    (ORDERS | {"bodyFormat": "json", "view": "kafka"}, "bodyFormat belongs to view=native"),
    (ORDERS | {"retrySeconds": "soon"}, "retrySeconds is 'soon'"),
]


@pytest.mark.parametrize(("options", "text"), BAD_OPTIONS, ids=[text[:40] for _, text in BAD_OPTIONS])
def test_a_bad_option_is_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as failure:
        read_options(options)
    assert text in str(failure.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} has no meaning for a stream"):
        read_options(ORDERS | {name: "latest" if name == "endingOffsets" else "5"}, STREAM)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_batch_has_no_triggers(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} has no meaning for a batch"):
        read_options(ORDERS | {name: "5"}, BATCH)


@pytest.mark.parametrize("value", ["latest", '{"Orders": {"0": -1}}'])
def test_a_batch_does_not_begin_at_the_end(value: str) -> None:
    with pytest.raises(OptionError, match="makes no sense here"):
        read_options(ORDERS | {"startingOffsets": value}, BATCH)
    assert read_options(ORDERS | {"startingOffsets": value}, STREAM)


def test_names_of_options_have_no_case() -> None:
    options = read_options({"ENDPOINT": "h:1, h:2", "SubScribe": "A,B,A", "FAILONDATALOSS": "False"})

    assert options.endpoints == ("h:1", "h:2")
    assert options.subscription.topics == ("A", "B")
    assert options.fail_on_data_loss is False


def test_a_batch_reads_what_is_there_and_a_stream_what_comes() -> None:
    assert read_options(ORDERS, BATCH).start == Bound(everywhere=-2)
    assert read_options(ORDERS, BATCH).end == Bound(everywhere=-1)
    assert read_options(ORDERS, STREAM).start == Bound(everywhere=-1)


def test_positions_may_name_the_shard() -> None:
    text = '{"Orders": {"0": 7, "1": -2}, "Bills": {"broker-b": {"0": 3}}}'

    start = read_options(ORDERS | {"startingOffsets": text}, BATCH).start

    expected = {QueueKey("Orders", "", 0): 7, QueueKey("Orders", "", 1): -2, QueueKey("Bills", "broker-b", 0): 3}
    assert start.positions == expected


def test_times_are_milliseconds_or_iso() -> None:
    assert read_options(ORDERS | {"startingTimestamp": "1700000000123"}).start.time_millis == 1_700_000_000_123
    iso = ORDERS | {"startingTimestamp": "2023-11-14T22:13:20.123Z"}
    assert read_options(iso).start.time_millis == 1_700_000_000_123


def test_tags_are_an_expression_of_rocketmq() -> None:
    assert read_options(ORDERS | {"tags": "A || B"}).tags == {"A", "B"}
    assert read_options(ORDERS | {"tags": "*"}).tags == frozenset()


def test_bodies_come_as_stored_except_to_readers_of_kafka() -> None:
    assert read_options(ORDERS).decompress is False
    assert read_options(ORDERS | {"view": "kafka"}).decompress is True
    assert read_options(ORDERS | {"view": "kafka", "decompress": "false"}).decompress is False


def test_columns_are_chosen_by_options() -> None:
    assert "body" not in source_schema(read_options(ORDERS | {"includeBody": "false"})).names
    assert source_schema(read_options(ORDERS | {"includeBroker": "true"})).names[-1] == "brokerName"
    assert source_schema(read_options(ORDERS | {"columns": "queueId, topic"})).names == ["queueId", "topic"]
    with pytest.raises(ColumnError, match="offset"):
        source_schema(read_options(ORDERS | {"columns": "offset"}))


def test_a_checkpoint_gives_back_its_positions_and_equal_ones_are_equal_text() -> None:
    positions = {QueueKey("B", "b", 10): 5, QueueKey("A", "a", 2): 1 << 40, QueueKey("A", "a", 0): 0}

    written = to_checkpoint(positions)

    assert written == {"v": 1, "q": {"A": {"a": {"0": 0, "2": 1 << 40}}, "B": {"b": {"10": 5}}}}
    assert from_checkpoint(written) == positions
    assert str(to_checkpoint(dict(reversed(positions.items())))) == str(written)


@pytest.mark.parametrize("offset", [{}, {"v": 2, "q": {}}, {"v": 1, "phy": 12}])
def test_a_strange_checkpoint_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="checkpoint"):
        from_checkpoint(offset)


BAD_SINK_OPTIONS = [
    ({"topic": "T"}, "endpoint is missing"),
    (GATEWAY | {"topics": "T"}, "did you mean topic?"),
    (GATEWAY | {"flushMode": "never"}, "flushMode is 'never'"),
    (GATEWAY | {"retrySeconds": "-1"}, "retrySeconds is '-1'"),
    (GATEWAY | {"writeId": "x" * 65}, "writeId has 65 characters: give at most 64"),
]


@pytest.mark.parametrize(("options", "text"), BAD_SINK_OPTIONS, ids=[text for _, text in BAD_SINK_OPTIONS])
def test_a_bad_option_of_the_sink_is_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as failure:
        sink_options(options, overwrite=False)
    assert text in str(failure.value)


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(OptionError, match="mode append"):
        sink_options(GATEWAY, overwrite=True)


def test_what_spark_puts_beside_the_sinks_options_is_passed_over() -> None:
    given = GATEWAY | {"checkpointlocation": "/c", "queryname": "q", "topic": " T "}
    assert sink_options(given, overwrite=False).topic == "T"


def test_a_write_has_an_id_only_if_one_is_given() -> None:
    assert sink_options(GATEWAY, overwrite=False).write_id == ""
    assert sink_options(GATEWAY | {"WRITEID": " alerts "}, overwrite=False).write_id == "alerts"


def test_a_tag_has_no_blanks_at_its_ends_that_rocketmq_takes_off() -> None:
    """The services trim tags as Java does; a tag that kept a control character here would never match what they send."""
    assert read_options(ORDERS | {"tags": "\x01A\x00|| \u3000B\t"}).tags == {"A", "B"}
