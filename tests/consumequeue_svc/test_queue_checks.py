"""Queue files damaged while they are served, or between two starts: answers say so, and each file is built again alone."""

import json
import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from consumequeue_svc import queue_checks
from consumequeue_svc.queue_checks import QueueChecks
from consumequeue_svc.servicer import ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following import file_check
from services.following.file_check import FileChecker
from store.derive.dispatch_columns import DispatchColumns
from store.errors import RecordNotFoundError, StoreCorruptedError
from store.files.checksums import ChecksumTable, Extent
from store.files.file_system import RealFileSystem
from tests.support.builders import QUEUE_FILE_SIZE, Clock, follow, open_queues, queue_bytes
from tests.support.dispatches import make_request

FS = RealFileSystem()
# Queue 0 has three files of which the last is not full, queue 1 has one.
REQUESTS = [
    make_request(n, queue_id=int(n % 5 == 4), queue_offset=n // 5 if n % 5 == 4 else n - n // 5) for n in range(70)
]
FILES = {"first": f"orders/0/{0:020d}", "middle": f"orders/0/{400:020d}", "open": f"orders/0/{800:020d}"}


class Service:
    """Builder and checks over one root, all in the calling thread."""

    def __init__(self, root, *, requests=REQUESTS, log_first_offset=0, ext_file_size_bytes=0):
        self.root, self.requests, self.log_first_offset = root, requests, log_first_offset
        self.ext_file_size_bytes = ext_file_size_bytes
        self.clock, self.read_from = Clock(), []
        table = ChecksumTable(FS, root / "reput/consumequeue/checksums.json")
        self.builder = open_queues(
            root, requests, log_first_offset=log_first_offset, ext_file_size_bytes=ext_file_size_bytes
        )
        self.table = self.builder._table
        self.checks = QueueChecks(
            self.table,
            table,
            self.read_log,
            self.builder.progress,
            lambda: self.builder.is_replay,
            self.builder.replay_all,
        )
        self.checker = FileChecker(
            "consumequeue",
            FS,
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
        if offset >= 0 and offset not in {request.commit_log_offset for request in self.requests}:
            raise RecordNotFoundError(f"no record starts at {offset}")
        start = max(offset, self.log_first_offset)
        wanted = [request for request in self.requests if request.commit_log_offset >= start]
        parts = (wanted[at : at + 7] for at in range(0, len(wanted), 7))
        yield (SimpleNamespace(columns=DispatchColumns.of(part), next_offset=part[-1].next_offset) for part in parts)

    def follow(self):
        follow(self.builder, self.requests, log_first_offset=self.log_first_offset)

    def check(self, seconds=1.0):
        self.clock.seconds += seconds
        while self.checker.step():
            pass
        end = self.requests[-1].next_offset
        if not self.builder.apply([], end, self.log_first_offset, end):
            self.follow()

    def settle(self):
        for _ in range(4):
            self.check(20)

    def replay(self):
        """Settles, which ends this life; the next one has replayed the log."""
        with pytest.raises(StoreCorruptedError, match="compared with the log and built again"):
            self.settle()
        self.builder.abandon()
        again = Service(
            self.root,
            requests=self.requests,
            log_first_offset=self.log_first_offset,
            ext_file_size_bytes=self.ext_file_size_bytes,
        )
        assert again.builder.is_replay
        again.follow()
        return again

    def is_partial(self):
        return self.table.queue("orders", 0).is_doubtful

    def path(self, which):
        return self.root / "consumequeue" / FILES[which]


def zero(position, size_bytes):
    def damage(path):
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(bytes(size_bytes))

    return damage


DAMAGES = {
    "zeroed units": zero(40, 60),
    "a unit that looks like a filler": lambda path: path.write_bytes(
        path.read_bytes()[:60] + (0).to_bytes(8) + (0x7FFFFFFF).to_bytes(4) + bytes(8) + path.read_bytes()[80:]
    ),
    "a zeroed file": zero(0, QUEUE_FILE_SIZE),
    "an empty file": lambda path: os.truncate(path, 0),
    "no file": lambda path: path.unlink(),
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
    return queue_bytes(root)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path)
    service.follow()
    service.settle()
    assert not service.is_partial()
    return service


@pytest.mark.parametrize("which", ["first", "middle"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_full_file_damaged_under_the_service_is_partial_at_once_and_built_again_alone(
    service, expected, damage, which
):
    path = service.path(which)
    others = {name: (service.root / "consumequeue" / name).stat().st_mtime_ns for name in expected}
    del others[FILES[which]]
    DAMAGES[damage](path)

    service.checker.look(service.checks.files())

    assert service.is_partial()
    service.settle()
    assert not service.is_partial()
    assert {name: (service.root / "consumequeue" / name).stat().st_mtime_ns for name in others} == others
    service.builder.stop()
    assert queue_bytes(service.root) == expected


@pytest.mark.parametrize("damage", ["zeroed units", "a unit that looks like a filler", "a zeroed file"])
def test_a_sealed_file_damaged_while_stopped_is_partial_from_the_first_answer_on(service, expected, damage):
    service.builder.stop()
    DAMAGES[damage](service.path("first"))

    again = Service(service.root)

    assert again.is_partial()
    again.follow()
    again.settle()
    assert not again.is_partial()
    again.builder.stop()
    assert queue_bytes(service.root) == expected


def test_an_answer_over_zeroed_units_says_that_it_is_damaged_and_fails_only_until_that_is_known(service):
    servicer = ConsumeQueueServicer(service.builder.progress, lambda units, _: [])
    servicer.open(service.table)
    DAMAGES["zeroed units"](service.path("first"))
    request = pb.GetQueueUnitsRequest(topic="orders", queue_id=0, queue_offset=0, max_units=100)
    with pytest.raises(StoreCorruptedError):
        servicer.GetQueueUnits(request, None)

    service.checker.look(service.checks.files())

    answer = servicer.GetQueueUnits(request, None)
    assert (answer.damaged, len(answer.units), answer.max_offset) == (True, 0, 56)
    service.settle()
    answer = servicer.GetQueueUnits(request, None)
    assert (answer.damaged, len(answer.units)) == (False, 56)


def test_an_answer_that_was_read_before_the_file_was_built_again_says_that_it_is_damaged(service, monkeypatch):
    servicer = ConsumeQueueServicer(service.builder.progress, lambda units, _: [0] * len(units))
    servicer.open(service.table)
    queue = service.table.queue("orders", 0)
    DAMAGES["a unit that looks like a filler"](service.path("first"))
    service.checker.look(service.checks.files())
    read = queue.units.units

    def units(*args):
        found = read(*args)
        queue.doubtful_files.clear()
        return found

    monkeypatch.setattr(queue.units, "units", units)
    request = pb.GetQueueUnitsRequest(topic="orders", queue_id=0, queue_offset=0, max_units=100)

    answer = servicer.GetQueueUnits(request, None)

    assert (answer.damaged, len(answer.units)) == (True, 55)


def test_the_open_file_damaged_while_stopped_is_found_after_the_start(service, expected):
    service.builder.stop()
    DAMAGES["a unit that looks like a filler"](service.path("open"))
    os.truncate(service.path("open"), QUEUE_FILE_SIZE)

    again = Service(service.root)
    again.follow()
    again.settle()

    again.builder.stop()
    assert queue_bytes(service.root) == expected


def test_damage_that_sets_the_old_time_again_is_found_by_the_next_check(service, expected):
    before = service.path("middle").stat()
    DAMAGES["zeroed units"](service.path("middle"))
    os.utime(service.path("middle"), ns=(before.st_atime_ns, before.st_mtime_ns))

    service.settle()

    service.builder.stop()
    assert queue_bytes(service.root) == expected


def test_a_file_whose_first_records_expired_gets_fillers_in_their_place(service):
    service.builder.stop()
    first = REQUESTS[10].commit_log_offset
    again = Service(service.root, log_first_offset=first)
    again.follow()
    again.settle()
    queue = again.table.queue("orders", 0)
    before = queue.units.units(0, 100, first)
    DAMAGES["a zeroed file"](again.path("first"))

    again.settle()

    assert not again.is_partial()
    assert queue.units.units(0, 100, first) == before
    assert queue.units.min_offset(first) == before[0][0]


def test_a_file_of_an_older_version_gets_its_checksum_when_it_is_first_read(tmp_path, expected):
    before = open_queues(tmp_path, REQUESTS)
    follow(before, REQUESTS)
    before.stop()
    service = Service(tmp_path)
    service.follow()
    service.settle()

    DAMAGES["zeroed units"](service.path("middle"))
    service.checker.look(service.checks.files())

    assert service.is_partial()
    service.settle()
    service.builder.stop()
    assert queue_bytes(tmp_path) == expected


def test_rot_is_found_by_the_next_pass(service, expected, monkeypatch):
    known = {str(file.path): file.stamp for file in service.checks.files()}
    DAMAGES["zeroed units"](service.path("middle"))
    monkeypatch.setattr(service.checker, "_stamp_of", lambda path: known.get(str(path)))
    service.settle()
    assert queue_bytes(service.root) != expected

    service.check(file_check.PASS_SECONDS)

    service.builder.stop()
    assert queue_bytes(service.root) == expected


def test_queues_that_grow_while_they_are_checked_are_never_in_doubt(tmp_path):
    service = Service(tmp_path)
    for end in range(5, 71, 5):
        part = REQUESTS[:end]
        service.builder.apply(part, part[-1].next_offset, 0, part[-1].next_offset)
        service.clock.seconds += 20
        while service.checker.step():
            pass
        assert not service.is_partial()
    assert service.read_from == []


def test_a_topic_that_began_anew_is_built_again_from_its_new_records(tmp_path):
    requests = [make_request(n, queue_offset=n % 30) for n in range(60)]
    service = Service(tmp_path, requests=requests)
    service.follow()
    service.settle()
    expected = queue_bytes(tmp_path)
    DAMAGES["zeroed units"](service.path("first"))

    service.settle()

    service.builder.stop()
    assert queue_bytes(tmp_path) == expected


def test_many_damaged_files_are_built_again_by_one_replay(service, expected, monkeypatch):
    monkeypatch.setattr(queue_checks, "DAMAGED_FILE_COUNT_MAX", 1)
    for which in ("first", "middle"):
        DAMAGES["a zeroed file"](service.path(which))
    service.checker.look(service.checks.files())

    again = service.replay()

    assert len(service.read_from) == 1
    again.settle()
    assert not again.is_partial()
    again.builder.stop()
    assert queue_bytes(service.root) == expected


def test_a_damaged_table_of_checksums_is_made_again(service):
    service.builder.stop()
    table = service.root / "reput/consumequeue/checksums.json"
    table.write_bytes(table.read_bytes().replace(b"800", b"801"))

    again = Service(service.root)

    assert not again.is_partial()
    again.follow()
    again.settle()
    assert again.read_from == []
    again.builder.stop()
    assert len(json.loads(table.read_text())["files"]) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_open_file_damaged_under_the_service_is_partial_at_once_and_built_again_by_a_replay(
    service, expected, damage
):
    DAMAGES[damage](service.path("open"))
    service.checker.look(service.checks.files())
    assert service.is_partial()

    again = service.replay()

    again.settle()
    assert not again.is_partial()
    again.builder.stop()
    found = queue_bytes(service.root)
    assert {name: found[name] for name in expected} == expected


def while_reading(service, work):
    """Has something happen once, while the log is read to make a file again."""
    pending = [work]

    @contextmanager
    def read_log(offset):
        if pending:
            pending.pop()()
        with service.read_log(offset) as batches:
            yield batches

    service.checks.read_log = read_log


def test_units_that_are_written_while_the_open_file_is_built_again_are_kept(tmp_path, expected):
    service = Service(tmp_path)
    part = REQUESTS[:60]
    service.builder.apply(part, part[-1].next_offset, 0, part[-1].next_offset)
    service.clock.seconds += 20
    while service.checker.step():
        pass
    DAMAGES["no file"](service.path("open"))
    while_reading(service, service.follow)

    again = service.replay()

    again.settle()
    assert not again.is_partial()
    again.builder.stop()
    assert queue_bytes(tmp_path) == expected


def test_a_file_of_a_topic_that_begins_anew_while_it_is_built_again_is_left_alone(tmp_path):
    requests = [make_request(n, queue_offset=n % 30) for n in range(60)]
    service = Service(tmp_path, requests=requests)
    part = requests[:30]
    service.builder.apply(part, part[-1].next_offset, 0, part[-1].next_offset)
    service.clock.seconds += 20
    while service.checker.step():
        pass
    DAMAGES["zeroed units"](service.path("first"))
    while_reading(service, service.follow)

    service.settle()

    assert set(service.read_from) == {-1}
    assert not service.is_partial()
    commit_log_offsets = [unit.commit_log_offset for _, unit in service.table.queue("orders", 0).units.units(0, 30)]
    assert commit_log_offsets == [request.commit_log_offset for request in requests[30:]]


def test_checksums_that_are_wrong_themselves_cost_one_replay_at_most(service, expected, monkeypatch):
    monkeypatch.setattr(queue_checks, "DAMAGED_FILE_COUNT_MAX", 1)
    service.builder.stop()
    rows = ChecksumTable(FS, service.root / "reput/consumequeue/checksums.json")
    for name in ("orders/0/0", "orders/0/400"):
        row = rows.get(name)
        extents = tuple(Extent(each.position, each.size_bytes, each.crc ^ 1) for each in row.extents)
        rows.put(name, row._replace(stamp=row.stamp._replace(modified_nanos=1), extents=extents))
    rows.save()

    again = Service(service.root)
    again.follow()
    again = again.replay()
    again.settle()

    assert not again.is_partial()
    again.builder.stop()
    assert queue_bytes(service.root) == expected
    last = Service(service.root)
    assert not last.builder.is_replay
    assert not last.is_partial()


def test_a_file_that_is_wrong_directly_after_a_replay_is_not_replayed_again(service):
    DAMAGES["zeroed units"](service.path("open"))
    again = service.replay()
    DAMAGES["no file"](service.path("open"))

    with pytest.raises(StoreCorruptedError, match="again just after"):
        again.settle()

    assert again.is_partial()


def test_a_log_that_gives_other_units_than_the_file_had_leads_to_a_replay(service):
    service.requests = [
        request._replace(tags_code=7) if request.commit_log_offset == REQUESTS[2].commit_log_offset else request
        for request in REQUESTS
    ]
    DAMAGES["zeroed units"](service.path("first"))

    service.replay()

    assert service.read_from == [-1]


def test_a_file_behind_a_damaged_unit_is_built_again_from_the_logs_first_record(service, expected):
    whole = service.path("first").read_bytes()
    service.path("first").write_bytes(whole[:-20] + (12345).to_bytes(8) + whole[-12:])
    DAMAGES["zeroed units"](service.path("middle"))
    service.checker.look([file for file in service.checks.files() if file.path == service.path("middle")])
    service.checker.check(next(file for file in service.checks.files() if file.path == service.path("middle")))

    assert len(service.read_from) == 2
    assert service.read_from[1] == -1
    service.settle()
    service.builder.stop()
    assert queue_bytes(service.root) == expected


def test_a_doubtful_file_that_expires_is_forgotten(service):
    DAMAGES["zeroed units"](service.path("first"))
    service.checker.look(service.checks.files())
    assert service.is_partial()

    service.table.queue("orders", 0).hide_expired(REQUESTS[40].commit_log_offset, 1)

    assert not service.is_partial()


def test_a_doubtful_file_that_becomes_full_is_checked_on(tmp_path):
    service = Service(tmp_path)
    part = REQUESTS[:55]
    service.builder.apply(part, part[-1].next_offset, 0, part[-1].next_offset)
    service.clock.seconds += 20
    while service.checker.step():
        pass
    os.utime(service.path("open"))
    service.checker.look(service.checks.files())
    assert service.is_partial()
    service.requests = [*REQUESTS, *(make_request(n, queue_offset=n - 14) for n in range(70, 80))]
    service.follow()
    assert service.is_partial()

    service.settle()

    assert not service.is_partial()
    assert service.read_from == []


def test_a_queue_file_that_the_disk_cannot_read_is_replaced_by_a_new_one(service, expected, monkeypatch):
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
    service.builder.stop()
    assert queue_bytes(service.root) == expected
