"""ConsumerPart and ConsumerFollower: the life of the consumer service as a follower of the log.

Theory of operation: a life begins with an epoch, larger than that of each life before. The commit log is told, and refuses what
an earlier life may still append. The state of all groups is then read from the state topic, up to the end of the log. From
there on the follower hears of new messages by Reput, and the state is what this process itself writes. Nothing is written
before something changes. The full state is written again after FULL_CHANGE_COUNT changes, before it is FULL_LOG_BYTES behind
the end of the log, and at a clean stop. Retention waits until it is: the follower reports the begin of the newest full state,
or the first change, as what it has applied.

Nothing of this is on the disk of the service: a life can begin anywhere.

A replica that does not lead has lives that only read. Such a life reports the begin of the state that it has read, so that
retention keeps it, and ends when the log has a newer one; a life of a leader begins when the log leads.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import structlog

from consumer_svc.arrivals import Arrivals
from consumer_svc.broker_groups import LOOK_SECONDS, BrokerGroups
from consumer_svc.clients import Clients
from consumer_svc.courtesy_files import CourtesyFiles
from consumer_svc.delivering.deletions import Deletions
from consumer_svc.delivering.delivery import Answering, Delivery
from consumer_svc.delivering.expirer import Expirer
from consumer_svc.delivering.life import Life, Rules
from consumer_svc.delivering.receipt_handle import ReceiptHandles
from consumer_svc.settings import ConsumerSettings
from consumer_svc.state_topic import FULL_CHANGE_COUNT, STATE_TOPIC, TOPIC, LoadedState, StateWriter
from consumer_svc.topic_view import TopicView
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import ConsumeQueueClient
from services.following.follower_process import LifeOverError, LogRange
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_log import StateLog
from services.following.store_clock import StoreClock
from services.reading.queue_reader import CALL_SECONDS, QueueReader
from services.reading.recent_units import RecentUnits
from store.errors import (
    ServiceUnavailableError,
)

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

REPORT_SECONDS = 1.0
# Heartbeats of the log come once a second.
TOPICS_SECONDS = 0.5
COURTESY_SECONDS = 5.0  # RocketMQ's flushConsumerOffsetInterval
# The full state is written again before so much of the log is behind it: retention waits for it.
FULL_LOG_BYTES = 256 << 20
# A life that only reads begins anew when the log must have a newer full state.
READ_AGAIN_LOG_BYTES = 2 * FULL_LOG_BYTES
# Changes that a start reads quickly.
STOP_CHANGE_COUNT = 1_000
# A broker's log does not say what its groups have consumed.
BROKER_NOT_ASKED = (
    "this store mirrors a broker that is not asked for its consumer groups: start the mirror with --mirror-broker "
    "HOST:PORT (REPUT_MIRROR_BROKER)"
)

_log = structlog.get_logger("reput.consumer")


class ConsumerFollower:
    """A Follower (services/following/follower_process.py) that keeps a life going.

    Args:
        life: what delivery shares.
        writer: of the state; None on a store that is only read.
        progress: of the follower.
        recent: gets the units of new messages.
        begin_offset: where it begins to follow (bytes).
        loaded: where the log has the state, and how many changes that is.
        courtesy: RocketMQ's files; None on a store that is only read.
        broker: the groups of a broker that runs beside this service; None when none does.
        on_flushed: told how far the log is not needed any more.
        clock: seconds, rising.
    """

    def __init__(
        self,
        life: Life,
        writer: StateWriter | None,
        progress: FollowerProgress,
        recent: RecentUnits,
        begin_offset: int,
        loaded: LoadedState,
        courtesy: CourtesyFiles | None,
        broker: BrokerGroups | None,
        on_flushed: Callable[[int, int | None], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._life = life
        self._writer = writer
        self._progress = progress
        self._recent = recent
        self._needed_offset = loaded.first_offset if loaded.first_offset >= 0 else begin_offset
        self._courtesy = courtesy
        self._broker = broker
        self._broker_at = clock() + LOOK_SECONDS
        self._on_flushed = on_flushed
        self._clock = clock
        self._expirer = Expirer(life)
        self._deletions = Deletions(life)
        self._full: Future[int] | None = None
        self._report_at = self._topics_at = clock()
        self._courtesy_at = clock() + COURTESY_SECONDS
        progress.retreat(begin_offset, 0)

    def begin(self) -> None:
        """See Follower."""
        if self._writer is not None:
            self._expirer.start()

    def start_offset(self) -> int:
        """See Follower."""
        return self._progress.next_offset

    def apply(
        self, records: "DispatchColumns | None", next_offset: int, log_first_offset: int, log_end_offset: int
    ) -> bool:
        """See Follower: hear of new messages, and do what comes with time."""
        if self._writer is not None and self._writer.error is not None:
            raise self._writer.error
        self._progress.see_log(log_first_offset, log_end_offset)
        store_time_millis = None
        if records is not None and len(records):
            topics = self._recent.add(records)
            self._life.arrivals.note_topics(topic for topic in topics if topic != STATE_TOPIC)
            store_time_millis = int(records.store_times_millis[-1])
        self._progress.advance(max(next_offset, self._progress.next_offset), store_time_millis)
        if self._writer is not None:
            self._keep_full_state()
        elif self._on_flushed is not None and self._progress.next_offset - self._needed_offset > READ_AGAIN_LOG_BYTES:
            raise LifeOverError
        self._report()
        self._look_at_topics()
        if self._broker is not None and self._clock() >= self._broker_at:
            self._broker_at = self._clock() + LOOK_SECONDS
            self._broker.read_again(self._life, self._progress.store_time_millis)
        return True

    def find_place(self, log_first_offset: int, log_end_offset: int) -> None:
        """See Follower: another log, or one that was cut; the next life reads it."""
        raise ServiceUnavailableError(
            f"the log has no record at {self._progress.next_offset}: it begins at {log_first_offset} and ends at "
            f"{log_end_offset}; the state of the groups is read again"
        )

    def pass_last_record(self) -> bool:
        """See Follower: only records behind those that were applied are asked for."""
        return False

    def stop(self) -> None:
        """Write the full state if a start would have much to read, and the courtesy files; end the life."""
        self._expirer.close()
        if self._writer is not None and self._writer.error is None:
            if self._writer.changes_behind_full >= STOP_CHANGE_COUNT:
                self._life.write_full()
            self._writer.close()
            if self._courtesy is not None and self._writer.error is None:
                self._courtesy.write(self._life, is_last=True)

    def abandon(self) -> None:
        """End the life; the log has its state."""
        self._expirer.close()
        if self._writer is not None:
            self._writer.close()

    def _keep_full_state(self) -> None:
        assert self._writer is not None
        if self._full is not None and self._full.done():
            self._needed_offset = self._full.result()
            self._full = None
        if self._full is None:
            is_far = self._progress.next_offset - self._needed_offset > FULL_LOG_BYTES
            if not self._writer.changes_behind_full:
                self._needed_offset = max(self._needed_offset, self._progress.next_offset if self._is_empty() else 0)
            if self._writer.changes_behind_full >= FULL_CHANGE_COUNT or (is_far and not self._is_empty()):
                self._full = self._life.write_full()
        now = self._clock()
        if self._courtesy is not None and now >= self._courtesy_at:
            self._courtesy_at = now + COURTESY_SECONDS
            self._courtesy.write(self._life)

    def _report(self) -> None:
        now = self._clock()
        if now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            if self._on_flushed is not None:
                self._on_flushed(self._needed_offset, None)

    def _look_at_topics(self) -> None:
        """Polls that wait look at nothing, so nothing else would tell them that a topic may not be read any more."""
        now = self._clock()
        if now >= self._topics_at:
            self._topics_at = now + TOPICS_SECONDS
            self._life.topics.look()
            if self._writer is not None:
                self._deletions.see()

    def _is_empty(self) -> bool:
        """Whether there is no state that the log must keep."""
        return not self._life.states.groups


class ConsumerPart:
    """A FollowerPart: opens lives, and the servicer answers from them.

    Args:
        settings: of the service.
        secret: gives what signs receipt handles; asked when the lock is held, because it may be made then.
        servicer: answers from the lives.
        progress: of the follower.
        commitlog: the client for records and appends.
        consumequeue: the client for queues.
        clients: the consumers that live.
        arrivals: hears of messages that may be delivered.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        secret: Callable[[], bytes],
        servicer: Answering,
        progress: FollowerProgress,
        commitlog: CommitLogClient,
        consumequeue: ConsumeQueueClient,
        clients: Clients,
        arrivals: Arrivals,
    ) -> None:
        self._settings = settings
        self._servicer = servicer
        self._progress = progress
        self._commitlog = commitlog
        self._consumequeue = consumequeue
        self._clients = clients
        self._arrivals = arrivals
        self._state_log = StateLog(TOPIC, commitlog, consumequeue)
        self._secret = secret
        self._handles: ReceiptHandles | None = None
        self._rules = Rules(
            settings.delivery_attempts_max,
            settings.new_groups_from == "last",
            len(settings.delay_levels_millis),
            settings.group_count_max,
            why_groups_unknown=BROKER_NOT_ASKED if settings.mirror and not settings.mirror_broker else "",
        )
        self.on_flushed: Callable[[int, int | None], None] | None = None

    def check(self) -> None:
        """See FollowerPart: every store can be served."""

    def is_unbuilt(self) -> bool:
        """See FollowerPart: the state is always read from the whole log."""
        return False

    def shut(self) -> None:
        """See FollowerPart."""
        self._servicer.shut()

    def open(self, log: LogRange, *, drop_cache: bool) -> ConsumerFollower:
        """See FollowerPart: begin a life."""
        if self._settings.writes_no_records or not log.role.leads:
            return self._open(log, None, self._state_log.load(log.end_offset), log.end_offset)
        epoch = self._state_log.begin_life(log.end_offset)
        append = partial(self._state_log.append, epoch)
        end_offset = self._state_log.end_offset()
        loaded = self._state_log.load(end_offset)
        writer = StateWriter(append, epoch, request_bytes_max=self._state_log.request_bytes_max())
        writer.changes_behind_full = loaded.change_count
        courtesy = CourtesyFiles(
            self._commitlog,
            lambda records: append(records, FLUSH_MODE_UNSPECIFIED),
            self._settings.cluster_name,
            self._settings.broker_name,
        )
        try:
            return self._open(log, writer, loaded, end_offset, courtesy)
        except BaseException:
            writer.close()
            raise

    def _open(
        self,
        log: LogRange,
        writer: StateWriter | None,
        loaded: LoadedState,
        begin_offset: int,
        courtesy: CourtesyFiles | None = None,
    ) -> ConsumerFollower:
        recent = RecentUnits()
        queues = self._consumequeue.list_queues(timeout_seconds=CALL_SECONDS)
        recent.set_ends((queue.topic, queue.queue_id, queue.max_offset) for queue in queues if not queue.problem)
        topics = TopicView(self._commitlog, self._arrivals, time.monotonic, log.hidden)
        topics.load()
        reader = QueueReader(recent, self._consumequeue, self._commitlog, deleted_before=topics.deleted_before)
        newest_millis = self._state_log.newest_store_millis()
        clock = StoreClock(start_millis_min=newest_millis)
        if self._handles is None:
            self._handles = ReceiptHandles(self._settings.broker_name, self._secret())
        life = Life(
            loaded.states,
            writer,
            reader,
            self._handles,
            self._clients,
            self._arrivals,
            self._rules,
            clock,
            topics,
            leadership=log.role.epoch if log.role.leads or self._settings.writes_no_records else None,
        )
        if courtesy is not None:
            courtesy.take_over(life, newest_millis)
        broker = BrokerGroups(self._commitlog) if self._settings.has_live_broker else None
        if broker is not None:
            broker.read(life, newest_millis)
        self._servicer.open(Delivery.of(life))
        _log.info("consumer.opened", groups=len(loaded.states.groups), changes=loaded.change_count, epoch=loaded.epoch)
        # Where this service appends nothing, retention need not wait for it.
        on_flushed = None if self._settings.writes_no_records else self.on_flushed
        return ConsumerFollower(
            life, writer, self._progress, recent, begin_offset, loaded, courtesy, broker, on_flushed
        )
