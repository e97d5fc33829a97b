"""A row that cannot be read keeps only its own group or level back."""

import json
from typing import Any

import pytest

from store.format.delivery.config_rows import unreadable_rows, with_rows_of
from store.format.delivery.consumer_files import (
    GroupConfig,
    decode_groups,
    decode_offsets,
    encode_groups,
    encode_offsets,
)
from store.format.delivery.delay_offset_file import decode_delay_offsets

HOSTILE_POSITIONS: dict[str, Any] = {
    "T@text": "12",
    "T@list": [1, 2],
    "T@number": 12,
    "T@nothing": None,
    "T@position": {"0": "12"},
    "T@truth": {"0": True},
    "T@fraction": {"0": 1.5},
    "T@larger than a long": {"0": 1 << 63},
    "T@no queue": {"first": 12},
    "T@large queue": {"65536": 12},
    "no group": {"0": 12},
    "@": {"0": 12},
}


def test_every_row_of_positions_that_cannot_be_read_is_named_and_the_others_count() -> None:
    sound = {"T@g": {"0": 12, "1": 7}, "T@none": {"0": -1}}
    data = json.dumps({"offsetTable": sound | HOSTILE_POSITIONS}).encode()
    assert unreadable_rows("consumerOffset.json", data).keys() == HOSTILE_POSITIONS.keys()
    offsets = {key: queues for key, queues in decode_offsets(data).items() if queues}
    assert offsets == {("g", "T"): {0: 12, 1: 7}}


def test_rows_that_cannot_be_read_are_written_back_until_there_are_positions_in_their_place() -> None:
    data = json.dumps({"offsetTable": HOSTILE_POSITIONS}).encode()
    written = json.loads(encode_offsets({("text", "T"): {0: 3}}, data, time_millis=1))["offsetTable"]
    assert written == HOSTILE_POSITIONS | {"T@text": {"0": 3}}


def test_a_position_that_cannot_be_read_is_taken_from_the_bak() -> None:
    data = json.dumps({"offsetTable": {"T@a": "?", "T@b": "?", "T@c": {"0": 5}}}).encode()
    backup = b'{"offsetTable":{"T@a":{0:3},"T@c":{0:4}}}'
    content, taken = with_rows_of("consumerOffset.json", data, backup, unreadable_rows("consumerOffset.json", data))
    assert taken == 1
    assert decode_offsets(content or b"") == {("a", "T"): {0: 3}, ("c", "T"): {0: 5}}


@pytest.mark.parametrize(
    ("row", "read"),
    [
        (7, None),
        ([], None),
        ({"consumeEnable": "no", "retryMaxTimes": 3}, GroupConfig(retry_count_max=3)),
        ({"retryMaxTimes": "3", "consumeEnable": False}, GroupConfig(consume_enabled=False)),
        ({"retryMaxTimes": 1 << 40}, GroupConfig()),
        ({"consumeMessageOrderly": 1}, GroupConfig()),
    ],
)
def test_a_group_whose_row_cannot_be_read_keeps_its_row_and_leaves_the_others(
    row: Any, read: GroupConfig | None
) -> None:
    data = json.dumps({"subscriptionGroupTable": {"bad": row, "good": {"retryMaxTimes": 2}}}).encode()
    assert unreadable_rows("subscriptionGroup.json", data).keys() == {"bad"}
    expected = {"good": GroupConfig(retry_count_max=2)} | ({} if read is None else {"bad": read})
    assert decode_groups(data) == expected
    kept = json.loads(encode_groups({"good": GroupConfig()}, data, time_millis=1))["subscriptionGroupTable"]["bad"]
    assert kept == row


def test_a_level_that_cannot_be_read_leaves_the_others() -> None:
    data = b'{"offsetTable":{1:5,"2":"x","x":3,"99999999999":1,"3":-1,"4":18446744073709551616}}'
    assert unreadable_rows("delayOffset.json", data).keys() == {"2", "x", "99999999999", "4"}
    assert decode_delay_offsets(data) == {1: 5}


@pytest.mark.parametrize("content", [None, b"{}"])
def test_a_file_of_another_kind_or_none_has_no_rows_to_name(content: bytes | None) -> None:
    assert unreadable_rows("consumerFilter.json", content) == {}
    assert unreadable_rows("consumerOffset.json", None) == {}


@pytest.mark.parametrize("backup", [None, b"no JSON", b'{"offsetTable":{"T@a":"?"}}', b'{"offsetTable":{}}'])
def test_a_bak_that_does_not_help_changes_nothing(backup: bytes | None) -> None:
    data = json.dumps({"offsetTable": {"T@a": "?"}}).encode()
    rows = unreadable_rows("consumerOffset.json", data)
    assert with_rows_of("consumerOffset.json", data, backup, rows) == (data, 0)
