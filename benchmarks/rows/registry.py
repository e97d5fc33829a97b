"""All rows by number."""

from benchmarks.row import Row, RowId
from benchmarks.rows.batched_append import OneKib, Small
from benchmarks.rows.bulk_pull import BulkPull
from benchmarks.rows.bulk_to_parquet import BulkToParquet
from benchmarks.rows.catch_up import CatchUp
from benchmarks.rows.cold_query import ColdQuery
from benchmarks.rows.cold_tier import ColdTier
from benchmarks.rows.compiled_append import CompiledOneKib, CompiledSmall
from benchmarks.rows.consumer_growth import ConsumerGrowth
from benchmarks.rows.consuming import PushLatency, PushThroughput, SimpleThroughput
from benchmarks.rows.embedded import Embedded
from benchmarks.rows.failover import Failover
from benchmarks.rows.findable import Findable
from benchmarks.rows.first_seconds import FirstSeconds
from benchmarks.rows.growth import Growth
from benchmarks.rows.growth_by import GrowthBy
from benchmarks.rows.idle_polls import IdlePolls
from benchmarks.rows.lite_growth import LiteGrowth
from benchmarks.rows.memory import Memory
from benchmarks.rows.mirrored import Mirrored
from benchmarks.rows.name_server import NameServerRow
from benchmarks.rows.object_scan import ObjectScan
from benchmarks.rows.pipeline_jobs import ArchiveGroup, IndexFill, ScanGrowth, SparkRebuild, WorkerMemory
from benchmarks.rows.pipeline_scans import ArrowScan, FullScan, Pruning, Pushdown, QueueScan, SparkCost
from benchmarks.rows.queries import CompiledQueries, ConcurrentQueries, Queries
from benchmarks.rows.rebuild import Rebuild
from benchmarks.rows.remoting_idle import RemotingIdle
from benchmarks.rows.remoting_reads import RemotingLitePull, RemotingPush, RemotingQueries
from benchmarks.rows.remoting_sends import RemotingBatches, RemotingSends
from benchmarks.rows.replicated_append import ReplicatedAppend
from benchmarks.rows.restart import Restart
from benchmarks.rows.sending import OfficialSend
from benchmarks.rows.six_services import SixServices
from benchmarks.rows.start import Start
from benchmarks.rows.table import IcebergTable
from benchmarks.rows.timer_growth import TimerGrowth
from benchmarks.rows.timers import TimerDrain, TimerLateness
from benchmarks.rows.transactions import Transactions
from benchmarks.rows.two_workers import TwoWorkers
from benchmarks.rows.unary_append import SyncUnary, Unary
from benchmarks.sizes import Sizes

_ROWS: tuple[type[Row], ...] = (
    OneKib, CompiledOneKib, Small, CompiledSmall, Unary, OfficialSend, SyncUnary, Findable, Queries, CompiledQueries,
    ConcurrentQueries, ColdQuery, Rebuild, Restart, Memory, Start, Growth, GrowthBy, LiteGrowth,
    PushThroughput, SimpleThroughput, BulkPull, PushLatency, ConsumerGrowth, IdlePolls,
    TimerLateness, TimerDrain, Transactions, TimerGrowth, ReplicatedAppend, CatchUp,
    Failover, Mirrored,
    RemotingSends, RemotingBatches, RemotingPush, RemotingLitePull, RemotingQueries, RemotingIdle, NameServerRow,
    Embedded, FirstSeconds, SixServices,
    QueueScan, FullScan, ArrowScan, SparkCost, SparkRebuild, IndexFill, Pushdown, Pruning, ArchiveGroup, WorkerMemory,
    ScanGrowth, ObjectScan, BulkToParquet, ColdTier, TwoWorkers, IcebergTable,
)  # fmt: skip
NUMBERS = tuple(row.number for row in _ROWS)


def parse(text: str) -> RowId:
    """The row number in a text; ValueError when there is no such row."""
    for number in NUMBERS:
        if str(number).upper() == text.strip().upper():
            return number
    raise ValueError(f"there is no row {text}; rows are {', '.join(map(str, NUMBERS))}")


def place(number: RowId) -> int:
    """The place of a row in the table."""
    return NUMBERS.index(number)


def make(number: RowId, sizes: Sizes) -> Row:
    """Makes the row with a number."""
    return _ROWS[NUMBERS.index(number)](sizes)
