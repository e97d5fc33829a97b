"""The consumer groups of a shard in memory."""

from dataclasses import dataclass, field

from gateway.ports.groups import (
    COMMIT_OFFSETS,
    DELETE_GROUP,
    GET_GROUP,
    GET_OFFSETS,
    LIST_GROUPS,
    LIST_LITE_TOPICS,
    LOCK_QUEUES,
    MAKE_GROUP,
    RESET_OFFSETS,
    SEE_TOPICS,
    SEND_BACK,
    TRACK,
    UPDATE_GROUP,
    default_settings,
    is_asked_for,
)
from gateway.ports.shard import Shard
from gateway.ports.time_window import set_millis
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import GroupNotFoundError, StoreError, TopicNotFoundError
from tests.gateway.memory_shard import MemoryShard, late, queue_of

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
    """Queues to lock or to unlock: topic and number, behind the name of the shard where there is one."""
    named = [
        gateway_pb.TopicQueue(topic=topic, queue_id=queue_id, broker_name="".join(at))
        for *at, topic, queue_id in queues
    ]
    return pb.LockQueuesRequest(consumer_group=group, client_id=client_id, queues=named, unlock=unlock)


def group_settings(group, **fields):
    """Settings of a group; what is not said is as the defaults are."""
    made = default_settings(group)
    made.MergeFrom(pb.GroupSettings(consumer_group=group, **fields))
    if "consume_enabled" in fields:
        made.consume_enabled = fields["consume_enabled"]
    return made


def position(topic, queue_id, queue_offset):
    """A position of a group."""
    return pb.QueueOffset(topic=topic, queue_id=queue_id, queue_offset=queue_offset)


def resetting(group, topic, **to):
    """Where a group shall go on."""
    return pb.ResetOffsetsRequest(consumer_group=group, topic=topic, **to)


def copy_of(message):
    """The message as it is now: a caller may change its own later."""
    return type(message).FromString(message.SerializeToString())


# The name of the double's method, by the method of a shard.
ANSWERS = {
    LIST_GROUPS: "settings",
    LIST_LITE_TOPICS: "lite_page",
    GET_GROUP: "facts",
    GET_OFFSETS: "positions",
    COMMIT_OFFSETS: "commit",
    SEE_TOPICS: "see_topics",
    SEND_BACK: "send_back",
    LOCK_QUEUES: "lock",
    RESET_OFFSETS: "reset",
    UPDATE_GROUP: "update",
    MAKE_GROUP: "make",
    DELETE_GROUP: "delete",
    TRACK: "track",
}


class MemoryGroups:
    """The groups of one shard.

    Attributes:
        groups: settings by name.
        held: positions by group, topic and queue.
        tracks: what `track` answers, by commit-log offset.
        lite_topics: rows by topic, rising by name.
        lite_sums: what `facts` tells of each group.
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
        self.lite_topics = {}
        self.lite_sums = []
        self.failure = None
        self.resets = []
        self.sent_back = []
        self.begins_at_end = False
        self.topic_looks = 0
        self.locks = {}

    def shard(self, broker_name) -> Shard:
        return self.in_shard(self.memory.shard(broker_name))

    def in_shard(self, shard: Shard) -> Shard:
        """The shard with these groups."""
        for method, name in ANSWERS.items():
            shard = shard.serving(method, late(self, name))
        return shard

    def _known(self, consumer_group):
        self._check()
        if consumer_group not in self.groups:
            raise GroupNotFoundError(f"no group {consumer_group}")
        return self.groups[consumer_group]

    def _check(self):
        if self.failure is not None:
            raise self.failure

    def settings(self, request, deadline):
        self._check()
        topics = {key[:2] for key in self.held}
        found = [
            each
            for name, each in sorted(self.groups.items())
            if is_asked_for(request, name) and (not request.topic or (name, request.topic) in topics)
        ]
        return pb.ListGroupsResponse(groups=found[: request.page_size], has_more=len(found) > request.page_size)

    def lite_page(self, request, deadline):
        self._check()
        found = [
            each
            for each in self.lite_topics.get(request.topic, ())
            if each.lite_topic > request.after
            and request.lite_topic_contains.lower() in each.lite_topic.lower()
            and request.consumer_group in ("", *(group.consumer_group for group in each.groups))
        ]
        return pb.ListLiteTopicsResponse(
            lite_topics=found[: request.page_size], has_more=len(found) > request.page_size
        )

    def facts(self, request, deadline):
        known = self._known(request.consumer_group)
        answer = pb.GetGroupResponse(
            settings=known, clients=self.members.get(request.consumer_group, ()), lite_topics=self.lite_sums
        )
        for (group, topic, queue_id), at in sorted(self.held.items()):
            if group == request.consumer_group:
                queue = answer.queues.add(
                    topic=topic, queue_id=queue_id, consumer_offset=at, next_offset=at, max_offset=10
                )
                set_millis(queue.oldest_store_time, 1_000)
        return answer

    def positions(self, request, deadline):
        self._known(request.consumer_group)
        return pb.GetOffsetsResponse(
            offsets=[
                position(topic, queue_id, at)
                for (group, topic, queue_id), at in self.held.items()
                if group == request.consumer_group and request.topic in ("", topic)
            ]
        )

    def commit(self, request, deadline):
        assert request.known_only, "the service would make the group, with its own defaults"
        self._known(request.consumer_group)
        for each in request.offsets:
            key = request.consumer_group, each.topic, each.queue_id
            if not request.begins or key not in self.held:
                self.held[key] = each.queue_offset
        return pb.CommitOffsetsResponse()

    def see_topics(self, request, deadline):
        self._check()
        self.topic_looks += 1
        return pb.SeeTopicsResponse()

    def send_back(self, question, deadline):
        self._check()
        has_begun = not self.begins_at_end or (question.consumer_group, question.topic) in {
            key[:2] for key in self.held
        }
        if question.consumer_group not in self.groups or not has_begun:
            error = GroupNotFoundError(f"no group {question.consumer_group}")
            error.metadata["beginsAtEnd"] = "false" if has_begun else "true"
            raise error
        assert question.known_only
        self.sent_back.append(copy_of(question))
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
        row = pb.ResetOffsetsResponse.Reset(queue_id=0, before=self.held.get(key), after=question.queue_offset)
        if not question.dry_run:
            assert question.known_only
            self._known(question.consumer_group)
            self.resets.append(copy_of(question))
            self.held[key] = question.queue_offset
        return pb.ResetOffsetsResponse(resets=[row])

    def update(self, request, deadline):
        self._check()
        changed = self.groups[request.settings.consumer_group] = copy_of(request.settings)
        changed.is_set = True
        return pb.UpdateGroupResponse()

    def make(self, request, deadline):
        assert request.if_unset
        self._check()
        wanted = request.settings
        known = self.groups.get(wanted.consumer_group)
        if known is None or (wanted.is_set and not known.is_set):
            self.groups[wanted.consumer_group] = copy_of(wanted)
        return pb.UpdateGroupResponse()

    def delete(self, request, deadline):
        self._check()
        self.groups.pop(request.consumer_group, None)
        return pb.DeleteGroupResponse()

    def track(self, request, deadline):
        self._check()
        tracks = self.tracks.get(request.message.commit_log_offset, [])
        found = [each for each in tracks if not each.consumer_group or is_asked_for(request, each.consumer_group)]
        return pb.TrackMessageResponse(tracks=found[: request.page_size], has_more=len(found) > request.page_size)


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
