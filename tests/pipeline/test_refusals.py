"""What Spark's worker writes of an error of a data source."""

import io
import os

import pytest
from pyspark.serializers import read_int
from pyspark.util import handle_worker_exception

from pipeline.refusals import refusals_first
from pipeline.scan.options import OptionError


@refusals_first
def answer(error: Exception | None) -> str:
    if error is not None:
        raise error
    return "answer"


def written(error: Exception) -> str:
    """The text that Spark puts behind `[PYTHON_DATA_SOURCE_ERROR] Failed to ...: `."""
    out = io.BytesIO()
    try:
        answer(error)
    except Exception as caught:
        handle_worker_exception(caught, out)
    out.seek(4)  # behind the mark of an exception
    return out.read(read_int(out)).decode()


@pytest.fixture(autouse=True)
def unchanged_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")


def test_a_refused_option_is_the_first_thing_that_spark_says() -> None:
    assert written(OptionError("There is no option 'nope'.")) == (
        "pipeline.scan.options.OptionError: There is no option 'nope'.\n"
    )


def test_an_unexpected_error_keeps_its_traceback_also_after_a_refusal() -> None:
    written(OptionError("There is no option 'nope'."))
    assert written(ZeroDivisionError("division")).startswith("Traceback (most recent call last)")


def test_the_choice_of_the_session_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")
    written(OptionError("There is no option 'nope'."))
    assert answer(None) == "answer"
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
