"""SQL filters beside RocketMQ's: refused where it refuses, and as there for each message: true, false, unknown or no value.

RocketMQ ignores what stands behind a whole expression. There we refuse: then what stands before must be judged as RocketMQ
judges the whole.
"""

import os
import random

import pytest

from consumer_svc.filters.message_filter import filter_of_sql
from consumer_svc.filters.sql_grammar import parse
from store.errors import IllegalFilterError
from tests.consumer_svc.filters import sql_expressions
from tests.rocketmq import real_broker

LETTERS = {True: "T", False: "F", None: "N"}
CASES_OF_ONE_TEST = 500

MESSAGES, ANSWERS = sql_expressions.read_answers()


def answer_to(expression: str, messages: list[dict[str, str]]) -> str:
    evaluate = parse(expression)

    def letter(properties: dict[str, str]) -> str:
        try:
            value = evaluate(properties)
        except ValueError:
            return "X"
        assert value is None or isinstance(value, bool)
        return LETTERS[value]

    return "".join(map(letter, messages))


def differences(messages: list[dict[str, str]], cases: list[tuple[str, str]]) -> list[object]:
    found: list[object] = []
    for expression, expected in cases:
        try:
            filter_of_sql(expression)
        except IllegalFilterError as error:
            column = int(error.metadata["column"])
            if expected != "REFUSED" and answer_to(expression[: column - 1], messages) != expected:
                found.append((expression, expected, error.message))
        else:
            if (answer := answer_to(expression, messages)) != expected:
                found.append((expression, expected, answer))
    return found


@pytest.mark.parametrize("begin", range(0, len(ANSWERS), CASES_OF_ONE_TEST))
def test_thousands_of_expressions_get_the_answers_that_rocketmq_gave(begin: int) -> None:
    assert differences(MESSAGES, ANSWERS[begin : begin + CASES_OF_ONE_TEST]) == []


def test_the_answers_have_each_kind_often_enough_to_tell_something() -> None:
    letters = "".join(answer for _, answer in ANSWERS if answer != "REFUSED")
    assert min(letters.count(letter) for letter in "TFNX") > len(letters) / 20
    assert len(ANSWERS) / 10 < sum(answer == "REFUSED" for _, answer in ANSWERS) < len(ANSWERS) / 2


def test_a_message_matches_only_where_rocketmq_says_true() -> None:
    for expression, answer in ANSWERS[: len(sql_expressions.CHOSEN)]:
        try:
            wanted = filter_of_sql(expression)
        except IllegalFilterError:
            continue
        matched = [wanted.matches(properties.get("TAGS", ""), properties) for properties in MESSAGES]
        assert matched == [letter == "T" for letter in answer], expression


@pytest.mark.rocketmq
@pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable()))
def test_new_random_expressions_are_judged_as_rocketmq_judges_them() -> None:
    seed = int(os.environ.get("TORTURE_SEED") or random.SystemRandom().randrange(2**32))
    rng = random.Random(seed)
    messages = sql_expressions.properties_of(rng, 60)
    expressions = sql_expressions.expressions_of(rng, 10_000)
    answers = sql_expressions.judged_by_rocketmq(expressions, messages)
    assert differences(messages, list(zip(expressions, answers, strict=True))) == [], f"seed {seed}"
