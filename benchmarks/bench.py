"""Measures the rows of the speed table, beside the real Apache RocketMQ.

    python -m benchmarks [--rows 1,2,T5] [--rounds 3] [--full | --size tiny] [--sides ours]

Writes results.json and RESULTS.md after each row; a run of some rows keeps the results of the others. Exit codes: 0;
1 when a measurement failed (the others are written); 2 for wrong arguments; 130 when it was stopped.
"""

import argparse
import contextlib
import dataclasses
import datetime
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks import machine, processes, report
from benchmarks.figures import ECHO, NOT_JUDGED, OURS, THEIRS, RowResult, judge
from benchmarks.load import environment
from benchmarks.row import Context, Row, RowId, SkippedError
from benchmarks.rows import registry
from benchmarks.sides import ghz, rocketmq_side
from benchmarks.sides.our_side import OneProcess
from benchmarks.sizes import BY_NAME, FULL, SAMPLE, TINY, Sizes
from benchmarks.stores import NoRoomError
from tests.rocketmq import real_broker

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROUNDS, ROUNDS_FULL = 3, 7
COMPILE_SECONDS_MAX = 900.0  # all kernels, on a busy machine
STOPPED = 130
REASON_LENGTH_MAX = 200


@dataclass
class Display:
    """A bar on a terminal; elsewhere, a line for each measurement."""

    console: Console
    progress: Progress
    task: TaskID
    headline: str = ""

    def step(self, headline: str) -> None:
        """Shows the measurement that begins."""
        self.headline = headline
        self.detail("")
        if not self.console.is_terminal:
            self.console.print(headline)

    def detail(self, text: str) -> None:
        """Shows the current work of the measurement."""
        self.progress.update(self.task, description=f"{self.headline}{': ' if text else ''}{text}")

    def done(self) -> None:
        """Counts one measurement as done."""
        self.progress.advance(self.task)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen rows; returns the exit code."""
    options = _options(arguments)
    sizes = FULL if options.full else BY_NAME[options.size]
    sizes = dataclasses.replace(sizes, single_process=options.single_process)
    # No figure is judged at this size, and the start of an interpreter takes longer than some rows.
    OneProcess.is_forked = sizes.name == TINY.name
    rounds = options.rounds or (ROUNDS_FULL if options.full else ROUNDS)
    rows = [registry.make(number, sizes) for number in options.rows]
    console = Console(stderr=True, soft_wrap=True)
    signal.signal(signal.SIGTERM, _interrupt)
    options.stores.mkdir(parents=True, exist_ok=True)
    try:
        with _scratch(options.stores) as scratch, _display(console, rows, rounds, options.sides) as display:
            context = _context(sizes, options.stores, scratch, options.sides, display)
            return _run(rows, rounds, options.sides, context, options.results, display)
    except KeyboardInterrupt:
        console.print("stopped; the rows that were done are written")
        return STOPPED
    finally:
        _end_all()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=_row_numbers, default=registry.NUMBERS, help="numbers, as in 1,2,T5; all")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS}; {ROUNDS_FULL} with --full")
    parser.add_argument("--full", action="store_true", help="longer, more rounds, larger stores")
    parser.add_argument("--size", choices=sorted(BY_NAME), default=SAMPLE.name, help="`tiny` only shows that it works")
    parser.add_argument(
        "--single-process", action="store_true", help="our services in one process, where a row allows it"
    )
    parser.add_argument("--sides", type=_sides, default=(OURS, THEIRS, ECHO), help="ours,rocketmq,echo")
    parser.add_argument("--stores", type=pathlib.Path, default=ROOT / ".bench", help="where large stores are kept")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "benchmarks", help="where the results go")
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: at least 1")
    options.stores = options.stores.resolve()
    return options


def _row_numbers(text: str) -> tuple[RowId, ...]:
    try:
        return tuple(registry.parse(part) for part in text.replace(" ", ",").split(",") if part) or registry.NUMBERS
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _sides(text: str) -> tuple[str, ...]:
    sides = tuple(text.split(","))
    if not sides or not set(sides) <= {OURS, THEIRS, ECHO}:
        raise argparse.ArgumentTypeError(f"sides are {OURS}, {THEIRS} and {ECHO}")
    return sides


def _context(
    sizes: Sizes, kept: pathlib.Path, scratch: pathlib.Path, sides: Sequence[str], display: Display
) -> Context:
    missing = (rocketmq_side.why_unavailable() or "") if THEIRS in sides else "not asked for"
    if not missing:
        display.step("RocketMQ's jars and the Java drivers")
        rocketmq_side.classpath()
    if OURS in sides:
        display.step("our kernels")
        # Compiling takes minutes of two cores: services that do it while they are measured are ten times slower.
        processes.run([sys.executable, "-m", "deploy.build_kernels"], COMPILE_SECONDS_MAX, env=environment(), cwd=ROOT)
    path, why_no_ghz = ghz.find()
    return Context(sizes, kept, scratch, missing, path, why_no_ghz, display.detail)


def _run(
    rows: Sequence[Row],
    rounds: int,
    sides: Sequence[str],
    context: Context,
    directory: pathlib.Path,
    display: Display,
) -> int:
    results = report.load(directory)
    results.machine = machine.describe(context.stores)
    failed = False
    for row in rows:
        result = RowResult(
            date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
            size=context.sizes.name,
            load_before=machine.load(),
            rocketmq=real_broker.VERSION if THEIRS in row.sides else "",
        )
        failed |= not _measure_row(row, rounds, sides, context, result, display)
        results.rows[row.number] = result
        report.save(results, directory)
        _say_outcome(row, result, display)
    display.console.print(f"written: {directory / report.MARKDOWN_NAME}")
    return int(failed)


def _measure_row(
    row: Row, rounds: int, sides: Sequence[str], context: Context, result: RowResult, display: Display
) -> bool:
    """Whether all sides succeeded or were skipped; `result.skipped` has the reasons."""
    failed: set[str] = set()
    if context.rocketmq_missing and THEIRS in row.sides:
        result.skipped[THEIRS] = context.rocketmq_missing
    wanted = [side for side in row.sides if side in sides]
    display.step(f"row {row.number}, {row.title}")
    try:
        row.prepare(context)
    except NoRoomError as error:
        result.skipped |= dict.fromkeys(wanted, str(error))
        return True
    except Exception as error:  # the other rows are still measured
        result.skipped |= dict.fromkeys(wanted, f"failed to prepare: {_in_short(error)}")
        display.console.print(f"row {row.number}: {type(error).__name__}: {error}", markup=False)
        return False
    for number in range(rounds):
        for side in wanted:
            if side not in result.skipped:
                display.step(f"row {row.number}, {row.title}, round {number + 1} of {rounds}, {side}")
                try:
                    result.add(side, row.measure(side, context))
                except (SkippedError, NoRoomError) as error:
                    result.skipped[side] = str(error)
                except Exception as error:  # the other sides and rows are still measured
                    failed.add(side)
                    result.skipped[side] = f"failed in round {number + 1}: {_in_short(error)}"
                    display.console.print(f"row {row.number}, {side}: {type(error).__name__}: {error}", markup=False)
            display.done()
    if result.rounds:
        row.finish(context, result)
    return not failed


def _in_short(error: Exception) -> str:
    """The error as text for RESULTS.md, without paths of this machine."""
    text = " ".join(str(error).replace(f"{ROOT}/", "").split())
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[:REASON_LENGTH_MAX]}..."


def _say_outcome(row: Row, result: RowResult, display: Display) -> None:
    for metric in row.metrics:
        outcome = judge(metric, result.rounds.get(metric.name, {}))
        if outcome.word != NOT_JUDGED:
            text = f"row {row.number}, {metric.name}: {outcome.word} ({metric.target.text if metric.target else ''})"
            display.console.print(text, markup=False)


@contextlib.contextmanager
def _display(console: Console, rows: Sequence[Row], rounds: int, sides: Sequence[str]) -> Iterator[Display]:
    count = sum(rounds for row in rows for side in row.sides if side in sides)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Display(console, progress, progress.add_task("", total=count))


@contextlib.contextmanager
def _scratch(kept: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory beside the kept stores, removed after the run; directories that killed runs left are removed, too."""
    for old in kept.glob("scratch-*"):
        if not pathlib.Path(f"/proc/{old.name.removeprefix('scratch-')}").exists():
            shutil.rmtree(old, ignore_errors=True)
    path = kept / f"scratch-{os.getpid()}"
    path.mkdir(exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_all() -> None:
    """Ends all processes that this one has started and a stopped measurement left, by their ids."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = processes.family(os.getpid())[1:]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGTERM:
            with contextlib.suppress(RuntimeError):
                processes.wait_for(lambda: len(processes.family(os.getpid())) == 1, "the last processes", 10)


if __name__ == "__main__":
    sys.exit(main())
