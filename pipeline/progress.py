"""Progress of a job, shown as a bar on a terminal only; and runners of tasks that report it."""

import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from store.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
