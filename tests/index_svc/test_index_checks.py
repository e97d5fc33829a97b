"""Index files damaged while they are served, or between two starts: answers say so, and each file is built again alone."""

import errno
import os
from contextlib import contextmanager

import pytest

from index_svc.servicer import IndexServicer
from reput.index.v1 import index_service_pb2 as pb
from store.errors import StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import entry_position
from tests.support.builder_kinds import INDEX_DAMAGES as DAMAGES
from tests.support.builder_kinds import INDEX_MATCH_COUNT as MATCH_COUNT
from tests.support.builder_kinds import INDEX_REQUESTS as REQUESTS
from tests.support.builder_kinds import CheckedIndex as Service
from tests.support.builder_kinds import zero
from tests.support.builders import LAYOUT, follow, index_bytes, open_index
from tests.support.dispatches import make_request


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

    def removed(paths, why_aside=""):
        said.append((service.builder.progress.catching_up, service.set.live.path not in paths))
        remove(paths, why_aside)

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


@pytest.mark.parametrize("tags_from", [None, 0, 7, 75, 130, 131])
def test_a_file_in_which_entries_of_tags_begin_is_built_again_alone(tmp_path, tags_from):
    requests = [request._replace(tags="A") for request in REQUESTS]
    if tags_from:
        service = Service(tmp_path, requests[:tags_from])
        service.follow()
        service.builder.stop()
    service = Service(tmp_path, requests)
    service.set.tags_from = None if tags_from is None else requests[tags_from].commit_log_offset
    service.follow()
    service.settle()
    written = index_bytes(tmp_path)
    for path in service.paths()[:-1]:
        DAMAGES["zeroed entries"](path)
        service.settle()
        assert service.search() == (MATCH_COUNT, False)
    assert index_bytes(tmp_path) == written
