"""`reput backup` and `reput restore`.

Exit codes of `backup`: 0 done, 1 done with findings (the log is damaged, or a backup in the place is), 2 usage, not a store,
another log's place, or another backup is running, 4 a disk or the object store failed, or the log ends
before the newest backup. With `--list` and `--verify` 1 also says that there is none.

Exit codes of `restore`: 0 done, 1 done with findings (the log was damaged when it was backed up), 2 usage, nothing at that
moment, or a damaged backup, 4 a disk or the object store failed. A store is made whole or not at all.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import CliError, Exit, store_failure, usage_error

if TYPE_CHECKING:
    from cli.backup.places import Place
    from pipeline.job import JobReport

EXIT_FOUND = 1

Store = Annotated[
    pathlib.Path | None,
    typer.Option("--store", envvar="REPUT_STORE", help="The store root; may be served.", show_default=False),
]
To = Annotated[
    str,
    typer.Option("--to", help="Where backups are kept: a directory, or s3://BUCKET/PREFIX.", show_default=False),
]
BrokerName = Annotated[str, typer.Option("--broker-name", envvar="REPUT_BROKER_NAME", help="The shard of the log.")]
Keep = Annotated[int, typer.Option("--keep", min=1, help="So many backups stay there, the newest.")]
Verify = Annotated[bool, typer.Option("--verify", help="Back up nothing: read all that is there and check it.")]
List = Annotated[bool, typer.Option("--list", help="Back up nothing: show the backups that are there.")]
AllowGap = Annotated[
    bool,
    typer.Option(
        "--allow-gap", help="Go on where retention removed all that the newest backup has: nothing is compared."
    ),
]
KEEP_COUNT = 30


def backup(
    *,
    to: To,
    store: Store = None,
    broker_name: BrokerName = "broker-a",
    keep: Keep = KEEP_COUNT,
    allow_gap: AllowGap = False,
    verify: Verify = False,
    show: List = False,
) -> int:
    """Back up a store, which may be served: its log as far as it is on the disk, and config/. Each byte is copied once.

    A further run copies what was appended since. The backup is there whole or not at all.
    """
    from cli.backup.places import open_place

    if verify and show:
        usage_error("--verify and --list exclude one another")
    with _failures():
        place = open_place(to, broker_name, "to")
        if show:
            return _list(place)
        from cli.backup.taking import take_backup, verify_backups
        from cli.printing import progress_bar

        with progress_bar("backup") as (on_progress, _):
            if verify:
                report = verify_backups(place, on_progress=on_progress)
            elif store is None:
                usage_error("--store is missing", "Name the root of the store to back up.")
            else:
                report = take_backup(store, place, broker_name, keep=keep, allow_gap=allow_gap, on_progress=on_progress)
    return _print(report)


From = Annotated[
    str,
    typer.Option("--from", help="Where the backups are: a directory, or s3://BUCKET/PREFIX.", show_default=False),
]
Out = Annotated[
    pathlib.Path,
    typer.Option(
        "--out", help="The store root to make: a directory that is empty or does not exist.", show_default=False
    ),
]
Moment = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Up to where: a commit-log offset, or a time as ISO-8601 or -2h; the end of the newest backup if it is left out.",
        show_default=False,
    ),
]
LogOnly = Annotated[
    bool, typer.Option("--log-only", help="Make no queues and no index: the services build them when they start.")
]


def restore(
    *,
    source: From,
    out: Out,
    to: Moment = None,
    broker_name: BrokerName = "broker-a",
    log_only: LogOnly = False,
) -> int:
    """Make a store of a backup: the log up to a moment, its queues, index, topics, and consumer groups and timers as they were.

    Every checksum is compared first. The store appears whole or not at all.
    """
    from cli.backup import restoring
    from cli.backup.places import open_place
    from cli.printing import progress_bar
    from cli.times import parse_place

    moment = restoring.Moment(*parse_place(to, is_end=True))
    with _failures():
        place = open_place(source, broker_name, "from")
        with progress_bar("restore") as (on_progress, _):
            report = restoring.restore_store(
                place, out, moment, log_only=log_only, on_progress=lambda step, done, total: on_progress(done, total)
            )
    return _print(report)


def _list(place: "Place") -> int:
    from cli.backup.places import read_backups
    from cli.printing import print_table
    from cli.times import iso_text, moment_of

    backups, damages = read_backups(place)
    rows = [
        (iso_text(moment_of(each.taken_millis)), each.begin_offset, each.end_offset, len(each.pieces), each.name)
        for each in backups
    ]
    print_table(["taken", "begin_offset", "end_offset", "pieces", "manifest"], rows)
    for damage in damages:
        print(damage.message)
    return EXIT_FOUND if damages else Exit.FOUND if backups else Exit.NOTHING_FOUND


def _print(report: "JobReport") -> int:
    print(report.to_json())
    return EXIT_FOUND if report.findings else Exit.FOUND


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Failures of the store and of disks as those of the command."""
    from store.errors import StoreError

    try:
        yield
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(
            Exit.UNAVAILABLE,
            "DISK_FAILED",
            str(error),
            "Run it again: a backup, or a restored store, is there whole or not at all.",
        ) from error
