"""`reput pipeline restore`: an archive, or part of it, back to a RocketMQ store.

Exit codes: 0 done, 2 usage, nothing in the range or a damaged archive, 4 the disk failed.
"""

import re
import time
from typing import Annotated

import typer

from cli.exits import Exit
from cli.pipeline.spark_job import Archive, BrokerName, DryRun, Master, run_on_session

Out = Annotated[
    str,
    typer.Option(
        "--out",
        help="The root to make: a directory that is empty or does not exist, or s3://BUCKET/PREFIX without any object.",
        show_default=False,
    ),
]
From = Annotated[
    str | None, typer.Option("--from", help="Begin: a commit-log offset, or a time as ISO-8601, now or -2h.")
]
To = Annotated[str | None, typer.Option("--to", help="End: an offset (exclusive) or a time.")]
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
    """Make a store from an archive: the log byte for byte, queues and indexes rebuilt. Only whole log files are restored."""
    from cli.pipeline.rebuild import layout_of_settings
    from pipeline.archive import restore as job
    from pipeline.object_files import open_root
    from pipeline.rebuild.object_root import ObjectRoot
    from store.archive.manifest import check_archive

    from_offset, from_millis = _place(begin, is_end=False)
    to_offset, to_millis = _place(end, is_end=True)

    def check() -> None:
        check_archive(*open_root(archive, "archive"))
        job.refuse_out(ObjectRoot.place(out))

    report = run_on_session(
        master,
        check,
        lambda spark, progress: job.run(
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
        ),
    )
    print(report.to_json())
    return Exit.FOUND


def _place(text: str | None, *, is_end: bool) -> tuple[int | None, int | None]:
    """A commit-log offset in bytes (a plain number), or a time in milliseconds (everything else)."""
    from cli.printing.times import parse_limit

    if text is not None and _OFFSET.fullmatch(text):
        return int(text), None
    return None, parse_limit(text, time.time_ns() // 1_000_000, is_end=is_end)
