"""A GroupKeeper in memory, and shards that have one."""

from dataclasses import dataclass, field, replace

from gateway.ports.groups import GroupFacts, GroupPage, GroupQueue, Position, Reset
from gateway.ports.shard import Shard
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import GroupNotFoundError, StoreError, TopicNotFoundError
from tests.gateway.memory_shard import MemoryShard, queue_of

QUEUE_COUNT = 8


SENT_BACK, REMOVED = gateway_pb.SEND_BACK_OUTCOME_OK, gateway_pb.SEND_BACK_OUTCOME_REMOVED


def rows(queues):
    """Topic and number of queues, as a consumer service names them."""
    return [gateway_pb.TopicQueue(topic=topic, queue_id=queue_id) for topic, queue_id in queues]


def back(group, topic, queue_id, queue_offsets, delay_level=0):
    """Messages to send back."""
    return pb.SendBackMessagesRequest(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offsets=queue_offsets,
        delay_level=delay_level,
    )


def locking(group, client_id, queues, *, unlock=False):
    """Queues to lock or to unlock."""
    return pb.LockQueuesRequest(consumer_group=group, client_id=client_id, queues=rows(queues), unlock=unlock)


class MemoryGroups:
    """The groups of one shard.

    Attributes:
        groups: settings by name.
        held: positions by group, topic and queue.
        tracks: what `track` answers, by commit-log offset.
        failure: raised by every call.
        resets: the questions so far that were no dry run.
        sent_back: the questions so far.
        begins_at_end: a group that has not begun in a topic sends nothing back.
        locks: the member that has a queue, by group, topic and queue.
    """

    def __init__(self, memory=None):
        self.memory = memory or MemoryShard([])
        self.groups = {}
        self.held = {}
        self.members = {}
        self.tracks = {}
        self.failure = None
        self.resets = []
        self.sent_back = []
        self.begins_at_end = False
        self.topic_looks = 0
        self.locks = {}

    def shard(self, broker_name) -> Shard:
        return replace(self.memory.shard(broker_name), groups=self)

    def _known(self, consumer_group):
        self._check()
        if consumer_group not in self.groups:
            raise GroupNotFoundError(f"no group {consumer_group}")
        return self.groups[consumer_group]

    def _check(self):
        if self.failure is not None:
            raise self.failure

    def settings(self, choice, deadline):
        self._check()
        topics = {key[:2] for key in self.held}
        found = [
            each
            for name, each in sorted(self.groups.items())
            if choice.holds(name) and (not choice.topic or (name, choice.topic) in topics)
        ]
        return GroupPage(found[: choice.count_max], len(found) > choice.count_max)

    def facts(self, consumer_group, deadline):
        settings = self._known(consumer_group)
        queues = [
            GroupQueue(topic, queue_id, at, at, 0, 10, oldest_store_time_millis=1_000)
            for (group, topic, queue_id), at in sorted(self.held.items())
            if group == consumer_group
        ]
        return GroupFacts(settings, self.members.get(consumer_group, ()), queues)

    def positions(self, consumer_group, topic, deadline):
        self._known(consumer_group)
        return [
            Position(of_topic, queue_id, at)
            for (group, of_topic, queue_id), at in self.held.items()
            if group == consumer_group and topic in ("", of_topic)
        ]

    def commit(self, consumer_group, positions, deadline, *, begins=False):
        self._known(consumer_group)
        for each in positions:
            key = consumer_group, each.topic, each.queue_id
            if not begins or key not in self.held:
                self.held[key] = each.consumer_offset

    def see_topics(self, deadline):
        self._check()
        self.topic_looks += 1

    def send_back(self, question, deadline):
        self._check()
        has_begun = not self.begins_at_end or (question.consumer_group, question.topic) in {
            key[:2] for key in self.held
        }
        if question.consumer_group not in self.groups or not has_begun:
            error = GroupNotFoundError(f"no group {question.consumer_group}")
            error.metadata["beginsAtEnd"] = "false" if has_begun else "true"
            raise error
        self.sent_back.append(question)
        return pb.SendBackMessagesResponse(
            outcomes=[SENT_BACK if at < 10 else REMOVED for at in question.queue_offsets]
        )

    def lock(self, question, deadline):
        self._check()
        asked = [(each.topic, each.queue_id) for each in question.queues]
        known = [each for each in asked if each[1] < QUEUE_COUNT]
        for topic, queue_id in known:
            key = (question.consumer_group, topic, queue_id)
            if self.locks.setdefault(key, question.client_id) == question.client_id and question.unlock:
                del self.locks[key]
        held = [each for each in known if self.locks.get((question.consumer_group, *each)) == question.client_id]
        unknown = [] if question.unlock else [each for each in dict.fromkeys(asked) if each not in known]
        return pb.LockQueuesResponse(queues=rows(held), unknown_queues=rows(unknown))

    def reset(self, question, deadline):
        self._check()
        key = (question.consumer_group, question.topic, 0)
        if question.topic not in {topic for _, topic, _ in self.held}:
            raise TopicNotFoundError("no topic")
        before = self.held.get(key)
        if not question.dry_run:
            self._known(question.consumer_group)
            self.resets.append(question)
            self.held[key] = question.value
        return [Reset(0, before, question.value)]

    def update(self, settings, deadline):
        self._check()
        self.groups[settings.consumer_group] = replace(settings, is_set=True)

    def make(self, settings, deadline):
        self._check()
        known = self.groups.get(settings.consumer_group)
        if known is None or (settings.is_set and not known.is_set):
            self.groups[settings.consumer_group] = settings

    def delete(self, consumer_group, deadline):
        self._check()
        self.groups.pop(consumer_group, None)

    def track(self, message, choice, deadline):
        self._check()
        tracks = self.tracks.get(message.commit_log_offset, [])
        found = [each for each in tracks if not each.consumer_group or choice.holds(each.consumer_group)]
        return GroupPage(found[: choice.count_max], len(found) > choice.count_max)


@dataclass
class Queues(MemoryShard):
    """A shard whose queues are numbers.

    Attributes:
        ranges: first and last position of each queue, by topic and queue.
    """

    ranges: dict = field(default_factory=dict)

    def list_queues(self, topic, deadline):
        self._called("list_queues", deadline)
        return [queue_of(*key, *ends) for key, ends in sorted(self.ranges.items()) if topic in (None, key[0])]


class InOrder:
    """A FanOut that asks one after the other."""

    def ask(self, items, call):
        answers = []
        for item in items:
            try:
                answers.append(call(item))
            except StoreError as error:
                answers.append(error)
        return answers


def groups_with(**ends):
    """A shard with these ends of the queues of topic T; `q0=5` is queue 0."""
    return MemoryGroups(Queues([], ranges={("T", int(name[1:])): (0, end) for name, end in ends.items()}))
