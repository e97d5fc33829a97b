"""Tag filters, what both kinds of filters share, and that a unit never hides a message that matches."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.filters.message_filter import (
    EVERYTHING,
    EXPRESSION_CHARACTERS_MAX,
    FilterCache,
    filter_of_sql,
    filter_of_tags,
)
from store.errors import IllegalFilterError
from store.format.derived.queue_unit import tags_code
from store.format.properties import DELAY, TAGS
from store.format.topic import SCHEDULE_TOPIC

SIZE = 10 + 256  # of an entry whose expression has ten characters


def expression(number: int) -> str:
    return f"{number:010}"


class Maker:
    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, expression: str) -> str:
        self.made.append(expression)
        if expression.endswith("9"):
            raise IllegalFilterError("no nines", expression=expression)
        return f"<{expression}>"


def test_a_filter_is_made_once_for_each_kind_and_expression() -> None:
    cache, make = FilterCache[str](), Maker()
    assert [cache.get("TAG", "a", make), cache.get("TAG", "a", make), cache.get("SQL92", "a", make)] == ["<a>"] * 3
    assert make.made == ["a", "a"]


def test_a_refusal_is_kept_and_raised_anew() -> None:
    cache, make = FilterCache[str](), Maker()
    refusals = []
    for _ in range(2):
        with pytest.raises(IllegalFilterError, match="no nines") as refused:
            cache.get("TAG", "9", make)
        assert refused.value.metadata == {"expression": "9"}
        refusals.append(refused.value)
    assert make.made == ["9"]
    assert refusals[0] is not refusals[1]


def test_the_least_recently_used_filters_make_room() -> None:
    cache, make = FilterCache[str](3 * SIZE), Maker()
    for number in (0, 1, 2, 0, 3):
        cache.get("TAG", expression(number), make)
    make.made.clear()
    for number in (0, 2, 3):
        cache.get("TAG", expression(number), make)
    assert make.made == []
    cache.get("TAG", expression(1), make)
    assert make.made == [expression(1)]


def test_what_is_larger_than_the_cache_is_made_each_time_and_pushes_nothing_out() -> None:
    cache, make = FilterCache[str](2 * SIZE), Maker()
    cache.get("TAG", expression(0), make)
    for _ in range(2):
        cache.get("TAG", "a" * 1000, make)
    cache.get("TAG", expression(0), make)
    assert [len(made) for made in make.made] == [10, 1000, 1000]


def test_threads_that_ask_together_all_get_a_filter() -> None:
    cache, make = FilterCache[str](5 * SIZE), Maker()
    found: list[bool] = []

    def ask() -> None:
        for number in range(1000):
            wanted = expression(number % 8)
            found.append(cache.get("TAG", wanted, make) == f"<{wanted}>")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4000
    assert all(found)


# FilterAPI splits at ||, and trims each part as `String.trim` does.
EXPRESSIONS = [
    ("a", {"a"}),
    ("a||b", {"a", "b"}),
    (" a ||\tb\n", {"a", "b"}),
    ("a || || b||", {"a", "b"}),
    ("||a", {"a"}),
    ("a b", {"a b"}),
    ("a || *", {"a", "*"}),
    ("\u3000a", {"\u3000a"}),
    ("订单||支付", {"订单", "支付"}),
]


@pytest.mark.parametrize(("expression", "tags"), EXPRESSIONS)
def test_a_tag_expression_names_its_tags_as_rocketmq_splits_them(expression: str, tags: set[str]) -> None:
    wanted = filter_of_tags(expression)
    candidates = {"", "a", "b", "*", "a b", "\u3000a", " a", "A", "订单", "支付"}
    assert {tag for tag in candidates if wanted.matches(tag, {TAGS: tag})} == tags
    assert {tag for tag in candidates if wanted.matches_unit(tags_code("t", {TAGS: tag}, 0))} == tags


@pytest.mark.parametrize("expression", ["", "*", " ", "\t\n", " * "])
def test_nothing_and_a_star_mean_every_message(expression: str) -> None:
    wanted = filter_of_tags(expression)
    assert wanted is EVERYTHING
    assert wanted.matches_unit(0)
    assert wanted.matches("", {})


@pytest.mark.parametrize("expression", ["||", " || ", "|| ||"])
def test_bars_without_a_tag_are_refused_with_what_to_write(expression: str) -> None:
    with pytest.raises(
        IllegalFilterError, match=r"names no tag: write one on a side of \|\|, or \* for all"
    ) as refused:
        filter_of_tags(expression)
    assert refused.value.metadata == {"expression": expression}


@pytest.mark.parametrize("expression", ["tag1 | tag2", "tag1|tag2", "a|||b", "a || b | c", "|"])
def test_a_single_bar_is_refused_because_no_tag_holds_one(expression: str) -> None:
    with pytest.raises(IllegalFilterError, match=r"a single \|.* write \|\| between tags") as refused:
        filter_of_tags(expression)
    assert refused.value.metadata == {"expression": expression}


def test_two_tags_with_one_hash_are_told_apart_by_their_text() -> None:
    wanted = filter_of_tags("Aa")
    assert wanted.matches_unit(tags_code("t", {TAGS: "BB"}, 0))
    assert not wanted.matches("BB", {TAGS: "BB"})
    assert wanted.matches("Aa", {TAGS: "Aa"})


def test_a_unit_without_a_hash_of_tags_may_match() -> None:
    wanted = filter_of_tags("a")
    delayed = tags_code(SCHEDULE_TOPIC, {TAGS: "a", DELAY: "3"}, 1_700_000_000_000)
    assert delayed == 1_700_000_010_000  # the time of its delivery
    assert wanted.matches_unit(delayed)
    # ConsumeQueueExt: from `Integer.MIN_VALUE - 1` down, the code is the place where the unit goes on.
    assert wanted.matches_unit(-(2**63))
    assert wanted.matches_unit(-(2**31) - 1)
    assert not wanted.matches_unit(-(2**31))


@given(st.lists(st.text(), min_size=1), st.text(), st.integers(0, 20), st.sampled_from(["t", SCHEDULE_TOPIC]))
def test_the_hash_in_a_unit_never_hides_a_message_that_matches(
    tags: list[str], tag: str, level: int, topic: str
) -> None:
    for expression in (" || ".join([*tags, tag]), "||".join(tags)):
        try:
            wanted = filter_of_tags(expression)
        except IllegalFilterError:
            continue
        for candidate in [*tags, tag, tag.strip()]:
            properties = {TAGS: candidate, DELAY: str(level)} if candidate else {}
            if wanted.matches(candidate, properties):
                assert wanted.matches_unit(tags_code(topic, properties, 1_700_000_000_000))


def test_a_unit_says_nothing_about_properties() -> None:
    assert filter_of_sql("TAGS = 'a'").matches_unit(tags_code("t", {TAGS: "b"}, 0))


def test_sql_sees_every_property_of_the_record_and_its_tags() -> None:
    properties = {TAGS: "red", "KEYS": "k1 k2", "size": "7"}
    assert filter_of_sql("TAGS = 'red' AND KEYS CONTAINS 'k2' AND size = 7").matches("red", properties)


def test_a_tag_expression_may_not_be_longer_than_the_limit() -> None:
    with pytest.raises(IllegalFilterError, match="make it shorter"):
        filter_of_tags("a||" * EXPRESSION_CHARACTERS_MAX)


def test_an_expression_gives_the_same_filter_again_for_its_kind() -> None:
    assert filter_of_sql("a IS NULL") is filter_of_sql("a IS NULL")
    assert filter_of_tags("a IS NULL") is filter_of_tags("a IS NULL")
    assert not filter_of_tags("a IS NULL").matches("", {})
    assert filter_of_sql("a IS NULL").matches("", {})
