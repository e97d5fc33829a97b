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
from gateway.ports.delivery import GroupSettings
from gateway.ports.groups import (
    GroupChoice,
    GroupFacts,
    GroupKeeper,
    GroupPage,
    Position,
    Reset,
    ResetQuestion,
    Track,
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
from gateway.queries.limits import PAGE_SIZE_MAX
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from store.errors import OffsetOutOfRangeError, PermissionDeniedError, RecordNotFoundError, StoreError

OfGroup = TypeVar("OfGroup", GroupSettings, Track)
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
    visible = _caller()
    if not visible.access.allows_group(consumer_group):
        raise visible.refusal(f"for consumer group {consumer_group!r}", group=consumer_group)


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
        if visible.is_whole and visible.access.groups is None:
            return shards
        return Shards([self._visible_part(shard, visible) for shard in shards], shards.fan_out)

    def _visible_part(self, shard: Shard, visible: VisibleTopics) -> Shard:
        return dataclasses.replace(
            shard.with_link(Concern.SIGN_IN, SignIn(visible, shard.broker_name, self._decoys)),
            groups=None if shard.groups is None else VisibleGroups(shard.groups, visible),
        )


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


def _listed_transactions(
    link: SignIn,
    request: schedule_pb.ListPendingTransactionsRequest,
    ask: Callable[[schedule_pb.ListPendingTransactionsRequest], schedule_pb.ListPendingTransactionsResponse],
) -> schedule_pb.ListPendingTransactionsResponse:
    answer = ask(_limited(link.visible, request))
    if link.visible.is_whole:
        return answer
    seen = [each for each in answer.transactions if link.visible.holds(each.topic)]
    return schedule_pb.ListPendingTransactionsResponse(transactions=seen, next_page_token=answer.next_page_token)


def _listed_scheduled(
    link: SignIn,
    request: schedule_pb.ListScheduledMessagesRequest,
    ask: Callable[[schedule_pb.ListScheduledMessagesRequest], schedule_pb.ListScheduledMessagesResponse],
) -> schedule_pb.ListScheduledMessagesResponse:
    answer = ask(_limited(link.visible, request))
    if link.visible.is_whole:
        return answer
    seen = [each for each in answer.messages if link.visible.holds(each.topic)]
    return schedule_pb.ListScheduledMessagesResponse(messages=seen, next_page_token=answer.next_page_token)


# By method: what its caller may see.
DECIDED: Mapping[ShardMethod[Any, Any], Decide] = {
    GET_RECORD: _record,
    GET_RECORDS: _records,
    STATUSES: _whole,  # only an operator may ask for it
    ARCHIVE_PROBLEM: _whole,
    LIST_QUEUES: _listed_queues,
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
    LIST_TRANSACTIONS: _listed_transactions,
    LIST_SCHEDULED: _listed_scheduled,
    KNOWN_OFFSET: _whole,  # decides on a message that the caller sees
    DELAY_LEVELS: _whole,
}


class VisibleGroups:
    """A GroupKeeper."""

    def __init__(self, groups: GroupKeeper, visible: VisibleTopics) -> None:
        self._groups = groups
        self._visible = visible

    def settings(self, choice: GroupChoice, deadline: Deadline) -> GroupPage[GroupSettings]:
        """See the port; groups that the caller may not see are left out."""
        return self._visible_part(choice, lambda part: self._groups.settings(part, deadline))

    def facts(self, consumer_group: str, deadline: Deadline) -> GroupFacts:
        """See the port; without the topics that the caller may not see, and members that consume nothing else."""
        self._check(consumer_group)
        facts = self._groups.facts(consumer_group, deadline)
        members = [
            dataclasses.replace(member, subscriptions=subscriptions)
            for member in facts.members
            if (subscriptions := tuple(each for each in member.subscriptions if self._visible.holds(each[0])))
        ]
        is_whole = [member.subscriptions for member in members] == [member.subscriptions for member in facts.members]
        return dataclasses.replace(
            facts,
            members=members if not self._visible.is_whole else facts.members,
            # They name members.
            problems=facts.problems if is_whole or self._visible.is_whole else (),
            queues=[queue for queue in facts.queues if self._visible.holds(queue.topic)],
        )

    def positions(self, consumer_group: str, topic: str, deadline: Deadline) -> Sequence[Position]:
        """See the port."""
        self._check(consumer_group)
        positions = self._groups.positions(consumer_group, topic, deadline)
        return [each for each in positions if self._visible.holds(each.topic)]

    def commit(
        self, consumer_group: str, positions: Sequence[Position], deadline: Deadline, *, begins: bool = False
    ) -> None:
        """See the port."""
        self._check(consumer_group)
        for each in positions:
            self._visible.check(each.topic)
        self._groups.commit(consumer_group, positions, deadline, begins=begins)

    def see_topics(self, deadline: Deadline) -> None:
        """See the port."""
        self._groups.see_topics(deadline)

    def send_back(
        self, request: consumer_pb.SendBackMessagesRequest, deadline: Deadline
    ) -> consumer_pb.SendBackMessagesResponse:
        """See the port."""
        self._check(request.consumer_group)
        self._visible.check(request.topic)
        return self._groups.send_back(request, deadline)

    def lock(self, request: consumer_pb.LockQueuesRequest, deadline: Deadline) -> consumer_pb.LockQueuesResponse:
        """See the port."""
        self._check(request.consumer_group)
        for queue in request.queues:
            self._visible.check(queue.topic)
        return self._groups.lock(request, deadline)

    def reset(self, question: ResetQuestion, deadline: Deadline) -> Sequence[Reset]:
        """See the port."""
        self._check(question.consumer_group)
        self._visible.check(question.topic)
        return self._groups.reset(question, deadline)

    def update(self, settings: GroupSettings, deadline: Deadline) -> None:
        """See the port."""
        self._check(settings.consumer_group)
        self._groups.update(settings, deadline)

    def make(self, settings: GroupSettings, deadline: Deadline) -> None:
        """See the port."""
        self._check(settings.consumer_group)
        self._groups.make(settings, deadline)

    def delete(self, consumer_group: str, deadline: Deadline) -> None:
        """See the port."""
        self._check(consumer_group)
        self._groups.delete(consumer_group, deadline)

    def track(self, message: object, choice: GroupChoice, deadline: Deadline) -> GroupPage[Track]:
        """See the port; groups that the caller may not see are left out."""
        return self._visible_part(choice, lambda part: self._groups.track(message, part, deadline))

    def _visible_part(
        self, choice: GroupChoice, ask: Callable[[GroupChoice], GroupPage[OfGroup]]
    ) -> GroupPage[OfGroup]:
        """A page that is as full as one of a shard without other groups, and does not say that there are any."""
        if self._visible.access.groups is None:
            return ask(choice)
        seen: list[OfGroup] = []
        part = dataclasses.replace(choice, count_max=PAGE_SIZE_MAX)
        while True:
            page = ask(part)
            seen += [each for each in page.items if not each.consumer_group or self._holds(each.consumer_group)]
            if len(seen) > choice.count_max or not page.has_more:
                return GroupPage(seen[: choice.count_max], len(seen) > choice.count_max)
            part = dataclasses.replace(part, after=page.items[-1].consumer_group)

    def _holds(self, consumer_group: str) -> bool:
        return self._visible.access.allows_group(consumer_group)

    def _check(self, consumer_group: str) -> None:
        if not self._holds(consumer_group):
            raise self._visible.refusal(f"for consumer group {consumer_group!r}", group=consumer_group)
