"""`reput pipeline archive`: sealed log files to Parquet, each exactly once.

Exit codes: 0 done, 1 a log file could not be archived, a record was damaged before or `--verify` found something, 2 usage,
not a store or another log's archive, 4 the disk failed.
"""

from typing import Annotated

import typer

from cli.exits import Exit, usage_error
from cli.pipeline.spark_job import Archive, BrokerName, DryRun, Master, run_on_session

EXIT_FOUND = 1

Store = Annotated[
    str | None, typer.Option("--store", help="The store root, or its URI; may be served.", show_default=False)
]
IncludeActive = Annotated[bool, typer.Option("--include-active", help="Also the last file of the log, up to its end.")]

Verify = Annotated[bool, typer.Option("--verify", help="Archive nothing: read all of the archive and check it.")]


def archive(
    *,
    archive: Archive,
    store: Store = None,
    broker_name: BrokerName = "broker-a",
    include_active: IncludeActive = False,
    dry_run: DryRun = False,
    verify: Verify = False,
    master: Master = "local[*]",
) -> int:
    """Copy the full files of the log into an archive, each exactly once. A further run continues behind the last one."""
    if verify:
        return _verify(archive, broker_name, master)
    if store is None:
        usage_error("--store is missing", "Name the root of the store to archive.")

    from pipeline.archive import archive as job

    report = run_on_session(
        master,
        lambda: job.refuse_unfit(store, archive, broker_name),
        lambda spark, progress: job.run(
            spark,
            store,
            archive,
            broker_name=broker_name,
            include_active=include_active,
            dry_run=dry_run,
            progress=progress,
        ),
    )
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND


def _verify(archive: str, broker_name: str, master: str) -> int:
    from pipeline.archive import verify as job
    from pipeline.object_files import open_root
    from store.archive.manifest import check_archive

    report = run_on_session(
        master,
        lambda: check_archive(*open_root(archive, "archive")),
        lambda spark, progress: job.run(spark, archive, broker_name=broker_name, progress=progress),
    )
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND
