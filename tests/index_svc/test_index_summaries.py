"""Summaries of index files: the same matches with them and without, and made again whatever became of them."""

import errno
import os
import threading
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index_svc.index_file_set import IndexFileSet, search_key
from index_svc.index_summaries import IndexSummaries
from store.derive.dispatch_columns import DispatchColumns
from store.errors import FlushFailedError, ServiceUnavailableError, StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.files.overlay_file_system import OverlayFileSystem
from store.format.derived import index_summary
from store.format.derived.index_layout import entry_position
from store.format.derived.index_summary import PAGE_SIZE, TIME_UNKNOWN_EARLY, TimeSpan, decode_summary_header
from store.readers.index_reader import IndexLayout, Passed
from tests.support.dispatches import make_request
from tests.support.faulty_file_system import FaultyFileSystem
from tests.support.waiting import WAIT_SECONDS_MAX

LAYOUT = IndexLayout(7, 9)  # eight keys a file, and chains of all of them
T0 = 1_700_000_000_000


def open_files(root, *, fs=None, summarized=True, **options):
    """The files of a root, all but the newest sealed, as a start would adopt them."""
    fs = fs or RealFileSystem()
    summaries = IndexSummaries(root, fs, **{"retry_seconds": 0.001, **options}) if summarized else None
    files = IndexFileSet(root, fs, LAYOUT, lambda: T0, summaries=summaries)
    files.adopt_sealed(files.paths()[:-1])
    return files


def settle(files):
    assert files.summaries.settle(WAIT_SECONDS_MAX), "summaries are being made for ever"
    return files


def fill(files, requests):
    files.apply(DispatchColumns.of(requests))
    files.flush()


def requests_at(times, keys=("k",)):
    return [make_request(n, time_millis=time, keys=[keys[n % len(keys)], f"u{n}"]) for n, time in enumerate(times)]


def summary_paths(files):
    directory = files.summaries.directory
    return sorted(directory.iterdir()) if directory.exists() else []


def sealed_names(files):
    return [view.path.name for view in files.sealed_views()]


def candidates(files, key, begin=None, end=None, **page):
    return search_key(files, "orders", key, begin_millis=begin, end_millis=end, page_size=1000, **page)


def is_whole(files):
    """Whether each sealed file has a summary on the disk and in use."""
    names = [path.name for path in summary_paths(files)]
    return names == sealed_names(files) and all(view.summary for view in files.sealed_views())


@pytest.fixture
def filled(tmp_path):
    """Files of 100 records, two keys each, one a second: 25 of them, 24 sealed."""
    files = open_files(tmp_path)
    fill(files, requests_at([T0 + n * 1000 for n in range(100)], keys=("k", "other")))
    yield settle(files)
    files.close()


# Clocks that step back, stand still and run ahead: a foreign log has all of them.
STEPS = st.lists(st.sampled_from([0, 1, 400, 999, 1000, 2500, 60_000, -1, -700, -1000, -5000]), min_size=1, max_size=60)
WINDOWS = st.tuples(st.integers(-8_000, 70_000), st.integers(-8_000, 70_000)).map(sorted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=STEPS, windows=st.lists(WINDOWS, min_size=1, max_size=6), restart=st.sampled_from(["none", "kept", "lost"])
)
def test_whoever_compares_with_the_log_finds_the_same_with_summaries_and_without(
    tmp_path_factory, steps, windows, restart
):
    root = tmp_path_factory.mktemp("summaries")
    times = [T0 + sum(steps[: n + 1]) for n in range(len(steps))]
    requests = requests_at(times, keys=("a", "b", "c"))
    files = open_files(root)
    plain = open_files(root, summarized=False)
    try:
        fill(files, requests)
        settle(files)
        if restart != "none":
            files.close()
            if restart == "lost":
                for path in summary_paths(files):
                    path.unlink()
            files = settle(open_files(root))
            # What a start leaves to the builder, as the tests of recovery show.
            files.adopt_sealed(files.paths())
            settle(files)
        plain.adopt_sealed(plain.paths())
        by_offset = {request.commit_log_offset: request for request in requests}
        for key in ("a", "b", "c", "u0", f"u{len(times) - 1}", "nobody"):
            for begin, end in [*windows, (None, None)]:
                begin, end = (T0 + begin, T0 + end) if begin is not None else (None, None)  # noqa: PLW2901
                inside = {
                    offset
                    for offset, request in by_offset.items()
                    if key in request.keys and (begin is None or begin <= request.store_time_millis <= end)
                }
                found = candidates(files, key, begin, end).commit_log_offsets
                unsummarized = candidates(plain, key, begin, end).commit_log_offsets
                assert inside <= set(found) <= set(unsummarized), (key, begin, end)
                assert found == sorted(found, reverse=True)
    finally:
        files.close()
        plain.close()


def test_files_are_passed_over_by_time_and_by_key(filled):
    page = candidates(filled, "u50", T0 + 40_000, T0 + 60_000, explain=True)
    passed = {visit.name: visit.passed for visit in page.walk.visits}

    assert page.commit_log_offsets == [5000]
    times = [names for names, why in passed.items() if why is Passed.TIME]
    # 8 keys are 4 records: of 24 sealed files, six have records 40 to 60 (40-43, ..., 60-63).
    assert len(times) == 24 - 6
    walked = [visit for visit in page.walk.visits if visit.passed is Passed.NOT]
    assert len(walked) <= 3, "the file of record 50, the newest, and at most one false maybe"
    assert all(visit.read_bytes == 0 for visit in page.walk.visits if visit.passed is Passed.TIME)
    assert all(visit.read_bytes == PAGE_SIZE for visit in page.walk.visits if visit.passed is Passed.FILTER)


def test_a_file_sealed_while_keys_come_has_its_exact_times(filled):
    spans = [view.summary.header.time_span for view in filled.sealed_views()]
    assert spans == [(T0 + first * 1000, T0 + first * 1000 + 3000) for first in range(0, 96, 4)]


@pytest.mark.parametrize("case", ["missing", "empty", "cut", "zeros", "header", "version", "of another file"])
def test_a_summary_that_is_none_is_made_again(tmp_path, filled, case, monkeypatch):
    filled.close()
    paths = summary_paths(filled)
    whole = [path.read_bytes() for path in paths]
    damaged = paths[7]
    if case == "missing":
        damaged.unlink()
    elif case == "version":
        monkeypatch.setattr(index_summary, "VERSION", 2)
        header = decode_summary_header(whole[7][:PAGE_SIZE])
        monkeypatch.undo()
        assert header is None, "another version's reader takes ours for none, too"
        data = bytearray(whole[7])
        data[11] = 9
        data[:4] = zlib.crc32(data[4:PAGE_SIZE], 0).to_bytes(4, "big")
        damaged.write_bytes(data)
    else:
        data = {
            "empty": b"",
            "cut": whole[7][:-1],
            "zeros": bytes(len(whole[7])),
            "header": whole[7][:20] + b"\xff" + whole[7][21:],
            "of another file": whole[8],
        }[case]
        damaged.write_bytes(data)

    files = settle(open_files(tmp_path))

    assert is_whole(files)
    others = [path.read_bytes() for path in summary_paths(files)]
    # The times are what entries prove now; the filter is the same.
    assert [data[PAGE_SIZE:] for data in others] == [data[PAGE_SIZE:] for data in whole]
    assert others[:7] + others[8:] == whole[:7] + whole[8:]
    files.close()


def test_a_page_that_rots_hides_nothing_and_is_made_again(filled):
    view = filled.sealed_views()[12]  # records 48 to 51
    path = summary_paths(filled)[12]
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(PAGE_SIZE + 100)
        file.write(b"\xff" if whole[PAGE_SIZE + 100] != 0xFF else b"\x00")

    assert candidates(filled, "u50").commit_log_offsets == [5000]

    settle(filled)
    assert view.summary is not None
    assert path.read_bytes()[PAGE_SIZE:] == whole[PAGE_SIZE:]


def test_a_summary_that_somebody_removed_while_it_was_in_use_hides_nothing(filled):
    for path in summary_paths(filled):
        path.unlink()
    filled.summaries._files.close()

    assert candidates(filled, "u50").commit_log_offsets == [5000]
    assert candidates(filled, "u3").commit_log_offsets == [300]

    assert {path.name for path in summary_paths(settle(filled))} <= set(sealed_names(filled))
    assert all(view.summary for view in filled.sealed_views())


def test_files_whose_entries_cannot_be_get_no_summary_and_are_searched(tmp_path, filled):
    filled.close()
    path = filled.paths()[5]
    data = bytearray(path.read_bytes())
    position = entry_position(4, LAYOUT.slot_count)
    data[position + 16 : position + 20] = (8).to_bytes(4, "big")  # points forward
    path.write_bytes(data)
    for summary in summary_paths(filled):
        summary.unlink()

    files = settle(open_files(tmp_path))

    without = [view.path for view in files.sealed_views() if view.summary is None]
    assert without == [path]
    visits = candidates(files, "nobody at all", explain=True).walk.visits
    assert next(visit for visit in visits if visit.name == path.name).passed is Passed.NOT
    files.close()


@pytest.mark.parametrize("count", [-3, LAYOUT.entry_count_max + 1, 2**31 - 1])
def test_a_header_that_counts_what_cannot_be_takes_no_memory(tmp_path, filled, count):
    filled.close()
    path = filled.paths()[5]
    data = bytearray(path.read_bytes())
    data[36:40] = count.to_bytes(4, "big", signed=True)
    path.write_bytes(data)

    files = settle(open_files(tmp_path))

    assert [view.path for view in files.sealed_views() if view.summary is None] == [path]
    files.close()


def test_a_crash_between_seal_and_summary_leaves_work_for_the_next_start(tmp_path):
    fs = FaultyFileSystem()
    fs.fail("rename", errno.EIO, lasting=True)
    files = open_files(tmp_path, fs=fs, retry_seconds=60)
    fill(files, requests_at([T0 + n * 1000 for n in range(30)]))
    files.close()
    assert [path.suffix for path in summary_paths(files)] in ([], [".tmp"])

    files = settle(open_files(tmp_path))

    assert is_whole(files)
    assert not [path for path in summary_paths(files) if path.suffix == ".tmp"]
    files.close()


def test_a_failure_is_told_and_tried_again_and_never_reaches_the_builder(tmp_path, caplog):
    class Full(RealFileSystem):
        failures = 0

        def fdatasync(self, fd):
            if "summaries" in os.readlink(f"/proc/self/fd/{fd}") and Full.failures < 3:
                Full.failures += 1
                raise FlushFailedError("the disk refused", errno=errno.ENOSPC)
            super().fdatasync(fd)

    files = open_files(tmp_path, fs=Full())
    fill(files, requests_at([T0 + n * 1000 for n in range(30)]))

    assert is_whole(settle(files))
    assert Full.failures == 3
    assert "the disk refused" in caplog.text
    files.close()


def test_what_is_on_the_disk_goes_with_its_index_file(tmp_path, filled):
    hidden = filled.hide_expired(2_050, 100)  # records 0 to 19: five files
    filled.remove(hidden)

    assert len(hidden) == 5
    assert is_whole(filled)

    filled.clear()
    assert summary_paths(filled) == []


def test_a_file_that_goes_while_its_summary_is_made_leaves_none(tmp_path):
    reached, go_on = threading.Event(), threading.Event()

    class Held(RealFileSystem):
        def rename(self, source, target):
            if "summaries" in str(target):
                reached.set()
                assert go_on.wait(WAIT_SECONDS_MAX)
            super().rename(source, target)

    files = open_files(tmp_path, fs=Held())
    fill(files, requests_at([T0] * 6))
    assert reached.wait(WAIT_SECONDS_MAX)
    files.remove(files.hide_expired(10_000, 1))
    go_on.set()

    assert is_whole(settle(files))
    files.close()


def test_leftovers_of_files_that_went_are_swept_at_the_start(tmp_path, filled):
    filled.close()
    directory = filled.summaries.directory
    (directory / "20200101000000000").write_bytes(b"old")
    (directory / "20200101000000000.tmp").write_bytes(b"old")
    (directory / "somebody's notes").write_bytes(b"stay")
    filled.paths()[0].unlink()

    files = settle(open_files(tmp_path))

    names = {path.name for path in summary_paths(files)}
    assert names == {*sealed_names(files), "somebody's notes"}
    files.close()


def test_a_store_that_must_not_be_changed_uses_summaries_that_are_there_and_makes_none(tmp_path, filled):
    filled.close()
    summary_paths(filled)[3].unlink()
    before = [(path, path.read_bytes()) for path in summary_paths(filled)]

    files = settle(open_files(tmp_path, fs=OverlayFileSystem(), makes=False))

    assert [index for index, view in enumerate(files.sealed_views()) if view.summary is None] == [3]
    assert candidates(files, "u13").commit_log_offsets == [1300]
    assert [(path, path.read_bytes()) for path in summary_paths(files)] == before
    files.close()


def test_what_entries_do_not_prove_the_log_is_asked(tmp_path):
    """Several records in a file's first second: their seconds are 0, as are those of a clock that stepped back."""
    times = [T0, T0 - 300, T0 + 200, T0 + 5000] * 3
    files = open_files(tmp_path)
    fill(files, requests_at(times))
    settle(files).close()
    for path in summary_paths(files):
        path.unlink()
    asked = []

    def earliest_of(begin, end):
        asked.append((begin, end))
        if len(asked) == 1:
            raise ServiceUnavailableError("the log is away")
        return min(times[begin // 100 : end // 100 + 1])

    files = settle(open_files(tmp_path, earliest_of=earliest_of))
    assert len(asked) == len(files.sealed_views()) + 1, "asked again after it did not answer"
    assert {view.summary.header.time_span for view in files.sealed_views()} == {TimeSpan(T0 - 300, T0 + 5999)}
    files.close()

    for path in summary_paths(files):
        path.unlink()
    files = settle(open_files(tmp_path, earliest_of=lambda begin, end: None))
    assert {view.summary.header.begin_time_millis for view in files.sealed_views()} == {TIME_UNKNOWN_EARLY}
    files.close()


def test_an_index_file_that_cannot_be_read_does_not_keep_others_from_their_summaries(tmp_path, filled):
    filled.close()
    for path in summary_paths(filled):
        path.unlink()
    bad = filled.paths()[20]

    class Bad(RealFileSystem):
        tries = 0

        def open(self, path, flags, mode=0o644):
            if str(path) == str(bad) and Bad.tries < 6:
                Bad.tries += 1
                raise StoreCorruptedError("unreadable", file=path, offset=0)
            return super().open(path, flags, mode)

    with pytest.raises(StoreCorruptedError):
        open_files(tmp_path, fs=Bad())  # the set itself reads headers first
    Bad.tries = 0
    files = IndexFileSet(tmp_path, RealFileSystem(), LAYOUT, lambda: T0)
    files.adopt_sealed(files.paths()[:-1])
    summaries = IndexSummaries(tmp_path, Bad(), retry_seconds=0.001)
    summaries.want(files.sealed_views())
    assert summaries.settle(WAIT_SECONDS_MAX)
    assert all(view.summary for view in files.sealed_views())
    assert Bad.tries == 6
    summaries.close()
    files.close()


def test_closing_does_not_wait_for_the_rate(tmp_path, filled):
    filled.close()
    for path in summary_paths(filled):
        path.unlink()
    files = open_files(tmp_path, bytes_per_second_max=1.0)  # 160 s for a file
    files.close()
    assert summary_paths(files) == []
    assert files.summaries.settle(WAIT_SECONDS_MAX)
