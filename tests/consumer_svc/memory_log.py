"""Lives of the consumer service on a log in memory (`tests/support/memory_log.py`)."""

from collections.abc import Sequence
from typing import Any

from consumer_svc.arrivals import Arrivals
from consumer_svc.delivering.acks import Acks
from consumer_svc.delivering.deletions import Deletions
from consumer_svc.delivering.expirer import Expirer
from consumer_svc.delivering.groups import Groups
from consumer_svc.delivering.life import Life, Rules
from consumer_svc.delivering.lite_topics import LiteTopics
from consumer_svc.delivering.pop import Pops
from consumer_svc.delivering.pulls import Pulls
from consumer_svc.delivering.receipt_handle import ReceiptHandles
from consumer_svc.delivering.send_back import SendBacks
from consumer_svc.delivering.tracks import Tracks
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.state.group_states import GROUP_COUNT_MAX, LITE_SUBSCRIPTION_COUNT_MAX, GroupStates
from consumer_svc.state_topic import STATE_TOPIC, LoadedState, StateWriter, load_state
from consumer_svc.topic_view import TopicView
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from services.reading.queue_reader import QueueReader
from services.reading.recent_units import RecentUnits
from store.format.topic import is_light_queue
from tests.support import memory_log
from tests.support.memory_log import START_MILLIS, ManualClock, Queue, always_newer
from tests.support.waiting import WAIT_SECONDS_MAX

__all__ = ["START_MILLIS", "LogLife", "ManualClock", "MemoryLog", "contents"]

SECRET = b"secret of the tests"


class MemoryLog(memory_log.MemoryLog):
    """A log in memory with the state of groups."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, STATE_TOPIC)
        self.topics: dict[str, commitlog_pb.ListTopicsResponse.Topic] = {}
        self.topics_version = 1
        self.lite_minutes: dict[str, int] = {}
        self.deleted_before: dict[str, int] = {}
        self.new_topic_queue_count = 8

    def configure(self, topic: str, perm: int = 6, queue_count: int = 1, message_type: int = 0) -> None:
        """Put a topic into the topic table."""
        self.topics[topic] = commitlog_pb.ListTopicsResponse.Topic(
            topic=topic,
            write_queue_count=queue_count,
            read_queue_count=queue_count,
            perm=perm,
            message_type=message_type,
            lite_expiration_minutes=self.lite_minutes.get(topic, 0),
        )
        self.topics_version += 1

    def delete(self, topic: str) -> None:
        """Take a topic out of the topic table."""
        self.topics.pop(topic, None)
        self.deleted_before[topic] = self.end
        self.topics_version += 1

    def write(self, records: Sequence[InternalRecord]) -> list[AppendResult]:
        """As the commit log: a message makes its topic again."""
        for topic in {record.topic for record in records} & self.deleted_before.keys() - self.topics.keys():
            self.configure(topic)
        return super().write(records)

    def ListTopics(self, request: commitlog_pb.ListTopicsRequest) -> commitlog_pb.ListTopicsResponse:
        """See the proto."""
        if request.known_version == self.topics_version:
            return commitlog_pb.ListTopicsResponse(version=self.topics_version)
        return commitlog_pb.ListTopicsResponse(
            topics=self.topics.values(),
            new_topic_queue_count=self.new_topic_queue_count,
            version=self.topics_version,
            deleted_before=self.deleted_before,
        )

    def AppendInternal(self, request: commitlog_pb.AppendInternalRequest) -> commitlog_pb.AppendInternalResponse:
        """See the proto; only for new topics."""
        for topic in request.new_topics:
            if topic not in self.topics:
                self.configure(topic)
        return commitlog_pb.AppendInternalResponse()

    def state(self) -> LoadedState:
        """The state of the groups as the log has it."""
        queue = self.queues.get((STATE_TOPIC, 0), Queue())
        return load_state(
            queue.first,
            queue.end,
            lambda offset, count: queue.units[offset - queue.first : offset - queue.first + count],
            lambda units: [self.records[unit.commit_log_offset].body for unit in units],
        )


class LogLife:
    """A life of the service on a MemoryLog, without its expirer's thread: `expire` ends what is due.

    Args:
        log: the log.
        attempts_max: of groups without a setting.
        begins_at_end: where new groups begin.
        recent_count_max: units kept in memory.
        clients: the consumers that live.
        leadership: see Life.
        group_count_max: see Rules.
        lite_subscription_count_max: see Rules.
    """

    def __init__(
        self,
        log: MemoryLog,
        *,
        attempts_max: int = 3,
        begins_at_end: bool = False,
        recent_count_max: int = 262_144,
        clients: LiveConsumers | None = None,
        leadership: int | None = 0,
        group_count_max: int = GROUP_COUNT_MAX,
        lite_subscription_count_max: int = LITE_SUBSCRIPTION_COUNT_MAX,
    ) -> None:
        epoch = log.state().epoch + 1
        self.log = log
        self.writer = StateWriter(lambda records, flush: log.append(epoch, records, flush), epoch)
        self.writer.submit(()).result(WAIT_SECONDS_MAX)
        self.loaded = log.state()
        self.writer.changes_behind_full = self.loaded.change_count
        recent = log.recent = RecentUnits(recent_count_max, recent_count_max)
        recent.light_before = log.end
        recent.set_ends(
            (topic, queue_id, queue.end) for (topic, queue_id), queue in log.queues.items() if not is_light_queue(topic)
        )
        client: Any = log
        self.arrivals = Arrivals()
        topics = TopicView(log, self.arrivals, always_newer())
        topics.load()
        reader = QueueReader(recent, client, client, clock=always_newer(), deleted_before=topics.deleted_before)
        self.life = Life(
            self.loaded.states,
            self.writer,
            reader,
            ReceiptHandles("broker-a", SECRET),
            clients or LiveConsumers(lambda: log.clock.now / 1000 + 1e6),
            self.arrivals,
            Rules(
                attempts_max,
                begins_at_end,
                group_count_max=group_count_max,
                lite_subscription_count_max=lite_subscription_count_max,
            ),
            log.clock,
            topics,
            leadership,
        )
        self.pops, self.acks, self.pulls = Pops(self.life), Acks(self.life), Pulls(self.life)
        self.send_backs = SendBacks(self.life)
        self.groups, self.tracks, self.expirer = Groups(self.life), Tracks(self.life), Expirer(self.life)
        self.deletions = Deletions(self.life)
        self.lite = LiteTopics(self.life)
        log.on_light = self._hear_light
        self.expirer.note_all()

    @property
    def states(self) -> GroupStates:
        """The state in memory."""
        return self.life.states

    def pop(self, request: pb.PopMessagesRequest) -> list[pb.Delivery]:
        """What a pop hands out."""
        return list(self.pops.pop(request).deliveries)

    def track(self, message: StoredMessage) -> list[pb.TrackMessageResponse.Track]:
        """How a message stands with every group."""
        return list(self.tracks.page(message).tracks)

    def _hear_light(self, queues: Sequence[str]) -> None:
        if not queues:  # a test may hold the lock while it waits for the log
            return
        with self.life.lock:
            self.lite.hear(queues, self.log.clock.now)

    def look_through(self) -> None:
        """Find the news of all lite topics, as the follower does."""
        while self.lite.look_through():
            pass

    def expire(self) -> int:
        """End everything that is due; how many leases were looked at."""
        count = 0
        while ended := self.expirer.expire_due():
            count += ended
        return count

    def close(self) -> None:
        """Write what is submitted, and end."""
        self.writer.close()


def contents(states: GroupStates) -> object:
    """The state for comparison: without the times of leases, which are also changed in memory only."""
    return {
        name: (
            group.settings,
            {
                (ref.topic, ref.queue_id): (
                    queue.next_offset,
                    {
                        at: (
                            lease.delivery_number,
                            lease.uncounted,
                            lease.message_group,
                            lease.is_delivered,
                            lease.is_released,
                        )
                        for at, lease in queue.leases.items()
                    },
                    dict(queue.waiting),
                    list(queue.resets),
                )
                for ref, queue in group.queues()
            },
            dict(group.light),
            {client_id: (client.queues, client.is_wildcard) for client_id, client in group.lite.clients.items()},
        )
        for name, group in states.groups.items()
    }
