"""The Bloom filter of bit maps, by what RocketMQ's own `BloomFilter` says (`tests/rocketmq/queue_ext_probe.py`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.filters.bloom import BloomFilter

# Percent of false hits, count of groups, bits of a map, group, topic, bits of these.
OF_ROCKETMQ = [
    (
        20,
        32,
        112,
        "g",
        "t",
        (
            22,
            87,
            58,
        ),
    ),
    (
        20,
        32,
        112,
        "订单",
        "支付",
        (
            64,
            43,
            104,
        ),
    ),
    (
        20,
        32,
        112,
        "CID_orders",
        "Orders",
        (
            93,
            59,
            100,
        ),
    ),
    (
        20,
        32,
        112,
        "a group name of more than 16 bytes",
        "t",
        (
            66,
            66,
            55,
        ),
    ),
    (
        20,
        32,
        112,
        "%RETRY%g",
        "x",
        (
            64,
            35,
            23,
        ),
    ),
    (
        20,
        32,
        112,
        "",
        "",
        (
            3,
            62,
            22,
        ),
    ),
    (
        20,
        64,
        216,
        "g",
        "t",
        (
            14,
            103,
            178,
        ),
    ),
    (
        20,
        64,
        216,
        "订单",
        "支付",
        (
            40,
            75,
            208,
        ),
    ),
    (
        20,
        64,
        216,
        "CID_orders",
        "Orders",
        (
            189,
            187,
            132,
        ),
    ),
    (
        20,
        64,
        216,
        "a group name of more than 16 bytes",
        "t",
        (
            138,
            42,
            39,
        ),
    ),
    (
        20,
        64,
        216,
        "%RETRY%g",
        "x",
        (
            136,
            171,
            47,
        ),
    ),
    (
        20,
        64,
        216,
        "",
        "",
        (
            75,
            142,
            190,
        ),
    ),
    (
        1,
        128,
        1232,
        "g",
        "t",
        (
            582,
            871,
            1066,
            540,
            913,
            207,
            498,
        ),
    ),
    (
        1,
        128,
        1232,
        "订单",
        "支付",
        (
            176,
            1163,
            888,
            451,
            368,
            971,
            1080,
        ),
    ),
    (
        1,
        128,
        1232,
        "CID_orders",
        "Orders",
        (
            765,
            1179,
            660,
            786,
            73,
            639,
            807,
        ),
    ),
    (
        1,
        128,
        1232,
        "a group name of more than 16 bytes",
        "t",
        (
            402,
            962,
            167,
            604,
            1041,
            246,
            683,
        ),
    ),
    (
        1,
        128,
        1232,
        "%RETRY%g",
        "x",
        (
            400,
            1043,
            23,
            692,
            480,
            963,
            1175,
        ),
    ),
    (
        1,
        128,
        1232,
        "",
        "",
        (
            1123,
            734,
            582,
            971,
            128,
            714,
            325,
        ),
    ),
    (99, 1, 8, "g", "t", (6,)),
    (99, 1, 8, "订单", "支付", (0,)),
    (99, 1, 8, "CID_orders", "Orders", (5,)),
    (99, 1, 8, "a group name of more than 16 bytes", "t", (2,)),
    (99, 1, 8, "%RETRY%g", "x", (0,)),
    (99, 1, 8, "", "", (3,)),
]


@pytest.mark.parametrize(("percent", "groups", "bit_count", "group", "topic", "positions"), OF_ROCKETMQ)
def test_the_bits_of_a_group_and_topic_are_those_of_rocketmq(
    percent: int, groups: int, bit_count: int, group: str, topic: str, positions: tuple[int, ...]
) -> None:
    bloom = BloomFilter.of(percent, groups)
    assert bloom.bit_count == bit_count
    assert bloom.bit_positions(group, topic) == positions


def test_the_map_of_a_message_has_the_bits_of_its_groups_lowest_first_in_each_byte() -> None:
    assert BloomFilter(2, 16).bit_map([(0, 9), (9, 15)]) == bytes([0b1, 0b1000_0010])
    assert BloomFilter(2, 16).bit_map([]) == bytes(2)


@given(st.sets(st.text(max_size=40)), st.text(max_size=40), st.sampled_from([(20, 32), (1, 3), (60, 2)]))
def test_a_map_never_hides_a_message_from_a_group_that_it_was_made_for(
    groups: set[str], other: str, form: tuple[int, int]
) -> None:
    bloom = BloomFilter.of(*form)
    bit_map = bloom.bit_map([bloom.bit_positions(group, "t") for group in groups])
    assert all(bloom.may_match(bit_map, bloom.bit_positions(group, "t")) for group in groups)
    if not groups:
        assert not bloom.may_match(bit_map, bloom.bit_positions(other, "t"))


def test_a_map_of_another_form_says_nothing() -> None:
    bloom = BloomFilter.of()
    positions = bloom.bit_positions("g", "t")
    assert bloom.may_match(b"", positions)
    assert bloom.may_match(bytes(8), positions)
    assert not bloom.may_match(bytes(14), positions)
