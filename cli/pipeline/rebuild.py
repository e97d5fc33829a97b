"""`reput pipeline rebuild`: queues and indexes made again from the log, once or continuously.

Exit codes: 0 done, 2 usage, not a store, or one whose log is damaged, 4 the disk, a service or Spark failed.
"""

import pathlib
import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import CliError, Exit, store_failure, usage_error
from cli.options import DelayLevels, use_list
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.job import JobReport, Progress
    from pipeline.rebuild.out import StoreLayout

Store = Annotated[
    str | None,
    typer.Option("--store", help="The store root, or its URI; nothing is written there.", show_default=False),
]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        help="The root to make: a directory that is empty or does not exist, or s3://BUCKET/PREFIX without any object.",
        show_default=False,
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        help="scatter: one machine or a shared disk; shuffle: each file is written from begin to end.",
        show_default="scatter; shuffle into an object store",
    ),
]
Continuous = Annotated[bool, typer.Option("--continuous", help="Follow a running commit log until stopped.")]
Target = Annotated[
    str,
    typer.Option("--commitlog", envvar="REPUT_COMMITLOG_TARGET", help="With --continuous: the commitlog service."),
]
UntilCaughtUp = Annotated[
    bool,
    typer.Option("--until-caught-up", help="With --continuous: end when the log, as it is at the start, is applied."),
]
SplitBytes = Annotated[
    int | None, typer.Option("--split-bytes", min=1, help="Bytes of the log for one task.", show_default="whole files")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read and check everything, write nothing.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master.")]

MODES = ("scatter", "shuffle")


def rebuild(
    *,
    out: Out,
    store: Store = None,
    mode: Mode = None,
    continuous: Continuous = False,
    commitlog: Target = "127.0.0.1:8082",
    until_caught_up: UntilCaughtUp = False,
    split_bytes: SplitBytes = None,
    dry_run: DryRun = False,
    delay_levels: DelayLevels = DELAY_LEVELS_DEFAULT,
    master: Master = "local[*]",
) -> int:
    """Make ConsumeQueue and IndexFile again from the log, byte for byte as RocketMQ makes them."""
    from services.object_uri import is_uri
    from store.errors import StoreError

    use_list(delay_levels)
    if mode is not None and mode not in MODES:
        usage_error(f"--mode is {mode!r}", "Use scatter or shuffle.")
    if continuous and is_uri(out):
        usage_error("--continuous appends to files and cannot write to an object store", "Name a directory.")
    if continuous and dry_run:
        usage_error("--continuous and --dry-run exclude each other", "Leave one of them out.")
    if not continuous and (store is None or (not is_uri(store) and not pathlib.Path(store).is_dir())):
        usage_error(
            "--store is missing" if store is None else f"{store} is no directory",
            "Name the root of a store: the directory with commitlog/ in it.",
        )
    try:
        layout = layout_of_settings()
        if continuous:
            report = _follow(store, pathlib.Path(out), commitlog, layout, master, until_caught_up=until_caught_up)
        else:
            assert store is not None
            report = _rebuild(store, out, mode, layout, master, split_bytes=split_bytes, dry_run=dry_run)
    except StoreError as error:
        raise store_failure(error) from error
    except OSError as error:
        raise CliError(Exit.UNAVAILABLE, "DISK_FAILED", str(error)) from error
    print(report.to_json())
    return Exit.FOUND


def layout_of_settings() -> "StoreLayout":
    """Sizes of derived files, by the settings of the services that own them."""
    from consumequeue_svc.settings import ConsumeQueueSettings
    from index_svc.settings import IndexSettings
    from pipeline.rebuild.out import StoreLayout
    from services.settings.service_settings import load_settings
    from store.readers.index_reader import IndexLayout

    queues = load_settings("consumequeue", ConsumeQueueSettings)[0]
    index = load_settings("index", IndexSettings)[0]
    has_tags = {"auto": None, "on": True, "off": False}[index.tags]
    return StoreLayout(queues.file_size_bytes, IndexLayout(index.hash_slot_count, index.entry_count_max), has_tags)


def _rebuild(
    store: str,
    out: str,
    mode: str | None,
    layout: "StoreLayout",
    master: str,
    *,
    split_bytes: int | None,
    dry_run: bool,
) -> "JobReport":
    from cli.pipeline.on_spark import run_on_session
    from pipeline.object_files import open_root
    from pipeline.object_root import ObjectRoot
    from pipeline.rebuild import rebuild as job
    from pipeline.rebuild.plan import refuse_goal, refuse_no_store

    goal = ObjectRoot.of(out)

    def check() -> None:
        job.mode_for(goal, mode)
        fs, root = open_root(store)
        refuse_no_store(fs, root)
        refuse_goal(root, goal)

    return run_on_session(
        master,
        check,
        lambda spark, progress: job.run(
            spark, store, out, mode=mode, layout=layout, split_bytes=split_bytes, dry_run=dry_run, progress=progress
        ),
    )


def _follow(
    store: str | None,
    out: pathlib.Path,
    commitlog: str,
    layout: "StoreLayout",
    master: str,
    *,
    until_caught_up: bool,
) -> "JobReport":
    from cli.pipeline.on_spark import run_on_session
    from cli.pipeline.rebuild_builders import OnlineBuilders
    from pipeline.object_files import open_root
    from pipeline.rebuild import continuous
    from pipeline.rebuild.out import find_layout

    notes: list[str] = []
    if store is not None:
        layout, notes = find_layout(*open_root(store), layout)
    stopping = threading.Event()

    def follow(spark: "SparkSession", progress: "Progress") -> "JobReport":
        for number in (signal.SIGTERM, signal.SIGINT):  # after Spark's start, which sets a handler of its own
            signal.signal(number, lambda number, frame: stopping.set())
        return continuous.run(
            spark,
            commitlog,
            out,
            OnlineBuilders(layout),
            until_caught_up=until_caught_up,
            stop_event=stopping,
            progress=progress,
        )

    # No check before Spark starts: the job itself refuses a wrong `out`.
    report = run_on_session(master, lambda: None, follow)
    report.notes += notes
    return report
