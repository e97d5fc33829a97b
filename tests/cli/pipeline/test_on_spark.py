"""What a failed Spark job says."""

import pytest

from cli.exits import Exit
from cli.pipeline.on_spark import failure_in_spark

OURS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
store.errors.RecordCorruptedError: The record at 4096 has a wrong CRC.
\tat org.apache.spark.Thing.run(Thing.scala:1)
Caused by: java.lang.RuntimeException: no"""
OTHERS = """Job aborted
Traceback (most recent call last):
OSError: [Errno 5] Input/output error: '/store'
"""


@pytest.mark.parametrize(
    ("text", "code", "reason", "message"),
    [
        (OURS, Exit.USAGE, "RECORD_CORRUPTED", "The record at 4096 has a wrong CRC."),
        (
            "Error\nERROR: x\n  pipeline.scan.options.OptionError: no such option",
            Exit.USAGE,
            "OPTION",
            "no such option",
        ),
        (
            "Traceback\nstore.errors.ServiceUnavailableError: s3://bucket/out: no answer.",
            Exit.UNAVAILABLE,
            "SERVICE_UNAVAILABLE",
            "s3://bucket/out: no answer.",
        ),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to create an instance: pipeline.scan.options.OptionError: no such option",
            Exit.USAGE,
            "OPTION",
            "no such option",
        ),
        (OTHERS, Exit.UNAVAILABLE, "JOB_FAILED", "OSError: [Errno 5] Input/output error: '/store'"),
        ("[PATH_NOT_FOUND] gone\nmore", Exit.UNAVAILABLE, "JOB_FAILED", "[PATH_NOT_FOUND] gone"),
    ],
)
def test_the_error_that_began_it_is_told(text: str, code: Exit, reason: str, message: str) -> None:
    error = failure_in_spark(RuntimeError(text))
    assert (error.code, error.reason, error.message) == (code, reason, message)
