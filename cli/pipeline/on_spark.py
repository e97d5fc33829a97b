"""A job of the pipeline run on Spark, with the options that these verbs share and its failures as CliError.

`reput pipeline ship` writes the zip that a cluster needs for it.
"""

import pathlib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import CliError, Exit, store_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.job import JobReport, Progress

Archive = Annotated[
    str, typer.Option("--archive", help="The archive, or its URI: s3://BUCKET/ARCHIVE.", show_default=False)
]
BrokerName = Annotated[str, typer.Option("--broker-name", envvar="REPUT_BROKER_NAME", help="The shard of the log.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, write nothing.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]


def run_on_session(
    master: str, check: Callable[[], object], job: "Callable[[SparkSession, Progress], JobReport]"
) -> "JobReport":
    """Check, start Spark and run the job; every failure is raised as CliError.

    Args:
        master: Spark's.
        check: refuses bad arguments before Spark starts, which takes seconds.
        job: runs on a session and reports its progress.
    """
    from pipeline.job import progress_bar
    from store.errors import StoreError

    try:
        check()

        import pyspark.errors
        from py4j.protocol import Py4JJavaError

        import pipeline

        try:
            spark = pipeline.session(master=master)
            with progress_bar() as progress:
                return job(spark, progress)
        except (pyspark.errors.PySparkException, Py4JJavaError) as error:
            raise failure_in_spark(error) from error
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error


# `store.errors.RecordCorruptedError: ...`, as Python writes the last line of a traceback; Spark may indent it, or write it
# behind its own words when there is no traceback.
_PYTHON_ERROR = re.compile(
    r"(?:^\s*|^\[PYTHON_DATA_SOURCE_ERROR\] .*?: )"
    r"(?:pyspark\.errors[\w.]*\.)?((?:[a-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception)): (.+)$",
    re.MULTILINE,
)
_OURS = ("store.", "pipeline.", "services.")
# Errors of the store that are not caused by wrong input.
_UNAVAILABLE = ("DiskFullError", "FlushFailedError", "ServiceUnavailableError")


def failure_in_spark(error: Exception) -> CliError:
    """The failure of the command for an error of Spark.

    Errors of the store and the pipeline keep their message, most of them with the exit code of wrong input. Others are
    failures of Spark.
    """
    text = str(error)
    found = _PYTHON_ERROR.findall(text)
    for module, name, message in reversed(found):
        if module.startswith(_OURS):
            code = Exit.UNAVAILABLE if name in _UNAVAILABLE else Exit.USAGE
            return CliError(code, _reason(name), message)
    if found:
        _, name, message = found[-1]
        return CliError(Exit.UNAVAILABLE, "JOB_FAILED", f"{name}: {message}")
    return CliError(Exit.UNAVAILABLE, "JOB_FAILED", text.strip().partition("\n")[0])


def _reason(name: str) -> str:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name.removesuffix("Error"))
    return "_".join(words).upper()


Zip = Annotated[pathlib.Path, typer.Option("--out", help="The zip to write; an existing one is replaced.")]


def ship(*, out: Zip = pathlib.Path("reput.zip")) -> int:
    """Write the project as one zip, for executors: spark-submit --py-files reput.zip JOB.py."""
    from pipeline.ship import write_zip

    file_count = write_zip(out.absolute())
    print(out.absolute())
    print(f"{file_count} files", file=sys.stderr)
    return Exit.FOUND
