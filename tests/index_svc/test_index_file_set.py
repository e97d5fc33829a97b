"""Index files being filled: when the next is made, names, full disks, searches in between."""

import pytest

from index_svc.index_file_set import IndexFileSet, search_key
from store.derive.dispatch_columns import DispatchColumns
from store.errors import DiskFullError, InvalidArgumentError, InvalidPageTokenError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import IndexHeader, decode_index_header
from store.readers.index_reader import IndexLayout
from tests.support.dispatches import file_bytes, make_request

LAYOUT = IndexLayout(7, 5)  # four keys a file
T0 = 1_700_000_000_000


@pytest.fixture
def files(tmp_path):
    return IndexFileSet(tmp_path, RealFileSystem(), LAYOUT, lambda: T0)


def headers(files):
    files.flush()
    return [decode_index_header(path.read_bytes()) for path in files.paths()]


def test_a_message_without_keys_makes_the_next_file_once_the_newest_is_full(files):
    files.apply(DispatchColumns.of([make_request(0, keys="abcd", time_millis=T0)]))
    assert len(files.paths()) == 1

    files.apply(DispatchColumns.of([make_request(1)]))

    assert headers(files)[1] == IndexHeader(T0, T0, 0, 0, 0, 1)


def test_the_first_message_makes_the_first_file_though_it_has_no_keys(files):
    files.apply(DispatchColumns.of([make_request(0)]))

    assert headers(files) == [IndexHeader(0, 0, 0, 0, 0, 1)]


def test_the_keys_of_one_message_may_lie_in_two_files(files):
    files.apply(DispatchColumns.of([make_request(0, keys="abc"), make_request(1, keys="defg")]))

    assert [header.entry_count for header in headers(files)] == [5, 4]
    assert headers(files)[1].begin_commit_log_offset == 100


def test_names_rise_though_the_clock_stands_still(files):
    files.apply(DispatchColumns.of([make_request(n, keys="abcd") for n in range(5)]))

    names = [path.name for path in files.paths()]
    assert names == sorted(set(names))
    assert len(names) == 5


def test_what_was_applied_is_passed_over_down_to_the_key(files):
    requests = [make_request(n, keys="abcdef"[: n % 6]) for n in range(20)]
    files.apply(DispatchColumns.of(requests))
    files.flush()
    before = file_bytes(files.paths()[0].parent)

    files.apply(DispatchColumns.of(requests))
    files.apply(DispatchColumns.of(requests[-3:]))
    files.flush()

    assert file_bytes(files.paths()[0].parent) == before


class FullDisk(RealFileSystem):
    """Has no room after so many writes."""

    def __init__(self, write_count):
        self.writes_left = write_count

    def pwrite(self, fd, data, position):
        if self.writes_left <= 0:
            raise DiskFullError("full")
        self.writes_left -= 1
        super().pwrite(fd, data, position)

    def fsync_dir(self, path):
        if self.writes_left <= 0:
            raise DiskFullError("full")
        super().fsync_dir(path)


@pytest.mark.parametrize("write_count", range(20))
def test_rmq_7539_a_full_disk_leaves_no_half_files_and_the_next_try_completes(tmp_path, write_count):
    requests = [make_request(n, keys="abcdef"[: n % 6]) for n in range(20)]
    whole = IndexFileSet(tmp_path / "whole", RealFileSystem(), LAYOUT, lambda: T0)
    whole.apply(DispatchColumns.of(requests))
    whole.flush()
    fs = FullDisk(write_count)
    files = IndexFileSet(tmp_path / "full", fs, LAYOUT, lambda: T0)

    for _ in range(3):
        try:
            files.apply(DispatchColumns.of(requests))
        except DiskFullError:
            continue
    fs.writes_left = 10_000
    files.apply(DispatchColumns.of(requests))
    files.flush()

    assert list(file_bytes(tmp_path / "full").values()) == list(file_bytes(tmp_path / "whole").values())


def test_pages_follow_one_another_while_more_is_written(files):
    files.apply(DispatchColumns.of([make_request(n, keys=["k"]) for n in range(10)]))
    page = search_key(files, "orders", "k", page_size=4)
    assert page.commit_log_offsets == [900, 800, 700, 600]

    files.apply(DispatchColumns.of([make_request(n, keys=["k"]) for n in range(10, 20)]))
    seen = list(page.commit_log_offsets)
    while page.next_page_token:
        page = search_key(files, "orders", "k", page_size=4, page_token=page.next_page_token)
        seen += page.commit_log_offsets

    assert seen == [n * 100 for n in range(9, -1, -1)]


def test_a_key_twice_in_one_message_is_one_candidate(files):
    files.apply(DispatchColumns.of([make_request(0, keys=["k", "k", "x", "k"], unique_key="k")]))

    assert search_key(files, "orders", "k").commit_log_offsets == [0]


def test_a_last_page_that_is_just_full_has_no_token(files):
    files.apply(DispatchColumns.of([make_request(n, keys=["k"]) for n in range(4)]))

    assert search_key(files, "orders", "k", page_size=4).next_page_token == ""


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "٣", "9" * 20])
def test_a_token_that_is_no_offset_is_refused(files, token):
    with pytest.raises(InvalidPageTokenError):
        search_key(files, "orders", "k", page_token=token)


def test_a_negative_page_size_is_refused_and_a_huge_one_clamped(files):
    files.apply(DispatchColumns.of([make_request(n, keys=["k"]) for n in range(1100)]))

    assert len(search_key(files, "orders", "k", page_size=2**31 - 1).commit_log_offsets) == 1000
    assert len(search_key(files, "orders", "k").commit_log_offsets) == 64
    with pytest.raises(InvalidArgumentError):
        search_key(files, "orders", "k", page_size=-1)


def test_a_file_whose_name_is_no_date_does_not_stop_the_next_from_being_made(files, tmp_path):
    files.apply(DispatchColumns.of([make_request(0, keys="abcd", time_millis=T0)]))
    files.flush()
    path = files.paths()[0]
    path.rename(path.with_name("20261171105931892"))  # a month 17 that sorts behind now

    again = IndexFileSet(tmp_path, RealFileSystem(), LAYOUT, lambda: T0)
    again.adopt_sealed(again.paths())
    again.apply(DispatchColumns.of([make_request(1, keys="e", time_millis=T0)]))

    assert [path.name for path in again.paths()] == ["20261171105931892", "20261171105931893"]
