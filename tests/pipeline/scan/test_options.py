"""Options: each mistake is refused at once, by name."""

from pathlib import Path

import pytest

from pipeline.object_root import ObjectRoot
from pipeline.scan.options import Corrupt, OptionError, Verify, default_cache_directory, parse_options
from pipeline.scan.schema import ColumnError
from store.errors import UnsupportedStoreError
from tests.pipeline.brute_force import make_reader


def test_what_is_not_given_has_its_default() -> None:
    options = parse_options({"path": "/x/store"})
    assert (options.root, options.verify, options.corrupt) == (Path("/x/store"), Verify.STRUCTURE, Corrupt.FAIL)
    assert (options.split_bytes, options.batch_rows, options.fail_on_data_loss) == (256 << 20, 8192, True)
    assert options.boundary_cache == default_cache_directory()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, r"needs a path: \.load"),
        ({"path": ""}, "it is empty"),
        ({"path": "file://host/store"}, "every executor sees"),
        ({"path": "s3://key:secret@bucket/store"}, "remove them and set the usual variables"),
        ({"path": "s3://bucket/store?secret_key=x"}, "option 'secret_key'"),
        ({"path": "x", "boundaryCache": "s3://bucket/store#1"}, "write it as %23"),
        ({"path": "x", "verfy": "crc"}, "no option 'verfy'.*verify"),
        ({"path": "x", "subscribe": "orders"}, "'subscribe' belongs to format"),
        ({"path": "x", "endpoint": "localhost:1"}, "'endpoint' belongs to format"),
        ({"path": "x", "verify": "all"}, "use one of none, structure, crc"),
        ({"path": "x", "corrupt": "ignore"}, "use one of fail, skip, report"),
        ({"path": "x", "raw": "yes"}, "true or false"),
        ({"path": "x", "splitBytes": "0"}, "at least 1024 bytes"),
        ({"path": "x", "splitBytes": "many"}, "such as 64m"),
        ({"path": "x", "batchRows": "0"}, "1 to"),
        ({"path": "x", "batchRows": "-1"}, "1 to"),
        ({"path": "x", "topics": ","}, "names no topic"),
        ({"path": "x", "queueIds": "1;2"}, "separated by commas"),
        ({"path": "x", "startingPhysicalOffset": "-1"}, "0 or more"),
        ({"path": "x", "startingPhysicalOffset": "9", "endingPhysicalOffset": "8"}, "lies behind"),
        ({"path": "x", "startingTimestamp": "yesterday"}, "ISO time"),
        ({"path": "x", "columns": " , "}, "names no column"),
    ],
)
def test_a_mistake_is_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse_options(options)


@pytest.mark.parametrize("columns", ["body,nonsense", "topic,Topic", "raw", "damage"])
def test_an_unknown_column_is_named(broker_store: Path, columns: str) -> None:
    with pytest.raises(ColumnError, match=columns.rpartition(",")[2]):
        make_reader(broker_store, columns=columns)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:00.5+01:00", 500),
        ("1970-01-01T00:00:00.000001Z", 1),  # nothing was stored in between
        ("1970-01-01", 0),
    ],
)
def test_a_time_is_an_iso_text_or_milliseconds(text: str, millis: int) -> None:
    assert parse_options({"path": "x", "startingTimestamp": text}).starting_time_millis == millis


@pytest.mark.parametrize(("text", "size"), [("1048576", 1 << 20), ("64m", 64 << 20), ("1G", 1 << 30), ("2 kb", 2048)])
def test_a_size_is_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert parse_options({"path": "x", "splitbytes": text}).split_bytes == size


def test_names_of_options_and_file_urls(tmp_path: Path) -> None:
    assert parse_options({"PATH": f"file://{tmp_path}/a%20b"}).root == tmp_path / "a b"
    assert parse_options({"path": "x", "BOUNDARYCACHE": "off"}).boundary_cache is None


def test_a_uri_is_the_place_of_a_store_and_of_its_boundaries() -> None:
    options = parse_options({"path": "s3://bucket/a%20store?region=x", "boundaryCache": "hdfs://host/cache"})
    assert options.root == ObjectRoot("s3://bucket/a%20store?region=x", "path")
    assert options.boundary_cache == ObjectRoot("hdfs://host/cache", "boundaryCache")


def test_a_directory_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="has no commitlog/"):
        make_reader(tmp_path).partitions()
    with pytest.raises(UnsupportedStoreError, match="is not a directory"):
        make_reader(tmp_path / "absent").partitions()


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert make_reader(tmp_path).partitions() == []
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    assert make_reader(tmp_path).partitions() == []
