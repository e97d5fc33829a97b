"""`reput pipeline audit-cluster`: all replicas of all shards, with one another and with the archive.

Exit codes: 0 clean, 1 something was found, 2 usage, not a store or in use by another run, 4 the disk failed.
"""

import pathlib
from typing import Annotated

import typer

from cli.exits import CliError, Exit, usage_error
from cli.options import on_this_machine
from cli.pipeline.spark_job import Master, run_on_session

EXIT_FOUND = 1

Shards = Annotated[
    list[str],
    typer.Option(
        "--shard",
        help="SHARD[@REPLICA]=ROOT, once for each replica; ROOT+ROOT where log, queues and index are on several volumes.",
        show_default=False,
    ),
]
Out = Annotated[
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
Scratch = Annotated[
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
    out: Out,
    archive: Archive = None,
    snapshots: Snapshots = False,
    logs_only: LogsOnly = False,
    reread_days: RereadDays = 7,
    scratch: Scratch = None,
    push_to: PushTo = "",
    master: Master = "local[*]",
) -> int:
    """Compare all replicas of all shards: log, queues, indexes, archive. For a schedule; a killed run is continued."""
    from pipeline.audit.cluster import cluster as job
    from pipeline.audit.cluster.outputs import push_metrics
    from pipeline.audit.cluster.replicas import parse_replicas
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
