"""ConsumeQueueBuilder: a `FollowingBuilder` of queues; after a crash they are cut back or replayed (`recovery.py`)."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumequeue_svc.consume_queue import UNCONFIRMED, ConsumeQueue
from consumequeue_svc.consume_queue_table import WAITING_UNIT_COUNT_MAX, ConsumeQueueTable
from consumequeue_svc.light_catch_up import LightCatchUp
from consumequeue_svc.light_queues import UP_TO_DATE, LightQueues
from consumequeue_svc.recovery import Resume, checkpoint_state, replay_state, resume, save_replay_mark
from services.following.follower_progress import FollowerProgress
from services.following.following_builder import Checkpointer, FollowingBuilder
from store.derive.queue_placement import LightUnit
from store.derive.read_log import ReadLog
from store.errors import StoreCorruptedError
from store.files.json_state import pause_seconds, write_json_state

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

_log = logging.getLogger("reput.consumequeue")


class ConsumeQueueBuilder(FollowingBuilder):
    """Keeps the queues of one root equal to its log.

    Args:
        table: the queues, loaded.
        checkpoint: our own checkpoint file.
        progress: where to say how far it is; None for an own one.
        on_flushed: told the offset (bytes) and the store time (ms, None for none) up to which all is on the disk.
        checkpointer: see FollowingBuilder.
        read_log: see LightCatchUp; None: what light queues lack stays missing.
        clock: seconds, rising.
    """

    def __init__(
        self,
        table: ConsumeQueueTable,
        checkpoint: Path,
        *,
        read_log: ReadLog | None = None,
        progress: FollowerProgress | None = None,
        on_flushed: Callable[[int, int | None], None] | None = None,
        checkpointer: Checkpointer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(progress=progress, on_flushed=on_flushed, checkpointer=checkpointer, clock=clock)
        self._table = table
        self._checkpoint = checkpoint
        self._read_log = read_log
        self._light_catch_up: LightCatchUp | None = None
        self._is_replay = False
        self._hidden: list[tuple[ConsumeQueue | LightQueues, list[Path]]] = []
        table.unflushed.settle = self._checkpointer.settle

    def recover(self, *, is_clean_store: bool, log_first_offset: int, log_end_offset: int) -> None:
        """Finds out where to go on and cuts the queues back to there; the log's range is in bytes."""
        found = resume(
            self._table.fs,
            self._checkpoint,
            self._table,
            is_clean_store=is_clean_store,
            log_first_offset=log_first_offset,
            log_size_bytes=log_end_offset - log_first_offset,
        )
        self._table.is_ours = found.is_ours
        self._table.log_first_offset = log_first_offset
        if found.next_offset > log_end_offset:
            self._table.note_own()
            self._table.cut(log_end_offset, why_aside=UNCONFIRMED)  # the log was cut since
            self._table.forget_replay()
            found = Resume(-1, 0, is_replay=True)
        self._is_marked = found.is_marked
        if found.next_offset < 0:
            self._table.light.clear()
        elif not found.has_light:  # what is applied was not looked through for light queues
            self._table.light.begin_at(log_first_offset if found.next_offset > log_first_offset else UP_TO_DATE)
        self._table.light.aim_offset = found.next_offset
        self._table.batches.restore(found.batch_queues)
        self._table.hide(found.hidden)  # not before the checkpoint is known to fit the queues and the log
        self._table.times.runs = () if found.next_offset < 0 else found.runs
        self._table.times.cut(log_end_offset)
        self.progress.retreat(found.next_offset, found.store_time_millis)
        self.progress.see_log(log_first_offset, log_end_offset)
        self._last_record = found.last_record
        self._is_replay = found.is_replay
        if self._is_replay:
            self._table.begin_replay()
            self._table.drop_cache()
            return
        self._table.cut(log_end_offset, next_offset=found.next_offset, why_aside=UNCONFIRMED)
        self._table.tell_left_alone()
        self.progress.advance(found.next_offset)

    def replay_all(self) -> bool:
        """End this life, so that the next one compares all queues with the log.

        Raises:
            StoreCorruptedError: always.
        """
        self._checkpointer.settle()
        self._table.note_own()
        self._table.forget_replay()
        save_replay_mark(self._table.fs, self._checkpoint, self._table)
        raise StoreCorruptedError(
            "queue files are damaged: all of them are compared with the log and built again",
            file="consumequeue",
            offset=0,
        )

    def begin(self) -> None:
        """See FollowingBuilder."""
        if self._is_replay and not self._is_marked:
            save_replay_mark(self._table.fs, self._checkpoint, self._table)
            self._is_marked = True
        super().begin()
        light = self._table.light
        if light.next_offset != UP_TO_DATE and self._read_log is not None:
            self._light_catch_up = LightCatchUp(
                light, self.progress, self._read_log, self._take_light, self.hand_over, self._clock
            )
            self._light_catch_up.start()

    @property
    def is_replay(self) -> bool:
        """Whether the whole log is applied again over the files."""
        return self._is_replay

    @property
    def _may_expire(self) -> bool:
        return not self._is_replay

    def _put(self, columns: "DispatchColumns") -> None:
        self._table.times.note(columns)
        if self._table.light.next_offset == UP_TO_DATE:
            self._apply_light(columns.light_units)
        self._table.apply(columns, is_replay=self._is_replay)
        if self._table.unflushed.waiting_count > WAITING_UNIT_COUNT_MAX:
            self._checkpointer.settle()
            self._save_at = self._clock()

    def _apply_light(self, units: Iterable[LightUnit]) -> None:
        try:
            self._table.light.apply(units)
        except StoreCorruptedError as error:
            _log.warning("%s", error.message)
            self.replay_all()

    def _take_light(self, units: Sequence[LightUnit], next_offset: int) -> None:
        """See `light_catch_up.Take`; nothing is taken when another log is followed since, for nothing of it is applied."""
        light, applied = self._table.light, self.progress.next_offset
        self._apply_light(unit for unit in units if unit.commit_log_offset < applied)
        light.next_offset, light.aim_offset = (next_offset if next_offset < applied else UP_TO_DATE), applied
        self._saved_offset = -1  # the next checkpoint has news, even when nothing else came

    def _checkpoint_pause_seconds(self, seconds: float) -> float:
        # A checkpoint has a row for each queue, and may have written to each of them.
        return pause_seconds(self._table.counts()[0], seconds)

    def _reach_end(self, log_first_offset: int) -> bool:
        if not self._is_replay:
            return False
        self._checkpointer.settle()  # it may be flushing what is now cut off
        self._table.end_replay(log_first_offset)
        self._is_replay = False
        return True

    def _start_over(self) -> None:
        self._table.note_own()
        self._table.forget_replay()
        self._table.forget_batches()
        self._table.light.clear()
        save_replay_mark(self._table.fs, self._checkpoint, self._table)
        self._table.times.start_over()
        self._is_replay = True  # before the files change their generation: no checked file is made of them meanwhile
        self._table.begin_replay()

    def _prepare_checkpoint(self, *, is_clean: bool) -> Callable[[], None]:
        next_offset, store_time_millis = self.progress.next_offset, self.progress.store_time_millis
        if self._is_replay:
            replayed = replay_state(self._table, next_offset, store_time_millis, self._last_record)

            def state() -> dict[str, Any]:
                return replayed

        else:
            state = checkpoint_state(
                self._table, next_offset, store_time_millis, last_record=self._last_record, is_clean=is_clean
            )
        time_runs = self._table.times.state()
        flush = self._table.prepare_flush()

        def write() -> None:
            flush()
            write_json_state(self._table.fs, self._checkpoint, state() | {"time_runs": time_runs})

        return write

    def _hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        self._table.times.forget_before(log_first_offset)
        self._hidden = self._table.hide_expired(log_first_offset, file_count_max)
        return [path for _, paths in self._hidden for path in paths]

    def _remove_hidden(self, paths: Sequence[Path]) -> None:
        for queue, hidden in self._hidden:
            queue.remove_hidden(hidden)
        self._hidden = []

    def _close(self) -> None:
        if self._light_catch_up is not None:
            self._light_catch_up.close()
        self._table.close()
