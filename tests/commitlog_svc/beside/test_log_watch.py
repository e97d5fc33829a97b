"""LogWatch on a log that is written beside it, in hostile orders."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog_svc.beside.log_watch import (
    DAMAGE_SECONDS,
    REFRESH_SECONDS,
    SETTLE_SECONDS,
    LogWatch,
    WatchedLog,
)
from store.errors import LogChangedError
from store.files.file_system import RealFileSystem
from store.files.owners_files import OwnersFiles
from tests.commitlog_svc.beside.growing_log import FILE_SIZE_BYTES, GrowingLog, SourceLog, source_log

# A record is finished before its bytes count as settled.
PIECE_SECONDS = SETTLE_SECONDS / 20
PIECE_COUNT_MAX = 12
WINDOW = 24  # records that a run writes


class Bench:
    """A watch with a clock of its own."""

    def __init__(self, root: Path) -> None:
        self.now = 100.0
        self.log = GrowingLog(root)
        self.files = OwnersFiles(RealFileSystem(), self.log.directory, FILE_SIZE_BYTES)
        self.files.load()
        self.removed: list[tuple[int, int, int]] = []
        self.watch = LogWatch(
            self.files,
            WatchedLog(self.files.first_offset),
            on_removed=lambda *event: self.removed.append(event),
            clock=lambda: self.now,
        )

    def look(self, after_seconds: float = 0.0) -> int:
        """Look once after a time; what is shown then."""
        self.now += after_seconds
        self.watch.look()
        return self.watch.shown_offset

    def settle(self) -> int:
        """Look until what is there now has settled; what is shown then."""
        self.look(REFRESH_SECONDS)
        self.look(SETTLE_SECONDS)
        return self.look(SETTLE_SECONDS)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceLog:
    return source_log(tmp_path_factory.mktemp("fixture"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def write_whole(bench: Bench, source: SourceLog, end: int) -> None:
    """The log up to an offset, in one go."""
    for first, data in source.files.items():
        if first < end:
            bench.log.write(first, data[: end - first])


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_shown_is_always_a_prefix_of_whole_records(source: SourceLog, data: st.DataObject) -> None:
    """Each record comes in pieces of any size in any order, and any number of looks lies between two pieces."""
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch))
        frames = source.frames[:WINDOW]
        for offset, frame in frames:
            count = data.draw(st.integers(0, PIECE_COUNT_MAX - 1))
            cuts = sorted({0, len(frame), *data.draw(st.lists(st.integers(1, len(frame) - 1), max_size=count))})
            for begin, end in data.draw(st.permutations(list(pairwise(cuts)))):
                bench.log.write(offset + begin, frame[begin:end])
                for _ in range(data.draw(st.integers(0, 2))):
                    shown = bench.look(PIECE_SECONDS / 2)
                    assert shown in source.ends
                    assert shown <= offset + len(frame)
                    assert bench.log.read(0, shown) == source.read(0, shown)
            bench.look(data.draw(st.sampled_from([0.0, SETTLE_SECONDS])))
        assert bench.settle() == frames[-1][0] + len(frames[-1][1])
        assert bench.watch.damage is None


def test_records_go_on_in_a_new_file_that_is_empty_first(bench: Bench, source: SourceLog) -> None:
    """The owner makes a file, gives it its size later, and writes it then."""
    end = max(source.ends)
    bench.log.write(0, source.files[0])
    assert bench.settle() == FILE_SIZE_BYTES, "the blank closes the first file"
    bench.log.make_file(FILE_SIZE_BYTES, size_bytes=0)
    assert bench.settle() == FILE_SIZE_BYTES
    bench.log.make_file(FILE_SIZE_BYTES)
    assert bench.settle() == FILE_SIZE_BYTES
    write_whole(bench, source, end)
    assert bench.settle() == end
    assert bench.watch.record_count >= len(source.frames)
    assert bench.watch.damage is None


def test_a_log_of_one_file_that_still_grows_is_followed(bench: Bench, source: SourceLog) -> None:
    """A copy by appending: the size of the file is known only when the next one begins."""
    for first, data in source.files.items():
        path = bench.log.path_of(first)
        for end in range(0, FILE_SIZE_BYTES, FILE_SIZE_BYTES // 3):
            path.write_bytes(data[:end])
            assert bench.settle() in source.ends | {first, first + FILE_SIZE_BYTES}
        path.write_bytes(data)
        bench.settle()
    assert bench.settle() == max(source.ends)


def test_a_half_written_record_is_waited_for_and_no_damage(bench: Bench, source: SourceLog) -> None:
    (first, frame), (second, half) = source.frames[:2]
    bench.log.write(first, frame)
    bench.log.write(second, half[: len(half) // 2])
    for _ in range(10):
        assert bench.look(2 * DAMAGE_SECONDS) <= second
    assert bench.watch.shown_offset == second
    assert bench.watch.damage is None
    assert bench.watch.known_end_offset == second + len(half), "its head says how long it will be"
    bench.log.write(second, half)
    assert bench.settle() == second + len(half)


@pytest.mark.parametrize("kind", ["body", "zeros"])
def test_damage_with_a_whole_record_behind_it_is_reported_when_it_stays(
    bench: Bench, source: SourceLog, kind: str
) -> None:
    offset, frame = source.frames[5]
    write_whole(bench, source, source.frames[10][0])
    bad = bytes(len(frame)) if kind == "zeros" else bytes(byte ^ 0x55 for byte in frame[88:120])
    bench.log.write(offset + (0 if kind == "zeros" else 88), bad)

    assert bench.settle() == offset
    assert bench.look(DAMAGE_SECONDS - 1) == offset
    assert bench.watch.damage is None, "it may be written still"
    for _ in range(4):
        bench.look(DAMAGE_SECONDS / 2)
    damage = bench.watch.damage
    assert damage is not None
    assert damage.metadata["commitLogOffset"] == str(offset)
    assert damage.metadata["offset"] == str(offset)
    assert damage.metadata["file"] == str(bench.log.path_of(0))

    bench.log.write(offset, frame)
    assert bench.settle() == source.frames[10][0]
    assert bench.watch.damage is None, "the file was brought back"


def test_files_that_the_owner_removes_move_the_first_offset(bench: Bench, source: SourceLog) -> None:
    write_whole(bench, source, max(source.ends))
    bench.settle()
    bench.log.path_of(0).unlink()
    bench.settle()
    assert bench.removed == [(0, FILE_SIZE_BYTES, 1)]
    assert bench.files.first_offset == FILE_SIZE_BYTES
    assert bench.watch.shown_offset == max(source.ends)


def test_what_is_removed_before_it_was_shown_is_passed_and_counted(bench: Bench, source: SourceLog) -> None:
    bench.log.write(0, source.read(0, source.frames[3][0]))
    bench.settle()
    write_whole(bench, source, max(source.ends))
    bench.log.path_of(0).unlink()
    assert bench.settle() == max(source.ends)
    assert bench.removed == [(0, FILE_SIZE_BYTES, 1)]


def test_a_log_that_was_cut_and_written_on_is_another_one(bench: Bench, source: SourceLog) -> None:
    """RocketMQ leaves the old bytes behind the cut until new records come."""
    end = source.frames[20][0]
    write_whole(bench, source, end)
    assert bench.settle() == end
    cut, frame = source.frames[18]
    bench.log.write(cut, bytes(byte ^ 1 for byte in frame))
    with pytest.raises(LogChangedError, match="cut the log"):
        bench.look()


def test_a_last_file_that_is_gone_is_noticed(bench: Bench, source: SourceLog) -> None:
    write_whole(bench, source, max(source.ends))
    bench.settle()
    bench.log.path_of(max(source.ends)).unlink()
    with pytest.raises(LogChangedError, match="removed or replaced"):
        bench.look(REFRESH_SECONDS)


def test_a_store_that_begins_anew_is_noticed(bench: Bench, source: SourceLog) -> None:
    write_whole(bench, source, source.frames[9][0])
    bench.settle()
    bench.log.path_of(0).unlink()
    bench.log.write(0, source.read(0, source.frames[9][0]))
    with pytest.raises(LogChangedError, match="removed or replaced"):
        bench.look(REFRESH_SECONDS)


def test_a_file_that_was_made_ahead_may_go_again(bench: Bench, source: SourceLog) -> None:
    """A broker makes the next file before it needs it, and drops it when it starts again."""
    end = source.frames[9][0]
    write_whole(bench, source, end)
    bench.log.make_file(FILE_SIZE_BYTES)
    assert bench.settle() == end
    bench.log.path_of(FILE_SIZE_BYTES).unlink()
    assert bench.settle() == end
    assert bench.removed == []
