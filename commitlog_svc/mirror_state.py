"""MirrorState: how a store that mirrors another one is doing; for GetStatus and the metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class MirrorState:
    """How a mirror is doing; one thread writes it, others read.

    Attributes:
        source: what is mirrored, as the setting says it.
        state: `connecting`, `copying` or `stopped`.
        problem: why it is connecting or stopped, and what to do; empty when nothing is wrong.
        is_at_end: the log had everything of the source when that was last heard of.
        broker_problem: why the broker could not be asked for topics and groups; empty when nothing is wrong.
        source_end_offset: the end of the source's log when it was last asked (bytes); None: it is not asked.
    """

    source: str
    state: str = "connecting"
    problem: str = ""
    is_at_end: bool = False
    broker_problem: str = ""
    source_end_offset: int | None = None

    def lag_bytes(self, end_offset: int) -> int | None:
        """How far a log that ends at an offset is behind its source (bytes); None: that is not known."""
        if self.source_end_offset is not None:
            return max(0, self.source_end_offset - end_offset)
        return 0 if self.is_at_end else None

    def lag_millis(self, last_store_time_millis: int, now_millis: int) -> int:
        """The age of the newest record (milliseconds); 0 while the log has everything, and when nothing is copied yet."""
        return 0 if self.is_at_end or not last_store_time_millis else max(0, now_millis - last_store_time_millis)
