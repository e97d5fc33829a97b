"""Rows of records are the rows of the messages that a gateway makes of them."""

import contextlib
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from console.bodies.body import inflated
from pipeline.rocketmq.bodies.formats import BodyOptions, format_of
from pipeline.rocketmq.gateway import Gateway
from pipeline.rocketmq.reading import RUN_COUNT_MAX, RecordBatches, _batches, before, queue_offsets_of, runs_of
from pipeline.rocketmq.rows import BATCH_BYTES_MAX, BROKER, RowBatches, body_value
from pipeline.scan.schema import native_schema
from reput_client.errors import BodyCompressionError
from services.convert import stored_message
from store.errors import RecordCorruptedError
from store.format.body_compression import INFLATED_BYTES_MAX
from store.format.host import Host
from store.format.record import decode_record
from store.format.sys_flag import COMPRESSED
from tests.store.walk.logs import ODD, frames_of, message
from tests.support.fixture_stores import unpack_store, walk_frames

SHARD = "broker-a"
NO_GATEWAY = cast(Gateway, None)  # no body is to be downloaded
ALL = StructType([*native_schema().fields, BROKER])


def rows_of_messages(frames: Sequence[bytes], schema: StructType, *, decompress: bool) -> list[dict[str, Any]]:
    shown = [stored_message(decode_record(frame), SHARD) for frame in frames]
    return comparable(RowBatches(schema, "native", decompress=decompress).batch(shown))


def rows_of_records(frames: Sequence[bytes], schema: StructType, *, decompress: bool) -> list[dict[str, Any]]:
    batches = RecordBatches(schema, SHARD, decompress=decompress)
    return [row for run in runs_of(frames) for batch in batches.batches(run) for row in comparable(batch)]


def is_whole(frame: bytes) -> bool:
    with contextlib.suppress(RecordCorruptedError):
        decode_record(frame)
        return True
    return False


def comparable(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows = batch.to_pylist()
    for row in rows:
        if "properties" in row:
            assert len(dict(row["properties"])) == len(row["properties"]), "a map with a key twice"
            row["properties"] = dict(row["properties"])
    return rows


@pytest.mark.parametrize("decompress", [False, True])
@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc"])
def test_records_of_the_real_rocketmq(tmp_path: Path, name: str, decompress: bool) -> None:
    frames = [frame for _, frame in walk_frames(unpack_store(name, tmp_path / name))]
    assert len(frames) > 100
    expected = rows_of_messages(frames, ALL, decompress=decompress)
    assert rows_of_records(frames, ALL, decompress=decompress) == expected


def test_odd_records_and_any_choice_of_columns() -> None:
    chance = random.Random(5)
    frames = [frame for frame in frames_of(ODD * 3, base=1 << 40) if is_whole(frame)]
    assert len(frames) > 100
    for _ in range(30):
        fields = chance.sample(ALL.fields, chance.randrange(1, len(ALL.fields)))
        schema = StructType(fields)
        expected = rows_of_messages(frames, schema, decompress=False)
        assert rows_of_records(frames, schema, decompress=False) == expected


def test_more_records_than_a_gateway_answers() -> None:
    """The tables of a batch have room for a run, and no more."""
    frames = frames_of([message(born_host=Host("10.0.0.1", at)) for at in range(2 * RUN_COUNT_MAX + 1)])
    assert [len(run) for run in runs_of(frames)] == [RUN_COUNT_MAX, RUN_COUNT_MAX, 1]
    expected = rows_of_messages(frames, ALL, decompress=False)
    assert rows_of_records(frames, ALL, decompress=False) == expected


@pytest.mark.parametrize("records", [[b"no record"], [b""] * 3 + [bytes(100)], [frames_of([message()])[0][:-1]]])
def test_bytes_that_are_no_records_are_refused(records: list[bytes]) -> None:
    with pytest.raises(RecordCorruptedError):
        runs_of(records)


def test_records_before_a_position() -> None:
    runs = runs_of(frames_of([message()] * 10))
    offsets = queue_offsets_of(runs)
    assert queue_offsets_of(before(runs, offsets[4])) == offsets[:4]
    assert before(runs, offsets[0]) == []
    assert runs_of([]) == []


def test_a_body_that_cannot_be_decompressed_names_its_message() -> None:
    damaged = message(body=b"no zlib", sys_flag=COMPRESSED)
    frames = frames_of([message(), damaged])
    with pytest.raises(BodyCompressionError) as failure:
        rows_of_records(frames, ALL, decompress=True)
    shown = stored_message(decode_record(frames[1]), SHARD)
    assert failure.value.metadata["offsetMsgId"] == shown.offset_msg_id


def test_a_batch_ends_where_its_decompressed_bodies_are_many_bytes() -> None:
    """20 KiB of records inflate to 20 MiB: in one batch they were all in memory at once, and a page may have more."""
    bodies = [b"plain", *[zlib.compress(bytes([number]) * (1 << 20)) for number in range(20)], b"plain"]
    frames = frames_of([message(body=body, sys_flag=COMPRESSED if body != b"plain" else 0) for body in bodies])
    shown = [stored_message(decode_record(frame), SHARD) for frame in frames]
    format_ = format_of(BodyOptions("json", "id long"), StructType)
    whole = [*native_schema().fields, body_value(format_)]
    for fields, decompress, is_large in (
        (whole, True, True),
        (whole, False, False),
        ([body_value(format_)], False, False),
    ):
        schema = StructType(list(fields))
        records = RecordBatches(schema, SHARD, decompress=decompress, format_=format_)
        of_records = [batch for run in runs_of(frames) for batch in records.batches(run)]
        rows = RowBatches(schema, "native", decompress=decompress, format_=format_)
        of_messages = list(_batches(NO_GATEWAY, shown, rows))
        for batches in (of_records, of_messages):
            assert sum(len(batch) for batch in batches) == len(frames)
            assert len(batches) >= 2
            assert max(batch.nbytes for batch in batches) <= BATCH_BYTES_MAX + (1 << 20)
            if is_large:
                found = [body for batch in batches for body in batch.column("body").to_pylist()]
                assert found == [body if body == b"plain" else zlib.decompress(body) for body in bodies]


def test_a_body_has_the_limit_that_the_console_has() -> None:
    sound, large = (zlib.compress(bytes(size)) for size in (INFLATED_BYTES_MAX, INFLATED_BYTES_MAX + 1))
    (run,) = runs_of(frames_of([message(body=sound, sys_flag=COMPRESSED)]))
    (batch,) = RecordBatches(ALL, SHARD, decompress=True).batches(run)
    assert len(batch.column("body")[0].as_py()) == INFLATED_BYTES_MAX
    assert len(inflated(sound, COMPRESSED)[0]) == INFLATED_BYTES_MAX
    (run,) = runs_of(frames_of([message(body=large, sys_flag=COMPRESSED)]))
    with pytest.raises(BodyCompressionError, match=f"it inflates to over {INFLATED_BYTES_MAX} bytes"):
        list(RecordBatches(ALL, SHARD, decompress=True).batches(run))
    assert inflated(large, COMPRESSED)[0] == large


@pytest.mark.parametrize("decompress", [False, True])
def test_decoded_bodies_of_records_are_those_of_messages(decompress: bool) -> None:
    format_ = format_of(BodyOptions("json", "id long, note string"), StructType)
    bodies = [b'{"id": 1}', b"no object", b'{"id": 2, "note": "a"}', b"", zlib.compress(b'{"id": 3}')]
    frames = frames_of([message(body=body, sys_flag=COMPRESSED if body[:1] == b"x" else 0) for body in bodies])
    shown = [stored_message(decode_record(frame), SHARD) for frame in frames]
    value = body_value(format_)
    for fields in ([*ALL.fields, value], [value], [BROKER, value, *native_schema().fields], ALL.fields):
        schema = StructType(list(fields))
        records = RecordBatches(schema, SHARD, decompress=decompress, format_=format_)
        found = [row for run in runs_of(frames) for batch in records.batches(run) for row in comparable(batch)]
        messages = RowBatches(schema, "native", decompress=decompress, format_=format_).batch(shown)
        assert found == comparable(messages)
    (run,) = runs_of(frames)
    (batch,) = RecordBatches(StructType([value]), SHARD, decompress=False, format_=format_).batches(run)
    values = batch.to_pydict()
    ids = [None if each is None else each["id"] for each in values["bodyValue"]]
    assert ids == [1, None, 2, None, 3]
