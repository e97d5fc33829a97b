"""Headers that are not decoded mean what they mean when they are decoded."""

import random
from dataclasses import replace

import pytest

from gateway.remoting import repeated_headers
from gateway.remoting.repeated_headers import RepeatedHeaders, cut, is_proven, text_of
from services.rocketmq.command import Command, FrameError, decode

JAVA = (
    '{"code":310,"extFields":{"a":"pg","b":"T","e":"1","f":"0","g":"%s","h":"0","i":"%s","j":"0","m":"false"},'
    '"flag":0,"language":"JAVA","opaque":%s,"serializeTypeCurrentRPC":"JSON","version":507}'
)
GO = (
    '{"code":10,"language":"GO","version":317,"opaque":%s,"flag":0,"remark":"","extFields":{"bornTimestamp":"%s",'
    '"flag":"0","producerGroup":"pg","properties":"%s","queueId":"1","topic":"T"}}'
)


def header_of(born="1700000000000", properties=r"KEYS\u0001k\u0002", opaque="7"):
    return (JAVA % (born, properties, opaque)).encode()


def command_of(header: bytes) -> Command:
    return decode(len(header).to_bytes(4, "big") + header)


def test_a_header_of_a_java_client_is_cut_at_its_three_values():
    parts = cut(header_of())
    assert (parts.born, parts.properties, parts.opaque) == (b"1700000000000", rb"KEYS\u0001k\u0002", b"7")
    assert parts.fields == ("g", "i")
    assert parts.frame == cut(header_of("1", "", "123")).frame
    assert is_proven(parts, command_of(header_of()))


def test_a_header_of_a_go_client_is_cut_though_its_number_comes_first():
    header = (GO % ("7", "1700000000000", r"KEYS\u0001k\u0002")).encode()
    parts = cut(header)
    assert (parts.born, parts.properties, parts.opaque) == (b"1700000000000", rb"KEYS\u0001k\u0002", b"7")
    assert parts.fields == ("bornTimestamp", "properties")
    assert is_proven(parts, command_of(header))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b'{"code":310}',
        header_of(born="-1"),
        header_of(born=""),
        header_of(born="1" * 19),
        header_of(opaque="07"),
        header_of(opaque="-7"),
        header_of(opaque="7 "),
        header_of(opaque="1234567890"),
        b'{"opaque":7,"x":{"g":"1","i":"2"}',
        b'{"extFields":{"g":"1","i":"2},"opaque":7,',
        b'{"extFields":{"g":"1","opaque":7,"i":"2"}}',
        b'{"opaque":7}{"g":"1","i":"2"}',
    ],
)
def test_a_header_with_other_values_is_decoded_or_not_proven(header):
    parts = cut(header)
    assert parts is None or not is_proven(parts, Command(310, {"g": "1", "i": "2"}, opaque=7))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (rb"A\u0001b\u0002", "A\x01b\x02"),
        (b"", ""),
        (rb"A\\u0001b", None),
        (rb"A\u0003", None),
        (rb"A\n", None),
        (b"A\x01b\x02", None),
        ("é".encode(), None),
        (b"a\x7f", None),
    ],
)
def test_only_texts_without_other_escapes_are_read(value, text):
    assert text_of(value) == text


def test_whatever_stands_in_a_header_its_values_are_those_of_the_decoder():
    random_ = random.Random(34)
    pieces = [
        r"\u0001",
        r"\u0002",
        "a",
        "Z9",
        " ",
        r"\"",
        r"\\",
        r"\n",
        "é",
        '"',
        "\x01",
        ",",
        '"g":"',
        '"i":"x",',
        "}",
    ]
    taken = 0
    for _ in range(3_000):
        properties = "".join(random_.choices(pieces, k=random_.randrange(6)))
        born = random_.choice(["1", "0017", "1700000000000", "x", "-1", "1" * 18])
        header = header_of(born, properties, random_.choice(["0", "9", "12", "00", "987654321", "1e3"]))
        known = cut(header_of())
        parts = cut(header)
        if parts is None or parts.frame != known.frame or text_of(parts.properties) is None:
            continue
        taken += 1
        command = command_of(header)
        assert command.fields["i"] == text_of(parts.properties)
        assert (command.fields["g"], command.opaque) == (parts.born.decode(), int(parts.opaque))
        rest = replace(command, opaque=7, fields=command.fields | {"g": "1700000000000", "i": "KEYS\x01k\x02"})
        assert rest == command_of(header_of())
    assert taken > 200


def test_a_frame_is_not_proven_where_the_fields_stand_elsewhere():
    """Names that are marked at the top of the header are not those that a send is read from."""
    header = b'{"g":"1","i":"2","code":310,"extFields":{"g" : "3","i" : "4"},"flag":0,"language":"JAVA","opaque":7,"version":1}'
    parts = cut(header)
    assert parts.born == b"1"
    assert not is_proven(parts, command_of(header))


def test_a_frame_is_not_proven_where_later_fields_have_the_values_of_another_proof():
    """They counted, and were the same in each proof."""
    past = random.Random(1)
    born, _opaque = past.randrange(10**12, 10**13), past.randrange(10**8, 10**9)
    fields = rf'"extFields":{{"a":"pg","b":"T","g":"{born}","i":"X{past.getrandbits(64)}\u0001Y\u0002"}}'
    header = header_of().replace(b'"flag":0', fields.encode() + b',"flag":0')
    assert is_proven(cut(header), command_of(header), random.Random(1))
    assert not is_proven(cut(header), command_of(header), random.Random(2))
    assert not is_proven(cut(header), command_of(header))


def test_a_frame_is_not_proven_where_a_later_number_counts():
    header = header_of().replace(b'"flag":0', b'"flag":0,"opaque":8')[:-1] + b',"opaque":9}'
    assert not is_proven(cut(header), command_of(header))


def test_a_frame_is_kept_when_it_comes_for_the_second_time():
    repeated: RepeatedHeaders[str] = RepeatedHeaders()
    for opaque in ("1", "2"):
        assert not repeated.kept
        header = header_of(opaque=opaque)
        repeated.learn(cut(header), command_of(header), lambda: "known")
    assert repeated.kept == {cut(header).frame: "known"}


def test_frames_that_are_all_different_leave_nothing(monkeypatch):
    monkeypatch.setattr(repeated_headers, "SEEN_MAX", 3)
    repeated: RepeatedHeaders[str] = RepeatedHeaders()
    for number in range(10):
        header = header_of().replace(b'"b":"T"', b'"b":"T%d"' % number)
        repeated.learn(cut(header), command_of(header), lambda: "known")
    assert not repeated.kept
    assert len(repeated._seen) <= 3


def test_the_oldest_frame_makes_room_for_a_new_one(monkeypatch):
    monkeypatch.setattr(repeated_headers, "FRAMES_KEPT_MAX", 2)
    repeated: RepeatedHeaders[int] = RepeatedHeaders()
    for number in range(3):
        header = header_of().replace(b'"b":"T"', b'"b":"T%d"' % number)
        for _ in range(2):
            repeated.learn(cut(header), command_of(header), lambda number=number: number)
    assert list(repeated.kept.values()) == [1, 2]


def test_the_frames_that_are_kept_have_a_limit_of_bytes_as_well():
    """4,096 of 34,000 bytes are 130 MiB, for each shard."""
    repeated: RepeatedHeaders[int] = RepeatedHeaders()
    for number in range(100):
        header = header_of().replace(b'"b":"T"', b'"b":"T%d","z":"%b"' % (number, b"z" * 33_000))
        for _ in range(2):
            repeated.learn(cut(header), command_of(header), lambda number=number: number)
    sizes = [sum(map(len, frame)) for frame in repeated.kept]
    assert repeated.kept_bytes == sum(sizes) <= repeated_headers.KEPT_BYTES_MAX
    assert repeated.kept_bytes > repeated_headers.KEPT_BYTES_MAX - max(sizes)
    assert list(repeated.kept.values())[-1] == 99


def test_bytes_that_are_no_json_are_not_proven():
    header = header_of()[:-1] + b"]"
    with pytest.raises(FrameError):
        command_of(header)
    assert not is_proven(cut(header), command_of(header_of()))
