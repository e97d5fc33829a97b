"""Shards limited to the topics that the caller may see.

The rules (rules.py) check the topics that a request names. This link of the chain checks the topics that an answer shows. It
lies below all queries, so a new query cannot show a forbidden topic by mistake. The guard sets the caller of the thread
(`work_for`); a query gets its shards from `CallerShards.now()`:

    call                             a topic that the caller may not see
    lists of topics and queues       is left out
    its queues, its keys             PERMISSION_DENIED: the caller has named it
    one record, by its offset        as an offset at which no record starts
    its groups                       a group that it may not consume for is left out; PERMISSION_DENIED when it has named it
    what waits                       a message of such a topic is left out and not counted; a page goes on behind it
    many records                     the record is replaced by a blank one without topic, keys and body; a query treats
                                     it as a record with another key

Without a caller `now` raises an error: a handler that forgets `work_for` fails.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

from gateway.auth.access import Access, Roles
from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.groups import (
    COMMIT_OFFSETS,
    DELETE_GROUP,
    GET_FIGURES,
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
)
from gateway.ports.shard import (
    ARCHIVE_PROBLEM,
    CREATE_TOPIC,
    DELETE_TOPIC,
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    IS_WRITTEN_AT,
    KEYS_PROGRESS,
    LIST_QUEUES,
    LIST_STORED,
    LIST_TOPICS,
    LOG_END,
    QUEUES_PROGRESS,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STATUSES,
    STORE_FACTS,
    UPDATE_TOPIC,
    BuildProgress,
    Built,
    Shard,
)
from gateway.ports.shards import Shards, ShardsSource
from gateway.ports.waiting import DELAY_LEVELS, KNOWN_OFFSET, LIST_SCHEDULED, LIST_TRANSACTIONS
from gateway.queries.page import PAGE_SIZE_MAX
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from store.errors import OffsetOutOfRangeError, PermissionDeniedError, RecordNotFoundError, StoreError

Listed = TypeVar("Listed", schedule_pb.ListPendingTransactionsRequest, schedule_pb.ListScheduledMessagesRequest)


@dataclasses.dataclass(frozen=True, slots=True)
class VisibleTopics:
    """The topics that a caller may see: those for which it has one of the roles.

    Attributes:
        access: the caller's rights.
        roles: the roles that allow the called method.
        note_hidden: called when a record was read that the caller may not see.
    """

    access: Access
    roles: Roles
    note_hidden: Callable[[], None] = lambda: None

    def holds(self, topic: str) -> bool:
        """Whether the caller may see the topic."""
        return self.access.allows(self.roles, topic)

    @property
    def is_whole(self) -> bool:
        """Whether the caller may see every topic."""
        return self.access.has_all_topics(self.roles)

    def shown(self, progress: BuildProgress) -> BuildProgress:
        """How far a builder is, as the caller may know it."""
        return progress if self.is_whole else dataclasses.replace(progress, is_limited=True)

    def check(self, topic: str) -> None:
        """PermissionDeniedError when the caller may not see the topic."""
        if not self.holds(topic):
            raise self.refusal(f"topic {topic!r}", topic=topic)

    def check_group(self, consumer_group: str) -> None:
        """PermissionDeniedError when the caller may not consume for the group."""
        if not self.access.allows_group(consumer_group):
            raise self.refusal(f"for consumer group {consumer_group!r}", group=consumer_group)

    def refusal(self, what: str, **metadata: object) -> PermissionDeniedError:
        """The error for something that the caller may not see."""
        roles = " or ".join(sorted(role.value for role in self.roles))
        return PermissionDeniedError(
            f"{self.access.name} may not {roles} {what}: the access file grants the rights (docs/security.md)",
            client=self.access.name,
            role=roles,
            **metadata,
        )


_visible: ContextVar[VisibleTopics | None] = ContextVar("reput_caller_visible", default=None)


@contextlib.contextmanager
def work_for(visible: VisibleTopics) -> Iterator[None]:
    """Sets the caller of this thread inside the block."""
    token = _visible.set(visible)
    try:
        yield
    finally:
        _visible.reset(token)


def check_topic(topic: str) -> None:
    """PermissionDeniedError when the caller of this thread may not do what it has called for this topic."""
    _caller().check(topic)


def check_group(consumer_group: str) -> None:
    """PermissionDeniedError when the caller of this thread may not consume for the group."""
    _caller().check_group(consumer_group)


def _caller() -> VisibleTopics:
    visible = _visible.get()
    if visible is None:
        raise StoreError("the gateway acted without a caller; this is a bug of the gateway")
    return visible


class CallerShards:
    """A ShardsSource whose shards show what the thread's caller may see.

    Args:
        source: all shards.
    """

    def __init__(self, source: ShardsSource) -> None:
        self._source = source
        self._decoys: dict[str, int] = {}

    def now(self) -> Shards:
        """See ShardsSource."""
        visible = _visible.get()
        if visible is None:
            raise StoreError("the gateway asked for shards without a caller; this is a bug of the gateway")
        shards = self._source.now()
        groups = visible.access.groups
        if visible.is_whole and groups is None:
            return shards
        is_limited = not visible.is_whole or not (groups is None or "*" in groups)
        parts = [self._visible_part(shard, visible) for shard in shards]
        return Shards(parts, shards.fan_out, is_limited=is_limited)

    def _visible_part(self, shard: Shard, visible: VisibleTopics) -> Shard:
        return shard.with_link(Concern.SIGN_IN, SignIn(visible, shard.broker_name, self._decoys))


@dataclasses.dataclass(frozen=True, slots=True)
class SignIn:
    """The link of a caller's calls: what `DECIDED` says of each method; a method that is not there is refused.

    Attributes:
        visible: what the caller may see.
        broker_name: the shard's name.
        decoys: where a record starts, by shard: the last one that a caller might not see. It is read when none is found.
    """

    visible: VisibleTopics
    broker_name: str = ""
    decoys: dict[str, int] = dataclasses.field(default_factory=dict)

    def __call__(self, method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        """See Link."""
        decide = DECIDED.get(method)
        if decide is None:
            raise StoreError(f"nothing says who may see what {method.name} shows; this is a bug of the gateway")
        return decide(self, request, lambda asked: below(method, asked, deadline))


# Decides on a call: the link, the request, and what asks the shard.
Decide: TypeAlias = Callable[[SignIn, Any, Callable[[Any], Any]], Any]


def _whole(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
    """The answer names no topic."""
    return ask(request)


def _of_topic(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
    """The request names the topic."""
    link.visible.check(request.topic)
    return ask(request)


def _record(
    link: SignIn, request: log_pb.GetMessageRequest, ask: Callable[[log_pb.GetMessageRequest], StoredMessage]
) -> StoredMessage:
    """One record by its offset costs two reads whether a foreign record or none starts there.

    One read finds a record and one finds none. Otherwise the time of an answer would tell where foreign records begin.
    """
    try:
        record = ask(request)
    except RecordNotFoundError:
        _read_decoy(link, ask)
        raise
    if not link.visible.holds(record.topic):
        link.visible.note_hidden()
        link.decoys[link.broker_name] = request.commit_log_offset
        raise _absent(request.commit_log_offset, ask)
    return record


def _read_decoy(link: SignIn, ask: Callable[[log_pb.GetMessageRequest], StoredMessage]) -> None:
    """Read some record, as would have been read of a foreign one."""
    try:
        ask(log_pb.GetMessageRequest(commit_log_offset=link.decoys.get(link.broker_name, 0)))
    except OffsetOutOfRangeError as error:  # retention removed it; the first record is there
        first_offset = error.metadata.get("firstOffset", "")
        link.decoys[link.broker_name] = int(first_offset) if first_offset.isdecimal() else 0
    except StoreError:
        link.decoys.pop(link.broker_name, None)


def _absent(commit_log_offset: int, ask: Callable[[log_pb.GetMessageRequest], StoredMessage]) -> StoreError:
    """The error of an offset at which no record starts: that of the next byte, asked for."""
    inside = commit_log_offset + 1
    try:
        ask(log_pb.GetMessageRequest(commit_log_offset=inside))
    except RecordNotFoundError as error:
        hidden = RecordNotFoundError(error.message.replace(str(inside), str(commit_log_offset)))
        hidden.metadata = {
            name: str(commit_log_offset) if value == str(inside) else value for name, value in error.metadata.items()
        }
        return hidden
    except StoreError as error:
        return error
    return RecordNotFoundError(f"no record starts at commit-log offset {commit_log_offset}")


def _records(
    link: SignIn,
    request: log_pb.BatchGetMessagesRequest,
    ask: Callable[[log_pb.BatchGetMessagesRequest], Sequence[StoredMessage | StoreError]],
) -> Sequence[StoredMessage | StoreError]:
    return [
        outcome if isinstance(outcome, StoreError) or link.visible.holds(outcome.topic) else _blank_of(outcome)
        for outcome in ask(request)
    ]


def _blank_of(record: StoredMessage) -> StoredMessage:
    """Stands for a record that the caller may not see: a query treats it as a record with another key."""
    blank = StoredMessage(commit_log_offset=record.commit_log_offset, queue_id=-1, queue_offset=-1)
    blank.store_time.CopyFrom(record.store_time)
    return blank


def _listed_topics(
    link: SignIn,
    request: log_pb.ListTopicsRequest,
    ask: Callable[[log_pb.ListTopicsRequest], log_pb.ListTopicsResponse],
) -> log_pb.ListTopicsResponse:
    answer = ask(request)
    topics = [topic for topic in answer.topics if link.visible.holds(topic.topic)]
    return log_pb.ListTopicsResponse(topics=topics, new_topic_queue_count=answer.new_topic_queue_count)


def _listed_queues(
    link: SignIn,
    request: queue_pb.ListQueuesRequest,
    ask: Callable[[queue_pb.ListQueuesRequest], Sequence[queue_pb.Queue]],
) -> Sequence[queue_pb.Queue]:
    if request.topic:
        link.visible.check(request.topic)
    return [queue for queue in ask(request) if link.visible.holds(queue.topic)]


def _progress(link: SignIn, request: Any, ask: Callable[[Any], Built[Any]]) -> Built[Any]:
    found = ask(request)
    found.progress = link.visible.shown(found.progress)
    return found


def _built_of_topic(link: SignIn, request: Any, ask: Callable[[Any], Built[Any]]) -> Built[Any]:
    link.visible.check(request.topic)
    return _progress(link, request, ask)


def _candidates(
    link: SignIn, request: index_pb.SearchKeyRequest, ask: Callable[[Any], Built[index_pb.SearchKeyResponse]]
) -> Built[index_pb.SearchKeyResponse]:
    found = _built_of_topic(link, request, ask)
    if not link.visible.is_whole:
        # Both tell of records of other topics.
        found.answer.ClearField("explanation")
        found.passed_over = gateway_pb.PASSED_OVER_UNSPECIFIED
    return found


def _limited(visible: VisibleTopics, request: Listed) -> Listed:
    """The request as the shard gets it: a page that is filled with other messages would tell how many there are."""
    if request.topic:
        visible.check(request.topic)
    if visible.is_whole:
        return request
    limited = type(request).FromString(request.SerializeToString())
    limited.topic_patterns[:] = visible.access.patterns_of(visible.roles)
    return limited


def _listed_waiting(rows: str) -> Decide:
    """Messages that wait, in this field."""

    def decide(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
        answer = ask(_limited(link.visible, request))
        if link.visible.is_whole:
            return answer
        seen = [each for each in getattr(answer, rows) if link.visible.holds(each.topic)]
        return type(answer)(**{rows: seen}, next_page_token=answer.next_page_token)

    return decide


def _of_group(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
    """The request names the group."""
    link.visible.check_group(request.consumer_group)
    return ask(request)


def _of_settings(link: SignIn, request: consumer_pb.UpdateGroupRequest, ask: Callable[[Any], Any]) -> Any:
    link.visible.check_group(request.settings.consumer_group)
    return ask(request)


def _of_group_and_topic(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
    link.visible.check_group(request.consumer_group)
    link.visible.check(request.topic)
    return ask(request)


def _of_group_and(queues: str) -> Decide:
    """The request names the group, and topics in the rows of this field."""

    def decide(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
        link.visible.check_group(request.consumer_group)
        for row in getattr(request, queues):
            link.visible.check(row.topic)
        return ask(request)

    return decide


_of_group_and_offsets = _of_group_and("offsets")


def _of_committed(link: SignIn, request: consumer_pb.CommitOffsetsRequest, ask: Callable[[Any], Any]) -> Any:
    if request.HasField("beginning"):
        link.visible.check(request.beginning.topic)
    return _of_group_and_offsets(link, request, ask)


def _page_of_groups(rows: str) -> Decide:
    """Groups, or tracks, in this field: groups for which the caller may not consume are left out.

    A page is as full as one of a shard without such groups, and does not say that there are any.
    """

    def decide(link: SignIn, request: Any, ask: Callable[[Any], Any]) -> Any:
        allows = link.visible.access.allows_group
        if link.visible.access.groups is None:
            return ask(request)
        asked = type(request)()
        asked.CopyFrom(request)
        asked.page_size = PAGE_SIZE_MAX
        seen: list[Any] = []
        while True:
            page = ask(asked)
            found = getattr(page, rows)
            seen += [each for each in found if not each.consumer_group or allows(each.consumer_group)]
            has_more = 0 < request.page_size < len(seen)
            if has_more or not page.has_more:
                return type(page)(**{rows: seen[: request.page_size] if has_more else seen}, has_more=has_more)
            asked.after = found[-1].consumer_group

    return decide


def _lite_topics(
    link: SignIn,
    request: consumer_pb.ListLiteTopicsRequest,
    ask: Callable[[consumer_pb.ListLiteTopicsRequest], consumer_pb.ListLiteTopicsResponse],
) -> consumer_pb.ListLiteTopicsResponse:
    """Lite topics without the groups for which the caller may not consume."""
    access = link.visible.access
    if request.consumer_group:
        link.visible.check_group(request.consumer_group)
    link.visible.check(request.topic)
    answer = ask(request)
    if access.groups is None:
        return answer
    seen = consumer_pb.ListLiteTopicsResponse()
    seen.CopyFrom(answer)
    for lite_topic in seen.lite_topics:
        groups = [each for each in lite_topic.groups if access.allows_group(each.consumer_group)]
        del lite_topic.groups[:]
        lite_topic.groups.extend(groups)
    return seen


def _group(
    link: SignIn,
    request: consumer_pb.GetGroupRequest,
    ask: Callable[[consumer_pb.GetGroupRequest], consumer_pb.GetGroupResponse],
) -> consumer_pb.GetGroupResponse:
    """A group without the topics that the caller may not see, and without members that consume nothing else."""
    visible = link.visible
    visible.check_group(request.consumer_group)
    answer = ask(request)
    if visible.is_whole:
        return answer
    seen = consumer_pb.GetGroupResponse(
        settings=answer.settings,
        queues=[queue for queue in answer.queues if visible.holds(queue.topic)],
        lite_topics=[each for each in answer.lite_topics if visible.holds(each.topic)],
    )
    is_whole = True
    for client in answer.clients:
        subscriptions = [each for each in client.subscriptions if visible.holds(each.topic)]
        is_whole = is_whole and bool(subscriptions) and len(subscriptions) == len(client.subscriptions)
        if subscriptions:
            member = seen.clients.add()
            member.CopyFrom(client)
            member.ClearField("subscriptions")
            member.ClearField("caller")  # an identity of somebody else
            member.subscriptions.extend(subscriptions)
    if is_whole:  # else they may name other members
        seen.problems.extend(answer.problems)
    return seen


def _positions(
    link: SignIn,
    request: consumer_pb.GetOffsetsRequest,
    ask: Callable[[consumer_pb.GetOffsetsRequest], consumer_pb.GetOffsetsResponse],
) -> consumer_pb.GetOffsetsResponse:
    link.visible.check_group(request.consumer_group)
    answer = ask(request)
    if link.visible.is_whole:
        return answer
    return consumer_pb.GetOffsetsResponse(offsets=[each for each in answer.offsets if link.visible.holds(each.topic)])


# By method: what its caller may see.
DECIDED: Mapping[ShardMethod[Any, Any], Decide] = {
    GET_RECORD: _record,
    GET_RECORDS: _records,
    STATUSES: _whole,  # only an operator may ask for it
    ARCHIVE_PROBLEM: _whole,
    LIST_QUEUES: _listed_queues,
    LIST_STORED: _listed_queues,
    GET_UNITS: _built_of_topic,
    SEARCH_OFFSET: _built_of_topic,
    QUEUES_PROGRESS: _progress,
    SEARCH_KEY: _candidates,
    KEYS_PROGRESS: _progress,
    LIST_TOPICS: _listed_topics,
    CREATE_TOPIC: _of_topic,
    UPDATE_TOPIC: _of_topic,
    DELETE_TOPIC: _of_topic,
    LOG_END: _whole,
    IS_WRITTEN_AT: _whole,
    STORE_FACTS: _whole,  # shown only beside a topic that the caller sees
    LIST_TRANSACTIONS: _listed_waiting("transactions"),
    LIST_SCHEDULED: _listed_waiting("messages"),
    KNOWN_OFFSET: _whole,  # decides on a message that the caller sees
    DELAY_LEVELS: _whole,
    LIST_GROUPS: _page_of_groups("groups"),
    GET_GROUP: _group,
    LIST_LITE_TOPICS: _lite_topics,
    GET_OFFSETS: _positions,
    COMMIT_OFFSETS: _of_committed,
    GET_FIGURES: _whole,  # the door checks the topic and the group; sums of the shard are for operators
    SEE_TOPICS: _whole,  # answers nothing, and does what happens by itself within seconds
    SEND_BACK: _of_group_and_topic,
    LOCK_QUEUES: _of_group_and("queues"),
    RESET_OFFSETS: _of_group_and_topic,
    UPDATE_GROUP: _of_settings,
    MAKE_GROUP: _of_settings,
    DELETE_GROUP: _of_group,
    TRACK: _page_of_groups("tracks"),
}
