"""Damage and forged frames: an error that names the first byte, or exactly that left out; never a crash, never a wrong row."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.scan.log_files import LogFile
from pipeline.scan.scan import READ_BYTES, Damage, SplitBoundaryError, SplitScan
from pipeline.scan.splits import Split
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.walk.scan_layout import PLACE, STATED_OFFSET, SUMS
from tests.pipeline.brute_force import Row, make_reader, read, read_reader, row_of
from tests.pipeline.logs import FILE_BYTES, log_file, overwrite, write_files, write_log
from tests.store.walk.logs import frames_of, message, mixed_log, mutated
from tests.support.kernels import kernel_mode

__all__ = ["kernel_mode"]
MODES = ["skip", "report"]
BODY_AT = 88


def offset_of(frame: bytes) -> int:
    return int.from_bytes(frame[28:36], "big")


def offsets(rows: list[Row]) -> list[int]:
    return [row["physicalOffset"] for row in rows if row.get("damage") is None]


def damages(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["physicalOffset"], row["storeSize"]) for row in rows if row.get("damage") is not None]


DAMAGE = {
    "size negative": (0, struct.pack(">i", -5)),
    "size zero": (0, bytes(4)),
    "size enormous": (0, struct.pack(">i", (1 << 31) - 1)),
    "size to the file's end": (0, struct.pack(">i", FILE_BYTES)),
    "size one too large": (3, None),
    "magic": (4, b"\0\0\0\0"),
    "a blank too short": (0, struct.pack(">ii", 100, -875286124)),
    "body length negative": (84, struct.pack(">i", -1)),
    "body length too large": (84, struct.pack(">i", 1 << 30)),
    "another place": (28, struct.pack(">q", 12345)),
    "hosts said to be IPv6": (39, b"\x30"),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("split_bytes", [1024, 1 << 20])
@pytest.mark.parametrize("place", [0, 3])
def test_a_forged_head_is_named_and_only_it_is_left_out(
    tmp_path: Path, name: str, split_bytes: int, place: int, kernel_mode: str
) -> None:
    frames = write_files(tmp_path)
    victim = frames[place]
    at, data = DAMAGE[name]
    if data is None:
        data = bytes([victim[at] + 1])
    overwrite(log_file(tmp_path), offset_of(victim) + at, data)
    with pytest.raises(RecordCorruptedError, match=rf"commit-log offset {offset_of(victim)} .*0000000") as raised:
        read(tmp_path, splitBytes=split_bytes)
    assert raised.value.metadata["commitLogOffset"] == str(offset_of(victim))
    others = [offset_of(frame) for frame in frames if frame is not victim]
    assert offsets(read(tmp_path, splitBytes=split_bytes, corrupt="skip")) == others
    rows = read(tmp_path, splitBytes=split_bytes, corrupt="report", raw="true")
    assert offsets(sorted(rows, key=lambda row: row["physicalOffset"])) == others
    assert damages(rows) == [(offset_of(victim), len(victim))]
    (row,) = [row for row in rows if row["damage"] is not None]
    assert row["raw"] == victim[:at] + data + victim[at + len(data) :]
    assert row["topic"] == ""
    assert row["body"] is None


@pytest.mark.parametrize("split_bytes", [1024, 1 << 20])
def test_a_flipped_bit_in_a_body_is_seen_by_crc_alone(tmp_path: Path, split_bytes: int, kernel_mode: str) -> None:
    frames = write_files(tmp_path)
    victim = next(frame for frame in frames[4:] if len(frame) > 300)
    overwrite(log_file(tmp_path, offset_of(victim) // FILE_BYTES), offset_of(victim) % FILE_BYTES + BODY_AT + 9, b"!")
    assert len(read(tmp_path, splitBytes=split_bytes)) == len(frames)
    with pytest.raises(RecordCorruptedError, match=rf"offset {offset_of(victim)} is damaged: the body's CRC"):
        read(tmp_path, verify="crc", splitBytes=split_bytes)
    others = [offset_of(frame) for frame in frames if frame is not victim]
    assert offsets(read(tmp_path, verify="crc", corrupt="skip", splitBytes=split_bytes)) == others
    assert damages(read(tmp_path, verify="crc", corrupt="report", splitBytes=split_bytes)) == [
        (offset_of(victim), len(victim))
    ]


def test_a_record_elsewhere_is_read_when_nothing_is_verified(tmp_path: Path) -> None:
    frames = frames_of([message(body=b"one"), message(body=b"two")], base=1000)
    write_log(tmp_path, frames, file_bytes=4096)  # the file says 0
    with pytest.raises(RecordCorruptedError, match=r"offset 0 .* states commit-log offset 1000"):
        read(tmp_path)
    rows = read(tmp_path, verify="none", raw="true")
    assert rows == [row_of(frame) for frame in frames]


def test_a_frame_inside_a_body_is_never_a_record(tmp_path: Path) -> None:
    """Its size, magic and place are all right, and a search for the magic would take it for one."""
    outer_head = len(frames_of([message(body=b"")], base=0)[0])
    frames: list[bytes] = []
    offset = 0
    for _ in range(60):
        (inner,) = frames_of([message("forged", body=b"evil")], base=offset + BODY_AT)
        (frame,) = frames_of([message(body=inner)], base=offset)
        assert len(frame) == outer_head + len(inner)
        frames.append(frame)
        offset += len(frame)
    root = write_log(tmp_path, frames, file_bytes=1 << 16)
    for split_bytes in (1024, 1111, 5000):
        rows = read(root, splitBytes=split_bytes, raw="true", verify="crc")
        assert [row["raw"] for row in rows] == frames


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_page_of_zeros_in_a_closed_file(tmp_path: Path, mode: str) -> None:
    frames = write_files(tmp_path, file_bytes=32768)
    overwrite(log_file(tmp_path), 4096, bytes(4096))
    hit = [frame for frame in frames if offset_of(frame) < 8192 and offset_of(frame) + len(frame) > 4096]
    hole = (offset_of(hit[0]), sum(map(len, hit)))
    for split_bytes in (1024, 1 << 20):
        with pytest.raises(RecordCorruptedError, match=rf"offset {hole[0]} "):
            read(tmp_path, verify="crc", splitBytes=split_bytes)
        rows = read(tmp_path, corrupt=mode, verify="crc", splitBytes=split_bytes)
        assert offsets(rows) == [offset_of(frame) for frame in frames if frame not in hit]
        if mode == "report":
            found = damages(rows)
            assert found[0][0] == hole[0]
            assert sum(size for _, size in found) == hole[1]


def test_a_closed_file_without_its_blank(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    last = [frame for frame in frames if offset_of(frame) < FILE_BYTES][-1]
    end = offset_of(last) + len(last)
    overwrite(log_file(tmp_path), end, bytes(8))
    with pytest.raises(RecordCorruptedError, match=rf"offset {end} "):
        read(tmp_path)
    assert offsets(read(tmp_path, corrupt="skip")) == [offset_of(frame) for frame in frames]
    assert damages(read(tmp_path, corrupt="report")) == [(end, FILE_BYTES - end)]


def test_a_closed_file_that_was_cut_short(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    in_file = [frame for frame in frames if offset_of(frame) < FILE_BYTES]
    with log_file(tmp_path).open("r+b") as file:
        file.truncate(offset_of(in_file[-1]) + 50)
    with pytest.raises(StoreCorruptedError, match=r"ends at commit-log offset \d+.*corrupt=skip"):
        read(tmp_path)
    assert offsets(read(tmp_path, corrupt="skip")) == [offset_of(f) for f in frames if f is not in_file[-1]]


def test_a_missing_file_between_two_others(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    log_file(tmp_path, 1).unlink()
    with pytest.raises(StoreCorruptedError, match=f"{FILE_BYTES:020d}"):
        read(tmp_path)
    others = [offset_of(frame) for frame in frames if not FILE_BYTES <= offset_of(frame) < 2 * FILE_BYTES]
    assert offsets(read(tmp_path, corrupt="skip")) == others


def test_a_torn_record_at_the_log_s_end_ends_the_log(tmp_path: Path) -> None:
    frames = frames_of([message(body=bytes(200))] * 5, base=0)
    for cut in (1, 30, 90, 200, len(frames[4]) - 1):
        root = write_log(tmp_path / str(cut), [*frames[:4], frames[4][:cut]], file_bytes=1 << 16)
        assert offsets(read(root)) == [offset_of(frame) for frame in frames[:4]]


def test_damage_in_the_last_file_with_records_behind_it_is_no_end(tmp_path: Path) -> None:
    frames = frames_of([message(body=bytes(200))] * 5, base=0)
    root = write_log(tmp_path, [*frames[:2], bytes(len(frames[2])), *frames[3:]], file_bytes=1 << 16)
    with pytest.raises(RecordCorruptedError, match=f"offset {offset_of(frames[2])} "):
        read(root)
    assert damages(read(root, corrupt="report")) == [(offset_of(frames[2]), len(frames[2]))]
    assert offsets(read(root, corrupt="skip")) == [offset_of(f) for f in frames if f is not frames[2]]


def test_stale_records_behind_the_true_end_are_named(tmp_path: Path) -> None:
    """A tail that was cut and written over anew, out of step with what lay there before."""
    old = frames_of([message(body=bytes(150))] * 8, base=0)
    new = frames_of([message(body=bytes(150))] * 2 + [message(body=bytes(40))], base=0)
    data = b"".join(new) + b"".join(old)[sum(map(len, new)) :]
    root = write_log(tmp_path, [data], file_bytes=1 << 16)
    with pytest.raises(RecordCorruptedError, match=f"offset {sum(map(len, new))} "):
        read(root)


def test_a_boundary_that_is_none_stops_the_task(broker_store: Path) -> None:
    """Whoever planned it was wrong, or the file has changed: rows would be missing or doubled."""
    path = sorted((broker_store / "commitlog").iterdir())[0]
    file = LogFile(str(path), int(path.name), int(path.name) + path.stat().st_size)
    frames = [row["physicalOffset"] for row in read(broker_store, columns="physicalOffset")]
    for end in (frames[3] + 1, frames[4] - 1):
        scan = SplitScan(Split(file, frames[0], end), check=PLACE, row_count_max=100)
        with pytest.raises(SplitBoundaryError, match=rf"offset {frames[3]} .* beyond {end}"):
            list(scan)
        with pytest.raises(SplitBoundaryError):
            list(SplitScan(Split(file, frames[0], end), check=PLACE, row_count_max=100, over_damage=True))
    with pytest.raises(RecordCorruptedError, match=f"offset {frames[1] + 4} "):
        list(SplitScan(Split(file, frames[1] + 4, frames[5]), check=PLACE, row_count_max=100))


def test_a_file_deleted_between_plan_and_read(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    for fail in ("true", "false"):
        reader = make_reader(tmp_path, failOnDataLoss=fail)
        splits = reader.partitions()
        saved = log_file(tmp_path).read_bytes()
        log_file(tmp_path).unlink()
        if fail == "true":
            with pytest.raises(RecordCorruptedError, match=r"retention has deleted it.*failOnDataLoss=false"):
                list(reader.read(splits[0]))
        else:
            rows = [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]
            assert offsets(rows) == [offset_of(frame) for frame in frames if offset_of(frame) >= FILE_BYTES]
        log_file(tmp_path).write_bytes(saved)


def test_a_file_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    reader = make_reader(tmp_path, batchRows=1)
    (split, *_) = reader.partitions()
    batches = reader.read(split)
    first = next(batches)
    log_file(tmp_path).unlink()
    rows = first.to_pylist() + [row for batch in batches for row in batch.to_pylist()]
    assert offsets(rows) == [offset_of(frame) for frame in frames if offset_of(frame) < FILE_BYTES]


def scan_all(root: Path, size: int, **options: Any) -> list[Any]:
    file = LogFile(str(log_file(root)), 0, size)
    found: list[Any] = []
    for one in SplitScan(Split(file, 0, size, True), check=SUMS, row_count_max=64, **options):
        found += [one] if isinstance(one, Damage) else one.rows_64[STATED_OFFSET].tolist()
    return found


@given(seed=st.integers(0, 1 << 40))
def test_any_damage_ends_in_rows_or_in_an_error_that_names_an_offset(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    data = mutated(chance, mixed_log(chance, chance.randrange(1, 12), base=0))
    root = tmp_path_factory.mktemp("damaged")
    write_log(root, [data], file_bytes=len(data) + chance.choice((0, 0, 8, 300)))
    size = log_file(root).stat().st_size
    try:
        whole = scan_all(root, size)
    except RecordCorruptedError as error:  # not every one of them is
        assert 0 <= int(error.metadata["commitLogOffset"]) <= size  # noqa: PT017
        whole = None
    found = scan_all(root, size, over_damage=True)
    if whole is not None:
        assert found == whole
    for verify in ("none", "structure", "crc"):
        try:
            list(read_reader(make_reader(root, verify=verify, corrupt="report", splitBytes=1024, raw="true")))
        except SplitBoundaryError:
            assert verify == "none"  # the search for the next record looks at places, the walk does not


@given(data=st.binary(max_size=600), with_head=st.booleans())
def test_any_bytes_at_all(tmp_path_factory: pytest.TempPathFactory, data: bytes, with_head: bool) -> None:
    head = frames_of([message()], base=0)[0] if with_head else b""
    root = write_log(tmp_path_factory.mktemp("bytes"), [head, data], file_bytes=0)
    rows = read(root, corrupt="report", verify="crc")
    assert offsets(rows)[: len(head)] == ([0] if head else [])


def test_much_damage_costs_little_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_of([message(body=bytes(100))] * 400, base=0)
    spoiled = [bytes(len(frame)) if place % 2 else frame for place, frame in enumerate(frames)]
    root = write_log(tmp_path, spoiled, file_bytes=1 << 20)
    read_bytes = 0
    from store.files.file_system import RealFileSystem

    class Counting(RealFileSystem):
        def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
            nonlocal read_bytes
            size = super().pread_into(fd, buffer, position)
            read_bytes += size
            return size

    size = log_file(root).stat().st_size
    scan = SplitScan(
        Split(LogFile(str(log_file(root)), 0, size), 0, size),
        check=PLACE,
        row_count_max=64,
        over_damage=True,
        fs=Counting(),
    )
    assert sum(isinstance(one, Damage) for one in scan) == 200
    assert read_bytes < 200 * 4 * 65536 + 2 * READ_BYTES
