"""All rows by number."""

from benchmarks.row import Row, RowId
from benchmarks.rows.batched_append import OneKib, Small
from benchmarks.rows.cold_query import ColdQuery
from benchmarks.rows.findable import Findable
from benchmarks.rows.growth import Growth
from benchmarks.rows.memory import Memory
from benchmarks.rows.pipeline_jobs import ArchiveGroup, IndexFill, ScanGrowth, SparkRebuild, WorkerMemory
from benchmarks.rows.pipeline_scans import ArrowScan, FullScan, Pruning, Pushdown, QueueScan, SparkCost
from benchmarks.rows.queries import Queries
from benchmarks.rows.rebuild import Rebuild
from benchmarks.rows.restart import Restart
from benchmarks.rows.start import Start
from benchmarks.rows.unary_append import SyncUnary, Unary
from benchmarks.sizes import Sizes

_ROWS: tuple[type[Row], ...] = (
    OneKib, Small, Unary, SyncUnary, Findable, Queries, ColdQuery, Rebuild, Restart, Memory, Start, Growth,
    QueueScan, FullScan, ArrowScan, SparkCost, SparkRebuild, IndexFill, Pushdown, Pruning, ArchiveGroup, WorkerMemory,
    ScanGrowth,
)  # fmt: skip
NUMBERS = tuple(row.number for row in _ROWS)


def parse(text: str) -> RowId:
    """The row number in a text; ValueError when there is no such row."""
    for number in NUMBERS:
        if str(number) == text.strip().upper():
            return number
    raise ValueError(f"there is no row {text}; rows are {', '.join(map(str, NUMBERS))}")


def place(number: RowId) -> int:
    """The place of a row in the table."""
    return NUMBERS.index(number)


def make(number: RowId, sizes: Sizes) -> Row:
    """Makes the row with a number."""
    return _ROWS[NUMBERS.index(number)](sizes)
