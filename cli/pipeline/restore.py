"""`reput pipeline restore`: an archive, or part of it, back to a RocketMQ store.

Exit codes: 0 done, 2 usage, nothing in the range or a damaged archive, 4 the disk failed.
"""

import pathlib
import re
import time
from typing import Annotated

import typer

from cli.exits import CliError, Exit
from cli.pipeline.archive import Archive, BrokerName, DryRun, Master, _java_error

Out = Annotated[pathlib.Path, typer.Option("--out", help="The root to make: empty, or not there.", show_default=False)]
From = Annotated[
    str | None, typer.Option("--from", help="From this on: a commit-log offset, or a time as ISO-8601, now or -2h.")
]
To = Annotated[str | None, typer.Option("--to", help="Up to this: an offset, which is not wanted itself, or a time.")]
_OFFSET = re.compile(r"[0-9]{1,19}")


def restore(
    *,
    archive: Archive,
    out: Out,
    begin: From = None,
    end: To = None,
    broker_name: BrokerName = "broker-a",
    dry_run: DryRun = False,
    master: Master = "local[*]",
) -> int:
    """Make a store of an archive: the log byte for byte, queues and indexes rebuilt. Whole log files come back."""
    from cli.pipeline.rebuild import failure, layout_of_settings
    from cli.pipeline.spark_failures import failure_in_spark
    from pipeline.jobs import restore as job
    from pipeline.jobs.progress import progress_bar
    from store.archive.manifest import check_archive
    from store.errors import StoreError
    from store.files.file_system import RealFileSystem

    from_offset, from_millis = _place(begin, is_end=False)
    to_offset, to_millis = _place(end, is_end=True)
    try:
        check_archive(RealFileSystem(), archive)  # before Spark takes its seconds

        import pyspark.errors

        import pipeline

        try:
            spark = pipeline.session(master=master)
            with progress_bar() as progress:
                report = job.run(
                    spark,
                    archive,
                    out,
                    broker_name=broker_name,
                    from_offset=from_offset,
                    to_offset=to_offset,
                    from_millis=from_millis,
                    to_millis=to_millis,
                    layout=layout_of_settings(),
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
    return Exit.FOUND


def _place(text: str | None, *, is_end: bool) -> tuple[int | None, int | None]:
    """A commit-log offset in bytes, or a time in milliseconds: a plain number is the first, all else the second."""
    from cli.times import parse_limit

    if text is not None and _OFFSET.fullmatch(text):
        return int(text), None
    return None, parse_limit(text, time.time_ns() // 1_000_000, is_end=is_end)
