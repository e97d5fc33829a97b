"""The settings, members and lag of consumer groups, over all shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.groups.asking import (
    answered,
    ask_all,
    check_group,
    check_users_group,
    first_names,
    group_not_found,
    outcomes_of,
    raise_failure,
)
from gateway.ports.deadline import Deadline
from gateway.ports.groups import (
    DELETE_GROUP,
    DELIVERY_ATTEMPTS_DEFAULT,
    GET_GROUP,
    LIST_GROUPS,
    UPDATE_GROUP,
    are_same,
    attempts_max_of,
    changed_lite_settings,
    default_settings,
    lag_count,
    priority_factor_of,
    settings_that_count,
)
from gateway.ports.shard import Shard, search_offset
from gateway.ports.shards import Shards, list_built_queues
from gateway.queries.completeness import ShardOutcome, raise_first_error
from gateway.queries.page import PageTokens, check_topic, page_size
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import GroupNotFoundError, InvalidArgumentError, PermissionDeniedError, StoreError
from store.format.delivery.consumer_files import PRIORITY_FACTOR_MAX, check_lite_attributes, check_priority_factor
from store.format.topic import RETRY_PREFIX, dead_letter_topic_of

# RocketMQ's retryMaxTimes is an int of Java; so many retries never happen.
DELIVERY_ATTEMPTS_MAX = 1 << 20
LIST_METHOD = "ListConsumerGroups"
_AFTER = "after"


@dataclass(frozen=True, slots=True)
class Group:
    """A group as all shards together have it.

    Attributes:
        settings: those that count: of the first shard in which somebody has set some.
        members: by id.
        queues: with the shards' names, by topic, shard and queue.
        retry_count: messages in its retry topics that are not consumed.
        dead_letter_count: messages in its dead-letter topic.
        problems: in words.
        outcomes: how the shards took part.
        lite_topics: of a group of lite topics, by topic; the sums of the shards, without subscribers.
    """

    settings: pb.GroupSettings
    members: Sequence[pb.Client]
    queues: Sequence[tuple[str, pb.GroupQueue]]
    retry_count: int
    dead_letter_count: int
    problems: Sequence[str]
    outcomes: Sequence[ShardOutcome]
    lite_topics: Sequence[pb.LiteSummary] = ()


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """New settings of a group; None: as before.

    `lite_attributes` are RocketMQ's attributes `lite.*` with their new values; an empty one takes it away, and others are as
    before.
    """

    ordered: bool | None = None
    delivery_attempts_max: int | None = None
    consume_enabled: bool | None = None
    broadcast: bool | None = None
    priority_factor: int | None = None
    lite_attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupList:
    """A page of groups by name; the token is empty at the end."""

    groups: Sequence[pb.GroupSettings]
    next_page_token: str
    outcomes: Sequence[ShardOutcome]


def list_groups(
    shards: Shards,
    tokens: PageTokens,
    choice: pb.ListGroupsRequest,
    page_token: str,
    deadline: Deadline,
) -> GroupList:
    """A page of the groups of all shards.

    Args:
        shards: all shards.
        tokens: seals and opens page tokens.
        choice: which groups; `page_size` is as a caller has it, and the token says behind which.
        page_token: of the page before.
        deadline: the caller's.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: the request is wrong.
        StoreError: no shard answered.
    """
    if choice.topic:
        check_topic(choice.topic)
    sealed = {"topic": choice.topic, "name_contains": choice.name_contains}
    asked = pb.ListGroupsRequest(
        topic=choice.topic,
        name_contains=choice.name_contains,
        page_size=page_size(choice.page_size, "page_size"),
        after=str(tokens.open(page_token, LIST_METHOD, sealed).get(_AFTER, "")),
    )
    answers = ask_all(shards, LIST_GROUPS, asked, deadline)
    outcomes = outcomes_of(answers)
    found = answered(answers)
    if not found:
        raise_first_error(outcomes)
    by_name: dict[str, pb.GroupSettings] = {}
    for _, page in found:
        for each in page.groups:
            by_name[each.consumer_group] = settings_that_count([by_name.get(each.consumer_group, each), each])
    shown, has_more = first_names(by_name, asked.page_size, has_more=any(page.has_more for _, page in found))
    token = tokens.seal(LIST_METHOD, sealed, {_AFTER: shown[-1]}) if shown and has_more else ""
    return GroupList([by_name[name] for name in shown], token, outcomes)


def describe_group(shards: Shards, consumer_group: str, deadline: Deadline) -> Group:
    """A group.

    Raises:
        GroupNotFoundError: no shard knows it.
        StoreError: no shard that answered knows it, and another did not answer.
    """
    check_group(consumer_group)
    answers = ask_all(shards, GET_GROUP, pb.GetGroupRequest(consumer_group=consumer_group), deadline)
    found = answered(answers)
    if not found:
        raise_failure(answers, (GroupNotFoundError,), "")
        raise group_not_found(consumer_group)
    outcomes = outcomes_of(answers)
    sizes = shards.fan_out.ask(shards, lambda shard: _dead_letter_count(shard, consumer_group, deadline))
    outcomes = [
        replace(outcome, error=size, complete=False)
        if outcome.error is None and isinstance(size, StoreError)
        else outcome
        for outcome, size in zip(outcomes, sizes, strict=True)
    ]
    unread = shards.fan_out.ask(found, lambda row: _unread(shards.named(row[0]), row[1], deadline))
    failed = {name: each for (name, _), each in zip(found, unread, strict=True) if isinstance(each, StoreError)}
    outcomes = [
        replace(each, error=failed[each.broker_name], complete=False) if each.broker_name in failed else each
        for each in outcomes
    ]
    rows = [(name, queue) for name, facts in found for queue in facts.queues]
    rows += [
        (name, queue)
        for (name, _), each in zip(found, unread, strict=True)
        if not isinstance(each, StoreError)
        for queue in each
    ]
    queues = sorted(
        rows,
        key=lambda row: (row[1].topic, row[0], row[1].queue_id),
    )
    return Group(
        settings_that_count([facts.settings for _, facts in found]),
        _members(found),
        queues,
        sum(max(lag_count(queue), 0) for _, queue in queues if queue.topic.startswith(RETRY_PREFIX)),
        sum(size for size in sizes if isinstance(size, int)),
        [*_problems(found), *_positions_behind_ends(consumer_group, queues)],
        outcomes,
        _summed([each for _, facts in found for each in facts.lite_topics]),
    )


def update_group(shards: Shards, consumer_group: str, change: SettingsChange, deadline: Deadline) -> pb.GroupSettings:
    """Set the settings of a group in every shard; the settings now.

    Raises:
        StoreError: a shard failed; the call may be repeated.
    """
    check_users_group(consumer_group)
    attempts_max = change.delivery_attempts_max
    if attempts_max is not None and not 0 <= attempts_max <= DELIVERY_ATTEMPTS_MAX:
        raise InvalidArgumentError(
            f"delivery_attempts_max is {attempts_max}: 1 to {DELIVERY_ATTEMPTS_MAX} are possible, and 0 for "
            f"{DELIVERY_ATTEMPTS_DEFAULT}.",
            field="delivery_attempts_max",
        )
    factor = change.priority_factor
    if factor is not None:
        check_priority_factor(factor)
    check_lite_attributes(change.lite_attributes)
    only = pb.ListGroupsRequest(consumer_group=consumer_group, page_size=1)
    answers = ask_all(shards, LIST_GROUPS, only, deadline)
    before = [each for _, page in answered(answers) for each in page.groups]
    if not before:  # a shard that did not answer may know it
        raise_failure(answers, (), "")
    base = settings_that_count([*before, default_settings(consumer_group)])
    settings = pb.GroupSettings(
        consumer_group=consumer_group,
        ordered=base.ordered if change.ordered is None else change.ordered,
        delivery_attempts_max=attempts_max_of(base)
        if attempts_max is None
        else attempts_max or DELIVERY_ATTEMPTS_DEFAULT,
        consume_enabled=base.consume_enabled if change.consume_enabled is None else change.consume_enabled,
        broadcast=base.broadcast if change.broadcast is None else change.broadcast,
    )
    factor = priority_factor_of(base) if factor is None else factor
    if factor != PRIORITY_FACTOR_MAX:
        settings.priority_factor = factor
    lite = changed_lite_settings(base, change.lite_attributes)
    if lite is not None:
        settings.lite.CopyFrom(lite)
    written = ask_all(shards, UPDATE_GROUP, pb.UpdateGroupRequest(settings=settings), deadline)
    raise_failure(written, (), "the settings are set")
    return settings


def delete_group(shards: Shards, consumer_group: str, deadline: Deadline) -> None:
    """Forget a group in every shard; StoreError when one failed, the call may be repeated."""
    check_users_group(consumer_group)
    answers = ask_all(shards, DELETE_GROUP, pb.DeleteGroupRequest(consumer_group=consumer_group), deadline)
    raise_failure(answers, (GroupNotFoundError,), "the group is forgotten")


def _dead_letter_count(shard: Shard, consumer_group: str, deadline: Deadline) -> int:
    try:
        ranges = list_built_queues(shard, dead_letter_topic_of(consumer_group), deadline)
    except PermissionDeniedError:  # a topic that the caller may not see behaves as an absent one
        return 0
    return sum(each.max_offset - each.min_offset for each in ranges)


def _unread(shard: Shard, facts: pb.GetGroupResponse, deadline: Deadline) -> list[pb.GroupQueue]:
    """The queues with messages of the group's topics in which it has no position yet: all of them are to be consumed."""
    known = {(queue.topic, queue.queue_id) for queue in facts.queues}
    queues = []
    for topic in sorted({queue.topic for queue in facts.queues}):
        for each in list_built_queues(shard, topic, deadline):
            if (topic, each.queue_id) in known or each.max_offset == each.min_offset:
                continue
            found = search_offset(shard, topic, each.queue_id, 0, gateway_pb.BOUNDARY_LOWER, deadline)
            queue = pb.GroupQueue(
                topic=topic, queue_id=each.queue_id, min_offset=each.min_offset, max_offset=each.max_offset
            )
            if found.answer.HasField("first_store_time"):
                queue.oldest_store_time.CopyFrom(found.answer.first_store_time)
            queues.append(queue)
    return queues


def _summed(summaries: Sequence[pb.LiteSummary]) -> list[pb.LiteSummary]:
    """One for each topic: a lite topic lies in one shard."""
    by_topic: dict[str, pb.LiteSummary] = {}
    for each in summaries:
        sums = by_topic.setdefault(each.topic, pb.LiteSummary(topic=each.topic))
        sums.lite_topic_count += each.lite_topic_count
        sums.lag_count += each.lag_count
        sums.in_flight_count += each.in_flight_count
    return [by_topic[topic] for topic in sorted(by_topic)]


def _members(found: Sequence[tuple[str, pb.GetGroupResponse]]) -> list[pb.Client]:
    """Each member once: a client tells every shard that it lives."""
    by_id: dict[str, pb.Client] = {}
    for _, facts in found:
        for member in facts.clients:
            by_id.setdefault(member.client_id, member)
    return [by_id[client_id] for client_id in sorted(by_id)]


def _positions_behind_ends(consumer_group: str, queues: Sequence[tuple[str, pb.GroupQueue]]) -> Sequence[str]:
    """Positions that a client set too far, or from before a log was cut."""
    wrong = [(name, queue) for name, queue in queues if lag_count(queue) < 0]
    if not wrong:
        return ()
    name, queue = wrong[0]
    others = f", and those of {len(wrong) - 1} more queues" if len(wrong) > 1 else ""
    return [
        f"its position {queue.consumer_offset} in queue {queue.queue_id} of topic {queue.topic} in {name} lies behind the end "
        f"{queue.max_offset}{others}: messages that come before the group asks again are skipped; set the position with "
        f"`reput reset-offset -g {consumer_group} -t {queue.topic} --latest`, or with --time to a time before them"
    ]


def _problems(found: Sequence[tuple[str, pb.GetGroupResponse]]) -> list[str]:
    problems = list(dict.fromkeys(problem for _, facts in found for problem in facts.problems))
    of_shards = [(name, facts.settings) for name, facts in found]
    counted = settings_that_count([settings for _, settings in of_shards])
    different = [name for name, settings in of_shards if not are_same(settings, counted)]
    if different:
        same = next(name for name, settings in of_shards if settings is counted)
        problems.append(
            f"its settings in {', '.join(different)} differ from those in {same}: set them with UpdateConsumerGroup"
        )
    return problems
