"""Wire format without a schema: against what protobuf itself writes."""

import re

import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from console.bodies.protobuf_raw import NotProtobufError, begins_like_fields, describe_fields
from reput.message.v1 import message_pb2


def test_every_kind_of_field_is_shown_with_its_number() -> None:
    message = struct_pb2.Value(number_value=1.5).SerializeToString()
    message += message_pb2.NewMessage(
        topic="Orders", body=b"\xff\x00\x01", queue_id=-1, properties={"k": "v"}
    ).SerializeToString()

    assert list(describe_fields(message)) == [
        "2: 0x3ff8000000000000  fixed64  1.5",
        '1: "Orders"',
        "2: 18446744073709551615  int64 -1",
        "3: ff0001  3 bytes",
        "6: {",
        '  1: "k"',
        '  2: "v"',
        "}",
    ]


@given(st.lists(st.tuples(st.text(max_size=9), st.integers(-(2**31), 2**31 - 1)), max_size=20))
def test_as_many_fields_at_the_top_as_were_written(rows: list[tuple[str, int]]) -> None:
    written = descriptor_pb2.FileDescriptorProto()
    for name, number in rows:
        field = written.message_type.add().field.add()
        field.name, field.number = name, number

    lines = list(describe_fields(written.SerializeToString()))

    assert sum(1 for line in lines if re.match(r"4: ", line)) == len(rows)


@pytest.mark.parametrize(
    "content", [b"\x00", b"\x0f", b"\x0a\x05abc", b"\x80", b"\x0b", b"\x0c", b"\x08" + b"\xff" * 11]
)
def test_what_is_no_message_says_where(content: bytes) -> None:
    with pytest.raises(NotProtobufError):
        describe_fields(content)


@given(st.binary(max_size=300))
def test_any_bytes_end_in_lines_or_in_the_error(content: bytes) -> None:
    try:
        lines = list(describe_fields(content))
    except NotProtobufError:
        return
    assert bool(lines) == bool(content)


def test_a_bomb_of_fields_is_bounded() -> None:
    assert len(list(describe_fields(b"\x08\x01" * 500_000))) < 2_100
    nested = b""
    for _ in range(200):
        nested = b"\x0a" + message_pb2.NewMessage(body=nested).SerializeToString()[1:] if nested else b"\x08\x01"
    assert list(describe_fields(nested))


@given(st.binary(max_size=60))
def test_bytes_that_can_be_described_begin_like_fields_and_others_do_not(content: bytes) -> None:
    try:
        next(describe_fields(content), None)
        is_described = True
    except NotProtobufError:
        is_described = False

    assert begins_like_fields(content, len(content)) is is_described


@given(st.text(max_size=20), st.binary(max_size=40), st.lists(st.text(max_size=9), max_size=5))
def test_every_beginning_of_a_message_begins_like_fields(topic: str, body: bytes, keys: list[str]) -> None:
    content = message_pb2.NewMessage(topic=topic, body=body, keys=keys).SerializeToString()

    for size_bytes in range(len(content) + 1):
        assert begins_like_fields(content[:size_bytes], len(content))


def test_groups_in_groups_are_no_text_of_the_square_of_their_size() -> None:
    """A fuzz target found 2,000 bytes whose lines, each indented by one more step, were 8 MiB; no group of them ends."""
    begins, ends = b"\x5b" * 32, b"\x5c" * 32

    assert len(list(describe_fields(begins + ends))) == 64
    with pytest.raises(NotProtobufError, match="nested more than 32 deep"):
        describe_fields(b"\x5b" + begins + ends + b"\x5c")
    with pytest.raises(NotProtobufError, match="nested more than 32 deep"):
        describe_fields(b"\x08\x01" + b"\x5b" * 2_000)
