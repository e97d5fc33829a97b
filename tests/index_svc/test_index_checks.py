"""Index files damaged while they are served, or between two starts: answers say so, and each file is built again alone."""

import errno
import os
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from index_svc.index_checks import IndexChecks
from index_svc.key_search import search_key
from index_svc.servicer import IndexServicer
from reput.index.v1 import index_service_pb2 as pb
from services.following import file_check
from services.following.file_check import FileChecker
from store.derive.dispatch_columns import DispatchColumns
from store.errors import StoreCorruptedError
from store.files.checksums import ChecksumTable
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import HEADER_SIZE, SLOT_SIZE, entry_position
from store.readers.index_reader import list_index_files
from tests.support.builders import LAYOUT, Clock, follow, index_bytes, open_index
from tests.support.dispatches import make_request

FS = RealFileSystem()
# 3 keys each, every sixth record without any: 750 keys in 8 files, and records whose keys lie in two files.
REQUESTS = [
    make_request(n, keys=["all", f"b{n % 17}"] if n % 6 else [], unique_key=f"u{n}" if n % 6 else "")
    for n in range(300)
]
MATCH_COUNT = 250
SLOTS = HEADER_SIZE, LAYOUT.slot_count * SLOT_SIZE
ENTRIES = entry_position(1, LAYOUT.slot_count), 100 * 20


class SteadyStamps(RealFileSystem):
    """A file system on which bytes rot without any sign."""

    def __init__(self):
        self.known = {}

    def stamp(self, path):
        return self.known.setdefault(str(path), super().stamp(path))


class Service:
    """Builder and checks over one root, all in the calling thread."""

    def __init__(self, root, requests=REQUESTS, *, fs=FS, log_first_offset=0):
        self.requests, self.log_first_offset = requests, log_first_offset
        self.clock, self.read_from = Clock(), []
        table = ChecksumTable(fs, root / "reput/index/checksums.json")
        self.builder = open_index(root, requests, fs=fs, checksums=table, log_first_offset=log_first_offset)
        self.set = self.builder._files
        self.checks = IndexChecks(
            self.set,
            table,
            self.read_log,
            self.builder.progress,
            self.builder.rebuild_live,
            self.builder.rebuild_all,
        )
        self.checker = FileChecker(
            "index",
            fs,
            self.checks.files,
            table,
            self.builder.hand_over,
            bytes_per_second_max=1 << 40,
            clock=self.clock,
        )
        self.builder.checker = self.checker
        self.checker.look(self.checks.files())

    @contextmanager
    def read_log(self, offset):
        self.read_from.append(offset)
        start = max(offset, self.log_first_offset)
        wanted = [request for request in self.requests if request.commit_log_offset >= start]
        parts = (wanted[at : at + 7] for at in range(0, len(wanted), 7))
        yield (SimpleNamespace(columns=DispatchColumns.of(part), next_offset=part[-1].next_offset) for part in parts)

    def follow(self):
        follow(self.builder, self.requests, log_first_offset=self.log_first_offset)

    def check(self, seconds=1.0):
        """What the thread of the checks does in some seconds, and then the builder's next heartbeat."""
        self.clock.seconds += seconds
        while self.checker.step():
            pass
        end = self.requests[-1].next_offset
        if not self.builder.apply([], end, self.log_first_offset, end):
            self.follow()

    def settle(self):
        for _ in range(4):
            self.check(20)

    def search(self):
        page = search_key(self.set, "orders", "all", page_size=1000)
        return len(page.commit_log_offsets), page.damaged_chain_count > 0

    def paths(self):
        return list_index_files(FS, self.set._root)


def zero(position, size_bytes):
    def damage(path):
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(bytes(size_bytes))

    return damage


def replace_by_another(path):
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    zero(*SLOTS)(copy)
    os.replace(copy, path)


DAMAGES = {
    "zeroed slots": zero(*SLOTS),
    "zeroed entries": zero(*ENTRIES),
    "zeroed header": zero(0, HEADER_SIZE),
    "a zeroed file": zero(0, LAYOUT.file_size_bytes),
    "a truncated header": lambda path: os.truncate(path, 20),
    "an empty file": lambda path: os.truncate(path, 0),
    "no file": lambda path: path.unlink(),
    "another file": replace_by_another,
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("/nowhere/at/all")),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    root = tmp_path_factory.mktemp("expected")
    service = Service(root)
    service.follow()
    service.builder.stop()
    return index_bytes(root)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path)
    service.follow()
    service.settle()
    assert service.search() == (MATCH_COUNT, False)
    return service


@pytest.mark.parametrize("number", [0, 3, 6])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_sealed_file_damaged_under_the_service_makes_answers_partial_at_once_and_is_built_again_alone(
    service, expected, damage, number
):
    path = service.paths()[number]
    others = {other: other.stat().st_ino for other in service.paths() if other != path}
    DAMAGES[damage](path)

    service.checker.look(service.checks.files())

    assert service.search()[1], "the answer is not partial"
    service.settle()
    assert service.search() == (MATCH_COUNT, False)
    assert {other: other.stat().st_ino for other in service.paths() if other != path} == others
    service.builder.stop()
    if damage not in ("a directory", "a pipe", "a link to nothing"):
        assert index_bytes(service.set._root) == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_sealed_file_damaged_while_stopped_is_partial_from_the_first_answer_on(tmp_path, service, expected, damage):
    service.builder.stop()
    DAMAGES[damage](service.paths()[3])

    again = Service(tmp_path)

    assert again.search()[1], "the answer is not partial"
    again.follow()
    again.settle()
    assert again.search() == (MATCH_COUNT, False)
    again.builder.stop()
    if damage not in ("a directory", "a pipe", "a link to nothing"):
        assert index_bytes(tmp_path) == expected


@pytest.mark.parametrize("damage", ["zeroed slots", "zeroed entries", "a zeroed file", "zeroed header"])
def test_damage_that_sets_the_old_time_again_is_found_by_the_first_check(tmp_path, service, expected, damage):
    path = service.paths()[3]
    before = path.stat()
    DAMAGES[damage](path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    service.settle()

    assert service.search() == (MATCH_COUNT, False)
    service.builder.stop()
    assert index_bytes(tmp_path) == expected


def test_rot_without_any_sign_is_found_by_the_next_pass(tmp_path, expected):
    service = Service(tmp_path, fs=SteadyStamps())
    service.follow()
    service.settle()
    DAMAGES["zeroed slots"](service.paths()[3])
    service.settle()
    assert service.search()[0] < MATCH_COUNT, "the test damages nothing"

    service.check(file_check.PASS_SECONDS)

    assert service.search() == (MATCH_COUNT, False)
    service.builder.stop()
    assert index_bytes(tmp_path) == expected


@pytest.mark.parametrize("damage", ["zeroed entries", "a zeroed file", "an empty file", "no file", "another file"])
def test_the_file_that_is_being_filled_is_compared_with_what_the_builder_remembers(tmp_path, service, expected, damage):
    damage = DAMAGES["zeroed entries" if damage == "another file" else damage]
    sealed = {path: path.stat().st_ino for path in service.paths()[:-1]}
    damage(service.paths()[-1])

    service.checker.look(service.checks.files())

    assert service.search()[1], "the answer is not partial"
    service.settle()
    assert service.search() == (MATCH_COUNT, False)
    assert {path: path.stat().st_ino for path in service.paths()[:-1]} == sealed
    service.builder.stop()
    assert index_bytes(tmp_path) == expected


def test_entries_of_the_newest_file_zeroed_while_stopped_are_found_after_the_start(tmp_path, service, expected):
    service.builder.stop()
    zero(entry_position(1, LAYOUT.slot_count), 20 * 10)(service.paths()[-1])

    again = Service(tmp_path)
    again.follow()
    again.settle()

    assert again.search() == (MATCH_COUNT, False)
    again.builder.stop()
    assert index_bytes(tmp_path) == expected


def test_files_of_an_older_version_get_a_checksum_when_they_are_first_read(tmp_path, expected):
    before = open_index(tmp_path, REQUESTS)
    follow(before, REQUESTS)
    before.stop()
    service = Service(tmp_path)
    service.follow()
    service.settle()
    DAMAGES["zeroed slots"](service.paths()[2])

    service.checker.look(service.checks.files())

    assert service.search()[1], "the answer is not partial"
    service.settle()
    assert service.search() == (MATCH_COUNT, False)
    service.builder.stop()
    assert index_bytes(tmp_path) == expected


def test_a_file_whose_first_records_expired_is_built_again_from_the_others(tmp_path, service):
    service.builder.stop()
    first = REQUESTS[60].commit_log_offset  # in the middle of a file
    again = Service(tmp_path, log_first_offset=first)
    again.follow()
    again.settle()
    path = next(view.path for view in again.set.sealed_views() if view.header().end_commit_log_offset >= first)
    DAMAGES["a zeroed file"](path)
    again.settle()

    found, is_partial = again.search()

    assert not is_partial
    assert found >= sum(bool(request.keys) for request in REQUESTS if request.commit_log_offset >= first)


def test_another_owner_mode_or_link_of_a_file_makes_no_answer_partial(tmp_path, service):
    path = service.paths()[3]
    os.link(path, tmp_path / "link")
    path.chmod(0o600)

    service.checker.look(service.checks.files())
    assert service.search() == (MATCH_COUNT, False)

    service.read_from.clear()
    service.settle()
    assert service.search() == (MATCH_COUNT, False)
    assert service.read_from == []


def test_a_file_that_cannot_be_built_again_stays_partial(service):
    path = service.paths()[3]
    DAMAGES["a zeroed file"](path)
    service.read_log = None
    service.checks.read_log = contextmanager(lambda offset: iter([iter([])]))
    service.clock.seconds += 1

    with pytest.raises(Exception, match="cannot be built again"):
        while service.checker.step():
            pass

    assert service.search()[1]


def test_an_index_that_grows_while_it_is_checked_is_never_in_doubt(tmp_path):
    service = Service(tmp_path)
    for end in range(10, 301, 10):
        part = REQUESTS[:end]
        service.builder.apply(part, part[-1].next_offset, 0, part[-1].next_offset)
        service.clock.seconds += 20
        while service.checker.step():
            pass
        assert not service.search()[1]
    assert service.read_from == []


def damage_unseen(path, damage):
    before = path.stat()
    DAMAGES[damage](path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_zeroed_header_does_not_make_retention_remove_the_file(service):
    damage_unseen(service.paths()[0], "zeroed header")

    assert service.set.hide_expired(REQUESTS[10].commit_log_offset, 10) == []


def test_a_zeroed_header_of_a_file_without_a_checksum_does_not_make_retention_remove_it(tmp_path):
    before = open_index(tmp_path, REQUESTS)
    follow(before, REQUESTS)
    assert len(before._files.sealed_views()) > 1
    view = before._files.sealed_views()[0]
    view.known_header = None
    DAMAGES["zeroed header"](view.path)

    assert before._files.hide_expired(REQUESTS[10].commit_log_offset, 10) == []


@pytest.mark.parametrize("damage", ["zeroed header", "zeroed slots"])
def test_the_newest_file_is_not_followed_on_from_a_damaged_file_before_it(tmp_path, service, expected, damage):
    damage_unseen(service.paths()[-2], damage)
    live = next(file for file in service.checks.files() if file.path == service.paths()[-1])
    DAMAGES["zeroed entries"](live.path)

    service.checker.check(live)
    end = REQUESTS[-1].next_offset
    assert not service.builder.apply([], end, 0, end)
    service.follow()
    service.settle()

    assert service.search() == (MATCH_COUNT, False)
    service.builder.stop()
    assert index_bytes(tmp_path) == expected


def test_the_newest_file_goes_only_when_the_index_says_that_it_is_catching_up(service, monkeypatch):
    said = []
    remove = service.set.remove

    def removed(paths, keep=""):
        said.append((service.builder.progress.catching_up, service.set.live.path not in paths))
        remove(paths, keep)

    monkeypatch.setattr(service.set, "remove", removed)
    drop_live = service.set.drop_live

    def dropped(full):
        said.append((service.builder.progress.catching_up, True))
        drop_live(full)

    monkeypatch.setattr(service.set, "drop_live", dropped)

    service.builder.rebuild_live()

    assert said == [(True, True), (True, True)]


def test_a_search_during_which_the_newest_file_goes_says_that_the_index_is_catching_up(service, monkeypatch):
    servicer = IndexServicer(service.builder.progress, 1, times_rise=True)
    servicer.open(service.set)
    views = service.set.views

    def views_without_the_newest():
        monkeypatch.setattr(service.set, "views", views)
        service.builder.rebuild_live()
        return views()

    monkeypatch.setattr(service.set, "views", views_without_the_newest)

    answer = servicer.SearchKey(pb.SearchKeyRequest(topic="orders", key="all", page_size=1000), None)

    assert len(answer.commit_log_offsets) < MATCH_COUNT
    assert answer.catching_up


def test_a_file_that_the_disk_cannot_read_is_built_again(tmp_path, service, expected, monkeypatch):
    path, read = service.paths()[3], RealFileSystem.pread
    inode = path.stat().st_ino

    def pread(self, fd, size_bytes, position):
        if os.fstat(fd).st_ino == inode:
            raise StoreCorruptedError("the disk cannot read it", file=path, offset=position)
        return read(self, fd, size_bytes, position)

    monkeypatch.setattr(RealFileSystem, "pread", pread)
    service.check(file_check.PASS_SECONDS)
    service.settle()

    assert service.search() == (MATCH_COUNT, False)
    service.builder.stop()
    assert index_bytes(tmp_path) == expected


def test_a_log_that_gives_another_key_than_the_file_had_does_not_replace_it(service):
    service.requests = [
        make_request(n, keys=["all", "other"], unique_key=f"u{n}") if n == 130 else request
        for n, request in enumerate(REQUESTS)
    ]
    path = next(
        view.path
        for view in service.set.sealed_views()
        if view.header().begin_commit_log_offset < REQUESTS[130].commit_log_offset < view.header().end_commit_log_offset
    )
    DAMAGES["a zeroed file"](path)
    service.clock.seconds += 1

    with pytest.raises(StoreCorruptedError, match="cannot be built again"):
        while service.checker.step():
            pass

    assert service.search()[1]


def test_a_flush_under_way_is_no_reason_for_doubt(service):
    extra = [make_request(n, keys=["all"]) for n in range(300, 303)]
    service.builder.apply(extra, extra[-1].next_offset, 0, extra[-1].next_offset)
    live = next(file for file in service.checks.files() if file.path == service.paths()[-1])
    flush = service.set.live.prepare_flush()
    service.checker.check(live)
    os.utime(live.path)  # as the flush does when it writes

    service.checker.look([live])

    assert not live.is_doubtful
    flush()


def test_what_a_stopped_rebuild_left_goes_at_the_next_start(tmp_path, service):
    service.builder.stop()
    left = tmp_path / "reput/index/rebuild" / service.paths()[2].name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(bytes(100))

    Service(tmp_path)

    assert not left.exists()


def test_an_index_on_another_disk_than_our_folder_is_built_again_as_a_whole(tmp_path, service, expected, monkeypatch):
    rename = RealFileSystem.rename

    def renamed(self, source, target):
        if "rebuild" in str(source):
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(target))
        rename(self, source, target)

    monkeypatch.setattr(RealFileSystem, "rename", renamed)
    DAMAGES["zeroed slots"](service.paths()[3])

    service.settle()

    assert service.search() == (MATCH_COUNT, False)
    assert not list((tmp_path / "reput/index/rebuild").iterdir())
    service.builder.stop()
    assert index_bytes(tmp_path) == expected
