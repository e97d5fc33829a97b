"""The record codec on its case table: encode, decode and every torn prefix; then what it refuses, and random input."""

import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.derive.record_dispatch import decode_dispatch
from store.errors import InvalidMessageError, RecordCorruptedError
from store.format.host import Host
from store.format.properties import CRC32, parse_properties
from store.format.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    IncompleteRecordError,
    Record,
    decode_header,
    decode_record,
    encode_blank,
    encode_record,
    locate_properties,
)
from tests.store.format.record_cases import CASES, COMMIT_LOG_OFFSET, PLAIN, V4, V6, Case, make_case

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
CASE = CASES[0]
BODY_SIZE_AT = 84


def patched(frame: bytes, at: int, replacement: bytes) -> bytes:
    return frame[:at] + replacement + frame[at + len(replacement) :]


@each_case
def test_encode_gives_the_bytes(case: Case) -> None:
    assert case.frame == encode_record(case.record)


@each_case
def test_decode_gives_the_value(case: Case) -> None:
    assert case.record == decode_record(case.frame, commit_log_offset=COMMIT_LOG_OFFSET)


@each_case
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_decode_takes_any_buffer_at_any_place(case: Case, wrap: type) -> None:
    buffer = wrap(b"before" + case.frame + b"after")

    assert case.record == decode_record(buffer, at=6)
    assert decode_dispatch(case.frame, 0, COMMIT_LOG_OFFSET) == decode_dispatch(buffer, 6, COMMIT_LOG_OFFSET)


@each_case
def test_properties_are_found_in_a_record_at_any_place(case: Case) -> None:
    body_size_bytes, properties = locate_properties(b"before" + case.frame + b"after", 6)

    assert body_size_bytes == len(case.record.body)
    assert {**parse_properties(properties), CRC32: ""} == {**case.record.properties, CRC32: ""}


@each_case
def test_every_prefix_is_incomplete(case: Case) -> None:
    """Each way of reading says of each torn frame that it is torn, not that it is damaged."""
    sizes = [*range(min(len(case.frame), 700)), *range(700, len(case.frame), 997), len(case.frame) - 1]
    for size in sizes:
        with pytest.raises(IncompleteRecordError):
            decode_record(case.frame[:size], commit_log_offset=COMMIT_LOG_OFFSET)
        with pytest.raises(IncompleteRecordError):
            decode_dispatch(case.frame[:size], 0, COMMIT_LOG_OFFSET)


@each_case
def test_header_needs_only_its_own_bytes(case: Case) -> None:
    head_size = 88 + 12 * (case.record.born_host.is_ipv6 + case.record.store_host.is_ipv6)
    header = decode_header(case.frame[:head_size])

    assert case.record.store_size_bytes == header.size_bytes
    assert case.record.store_time_millis == header.store_time_millis
    assert case.record.queue_offset == header.queue_offset
    assert len(case.record.body) == header.body_size_bytes
    assert not header.is_blank
    for size in range(head_size):
        with pytest.raises(IncompleteRecordError):
            decode_header(case.frame[:size])


@each_case
def test_dispatch_says_the_same_as_the_record(case: Case) -> None:
    request, record = decode_dispatch(case.frame, 0, COMMIT_LOG_OFFSET), case.record

    assert (record.topic, record.queue_id, record.queue_offset) == request[:3]
    assert record.commit_log_offset == request.commit_log_offset
    assert record.store_size_bytes == request.record_size_bytes
    assert record.next_offset == request.next_offset
    assert record.store_time_millis == request.store_time_millis
    assert record.keys == request.keys
    assert record.unique_key == request.unique_key
    assert record.sys_flag == request.sys_flag
    assert record.prepared_transaction_offset == request.prepared_transaction_offset


def test_properties_tags_and_keys_are_read_from_the_raw_bytes() -> None:
    record = CASE.record

    assert record.properties == {"KEYS": "k1 k2", "UNIQ_KEY": "7F0000010001", "TAGS": "TagA"}
    assert record.properties is record.properties
    assert (record.tags, record.keys, record.unique_key) == ("TagA", ("k1", "k2"), "7F0000010001")
    with pytest.raises(TypeError):
        record.properties["TAGS"] = "B"  # type: ignore[index]


def test_blank_is_eight_bytes_and_read_back() -> None:
    blank = encode_blank(897)

    assert struct.pack(">ii", 897, BLANK_MAGIC) == blank
    assert decode_header(blank).is_blank
    assert decode_header(blank).size_bytes == 897
    for size in range(8):
        with pytest.raises(IncompleteRecordError):
            decode_header(blank[:size])


@pytest.mark.parametrize("tail", [b"", b"\0" * 100])
def test_blank_is_no_record(tail: bytes) -> None:
    with pytest.raises(RecordCorruptedError, match="blank") as caught:
        decode_record(encode_blank(108) + tail, commit_log_offset=500)
    assert not isinstance(caught.value, IncompleteRecordError)
    assert caught.value.metadata["commitLogOffset"] == "500"
    with pytest.raises(RecordCorruptedError, match="blank"):
        decode_dispatch(encode_blank(108) + tail, 0, 500)


def test_blank_smaller_than_itself_is_damage() -> None:
    with pytest.raises(RecordCorruptedError, match="claims 7 bytes"):
        decode_header(struct.pack(">ii", 7, BLANK_MAGIC))


TOPIC_LENGTH_AT = 88 + 5
DAMAGES = {
    "zeros": bytes(len(CASE.frame)),
    "an unknown magic": patched(CASE.frame, 4, b"\0\0\0\1"),
    "a size below any record": patched(CASE.frame, 0, struct.pack(">i", 90)),
    "a negative size": patched(CASE.frame, 0, struct.pack(">i", -5)),
    "a size one short": patched(CASE.frame, 0, struct.pack(">i", len(CASE.frame) - 1)),
    "a size one over": patched(CASE.frame, 0, struct.pack(">i", len(CASE.frame) + 1)) + b"x",
    "a negative body size": patched(CASE.frame, BODY_SIZE_AT, struct.pack(">i", -1)),
    "a huge body size": patched(CASE.frame, BODY_SIZE_AT, struct.pack(">i", 0x7FFFFFFF)),
    "a topic longer than the record": patched(CASE.frame, TOPIC_LENGTH_AT, b"\x7f"),
    "a V1 topic of over 127 bytes": patched(CASE.frame, TOPIC_LENGTH_AT, b"\x80"),
    "properties longer than the record": patched(CASE.frame, TOPIC_LENGTH_AT + 7, b"\x7f\xff"),
    "negative properties size": patched(CASE.frame, TOPIC_LENGTH_AT + 7, b"\xff\xff"),
    "sysFlag that announces an IPv6 host": patched(CASE.frame, 39, b"\x10"),
    "another commit-log offset": patched(CASE.frame, 28, struct.pack(">q", COMMIT_LOG_OFFSET + 1)),
    "V2 with a negative topic length": patched(CASES[8].frame, TOPIC_LENGTH_AT, b"\xff\xff"),
}


@pytest.mark.parametrize("frame", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_to_lengths_is_named_by_both_readers(frame: bytes) -> None:
    with pytest.raises(RecordCorruptedError) as caught:
        decode_record(frame + bytes(1000), commit_log_offset=COMMIT_LOG_OFFSET)
    assert not isinstance(caught.value, IncompleteRecordError)
    assert caught.value.metadata["commitLogOffset"] == str(COMMIT_LOG_OFFSET)
    with pytest.raises(RecordCorruptedError) as caught:
        decode_dispatch(frame + bytes(1000), 0, COMMIT_LOG_OFFSET)
    assert not isinstance(caught.value, IncompleteRecordError)


def test_damaged_body_is_refused_unless_its_crc_is_not_asked_for() -> None:
    frame = patched(CASE.frame, 88, b"j")

    with pytest.raises(RecordCorruptedError, match="body's CRC"):
        decode_record(frame)
    assert decode_record(frame, check_body_crc=False).body == b"jello"


def test_empty_body_is_not_checked() -> None:
    """RocketMQ leaves whatever number stands there."""
    case = make_case("empty", body=b"")

    assert decode_record(patched(case.frame, 8, b"\0\0\0\7")).body_crc == 7


def test_frame_without_crc_property_that_ends_in_zeros_is_told_as_such() -> None:
    """A torn write leaves zeros; the lengths still add up and RocketMQ takes the record."""
    frame = CASE.frame[:-20] + bytes(20)

    assert decode_record(frame).ends_in_zero
    assert not CASE.record.ends_in_zero


@pytest.mark.parametrize("case", [case for case in CASES if case.has_crc], ids=lambda case: case.name)
def test_every_single_bit_flip_is_detected_with_frame_crc(case: Case) -> None:
    """Also one in the property's own name, which would make the CRC look like any other property."""
    for bit in range(len(case.frame) * 8):
        flipped = bytearray(case.frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordCorruptedError):
            decode_record(flipped)


def test_frame_crc_is_not_looked_at_when_not_asked_for() -> None:
    case = make_case("crc", with_crc=True)
    frame = patched(case.frame, len(case.frame) - 11, b"0000000000")

    with pytest.raises(RecordCorruptedError, match="__CRC32#"):
        decode_record(frame)
    assert decode_record(frame, check_properties_crc=False).body == b"hello"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("born_host", {"born_host": V6[0]}),
        ("store_host", {"store_host": V6[0]}),
        ("born_host", {"sys_flag": 0x10}),
        ("topic", {"topic": "x" * 128}),
        ("topic", {"topic": "x" * 32768, "magic": MAGIC_V2}),
        ("properties", {"properties_bytes": bytes(32768)}),
    ],
)
def test_record_that_does_not_fit_its_fields_is_refused(field: str, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        encode_record(dataclasses.replace(CASE.record, **changes))  # type: ignore[arg-type]
    assert field == caught.value.metadata["field"]


i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts_v4 = st.builds(Host, st.ip_addresses(v=4).map(str), i32)
hosts_v6 = st.builds(Host, st.ip_addresses(v=6).map(str), i32)


@st.composite
def records(draw: st.DrawFn) -> Record:
    sys_flag = draw(i32)
    topic = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=150))
    fits_v1 = len(topic.encode()) <= 127
    body = draw(st.binary(max_size=300))
    return Record(
        topic=topic,
        queue_id=draw(i32),
        queue_offset=draw(i64),
        commit_log_offset=draw(i64),
        store_size_bytes=0,
        flag=draw(i32),
        sys_flag=sys_flag,
        born_time_millis=draw(i64),
        born_host=draw(hosts_v6 if sys_flag & 0x10 else hosts_v4),
        store_time_millis=draw(i64),
        store_host=draw(hosts_v6 if sys_flag & 0x20 else hosts_v4),
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
        body_crc=draw(i32),
        body=body,
        properties_bytes=draw(st.binary(max_size=300)),
        magic=draw(st.sampled_from([MAGIC_V1, MAGIC_V2])) if fits_v1 else MAGIC_V2,
    )


def spelled(host: Host) -> Host:
    """IPv6 addresses have several spellings; the stored bytes have one."""
    return Host.parse(str(dataclasses.replace(host, port=1)))


@given(records())
def test_any_record_comes_back(record: Record) -> None:
    frame = encode_record(record)
    decoded = decode_record(frame, check_body_crc=False, check_properties_crc=False)

    assert frame == encode_record(decoded)
    expected = dataclasses.replace(
        record,
        store_size_bytes=len(frame),
        born_host=dataclasses.replace(spelled(record.born_host), port=record.born_host.port),
        store_host=dataclasses.replace(spelled(record.store_host), port=record.store_host.port),
    )
    assert expected == decoded


@given(st.binary(max_size=400))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for head in (b"", struct.pack(">ii", len(data) + 8, MAGIC_V1), struct.pack(">ii", len(data) + 8, MAGIC_V2)):
        for decode in (decode_record, lambda buffer: decode_dispatch(buffer, 0, 0)):
            try:
                decode(head + data)
            except RecordCorruptedError:
                continue


@given(st.sampled_from(CASES), st.data())
def test_any_damage_is_refused_alike_by_both_readers(case: Case, data: st.DataObject) -> None:
    """What the fast reader takes, the careful one takes too, and they agree."""
    frame = bytearray(case.frame)
    at = data.draw(st.integers(0, len(frame) - 1))
    piece = data.draw(st.binary(min_size=1, max_size=8))[: len(frame) - at]
    frame[at : at + len(piece)] = piece
    results: list[object] = []
    for attempt in (
        lambda: decode_dispatch(frame, 0, COMMIT_LOG_OFFSET).record_size_bytes,
        lambda: (
            decode_record(
                frame, commit_log_offset=COMMIT_LOG_OFFSET, check_body_crc=False, check_properties_crc=False
            ).store_size_bytes
        ),
    ):
        try:
            results.append(attempt())
        except RecordCorruptedError as error:
            results.append(type(error))
    assert results[0] == results[1]


def test_ipv4_and_plain_case_have_the_drawn_sizes() -> None:
    """Guards the table itself: 91 bytes and what varies."""
    assert V4[1] == bytes.fromhex("0a01020300002a9f")
    assert 91 + len("hello") + len("orders") + len(PLAIN) == len(CASE.frame)
