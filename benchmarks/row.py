"""The base class of the table's rows, and what a row gets to use."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.figures import ECHO, OURS, THEIRS, Metric, RowResult
from benchmarks.sides import rocketmq_side
from benchmarks.sides.our_side import OurStack, running_stack
from benchmarks.sizes import Sizes

RowId = int | str  # 1; 1c for the same with a compiled client; T1 for a row of the pipeline
SIDES = (OURS, THEIRS, ECHO)
QUIET = {"REPUT_LOG_LEVEL": "warning"}
ASYNC_FLUSH = {"flushDiskType": "ASYNC_FLUSH", "transientStorePoolEnable": "false", "diskMaxUsedSpaceRatio": 99}


class SkippedError(Exception):
    """A side cannot be measured here; the message gives the reason."""


@dataclass
class Context:
    """What a row gets to use.

    Args:
        sizes: durations and amounts of this run.
        stores: directory of kept stores.
        scratch: directory for files that are removed at the end.
        rocketmq_missing: why RocketMQ cannot run; empty when it can.
        ghz: path of ghz; empty without it.
        ghz_missing: why there is no ghz.
        say: shows the current work.
        kept: values that a row keeps for its later rounds, by name.
    """

    sizes: Sizes
    stores: pathlib.Path
    scratch: pathlib.Path
    rocketmq_missing: str
    ghz: str
    ghz_missing: str
    say: Callable[[str], None]

    @contextlib.contextmanager
    def directory(self) -> Iterator[pathlib.Path]:
        """A directory that is removed after the block."""
        path = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def ours(self, settings: Mapping[str, str] | None = None, *, in_processes: bool = False) -> Iterator[OurStack]:
        """Our services on an empty store.

        Args:
            settings: of the services.
            in_processes: each in a process of its own, whatever the run says: its start or its memory is measured.
        """
        single = self.sizes.single_process and not in_processes
        quiet = QUIET | dict(settings or {})
        with (
            self.directory() as path,
            running_stack(path / "store", quiet, single_process=single) as stack,
        ):
            yield stack

    @contextlib.contextmanager
    def theirs(self, *, proxy: bool = False, **settings: object) -> Iterator[rocketmq_side.RocketMQ]:
        """RocketMQ on an empty store."""
        options = {**ASYNC_FLUSH, **settings}
        with (
            self.directory() as path,
            rocketmq_side.running_rocketmq(path / "store", path / "work", proxy=proxy, **options) as rocketmq,
        ):
            yield rocketmq


class Row:
    """One row: a measurement and its targets.

    Attributes:
        number: number in the table.
        title: a few words.
        what: one or two sentences on how it is measured.
        cause: why a target is missed where one is, one sentence with its ADR.
        metrics: its lines in the table.
    """

    number: ClassVar[RowId]
    title: ClassVar[str]
    what: ClassVar[str]
    cause: ClassVar[str] = ""
    metrics: tuple[Metric, ...] = ()

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that are measured, in the order of a round."""
        return tuple(side for side in SIDES if any(side in metric.sides for metric in self.metrics))

    def prepare(self, context: Context) -> None:
        """Makes what all rounds need."""

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """Measures one round of one side; returns values by metric.

        Raises:
            SkippedError: this side cannot be measured here.
        """
        raise NotImplementedError

    def finish(self, context: Context, result: RowResult) -> None:
        """Adds notes and curves after all rounds."""
