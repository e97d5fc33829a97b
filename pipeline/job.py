"""What every job has: a report as one JSON document, its progress, runners of tasks, and the check that executors see its
directories.

Progress is shown as a bar on a terminal only. The check is made before a job begins, so that it does not fail in the middle: on
a cluster, a directory must be shared by all machines, under one path. One task for each core looks at it; executors that join
later are not asked. An object store needs no such check.
"""

import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pipeline.object_root import ObjectRoot
from store.errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class JobReport:
    """The counts, outputs and findings of a job.

    Attributes:
        job: the name of the job.
        is_dry_run: the job wrote nothing.
        started_at_millis: milliseconds since 1970 UTC.
        seconds: how long it took.
        counts: amounts read, written and found; names end in their unit (`_count`, `_bytes`).
        outputs: paths of what was written, by kind.
        findings: what is wrong, one row each; empty for jobs that do not check.
        notes: sentences for the reader.
    """

    job: str
    is_dry_run: bool = False
    started_at_millis: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, job: str, *, is_dry_run: bool = False, clock: Callable[[], float] = time.time) -> Self:
        """The report of a job that starts now."""
        return cls(job, is_dry_run, started_at_millis=int(clock() * 1000))

    def end(self, clock: Callable[[], float] = time.time) -> Self:
        """The same report, with the time that the job took."""
        self.seconds = round(clock() - self.started_at_millis / 1000, 3)
        return self

    def to_json(self) -> str:
        """One indented document."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


POLL_SECONDS = 0.2

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Progress(Protocol):
    """Called with the progress of a job."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` units of a step; a step begins with 0 and ends with `total`."""


class RunTasks(Protocol):
    """Runs a function over items, possibly on several machines; the results are in the order of the items."""

    def __call__(self, step: str, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """All results; raises the first error."""


def silent(step: str, done: int, total: int) -> None:
    """Shows nothing."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Shows a bar on stderr and yields the function that moves it; shows nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task_of: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in task_of:
                task_of[step] = bar.add_task(step, total=total)
            bar.update(task_of[step], completed=done, total=total)

        yield show


def run_here(progress: Progress = silent) -> RunTasks:
    """Runs tasks one after the other in this process: for tests, and where there is no Spark."""

    def run(step: str, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        results = []
        progress(step, 0, len(items))
        for item in items:
            results.append(function(item))
            progress(step, len(results), len(items))
        return results

    return run


class _Caught:
    """Carries a task's typed error to the driver, where Spark would turn it into text."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, item: Any) -> tuple[Any, Exception | None]:
        try:
            return self._function(item), None
        except (StoreError, OSError) as error:
            return None, error


def run_on_spark(spark: "SparkSession", progress: Progress = silent) -> RunTasks:
    """Runs each item as one Spark task."""

    def run(step: str, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        if not items:
            return []
        context = spark.sparkContext
        tasks = context.parallelize(items, len(items)).map(_Caught(function))
        group = f"reput {step} {uuid.uuid4().hex}"
        ended = threading.Event()

        def watch() -> None:
            tracker = context.statusTracker()
            while not ended.wait(POLL_SECONDS):
                stages = [
                    tracker.getStageInfo(stage)
                    for job in tracker.getJobIdsForGroup(group)
                    for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
                ]
                progress(step, sum(stage.numCompletedTasks for stage in stages if stage is not None), len(items))

        progress(step, 0, len(items))
        watcher = threading.Thread(target=watch, name="progress", daemon=True)
        if progress is not silent:
            watcher.start()
        context.setLocalProperty("spark.jobGroup.id", group)
        context.setLocalProperty("spark.job.description", step)
        try:
            outcomes: list[tuple[Any, Exception | None]] = tasks.collect()
        finally:
            ended.set()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
            context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
            if watcher.is_alive():
                watcher.join()
        for _, error in outcomes:
            if error is not None:
                raise error
        progress(step, len(items), len(items))
        return [result for result, _ in outcomes]

    return run


MARK_PREFIX = ".reput-shared-"


def refuse_unshared(spark: "SparkSession | None", place: Path | str | ObjectRoot, field: str) -> None:
    """InvalidArgumentError about `field` if executors do not see the directory that a job reads as the driver sees it.

    Args:
        spark: the session; None, or a local one: there is one machine.
        place: the directory; nothing is asked for a URI.
        field: the argument that named it.
    """
    root = ObjectRoot.place(place, field)
    if isinstance(root, Path) and _is_cluster(spark):
        root = root.absolute()
        _ask(spark, root, partial(_sees_names, str(root), _names(str(root))), field)


def refuse_unshared_output(spark: "SparkSession | None", place: Path | str | ObjectRoot, field: str) -> None:
    """The same for a directory that a job writes; it may not exist yet. An empty file lies beside or in it meanwhile."""
    root = ObjectRoot.place(place, field)
    if not isinstance(root, Path) or not _is_cluster(spark):
        return
    root = root.absolute()
    there = next(parent for parent in (root, *root.parents) if parent.is_dir())
    mark = there / f"{MARK_PREFIX}{uuid.uuid4().hex}"
    mark.touch()
    try:
        _ask(spark, root, partial(_sees_file, str(mark)), field)
    finally:
        with suppress(FileNotFoundError):
            mark.unlink()


def _is_cluster(spark: "SparkSession | None") -> bool:
    return spark is not None and not (spark.sparkContext.master or "local").startswith("local")


def _ask(spark: "SparkSession | None", root: Path, sees: "partial[str]", field: str) -> None:
    assert spark is not None
    context = spark.sparkContext
    count = max(context.defaultParallelism, 2)
    blind = {host for host in context.parallelize(range(count), count).map(sees).collect() if host}
    if blind:
        raise InvalidArgumentError(
            f"{root} is not the same directory on {', '.join(sorted(blind))}: on a cluster, all machines must share it under "
            "this path. Share it, or name a place in an object store, such as s3://BUCKET/PREFIX.",
            field=field,
        )


def _names(root: str) -> Sequence[str]:
    """Names in a directory, and in its commitlog/ if it is a store."""
    with suppress(OSError):
        inside = os.path.join(root, "commitlog")
        return sorted(os.listdir(inside if os.path.isdir(inside) else root))
    return ()


def _sees_names(root: str, names: Sequence[str], _: int) -> str:
    """One task: the name of this machine if it does not see what the driver has seen, else nothing.

    A log may have grown, and retention may have removed files since: one common name is enough.
    """
    return "" if not names or set(names).intersection(_names(root)) else socket.gethostname()


def _sees_file(mark: str, _: int) -> str:
    """One task: the name of this machine if it does not see the file, else nothing."""
    return "" if os.path.exists(mark) else socket.gethostname()
