"""The append path makes the same bytes as the record codec, in any order and as often as asked."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError, InvalidMessageError
from store.format.host import Host
from store.format.record import (
    PreparedMessage,
    add_property,
    decode_record,
    encode_head,
    encode_record,
    patch_record,
    prepare_record,
)
from store.format.request_mark import TAIL_SIZE_BYTES, RequestMark, encode_request_mark
from tests.store.format.record_cases import CASES, V4, V6, Case

# A frame's magic follows from its topic's length; the table has V2 frames with short topics too.
WRITABLE = [case for case in CASES if (case.record.magic == -626843477) == (len(case.record.topic.encode()) > 127)]
MESSAGE = PreparedMessage("orders", 3, b"hello", b"TAGS\x01A\x02", 1, V4[0], V4[0])


def message_of(case: Case) -> PreparedMessage:
    record = case.record
    return PreparedMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties_bytes=record.properties_bytes[:-20] if case.has_crc else record.properties_bytes,
        born_time_millis=record.born_time_millis,
        born_host=record.born_host,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag & ~0x30,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        properties_crc=case.has_crc,
    )


@pytest.mark.parametrize("case", WRITABLE, ids=lambda case: case.name)
def test_prepared_and_patched_frame_is_the_record_s(case: Case) -> None:
    frame = prepare_record(message_of(case))
    patch_record(frame, case.record.queue_offset, case.record.commit_log_offset, case.record.store_time_millis)

    assert case.frame == bytes(frame)


@pytest.mark.parametrize("case", WRITABLE, ids=lambda case: case.name)
def test_patching_again_replaces_the_first_patch(case: Case) -> None:
    """A frame that did not fit its file is patched anew for the next one."""
    frame = prepare_record(message_of(case))
    patch_record(frame, 1, 2, 3)
    patch_record(frame, case.record.queue_offset, case.record.commit_log_offset, case.record.store_time_millis)

    assert case.frame == bytes(frame)


def test_last_property_is_closed_before_the_crc() -> None:
    message = MESSAGE._replace(properties_bytes=b"TAGS\x01A")
    frame = prepare_record(message)
    patch_record(frame, 0, 0, 0)
    record = decode_record(frame)

    assert record.properties_bytes.startswith(b"TAGS\x01A\x02__CRC32#\x01")
    assert record.tags == "A"


def test_host_bits_of_the_sys_flag_follow_the_hosts() -> None:
    """A caller's stale bits would shift every field behind them."""
    for born, store, expected in ((V4, V4, 0), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)):
        message = MESSAGE._replace(born_host=born[0], store_host=store[0], sys_flag=0x30 ^ expected | 1)
        frame = prepare_record(message)
        patch_record(frame, 0, 0, 0)

        assert expected | 1 == decode_record(frame).sys_flag


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_a_head_is_that_of_a_message_without_content(born: tuple[Host, bytes], store: tuple[Host, bytes]) -> None:
    message = MESSAGE._replace(queue_id=0, body=b"", born_time_millis=0, born_host=born[0], store_host=store[0])

    head = encode_head(born[0], store[0])

    assert head[:4] == bytes(4), "the size of the record is not known yet"
    assert head[4:] == prepare_record(message)[4 : len(head)]
    assert len(head) == 88 + 12 * (born is V6) + 12 * (store is V6)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("properties", {"properties_bytes": bytes(32768), "properties_crc": False}),
        ("properties", {"properties_bytes": b"a\x01" + b"v" * 32746}),  # the CRC and a separator take 21 of 32,767
        ("topic", {"topic": ""}),
        ("topic", {"topic": "x" * 32768}),
    ],
)
def test_message_that_does_not_fit_its_fields_is_refused(field: str, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        prepare_record(MESSAGE._replace(**changes))  # type: ignore[arg-type]
    assert field == caught.value.metadata["field"]


def test_host_that_is_no_address_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        prepare_record(MESSAGE._replace(store_host=Host("broker.example", 10911)))


@given(
    body=st.binary(max_size=5000),
    topic=st.text("abcXYZ%|_-", min_size=1, max_size=300),
    properties=st.binary(max_size=100),
    places=st.tuples(*[st.integers(0, (1 << 63) - 1)] * 3),
    properties_crc=st.booleans(),
)
def test_any_message_decodes_to_what_was_prepared(
    body: bytes, topic: str, properties: bytes, places: tuple[int, int, int], properties_crc: bool
) -> None:
    message = MESSAGE._replace(body=body, topic=topic, properties_bytes=properties, properties_crc=properties_crc)
    frame = prepare_record(message)
    patch_record(frame, *places)
    record = decode_record(frame, commit_log_offset=places[1])

    assert (body, topic) == (record.body, record.topic)
    assert places == (record.queue_offset, record.commit_log_offset, record.store_time_millis)
    assert zlib.crc32(body) & 0x7FFFFFFF == record.body_crc
    assert record.properties_bytes.startswith(properties)
    assert bytes(frame) == encode_record(record)


@pytest.mark.parametrize("properties", [b"__CRC32!\x010123456789\x02", b"a\x01b__CRC32#\x010123456789\x02"])
def test_properties_whose_end_resembles_a_crc_get_one_behind_it(properties: bytes) -> None:
    """In a log without `__CRC32#` the first was taken for damage, and the store stopped there."""
    frame = prepare_record(MESSAGE._replace(properties_bytes=properties, properties_crc=False))
    patch_record(frame, 0, 0, 0)

    record = decode_record(frame)

    assert record.is_guarded
    assert properties == record.properties_bytes[:-20]


@pytest.mark.parametrize(
    "case", [case for case in WRITABLE if len(case.record.properties_bytes) < 32_000], ids=lambda case: case.name
)
def test_a_property_put_into_a_prepared_record_makes_the_bytes_of_a_record_with_it(case: Case) -> None:
    message, entry = message_of(case), b"b\x01c\x02"
    properties = message.properties_bytes
    gap = b"\x02" if properties and properties[-1] != 2 else b""
    frame = prepare_record(message)
    add_property(frame, entry)
    assert frame == prepare_record(message._replace(properties_bytes=properties + gap + entry))


def test_a_property_goes_before_the_mark_of_a_request() -> None:
    mark = encode_request_mark(RequestMark(1, 2))
    frame = prepare_record(MESSAGE._replace(properties_bytes=b"a\x01b\x02" + mark))
    add_property(frame, b"c\x01d\x02", TAIL_SIZE_BYTES)
    assert frame == prepare_record(MESSAGE._replace(properties_bytes=b"a\x01b\x02c\x01d\x02" + mark))


def test_a_property_for_which_a_record_has_no_room_leaves_it_as_it_was() -> None:
    frame = prepare_record(MESSAGE._replace(properties_bytes=b"a\x01" + b"b" * 32_700))
    before = bytes(frame)
    with pytest.raises(InvalidMessageError):
        add_property(frame, b"c" * 50 + b"\x01d\x02")
    assert frame == before
