"""Rules of tests that a program can check: a test's name is a sentence, and a sleep has a reason."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
WORD_COUNT_MIN = 4  # subject, verb, and what it is about; fewer words name a topic
SLEEPS = ("time.sleep", "asyncio.sleep", "sleep")
NO_REASONS = ("# noqa", "# type:", "# fmt:")


def names_that_are_no_sentence(source: str) -> Iterator[int]:
    """The lines of tests whose name has too few words and that have no docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            words = [word for word in node.name.split("_")[1:] if word]
            if len(words) < WORD_COUNT_MIN and ast.get_docstring(node) is None:
                yield node.lineno


def sleeps_without_a_reason(source: str) -> Iterator[int]:
    """The lines of calls that sleep, with no comment behind them and none on a line of its own before them."""
    if "sleep(" not in source and "wait_for_timeout(" not in source:
        return
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    comments = {
        token.start[0]: token.line.lstrip().startswith("#")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(NO_REASONS)
    }
    for call in calls:
        called = ast.unparse(call.func)
        if called in SLEEPS or called.endswith(".wait_for_timeout"):
            is_behind = any(line in comments for line in range(call.lineno, (call.end_lineno or call.lineno) + 1))
            if not (is_behind or comments.get(call.lineno - 1, False)):
                yield call.lineno


def found_in_tests(rule: Callable[[str], Iterator[int]]) -> list[str]:
    """Where the tests break a rule."""
    return [
        f"{path.relative_to(TESTS.parent)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in rule(path.read_text(encoding="utf-8"))
    ]


def test_the_name_of_every_test_is_a_sentence_or_its_docstring_is() -> None:
    assert found_in_tests(names_that_are_no_sentence) == []


def test_every_sleep_has_a_reason_or_is_replaced_by_what_it_waits_for() -> None:
    """tests/support/waiting.py polls for what has no event."""
    assert found_in_tests(sleeps_without_a_reason) == []


@pytest.mark.parametrize(
    ("source", "is_broken"),
    [
        ("def test_damage():\n    pass\n", True),
        ("class TestLog:\n    async def test_a_torn_tail(self):\n        pass\n", True),
        ("def test_a_torn_tail_is_cut():\n    pass\n", False),
        ("def test_damage():\n    '''Damage stops the walk.'''\n", False),
        ("def damage():\n    pass\n", False),
    ],
)
def test_a_name_of_fewer_than_four_words_needs_a_docstring(source: str, is_broken: bool) -> None:
    assert bool(list(names_that_are_no_sentence(source))) == is_broken


@pytest.mark.parametrize(
    ("source", "is_broken"),
    [
        ("time.sleep(1)\n", True),
        ("await_it(asyncio.sleep(1))\n", True),
        ("page.wait_for_timeout(200)  # noqa: B018\n", True),
        ("x = 1  # one\ntime.sleep(x)\n", True),
        ("from time import sleep\nsleep(1)\n", True),
        ("time.sleep(1)  # a slow disk\n", False),
        ("# A slow disk.\ntime.sleep(1)\n", False),
        ("script = 'time.sleep(600)'\n", False),
        ("clock.sleep(1)\n", False),
    ],
)
def test_a_sleep_needs_a_comment_of_its_own(source: str, is_broken: bool) -> None:
    assert bool(list(sleeps_without_a_reason(source))) == is_broken
