"""fastjson's JSON, against texts of RocketMQ 5.3.3 and of its clients."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rocketmq.fastjson import DEPTH_MAX, LOOSE_CHARACTERS_MAX, Key, dump_bytes, dumps, loads

QUEUE = Key.of(brokerName="b", queueId=0, topic="t")
OFFSETS = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"offset":7}}}'
BROKERS = '{"brokerAddrTable":{"b":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},"cluster":"c"}}}'

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)
bare = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.integers() | st.builds(lambda name, value: Key(((name, value),)), texts, texts), inner, max_size=3
        )
    ),
)


def as_read(value: object) -> object:
    """Keys that are numbers read as texts."""
    if isinstance(value, list):
        return [as_read(each) for each in value]
    if isinstance(value, dict):
        return {str(key) if isinstance(key, int) else key: as_read(each) for key, each in value.items()}
    return value


def test_objects_and_numbers_are_keys_as_rocketmq_writes_them() -> None:
    assert dumps({"offsetTable": {QUEUE: {"offset": 7}}}) == OFFSETS
    assert loads(OFFSETS) == {"offsetTable": {QUEUE: {"offset": 7}}}
    addresses = {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
    assert dumps({"brokerAddrTable": {"b": {"brokerAddrs": addresses, "cluster": "c"}}}) == BROKERS
    assert loads(BROKERS)["brokerAddrTable"]["b"]["brokerAddrs"] == {"0": "127.0.0.1:10911", "1": "127.0.0.1:10921"}


def test_strict_json_has_quotes_around_numbers_and_no_objects_as_keys() -> None:
    assert dumps({0: "a"}, bare=False) == '{"0":"a"}'
    with pytest.raises(ValueError, match="no objects as keys"):
        dumps({QUEUE: 1}, bare=False)


def test_a_key_that_is_an_object_has_members() -> None:
    (key,) = loads(OFFSETS)["offsetTable"]
    assert key.members() == {"brokerName": "b", "queueId": 0, "topic": "t"}


def test_keys_whose_numbers_have_one_hash_have_several() -> None:
    modulus = sys.hash_info.modulus
    keys = [Key.of(queueId=number * modulus) for number in range(100)]
    assert len({hash(key.members()["queueId"]) for key in keys}) == 1
    assert len({hash(key) for key in keys}) > 90


def test_a_long_text_with_objects_as_keys_is_refused_and_one_with_numbers_as_keys_is_read() -> None:
    many = ",".join(f"{number}:[]" for number in range(LOOSE_CHARACTERS_MAX // 8))
    assert len(loads("{" + many + "}")) == LOOSE_CHARACTERS_MAX // 8
    with pytest.raises(ValueError, match="Expecting property name"):
        loads("{{}:1," + many + "}")


@given(plain)
def test_every_json_text_is_read_and_written_as_json_says(value: object) -> None:
    assert loads(json.dumps(value)) == value
    assert json.loads(dumps(value, bare=False)) == value
    assert json.loads(dump_bytes(value)) == value


@given(bare)
def test_every_value_reads_back_as_it_was_written(value: object) -> None:
    assert loads(dumps(value)) == as_read(value)


@given(texts, st.data())
def test_any_text_is_read_or_refused(text: str, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([OFFSETS, BROKERS, text]))
    at = data.draw(st.integers(0, len(whole)))
    try:
        loads(whole[:at] + data.draw(st.sampled_from(["", "{", "}", "]", ",", ":", '"', "1", "-", text])) + whole[at:])
    except ValueError:
        return


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{0:1,}x", "more behind"),
        ("{0:1} {", "more behind"),
        ("{0 1}", "without a value"),
        ("{0:1 1:2}", "neither a comma nor }"),
        ("[{0:1} 2]", "neither a comma nor ]"),
        ("{[1]:1}", "neither text, number nor object"),
        ("{{1:[]}:1}", "holds a list"),
        ("{0:", "Expecting value"),
        ("[" * 100_000, "nests too deep"),
        ("{0:" * (DEPTH_MAX + 2), "nests too deep"),
        (b"\xff", "utf-8"),
    ],
)
def test_what_is_no_json_is_refused_with_its_reason(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        loads(text)
