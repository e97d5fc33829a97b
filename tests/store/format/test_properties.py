r"""The property string with RocketMQ's quirks, against a literal transcription of its rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidMessageError
from store.format.properties import (
    dispatched_to,
    encode_light_positions,
    encode_properties,
    light_places,
    light_queue_names,
    parse_properties,
    split_keys,
    stands_at,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\x02c\x01d\x02", {"c": "d"}),
        (b"\x01b\x02c\x01d\x02", {"c": "d"}),
        (b"a\x02c\x01d\x02", {"c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01first\x02b\x01x\x02a\x01second\x02", {"a": "second", "b": "x"}),
        (b"a\x01first\x02a\x01\x02", {"a": "first"}),
        ("颜色\x01蓝\x02".encode(), {"颜色": "蓝"}),
        (b"a\x01\xff\xfe\x02", {"a": "\ufffd\ufffd"}),
        (b"a\x01b c\x02", {"a": "b c"}),
    ],
)
def test_properties_are_parsed_as_rocketmq_does(data: bytes, expected: dict[str, str]) -> None:
    assert expected == parse_properties(data)
    assert expected == parse_properties(memoryview(data))


def test_repeated_name_keeps_its_first_place() -> None:
    assert list(parse_properties(b"a\x01first\x02b\x01x\x02a\x01second\x02")) == ["a", "b"]


def parse_by_the_rules(text: str) -> dict[str, str]:
    """The documented rules, character by character."""
    properties: dict[str, str] = {}
    begin = 0
    while begin < len(text):
        end = begin
        while end < len(text) and text[end] != "\x02":
            end += 1
        middle = begin
        while middle < end and text[middle] != "\x01":
            middle += 1
        if end - begin >= 3 and begin < middle < end - 1:
            properties[text[begin:middle]] = text[middle + 1 : end]
        begin = end + 1
    return properties


@given(st.text("ab\x01\x02é", max_size=30))
def test_parse_equals_the_rules_on_any_text(text: str) -> None:
    assert parse_by_the_rules(text) == parse_properties(text.encode())


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


@given(st.dictionaries(names, names))
def test_properties_come_back_in_order(properties: dict[str, str]) -> None:
    assert list(properties.items()) == list(parse_properties(encode_properties(properties)).items())


def test_each_property_is_closed() -> None:
    assert encode_properties({"KEYS": "k", "TAGS": "A"}) == b"KEYS\x01k\x02TAGS\x01A\x02"
    assert encode_properties({}) == b""


@pytest.mark.parametrize(
    "properties", [{"a\x01": "b"}, {"a": "b\x01"}, {"a\x02": "b"}, {"a": "\x02b"}, {"": "b"}, {"a": ""}]
)
def test_properties_that_would_not_come_back_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        encode_properties(properties)
    assert caught.value.metadata["field"] == "properties"
    assert next(iter(properties)) == caught.value.metadata["property"]


def test_properties_hold_at_most_32767_bytes_however_few_characters() -> None:
    assert len(encode_properties({"a": "v" * 32764})) == 32767
    with pytest.raises(InvalidMessageError, match="32768 bytes"):
        encode_properties({"a": "v" * 32765})
    with pytest.raises(InvalidMessageError, match="bytes"):
        encode_properties({"a": "订" * 10922})


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        ("k", ("k",)),
        ("k1 k2", ("k1", "k2")),
        (" k1  k2 ", ("k1", "k2")),
        ("k k", ("k", "k")),
        ("a\tb\u3000c\u00a0d", ("a\tb\u3000c\u00a0d",)),
        ("   ", ()),
    ],
)
def test_keys_are_cut_at_spaces_only(text: str, keys: tuple[str, ...]) -> None:
    assert keys == split_keys(text)


@pytest.mark.parametrize(
    ("names", "offsets", "places"),
    [
        ("%LMQ%a", "0", [("%LMQ%a", 0)]),
        ("%LMQ%a,%LMQ%b", "7,123456789012345678", [("%LMQ%a", 7), ("%LMQ%b", 123456789012345678)]),
        ("%LMQ%a,%LMQ%b,", "7,8", [("%LMQ%a", 7), ("%LMQ%b", 8)]),
        ("copies,%LMQ%b", "7,8", [("%LMQ%b", 8)]),
        ("copies,%LMQ%b", ",8", [("%LMQ%b", 8)]),
        ("%LMQ%a,copies", "7,", [("%LMQ%a", 7)]),
        ("%LMQ%a,,%LMQ%b", "7,,8", [("%LMQ%a", 7), ("%LMQ%b", 8)]),
        ("%LMQ%a/b,%LMQ%b", "7,8", [("%LMQ%b", 8)]),
        ("%LMQ%a,%LMQ%b", "7", []),
        ("%LMQ%a", "", []),
        ("%LMQ%a", "-1", []),
        ("%LMQ%a", "seven", []),
        ("%LMQ%a", "٣", []),
        ("%LMQ%a", "1" * 19, []),
        (",", ",", []),
    ],
)
def test_a_record_has_a_place_in_each_light_queue_that_its_broker_gave_it(
    names: str, offsets: str, places: list[tuple[str, int]]
) -> None:
    assert list(light_places(names, offsets)) == places


def test_a_record_names_the_queues_that_have_it_besides_its_own() -> None:
    assert dispatched_to({"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,"}) == {"%LMQ%a", "%LMQ%b"}
    assert dispatched_to({"TAGS": "a"}) == frozenset()


@pytest.mark.parametrize(
    ("queue", "queue_offset", "is_there"),
    [("%LMQ%a", 7, True), ("%LMQ%b", 8, True), ("%LMQ%a", 8, False), ("%LMQ%c", 7, False)],
)
def test_a_record_stands_where_it_says_in_a_light_queue(queue: str, queue_offset: int, is_there: bool) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,8"}

    assert stands_at(properties, queue, queue_offset) is is_there
    assert not stands_at({"TAGS": "a"}, queue, queue_offset)


def test_queues_of_lite_topics_take_records_of_their_parent_only() -> None:
    names = "%LMQ%$orders$a,%LMQ%b,%LMQ%$other$c"

    assert light_places(names, "1,2,3", "orders") == (("%LMQ%$orders$a", 1), ("%LMQ%b", 2))
    assert light_queue_names(names, "orders") == ("%LMQ%$orders$a", "%LMQ%b")
    assert len(light_places(names, "1,2,3")) == 3


def test_light_queues_are_named_once_and_positions_are_split_by_commas() -> None:
    assert light_queue_names("%LMQ%b,orders,%LMQ%a,%LMQ%b,,", "orders") == ("%LMQ%b", "%LMQ%a")
    assert light_queue_names("", "orders") == ()
    assert encode_light_positions([7, 0]) == b"INNER_MULTI_QUEUE_OFFSET\x017,0\x02"
