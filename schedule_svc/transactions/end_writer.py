"""EndWriter: appends what becomes of half messages, with the op record that ends them, one atomic request for many.

Theory of operation: a request takes everything that was submitted while the append before was under way. It has the copies of
all of it, and behind them the op record that names all their half messages. So a copy and the end of its half message
are in the log together, callers that come together share the write, and op records are batched as RocketMQ's are.

A request that the log refuses as it is was not written: each of its parts is then tried alone, and the bad one fails. An append
that fails otherwise breaks the writer (`services/following/batch_writer.py`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult
from schedule_svc.transactions.half_messages import op_records
from services.following.batch_writer import BatchWriter
from services.following.state_topic import state_writer
from store.errors import DiskFullError, ServiceUnavailableError, StoreError, StoreReadOnlyError

# What is appended together: below the limits of AppendInternal (1,024 records, 4 MiB).
REQUEST_COUNT_MAX = 256
REQUEST_BYTES_MAX = 3 << 20
# The log refuses these before it writes.
REFUSALS = (*state_writer.REFUSALS, DiskFullError, StoreReadOnlyError)

Append = Callable[[Sequence[InternalRecord]], Sequence[AppendResult]]


@dataclass(slots=True)
class _End:
    """The end of one half message, and the copy that is made of it."""

    queue_offset: int
    copy: InternalRecord | None
    done: "Future[AppendResult | None]" = field(default_factory=Future)

    def size_bytes(self) -> int:
        return 0 if self.copy is None else self.copy.ByteSize()


class EndWriter(BatchWriter[_End]):
    """See the top of this file; thread-safe.

    Args:
        append: appends records atomically.
        on_broken: called once, by the thread that wrote, when it broke.

    Attributes:
        error: why it is broken; None while it works.
    """

    def __init__(self, append: Append, on_broken: Callable[[StoreError], None] = lambda _error: None) -> None:
        self._append = append
        super().__init__("schedule-transactions", "a verdict", on_broken)

    def submit_all(
        self, ended: "Sequence[tuple[int, InternalRecord | None]]", *, writes_here: bool = False
    ) -> "Sequence[Future[AppendResult | None]]":
        """Have half messages ended, in one request if it has room.

        Args:
            ended: the queue offset of each half message, and what is appended with its end.
            writes_here: this thread will wait for all of it, so it may write it itself.

        Returns:
            For each: done when both are in the log, with the receipt of the copy. It fails with the log's refusal, or with
            ServiceUnavailableError when the writer is broken.
        """
        ends = [_End(queue_offset, copy) for queue_offset, copy in ended]
        self._put(*ends, writes_here=writes_here)
        return [end.done for end in ends]

    def _take(self, submitted: "deque[_End]") -> list[_End]:
        taken = [submitted.popleft()]
        size_bytes = taken[0].size_bytes()
        while submitted and len(taken) < REQUEST_COUNT_MAX:
            size_bytes += submitted[0].size_bytes()
            if size_bytes > REQUEST_BYTES_MAX:
                break
            taken.append(submitted.popleft())
        return taken

    def _write(self, taken: Sequence[_End]) -> None:
        copies = [end.copy for end in taken if end.copy is not None]
        try:
            results = iter(self._append([*copies, *op_records([end.queue_offset for end in taken])]))
        except REFUSALS as error:
            if len(taken) == 1:
                taken[0].done.set_exception(error)
                return
            for end in taken:
                self._write([end])
            return
        for end in taken:
            end.done.set_result(next(results) if end.copy is not None else None)

    def _broken(self, error: StoreError | None) -> ServiceUnavailableError:
        why = "it is stopping" if error is None else f"the log did not answer an append: {error.message}"
        return ServiceUnavailableError(f"the schedule service cannot end transactions now: {why}; try again")
