"""Recalls: takes back messages that wait for a time.

A recall is one request: a record of the timer topic with TIMER_DEL_UNIQKEY, so that a real broker which takes over drops the
message, too, and the change that says that the message is done.
"""

from collections.abc import Callable, Sequence

from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.batches import BatchReader, log_skipped
from schedule_svc.life import Life
from schedule_svc.timers.runs import Entries
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import facts_of, key_of, recall_of
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_writer import wait_for
from store.errors import ScheduledMessageNotFoundError, ServiceUnavailableError, StoreError
from store.format.delivery.timer_due import PRECISION_MILLIS
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import REAL_TOPIC, UNIQ_KEY

# A message that was just sent comes over Reput in a fraction of this.
KNOWN_SECONDS_MAX = 3.0


class Recalls:
    """See the top of this file.

    Args:
        life: what the kinds share.
        book: what is known of the timers.
        batches: reads messages.
        progress: of the follower.
        end_offset: asks for the end of the log (bytes).
    """

    def __init__(
        self,
        life: Life,
        book: TimerBook,
        batches: BatchReader,
        progress: FollowerProgress,
        end_offset: Callable[[], int],
    ) -> None:
        self._life = life
        self._book = book
        self._batches = batches
        self._progress = progress
        self._end_offset = end_offset

    def recall(self, topic: str, unique_key: str, delivery_millis: int) -> StoredMessage:
        """Take a message back; it is in the log, durably, when this returns.

        Args:
            topic: of the message.
            unique_key: of the message.
            delivery_millis: when it is due, exact to a second (ms since 1970).

        Returns:
            The message as it waited.

        Raises:
            ScheduledMessageNotFoundError: none waits under these names.
            StoreReadOnlyError: nothing can be changed.
            ServiceUnavailableError: not everything that waits is known yet.
        """
        self._life.refuse_if_over()
        message = self._try(topic, unique_key, delivery_millis)
        if message is None:
            # It may have been sent, or stored again, a moment ago.
            self._wait_until_known()
            message = self._try(topic, unique_key, delivery_millis)
        if message is None:
            raise ScheduledMessageNotFoundError(
                f"no message with unique key {unique_key[:64]!r} of topic {topic[:64]!r} waits for its time: it was delivered "
                "or recalled, or never sent",
                topic=topic[:64],
                uniqueKey=unique_key[:64],
            )
        return message

    def _try(self, topic: str, unique_key: str, delivery_millis: int) -> StoredMessage | None:
        life, book = self._life, self._book
        key = key_of(topic, unique_key)
        with life.lock:
            found = book.waiting(delivery_millis - PRECISION_MILLIS - 1, delivery_millis + PRECISION_MILLIS, key)
        message = self._read(found, topic, unique_key, delivery_millis)
        if message is None:
            return None
        facts = facts_of(message)
        assert facts is not None
        with life.lock:
            life.refuse_if_over()
            if not book.end(facts.due_millis, message.queue_offset):
                return None

            def on_written(refused: Sequence[tuple[int, StoreError]]) -> None:
                for _, error in refused:
                    # Our state says it all the same, and what is handed to a broker has only what waits.
                    log_skipped("recall", message.queue_offset, message.commit_log_offset, topic, error)

            change = book.change([(message.queue_offset, facts.due_millis)])
            written = life.change([change], [recall_of(message)], on_written=on_written)
            book.recalled_count += 1
        wait_for(written)
        return message

    def _read(self, found: Entries, topic: str, unique_key: str, delivery_millis: int) -> StoredMessage | None:
        """The message of these names that is due in that second, among some that have their hash."""
        if not len(found):
            return None
        units = [
            QueueUnit(offset, size_bytes, 0)
            for offset, size_bytes in zip(found.commit_log_offsets.tolist(), found.sizes_bytes.tolist(), strict=True)
        ]
        for outcome in self._batches.read_headers(units):
            if isinstance(outcome, StoreError):
                raise outcome
            names, facts = (outcome.properties.get(REAL_TOPIC), outcome.properties.get(UNIQ_KEY)), facts_of(outcome)
            # The same key may wait in the second before or behind, as another message.
            if names == (topic, unique_key) and facts is not None and facts.is_in_slot(delivery_millis):
                return outcome
        return None

    def _wait_until_known(self) -> None:
        end_offset = self._end_offset()
        is_known = self._progress.wait_past(end_offset - 1, KNOWN_SECONDS_MAX) and self._book.wait_until_known(
            KNOWN_SECONDS_MAX
        )
        if not is_known:
            raise ServiceUnavailableError("not all messages that wait are known yet: try again")
