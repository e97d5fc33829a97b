"""One suite for the builders of queues and of the index: damage at a start and while served, and expiry."""

import errno
import os
import shutil

import pytest

from services.following import file_check
from services.following.following_builder import EXPIRED_FILE_COUNT_MAX
from store.errors import StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.format.paths import own_state_dir
from tests.support.builder_kinds import INDEX, KINDS, NO_FILES, QUEUES
from tests.support.builders import Clock, follow
from tests.support.dispatches import make_request
from tests.support.faulty_file_system import FaultyFileSystem

STOPS = ["clean", "killed", "foreign"]
WHICH = ["first", "middle", "open"]
both_kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


def of_kinds(names, rows_of):
    """Parameters of both kinds: a row for each that `rows_of` gives of a kind."""
    rows = [(kind, *row) for kind in KINDS for row in rows_of(kind)]
    return pytest.mark.parametrize(("kind", *names), rows, ids=["-".join(map(str, row)) for row in rows])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The files of each kind as they must come out."""
    found = {}
    for kind in KINDS:
        root = tmp_path_factory.mktemp(kind.folder)
        builder = kind.open(root, kind.requests)
        follow(builder, kind.requests)
        builder.stop()
        found[kind] = kind.files(root)
    return found


@pytest.fixture
def build(tmp_path):
    """A store stopped cleanly, killed after its last checkpoint, or left by another program."""

    def build(kind, stop):
        root, clock = tmp_path / "store", Clock()
        builder, requests = kind.open(root, kind.requests, clock=clock), kind.requests
        if stop == "killed":
            saved = requests[: kind.saved_count]
            follow(builder, saved)
            clock.seconds += 2
            builder.apply([], saved[-1].next_offset, 0, requests[-1].next_offset)
            follow(builder, requests)
            builder.abandon()
        else:
            follow(builder, requests)
            builder.stop()
        if stop == "foreign":
            shutil.rmtree(own_state_dir(str(root), kind.folder))
        return root

    return build


def recovered(kind, root, **options):
    builder = kind.open(root, kind.requests, **options)
    follow(builder, kind.requests)
    builder.stop()
    return kind.files(root)


@both_kinds
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("which", WHICH)
def test_rmq_7355_7599_a_derived_file_that_is_gone_comes_back(build, built, kind, which, stop):
    root = build(kind, stop)
    kind.path(root, which).unlink()
    assert recovered(kind, root) == built[kind]


@of_kinds(["length"], lambda kind: [(length,) for length in kind.lengths])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("which", WHICH)
def test_rmq_6904_9728_10108_a_derived_file_of_a_wrong_length_never_refuses_the_start(
    build, built, kind, which, stop, length
):
    root = build(kind, stop)
    os.truncate(kind.path(root, which), length)
    assert recovered(kind, root, is_clean_store=stop != "killed") == built[kind]


@both_kinds
@pytest.mark.parametrize("stop", STOPS)
def test_all_derived_files_that_are_gone_come_back(build, built, kind, stop):
    root = build(kind, stop)
    shutil.rmtree(root / kind.folder)
    assert recovered(kind, root) == built[kind]


@of_kinds(["stop", "back"], lambda kind: kind.changed)
def test_bytes_changed_at_the_end_of_what_was_saved_are_seen_and_mended(build, built, kind, stop, back):
    root = build(kind, stop)
    path = kind.path(root, "open")
    data = bytearray(path.read_bytes())
    at = len(data.rstrip(b"\0")) - (kind.unsaved_bytes if stop == "killed" else 0) - back
    data[at] ^= 0x40
    path.write_bytes(data)
    assert recovered(kind, root) == built[kind]


# Expiry: an index file has 50 of these records, a queue of the two has 65 in 4 files.
EXPIRING = {
    QUEUES: [make_request(n, queue_id=n % 2, queue_offset=n // 2) for n in range(130)],
    INDEX: [make_request(n, keys=["same", f"k{n}"]) for n in range(330)],
}
FRONT = {QUEUES: 12_000, INDEX: 15_000}  # the log's first byte, later
LEFT_COUNT = {QUEUES: 2, INDEX: 4}


def tick(builder, clock, first, end):
    clock.seconds += 1
    builder.apply([], end, first, end)


def of_name(root, kind):
    return sorted(path for path in (root / kind.folder).rglob("*") if path.is_file())


MANY = {
    QUEUES: ([make_request(n) for n in range(600)], [30, 20, 10, 1, 1]),
    INDEX: ([make_request(n, keys=["a", "b"]) for n in range(1_250)], [25, 15, 5, 1, 1]),
}


@both_kinds
def test_few_expired_files_go_a_second(tmp_path, kind):
    requests, counts = MANY[kind]
    clock, end = Clock(), requests[-1].next_offset
    builder = kind.open(tmp_path, requests, clock=clock)
    follow(builder, requests)
    found = []
    for _ in range(5):
        found.append(len(of_name(tmp_path, kind)))
        tick(builder, clock, end, end)

    assert EXPIRED_FILE_COUNT_MAX == 10
    assert found == counts


@both_kinds
@pytest.mark.parametrize("calls_left", range(3))
def test_a_crash_between_the_checkpoint_and_the_removal_is_completed_at_the_next_start(tmp_path, kind, calls_left):
    fs, clock, requests = FaultyFileSystem(), Clock(), EXPIRING[kind]
    end = requests[-1].next_offset
    builder = kind.open(tmp_path, requests, clock=clock, fs=fs)
    follow(builder, requests)
    before = of_name(tmp_path, kind)
    fs.fail("unlink", errno.EIO, nth=calls_left + 1, lasting=True)
    with pytest.raises(OSError, match="Input/output"):
        tick(builder, clock, FRONT[kind], end)
    builder.abandon()
    left_count = len(of_name(tmp_path, kind))

    builder = kind.open(tmp_path, requests, log_first_offset=FRONT[kind])

    assert left_count == len(before) - calls_left
    assert builder.progress.next_offset == end
    newest = before[3::4] if kind is QUEUES else before[3:]
    assert of_name(tmp_path, kind) == newest
    assert len(newest) == LEFT_COUNT[kind]


@both_kinds
def test_expiry_and_a_later_crash_need_no_rebuild(tmp_path, kind):
    clock, requests = Clock(), EXPIRING[kind]
    end = requests[-1].next_offset
    builder = kind.open(tmp_path, requests, clock=clock)
    follow(builder, requests)
    tick(builder, clock, FRONT[kind], end)
    builder.abandon()
    left = kind.files(tmp_path)

    builder = kind.open(tmp_path, requests, log_first_offset=FRONT[kind])

    assert builder.progress.next_offset == end
    assert kind.files(tmp_path) == left
    assert len(left) == LEFT_COUNT[kind]


@pytest.fixture
def serve(tmp_path):
    """A builder whose files were all checked once."""

    def serve(kind):
        service = kind.service(tmp_path)
        service.follow()
        service.settle()
        assert not service.is_partial()
        return service

    return serve


def stop_and_compare(service, kind, built, damage=""):
    """The files are as if they had never been damaged; a new index file may have another name than one that is no file."""
    service.builder.stop()
    if kind.comes_back_as_written or damage not in NO_FILES:
        assert kind.files(service.root) == built[kind]


@of_kinds(["damage", "which"], lambda kind: [(damage, which) for damage in kind.damages for which in kind.sealed])
def test_a_sealed_file_damaged_under_the_service_is_partial_at_once_and_built_again_alone(
    serve, built, kind, damage, which
):
    service = serve(kind)
    path, newest = service.path(which), service.path("open")
    others = {
        other: (other.stat().st_ino, other.stat().st_mtime_ns)
        for other in of_name(service.root, kind)
        if other not in (path, newest)
    }
    kind.damages[damage](path)

    service.checker.look(service.checks.files())

    assert service.is_partial(), "the answer is not partial"
    service.settle()
    assert not service.is_partial()
    assert {other: (other.stat().st_ino, other.stat().st_mtime_ns) for other in others} == others
    stop_and_compare(service, kind, built, damage)


@of_kinds(["damage"], lambda kind: [(damage,) for damage in kind.damages_at_start])
def test_a_sealed_file_damaged_while_stopped_is_partial_from_the_first_answer_on(serve, built, kind, damage):
    service = serve(kind)
    path = service.path("middle")
    service.builder.stop()
    kind.damages[damage](path)

    again = kind.service(service.root)

    assert again.is_partial(), "the answer is not partial"
    again.follow()
    again.settle()
    assert not again.is_partial()
    stop_and_compare(again, kind, built, damage)


@of_kinds(["damage"], lambda kind: [(damage,) for damage in kind.damages_unseen])
def test_damage_that_sets_the_old_time_again_is_found_by_the_next_check(serve, built, kind, damage):
    service = serve(kind)
    path = service.path("middle")
    before = path.stat()
    kind.damages[damage](path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    service.settle()

    assert not service.is_partial()
    stop_and_compare(service, kind, built)


@both_kinds
def test_rot_that_changes_no_stamp_is_found_by_the_next_pass(serve, built, kind, monkeypatch):
    service = serve(kind)
    stamps = {str(file.path): file.stamp for file in service.checks.files()}
    kind.damages[kind.damages_unseen[0]](service.path("middle"))
    monkeypatch.setattr(service.checker, "_stamp_of", lambda path: stamps.get(str(path)))
    service.settle()
    assert kind.files(service.root) != built[kind], "the test damages nothing"

    service.check(file_check.PASS_SECONDS)

    assert not service.is_partial()
    stop_and_compare(service, kind, built)


@both_kinds
def test_a_file_of_an_older_version_gets_its_checksum_when_it_is_first_read(tmp_path, built, kind):
    before = kind.open(tmp_path, kind.requests)
    follow(before, kind.requests)
    before.stop()
    service = kind.service(tmp_path)
    service.follow()
    service.settle()

    kind.damages[kind.damages_unseen[0]](service.path("middle"))
    service.checker.look(service.checks.files())

    assert service.is_partial(), "the answer is not partial"
    service.settle()
    assert not service.is_partial()
    stop_and_compare(service, kind, built)


@both_kinds
def test_files_that_grow_while_they_are_checked_are_never_in_doubt(tmp_path, kind):
    service = kind.service(tmp_path)
    for end in range(5, len(kind.requests) + 1, 5):
        part = kind.requests[:end]
        service.builder.apply(part, part[-1].next_offset, 0, part[-1].next_offset)
        service.check_for(20)
        assert not service.is_partial()
    assert service.read_from == []


@both_kinds
def test_a_file_that_the_disk_cannot_read_is_replaced_by_a_new_one(serve, built, kind, monkeypatch):
    service = serve(kind)
    path, read = service.path("middle"), RealFileSystem.pread
    inode = path.stat().st_ino

    def pread(self, fd, size_bytes, position):
        if os.fstat(fd).st_ino == inode:
            raise StoreCorruptedError("the disk cannot read it", file=path, offset=position)
        return read(self, fd, size_bytes, position)

    monkeypatch.setattr(RealFileSystem, "pread", pread)
    service.check(file_check.PASS_SECONDS)
    service.settle()

    assert path.stat().st_ino != inode
    assert not service.is_partial()
    stop_and_compare(service, kind, built)
