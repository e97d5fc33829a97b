"""Java's string hash and the tags code; the numbers were printed by a JDK 17."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.derive.record_dispatch import decode_dispatch
from store.format.java_hash import DELAY_LEVELS_MILLIS, SCHEDULE_TOPIC, java_string_hash, tags_code
from store.format.properties import parse_properties
from store.format.queue_unit import decode_queue_units
from store.format.record import decode_record
from store.format.sys_flag import TransactionType, transaction_type
from tests.support.fixture_stores import walk_frames


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("AaAa", 2031744),
        ("BBBB", 2031744),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("topic#key", 386934027),
        ("订单", 1129459),
        ("创建", 675903),
        ("\U0001f600", 1772899),
        ("a\U0001f600z", 57849718),
        ("\ud83d\ude00", 1772899),
        ("\ud800", 55296),
        ("\udc00x", 1746040),
        ("é", 233),
        ("b_order#订单1196", -481818814),
    ],
)
def test_hash_is_java_s(text: str, expected: int) -> None:
    assert expected == java_string_hash(text)


@given(st.text(st.characters(), max_size=1100))
def test_hash_equals_the_textbook_loop(text: str) -> None:
    """Short and long texts take different ways; lone surrogates are units like any other."""
    wide = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(wide), 2):
        value = (value * 31 + int.from_bytes(wide[at : at + 2], "big")) % (1 << 32)

    assert (value + (1 << 31)) % (1 << 32) - (1 << 31) == java_string_hash(text)


@pytest.mark.parametrize("length", [511, 512, 513, 32767])
def test_hash_of_long_texts(length: int) -> None:
    """A text of one letter is a geometric series: x * (31^n - 1) / 30."""
    value = 120 * ((31**length - 1) // 30) % (1 << 32)

    assert (value + (1 << 31)) % (1 << 32) - (1 << 31) == java_string_hash("x" * length)


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("t", {}, 0),
        ("t", {"TAGS": "Aa"}, 2112),
        ("t", {"TAGS": "polygenelubricants"}, -2147483648),
        ("t", {"TAGS": "Aa", "DELAY": "3"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "3"}, 1_000_000 + 10_000),
        (SCHEDULE_TOPIC, {"DELAY": "18"}, 1_000_000 + 7_200_000),
        (SCHEDULE_TOPIC, {"DELAY": "99"}, 1_000_000 + 7_200_000),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "0"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "-1"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "soon"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa"}, 2112),
    ],
)
def test_the_tags_code_follows_rocketmq(topic: str, properties: dict[str, str], expected: int) -> None:
    assert expected == tags_code(topic, properties, 1_000_000)


def test_there_are_eighteen_delay_levels_from_a_second_to_two_hours() -> None:
    assert (len(DELAY_LEVELS_MILLIS), DELAY_LEVELS_MILLIS[0], DELAY_LEVELS_MILLIS[-1]) == (18, 1000, 7_200_000)


@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc", "crashed"])
def test_every_queue_unit_of_rocketmq_has_our_tags_code(name: str, request: pytest.FixtureRequest) -> None:
    """All units of all queues, and no record without one but prepared and rolled-back ones."""
    root: Path = request.getfixturevalue(f"{name}_store")
    frames = dict(walk_frames(root))
    unseen = {
        offset
        for offset, frame in frames.items()
        if transaction_type(decode_record(frame).sys_flag) in (TransactionType.NONE, TransactionType.COMMIT)
    }
    delayed = 0
    for directory in (root / "consumequeue").glob("*/*"):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        for queue_offset, unit in enumerate(decode_queue_units(data)):
            if unit.is_empty:
                continue
            frame = frames[unit.commit_log_offset]
            place = (directory.parent.name, int(directory.name), queue_offset)
            request_ = decode_dispatch(frame, 0, unit.commit_log_offset)
            assert place == request_[:3]
            assert unit == (request_.commit_log_offset, request_.record_size_bytes, request_.tags_code)
            record = decode_record(frame)
            properties = parse_properties(record.properties_bytes)
            assert unit.tags_code == tags_code(record.topic, properties, record.store_time_millis)
            delayed += record.topic == SCHEDULE_TOPIC
            unseen.remove(unit.commit_log_offset)
    assert not unseen
    assert (delayed > 0) == (name in ("broker", "crashed"))
