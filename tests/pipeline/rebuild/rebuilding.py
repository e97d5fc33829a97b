"""Rebuilds without Spark, and what they are compared with."""

from collections.abc import Callable
from pathlib import Path

from pipeline.job import JobReport, run_here
from pipeline.rebuild.out import StoreLayout
from pipeline.rebuild.plan import make_plan
from pipeline.rebuild.rebuild import Rebuild
from store.files.file_system import RealFileSystem
from store.readers.index_reader import list_index_files
from tests.support.dispatches import file_bytes


def rebuild_here(
    store: Path,
    out: Path,
    *,
    layout: StoreLayout | None = None,
    split_bytes: int | None = None,
    dry_run: bool = False,
    is_flushed: bool = False,
    before_step: Callable[[str], object] = bool,
) -> JobReport:
    """One rebuild, task by task in this process; `before_step` is told the name of each step that has tasks."""
    fs, report = RealFileSystem(), JobReport.begin("rebuild", is_dry_run=dry_run)
    plan, notes = make_plan(fs, store, out, layout or StoreLayout(), split_bytes=split_bytes, is_flushed=is_flushed)
    report.notes += notes

    def show(step: str, done: int, total: int) -> None:
        if total and not done:
            before_step(step)

    Rebuild(fs, plan, run_here(show), report).run(dry_run=dry_run)
    return report.end()


def assert_same_store(one: Path, other: Path) -> None:
    """Queues and indexes are equal byte for byte; names of index files are times, so these are compared in order."""
    queues = file_bytes(other / "consumequeue")
    assert file_bytes(one / "consumequeue") == queues
    fs = RealFileSystem()
    indexes = [[path.read_bytes() for path in list_index_files(fs, root)] for root in (one, other)]
    assert indexes[0] == indexes[1]
    assert queues or indexes[1], "nothing was compared"
