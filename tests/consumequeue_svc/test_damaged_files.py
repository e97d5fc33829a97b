"""Queue files damaged in every way that a crash or a disk may damage them: what comes out equals a rebuild."""

import os
import shutil

import pytest

from store.format.paths import own_state_dir
from store.readers.queue_reader import detect_queue_file_size
from tests.support.builder_kinds import QUEUE_FILES as FILES
from tests.support.builder_kinds import QUEUE_REQUESTS as REQUESTS
from tests.support.builders import QUEUE_FILE_SIZE, Clock, follow, open_queues, queue_bytes
from tests.support.dispatches import file_bytes, make_request
from tests.support.faulty_file_system import FaultyFileSystem

LENGTHS = [*range(22), 39, 40, QUEUE_FILE_SIZE - 1, QUEUE_FILE_SIZE + 1, QUEUE_FILE_SIZE * 2]
QUEUE_DIR = "consumequeue/orders/0"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    root = tmp_path_factory.mktemp("expected")
    builder = open_queues(root, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()
    return queue_bytes(root)


@pytest.fixture
def build(tmp_path):
    """A store stopped cleanly, killed long after its checkpoint, or left by somebody else."""

    def build(stop):
        root = tmp_path / "store"
        clock = Clock()
        builder = open_queues(root, REQUESTS, clock=clock)
        if stop == "killed":
            follow(builder, REQUESTS[:66])
            clock.seconds += 2
            builder.apply([], REQUESTS[65].next_offset, 0, REQUESTS[-1].next_offset)
            follow(builder, REQUESTS)
            builder.abandon()
        else:
            follow(builder, REQUESTS)
            builder.stop()
        if stop == "foreign":
            shutil.rmtree(own_state_dir(str(root), "consumequeue"))
        return root

    return build


def recovered(root, **options):
    builder = open_queues(root, REQUESTS, **options)
    follow(builder, REQUESTS)
    builder.stop()
    return queue_bytes(root)


def path_of(root, which):
    return root / "consumequeue" / FILES[which]


STOPS = ["clean", "killed", "foreign"]


def test_the_store_under_test_has_three_files(expected):
    assert sorted(name for name in expected if "/0/" in name) == sorted(FILES.values())


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("length", LENGTHS[::5])
def test_all_files_of_a_wrong_length_are_made_again_in_the_right_one(build, expected, stop, length):
    root = build(stop)
    for which in FILES:
        os.truncate(path_of(root, which), length)
    assert recovered(root) == expected


@pytest.mark.parametrize("stop", STOPS)
def test_rmq_10417_min_offset_is_never_above_max_offset(build, stop):
    root = build(stop)
    for which in FILES:
        path_of(root, which).unlink()
    builder = open_queues(root, REQUESTS)
    ranges = [(queue.units.min_offset(0), queue.units.end) for _, queue in builder._table.items()]
    follow(builder, REQUESTS)
    ranges += [
        (queue.units.min_offset(first), queue.units.end)
        for _, queue in builder._table.items()
        for first in (0, 3_000, 10**9)
    ]
    assert all(least <= most for least, most in ranges), ranges


@pytest.mark.parametrize("log_end", [6_950, 6_901, 6_999])
@pytest.mark.parametrize("stop", ["clean", "foreign"])
def test_rmq_2571_a_unit_whose_record_does_not_end_inside_the_log_goes(build, stop, log_end):
    """The log was cut inside its last record; whoever takes the queues as they are must see that."""
    root = build(stop)
    builder = open_queues(root, REQUESTS[:69])
    builder._table.cut(log_end)
    assert max(queue.units.next_log_offset() for _, queue in builder._table.items()) == 6_900


@pytest.mark.parametrize("stop", STOPS)
def test_rmq_405_queues_ahead_of_the_log_are_cut_to_it(build, tmp_path, stop):
    """A power cut took the log's end and not the queue's."""
    root = build(stop)
    shorter = REQUESTS[:50]
    builder = open_queues(root, shorter)
    follow(builder, shorter)
    builder.stop()
    rebuilt = open_queues(tmp_path / "rebuilt", shorter)
    follow(rebuilt, shorter)
    rebuilt.stop()
    assert queue_bytes(root) == queue_bytes(tmp_path / "rebuilt")


@pytest.mark.parametrize("kept", range(0, 70, 7))
def test_rmq_495_a_crash_during_every_recovery_leaves_no_wrong_unit(build, expected, kept):
    """Each recovery is killed after some more records; files in between are never flushed, only written."""
    root = build("foreign")
    path_of(root, "middle").unlink()
    path_of(root, "first").write_bytes(b"\0" * QUEUE_FILE_SIZE)
    for killed_after in range(kept, 70, 11):
        builder = open_queues(root, REQUESTS)
        start = builder.start_offset()
        part = [r for r in REQUESTS[:killed_after] if r.commit_log_offset >= start]
        for request in part:
            builder.apply([request], request.next_offset, 0, REQUESTS[-1].next_offset)
        builder.abandon()
    assert recovered(root) == expected


def test_a_replay_that_was_killed_is_not_taken_for_what_the_checkpoint_before_remembers(build, expected):
    """Found in review: the missing middle file had come back half, and everything that was checked was right."""
    root = build("clean")
    path_of(root, "middle").unlink()
    builder = open_queues(root, REQUESTS)
    follow_part = REQUESTS[:30]
    for request in follow_part:
        builder.apply([request], request.next_offset, 0, REQUESTS[-1].next_offset)
    builder.abandon()
    assert recovered(root) == expected


def test_a_replay_flushes_also_what_it_only_compared(build):
    """A kill leaves its pages to the kernel: the next replay finds them right, but a power cut could still take them."""
    root = build("foreign")
    fs = FaultyFileSystem()
    builder = open_queues(root, REQUESTS, fs=fs)
    follow(builder, REQUESTS)
    flushed = {call.path for call in fs.calls if call.kind == "fdatasync"}
    assert {str(path) for path in (root / "consumequeue").rglob("0*") if path.is_file()} <= flushed
    assert fs.count("drop_cache", QUEUE_DIR) == 3


def killed_replay(root, count):
    """A replay that is killed after so many records, each of them saved."""
    clock = Clock()
    builder = open_queues(root, REQUESTS, clock=clock)
    assert builder.progress.next_offset == -1
    for request in REQUESTS[:count]:
        clock.seconds += 1
        builder.apply([request], request.next_offset, 0, REQUESTS[-1].next_offset)
    builder.abandon()


@pytest.mark.parametrize("which", FILES)
@pytest.mark.parametrize("count", [1, 24, 25, 50, 69])
def test_a_replay_goes_on_where_it_was_killed(build, expected, which, count):
    root = build("foreign")
    path_of(root, which).unlink()
    killed_replay(root, count)

    builder = open_queues(root, REQUESTS)
    assert builder.progress.next_offset == REQUESTS[count - 1].next_offset
    assert builder.start_offset() == REQUESTS[count - 1].commit_log_offset
    builder.abandon()

    assert recovered(root) == expected


@pytest.mark.parametrize("damage", ["gone", "short", "changed"])
def test_a_replay_begins_anew_when_what_it_had_confirmed_is_damaged(build, expected, damage):
    root = build("foreign")
    path_of(root, "middle").unlink()
    killed_replay(root, 40)
    path = path_of(root, "middle")
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        os.truncate(path, 39)
    else:
        data = bytearray(path.read_bytes())
        data[11 * 20 + 3] ^= 1  # the last unit that was confirmed is number 31 of the queue
        path.write_bytes(data)

    builder = open_queues(root, REQUESTS)
    assert builder.progress.next_offset == -1
    builder.abandon()

    assert recovered(root) == expected


def test_a_replay_of_another_log_begins_anew(build, tmp_path):
    root = build("foreign")
    killed_replay(root, 40)
    other = [make_request(n, topic="other", time_millis=7) for n in range(70)]
    builder = open_queues(root, other)
    follow(builder, other)
    builder.stop()
    rebuilt = open_queues(tmp_path / "rebuilt", other)
    follow(rebuilt, other)
    rebuilt.stop()
    assert queue_bytes(root) == queue_bytes(tmp_path / "rebuilt")


def test_a_build_from_nothing_goes_on_where_it_was_killed(tmp_path, expected):
    clock = Clock()
    root = tmp_path / "store"
    builder = open_queues(root, REQUESTS, clock=clock)
    for request in REQUESTS[:40]:
        clock.seconds += 1
        builder.apply([request], request.next_offset, 0, REQUESTS[-1].next_offset)
    builder.abandon()

    builder = open_queues(root, REQUESTS)
    assert builder.progress.next_offset == REQUESTS[39].next_offset
    follow(builder, REQUESTS)
    builder.stop()
    assert queue_bytes(root) == expected


def test_a_name_that_no_file_of_that_size_can_have_is_left_alone(build, expected):
    root = build("clean")
    stray = root / QUEUE_DIR / f"{7:020d}"
    stray.write_bytes(b"somebody else's")
    assert recovered(root) == expected | {f"orders/0/{stray.name}": b"somebody else's"}


def test_one_damaged_length_does_not_decide_the_size_of_files(build):
    root = build("clean")
    fs = FaultyFileSystem()
    os.truncate(path_of(root, "first"), 20)
    os.truncate(root / "consumequeue/orders/1" / f"{0:020d}", 40)
    assert detect_queue_file_size(fs, root) == QUEUE_FILE_SIZE
    for which in FILES:
        os.truncate(path_of(root, which), 40)
    (root / "consumequeue/orders/1" / f"{0:020d}").write_bytes(bytes(QUEUE_FILE_SIZE))
    assert detect_queue_file_size(fs, root, QUEUE_FILE_SIZE) == QUEUE_FILE_SIZE
    assert file_bytes(root / "consumequeue")
