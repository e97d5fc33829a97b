"""`reput pipeline audit`: log against queues against indexes, on Spark.

Exit codes are those of `reput fsck`: 0 clean, 1 something was found, 2 usage, not a store or in use, 4 the disk failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.delay_levels import DelayLevels, use_list
from cli.exits import CliError, Exit, usage_error
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT

EXIT_CLEAN, EXIT_FOUND = 0, 1

Store = Annotated[
    str, typer.Option("--store", help="The store root, or its URI: s3://BUCKET/STORE.", show_default=False)
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        help="Write the findings here, a file or a URI: .parquet, .csv, else JSON lines.",
        show_default=False,
    ),
]
Scratch = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        help="An empty directory that all machines share, or a URI: s3://BUCKET/SCRATCH.",
        show_default="of this machine",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be read.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]


def audit(
    *,
    store: Store,
    out: Out = None,
    scratch: Scratch = None,
    dry_run: DryRun = False,
    delay_levels: DelayLevels = DELAY_LEVELS_DEFAULT,
    master: Master = "local[*]",
) -> int:
    """Check a stopped store: every hole, dangling unit, wrong tag code, unreachable key and failed checksum is a row."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from cli.pipeline.spark_failures import failure_in_spark
    from services.object_uri import is_uri
    from store.errors import (
        InvalidArgumentError,
        PermissionDeniedError,
        StoreError,
        StoreLockedError,
        UnsupportedStoreError,
    )

    use_list(delay_levels)
    if not is_uri(store) and not pathlib.Path(store).is_dir():
        usage_error(f"{store} is no directory", "Name the root of a store: the directory with commitlog/ in it.")
    if scratch is not None and not is_uri(scratch):
        directory = pathlib.Path(scratch)
        if not directory.is_dir() or any(directory.iterdir()):
            usage_error(f"{scratch} is no empty directory", "Make one for --scratch.")
    try:
        import pipeline
        from pipeline.audit import audit as job
        from pipeline.audit import rows
        from pipeline.object_files import open_root
        from pipeline.progress import progress_bar
        from pipeline.rebuild.object_root import ObjectRoot

        # Before Spark starts, which takes seconds.
        job.refuse_unfit(*open_root(store))
        if out is not None:
            rows.refuse_out(out)
        if scratch is not None and is_uri(scratch):
            ObjectRoot(scratch, "scratch").top_names()
        with progress_bar() as progress:
            report = job.run(
                pipeline.session(master=master), store, scratch=scratch, dry_run=dry_run, progress=progress
            )
        if out is not None and not dry_run:
            report.outputs["findings"] = rows.put_rows(report.findings, out)
    except (PySparkException, Py4JJavaError) as error:
        raise failure_in_spark(error) from error
    except (InvalidArgumentError, PermissionDeniedError, StoreLockedError, UnsupportedStoreError) as error:
        raise CliError(Exit.USAGE, error.reason(), error.message) from error
    except (StoreError, OSError) as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return EXIT_CLEAN if job.is_clean(report) else EXIT_FOUND
