"""Index files that must be built again are kept aside when they are not ours and the log does not explain them.

What Reput wrote, and what the log gives again, is removed; entries of tags stay in place as long as their file may stay.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index_svc.__main__ import IndexPart
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from index_svc.unexplained import PAGE_BYTES, Keeper
from services.calling.commitlog import CommitLogClient
from services.following.file_check import log_of
from services.following.follower_process import LifeOverError, LogRange
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import index_keys
from store.derive.read_log import LogBatch, ReadLog
from store.errors import RecordNotFoundError
from store.files.aside import Aside, builder_folder
from store.files.file_system import RealFileSystem
from store.files.locks import create_abort_marker
from store.format.derived.index_layout import ENTRY_SIZE, entry_position, index_key, key_hash
from store.readers.index_reader import IndexLayout
from tests.support.builders import LAYOUT
from tests.support.dispatches import feed, file_bytes, make_request

REQUESTS = [make_request(number, unique_key=f"U{number}", keys=[f"k{number}"]) for number in range(70)]


def write_as_rocketmq_5_5(root: Path, requests: Sequence[DispatchRequest], layout: IndexLayout = LAYOUT) -> list[Path]:
    """Index files with the entries of unique key, keys and tags of each record; their paths."""
    files = IndexFileSet(root, RealFileSystem(), layout, lambda: 1_700_000_000_000)
    (root / "index").mkdir(parents=True)
    for request in requests:
        columns = DispatchColumns.of([request])
        tags = key_hash(index_key(request.topic, "T#A"))
        hashes = [*map(key_hash, index_keys(request)), tags]
        files.apply(_with_hashes(columns, hashes))
    files.flush()
    paths = files.paths()
    files.close()
    return paths


def _with_hashes(columns: DispatchColumns, hashes: Sequence[int]) -> DispatchColumns:
    return replace(
        columns, key_hashes=np.array(hashes, dtype=np.int32), key_records=np.zeros(len(hashes), dtype=np.int32)
    )


@dataclass
class Batch:
    """A LogBatch."""

    columns: DispatchColumns
    next_offset: int


def log_of_requests(requests: Sequence[DispatchRequest]) -> ReadLog:
    """A log that has these records, in batches of seven."""

    @contextmanager
    def read(offset: int) -> Iterator[Iterator[LogBatch]]:
        rest = [request for request in requests if request.commit_log_offset >= offset]
        if offset >= 0 and (not rest or rest[0].commit_log_offset != offset):
            raise RecordNotFoundError(f"no record at {offset}")
        parts = [rest[at : at + 7] for at in range(0, len(rest), 7)]
        yield iter([Batch(DispatchColumns.of(part), part[-1].next_offset) for part in parts])

    def open_log(offset: int) -> AbstractContextManager[Iterator[LogBatch]]:
        return read(offset)

    return open_log


class LogClient(CommitLogClient):
    """Streams the log of REQUESTS."""

    def __init__(self) -> None:
        pass

    def reput(self, offset: int, *_: object) -> Any:
        """See CommitLogClient."""
        return LogStream(REQUESTS[[each.commit_log_offset for each in REQUESTS].index(offset) :])


class LogStream:
    """A stream of batches of one record."""

    def __init__(self, requests: Sequence[DispatchRequest]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Batch]:
        return (Batch(DispatchColumns.of([each]), each.next_offset) for each in self._requests)

    def cancel(self) -> None:
        """Nothing is under way."""


def open_builder(
    root: Path,
    requests: Sequence[DispatchRequest] = REQUESTS,
    *,
    is_clean: bool = True,
    layout: IndexLayout = LAYOUT,
    log_first: int = 0,
    begins: bool = True,
    read_log: ReadLog | None = None,
) -> IndexBuilder:
    """A recovered builder over a log of these records, which begins unless it is killed before."""
    fs = RealFileSystem()
    keeper = Keeper(Aside(fs, root, builder_folder(root, "index")), read_log or log_of_requests(requests))
    files = IndexFileSet(root, fs, layout, lambda: 1_800_000_000_000, keeper=keeper)
    builder = IndexBuilder(files, root / "reput/index/checkpoint.json")
    builder.recover(
        is_clean_store=is_clean,
        log_first_offset=log_first,
        log_end_offset=requests[-1].next_offset,
        first_indexed=lambda offset: next(
            (r.commit_log_offset for r in requests if r.commit_log_offset > offset), None
        ),
    )
    if begins:
        builder.begin()
    return builder


def follow(builder: IndexBuilder, requests: Sequence[DispatchRequest] = REQUESTS) -> None:
    """Feeds the builder from where it begins to the log's end, and stops it."""
    start = builder.start_offset()
    rest = [request for request in requests if request.commit_log_offset >= start]
    feed(builder, rest, log_end_offset=requests[-1].next_offset)
    builder.stop()


def killed_after(root: Path, saved_count: int, count: int, requests: Sequence[DispatchRequest] = REQUESTS) -> None:
    """A life that is killed after so many records, and whose last checkpoint has fewer."""
    builder = open_builder(root, requests)
    feed(builder, requests[:saved_count], log_end_offset=requests[-1].next_offset)
    builder._prepare_checkpoint(is_clean=False)()
    feed(builder, requests[saved_count:count], log_end_offset=requests[-1].next_offset)
    assert builder._files.live is not None
    builder._files.live.flush()  # as when the next file begins: its header counts its entries


def change(path: Path, position: int, data: bytes) -> None:
    """Writes bytes into a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def kept(root: Path) -> dict[str, bytes]:
    """Everything that was moved aside, by its path below the numbered folder."""
    found = file_bytes(root / "reput/aside/index")
    return {name.partition("/")[2]: data for name, data in found.items()}


def test_files_with_entries_of_tags_stay_as_they_are_after_a_clean_stop_of_a_broker(tmp_path: Path) -> None:
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    before = [path.read_bytes() for path in paths]
    assert len(before) == 3
    for _ in range(2):
        follow(open_builder(tmp_path))
        assert [path.read_bytes() for path in paths] == before
    assert kept(tmp_path) == {}


def test_the_newest_file_of_a_killed_broker_is_kept_aside_with_its_entries_of_tags_and_built_again(
    tmp_path: Path,
) -> None:
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    newest = paths[-1].read_bytes()
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {f"index/{paths[-1].name}": newest}
    assert all(path.exists() for path in paths[:-1])


def test_a_stop_waited_until_a_brokers_file_was_compared_with_the_whole_log(tmp_path: Path) -> None:
    """What was begun is taken up again by the next start."""
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    before = {path.name: path.read_bytes() for path in paths}
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(LifeOverError):
        open_builder(tmp_path, is_clean=False, read_log=log_of(LogClient(), stopping))
    assert {path.name: path.read_bytes() for path in paths} == before
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {f"index/{paths[-1].name}": before[paths[-1].name]}


@pytest.mark.parametrize("other", [IndexLayout(40, 101), IndexLayout(50, 31)], ids=["slots", "entries"])
def test_a_file_of_another_size_is_kept_aside(tmp_path: Path, other: IndexLayout) -> None:
    (path, *_) = write_as_rocketmq_5_5(tmp_path, REQUESTS[:9], other)
    before = path.read_bytes()
    follow(open_builder(tmp_path))
    assert kept(tmp_path)[f"index/{path.name}"] == before


def test_files_whose_entries_point_behind_the_log_are_kept_aside(tmp_path: Path) -> None:
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    before = {f"index/{path.name}": path.read_bytes() for path in paths}
    follow(open_builder(tmp_path, REQUESTS[:40]), REQUESTS[:40])
    assert kept(tmp_path) == before


def test_a_file_that_another_program_added_after_a_kill_is_kept_aside(tmp_path: Path) -> None:
    killed = open_builder(tmp_path)
    feed(killed, REQUESTS[:20], log_end_offset=REQUESTS[-1].next_offset)
    killed._prepare_checkpoint(is_clean=False)()
    (other,) = write_as_rocketmq_5_5(tmp_path / "other", REQUESTS[30:40])
    added = tmp_path / "index" / "20991231235959999"
    added.write_bytes(other.read_bytes())
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {f"index/{added.name}": other.read_bytes()}


def test_a_kill_keeps_nothing_aside_of_the_files_that_the_builder_wrote_itself(tmp_path: Path) -> None:
    killed = open_builder(tmp_path)
    feed(killed, REQUESTS[:20], log_end_offset=REQUESTS[-1].next_offset)
    killed._prepare_checkpoint(is_clean=False)()
    feed(killed, REQUESTS[20:], log_end_offset=REQUESTS[-1].next_offset)
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {}
    assert len(list((tmp_path / "index").iterdir())) == 2


def test_a_store_that_its_broker_stopped_cleanly_is_clean_although_the_commit_log_has_opened_it(tmp_path: Path) -> None:
    create_abort_marker(RealFileSystem(), tmp_path)  # as the commit log of `reput serve` does, which starts first
    progress, no_client = FollowerProgress(), None
    client: Any = no_client
    part = IndexPart(
        RealFileSystem(), IndexSettings(store=tmp_path), IndexServicer(progress), progress, client, threading.Event()
    )
    assert part.is_clean_store(LogRange(0, 100, stopped_cleanly=True))
    assert not part.is_clean_store(LogRange(0, 100))


def test_files_that_were_filled_between_a_checkpoint_and_a_kill_leave_nothing_aside(tmp_path: Path) -> None:
    """Their headers count entries as those of another program do; the log has all of these entries."""
    many = [make_request(number, unique_key=f"U{number}", keys=[f"k{number}"]) for number in range(200)]
    killed_after(tmp_path, 20, 190, many)
    assert len(list((tmp_path / "index").iterdir())) == 4
    follow(open_builder(tmp_path, many, is_clean=False), many)
    assert kept(tmp_path) == {}


def test_a_file_that_a_full_disk_left_half_made_leaves_nothing_aside(tmp_path: Path) -> None:
    """Its checkpoint could not be written any more, and some of its pages did not get to the disk."""
    many = [make_request(number, unique_key=f"U{number}", keys=[f"k{number}"]) for number in range(200)]
    killed_after(tmp_path, 20, 120, many)
    newest = sorted((tmp_path / "index").iterdir())[-1]
    change(newest, entry_position(9, LAYOUT.slot_count), bytes(20 * ENTRY_SIZE))
    newest.with_name("20991231235959999").write_bytes(b"")
    follow(open_builder(tmp_path, many, is_clean=False), many)
    assert kept(tmp_path) == {}


@pytest.mark.parametrize("first_bytes", [4, 8, 12, 16])
@pytest.mark.parametrize("has_first", [False, True])
def test_an_entry_of_which_one_of_two_pages_is_on_the_disk_holds_nothing(
    tmp_path: Path, first_bytes: int, has_first: bool
) -> None:
    """A disk that is full takes the first page of a write, a power cut leaves any."""
    slot_count = next(
        count for count in range(50, 5000) if (PAGE_BYTES - entry_position(100, count)) % PAGE_BYTES == first_bytes
    )
    wide = IndexLayout(slot_count, 401)
    many = [make_request(number, unique_key=f"U{number}") for number in range(350)]
    killed = open_builder(tmp_path, many, layout=wide)
    feed(killed, many, log_end_offset=many[-1].next_offset)
    assert killed._files.live is not None
    killed._files.live.flush()
    (path,) = (tmp_path / "index").iterdir()
    begin = entry_position(100, slot_count)
    if has_first:
        change(path, begin + first_bytes, bytes(path.stat().st_size - begin - first_bytes))
    else:
        change(path, begin, bytes(first_bytes))
    (tmp_path / "reput/index/checkpoint.json").unlink()
    follow(open_builder(tmp_path, many, is_clean=False, layout=wide), many)
    assert kept(tmp_path) == {}


@pytest.mark.parametrize("is_killed", [False, True])
def test_our_own_newest_file_that_a_disk_damaged_does_not_stay_aside(tmp_path: Path, is_killed: bool) -> None:
    """An unfit checkpoint of ours: it still says which entries of the file Reput wrote."""
    if is_killed:
        killed_after(tmp_path, 60, 70)
    else:
        follow(open_builder(tmp_path))
    newest = sorted((tmp_path / "index").iterdir())[-1]
    change(newest, entry_position(15, LAYOUT.slot_count), b"damage")
    (tmp_path / "reput/index/checkpoint.json").write_text(
        (tmp_path / "reput/index/checkpoint.json").read_text().replace('"tail_crc":', '"tail_crc":1')
    )
    follow(open_builder(tmp_path, is_clean=not is_killed))
    assert kept(tmp_path) == {}


def test_our_own_files_of_a_layout_that_was_changed_before_a_checkpoint_named_them_are_built_again(
    tmp_path: Path,
) -> None:
    killed = open_builder(tmp_path)
    feed(killed, REQUESTS[:9], log_end_offset=REQUESTS[-1].next_offset)
    killed._checkpoint.unlink()
    save = IndexFileSet(tmp_path / "empty", RealFileSystem(), LAYOUT, lambda: 0)
    IndexBuilder(save, killed._checkpoint)._save_mark()
    follow(open_builder(tmp_path, is_clean=False, layout=IndexLayout(40, 91)))
    assert kept(tmp_path) == {}


def test_a_newest_file_of_a_killed_broker_that_the_log_gives_again_is_not_kept(tmp_path: Path) -> None:
    """RocketMQ 5.3.3 writes no entries of tags."""
    follow(open_builder(tmp_path))
    (tmp_path / "reput/index/checkpoint.json").unlink()
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {}


def test_damage_found_while_running_keeps_a_brokers_file_aside_and_not_our_own(tmp_path: Path) -> None:
    write_as_rocketmq_5_5(tmp_path, REQUESTS[:40])
    builder = open_builder(tmp_path)
    feed(builder, REQUESTS[38:], log_end_offset=REQUESTS[-1].next_offset)
    paths = sorted((tmp_path / "index").iterdir())
    assert len(paths) == 2
    for path in paths:
        change(path, entry_position(3, LAYOUT.slot_count), b"damage")
    data = {f"index/{path.name}": path.read_bytes() for path in paths}
    builder.rebuild_all()
    assert kept(tmp_path) == data  # our entries stand behind those of the broker
    for _ in range(2):
        follow(builder)
        builder = open_builder(tmp_path)
        for path in sorted((tmp_path / "index").iterdir()):
            change(path, entry_position(3, LAYOUT.slot_count), b"damage")
        builder.rebuild_all()
    assert kept(tmp_path) == data


def test_a_brokers_files_are_kept_aside_when_the_log_is_another_one_than_the_checkpoint_says(tmp_path: Path) -> None:
    """They were deleted once Reput had saved a checkpoint over them."""
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS[:40])
    before = paths[0].read_bytes()
    follow(open_builder(tmp_path))
    other = [make_request(number, topic="others", unique_key=f"V{number}") for number in range(69)]
    follow(open_builder(tmp_path, other), other)
    assert kept(tmp_path)[f"index/{paths[0].name}"] == before


def test_a_brokers_file_is_kept_aside_also_when_the_build_that_removes_it_was_killed_before(tmp_path: Path) -> None:
    """The mark of a build that was killed said that all files were ours."""
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    before = {f"index/{path.name}": path.read_bytes() for path in paths[1:]}
    assert len(paths) == 3
    for _ in range(2):
        open_builder(tmp_path, is_clean=False, begins=False)
    assert kept(tmp_path) == before


def test_what_a_broker_added_after_a_kill_to_our_own_file_is_kept_aside_before_it_is_cut(tmp_path: Path) -> None:
    killed_after(tmp_path, 20, 20)
    (path,) = (tmp_path / "index").iterdir()
    (other,) = write_as_rocketmq_5_5(tmp_path / "other", REQUESTS[20:25])
    begin, size = entry_position(1, LAYOUT.slot_count), 15 * ENTRY_SIZE
    added = other.read_bytes()[begin : begin + size]
    at = entry_position(41, LAYOUT.slot_count)
    change(path, at, added)
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {f"index/{path.name}.from.{at}": added.rstrip(b"\0")}


def test_entries_of_records_that_retention_removed_keep_no_file_aside(tmp_path: Path) -> None:
    write_as_rocketmq_5_5(tmp_path, REQUESTS[:20])
    rest = REQUESTS[30:]
    follow(open_builder(tmp_path, rest, is_clean=False, log_first=rest[0].commit_log_offset), rest)
    assert kept(tmp_path) == {}
