"""Logs damaged at random: a scan that checks CRCs, and the audit, find what was damaged and nothing else.

The judge is what was written: every byte of a damaged frame is lost, every other frame is a row.
"""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from store.audit.findings import CODES, Repair
from store.audit.store_audit import audit_store
from store.errors import RecordCorruptedError
from store.files.file_system import RealFileSystem
from store.format.record import decode_record
from tests.pipeline.brute_force import read, row_of
from tests.pipeline.logs import FILE_BYTES, log_file, overwrite, write_files
from tests.support.kernels import kernel_mode

__all__ = ["kernel_mode"]
SEEDS = range(40)
SEEDS_ON_SPARK = range(1000, 1004)


def offset_of(frame: bytes) -> int:
    return int.from_bytes(frame[28:36], "big")


def spoiled(chance: random.Random, frame: bytes) -> bytes:
    """The frame with a bit turned, some bytes replaced, or all of it gone, such that it is none any more."""
    while True:
        data = bytearray(frame)
        kind = chance.randrange(4)
        at = chance.randrange(len(data))
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + 16] = chance.randbytes(len(data[at : at + 16]))
        elif kind == 2:
            data[at:] = bytes(len(data) - at)
        else:
            data = bytearray(len(data))
        try:
            decode_record(bytes(data), commit_log_offset=offset_of(frame))
        except RecordCorruptedError:
            return bytes(data)


def damaged_log(root: Path, seed: int) -> tuple[list[bytes], list[bytes]]:
    """A log with some frames damaged; the others, and the damaged ones as they were, both in log order.

    Never the last frame of a file: what follows that is no record, and how far the damage reaches is not said.
    """
    chance = random.Random(seed)
    frames = write_files(root, seed=seed)
    files = [offset_of(frame) // FILE_BYTES for frame in frames]
    inner = [n for n in range(len(frames) - 1) if files[n] == files[n + 1]]
    victims = sorted(chance.sample(inner, chance.randrange(1, 7)))
    for number in victims:
        offset = offset_of(frames[number])
        overwrite(log_file(root, files[number]), offset % FILE_BYTES, spoiled(chance, frames[number]))
    return [frame for n, frame in enumerate(frames) if n not in victims], [frames[n] for n in victims]


def bytes_of(frames: list[bytes]) -> list[int]:
    return [at for frame in frames for at in range(offset_of(frame), offset_of(frame) + len(frame))]


def bytes_in(stretches: list[tuple[int, int]]) -> list[int]:
    """Each byte of stretches `[begin, end)`; one that lies in two is there twice."""
    return [at for begin, end in stretches for at in range(begin, end)]


def reported(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted(
        (row["physicalOffset"], row["physicalOffset"] + row["storeSize"]) for row in rows if row["damage"] is not None
    )


def sound(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "damage"} for row in rows if row["damage"] is None]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scan_with_crc_leaves_out_what_was_damaged_and_nothing_else(
    tmp_path: Path, seed: int, kernel_mode: str
) -> None:
    kept, victims = damaged_log(tmp_path, seed)
    wanted = [row_of(frame) for frame in kept]
    options = {"verify": "crc", "raw": "true", "splitBytes": (1024, 1 << 20)[seed % 2], "batchRows": 5}

    assert read(tmp_path, corrupt="skip", **options) == wanted

    rows = read(tmp_path, corrupt="report", **options)
    assert sorted(sound(rows), key=lambda row: row["physicalOffset"]) == wanted
    assert bytes_in(reported(rows)) == bytes_of(victims)
    assert all(row["damage"] for row in rows if row["damage"] is not None)

    with pytest.raises(RecordCorruptedError) as raised:
        read(tmp_path, corrupt="fail", **options)
    assert raised.value.metadata["commitLogOffset"] in {str(offset_of(victim)) for victim in victims}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_audit_lists_what_was_damaged_and_nothing_else(tmp_path: Path, seed: int) -> None:
    kept, victims = damaged_log(tmp_path, seed)

    found = audit_store(RealFileSystem(), tmp_path)

    assert bytes_in(sorted(found.log.lost)) == bytes_of(victims)
    of_log = [finding for finding in found.findings.kept if CODES[finding.code].kind is Repair.LOG]
    assert {finding.code for finding in of_log} <= {"LOG_DAMAGED", "LOG_HOLE"}
    assert sorted(finding.commit_log_offset or 0 for finding in of_log) == sorted(begin for begin, _ in found.log.lost)
    assert found.log.record_count == len(kept)


def test_a_newest_file_that_begins_with_a_hole_is_no_empty_file(tmp_path: Path) -> None:
    frames = write_files(tmp_path, file_count=2)
    in_last = [frame for frame in frames if offset_of(frame) >= FILE_BYTES]
    overwrite(log_file(tmp_path, 1), 0, bytes(len(in_last[0])))

    with pytest.raises(RecordCorruptedError, match=f"commit-log offset {FILE_BYTES} "):
        read(tmp_path)
    wanted = [row_of(frame) for frame in frames if frame is not in_last[0]]
    assert read(tmp_path, raw="true", corrupt="skip") == wanted


@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS_ON_SPARK)
def test_spark_leaves_out_what_was_damaged_and_nothing_else(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    kept, victims = damaged_log(tmp_path, seed)

    def frame_of(corrupt: str) -> Any:
        options = {"verify": "crc", "raw": "true", "corrupt": corrupt, "boundaryCache": "off", "splitBytes": "1024"}
        return spark.read.format("commitlog").options(**options).load(str(tmp_path))

    wanted = [(offset_of(frame), frame) for frame in kept]
    skipped = frame_of("skip").select("physicalOffset", "raw").collect()
    assert sorted((row.physicalOffset, bytes(row.raw)) for row in skipped) == wanted

    rows = [row.asDict() for row in frame_of("report").select("physicalOffset", "storeSize", "raw", "damage").collect()]
    assert sorted((row["physicalOffset"], bytes(row["raw"])) for row in rows if row["damage"] is None) == wanted
    assert bytes_in(reported(rows)) == bytes_of(victims)

    places = "|".join(str(offset_of(victim)) for victim in victims)
    with pytest.raises(PySparkException, match=rf"commit-log offset ({places})\b"):
        frame_of("fail").count()
