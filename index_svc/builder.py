"""IndexBuilder: a `FollowingBuilder` of index files; after a crash the newest is cut back (`recovery.py`).

Entries are written at once, slots and header with each checkpoint. A record's keys are passed over one by one, so that
a record may be applied again after half of its keys went into a full file.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from index_svc.index_file_set import DAMAGED, IndexFileSet
from index_svc.recovery import FirstIndexed, TagsWanted, checkpoint_state, resume, save_rebuild_mark
from services.following.follower_progress import FollowerProgress
from services.following.following_builder import Checkpointer, FollowingBuilder
from store.derive.dispatch_columns import DispatchColumns
from store.files.json_state import write_json_state
from store.readers.tag_entries import TagEntries

BEHIND_LOG = "its entries point behind the end of the log"
OTHER_LOG = "the log has another record than the one that was applied last"


class IndexBuilder(FollowingBuilder):
    """Keeps the index files of one root equal to its log.

    Args:
        files: the index files, nothing loaded yet.
        checkpoint: our own checkpoint file.
        progress: where to say how far it is; None for an own one.
        on_flushed: told the offset (bytes) and the store time (ms, None for none) up to which all is on the disk.
        checkpointer: see FollowingBuilder.
        clock: seconds, rising.
    """

    def __init__(
        self,
        files: IndexFileSet,
        checkpoint: Path,
        *,
        progress: FollowerProgress | None = None,
        on_flushed: Callable[[int, int | None], None] | None = None,
        checkpointer: Checkpointer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(progress=progress, on_flushed=on_flushed, checkpointer=checkpointer, clock=clock)
        self._files = files
        self._checkpoint = checkpoint
        self._keep = OTHER_LOG

    def recover(
        self,
        *,
        is_clean_store: bool,
        log_first_offset: int,
        log_end_offset: int,
        first_indexed: FirstIndexed,
        find_tags: Callable[[], TagEntries] = lambda: TagEntries(None, None),
        tags: TagsWanted = "auto",
    ) -> None:
        """Finds out where to go on and cuts the newest file back to there; the log's range is in bytes. See `resume`."""
        self._files.empty_rebuild_folder()
        self._files.keeper.see_log(log_first_offset, log_end_offset)
        found = resume(
            self._files.fs,
            self._checkpoint,
            self._files,
            is_clean_store=is_clean_store,
            first_indexed=first_indexed,
            find_tags=find_tags,
            tags=tags,
        )
        if found.next_offset > log_end_offset or (
            self._files.applied_offset >= log_end_offset and self._files.live is not None
        ):
            self._keep = BEHIND_LOG
            self.progress.see_log(log_first_offset, log_end_offset)
            self.rebuild()
            self.progress.see_log(log_first_offset, log_end_offset)
            return
        self._last_record = found.last_record
        self._is_marked = found.is_marked
        self.progress.retreat(found.next_offset, found.store_time_millis)
        self.progress.see_log(log_first_offset, log_end_offset)
        self.progress.advance(found.next_offset)

    def rebuild_live(self) -> bool:
        """Remove the newest file, which is damaged, and follow the log from the end of the file before it; False."""
        self._checkpointer.settle()
        full = self._files.reopen_last()
        if full is None:
            return self.rebuild_all()
        self._save_mark()
        self._last_record = None
        self._saved_offset = -1
        # Before the file goes: no answer says that the index holds what it loses.
        self.progress.retreat(full.state.header.end_commit_log_offset, full.state.header.end_time_millis)
        self._files.drop_live(full)
        return False

    def rebuild_all(self) -> bool:
        """Remove all files, and follow the log from its first record; False."""
        self._keep = DAMAGED
        self.rebuild()
        return False

    def _put(self, columns: DispatchColumns) -> None:
        self._files.apply(columns)

    def _start_over(self) -> None:
        if self._files.tags_from is not None:
            self._files.tags_from = 0
        self._save_mark()
        self._files.clear(self._keep)
        self._keep = OTHER_LOG

    def _save_mark(self) -> None:
        """Files are about to be removed: no checkpoint fits them, and those that are not explained are kept."""
        self._files.keeper.see_log(self.progress.log_first_offset, self.progress.log_end_offset)
        files = self._files
        save_rebuild_mark(files.fs, self._checkpoint, files.layout, files.keeper.own_counts, tags_from=files.tags_from)

    def _prepare_checkpoint(self, *, is_clean: bool) -> Callable[[], None]:
        state = checkpoint_state(
            self._files,
            self.progress.next_offset,
            self.progress.store_time_millis,
            last_record=self._last_record,
            is_clean=is_clean,
        )
        flush = self._files.prepare_flush()

        def write() -> None:
            flush()
            write_json_state(self._files.fs, self._checkpoint, state)

        return write

    def _hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        return self._files.hide_expired(log_first_offset, file_count_max)

    def _remove_hidden(self, paths: Sequence[Path]) -> None:
        self._files.remove(paths)

    def _close(self) -> None:
        self._files.close()
