"""The builders of the services, opened on a root for `reput pipeline rebuild --continuous`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import saved_file_size_bytes
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from index_svc.recovery import saved_layout
from pipeline.rebuild.out import StoreLayout
from services.following.following_builder import FollowingBuilder
from store.files.file_system import RealFileSystem
from store.format.paths import own_state_dir


class OnlineBuilders:
    """See `pipeline.rebuild.continuous.OpenBuilders`.

    Args:
        layout: of new files.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout

    def __call__(
        self, root: Path, clock: Callable[[], float], log_first_offset: int, log_end_offset: int
    ) -> Sequence[FollowingBuilder]:
        """See OpenBuilders."""
        fs = RealFileSystem()
        queue_checkpoint = Path(own_state_dir(str(root), "consumequeue")) / "checkpoint.json"
        size = saved_file_size_bytes(fs, queue_checkpoint) or self._layout.queue_file_size_bytes
        table = ConsumeQueueTable(root, fs, size)
        table.load()
        queues = ConsumeQueueBuilder(table, queue_checkpoint, clock=clock)
        queues.recover(is_clean_store=True, log_first_offset=log_first_offset, log_end_offset=log_end_offset)

        index_checkpoint = Path(own_state_dir(str(root), "index")) / "checkpoint.json"
        files = IndexFileSet(
            root, fs, saved_layout(fs, index_checkpoint) or self._layout.index, lambda: time.time_ns() // 1_000_000
        )
        index = IndexBuilder(files, index_checkpoint, clock=clock)
        # All files here were made by these builders: those that do not fit the checkpoint are built again.
        index.recover(
            is_clean_store=False,
            log_first_offset=log_first_offset,
            log_end_offset=log_end_offset,
            first_indexed=lambda offset: None,
        )
        return queues, index
