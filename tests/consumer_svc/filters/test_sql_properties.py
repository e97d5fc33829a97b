"""Laws that hold for every SQL filter: of logic with an unknown, of writing an expression anew."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.filters.sql_expressions import SqlFaultError, compare_doubles, java_double
from consumer_svc.filters.sql_grammar import parse

NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["x", "y", "it's", ""])
PROPERTIES = st.dictionaries(NAMES, TEXTS)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Conditions that have a value for every message: true, false or unknown.
SIMPLE = st.one_of(
    st.builds(lambda name, text: f"{name} = {quoted(text)}", NAMES, TEXTS),
    st.builds(lambda name, text: f"{name} <> {quoted(text)}", NAMES, TEXTS),
    st.builds(lambda name, texts: f"{name} IN ({','.join(map(quoted, texts))})", NAMES, st.lists(TEXTS, min_size=1)),
    st.builds(lambda name: f"{name} IS NULL", NAMES),
    st.builds(lambda name, other: f"{name} = {other}", NAMES, NAMES),
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(lambda one: f"NOT ({one})", inner),
        st.builds(lambda one, two: f"({one}) AND ({two})", inner, inner),
        st.builds(lambda one, two: f"({one}) OR ({two})", inner, inner),
    ),
    max_leaves=8,
)


def value(expression: str, properties: Mapping[str, str]) -> object:
    return parse(expression)(properties)


@given(CONDITIONS, CONDITIONS, PROPERTIES)
def test_de_morgan_holds_with_an_unknown(one: str, two: str, properties: dict[str, str]) -> None:
    assert value(f"NOT (({one}) AND ({two}))", properties) is value(f"NOT ({one}) OR NOT ({two})", properties)
    assert value(f"NOT (({one}) OR ({two}))", properties) is value(f"NOT ({one}) AND NOT ({two})", properties)


@given(CONDITIONS, CONDITIONS, CONDITIONS, PROPERTIES)
def test_the_order_of_operands_and_parentheses_does_not_matter(
    one: str, two: str, three: str, properties: dict[str, str]
) -> None:
    for operator in ("AND", "OR"):
        chain = value(f"({one}) {operator} ({two}) {operator} ({three})", properties)
        assert chain is value(f"({one}) {operator} (({two}) {operator} ({three}))", properties)
        assert chain is value(f"({three}) {operator} ({two}) {operator} ({one})", properties)


def three_valued(operator: str, one: bool | None, two: bool | None) -> bool | None:
    """By the definition: the least or the greatest of false < unknown < true."""
    rank = {False: 0, None: 1, True: 2}
    return (min if operator == "AND" else max)((one, two), key=lambda each: rank[each])


@pytest.mark.parametrize("one", ["TRUE", "FALSE", "NULL", "a = 'x'", "a = 'y'", "b = 'x'"])
@pytest.mark.parametrize("two", ["TRUE", "FALSE", "NULL", "a = 'x'", "a = 'y'", "b = 'x'"])
@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_the_truth_table_of_and_and_or_is_that_of_sql(one: str, two: str, operator: str) -> None:
    known = {"TRUE": True, "FALSE": False, "NULL": None, "a = 'x'": True, "a = 'y'": False, "b = 'x'": None}
    assert value(f"{one} {operator} {two}", {"a": "x"}) is three_valued(operator, known[one], known[two])


@given(CONDITIONS, PROPERTIES)
def test_a_condition_written_with_other_blanks_and_cases_is_the_same(
    condition: str, properties: dict[str, str]
) -> None:
    parts = condition.split("'")
    for index in range(0, len(parts), 2):  # outside of texts
        spaced = (
            parts[index]
            .replace(" ", " /* AND */\n")
            .replace("AND", "aNd")
            .replace("NOT", "Not")
            .replace("NULL", "null")
        )
        parts[index] = spaced.replace("(", "( \t").replace(")", "\f)")
    assert value("(" + "'".join(parts) + ") -- 'c", properties) is value(condition, properties)


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_a_quoted_text_is_found_in_what_contains_it_whatever_its_characters(text: str, rest: str) -> None:
    assert value(f"a = {quoted(text)}", {"a": text}) is True
    assert value(f"a <> {quoted(text)}", {"a": text + "!"}) is True
    assert value(f"a STARTSWITH {quoted(text)}", {"a": text + rest}) is (text != "")
    assert value(f"a ENDSWITH {quoted(text)}", {"a": rest + text}) is (text != "")


@given(st.text(st.sampled_from("ab'(),=<>-+*/ \n019.eElLANDORNTISN\\$_é"), max_size=30))
def test_any_text_is_an_expression_or_has_a_place_where_it_is_wrong(text: str) -> None:
    at = len(text)
    try:
        parse(text)({"a": "1"})
    except SqlFaultError as fault:
        at = fault.at
    except ValueError:
        pass  # the message has no value
    assert 0 <= at <= len(text)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_whole_numbers_compare_as_numbers_and_not_as_texts(number: int, limit: int) -> None:
    wanted = f"a {'<' if number < limit else '>='} {limit}"
    if limit == -(2**31):
        wanted = wanted.replace(str(limit), f"{limit}L")  # a Long: the digits alone are too many for an Integer
    assert value(wanted, {"a": str(number)}) is True


@given(st.floats(), st.floats())
def test_doubles_have_one_order_with_nan_at_its_end_and_two_zeros(one: float, two: float) -> None:
    order = compare_doubles(java_double(repr(one).replace("inf", "Infinity").replace("nan", "NaN")), two)
    assert (order == 0) is (repr(one) == repr(two))
    if not math.isnan(one) and not math.isnan(two) and one != two:
        assert (order < 0) is (one < two)
    assert compare_doubles(two, one) == -order or order * compare_doubles(two, one) < 0
