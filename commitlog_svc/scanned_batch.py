"""What the appender asks of a batch whose frames a kernel places; `scanned_request.py` has it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from commitlog_svc.appender import PreparedFrame
    from commitlog_svc.queue_offsets import QueueOffsets
    from commitlog_svc.recent_keys import RecentKeys


class ScannedBatch(Protocol):
    """Frames side by side in one buffer, checked, without their place."""

    size_bytes: int
    deduplicate: bool

    @property
    def view(self) -> memoryview:
        """The frames."""

    @property
    def last_record_size_bytes(self) -> int:
        """Size of the last frame."""

    def place(self, commit_log_offset: int, store_time_millis: int, queue_offsets: "QueueOffsets") -> bool:
        """Gives the frames their place; False, and nothing is changed, when the kernel cannot."""

    def take_back(self, queue_offsets: "QueueOffsets") -> None:
        """Undoes what `place` did to the queue offsets."""

    def note(self, recent: "RecentKeys") -> bool:
        """Enters the unique keys; False when they must be entered one by one."""

    def may_be_known(self, recent: "RecentKeys") -> bool:
        """Whether a unique key may be there already, or is twice in the batch."""

    def prepared_frames(self) -> "list[PreparedFrame]":
        """The frames one by one."""
