"""Durations and amounts of a run: `tiny` to see that it works, the sample, and the full run."""

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Sizes:
    """Amounts of one run.

    Args:
        name: `tiny`, `sample` or `full`.
        warm_seconds: load before a rate is measured; a JVM needs it to compile its code.
        measure_seconds: measured time of each rate.
        load_seconds: duration of the load under which memory is measured.
        checkpoint_seconds: longer than the checkpoint interval of each side.
        settle_seconds: after a start or after connections were opened, before something is measured that this would change.
        idle_seconds: how long processes that do nothing are watched; what is loaded after a start is loaded by then.
        query_count: queries of each kind.
        probe_count: messages whose time until they are found is measured.
        cold_count: commands run cold in each round.
        log_bytes: size of the log that is rebuilt.
        log_file_bytes: size of one of its files.
        restart_log_bytes: log sizes over which a restart with fresh checkpoints must take the same time.
        pipeline_log_bytes: log sizes over which the time of the pipeline's jobs must grow in proportion.
        growth_counts: messages of the growing store; the largest one also serves the queries.
        timer_count: messages that wait far ahead while the lateness of others is measured.
        due_count: messages whose time is within one second.
        timer_counts: messages that wait, over which memory must stay the same.
        failover_count: leaders killed in each round.
        topic_counts: topics over which appends and queries must take the same time.
        connection_counts: connections that do nothing, likewise for appends.
        lite_counts: lite topics, likewise; the first one is what the others are compared with.
        index_slot_count: slots of index files in kept stores.
        index_entry_count: entries of index files in kept stores.
        single_process: our services run in one process, but for the rows about processes.
    """

    name: str
    warm_seconds: float
    measure_seconds: float
    load_seconds: float
    checkpoint_seconds: float
    query_count: int
    probe_count: int
    cold_count: int
    log_bytes: int
    log_file_bytes: int
    restart_log_bytes: tuple[int, ...]
    growth_counts: tuple[int, ...]
    timer_count: int
    due_count: int
    timer_counts: tuple[int, ...]
    failover_count: int
    topic_counts: tuple[int, ...] = (1, 1_000, 10_000, 100_000)
    connection_counts: tuple[int, ...] = (1, 100, 1_000, 10_000)
    lite_counts: tuple[int, ...] = (10, 10_000, 100_000)
    pipeline_log_bytes: tuple[int, ...] = (GIB // 2, GIB, 2 * GIB, 4 * GIB)
    settle_seconds: float = 2.0
    idle_seconds: float = 5.0
    index_slot_count: int = 5_000_000
    index_entry_count: int = 20_000_000
    single_process: bool = False


TINY = Sizes(
    "tiny",
    warm_seconds=0.2,
    measure_seconds=0.5,
    load_seconds=1.0,
    checkpoint_seconds=1.5,
    query_count=20,
    probe_count=10,
    cold_count=1,
    log_bytes=2 * MIB,
    log_file_bytes=MIB,
    restart_log_bytes=(MIB, 2 * MIB),
    growth_counts=(100, 1_000, 3_000),
    timer_count=500,
    due_count=1_000,
    timer_counts=(200, 1_000, 3_000),
    failover_count=1,
    topic_counts=(1, 20),
    connection_counts=(1, 20),
    lite_counts=(5, 50),
    pipeline_log_bytes=(MIB, 2 * MIB),
    settle_seconds=0.1,
    idle_seconds=0.2,
    index_slot_count=1_000,
    index_entry_count=10_000,
)
SAMPLE = Sizes(
    "sample",
    warm_seconds=6.0,
    measure_seconds=4.0,
    load_seconds=15.0,
    checkpoint_seconds=7.0,
    query_count=1_500,
    probe_count=200,
    cold_count=2,
    log_bytes=2 * GIB,
    log_file_bytes=GIB,
    restart_log_bytes=(GIB, 4 * GIB),
    growth_counts=(100_000, 1_000_000, 10_000_000),
    timer_count=20_000,
    due_count=200_000,
    timer_counts=(20_000, 100_000, 500_000),
    failover_count=2,
)
FULL = Sizes(
    "full",
    warm_seconds=15.0,
    measure_seconds=20.0,
    load_seconds=180.0,
    checkpoint_seconds=12.0,
    query_count=10_000,
    probe_count=2_000,
    cold_count=5,
    log_bytes=2 * GIB,
    log_file_bytes=GIB,
    restart_log_bytes=(GIB, 4 * GIB, 16 * GIB),
    growth_counts=(100_000, 1_000_000, 10_000_000),
    timer_count=1_000_000,
    due_count=1_000_000,
    timer_counts=(100_000, 1_000_000, 10_000_000),
    failover_count=8,
    lite_counts=(10, 10_000, 100_000, 1_000_000),
)
BY_NAME = {sizes.name: sizes for sizes in (TINY, SAMPLE, FULL)}
