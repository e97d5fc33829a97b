"""The type of a message and the queue of its priority, as RocketMQ 5.5.0 was seen to tell them."""

import pytest

from store.format.message_type import PRIORITY_MAX, message_type_of, priority_of, queue_of_priority

NAME = "_SYS_MSG_PRIORITY_"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "NORMAL"),
        ({"colour": "red"}, "NORMAL"),
        ({NAME: "3"}, "PRIORITY"),
        ({NAME: "none"}, "PRIORITY"),
        ({NAME: "3", "__SHARDINGKEY": "g"}, "FIFO"),
        ({NAME: "3", "DELAY": "0"}, "DELAY"),
        ({NAME: "3", "TIMER_DELIVER_MS": "1"}, "DELAY"),
        ({NAME: "3", "TIMER_DELAY_SEC": "1"}, "DELAY"),
        ({NAME: "3", "TIMER_DELAY_MS": "1", "__SHARDINGKEY": "g"}, "DELAY"),
        ({NAME: "3", "TRAN_MSG": "true"}, "TRANSACTION"),
        ({"TRAN_MSG": "TRUE", "DELAY": "3"}, "TRANSACTION"),
        ({"TRAN_MSG": "false", NAME: "3"}, "PRIORITY"),
        ({"__LITE_TOPIC": "a"}, "LITE"),
        ({"__LITE_TOPIC": "a", NAME: "3"}, "PRIORITY"),
        ({"__LITE_TOPIC": "a", "__SHARDINGKEY": "g"}, "FIFO"),
    ],
)
def test_the_first_property_that_says_a_type_decides(properties: dict[str, str], expected: str) -> None:
    """`TopicMessageType.parseFromMessageProperty`."""
    assert message_type_of(properties) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("0", 0), ("7", 7), ("+7", 7), ("007", 7), ("00000000000007", 7), ("2147483647", PRIORITY_MAX)],
        *[("2147483648", None), ("9999999999", None), ("99999999999", None), ("-1", None), ("", None), ("high", None)],
        *[("1.0", None), (" 1", None), ("1 ", None), ("+", None)],
    ],
)
def test_a_priority_is_a_natural_number_of_32_bits_with_a_sign(text: str, expected: int | None) -> None:
    """`NumberUtils.toInt(property, -1)`, of which the broker takes 0 and more."""
    assert priority_of({NAME: text}) == expected


def test_a_message_without_the_property_has_no_priority() -> None:
    assert priority_of({"colour": "7"}) is None


@pytest.mark.parametrize(
    ("priority", "queue_count", "expected"),
    [(0, 1, 0), (9, 1, 0), (0, 4, 0), (3, 4, 3), (4, 4, 3), (1_000, 4, 3), (7, 8, 7), (PRIORITY_MAX, 8, 7)],
)
def test_the_queue_has_the_number_of_the_priority_or_is_the_last(
    priority: int, queue_count: int, expected: int
) -> None:
    assert queue_of_priority(priority, queue_count) == expected
