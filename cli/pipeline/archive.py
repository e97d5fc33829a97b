"""`reput pipeline archive`: sealed log files to Parquet, each exactly once.

Exit codes: 0 done, 1 a log file could not be archived or a record was damaged before, 2 usage, not a store or another log's
archive, 4 the disk failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.exits import CliError, Exit

EXIT_FOUND = 1

Store = Annotated[pathlib.Path, typer.Option("--store", help="The store root; may be served.", show_default=False)]
Archive = Annotated[pathlib.Path, typer.Option("--archive", help="The archive.", show_default=False)]
BrokerName = Annotated[
    str, typer.Option("--broker-name", envvar="REPUT_BROKER_NAME", help="The shard whose log it is.")
]
IncludeActive = Annotated[
    bool, typer.Option("--include-active", help="Also the file that the log ends in, as far as it goes.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, write nothing.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]


def archive(
    *,
    store: Store,
    archive: Archive,
    broker_name: BrokerName = "broker-a",
    include_active: IncludeActive = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
) -> int:
    """Bring what is sealed of the log into an archive, each log file exactly once; again goes on where it was."""
    from cli.pipeline.rebuild import failure
    from cli.pipeline.spark_failures import failure_in_spark
    from pipeline.jobs import archive as job
    from pipeline.jobs.progress import progress_bar
    from store.errors import StoreError
    from store.files.file_system import RealFileSystem

    try:
        job.log_file_offsets(RealFileSystem(), store)  # before Spark takes its seconds

        import pyspark.errors

        import pipeline

        try:
            spark = pipeline.session(master=master)
            with progress_bar() as progress:
                report = job.run(
                    spark,
                    store,
                    archive,
                    broker_name=broker_name,
                    include_active=include_active,
                    dry_run=dry_run,
                    progress=progress,
                )
        except (pyspark.errors.PySparkException, _java_error()) as error:
            raise failure_in_spark(error) from error
    except StoreError as error:
        raise failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND


def _java_error() -> type[Exception]:
    from py4j.protocol import Py4JJavaError

    kind: type[Exception] = Py4JJavaError
    return kind
