"""decode_dispatch: what a record says, and what is wrong with one that is damaged."""

import pytest

from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError
from store.format.record import IncompleteRecordError, encode_blank
from tests.store.derive import oracle
from tests.store.walk.logs import ODD, frames_of, message

BASE = 5000
FRAME = frames_of([message()], base=BASE)[0]


@pytest.mark.parametrize("number", [n for n, one in enumerate(ODD) if b"\xff" not in one.properties_bytes])
def test_any_record_says_what_the_oracle_reads(number):
    (frame,) = frames_of([ODD[number]], base=BASE)
    (record,) = oracle.parse(frame, BASE)

    request = decode_dispatch(b"??" + frame, 2, BASE)

    assert (request.topic, request.queue_id, request.queue_offset) == record[:3]
    assert (request.commit_log_offset, request.record_size_bytes, request.sys_flag) == record[3:6]
    assert (request.store_time_millis, request.next_offset) == (record.store_millis, BASE + len(frame))
    assert request.unique_key == record.properties.get("UNIQ_KEY", "")
    assert list(request.keys) == [key for key in record.properties.get("KEYS", "").split(" ") if key]
    assert oracle.unit_of(record)[12:] == request.tags_code.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize("size", [0, 3, 8, 39, 40, 90, len(FRAME) - 1])
def test_a_record_that_is_cut_is_incomplete(size):
    with pytest.raises(IncompleteRecordError):
        decode_dispatch(FRAME[:size], 0, BASE)


def test_a_blank_is_no_record():
    with pytest.raises(RecordCorruptedError, match="blank"):
        decode_dispatch(encode_blank(500) + bytes(492), 0, BASE)


@pytest.mark.parametrize(("at", "value"), [(4, 0), (28, 1), (84, 0xFF), (84, 0x7F)])
def test_a_record_that_contradicts_itself_is_corrupted(at, value):
    """Byte 4 is in the magic, 28 in its own offset, 84 in the length of its body."""
    with pytest.raises(RecordCorruptedError):
        decode_dispatch(FRAME[:at] + bytes([value]) + FRAME[at + 1 :], 0, BASE)


@pytest.mark.parametrize("at", [len(FRAME) - 1, 93])
def test_lengths_that_do_not_meet_the_records_end_are_corrupted(at):
    topic_length_at = FRAME.index(b"orders") - 1
    changed = bytearray(FRAME)
    changed[topic_length_at] += 1 if at == 93 else 120
    with pytest.raises(RecordCorruptedError):
        decode_dispatch(bytes(changed), 0, BASE)


LIGHT = "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x017,0\x02"


@pytest.mark.parametrize(
    ("topic", "properties", "places"),
    [
        ("orders", LIGHT, (("%LMQ%a", 7), ("%LMQ%b", 0))),
        ("orders", "INNER_MULTI_DISPATCH\x01%LMQ%a\x02", ()),
        ("orders", "INNER_MULTI_QUEUE_OFFSET\x017\x02", ()),
        ("%RETRY%group", LIGHT, ()),
        ("%DLQ%group", LIGHT, ()),
        ("orders", LIGHT.replace("%LMQ%b", "%LMQ%$other$b"), (("%LMQ%a", 7),)),
    ],
)
def test_a_record_says_where_it_stands_in_light_queues_unless_it_is_a_copy(topic, properties, places):
    (frame,) = frames_of([message(topic, properties=properties)], base=BASE)

    assert decode_dispatch(frame, 0, BASE).light_places == places
