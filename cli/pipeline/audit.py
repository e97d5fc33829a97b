"""`reput pipeline audit`: log against queues against indexes, on Spark.

Exit codes are those of `reput fsck`: 0 clean, 1 something was found, 2 usage, not a store or in use, 4 the disk failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.delay_levels import DelayLevels, use_list
from cli.exits import CliError, Exit, usage_error
from cli.options import on_this_machine
from store.format.delay_levels import DELAY_LEVELS_DEFAULT

EXIT_CLEAN, EXIT_FOUND = 0, 1

Store = Annotated[
    str, typer.Option("--store", help="The store root, or its URI: s3://BUCKET/STORE.", show_default=False)
]
Out = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--out",
        help="Write the findings here: .parquet, .csv, else JSON lines.",
        show_default=False,
        callback=on_this_machine,
    ),
]
Scratch = Annotated[
    pathlib.Path | None,
    typer.Option("--scratch", help="An empty directory that all machines share.", show_default="of this machine"),
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
    if scratch is not None and (not scratch.is_dir() or any(scratch.iterdir())):
        usage_error(f"{scratch} is no empty directory", "Make one for --scratch.")
    try:
        import pipeline
        from pipeline.audit import audit as job
        from pipeline.object_files import open_root
        from pipeline.progress import progress_bar

        job.refuse_unfit(*open_root(store))  # before Spark starts, which takes seconds
        with progress_bar() as progress:
            report = job.run(
                pipeline.session(master=master), store, scratch=scratch, dry_run=dry_run, progress=progress
            )
        if out is not None and not dry_run:
            job.write_rows(report.findings, out)
            report.outputs["findings"] = str(out)
    except (InvalidArgumentError, PermissionDeniedError, StoreLockedError, UnsupportedStoreError) as error:
        raise CliError(Exit.USAGE, error.reason(), error.message) from error
    except (StoreError, OSError) as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return EXIT_CLEAN if job.is_clean(report) else EXIT_FOUND
