"""The two ids; RocketMQ's own are compared in test_record_fixtures.py."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidMessageIdError
from store.format.host import Host
from store.format.message_id import (
    UniqueKey,
    UniqueKeyGenerator,
    decode_offset_msg_id,
    decode_unique_key,
    encode_offset_msg_id,
)

IDS = [
    (Host("127.0.0.1", 10911), 0x111, "7F00000100002A9F0000000000000111"),
    (Host("2001:db8::2", 10911), 0, "20010DB800000000000000000000000200002A9F0000000000000000"),
]


@pytest.mark.parametrize(("host", "offset", "text"), IDS)
def test_offset_msg_id_both_ways(host: Host, offset: int, text: str) -> None:
    assert text == encode_offset_msg_id(host, offset)
    assert (host, offset) == decode_offset_msg_id(text)
    assert (host, offset) == decode_offset_msg_id(text.lower())


@pytest.mark.parametrize("text", ["", "x", IDS[0][2][:-1], IDS[0][2] + "0", IDS[1][2][:-1], "G" * 32, " " * 32,
                                  "٠" * 32, IDS[0][2] + "\n", IDS[0][2][:16] + "F" * 16])  # fmt: skip
def test_text_that_is_no_offset_msg_id_is_refused(text: str) -> None:
    """The last one has the right form but a negative offset."""
    with pytest.raises(InvalidMessageIdError):
        decode_offset_msg_id(text)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)), st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_any_offset_msg_id_comes_back(ip: object, port: int, offset: int) -> None:
    text = encode_offset_msg_id(Host(str(ip), port), offset)
    host, decoded_offset = decode_offset_msg_id(text)

    assert offset == decoded_offset
    assert text == encode_offset_msg_id(host, offset)


KEY = "FD00000000000000000000000000000248C630946E09693F3D210000"
BORN_MILLIS = 1795256952098  # of the message that carries it: the key is at most some milliseconds older


def test_unique_key_of_rocketmq_is_decoded() -> None:
    key = decode_unique_key(KEY, now_millis=BORN_MILLIS + 1000, time_zone=UTC)

    assert key is not None
    assert (key.ip, key.pid, key.class_loader_hash, key.counter) == ("fd00::2", 0x48C6, 0x30946E09, 0)
    assert 0 <= BORN_MILLIS - key.time_millis < 1000


@pytest.mark.parametrize("text", ["", "my-own-id", KEY[:-1], KEY + "0", "Z" * 32])
def test_unique_key_made_another_way_says_nothing(text: str) -> None:
    assert decode_unique_key(text) is None


def millis(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def test_key_that_would_be_of_the_future_is_of_the_month_before() -> None:
    made = millis(2026, 1, 31, 23, 59, 59)
    text = UniqueKeyGenerator("10.0.0.1", 7, class_loader_hash=1, clock_millis=lambda: made, time_zone=UTC).create()

    for now in (made, made + 2000, millis(2026, 2, 28)):
        key = decode_unique_key(text, now_millis=now, time_zone=UTC)
        assert key is not None
        assert made == key.time_millis


def test_a_key_with_more_time_than_a_month_has_was_made_another_way() -> None:
    """2^32 - 1 ms are 49 days and 17 hours: on 1 March neither February nor March began so long ago."""
    text = f"{KEY[:-12]}FFFFFFFF0000"

    assert decode_unique_key(text, now_millis=millis(2026, 3, 1), time_zone=UTC) is None


def test_month_begins_by_the_producer_s_clock() -> None:
    zone = timezone(timedelta(hours=8))
    made = millis(2026, 3, 31, 16, 0, 1)  # one second into April there
    text = UniqueKeyGenerator("10.0.0.1", 7, class_loader_hash=1, clock_millis=lambda: made, time_zone=zone).create()

    assert text[-12:-4] == "000003E8"
    assert decode_unique_key(text, now_millis=made, time_zone=zone) == UniqueKey("10.0.0.1", 7, 1, made, 0)


def test_generated_key_has_rocketmq_s_form() -> None:
    clock = iter([millis(2026, 1, 1, 0, 0, 1), millis(2026, 1, 1, 0, 0, 1), millis(2026, 2, 1)])
    generator = UniqueKeyGenerator(
        "192.168.0.9", 0x1ABCD, class_loader_hash=-1, clock_millis=lambda: next(clock), time_zone=UTC
    )

    assert generator.create() == "C0A80009ABCDFFFFFFFF000003E80000"
    assert generator.create() == "C0A80009ABCDFFFFFFFF000003E80001"
    assert generator.create() == "C0A80009ABCDFFFFFFFF000000000002"  # a new month


def test_ipv6_producer_has_longer_keys() -> None:
    generator = UniqueKeyGenerator("fd00::2", 1, class_loader_hash=2)
    text = generator.create()
    key = decode_unique_key(text)

    assert len(text) == generator.size_digits == 56
    assert UniqueKeyGenerator("10.0.0.1", 1, class_loader_hash=2).size_digits == 32
    assert key is not None
    assert (key.ip, key.pid, key.class_loader_hash, key.counter) == ("fd00::2", 1, 2, 0)


def test_counter_starts_again_behind_65535() -> None:
    generator = UniqueKeyGenerator("10.0.0.1", 7, class_loader_hash=1)
    keys = [generator.create() for _ in range(65_537)]

    assert (keys[0][-4:], keys[65_535][-4:], keys[65_536][-4:]) == ("0000", "FFFF", "0000")


def test_threads_never_get_the_same_key() -> None:
    from concurrent.futures import ThreadPoolExecutor

    generator = UniqueKeyGenerator("10.0.0.1", 7, class_loader_hash=1)
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: generator.create(), range(20_000)))

    assert len(set(keys)) == 20_000


@given(st.integers(0, 253_399_000_000_000))
def test_time_comes_back_in_any_month(made: int) -> None:
    """From 1970 up to the year 9999."""
    generator = UniqueKeyGenerator("10.0.0.1", 7, class_loader_hash=1, clock_millis=lambda: made, time_zone=UTC)
    key = decode_unique_key(generator.create(), now_millis=made, time_zone=UTC)

    assert key is not None
    assert made == key.time_millis
