"""Gaps in a queue are filled as far as the log has room for records; a rotted position is refused."""

import pytest

from store.derive.queue_placement import BURNT_POSITION_COUNT_MAX
from store.format.record import FRAME_SIZE_BYTES_MIN
from tests.support.builders import follow, open_queues, queue_bytes
from tests.support.dispatches import make_request


def queue_of(builder):
    return builder._table.queue("orders", 0)


def build(root, requests):
    builder = open_queues(root, requests)
    follow(builder, requests)
    return builder


@pytest.mark.parametrize("bit", [*range(13, 34, 4), 40, 62, 63])
@pytest.mark.parametrize("damaged", [0, 1, 5, 9])
def test_a_rotted_high_bit_of_a_position_writes_no_fillers_over_a_giant_gap(tmp_path, caplog, damaged, bit):
    """Without a bound one flipped bit of a record without `__CRC32#` fills the disk."""
    requests = [make_request(n) for n in range(10)]
    position = damaged | 1 << bit
    requests[damaged] = make_request(damaged, queue_offset=position - (1 << 64) if bit == 63 else position)

    builder = build(tmp_path, requests)

    assert len(queue_bytes(tmp_path)) == 1
    found = [position for position, _ in queue_of(builder).units.units(0, 100)]
    assert found == [n for n in range(10) if n != damaged]
    assert "its queue offset is damaged" in caplog.text or bit == 63
    assert f"the record at {damaged * 100} " in caplog.text or bit == 63
    assert builder.progress.next_offset == 1_000


@pytest.mark.parametrize("bit", [20, 63])
def test_a_new_queue_of_only_damaged_positions_is_no_queue(tmp_path, bit):
    position = (1 << bit) - ((1 << 64) if bit == 63 else 0)
    builder = build(tmp_path, [make_request(0, queue_offset=position)])
    assert builder._table.items() == []
    assert queue_bytes(tmp_path) == {}


def test_a_gap_for_which_the_log_has_room_is_filled(tmp_path):
    """A queue whose front the log no longer has begins where its first record says."""
    position = 100_000 * 100 // FRAME_SIZE_BYTES_MIN
    builder = build(tmp_path, [make_request(100_000, queue_offset=position)])
    assert queue_of(builder).units.min_offset(0) == position
    assert queue_of(builder).units.end == position + 1


def test_positions_that_rocketmq_burnt_for_messages_it_refused_are_filled(tmp_path):
    requests = [
        make_request(0),
        make_request(1, queue_offset=3),
        make_request(2, queue_offset=3 + BURNT_POSITION_COUNT_MAX),
    ]
    builder = build(tmp_path, requests)
    assert [position for position, _ in queue_of(builder).units.units(0, 9)] == [0, 3, 3 + BURNT_POSITION_COUNT_MAX]


def test_a_replay_refuses_what_the_first_build_refused(tmp_path):
    requests = [make_request(n) for n in range(30)]
    requests[12] = make_request(12, queue_offset=12 | 1 << 40)
    builder = build(tmp_path, requests)
    builder.stop()
    before = queue_bytes(tmp_path)
    (tmp_path / "reput/consumequeue/checkpoint.json").unlink()

    builder = build(tmp_path, requests)
    builder.stop()

    assert queue_bytes(tmp_path) == before


def test_a_front_that_the_log_has_cut_inside_a_gap_is_the_message_behind_the_gap(tmp_path):
    """What fills the gap is no message: SearchOffset, ListQueues and pages would begin with a position that has none."""
    builder = build(tmp_path, [make_request(0), make_request(1, queue_offset=4), make_request(2, queue_offset=5)])
    assert [queue_of(builder).units.min_offset(first) for first in (0, 1, 100, 101, 201)] == [0, 4, 4, 5, 6]
