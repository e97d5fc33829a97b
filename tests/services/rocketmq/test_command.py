"""Commands of the remoting protocol, against bytes that RocketMQ's RemotingCommand (5.3.3) made of the same values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rocketmq.command import (
    ANSWER,
    FIELD_COUNT_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    LANGUAGES,
    ONEWAY,
    VERSION,
    Command,
    FrameError,
    FrameReader,
    decode,
    encode,
    encode_head,
    version_ordinal,
    version_text,
)
from tests.support.remoting import commands_of

ROUTE = Command(105, {"topic": "Orders"}, opaque=7, language="JAVA")
SEND = Command(310, {"a": "grüße", "i": "k\x01v\x02"}, b"body", opaque=-1, flag=0, remark="a remark", language="JAVA")
NO_ROUTE = Command(17, opaque=2147483647, flag=ANSWER, remark="No topic route info", language="JAVA")
COMMIT = Command(15, flag=ONEWAY, language="JAVA")

JSON_HEADERS = {
    "route": (
        ROUTE,
        '{"code":105,"extFields":{"topic":"Orders"},"flag":0,"language":"JAVA","opaque":7,'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
    ),
    "send": (
        SEND,
        '{"code":310,"extFields":{"a":"grüße","i":"k\\u0001v\\u0002"},"flag":0,"language":"JAVA","opaque":-1,'
        '"remark":"a remark","serializeTypeCurrentRPC":"JSON","version":479}',
    ),
    "no route": (
        NO_ROUTE,
        '{"code":17,"flag":1,"language":"JAVA","opaque":2147483647,"remark":"No topic route info",'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
    ),
    "commit": (
        COMMIT,
        '{"code":15,"flag":2,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":479}',
    ),
}
BINARY_FRAMES = {
    "route": (ROUTE, "0000002a0100002600690001df000000070000000000000000000000110005746f706963000000064f7264657273"),
    "send": (
        SEND,
        "0000003e0100003601360001dfffffffff0000000000000008612072656d61726b00000019000161000000076772c3bcc39f65"
        "000169000000046b017602626f6479",
    ),
    "no route": (
        NO_ROUTE,
        "0000002c0100002800110001df7fffffff00000001000000134e6f20746f70696320726f75746520696e666f00000000",
    ),
    "commit": (COMMIT, "0000001901000015000f0001df00000000000000020000000000000000"),
}

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(1 << 31), (1 << 31) - 1)
commands = st.builds(
    Command,
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.dictionaries(texts, texts, max_size=4),
    st.binary(max_size=40),
    numbers,
    numbers,
    texts,
    st.sampled_from(LANGUAGES),
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.booleans(),
)


@pytest.mark.parametrize("name", JSON_HEADERS)
def test_a_json_frame_is_the_one_that_rocketmq_writes(name: str) -> None:
    command, text = JSON_HEADERS[name]
    header = text.encode()
    frame = (4 + len(header) + len(command.body)).to_bytes(4, "big") + len(header).to_bytes(4, "big")

    assert encode(command) == frame + header + command.body
    assert decode(encode(command)[4:]) == command


@pytest.mark.parametrize("name", BINARY_FRAMES)
def test_a_binary_frame_is_the_one_that_rocketmq_writes(name: str) -> None:
    command, digits = BINARY_FRAMES[name]
    command = Command(
        *(command.code, command.fields, command.body, command.opaque, command.flag, command.remark),
        *(command.language, command.version),
        is_binary=True,
    )

    assert encode(command).hex() == digits
    assert decode(bytes.fromhex(digits)[4:]) == command


@given(commands)
def test_every_command_reads_back_as_it_was_written(command: Command) -> None:
    assert decode(encode(command)[4:]) == command


@given(st.lists(commands, max_size=3), st.data())
def test_commands_come_out_of_any_pieces_of_their_bytes(several: list[Command], data: st.DataObject) -> None:
    stream = b"".join(map(encode, several))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = FrameReader()
    found: list[Command] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += commands_of(reader, stream[begin:end])

    assert found == several
    assert reader.size_bytes == 0


@given(commands, st.data())
def test_damaged_bytes_are_refused_or_read_and_nothing_else(command: Command, data: st.DataObject) -> None:
    frame = bytearray(encode(command)[4:])
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[at] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))]
    try:
        found = decode(frame)
    except FrameError:
        return
    assert type(found.code) is type(found.opaque) is type(found.flag) is int
    assert all(type(each) is str for pair in found.fields.items() for each in pair)


def frame_of(header: object, form: int = 0) -> bytes:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (form << 24 | len(data)).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "no header"),
        (b"\0\0\0", "no header"),
        (frame_of({"code": 1})[:-1], "a header of 11 bytes in a frame of 14"),
        (frame_of({"code": 1}, form=2), "form 2"),
        (frame_of(b"[]"), "no JSON object"),
        (frame_of(b"{"), "no JSON"),
        (frame_of(b"\xff"), "no JSON"),
        (frame_of(b"[" * 100_000), "no JSON"),
        (frame_of({"code": "x"}), "code is no number"),
        (frame_of({"code": True}), "code is no number"),
        (frame_of({"code": 1, "opaque": 1 << 31}), "opaque is no number"),
        (frame_of({"code": 1, "extFields": []}), "extFields"),
        (frame_of({"code": 1, "extFields": {"a": {}}}), "field 'a' is no text"),
        (frame_of(b"\0\x0f", form=1), "cut"),
        (frame_of(bytes.fromhex("000f0001df0000000000000002000000ff"), form=1), "a text of 255 bytes"),
        (frame_of(bytes.fromhex("000f0001df0000000000000002ffffffff00000000"), form=1), "a text of -1 bytes"),
        (frame_of(bytes.fromhex("000f0001df000000000000000200000000ffffffff"), form=1), "fields of -1 bytes"),
        (frame_of(bytes.fromhex("000f0001df0000000000000002000000000000000400016100"), form=1), "cut"),
    ],
)
def test_what_is_no_command_is_refused_with_its_reason(frame: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        decode(frame)


def test_numbers_among_the_fields_are_texts_and_names_that_are_not_known_are_passed_over() -> None:
    found = decode(
        frame_of({"code": 11, "extFields": {"a": 1, "b": True, "c": None, "d": 1.5}, "new": [], "remark": None})
    )

    assert found.fields == {"a": "1", "b": "true", "d": "1.5"}
    assert (found.remark, found.language, found.version) == ("", "", 0)


@pytest.mark.parametrize("name", ["language", "remark"])
def test_half_of_a_surrogate_in_the_language_of_a_client_failed_its_heartbeats(name: str) -> None:
    """Found by fuzzing: no protobuf takes it, and the consumer service is told the language."""
    header = b'{"code":34,"%b":"a\\ud800"}' % name.encode()
    assert getattr(decode(len(header).to_bytes(4, "big") + header), name) == "a?"


def test_a_lone_surrogate_that_json_can_say_becomes_a_question_mark() -> None:
    header = b'{"code":1,"extFields":{"\\ud800a":"\\udfff","b":"\xc3\xbc"}}'
    assert decode(len(header).to_bytes(4, "big") + header).fields == {"?a": "?", "b": "ü"}


def test_a_header_that_no_client_writes_is_refused_before_it_is_read() -> None:
    header = json.dumps({"code": 1, "remark": "x" * HEADER_BYTES_MAX}).encode()
    with pytest.raises(FrameError, match="at most 1048576"):
        decode(len(header).to_bytes(4, "big") + header)


@pytest.mark.parametrize("size", [0, 3, FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
def test_a_length_that_no_frame_has_is_refused_before_its_bytes_come(size: int) -> None:
    reader = FrameReader()
    first = encode(ROUTE)

    assert next(commands_of(reader, first)) == ROUTE
    with pytest.raises(FrameError, match=f"a frame of {size} bytes"):
        list(commands_of(reader, size.to_bytes(4, "big")))


def test_a_command_that_no_receiver_would_take_is_not_written() -> None:
    assert encode_head(ROUTE, FRAME_BYTES_MAX - 200)
    with pytest.raises(FrameError, match="is longer than"):
        encode_head(ROUTE, FRAME_BYTES_MAX)
    with pytest.raises(FrameError, match="no room"):
        encode(Command(200050, is_binary=True))  # a code of POP does not fit into 16 bits


def test_an_answer_names_its_request_and_is_json_also_for_a_binary_request() -> None:
    answer = Command(11, opaque=41, is_binary=True).answer(19, "nothing new", {"nextBeginOffset": "3"}, b"x")

    assert (answer.code, answer.opaque, answer.is_answer, answer.is_oneway) == (19, 41, True, False)
    assert (answer.remark, answer.fields, answer.body, answer.is_binary) == (
        *("nothing new", {"nextBeginOffset": "3"}, b"x"),
        False,
    )


def test_a_reader_that_is_always_a_frame_ahead_keeps_no_more_than_its_lead() -> None:
    frame = encode(Command(1, body=bytes(100_000)))
    reader = FrameReader()
    reader.add(frame)
    for _ in range(100):
        reader.add(frame)
        assert reader.next() is not None
        assert reader.held_bytes <= 3 * len(frame)


def test_a_reader_tells_whether_the_next_frame_is_whole() -> None:
    frame = encode(ROUTE)
    reader = FrameReader()
    for at in range(len(frame)):
        assert not reader.has_frame
        reader.add(frame[at : at + 1])
    assert reader.has_frame
    reader.next()
    assert not reader.has_frame
    reader.add(b"\xff" * 4)
    assert reader.has_frame  # `next` refuses it


def test_a_header_with_more_fields_than_any_client_has_is_refused() -> None:
    fields = {str(number): "" for number in range(FIELD_COUNT_MAX + 1)}
    with pytest.raises(FrameError, match="at most 1024"):
        decode(encode(Command(1, fields))[4:])


@pytest.mark.parametrize(
    ("ordinal", "text"),
    # MQVersion of RocketMQ 5.5.0
    [
        (212, "4.0.0-SNAPSHOT"),
        (317, "4.5.2"),
        (409, "4.9.8"),
        (413, "5.0.0"),
        (479, "5.3.3"),
        (513, "5.5.0"),
        (611, "5.9.9"),
    ],
)
def test_the_release_of_a_client_is_known_by_its_ordinal_and_the_other_way(ordinal, text):
    assert version_text(ordinal) == text
    assert version_ordinal(text) == ordinal
    assert version_ordinal(str(ordinal)) == ordinal


@pytest.mark.parametrize("ordinal", [-1, 0, 211, 612, 1 << 31])
def test_an_ordinal_that_has_no_release_of_three_digits_is_told_as_it_is(ordinal):
    assert version_text(ordinal) == str(ordinal)


@pytest.mark.parametrize("text", ["", "v5", "5.10.0", "5.5", "9.9.9", "1.0.0", "5.5.0-beta", "٥.٥.٠", "x" * 4_000])
def test_a_version_that_rocketmq_has_not_is_told_as_that_of_the_protocol(text):
    assert version_ordinal(text) == VERSION
