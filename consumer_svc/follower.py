"""ConsumerPart and ConsumerFollower: the lives of the consumer service (services/following/state_topic/state_follower.py).

The state of a life is that of all groups. A life hears of new messages for the polls that wait, and writes RocketMQ's files of
consumer offsets for a broker that opens the store later.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.deletions import Deletions
from consumer_svc.delivering.expirer import Expirer
from consumer_svc.delivering.life import Life, Rules
from consumer_svc.delivering.life_parts import Answering, LifeParts
from consumer_svc.delivering.lite_topics import LiteTopics
from consumer_svc.delivering.receipt_handle import ReceiptHandles
from consumer_svc.figures import Figures
from consumer_svc.handover.courtesy_files import LOOK_SECONDS, BrokerGroups, CourtesyFiles
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.settings import ConsumerSettings
from consumer_svc.state.group_states import GroupStates
from consumer_svc.state_topic import FULL_CHANGE_COUNT, STATE_TOPIC, TOPIC, LoadedState, StateWriter
from consumer_svc.topic_view import TopicView
from services.calling.commitlog import CommitLogClient
from services.following.follower_process import LogRange
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_follower import AppendRecords, StateFollower, StatePart
from services.following.state_topic.state_writer import Append
from services.following.store_clock import StoreClock
from services.reading.queue_reader import QueueReader
from services.reading.recent_units import RecentUnits
from services.rpcs import Calls
from store.errors import StoreError, failure_fields

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

# Heartbeats of the log come once a second.
TOPICS_SECONDS = 0.5
SILENT_LOOK_SECONDS, EXPIRE_LOOK_SECONDS = 5.0, 60.0
# Each part of a look has calls, for which messages of ordinary topics wait.
EXPIRE_GOES_ON_SECONDS = 0.5
# Of a look at all lite topics, before the next batch of the log is heard of.
LOOK_THROUGH_SECONDS_MAX = 1.0
# Of a batch, for pulls that wait for a light queue. Those of lite topics mostly pop; the others look at the end of their wait.
LIGHT_QUEUE_COUNT_MAX = 64
COURTESY_SECONDS = 5.0  # RocketMQ's flushConsumerOffsetInterval
# Positions in light queues for which a start may read another change.
LIGHT_COUNT_A_CHANGE = 4
# Changes that a start reads quickly.
STOP_CHANGE_COUNT = 1_000
# A broker's log does not say what its groups have consumed.
BROKER_NOT_ASKED = (
    "this store mirrors a broker that is not asked for its consumer groups: start the mirror with --mirror-broker "
    "HOST:PORT (REPUT_MIRROR_BROKER)"
)

LATER_HINT = (
    "the log has state of groups that a later release wrote and this one does not know: it is not used until that release runs "
    "again, and is kept as long as the log (docs/upgrade.md)"
)

OLDER_HINT = (
    "the newest full state of groups is of an earlier release, and the log has none of this one: nothing to do after a first "
    "upgrade; after a downgrade that was longer than the log is kept, set request modes and priority factors again, and bind "
    "groups of lite topics again: reput group update --lite-bind-topic (docs/upgrade.md)"
)

_log = structlog.get_logger("reput.consumer")


class ConsumerFollower(StateFollower):
    """A life of the service, going on.

    Args:
        life: what delivery shares.
        writer: of the state; None in a life that only reads.
        progress: of the follower.
        recent: gets the units of new messages.
        begin_offset: where it begins to follow (bytes).
        loaded: where the log has the state, and how many changes that is.
        courtesy: RocketMQ's files; None in a life that only reads.
        broker: the groups of a broker that runs beside this service; None when none does.
        on_flushed: told how far the log is not needed any more.
        end_offset: asks for the end of what the log has written (bytes).
        figures: count what the log gets.
        lite: what clients subscribe to.
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
        end_offset: Callable[[], int],
        figures: Figures,
        lite: LiteTopics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(writer, progress, recent, begin_offset, loaded.first_offset, on_flushed, end_offset, clock)
        self._life = life
        self._is_older = loaded.is_older
        self._figures = figures
        self._courtesy = courtesy
        self._broker = broker
        self._expirer = Expirer(life)
        self._deletions = Deletions(life)
        self._lite = lite
        now = clock()
        self._topics_at, self._courtesy_at, self._broker_at = now, now + COURTESY_SECONDS, now + LOOK_SECONDS
        self._silent_at = self._expire_at = now + SILENT_LOOK_SECONDS

    def begin(self) -> None:
        """See StateFollower; a full state of an earlier release is replaced at once, while the log has what it lacks."""
        if self._writer is not None:
            if self._is_older:
                self._full = self._life.write_full()
            self._expirer.start()

    def stop(self) -> None:
        """See StateFollower; also writes the courtesy files."""
        self._expirer.close()
        if self._writer is not None and self._writer.error is None:
            if self._writer.changes_behind_full >= STOP_CHANGE_COUNT:
                self._life.write_full()
            self._writer.close()
            if self._courtesy is not None and self._writer.error is None:
                self._courtesy.write(self._life, is_last=True)

    def abandon(self) -> None:
        """See StateFollower."""
        self._expirer.close()
        if self._writer is not None:
            self._writer.close()

    def error(self) -> StoreError | None:
        """See StateFollower."""
        return None if self._writer is None else self._writer.error

    def apply(
        self, records: "DispatchColumns | None", next_offset: int, log_first_offset: int, log_end_offset: int
    ) -> bool:
        """See StateFollower; the records are counted."""
        if records is not None and len(records):
            self._figures.add_records(records)
        goes_on = super().apply(records, next_offset, log_first_offset, log_end_offset)
        if records is not None and records.light_units:
            queues = dict.fromkeys(unit.queue for unit in records.light_units)
            with self._life.lock:
                self._lite.hear(queues, int(records.store_times_millis[-1]))
            # As topics: a light queue has one queue, and a row that names it takes eight times as long to tell.
            self._life.arrivals.note_topics(islice(queues, LIGHT_QUEUE_COUNT_MAX))
        return goes_on

    def hear(self, queues: Mapping[str, Collection[int]], store_time_millis: int) -> None:
        """See StateFollower: polls that wait for these queues look again."""
        self._life.arrivals.note_queues({topic: ids for topic, ids in queues.items() if topic != STATE_TOPIC})

    def has_state(self) -> bool:
        """See StateFollower; changes that a full state does not have yet may be of groups that are gone."""
        return bool(self._life.states.groups) or bool(self._writer and self._writer.changes_behind_full)

    def has_many_changes(self) -> bool:
        """See StateFollower."""
        if self._writer is None:
            return False
        count = self._writer.changes_behind_full
        if count < FULL_CHANGE_COUNT:  # asked for each batch of the log: there may be very many groups
            return False
        with self._life.lock:
            # A full state of very many light queues takes longer to write, and a start reads it as fast as changes.
            return count >= self._life.states.light_count() // LIGHT_COUNT_A_CHANGE

    def write_full(self) -> "Future[int]":
        """See StateFollower."""
        return self._life.write_full()

    def needed_offset(self) -> None:
        """See StateFollower: nothing besides; what a group has not consumed may expire."""

    def do_what_is_due(self) -> None:
        """See StateFollower: files of offsets, topics that were deleted, groups of a broker."""
        now = self._clock()
        if self._courtesy is not None and now >= self._courtesy_at:
            self._courtesy_at = now + COURTESY_SECONDS
            self._courtesy.write(self._life)
        # Polls that wait look at nothing, so nothing else would tell them that a topic may not be read any more.
        if now >= self._topics_at:
            self._topics_at = now + TOPICS_SECONDS
            self._life.topics.look()
            if self._writer is not None:
                self._deletions.see()
        if self._writer is not None:
            self._look_at_lite_topics(now)
        if self._broker is not None and now >= self._broker_at:
            self._broker_at = now + LOOK_SECONDS
            self._broker.read_again(self._life, self._progress.store_time_millis)

    def _look_at_lite_topics(self, now: float) -> None:
        try:
            while self._lite.look_through() and self._clock() < now + LOOK_THROUGH_SECONDS_MAX:
                pass  # a page of 20,000
            if now >= self._silent_at:
                self._silent_at = now + SILENT_LOOK_SECONDS
                self._lite.end_silent()
            if now >= self._expire_at:
                self._lite.expire(self._progress.log_first_offset)
                self._expire_at = now + (EXPIRE_GOES_ON_SECONDS if self._lite.expires_more else EXPIRE_LOOK_SECONDS)
        except StoreError as error:  # the queues are not built, or the log cannot be asked: at the next look
            self._expire_at = now + EXPIRE_LOOK_SECONDS
            _log.info("lite_topics.not_seen", **failure_fields(error))


class ConsumerPart(StatePart[GroupStates, StateWriter]):
    """Opens lives, and the servicer answers from them.

    Args:
        settings: of the service.
        secret: gives what signs receipt handles; asked when the lock is held, because it may be made then.
        servicer: answers from the lives.
        progress: of the follower.
        commitlog: the client for records and appends.
        consumequeue: the client for queues.
        clients: the consumers that live.
        arrivals: hears of messages that may be delivered.
        figures: count what the log gets.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        secret: Callable[[], bytes],
        servicer: Answering,
        progress: FollowerProgress,
        commitlog: CommitLogClient,
        consumequeue: Calls,
        clients: LiveConsumers,
        arrivals: Arrivals,
        figures: Figures | None = None,
    ) -> None:
        super().__init__(TOPIC, settings, servicer.shut, commitlog, consumequeue)
        self._settings = settings
        self._servicer = servicer
        self._progress = progress
        self._clients = clients
        self._arrivals = arrivals
        self._figures = figures or Figures()
        self._secret = secret
        self._handles: ReceiptHandles | None = None
        self._rules = Rules(
            settings.delivery_attempts_max,
            settings.new_groups_from == "last",
            len(settings.delay_levels_millis),
            settings.group_count_max,
            settings.lite_subscription_count_max,
            why_groups_unknown=BROKER_NOT_ASKED if settings.mirror and not settings.mirror_broker else "",
        )

    def new_writer(self, append: Append, epoch: int, request_bytes_max: int) -> StateWriter:
        """See StatePart."""
        return StateWriter(append, epoch, request_bytes_max=request_bytes_max)

    def new_life(
        self, log: LogRange, writer: StateWriter | None, append: AppendRecords | None, begin_offset: int
    ) -> ConsumerFollower:
        """See StatePart."""
        loaded = self._state_log.load(begin_offset)
        if writer is not None:
            writer.changes_behind_full = loaded.change_count
        recent = self.recent_units()
        recent.light_before = begin_offset
        topics = TopicView(self._commitlog, self._arrivals, time.monotonic, log.hidden)
        topics.load()
        reader = QueueReader(recent, self._consumequeue, self._commitlog, deleted_before=topics.deleted_before)
        newest_millis = self._state_log.newest_store_millis()
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
            StoreClock(start_millis_min=newest_millis),
            topics,
            leadership=log.role.epoch if log.role.leads or self._writes_no_records else None,
        )
        courtesy = None
        if append is not None:
            courtesy = CourtesyFiles(self._commitlog, append, self._settings.cluster_name, self._settings.broker_name)
            courtesy.take_over(life, newest_millis)
        broker = BrokerGroups(self._commitlog) if self._settings.has_live_broker else None
        if broker is not None:
            broker.read(life, newest_millis)
        parts = LifeParts.of(life)
        self._servicer.open(parts)
        _log.info("consumer.opened", groups=len(loaded.states.groups), changes=loaded.change_count, epoch=loaded.epoch)
        if loaded.states.from_later_count:
            _log.warning("consumer.state_of_a_later_release", records=loaded.states.from_later_count, hint=LATER_HINT)
        if loaded.lacks_newer:
            _log.info("consumer.older_state_used", hint=OLDER_HINT)
        # Where this service appends nothing, retention need not wait for it.
        on_flushed = None if self._writes_no_records else self.on_flushed
        return ConsumerFollower(
            life,
            writer,
            self._progress,
            recent,
            begin_offset,
            loaded,
            courtesy,
            broker,
            on_flushed,
            self._state_log.end_offset,
            self._figures,
            parts.lite,
        )
