"""`reput pipeline audit`: log against queues against indexes, on Spark. `reput pipeline audit-cluster`: all replicas of all
shards, with one another and with the archive.

Exit codes are those of `reput fsck`: 0 clean, 1 something was found, 2 usage, not a store or in use, 4 the disk failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.exits import CliError, Exit, usage_error
from cli.options import DelayLevels, on_this_machine, use_list
from cli.pipeline.on_spark import Master, run_on_session
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

    from cli.pipeline.on_spark import failure_in_spark
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
        from pipeline.audit import audit as rows
        from pipeline.job import progress_bar
        from pipeline.object_files import open_root
        from pipeline.object_root import ObjectRoot

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


Shards = Annotated[
    list[str],
    typer.Option(
        "--shard",
        help="SHARD[@REPLICA]=ROOT, once for each replica; ROOT+ROOT where log, queues and index are on several volumes.",
        show_default=False,
    ),
]
OutDirectory = Annotated[
    pathlib.Path,
    typer.Option(
        "--out",
        help="Directory for report, rows, metrics and state.",
        show_default=False,
        callback=on_this_machine,
        file_okay=False,
    ),
]
Archive = Annotated[
    pathlib.Path | None, typer.Option("--archive", help="The archive of the shards.", show_default="none")
]
Snapshots = Annotated[bool, typer.Option("--snapshots", help="The stores are snapshots of running ones.")]
LogsOnly = Annotated[bool, typer.Option("--logs-only", help="Compare logs and archive, leave out queues and indexes.")]
RereadDays = Annotated[
    int, typer.Option("--reread-days", min=0, help="Read unchanged log files again after so many days; 0: each time.")
]
ScratchDirectory = Annotated[
    pathlib.Path | None,
    typer.Option("--scratch", help="An empty directory that all machines share.", show_default="of this machine"),
]
PushTo = Annotated[
    str,
    typer.Option("--push-to", help="Also send the metrics to this Pushgateway, http://HOST:PORT.", show_default="no"),
]


def audit_cluster(
    *,
    shard: Shards,
    out: OutDirectory,
    archive: Archive = None,
    snapshots: Snapshots = False,
    logs_only: LogsOnly = False,
    reread_days: RereadDays = 7,
    scratch: ScratchDirectory = None,
    push_to: PushTo = "",
    master: Master = "local[*]",
) -> int:
    """Compare all replicas of all shards: log, queues, indexes, archive. For a schedule; a killed run is continued."""
    from pipeline.audit import cluster as job
    from pipeline.audit.cluster import push_metrics
    from pipeline.audit.cluster_logs import parse_replicas
    from store.errors import InvalidArgumentError

    try:
        replicas = parse_replicas(shard)
    except InvalidArgumentError as error:
        usage_error(error.message)
    for replica in replicas:
        for part in replica.parts:
            if not part.is_dir():
                usage_error(f"{part} of {replica.key} is no directory", "Name the root of a store.")
    if scratch is not None and (not scratch.is_dir() or any(scratch.iterdir())):
        usage_error(f"{scratch} is no empty directory", "Make one for --scratch.")
    report = run_on_session(
        master,
        lambda: None,
        lambda spark, progress: job.run(
            spark,
            replicas,
            out,
            archive=archive,
            are_snapshots=snapshots,
            logs_only=logs_only,
            reread_days=reread_days,
            scratch=scratch,
            progress=progress,
        ),
    )
    print(report.to_json())
    if push_to:
        try:
            push_metrics(push_to, out)
        except (OSError, ValueError) as error:
            raise CliError(Exit.UNAVAILABLE, "PUSH_FAILED", f"{push_to} did not take the metrics: {error}") from error
    return EXIT_FOUND if report.findings else Exit.FOUND
