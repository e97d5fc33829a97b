"""Shared by the commands that run a job on Spark: options, and a job run on a session with its failures as CliError."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import CliError, Exit, store_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.progress import Progress
    from pipeline.report import JobReport

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
    from cli.pipeline.spark_failures import failure_in_spark
    from pipeline.progress import progress_bar
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
