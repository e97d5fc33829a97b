"""What both builders have in common: where they resume, what they take for another log, what a crash may cost."""

import zlib

import pytest

from store.derive.dispatch import LastRecord, fingerprint
from tests.support.builders import Clock, follow, index_bytes, open_index, open_queues, queue_bytes
from tests.support.dispatches import make_request

OPEN = {"consumequeue": open_queues, "index": open_index}
BYTES = {"consumequeue": queue_bytes, "index": index_bytes}
REQUESTS = [make_request(n, keys=[f"k{n}"]) for n in range(40)]
# The last record of the first log file, then a blank up to byte 4,096.
ROLLED = [
    *REQUESTS,
    *(make_request(n, keys=[f"k{n}"])._replace(commit_log_offset=4_096 + n * 100 - 4_000) for n in range(40, 60)),
]


@pytest.fixture(params=OPEN)
def kind(request):
    return request.param


@pytest.fixture
def rebuilt(tmp_path, kind):
    """The files that a log gives from nothing."""

    def rebuilt(requests):
        root = tmp_path / "rebuilt"
        builder = OPEN[kind](root, requests)
        follow(builder, requests)
        builder.stop()
        return BYTES[kind](root)

    return rebuilt


@pytest.mark.parametrize("killed_after", range(36, 46))
def test_rmq_1434_a_crash_around_the_end_of_a_log_file_loses_no_record_of_it(tmp_path, kind, rebuilt, killed_after):
    clock = Clock()
    builder = OPEN[kind](tmp_path / "store", ROLLED, clock=clock)
    for request in ROLLED[:killed_after]:
        clock.seconds += killed_after % 2  # with and without a checkpoint behind each
        builder.apply([request], request.next_offset, 0, ROLLED[-1].next_offset)
    if killed_after == 40:
        builder.apply([], 4_096, 0, ROLLED[-1].next_offset)  # the blank was passed
    builder.abandon()

    builder = OPEN[kind](tmp_path / "store", ROLLED)
    follow(builder, ROLLED)
    builder.stop()

    assert BYTES[kind](tmp_path / "store") == rebuilt(ROLLED)


def test_a_builder_resumes_at_the_last_record_that_it_applied(tmp_path, kind):
    builder = OPEN[kind](tmp_path, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()

    builder = OPEN[kind](tmp_path, REQUESTS)

    assert builder.start_offset() == REQUESTS[-1].commit_log_offset
    assert builder.progress.next_offset == REQUESTS[-1].next_offset


CHANGES = {
    "topic": "others",
    "queue_id": 1,
    "queue_offset": 7,
    "record_size_bytes": 101,
    "tags_code": -1,
    "store_time_millis": 5,
    "unique_key": "u",
}


@pytest.mark.parametrize("field", CHANGES)
def test_another_record_in_the_last_ones_place_is_known(field):
    assert fingerprint(REQUESTS[3]._replace(**{field: CHANGES[field]})) != fingerprint(REQUESTS[3])


def test_the_fingerprint_is_the_same_in_every_version():
    known = zlib.crc32(b"orders\x000\x003\x00300\x00100\x003\x001700000000000\x00u")
    assert LastRecord.of(make_request(3, unique_key="u")) == LastRecord(300, known)


@pytest.mark.parametrize("length", [39, 40, 60])
def test_another_log_makes_other_files_whatever_its_length(tmp_path, kind, rebuilt, length):
    builder = OPEN[kind](tmp_path / "store", REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()
    other = [make_request(n, topic="other", time_millis=7, keys=["o"]) for n in range(length)]

    builder = OPEN[kind](tmp_path / "store", other)
    follow(builder, other)
    builder.stop()

    assert BYTES[kind](tmp_path / "store") == rebuilt(other)


@pytest.mark.parametrize(
    ("first", "start"),
    [(3_900, 3_900), (3_950, 4_000), (4_000, 4_000), (5_000, 5_000)],
)
def test_a_log_whose_front_was_retired_is_followed_from_where_it_begins(tmp_path, kind, first, start):
    builder = OPEN[kind](tmp_path, REQUESTS)
    follow(builder, REQUESTS)
    assert builder.start_offset() == 3_900

    if first != 3_900:
        builder.find_place(first, 6_000)

    assert builder.start_offset() == start


def test_a_log_that_ends_before_what_was_applied_is_built_again(tmp_path, kind):
    builder = OPEN[kind](tmp_path, REQUESTS)
    follow(builder, REQUESTS)

    builder.find_place(0, 3_000)

    assert (builder.start_offset(), builder.progress.catching_up) == (-1, True)


def test_progress_that_is_stalled_is_catching_up_until_the_log_is_followed_again(tmp_path, kind):
    builder = OPEN[kind](tmp_path, REQUESTS)
    follow(builder, REQUESTS)
    assert not builder.progress.catching_up

    builder.progress.stall()
    assert builder.progress.catching_up
    builder.apply([], REQUESTS[-1].next_offset, 0, REQUESTS[-1].next_offset)

    assert not builder.progress.catching_up
