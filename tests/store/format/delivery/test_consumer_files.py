"""RocketMQ's files of consumer groups, as RocketMQ 5.3.3 wrote them (tests/fixtures) and as they are written here."""

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError, StoreCorruptedError
from store.format.config_json import is_own
from store.format.delivery.consumer_files import (
    LIGHT_TABLE,
    GroupConfig,
    LiteConfig,
    altered_priority_factor,
    check_priority_factor,
    decode_groups,
    decode_modes,
    decode_offsets,
    encode_groups,
    encode_modes,
    encode_offsets,
    joined_offsets,
    problem_of_group,
)

NAMES = st.text("abcXYZ019%_-|", min_size=1, max_size=8)
OFFSETS = st.dictionaries(
    st.tuples(NAMES, NAMES), st.dictionaries(st.integers(0, 65_535), st.integers(0, 2**62), max_size=3), max_size=5
)
NUMBERS = st.integers(-(2**31) + 1, 2**31 - 1)
LITE_CONFIGS = st.builds(
    LiteConfig, NAMES, st.booleans(), st.booleans(), NUMBERS, NUMBERS, st.booleans(), st.booleans()
)
GROUPS = st.dictionaries(
    NAMES,
    st.builds(
        GroupConfig, st.booleans(), st.integers(0, 10_000), st.booleans(), st.integers(0, 100), st.none() | LITE_CONFIGS
    ),
    max_size=5,
)

MODES = st.dictionaries(
    st.tuples(NAMES, NAMES), st.tuples(st.booleans(), st.integers(-(1 << 31), (1 << 31) - 1)), max_size=5
)


def test_positions_that_a_broker_wrote_are_read(broker_store: Path) -> None:
    data = (broker_store / "config" / "consumerOffset.json").read_bytes()
    assert not is_own(data)
    assert decode_offsets(data) == {  # as the file reads
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC"): {0: 1},
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"): {0: 24},
        ("b_cg", "%RETRY%b_cg"): {0: 6},
        ("b_cg", "b_log"): {0: 230, 1: 230, 2: 240, 3: 241},
    }


def test_groups_that_a_broker_wrote_are_read_and_written_back_with_everything(broker_store: Path) -> None:
    data = (broker_store / "config" / "subscriptionGroup.json").read_bytes()
    groups = decode_groups(data)
    before = json.loads(data)
    assert set(groups) == set(before["subscriptionGroupTable"])
    assert groups["b_cg"] == GroupConfig(False, 16, True)
    after = json.loads(encode_groups(groups, data, time_millis=5))
    assert after["subscriptionGroupTable"] == before["subscriptionGroupTable"]
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert after["forbiddenTable"] == before["forbiddenTable"]
    assert is_own(encode_groups(groups, data, time_millis=5))


@given(OFFSETS, st.integers(0, 2**50))
def test_positions_written_here_are_read_as_they_were(
    offsets: dict[tuple[str, str], dict[int, int]], time_millis: int
) -> None:
    data = encode_offsets(offsets, None, time_millis=time_millis)
    assert decode_offsets(data) == offsets
    assert is_own(data)
    again = encode_offsets(offsets, data, time_millis=time_millis)
    assert json.loads(again)["dataVersion"]["counter"] == 2


@given(GROUPS)
def test_groups_written_here_are_read_as_they_were(groups: dict[str, GroupConfig]) -> None:
    assert decode_groups(encode_groups(groups, None, time_millis=1)) == groups


@pytest.mark.parametrize(
    "entry",
    [
        '"no at sign":{"0":1}',
        '"@g":{"0":1}',
        '"t@":{"0":1}',
        '"t@g":7',
        '"t@g":{"x":1}',
        '"t@g":{"-1":1}',
        '"t@g":{"0":-1}',
        '"t@g":{"0":"7"}',
        '"t@g":{"65536":1}',
    ],
)
def test_entries_that_are_no_positions_are_left_out(entry: str) -> None:
    data = b'{"offsetTable":{' + entry.encode() + b',"u@h":{0:3}}}'
    offsets = decode_offsets(data)
    assert offsets.pop(("h", "u")) == {0: 3}
    assert not any(offsets.values())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"offsetTable":', b"[" * 100_000])
def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_table(data: bytes) -> None:
    for read in (decode_offsets, decode_groups, is_own):
        with pytest.raises(StoreCorruptedError):
            read(data)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        *[('{"priority.factor":"0"}', 0), ('{"priority.factor":"50"}', 50), ('{"priority.factor":"999"}', 100)],
        *[('{"priority.factor":50}', 100), ('{"priority.factor":"-1"}', 100), ('{"priority.factor":"1000"}', 100)],
        *[("{}", 100), ("7", 100), ('{"priority.factor":"\u0665"}', 100)],
    ],
)
def test_the_priority_factor_is_an_attribute_of_the_group(attributes: str, expected: int) -> None:
    data = f'{{"subscriptionGroupTable": {{"g": {{"attributes": {attributes}}}}}}}'.encode()
    assert decode_groups(data) == {"g": GroupConfig(priority_factor=expected)}


@pytest.mark.parametrize(
    ("attributes", "factor"),
    [
        ({}, None),
        ({"+lite.sub.model": "Shared", "x": 1}, None),
        ({"+priority.factor": "0"}, 0),
        ({"+priority.factor": 7}, 7),
        ({"-priority.factor": ""}, 100),
    ],
)
def test_a_command_changes_the_factor_by_the_name_of_the_attribute_with_its_sign(
    attributes: dict[str, object], factor: int | None
) -> None:
    assert altered_priority_factor(attributes) == factor


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("priority.factor", "5"), ("+-+priority.factor", "5"), ("+priority.factor", "101")],
        *[
            ("+priority.factor", ""),
            ("+priority.factor", -1),
            ("+priority.factor", "\u0665"),
            ("+priority.factor", None),
        ],
    ],
)
def test_a_change_of_the_factor_without_its_sign_or_range_is_refused(name: str, value: object) -> None:
    """A broker refuses a name without its sign, too; remoting took any run of signs, and none."""
    with pytest.raises(InvalidArgumentError, match=r"priority\.factor"):
        altered_priority_factor({name: value})


def test_a_factor_is_written_beside_the_other_attributes_and_only_when_it_changes() -> None:
    before = b'{"subscriptionGroupTable": {"g": {"attributes": {"lite.sub.model": "Shared"}}, "h": {"attributes": 7}}}'

    def written(factor: int, previous: bytes) -> bytes:
        group = GroupConfig(priority_factor=factor)
        return encode_groups({"g": group, "h": group}, previous, time_millis=1)

    def attributes(data: bytes) -> list[object]:
        return [row["attributes"] for row in json.loads(data)["subscriptionGroupTable"].values()]

    assert attributes(written(100, before)) == [{"lite.sub.model": "Shared"}, 7]
    half = written(50, before)
    assert attributes(half) == [{"lite.sub.model": "Shared", "priority.factor": "50"}, {"priority.factor": "50"}]
    assert attributes(written(100, half))[1] == {"priority.factor": "100"}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        (7, None),
        ({"lite.sub.model": "Exclusive"}, None),
        ({"lite.bind.topic": ""}, None),
        ({"lite.bind.topic": 7}, None),
        ({"lite.bind.topic": "p"}, LiteConfig("p")),
        ({"lite.bind.topic": "p", "lite.sub.model": "Shared"}, LiteConfig("p")),
        ({"lite.bind.topic": "p", "lite.sub.model": "exclusive"}, LiteConfig("p", is_exclusive=True)),
        ({"lite.bind.topic": "p", "lite.sub.wildcard": "false"}, LiteConfig("p", is_wildcard=True)),
        ({"lite.bind.topic": "p", "lite.sub.client.quota": "-1"}, LiteConfig("p", client_quota=-1)),
        ({"lite.bind.topic": "p", "lite.sub.client.quota": "9999999999"}, LiteConfig("p")),
        ({"lite.bind.topic": "p", "lite.sub.client.quota": "x"}, LiteConfig("p")),
        ({"lite.bind.topic": "p", "lite.sub.client.quota": 7}, LiteConfig("p")),
        ({"lite.bind.topic": "p", "lite.sub.client.max.event.cnt": "9"}, LiteConfig("p", client_event_count_max=9)),
        (
            {"lite.bind.topic": "p", "lite.sub.reset.offset.exclusive": "true"},
            LiteConfig("p", reset_offset_exclusive=True),
        ),
        (
            {"lite.bind.topic": "p", "lite.sub.reset.offset.unsubscribe": "true"},
            LiteConfig("p", reset_offset_unsubscribe=True),
        ),
    ],
)
def test_the_attributes_of_a_group_bind_it_to_lite_topics(attributes: object, expected: LiteConfig | None) -> None:
    """Names, values and defaults are those of RocketMQ 5.5.0 (`SubscriptionGroupAttributes`)."""
    data = json.dumps({"subscriptionGroupTable": {"g": {"attributes": attributes}}}).encode()
    assert decode_groups(data) == {"g": GroupConfig(lite=expected)}


def test_attributes_of_lite_topics_are_written_beside_the_others_and_only_when_they_change() -> None:
    broker = {"other": "1", "lite.bind.topic": "p", "lite.sub.model": "Shared", "lite.sub.client.quota": "7"}
    before = json.dumps({"subscriptionGroupTable": {"g": {"attributes": broker}}}).encode()

    def written(lite: LiteConfig | None, previous: bytes = before) -> object:
        data = encode_groups({"g": GroupConfig(lite=lite)}, previous, time_millis=1)
        return json.loads(data)["subscriptionGroupTable"]["g"]["attributes"]

    assert written(LiteConfig("p", client_quota=7)) == broker
    assert written(None) == {"other": "1"}
    exclusive = LiteConfig("p", is_exclusive=True, is_wildcard=True)
    assert written(exclusive) == {
        "other": "1",
        "lite.bind.topic": "p",
        "lite.sub.model": "Exclusive",
        "lite.sub.wildcard": "true",
    }
    odd = b'{"subscriptionGroupTable": {"g": {"attributes": 7}}}'
    assert written(LiteConfig("p"), odd) == {"lite.bind.topic": "p"}


def test_a_group_of_lite_topics_is_copied_from_what_has_its_names() -> None:
    config = LiteConfig("p", True, False, 7, 11, False, True)
    assert LiteConfig.like(SimpleNamespace(**asdict(config), more="left alone")) == config


def test_an_entry_that_is_no_group_is_left_out() -> None:
    data = b'{"subscriptionGroupTable": {"g": {"retryMaxTimes": 3}, "broken": 7}}'
    assert decode_groups(data) == {"g": GroupConfig(retry_count_max=3)}


def test_positions_in_light_queues_are_not_read_and_stay_in_the_file() -> None:
    data = json.dumps({"offsetTable": {"%LMQ%a@g": {"0": 3}, "T@g": {"0": 4}}}).encode()
    assert decode_offsets(data) == {("g", "T"): {0: 4}}
    written = json.loads(encode_offsets({("g", "T"): {0: 5}}, data, time_millis=1))["offsetTable"]
    assert written == {"%LMQ%a@g": {"0": 3}, "T@g": {"0": 5}}
    light = {("g", "T"): {0: 5}, ("g", "%LMQ%b"): {0: 1}}
    assert json.loads(encode_offsets(light, data, time_millis=1))["offsetTable"] == written


def test_positions_in_light_queues_are_read_and_written_where_a_broker_has_them() -> None:
    table = {"%LMQ%a@g": {"0": 3}, "%LMQ%c@g": {"0": 1}, "%LMQ%x@g": {"0": -1}, "T@g": {"0": 4}}
    data = json.dumps({"offsetTable": table, "lmqOffsetTable": {"%LMQ%b@h": 7, "%LMQ%d@h": "x", "wrong": 1}}).encode()
    read = decode_offsets(data, with_light=True)
    assert {key: queues for key, queues in read.items() if queues} == {
        ("g", "%LMQ%a"): {0: 3},
        ("g", "%LMQ%c"): {0: 1},
        ("g", "T"): {0: 4},
        ("h", "%LMQ%b"): {0: 7},
    }
    offsets = {("g", "%LMQ%a"): {0: 5}, ("h", "%LMQ%b"): {0: 8}, ("g", "T"): {0: 4}}
    written = json.loads(encode_offsets(offsets, data, time_millis=1, with_light=True))
    assert written["lmqOffsetTable"] == {"%LMQ%b@h": 8, "%LMQ%d@h": "x", "wrong": 1}
    assert written["offsetTable"] == {"%LMQ%a@g": {"0": 5}, "T@g": {"0": 4}}
    assert LIGHT_TABLE not in json.loads(encode_offsets(offsets, b"{}", time_millis=1, with_light=True))
    assert not decode_offsets(b'{"offsetTable": 7, "lmqOffsetTable": 7}', with_light=True)


def test_of_two_files_of_a_broker_the_higher_position_of_each_queue_counts() -> None:
    one, other = {("g", "T"): {0: 5, 1: 2}}, {("g", "T"): {0: 3, 2: 9}, ("h", "T"): {0: 1}}
    assert joined_offsets([one, other]) == {("g", "T"): {0: 5, 1: 2, 2: 9}, ("h", "T"): {0: 1}}
    assert joined_offsets([]) == {}


def test_a_name_that_is_no_text_is_no_group() -> None:
    data = b'{"subscriptionGroupTable": {"\\ud800": {}, "": {}, "g": {}}}'
    assert decode_groups(data) == {"g": GroupConfig()}
    assert problem_of_group("\ud800", {}) == "its name is empty, too long or no text"


@given(MODES, MODES)
def test_request_modes_written_here_are_read_as_they_were_and_replace_those_before(
    before: dict[tuple[str, str], tuple[bool, int]], modes: dict[tuple[str, str], tuple[bool, int]]
) -> None:
    data = encode_modes(before, None, time_millis=5)
    assert decode_modes(data) == before
    assert decode_modes(encode_modes(modes, data, time_millis=6)) == modes


@pytest.mark.parametrize(
    "row",
    [
        '{"mode":"PUSH"}',
        '{"mode":"POP","popShareQueueNum":true}',
        '{"mode":"POP","popShareQueueNum":"3"}',
        '{"mode":"POP","popShareQueueNum":2147483648}',
        '{"popShareQueueNum":-2147483649}',
        "7",
    ],
)
def test_a_request_mode_that_cannot_be_read_is_left_out_and_stays_in_the_file(row: str) -> None:
    data = b'{"messageRequestModeMap":{"t":{"g":' + row.encode() + b',"h":{}},"u":7,"v":{"w":{}}}}'
    assert decode_modes(data) == {("h", "t"): (False, 0), ("w", "v"): (False, 0)}
    written = json.loads(encode_modes({("k", "t"): (True, 3), ("k", "u"): (True, 0)}, data, time_millis=5))
    assert written["messageRequestModeMap"] == {
        "t": {
            "g": json.loads(row),
            "k": {"consumerGroup": "k", "mode": "POP", "popShareQueueNum": 3, "topic": "t"},
        },
        "u": {"k": {"consumerGroup": "k", "mode": "POP", "popShareQueueNum": 0, "topic": "u"}},
    }


def test_a_file_without_request_modes_has_none_of_them() -> None:
    assert decode_modes(b"{}") == decode_modes(b'{"messageRequestModeMap":[]}') == {}
    assert decode_modes(b'{"messageRequestModeMap":{"":{"g":{}},"t":{"":{}}}}') == {}
    written = json.loads(encode_modes({("g", "t"): (False, 1)}, b'{"messageRequestModeMap":[]}', time_millis=5))
    assert list(written["messageRequestModeMap"]) == ["t"]


@pytest.mark.parametrize("factor", [-1, 101])
def test_a_factor_outside_of_0_to_100_is_refused_with_its_range(factor: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"priority_factor is {factor}: 0 to 100 are possible"):
        check_priority_factor(factor)


@pytest.mark.parametrize("factor", [0, 100])
def test_the_ends_of_the_range_of_a_factor_are_taken(factor: int) -> None:
    check_priority_factor(factor)
