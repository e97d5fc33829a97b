"""A command's change of what binds a group to lite topics: names with their sign, and the values that a broker takes."""

import pytest

from store.errors import InvalidArgumentError
from store.format.delivery.consumer_files import LITE_NUMBER_MAX, altered_lite_attributes, check_lite_attributes


def test_a_sign_says_whether_an_attribute_is_set_or_taken_away() -> None:
    change = {"+lite.bind.topic": "parent", "-lite.sub.model": "", "+lite.sub.wildcard": "", "+priority.factor": "9"}
    assert altered_lite_attributes(change) == {
        "lite.bind.topic": "parent",
        "lite.sub.model": "",
        "lite.sub.wildcard": "true",
    }


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"lite.bind.topic": "parent"}, "use [+]lite.bind.topic to set it, or -lite.bind.topic"),
        ({"+lite.bind.topic": ""}, "has no value: give one, or use -lite.bind.topic"),
    ],
)
def test_a_change_without_its_sign_or_value_is_refused(change: dict[str, str], advice: str) -> None:
    with pytest.raises(InvalidArgumentError, match=advice):
        altered_lite_attributes(change)


@pytest.mark.parametrize(
    ("name", "values", "others"),
    [
        ("lite.bind.topic", ["parent", ""], ["t" * 256]),
        ("lite.sub.model", ["Shared", "Exclusive", ""], ["shared", "x"]),
        ("lite.sub.wildcard", ["true", ""], ["false", "x"]),
        ("lite.sub.client.quota", ["1", "-1", str(LITE_NUMBER_MAX)], ["0", "-2", str(LITE_NUMBER_MAX + 1), "x"]),
        ("lite.sub.client.max.event.cnt", ["10", str(LITE_NUMBER_MAX)], ["9", "0", "-1", "x"]),
        ("lite.sub.reset.offset.exclusive", ["true", "false", ""], ["x"]),
        ("lite.sub.reset.offset.unsubscribe", ["true", "false", ""], ["x"]),
    ],
)
def test_a_value_that_a_broker_would_refuse_is_named(name: str, values: list[str], others: list[str]) -> None:
    for value in values:
        check_lite_attributes({name: value})
    for value in others:
        with pytest.raises(InvalidArgumentError, match=f"{name} is {value[:40]!r}"):
            check_lite_attributes({name: value})


def test_an_attribute_of_something_else_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'priority.factor' is no attribute .* lite\.bind\.topic"):
        check_lite_attributes({"priority.factor": "9"})
