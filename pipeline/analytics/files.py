"""Writes each table as one Parquet file and one CSV file.

Parquet has the values unchanged. CSV files are opened in spreadsheets, which evaluate a text that begins with `=` or
similar as a formula. Topics and keys are chosen by producers, so such a text gets an apostrophe before it.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

FORMULA = r"^[=+\-@\t\r]"
PARQUET_COMPRESSION = "zstd"


def publish(parts: Path, out: Path, name: str) -> int:
    """Makes `name.parquet` and `name.csv` in `out` from Spark's part files; returns the count of rows.

    Args:
        parts: the directory with Spark's part files, whose names follow the order of the rows.
        out: the directory for the files, of this run alone: a failure may leave half a file.
        name: name of the table.
    """
    files = sorted(parts.glob("part-*.parquet"))
    if not files:
        raise FileNotFoundError(f"{parts} holds no part file: name an --out on a disk that driver and executors share")
    schema = _plain_schema(pq.read_schema(files[0]))
    row_count = 0
    with (
        pq.ParquetWriter(out / f"{name}.parquet", schema, compression=PARQUET_COMPRESSION) as parquet,
        pyarrow.csv.CSVWriter(out / f"{name}.csv", schema) as csv,
    ):
        for batch in _batches(files):
            rows = pa.Table.from_batches([batch]).cast(schema)
            parquet.write_table(rows)
            csv.write_table(spreadsheet_safe(rows))
            row_count += rows.num_rows
    return row_count


def spreadsheet_safe(rows: pa.Table) -> pa.Table:
    """The rows with an apostrophe before each text that a spreadsheet would evaluate as a formula."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            texts = rows.column(number)
            marked = pc.binary_join_element_wise("'", texts, "")
            safe = pc.if_else(pc.match_substring_regex(texts, FORMULA), marked, texts)
            rows = rows.set_column(number, field, safe)
    return rows


def _batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without Spark's metadata, with times in microseconds."""
    fields = [
        pa.field(field.name, pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type)
        for field in schema
    ]
    return pa.schema(fields)
