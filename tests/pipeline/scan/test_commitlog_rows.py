"""format("commitlog") without Spark: every row of every kind of log is what the plain codec says."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pipeline.scan import arrow_batches
from pipeline.scan.schema import ColumnError, native_schema
from store.compiled import loading
from tests.pipeline.brute_force import make_reader, read, row_of, rows_of_store
from tests.pipeline.logs import write_files, write_log
from tests.store.walk import logs
from tests.store.walk.logs import ODD, frames_of, message, mixed_log
from tests.support.kernels import kernel_mode

__all__ = ["kernel_mode"]

STORES = ["broker_store", "engine_store", "engine_crc_store"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("verify", ["none", "structure", "crc"])
def test_rows_of_rocketmqs_own_logs(store: str, verify: str, request: pytest.FixtureRequest, kernel_mode: str) -> None:
    root: Path = request.getfixturevalue(store)
    wanted = rows_of_store(root, without=())
    assert wanted
    assert read(root, raw="true", verify=verify, splitBytes=4096, batchRows=7) == wanted


def test_a_crashed_store_is_read_up_to_its_torn_end(crashed_store: Path) -> None:
    wanted = rows_of_store(crashed_store)
    assert wanted
    assert read(crashed_store, verify="crc") == wanted


@pytest.mark.parametrize("verify", ["structure", "crc"])
def test_odd_records_between_ordinary_ones(tmp_path: Path, verify: str, kernel_mode: str) -> None:
    odd = [one for number, one in enumerate(ODD) if number != 31 or verify != "crc"]  # its __CRC32# is damaged
    frames = frames_of([message(), *odd, message()], base=0)
    root = write_log(tmp_path, frames, file_bytes=1 << 20)
    assert read(root, raw="true", verify=verify) == [row_of(frame) for frame in frames]


@given(messages=logs.messages, batch_rows=st.integers(1, 9))
def test_any_messages_are_read_as_their_rows(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any], batch_rows: int
) -> None:
    frames = frames_of(messages, base=0)
    root = write_log(tmp_path_factory.mktemp("any"), frames, file_bytes=1 << 17)
    assert read(root, raw="true", batchRows=batch_rows) == [row_of(frame) for frame in frames]


def test_times_that_spark_cannot_show_are_clamped(tmp_path: Path) -> None:
    frame = bytearray(frames_of([message(guarded=False)], base=0)[0])
    frame[40:48] = (1 << 62).to_bytes(8, "big")
    frame[56:64] = (-(1 << 63)).to_bytes(8, "big", signed=True)
    root = write_log(tmp_path, [bytes(frame)], file_bytes=4096)
    (row,) = read(root, columns="bornTimestamp,storeTimestamp")
    assert [row["bornTimestamp"].isoformat(), row["storeTimestamp"].isoformat()] == [
        "9999-12-31T23:59:59.999000+00:00",
        "0001-01-01T00:00:00+00:00",
    ]


def test_records_larger_than_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.scan.scan.READ_BYTES", 4096)
    monkeypatch.setattr("pipeline.scan.boundaries.WALK_BYTES", 4096)
    frames = frames_of([message(body=bytes(size)) for size in (10, 9000, 10, 60_000, 4000, 4001)], base=0)
    root = write_log(tmp_path, frames, file_bytes=1 << 17)
    for split_bytes in (1024, 1 << 20):
        assert read(root, raw="true", splitBytes=split_bytes) == [row_of(frame) for frame in frames]


def test_more_properties_and_keys_than_the_tables_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "PROPERTIES_PER_ROW", 1)
    monkeypatch.setattr(arrow_batches, "KEYS_PER_ROW", 1)
    many = "".join(f"n{number}\x01{number}\x02" for number in range(100)) + "KEYS\x01" + "k " * 300 + "\x02"
    frames = frames_of([message(), message(properties=many), message(), message()] * 3, base=0)
    root = write_log(tmp_path, frames, file_bytes=1 << 20)
    assert read(root) == [{k: v for k, v in row_of(frame).items() if k != "raw"} for frame in frames]


def test_a_priority_is_a_number_or_null_whatever_the_property_says(tmp_path: Path) -> None:
    texts = ["3", None, "+7", "high", "-1", "2147483647", "2147483648", "0"]
    properties = ["" if text is None else f"a\x01b\x02_SYS_MSG_PRIORITY_\x01{text}\x02" for text in texts]
    root = write_log(tmp_path, frames_of([message(properties=each) for each in properties], base=0), file_bytes=1 << 20)
    expected = [3, None, 7, None, None, 2_147_483_647, None, 0]
    assert [row["priority"] for row in read(root, columns="priority")] == expected
    assert [row["priority"] for row in read(root, batchRows=3)] == expected


def test_a_lite_topic_is_a_column_and_null_where_there_is_none(tmp_path: Path) -> None:
    texts = ["chat-1", None, "chat-2", None]
    properties = ["" if text is None else f"a\x01b\x02__LITE_TOPIC\x01{text}\x02" for text in texts]
    root = write_log(tmp_path, frames_of([message(properties=each) for each in properties], base=0), file_bytes=1 << 20)
    assert [row["lite_topic"] for row in read(root, columns="lite_topic")] == texts
    assert [row["lite_topic"] for row in read(root, batchRows=3)] == texts


def test_files_follow_one_another(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    for split_bytes in (1024, 1500, 4096, 1 << 30):
        assert read(tmp_path, raw="true", splitBytes=split_bytes) == [row_of(frame) for frame in frames]


@pytest.mark.parametrize(
    "columns", ["body", "topic", "keys", "tagsCode,topic", "raw,properties", "uniqKey,physicalOffset", "TAGS , QueueId"]
)
def test_only_the_columns_that_are_asked_for(broker_store: Path, columns: str) -> None:
    names = {name.lower(): name for name in native_schema(with_raw=True).fieldNames()}
    wanted = [names[name.strip().lower()] for name in columns.split(",")]
    rows = read(broker_store, columns=columns, raw="true")
    assert rows == [{name: row[name] for name in wanted} for row in rows_of_store(broker_store, without=())]
    assert list(rows[0]) == wanted


def test_bodies_can_be_left_out(broker_store: Path) -> None:
    assert read(broker_store, includeBody="false") == rows_of_store(broker_store, without=("raw", "body"))


def test_a_schema_of_the_users_own_chooses_columns(broker_store: Path) -> None:
    schema = StructType([StructField("queueid", IntegerType()), StructField("topic", StringType())])
    rows = read(broker_store, schema)
    assert rows == [{"queueid": row["queueId"], "topic": row["topic"]} for row in rows_of_store(broker_store)]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (StructType([StructField("nonsense", StringType())]), "no column 'nonsense'"),
        (StructType([StructField("queueId", StringType())]), "asked for as string; it is int"),
        (StructType([StructField("tags", StringType(), nullable=False)]), "may be null"),
        (StructType([StructField("topic", StringType()), StructField("TOPIC", StringType())]), "named twice"),
        (StructType([StructField("raw", StringType())]), "no column 'raw'"),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused_at_once(broker_store: Path, schema: StructType, why: str) -> None:
    with pytest.raises(ColumnError, match=why):
        make_reader(broker_store, schema)


def test_batches_stay_valid_when_the_next_ones_are_read(tmp_path: Path) -> None:
    root = write_log(tmp_path, [mixed_log(random.Random(3), 500, base=0)], file_bytes=1 << 20)
    reader = make_reader(root, raw="true", batchRows=50)
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    assert len(batches) == 10
    assert [row["raw"] for batch in batches for row in batch.to_pylist()] == [
        row["raw"] for row in rows_of_store(root, without=())
    ]


def test_the_plain_twin_serves_where_nothing_is_compiled(broker_store: Path) -> None:
    before = loading.switch(loading.OFF)
    try:
        assert read(broker_store) == rows_of_store(broker_store)
    finally:
        loading.switch(before)
