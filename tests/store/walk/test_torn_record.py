"""A record without `__CRC32#`: torn, or whole, by its text and by what follows it."""

from dataclasses import replace

import pytest

from store.format.record import Record, decode_record, encode_blank, encode_record
from store.walk.torn_record import is_torn
from tests.store.walk.logs import closed, frames_of, message, open_files

FILE_BYTES = 1000


def first(topic: str = "orders", properties: str | bytes = "a\x01b\x02") -> tuple[bytes, Record]:
    """The log's first record, without a guard."""
    ordinary = decode_record(frames_of([message(properties=properties, guarded=False)], base=0)[0])
    frame = encode_record(replace(ordinary, topic=topic))  # which writes an empty topic, too
    return frame, decode_record(frame)


TORN_TEXTS: list[tuple[str, str | bytes]] = [
    ("", "a\x01b\x02"),
    ("or\0ers", "a\x01b\x02"),
    ("or\ufffders", "a\x01b\x02"),
    ("orders", b"a\x01\xff\x02"),
    ("orders", "a\x01b\0"),
    ("orders", "a\x01b\x02name only"),
    ("orders", "a\x01b\x02\x01value only"),
    ("orders", "a\x01b\x02name\x01"),
]
WHOLE_TEXTS: list[tuple[str, str | bytes]] = [
    ("orders", ""),
    ("orders", "a\x01b\x02"),
    ("orders", "a\x01b"),
    ("订单", "a\x01订单\x02"),
]


@pytest.mark.parametrize(("topic", "properties"), TORN_TEXTS)
def test_a_text_that_no_writer_meant_is_torn_where_the_log_ends(topic: str, properties: str | bytes) -> None:
    frame, record = first(topic, properties)
    assert is_torn(open_files(frame + bytes(500)), record, follows_guarded=False)


@pytest.mark.parametrize(("topic", "properties"), [*TORN_TEXTS, *WHOLE_TEXTS])
def test_a_record_that_another_one_follows_is_whole(topic: str, properties: str | bytes) -> None:
    """Then it is what was written, however odd."""
    frame, record = first(topic, properties)
    log = frame + frames_of([message()], base=len(frame))[0]
    assert not is_torn(open_files(log), record, follows_guarded=True)


@pytest.mark.parametrize(("topic", "properties"), WHOLE_TEXTS)
def test_behind_a_guarded_record_what_follows_decides(topic: str, properties: str | bytes) -> None:
    frame, record = first(topic, properties)
    assert not is_torn(open_files(frame + b"junk" + bytes(50)), record, follows_guarded=False)
    assert not is_torn(open_files(frame + bytes(500)), record, follows_guarded=True)
    assert is_torn(open_files(frame + b"junk" + bytes(50)), record, follows_guarded=True)
    assert is_torn(open_files(frame + bytes(60) + b"junk"), record, follows_guarded=True)


@pytest.mark.parametrize(
    ("next_file", "torn"),
    [
        (None, False),
        (bytes(FILE_BYTES), False),
        (frames_of([message()], base=FILE_BYTES)[0], False),
        (frames_of([message()], base=0)[0], True),
        (encode_blank(FILE_BYTES), True),
        (b"no record at all", True),
    ],
)
def test_a_blank_counts_if_the_log_goes_on_behind_it(next_file: bytes | None, torn: bool) -> None:
    """An older log may have left the blank: it states no place."""
    frame, record = first()
    contents = [closed(frame, size_bytes=FILE_BYTES), *([] if next_file is None else [next_file])]
    assert is_torn(open_files(*contents), record, follows_guarded=True) == torn


def test_a_blank_that_does_not_close_its_file_is_no_end() -> None:
    frame, record = first()
    assert is_torn(open_files(frame + encode_blank(50) + bytes(100)), record, follows_guarded=True)
