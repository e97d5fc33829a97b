"""SQL filters by the cases of RocketMQ's own ExpressionTest and ParserTest, and what a refusal says."""

import time

import pytest

from consumer_svc.filters.message_filter import EXPRESSION_CHARACTERS_MAX, filter_of_sql
from consumer_svc.filters.sql_expressions import NESTING_MAX
from services.status import code_of, reason_of
from store.errors import IllegalFilterError

REFUSAL_SECONDS_MAX = 10  # on a loaded machine; it takes less than one


def matches(expression: str, **properties: str) -> bool:
    return filter_of_sql(expression).matches(properties.get("TAGS", ""), properties)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("axb", (True, True, True)),
        ("abb", (False, False, False)),
        (None, (False, False, False)),
        ("1.23", (False,) * 3),
    ],
)
def test_a_property_contains_begins_and_ends_with_a_text(value: str | None, expected: tuple[bool, ...]) -> None:
    properties = {} if value is None else {"value": value}
    tests = ("contains 'x'", "startswith 'ax'", "endswith 'xb'")
    assert tuple(matches(f"value {test}", **properties) for test in tests) == expected
    # Of a property that is not there, neither a test nor its opposite is true.
    opposites = tuple(value is not None and not each for each in expected)
    assert tuple(matches(f"value not {test}", **properties) for test in tests) == opposites


@pytest.mark.parametrize("left", ["value", "'axb'", "missing"])
@pytest.mark.parametrize(
    "test", ["contains", "startswith", "endswith", "not contains", "not startswith", "not endswith"]
)
def test_nothing_contains_an_empty_text_and_nothing_lacks_it(left: str, test: str) -> None:
    assert not matches(f"{left} {test} ''", value="axb")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'axb' contains 'x'", True),
        ("'axb' startswith 'ax'", True),
        ("'axb' endswith 'xb'", True),
        ("'axb' not contains 'x'", False),
        ("'axb' contains 'u'", False),
        ("'axb' not endswith 'u'", True),
        ("' ' contains ' '", True),
        ("' ' not startswith ' '", False),
        ("'axb' contains '.'", False),
        ("'axb' not contains '.'", True),
        (r"'s' contains '\'", False),
        (r"'s' endswith '\'", False),
    ],
)
def test_a_text_in_the_expression_is_searched_like_a_property(expression: str, expected: bool) -> None:
    assert matches(expression) is expected


@pytest.mark.parametrize("word", ["contains", "startswith", "endswith"])
@pytest.mark.parametrize("search", ["x", "123", "", "NULL"])
def test_only_a_text_can_be_searched_for(word: str, search: str) -> None:
    for test in (word, f"not {word}"):
        with pytest.raises(IllegalFilterError, match=r"expected a text in '\.\.\.'"):
            filter_of_sql(f"value {test} {search}")


@pytest.mark.parametrize("word", ["contains", "startswith", "endswith"])
def test_conditions_of_several_kinds_hold_together(word: str) -> None:
    expression = f"a not in ('4', '4', '5') and b between 3 and 10 and c not {word} 'axbc'"
    assert matches(expression, a="3", b="3", c="axbdc")
    assert not matches(expression, a="4", b="3", c="axbdc")


AND = "a=3 and b<>4 And c>5 AND d<=4"
OR = "a=3 or b<>4 Or c>5 OR d<=4"


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, True),
        ("a > 3.1E10", {"a": "3.1415E10"}, True),
        ("a > 3.14", {"a": "3.1415"}, True),
        ("a > b", {"a": "10", "b": "20"}, False),
        ("a > b", {"a": "20", "b": "10"}, True),
        ("a is null OR a='hello'", {}, True),
        ("a is null OR a='hello'", {"a": "hello"}, True),
        ("a is null OR a='hello'", {"a": "abc"}, False),
        ("a=TRUE OR b=FALSE", {"a": "true", "b": "false"}, True),
        ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, False),
        ("a is not null and a='hello'", {"a": "hello"}, True),
        ("a is not null and a='hello'", {}, False),
        (AND, {"a": "3", "b": "5", "c": "6", "d": "1"}, True),
        (AND, {"a": "4", "b": "5", "c": "6", "d": "1"}, False),
        (OR, {"a": "3"}, True),
        (OR, {"a": "4", "b": "5"}, True),
        (OR, {"a": "4", "b": "4", "c": "6"}, True),
        (OR, {"a": "4", "b": "4", "c": "3", "d": "2"}, True),
        (OR, {"a": "4", "b": "4", "c": "3", "d": "10"}, False),
        *[("a in ('3', '4', '5')", {"a": value}, value in "345") for value in "3458"],
        *[("a not in ('3', '4', '5')", {"a": value}, value not in "345") for value in "3458"],
        *[("a between 2 and 10", {"a": value}, value in ("2", "3", "10")) for value in ("1", "2", "3", "10", "11")],
        *[("a not between 2 and 10", {"a": value}, value in ("1", "11")) for value in ("1", "2", "3", "10", "11")],
        ("a is null", {"abc": "2"}, True),
        ("a is null", {"a": "2"}, False),
        ("a is not null", {"abc": "2"}, False),
        ("a is not null", {"a": "2"}, True),
        ("a=b", {"a": "3.14", "b": "3.14"}, True),
        ("a<>b", {"a": "3.14", "b": "3.14"}, False),
        ("a<>b", {"a": "3.14", "b": "3.141"}, True),
        # There RocketMQ throws, and delivers nothing.
        ("a between up and low", {"a": "3.14", "up": "up", "low": "low"}, False),
        ("key is not null and key between 0 and 100", {"key": "con"}, False),
        ("a between 0 and 100", {"a": "abc"}, False),
        # `now` is a property like any other.
        ("a <= now", {"a": "1"}, False),
        ("a <= now", {"a": "1", "now": "2"}, True),
    ],
)
def test_each_case_of_rocketmq_is_judged_as_there(expression: str, properties: dict[str, str], expected: bool) -> None:
    assert matches(expression, **properties) is expected


def test_blanks_and_the_case_of_keywords_do_not_matter() -> None:
    for expression in (
        AND,
        AND.replace(" ", "  \t\n"),
        AND.lower(),
        AND.upper().replace("A=", "a=").replace("B<", "b<"),
    ):
        wanted = expression.replace("C>", "c>").replace("D<", "d<")
        assert matches(wanted, a="3", b="5", c="6", d="1"), wanted


def test_names_of_properties_are_not_the_same_in_another_case() -> None:
    assert matches("Color = 'red'", Color="red")
    assert not matches("color = 'red'", Color="red")


def test_a_text_that_is_no_number_makes_the_whole_expression_false() -> None:
    assert not matches("NOT (a > 5)", a="many")
    assert not matches("a > 5 OR b = 'x'", a="many", b="x")
    assert matches("b = 'x' OR a > 5", a="many", b="x")  # decided before
    assert not matches("a > 5", a="5.5")  # an Integer is wanted
    assert matches("a > 5.0", a="5.5")


def test_what_stands_behind_a_whole_expression_is_refused_and_not_ignored() -> None:
    with pytest.raises(IllegalFilterError, match="column 3, at \"LIKE 're%'\": this cannot stand here"):
        filter_of_sql("a LIKE 're%'")
    with pytest.raises(IllegalFilterError, match=r"column 6, at '\) AND b = 2'"):
        filter_of_sql("a = 1) AND b = 2")


@pytest.mark.parametrize(
    ("expression", "column", "says"),
    [
        ("a and between 2 and 10", 7, "expected a property, a number, a text"),
        ("a > 100000000000000000000000", 5, "at most 9223372036854775807"),
        ("a > 9223372036854775808", 5, "too large"),
        (f"a > {'1' * 20_000}.5", 5, "does not fit a Double"),
        (f"a > {'1' * 20_000}", 5, "too large"),
        ("a > 0.0", 5, "write 0 without a fraction"),
        (" a between 10 and 0", 12, "from 10 to 0; begin with the smaller"),
        ("a = NULL", 5, "write IS NULL"),
        ("TRUE = 'x'", 1, "cannot be compared with a text"),
        ("a > 'x'", 5, "only numbers and properties"),
        ("(a = 1) > 2", 2, "only numbers and properties"),
        ("a = 1 AND 5", 11, "an Integer, not a condition"),
        ("'a' IN ('a')", 1, "only a property can stand before IN"),
        ("a IN (5)", 7, "expected a text"),
        ("a IN ()", 7, "expected a text"),
        ("a IS 5", 6, "expected NULL or NOT"),
        ("a = 'x", 5, "this text has no end"),
        ("a = 1 /* b", 7, "this comment has no end"),
        ("a = 1 &&", 7, "'&' has no meaning here"),
        ('a = "x"', 5, "write texts in '...'"),
        ("größe = 1", 3, "names with A-Z"),
        ("(a = 1", 7, "ends too early: expected )"),
        ("", 1, "ends too early"),
        ("-- all\n", 8, "ends too early"),
    ],
)
def test_a_refusal_says_where_and_what_to_write(expression: str, column: int, says: str) -> None:
    with pytest.raises(IllegalFilterError) as refused:
        filter_of_sql(expression)
    assert refused.value.metadata == {"expression": expression, "column": str(column)}
    assert f"column {column}" in refused.value.message
    assert says in refused.value.message
    assert reason_of(type(refused.value)) == "ILLEGAL_FILTER"
    assert code_of(refused.value).name == "INVALID_ARGUMENT"


OF_FULL_LENGTH = EXPRESSION_CHARACTERS_MAX - 32
MANY = {
    "parentheses": ("(" * 10_000 + "a = 1" + ")" * 10_000, True),
    "an open parenthesis": ("(" * OF_FULL_LENGTH, None),
    "ORs": ("a = 2 OR " * (OF_FULL_LENGTH // 9) + "a = 1", True),
    "ANDs": ("a = 1 AND " * (OF_FULL_LENGTH // 10) + "a = 2", False),
    "ORs in parentheses": ("(" * 2000 + "a = 2" + " OR a = 1)" * 2000, True),
    "ORs in ORs": ("a = 2 OR (" * 2000 + "a = 1" + ")" * 2000, True),
    "IN": ("a IN (" + "'12345678'," * (OF_FULL_LENGTH // 11) + "'1')", True),
    "nested NOTs": ("NOT " * NESTING_MAX + "TRUE", True),
    "more NOTs": ("NOT " * (NESTING_MAX + 1) + "TRUE", None),
    "most NOTs": ("NOT " * (OF_FULL_LENGTH // 4) + "TRUE", None),
    "AND in OR": ("(a = 1 AND (a = 1 OR " * 50 + "a = 1" + "))" * 50, True),
    "deep AND in OR": ("(a = 1 AND (a = 1 OR " * 1000 + "a = 1" + "))" * 1000, None),
    "comparisons": ("a = " * (OF_FULL_LENGTH // 4) + "a", None),
    "signs": ("-" * OF_FULL_LENGTH + "0 < a", True),
    "quotes": ("'" * (OF_FULL_LENGTH + 1), None),
    "comments": ("/**/" * (OF_FULL_LENGTH // 4) + "a = 1", True),
    "stars": ("/*" + "*" * OF_FULL_LENGTH, None),
    "10 MiB": ("a = 1 OR " * (10 * 1024 * 1024 // 9), None),
}


@pytest.mark.parametrize("name", MANY)
def test_whatever_is_repeated_neither_hangs_nor_overflows_the_stack(name: str) -> None:
    expression, expected = MANY[name]
    began = time.thread_time()
    if expected is None:
        with pytest.raises(IllegalFilterError):
            filter_of_sql(expression)
    else:
        assert matches(expression, a="1") is expected
    assert time.thread_time() - began < REFUSAL_SECONDS_MAX


def test_an_expression_may_be_as_long_as_the_limit_and_no_longer() -> None:
    longest = "a = 1".ljust(EXPRESSION_CHARACTERS_MAX)
    assert matches(longest, a="1")
    with pytest.raises(IllegalFilterError, match=f"more than {EXPRESSION_CHARACTERS_MAX}: make it shorter") as refused:
        filter_of_sql(longest + " ")
    assert len(refused.value.metadata["expression"]) < 100
