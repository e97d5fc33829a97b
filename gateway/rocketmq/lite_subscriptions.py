"""SyncLiteSubscription: which lite topics a client wants, told to the consumer service of every shard.

A lite topic lies in one shard, and clients do not know in which. So each shard keeps all subscriptions, as records of its log,
and a client that has said them need not say them again after a restart of anything. Official clients say all of them every 30 s
all the same: a shard that was away learns them then.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeAlias

from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.polls import not_answered
from gateway.ports.delivery import Delivering, DeliveringSource
from gateway.ports.groups import is_of_lite_topics
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.clients import NOT_NOW, Clients
from gateway.rocketmq.names import check_lite_topic, topic_of
from gateway.rocketmq.status import RefusedError
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.convert import TIMESTAMP_SECONDS_MAX
from store.errors import GroupNotFoundError, InvalidArgumentError, StoreError

ACTIONS = {
    v2.PARTIAL_ADD: pb.LITE_ACTION_PARTIAL_ADD,
    v2.PARTIAL_REMOVE: pb.LITE_ACTION_PARTIAL_REMOVE,
    v2.COMPLETE_ADD: pb.LITE_ACTION_COMPLETE_ADD,
    v2.COMPLETE_REMOVE: pb.LITE_ACTION_COMPLETE_REMOVE,
}
_BY_POLICY = {v2.OffsetOption.MIN: pb.LiteOffset(earliest=True), v2.OffsetOption.MAX: pb.LiteOffset(latest=True)}
# A call has its own deadline; this is only the last resort.
LAST_RESORT_SECONDS = 1.0

Outcome: TypeAlias = pb.SyncLiteSubscriptionResponse | StoreError
ShardOutcome: TypeAlias = tuple[Delivering, Outcome]


class LiteSubscriptions:
    """Tells the shards; thread-safe.

    Args:
        shards: the consumer services.
        clients: know the settings of groups.
        members: are told of lite topics that they have lost.
    """

    def __init__(self, shards: DeliveringSource, clients: Clients, members: MessagingMembers) -> None:
        self._shards = shards
        self._clients = clients
        self._members = members

    def sync(self, request: v2.SyncLiteSubscriptionRequest, member: pb.Client, seconds: float) -> None:
        """Set or change the subscriptions of a client; they are in the log of every shard that answers when this returns.

        A shard that is away learns them with the next call of the client that says all of them. That call does not say where
        the client's group begins, so a call that does fails then.

        Args:
            request: what the client says.
            member: the client.
            seconds: for the shards, which are asked side by side.

        Raises:
            RefusedError: the group consumes no lite topics of this topic, or a name is illegal.
            StoreError: a shard refuses, or none took it; some may have.
        """
        question = _question(request, member)
        group = self._clients.group(member)
        if group.lite.bind_topic != question.topic:
            group = self._clients.group(member, ask_again=True)
        if not is_of_lite_topics(group):
            raise RefusedError(v2.BAD_REQUEST, f"regular group cannot use LITE mode: {group.consumer_group}")
        if group.lite.bind_topic != question.topic:
            raise RefusedError(
                v2.BAD_REQUEST,
                f"lite group {group.consumer_group} is expected to bind topic {question.topic}, but actual is "
                f"{group.lite.bind_topic}: subscribe to lite topics of that one",
            )
        outcomes = self._ask_all(self._shards.all(), question, seconds)
        unknown = [shard for shard, each in outcomes if isinstance(each, GroupNotFoundError)]
        if unknown:
            outcomes = [row for row in outcomes if not isinstance(row[1], GroupNotFoundError)]
            outcomes += self._make_and_ask(unknown, group, question, seconds)
        lost = {name for _, each in outcomes if not isinstance(each, StoreError) for name in each.lost_lite_topics}
        self._members.tell_lost(member.client_id, sorted(lost))
        _raise_failure([each for _, each in outcomes], may_miss=not question.HasField("begins"))

    def _make_and_ask(
        self,
        shards: Sequence[Delivering],
        group: pb.GroupSettings,
        question: pb.SyncLiteSubscriptionRequest,
        seconds: float,
    ) -> list[ShardOutcome]:
        """The same for shards that do not know the group yet."""
        failed: list[ShardOutcome] = []
        made: list[Delivering] = []
        for shard in shards:
            try:
                shard.make_group(group, question.caller, seconds)
                made.append(shard)
            except StoreError as error:
                failed.append((shard, error))
        return failed + self._ask_all(made, question, seconds)

    @staticmethod
    def _ask_all(
        shards: Sequence[Delivering], question: pb.SyncLiteSubscriptionRequest, seconds: float
    ) -> list[ShardOutcome]:
        waits: list[Future[Outcome]] = [Future() for _ in shards]
        for shard, wait in zip(shards, waits, strict=True):
            shard.sync_lite(question, seconds, wait.set_result)
        outcomes: list[ShardOutcome] = []
        for shard, wait in zip(shards, waits, strict=True):
            try:
                outcomes.append((shard, wait.result(seconds + LAST_RESORT_SECONDS)))
            except FutureTimeoutError:
                outcomes.append((shard, not_answered(shard.broker_name)))
        return outcomes


def _question(request: v2.SyncLiteSubscriptionRequest, member: pb.Client) -> pb.SyncLiteSubscriptionRequest:
    if request.action not in ACTIONS:
        raise RefusedError(v2.BAD_REQUEST, f"the action {request.action} is not known: use one of the contract")
    for lite_topic in request.lite_topic_set:
        check_lite_topic(lite_topic)
    question = pb.SyncLiteSubscriptionRequest(
        consumer_group=member.consumer_group,
        topic=topic_of(request.topic),
        client_id=member.client_id,
        action=ACTIONS[request.action],
        lite_topics=dict.fromkeys(request.lite_topic_set),
        version=request.version,
        caller=member.caller,
    )
    if request.action == v2.PARTIAL_ADD and request.HasField("offset_option"):
        begins = _begins(request.offset_option)
        if begins is not None:
            question.begins.CopyFrom(begins)
    return question


def _begins(option: v2.OffsetOption) -> pb.LiteOffset | None:
    """Where a group goes on; None: where it stands.

    A broker takes `timestamp` for nothing; here it is the first message stored at or after it.
    """
    kind = option.WhichOneof("offset_type")
    if kind == "policy":
        return _BY_POLICY.get(option.policy)
    if kind is None:
        return None
    number = int(getattr(option, kind))
    if number < 0:
        raise RefusedError(v2.ILLEGAL_OFFSET, f"the offset option's {kind} is {number}: it must be 0 or more")
    if kind == "offset":
        return pb.LiteOffset(queue_offset=number)
    if kind == "tail_n":
        return pb.LiteOffset(last_count=number)
    seconds = min(number // 1000, TIMESTAMP_SECONDS_MAX)
    return pb.LiteOffset(time=Timestamp(seconds=seconds, nanos=number % 1000 * 1_000_000))


def _raise_failure(outcomes: Sequence[Outcome], *, may_miss: bool) -> None:
    """The error of the call; what shards miss that are away they are told later.

    Args:
        outcomes: of the shards.
        may_miss: whether this is so for this call.
    """
    failures = [each for each in outcomes if isinstance(each, StoreError)]
    refusals = [each for each in failures if not isinstance(each, NOT_NOW)]
    if refusals:
        raise refusals[0]
    if failures and not (may_miss and len(failures) < len(outcomes)):
        raise failures[0]
    if not outcomes:
        raise InvalidArgumentError("no shard has a consumer service", field="topic")
