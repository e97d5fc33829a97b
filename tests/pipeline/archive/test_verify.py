"""`archive --verify`: a whole archive is found whole, and each file that is not what was written is named."""

import dataclasses
import json
import shutil
import zlib
from pathlib import Path

import pytest

from pipeline.archive import archive as archive_job
from pipeline.archive import verify as archive_verify
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import decode_segment, encode_segment
from tests.support.archives import BROKER, Archived, archived, message, write_log

FLIPS = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    root = tmp_path_factory.mktemp("archived")
    messages = [message(n, topic=("orders", "bills")[n % 2], keys=f"k{n}", body=b"b" * 3_000) for n in range(50)]
    return archived(write_log(root / "store", messages), root / "archive")


@pytest.fixture
def archive(made: Archived, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.archive, tmp_path / "archive"))


def findings(archive: Path) -> list[tuple[str, str]]:
    report = archive_verify.run(None, archive, broker_name=BROKER)
    return [(finding["kind"], finding["file"]) for finding in report.findings]


def files(archive: Path) -> list[Path]:
    return sorted(path for path in archive.rglob("*") if path.suffix in (".json", ".idx", ".parquet", ".bin"))


def test_a_whole_archive_is_found_whole(made: Archived) -> None:
    report = archive_verify.run(None, made.archive, broker_name=BROKER)

    assert report.findings == []
    assert report.counts["record_count"] == len(made.records)
    assert report.counts["segment_count"] == len(list((made.archive / "segments" / BROKER).iterdir()))


@pytest.mark.parametrize("store", ["broker_store", "engine_crc_store"])
def test_archives_of_rocketmqs_stores_are_whole(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    archived(request.getfixturevalue(store), tmp_path / "archive")

    assert findings(tmp_path / "archive") == []


@pytest.mark.parametrize("part", range(FLIPS))
def test_a_turned_bit_is_told_with_its_file_or_changes_nothing(made: Archived, archive: Path, part: int) -> None:
    segment_files = [path for path in files(archive) if path.name != "archive.json"]
    path = segment_files[part % len(segment_files)]
    data = bytearray(path.read_bytes())
    at = 4 + (len(data) - 8) * part // FLIPS
    data[at] ^= 1
    path.write_bytes(data)

    found = findings(archive)

    if found != []:
        assert str(path) in {file for _, file in found}
    else:  # white space of a manifest
        assert path.suffix == ".json"
        reader = ArchiveReader(archive, BROKER)
        assert [reader.record(record.commit_log_offset) for record in made.records] == made.records


@pytest.mark.parametrize("suffix", [".idx", ".parquet"])
@pytest.mark.parametrize("kind", ["gone", "short", "long"])
def test_a_file_that_is_gone_or_of_another_size_is_named(archive: Path, suffix: str, kind: str) -> None:
    path = next(path for path in files(archive) if path.suffix == suffix)
    if kind == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9] if kind == "short" else path.read_bytes() + b"x")

    assert str(path) in {file for _, file in findings(archive)}


def test_a_damaged_manifest_and_log_that_is_missing_are_told(archive: Path) -> None:
    first, second, *_ = sorted((archive / "segments" / BROKER).iterdir())
    first.write_bytes(first.read_bytes().replace(b'"record_count": ', b'"record_count": 1'))
    assert ("manifest_damaged", str(first)) in findings(archive)

    second.unlink()
    first.write_bytes(first.read_bytes().replace(b'"record_count": 1', b'"record_count": '))
    assert "log_missing" in {kind for kind, _ in findings(archive)}


def test_a_manifest_that_counts_otherwise_is_told(archive: Path) -> None:
    path = min((archive / "segments" / BROKER).iterdir())
    document = json.loads(path.read_bytes())
    document["segment"]["files"][0]["row_count"] += 1
    fields = json.dumps(document["segment"], sort_keys=True, separators=(",", ":")).encode()
    document["crc32"] = zlib.crc32(fields)
    path.write_bytes(encode_segment(decode_segment(json.dumps(document).encode(), path)))

    assert "row_count" in {kind for kind, _ in findings(archive)}


def with_long_tail(tmp_path: Path) -> tuple[Path, Path]:
    """An archive whose log ends in bytes that are no record, in a file of their own; the archive and that file."""
    store = write_log(tmp_path / "store", [message(n) for n in range(5)])
    path = max((store / "commitlog").iterdir())
    data = path.read_bytes()
    path.write_bytes(data.rstrip(b"\0") + bytes(8) + bytes(range(1, 101)) * 3 + bytes(100))
    archive = tmp_path / "archive"
    archive_job.run(None, store, archive, broker_name=BROKER, include_active=True)
    (tail,) = (archive / "tails").rglob("*.bin")
    assert findings(archive) == []
    return archive, tail


@pytest.mark.parametrize(("size_bytes", "kind"), [(0, "log_differs"), (-1, "tail_damaged")])
def test_a_tail_file_of_other_bytes_was_called_clean(size_bytes: int, kind: str, tmp_path: Path) -> None:
    import pyarrow as pa

    archive, tail = with_long_tail(tmp_path)
    size_bytes += ArchiveReader(archive, BROKER).segments()[-1].tail_size_bytes
    tail.write_bytes(pa.compress(b"\x55" * size_bytes, codec="zstd", asbytes=True))

    assert (kind, str(tail)) in findings(archive)


@pytest.mark.parametrize(("end", "kind"), [("5a", "log_differs"), ("", "tail_damaged")])
def test_another_tail_in_the_manifest_was_called_clean(end: str, kind: str, made: Archived, archive: Path) -> None:
    path = min((archive / "segments" / BROKER).iterdir())
    segment = decode_segment(path.read_bytes(), path)
    assert segment.tail
    path.write_bytes(encode_segment(dataclasses.replace(segment, tail=segment.tail[:-2] + end)))

    assert (kind, str(path)) in findings(archive)
