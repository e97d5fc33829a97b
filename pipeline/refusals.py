"""A refused option or store is the first thing that Spark says, not the last line behind a traceback."""

import functools
import os
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from pipeline.scan.options import OptionError
from store.errors import StoreError

Given = ParamSpec("Given")
Result = TypeVar("Result")

# Read by pyspark.util.handle_worker_exception (Spark 4.0) when it writes an error of a worker.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_BY_US: Final = "reput"  # its value where the user's session does not set it


def refusals_first(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """The method of a data source, whose refusals are shown without the traceback in front of them.

    A refusal says by itself what is wrong and what to do. Any other error keeps its traceback. Spark reads the choice from the
    environment of the worker, which may serve another call later: each call takes back what an earlier one chose.
    """

    @functools.wraps(method)
    def call(*args: Given.args, **named: Given.kwargs) -> Result:
        if os.environ.get(_HIDE_TRACEBACK) == _BY_US:
            del os.environ[_HIDE_TRACEBACK]
        try:
            return method(*args, **named)
        except (OptionError, StoreError):
            os.environ.setdefault(_HIDE_TRACEBACK, _BY_US)
            raise

    return call
