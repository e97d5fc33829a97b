"""Queue files damaged while they are served, or between two starts: answers say so, and each file is built again alone."""

import json
import os
from contextlib import contextmanager

import pytest

from consumequeue_svc import queue_checks
from consumequeue_svc.servicer import ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from store.errors import StoreCorruptedError
from store.files.checksums import ChecksumTable, Extent
from store.files.file_system import RealFileSystem
from store.readers.queue_reader import QueueUnits
from tests.support.builder_kinds import QUEUE_DAMAGES as DAMAGES
from tests.support.builder_kinds import QUEUE_REQUESTS as REQUESTS
from tests.support.builder_kinds import CheckedQueues
from tests.support.builders import QUEUE_FILE_SIZE, queue_bytes
from tests.support.dispatches import make_request

FS = RealFileSystem()


class Service(CheckedQueues):
    """Queues that may have to replay the log, which ends a life."""

    def replay(self):
        """Settles, which ends this life; the next one has replayed the log."""
        with pytest.raises(StoreCorruptedError, match="compared with the log and built again"):
            self.settle()
        self.builder.abandon()
        again = Service(
            self.root,
            self.requests,
            log_first_offset=self.log_first_offset,
            ext_file_size_bytes=self.ext_file_size_bytes,
        )
        assert again.builder.is_replay
        again.follow()
        return again


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
    read = QueueUnits.units

    def units(*args):
        found = read(*args)
        queue.doubt(0, False)
        return found

    monkeypatch.setattr(QueueUnits, "units", units)
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
