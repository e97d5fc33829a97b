"""What the commands of jobs on an archive share: options, and a job run on a session of its own, its failures told."""

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import CliError, Exit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.progress import Progress
    from pipeline.jobs.report import JobReport

Archive = Annotated[pathlib.Path, typer.Option("--archive", help="The archive.", show_default=False)]
BrokerName = Annotated[
    str, typer.Option("--broker-name", envvar="REPUT_BROKER_NAME", help="The shard whose log it is.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, write nothing.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]


def run_on_session(
    master: str, check: Callable[[], object], job: "Callable[[SparkSession, Progress], JobReport]"
) -> "JobReport":
    """Checks, starts Spark and runs the job; CliError, whatever fails.

    Args:
        master: Spark's.
        check: refuses what cannot go well, before Spark takes its seconds.
        job: runs on a session, and tells its progress.
    """
    from cli.pipeline.rebuild import failure
    from cli.pipeline.spark_failures import failure_in_spark
    from pipeline.jobs.progress import progress_bar
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
        raise failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
