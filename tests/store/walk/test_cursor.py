"""The cursor over records: one table of logs, whole and damaged, for the plain check and for the kernel."""

from dataclasses import dataclass
from typing import Any

import pytest

from store.compiled import loading
from store.derive.dispatch import DispatchRequest
from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFileQueue
from store.format.record import IncompleteRecordError, Record, encode_blank
from store.walk.checks import DispatchCheck, FullCheck, SizeCheck
from store.walk.cursor import Gap, OneFile, PieceBuffer, RecordCursor
from store.walk.record_runs import RecordRun, RunCheck
from store.walk.record_search import find_record_behind, find_record_in
from tests.store.walk.logs import closed, frames_of, message, open_files

FILE_BYTES = 2000
BIG = [message(body=bytes(700)) for _ in range(2)]


def frames(count: int, *, base: int = 0, guarded: bool = True) -> list[bytes]:
    """Ordinary records of one size, one behind the other."""
    return frames_of([message(body=b"%d" % (number % 10), guarded=guarded) for number in range(count)], base=base)


FOUR = frames(4)
SIZE = len(FOUR[0])
STARTS = [number * SIZE for number in range(4)]
WHOLE = b"".join(FOUR)
UNGUARDED = frames(3, guarded=False)
SECOND = frames(2, base=FILE_BYTES)
SECOND_STARTS = [FILE_BYTES, FILE_BYTES + SIZE]


def flipped(data: bytes, at: int) -> bytes:
    """The bytes with one bit of the byte `at` changed."""
    return data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :]


def put(data: bytes, at: int, other: bytes) -> bytes:
    """The bytes with others in their place from `at` on."""
    return data[:at] + other + data[at + len(other) :]


@dataclass(frozen=True)
class Case:
    """A log, and what a walk of it comes to.

    Attributes:
        contents: the bytes of its files, filled up with zeros to the longest.
        starts: of the records before the first damage.
        end: where a walk stops.
        why: a part of the reason; None for zeros and the end of the files.
        gaps: what a walk that goes on passes over.
        behind: the starts of the records behind damage.
    """

    contents: tuple[bytes, ...]
    starts: list[int]
    end: int
    why: str | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    behind: tuple[int, ...] = ()


CASES = {
    "zeros": Case((bytes(FILE_BYTES),), [], 0),
    "one byte of a file": Case((b"\0",), [], 0),
    "bytes that are no record": Case((b"no record at all",), [], 0, "magic"),
    "a few bytes": Case((b"abc",), [], 0, "cut off"),
    "records, then zeros": Case((WHOLE + bytes(500),), STARTS, len(WHOLE)),
    "records to the end of the file": Case((WHOLE,), STARTS, len(WHOLE)),
    "zeros too short for a head": Case((WHOLE + bytes(5),), STARTS, len(WHOLE)),
    "bytes too short for a head": Case((WHOLE + b"12345",), STARTS, len(WHOLE), "cut off"),
    "a blank closes the last file": Case((closed(*FOUR, size_bytes=FILE_BYTES),), STARTS, FILE_BYTES),
    "a blank of 8 bytes": Case((WHOLE + encode_blank(8),), STARTS, len(WHOLE) + 8),
    "a blank, then the next file": Case(
        (closed(*FOUR, size_bytes=FILE_BYTES), b"".join(SECOND)), STARTS + SECOND_STARTS, FILE_BYTES + 2 * SIZE
    ),
    "a blank, then an empty file": Case(
        (closed(*FOUR, size_bytes=FILE_BYTES), bytes(FILE_BYTES)), STARTS, FILE_BYTES
    ),
    "records to the end of a file, then the next one": Case(
        (WHOLE, b"".join(frames(1, base=len(WHOLE)))), [*STARTS, len(WHOLE)], len(WHOLE) + SIZE
    ),
    "a blank that ends before its file": Case(
        (WHOLE + encode_blank(100) + bytes(500), b"".join(frames(2, base=len(WHOLE) + 508))),
        STARTS, len(WHOLE), "does not end where its file ends",
        ((len(WHOLE), len(WHOLE) + 508),), (len(WHOLE) + 508, len(WHOLE) + 508 + SIZE),
    ),
    "a blank of a negative size": Case(
        (WHOLE + encode_blank(8)[4:] * 2 + bytes(50),), STARTS, len(WHOLE), "a blank claims"
    ),
    "a blank that claims 7 bytes": Case(
        ((WHOLE + bytes((0, 0, 0, 7)) + encode_blank(8)[4:] + bytes(50)),), STARTS, len(WHOLE), "claims 7 bytes"
    ),
    "a record that does not fit its file": Case(
        (WHOLE + put(frames(5)[4], 0, (1 << 20).to_bytes(4, "big")),), STARTS, len(WHOLE), "does not fit its file"
    ),
    "a record cut off by the end of the file": Case((WHOLE[:-1],), STARTS[:3], STARTS[3], "does not fit its file"),
    "a record cut off and filled with zeros": Case((WHOLE[:-60] + bytes(500),), STARTS[:3], STARTS[3], ""),
    "a flipped bit in a body": Case(
        (flipped(WHOLE, SIZE + 88),), STARTS[:1], SIZE, "CRC", ((SIZE, 2 * SIZE),), (2 * SIZE, 3 * SIZE)
    ),
    "a flipped bit in a guarded property": Case(
        (flipped(WHOLE, 2 * SIZE - 30),), STARTS[:1], SIZE, "CRC", ((SIZE, 2 * SIZE),), (2 * SIZE, 3 * SIZE)
    ),
    "a record that states another offset": Case(
        (put(WHOLE, SIZE, FOUR[2]),), STARTS[:1], SIZE, "states commit-log offset", ((SIZE, 2 * SIZE),), (2 * SIZE, 3 * SIZE)
    ),
    "zeros between records": Case(
        (put(WHOLE, SIZE, bytes(SIZE)),), STARTS[:1], SIZE, None, ((SIZE, 2 * SIZE),), (2 * SIZE, 3 * SIZE)
    ),
    "two places of damage": Case(
        (flipped(flipped(WHOLE, 88), 2 * SIZE + 88),), [], 0, "CRC",
        ((0, SIZE), (2 * SIZE, 3 * SIZE)), (SIZE, 3 * SIZE),
    ),
    "damage up to the next file": Case(
        (closed(*FOUR[:1], b"?" * 100, size_bytes=FILE_BYTES), b"".join(SECOND)),
        STARTS[:1], SIZE, "magic", ((SIZE, FILE_BYTES),), tuple(SECOND_STARTS),
    ),
    "records without a guard": Case(
        (b"".join(UNGUARDED) + bytes(500),),
        [0, len(UNGUARDED[0]), 2 * len(UNGUARDED[0])], 3 * len(UNGUARDED[0]),
    ),
    "a torn record without a guard": Case(
        (b"".join(UNGUARDED)[:-3] + bytes(503),), [0, len(UNGUARDED[0])], 2 * len(UNGUARDED[0]), "torn"
    ),
    "a record that lost its guard to a tear": Case(
        (b"".join(frames_of([message(), message(guarded=False)], base=0)) + b"junk" + bytes(50),),
        [0], len(frames_of([message()])[0]), "torn",
    ),
    "a record without a guard behind one with it, the last": Case(
        (b"".join(frames_of([message(), message(guarded=False)], base=0)) + bytes(500),),
        [0, len(frames_of([message()], base=0)[0])], len(b"".join(frames_of([message(), message(guarded=False)], base=0))),
    ),
    "a record larger than a piece": Case(
        (b"".join(frames_of(BIG, base=0)),), [0, len(frames_of(BIG)[0])], 2 * len(frames_of(BIG)[0])
    ),
}  # fmt: skip


def check_of(files: MappedFileQueue, mode: str) -> tuple[Any, FullCheck]:
    full = FullCheck(files)
    return (full if mode == "plain" else RunCheck(full)), full


def starts_of(taken: Any) -> list[int]:
    """Where the records start, of one record or of a run."""
    if isinstance(taken, Record):
        return [taken.commit_log_offset]
    assert isinstance(taken, RecordRun)
    starts, at = [], taken.at
    while at < taken.next_at:
        starts.append(taken.commit_log_offset + at - taken.at)
        at += int.from_bytes(taken.piece[at : at + 4], "big")
    return starts


@pytest.fixture(params=["plain", loading.OFF, loading.EAGER])
def mode(request: pytest.FixtureRequest) -> Any:
    """The plain check, the check with runs where no kernel can be had, and with the kernel."""
    before = loading.switch(loading.EAGER if request.param == loading.EAGER else loading.OFF)
    yield request.param
    loading.switch(before)


@pytest.mark.parametrize("piece_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("name", CASES)
def test_a_walk_that_stops_at_damage(name: str, mode: str, piece_bytes: int) -> None:
    case = CASES[name]
    files = open_files(*case.contents)
    check, full = check_of(files, mode)
    cursor = RecordCursor(files, 0, check, piece_bytes=piece_bytes)

    starts = [start for taken in cursor for start in starts_of(taken)]

    assert (starts, cursor.offset) == (case.starts, case.end)
    assert (cursor.why is None) == (case.why is None)
    assert case.why is None or case.why in str(cursor.why)
    assert str(case.end) in cursor.damage.metadata["commitLogOffset"]
    assert full.record_count == len(case.starts)
    assert full.last_record is None if not starts else full.last_record is not None
    assert cursor.record_behind() == (case.gaps[0][1] if case.gaps else None)


@pytest.mark.parametrize("buffer", [None, "reused"])
@pytest.mark.parametrize("name", CASES)
def test_a_walk_that_goes_on_behind_damage(name: str, mode: str, buffer: str | None) -> None:
    case = CASES[name]
    files = open_files(*case.contents)
    gaps: list[Gap] = []
    seen: list[int] = []

    def skip(gap: Gap) -> None:
        assert seen == [start for start in [*case.starts, *case.behind] if start < gap.begin]
        gaps.append(gap)

    read = PieceBuffer().read if buffer else None
    cursor = RecordCursor(files, 0, check_of(files, mode)[0], skip=skip, read=read)
    for taken in cursor:
        seen += starts_of(taken)

    assert seen == [*case.starts, *case.behind]
    assert tuple((gap.begin, gap.end) for gap in gaps) == case.gaps
    if gaps:
        assert (gaps[0].why is None) == (case.why is None)
    assert cursor.record_behind() is None


@pytest.mark.parametrize("end", [0, 20, SIZE - 1, SIZE, SIZE + 8, 4 * SIZE, FILE_BYTES, FILE_BYTES + SIZE])
def test_nothing_is_read_behind_a_declared_end(mode: str, end: int) -> None:
    files = open_files(closed(*FOUR, size_bytes=FILE_BYTES), b"".join(SECOND))
    starts = [*STARTS, *SECOND_STARTS]
    cursor = RecordCursor(files, 0, check_of(files, mode)[0], end_offset=end)

    assert [start for taken in cursor for start in starts_of(taken)] == [s for s in starts if s + SIZE <= end]
    if end in (20, SIZE - 1, SIZE + 8):  # inside a record
        assert isinstance(cursor.why, IncompleteRecordError)
        assert cursor.offset == end // SIZE * SIZE
    else:
        assert (cursor.why, cursor.offset) == (None, end)
    assert cursor.record_behind() is None


def test_a_blank_may_reach_beyond_the_declared_end(mode: str) -> None:
    files = open_files(closed(*FOUR, size_bytes=FILE_BYTES))
    cursor = RecordCursor(files, 0, check_of(files, mode)[0], end_offset=4 * SIZE + 20)
    assert len(list(cursor)) > 0
    assert (cursor.offset, cursor.why) == (FILE_BYTES, None)


def test_damage_is_searched_for_no_further_than_the_declared_end() -> None:
    files = open_files(flipped(WHOLE, SIZE + 88))
    gaps: list[Gap] = []
    cursor = RecordCursor(files, 0, FullCheck(files), end_offset=2 * SIZE, skip=gaps.append)
    assert [record.commit_log_offset for record in cursor] == [0]
    assert gaps == []
    assert find_record_behind(files, SIZE, 2 * SIZE) is None
    assert find_record_behind(files, SIZE, 2 * SIZE + 1) == 2 * SIZE
    assert find_record_behind(files, 0, 0) is None


def test_a_walk_begins_at_any_record_and_knows_the_guard_before_it(mode: str) -> None:
    files = open_files(WHOLE + UNGUARDED[0] + bytes(500))
    for start in STARTS:
        check, full = check_of(files, mode)
        cursor = RecordCursor(files, start, check)
        assert [s for taken in cursor for s in starts_of(taken)] == [s for s in STARTS if s >= start]
        full.begin(start)
        assert full.is_guarded == (start > 0)


@pytest.mark.parametrize("piece_bytes", [150, 1000])
def test_the_caller_is_told_how_far_the_walk_is_before_each_piece(mode: str, piece_bytes: int) -> None:
    files = open_files(closed(*FOUR, size_bytes=FILE_BYTES), b"".join(SECOND))
    told: list[int] = []
    check, full = check_of(files, mode)
    counts: list[int] = []

    def on_piece(offset: int) -> None:
        told.append(offset)
        counts.append(full.record_count)

    for _ in RecordCursor(files, 0, check, piece_bytes=piece_bytes, on_piece=on_piece):
        pass

    assert told == sorted(told)
    assert told[0] == 0
    starts = [*STARTS, *SECOND_STARTS]
    assert counts == [sum(start < offset for start in starts) for offset in told]


def test_sizes_and_places_by_the_heads_alone() -> None:
    """A body is neither read nor checked, and a record may be larger than a piece."""
    files = open_files(closed(*FOUR[:2], size_bytes=FILE_BYTES), flipped(b"".join(SECOND), 88))
    found = list(RecordCursor(files, 0, SizeCheck(), piece_bytes=150))
    assert found == [(start, SIZE) for start in [*STARTS[:2], *SECOND_STARTS]]


@pytest.mark.parametrize(
    ("data", "end", "why"),
    [
        (WHOLE + b"abc", len(WHOLE), "cut off"),
        (WHOLE + b"abcdefgh" + bytes(9), len(WHOLE), "magic"),
        (WHOLE + put(FOUR[0], 0, bytes((0, 0, 0, 20))), len(WHOLE), "size 20"),
        (WHOLE[:-1], 3 * SIZE, "reach beyond"),
        (WHOLE + bytes(50), len(WHOLE), None),
    ],
)
def test_sizes_end_where_there_is_no_head(data: bytes, end: int, why: str | None) -> None:
    cursor = RecordCursor(open_files(data), 0, SizeCheck())
    assert len(list(cursor)) == end // SIZE
    assert cursor.offset == end
    assert (cursor.why is None) == (why is None)
    assert why is None or why in str(cursor.why)


def test_without_a_log_no_record_is_torn() -> None:
    """A check of single records, as the archive makes it, has nothing that follows them."""
    torn = frames_of([message(guarded=False, properties="name only")], base=0)[0]
    full = FullCheck(None)
    full.begin(0)
    assert full.take(torn, 0, 0)[1] == len(torn)
    with pytest.raises(RecordCorruptedError, match="torn"):
        FullCheck(open_files(torn)).take(torn, 0, 0)


def test_what_builders_need_of_each_record() -> None:
    """Lengths and place are checked, sums are not."""
    files = open_files(flipped(WHOLE, 88) + put(FOUR[1], 30, b"\1"))
    cursor: RecordCursor[DispatchRequest] = RecordCursor(files, 0, DispatchCheck())
    assert [request.commit_log_offset for request in cursor] == STARTS
    assert "states commit-log offset" in str(cursor.why)


def test_one_file_by_itself() -> None:
    files = open_files(closed(*FOUR, size_bytes=FILE_BYTES), b"".join(SECOND))
    cursor = RecordCursor(OneFile(files.files[1]), FILE_BYTES, SizeCheck())
    assert [start for start, _ in cursor] == SECOND_STARTS
    assert OneFile(files.files[1]).find(0) is None


def test_a_log_without_files_has_no_records() -> None:
    cursor = RecordCursor(MappedFileQueue(None, None, 1), 0, DispatchCheck())  # type: ignore[arg-type] # no file, no disk
    assert list(cursor) == []
    assert (cursor.offset, cursor.why) == (0, None)


def test_a_file_that_grows_shorter_is_told_as_cut_off(mode: str) -> None:
    """The file on the disk is shorter than its neighbours say: an interrupted creation."""
    files = open_files(closed(*FOUR, size_bytes=FILE_BYTES), b"".join(SECOND)[: SIZE + 110])
    files.files[1]._fs.ftruncate(files.files[1].fd, SIZE + 110)
    cursor = RecordCursor(files, 0, check_of(files, mode)[0])
    assert [start for taken in cursor for start in starts_of(taken)] == [*STARTS, FILE_BYTES]
    assert isinstance(cursor.why, IncompleteRecordError)


@pytest.mark.parametrize("place", range(40))
def test_a_magic_number_is_no_record(place: int) -> None:
    """Bytes that look like a head behind damage are checked whole, wherever pieces of the search end."""
    shifted = frames(2, base=place + SIZE)
    log = b"?" * place + FOUR[0] + b"".join(shifted)
    files = open_files(log)
    assert find_record_in(files.files[0], -1 + (place == 0)) == place + SIZE
    assert find_record_in(files.files[0], place + SIZE) == place + 2 * SIZE
    assert find_record_in(files.files[0], place + 2 * SIZE) is None


def test_a_magic_number_without_room_for_a_size_before_it_is_no_record() -> None:
    files = open_files(bytes(FILE_BYTES), FOUR[0][4:] + b"?" * (FILE_BYTES - SIZE + 4))
    assert find_record_behind(files, 0) is None


def test_a_search_finds_a_head_across_two_of_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(4, 60):
        monkeypatch.setattr("store.walk.record_search.SEARCH_BYTES", size)
        files = open_files(b"?" * 50 + b"".join(frames(1, base=50)))
        assert find_record_in(files.files[0], 0) == 50


def test_damage_that_is_none_of_the_above_names_its_offset(mode: str) -> None:
    files = open_files(WHOLE + bytes(100))
    cursor = RecordCursor(files, 0, check_of(files, mode)[0])
    list(cursor)
    assert isinstance(cursor.damage, RecordCorruptedError)
    assert "there are zeros" in cursor.damage.message
