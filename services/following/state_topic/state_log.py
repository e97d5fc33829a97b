"""StateLog: the state topic of a service as its commitlog and consumequeue services have it, and the begin of a life.

A life begins with an epoch, larger than that of each life before. The commit log is told, and refuses what an earlier life may
still append. Then the state is read, up to the end of the log.
"""

import time
from collections.abc import Sequence
from typing import Generic

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_ASYNC, AppendResult, FlushMode
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import ConsumeQueueClient
from services.convert import timestamp_to_millis
from services.following.state_topic.state_loader import LoadedState, load_state
from services.following.state_topic.state_records import STATE_QUEUE, State, StateTopic
from services.following.state_topic.state_writer import REQUEST_BYTES_MAX
from services.reading.queue_reader import CALL_SECONDS
from store.errors import (
    FollowerFencedError,
    QueueNotFoundError,
    ServiceUnavailableError,
    StoreError,
    TopicNotFoundError,
)
from store.format.derived.queue_unit import QueueUnit

# The queues must hold the life's first record before the state is read.
QUEUES_SECONDS_MAX = 60.0
QUEUES_WAIT_MILLIS = 1_000
# No record ends a wait on an empty log: look often, until its queues are open.
EMPTY_WAIT_MILLIS = 50
# A request is this part of a log file at most. A moved record may be nearly twice as large as its source, when that is small.
FILE_PARTS = 3


class StateLog(Generic[State]):
    """See the top of this file.

    Args:
        topic: where the state is.
        commitlog: the client for records and appends.
        consumequeue: the client for queues.
    """

    def __init__(self, topic: StateTopic[State], commitlog: CommitLogClient, consumequeue: ConsumeQueueClient) -> None:
        self._topic = topic
        self._commitlog = commitlog
        self._consumequeue = consumequeue

    def begin_life(self, end_offset: int) -> int:
        """The epoch of this life, which the commit log knows from now on.

        It is larger than that of the newest record. A life may have written none, so the time counts, too.

        Args:
            end_offset: end of the log as last seen (bytes).
        """
        epoch = max(self._newest_epoch(end_offset) + 1, time.time_ns() // 1_000_000)
        try:
            self.append(epoch, (), FLUSH_MODE_ASYNC)
        except FollowerFencedError as error:
            # The clock was set back since the life before.
            epoch = int(error.metadata["currentEpoch"]) + 1
            self.append(epoch, (), FLUSH_MODE_ASYNC)
        return epoch

    def append(self, epoch: int, records: Sequence[InternalRecord], flush: FlushMode) -> Sequence[AppendResult]:
        """Append records atomically, as the life with this epoch. Errors as CommitLogClient.append_internal."""
        return self._commitlog.append_internal(
            records, flush=flush, follower=self._topic.follower, follower_epoch=epoch, timeout_seconds=CALL_SECONDS
        )

    def end_offset(self) -> int:
        """End of the log (bytes)."""
        return self._commitlog.get_status(timeout_seconds=CALL_SECONDS).log_end_offset

    def request_bytes_max(self) -> int:
        """What is appended together, in bytes of records: such a request fits into one log file, with what the log adds."""
        file_size_bytes = self._commitlog.get_status(timeout_seconds=CALL_SECONDS).file_size_bytes
        return min(REQUEST_BYTES_MAX, file_size_bytes // FILE_PARTS) if file_size_bytes else REQUEST_BYTES_MAX

    def newest_store_millis(self) -> int:
        """When the newest record was stored (ms since 1970); 0 for an empty log."""
        status = self._commitlog.get_status(timeout_seconds=CALL_SECONDS)
        return (
            timestamp_to_millis(status.last_store_time, "last_store_time") if status.HasField("last_store_time") else 0
        )

    def load(self, past_offset: int) -> LoadedState[State]:
        """The state as the log has it before an offset (bytes)."""
        begin, end = self._state_range(past_offset)
        return load_state(self._topic, begin, end, self._read_units, self._read_bodies)

    def _newest_epoch(self, end_offset: int) -> int:
        """The epoch of the newest state record before an offset (bytes); 0 when there is none."""
        begin, end = self._state_range(end_offset)
        if begin == end:
            return 0
        units = self._read_units(end - 1, 1)
        if not units:
            raise ServiceUnavailableError(
                f"topic {self._topic.name} has no unit at {end - 1}: its queue is being built again"
            )
        (body,) = self._read_bodies(units)
        return self._topic.record_of(units[0].commit_log_offset, body).epoch

    def _state_range(self, past_offset: int) -> tuple[int, int]:
        """The range of the state topic's queue, once it has everything before an offset of the log (bytes)."""
        self.wait_for_queues(past_offset)
        try:
            answer = self._consumequeue.get_units(self._topic.name, STATE_QUEUE, 0, 1, timeout_seconds=CALL_SECONDS)
        except (TopicNotFoundError, QueueNotFoundError):
            return 0, 0
        return answer.min_offset, answer.max_offset

    def wait_for_queues(self, past_offset: int) -> None:
        """Wait until the queues have everything before an offset of the log (bytes)."""
        deadline = time.monotonic() + QUEUES_SECONDS_MAX
        wait_millis = 0
        while time.monotonic() < deadline:
            status = self._consumequeue.get_status(
                past_offset=max(past_offset - 1, 0), wait_millis=wait_millis, timeout_seconds=CALL_SECONDS
            )
            if status.next_offset >= past_offset and not status.catching_up:
                return
            wait_millis = QUEUES_WAIT_MILLIS if past_offset > 0 else EMPTY_WAIT_MILLIS
        raise ServiceUnavailableError(
            f"the queues are still being built: the state of the {self._topic.follower} service cannot be read yet"
        )

    def _read_units(self, queue_offset: int, count: int) -> Sequence[QueueUnit]:
        answer = self._consumequeue.get_units(
            self._topic.name, STATE_QUEUE, queue_offset, count, timeout_seconds=CALL_SECONDS
        )
        return [QueueUnit(unit.commit_log_offset, unit.record_size_bytes, unit.tags_code) for unit in answer.units]

    def _read_bodies(self, units: Sequence[QueueUnit]) -> Sequence[bytes]:
        offsets = [unit.commit_log_offset for unit in units]
        bodies: list[bytes] = []
        while len(bodies) < len(offsets):
            for outcome in self._commitlog.get_many(offsets[len(bodies) :], timeout_seconds=CALL_SECONDS):
                if isinstance(outcome, StoreError):
                    raise outcome
                if outcome.body_omitted:
                    break
                bodies.append(outcome.body)
        return bodies
