"""Asks the consumer services of all shards. What a shard has to say is never left out in silence."""

from collections.abc import Iterable, Sequence

from gateway.ports.chain import Answer, Request, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards
from gateway.queries.completeness import ShardOutcome
from gateway.queries.page import check_topic
from store.errors import GroupNotFoundError, InvalidArgumentError, ServiceUnavailableError, StoreError
from store.format.topic import OPEN_SYSTEM_TOPICS, is_system_group, is_system_topic

GROUP_CHARACTERS_MAX = 255


def ask_groups(shard: Shard, method: ShardMethod[Request, Answer], request: Request, deadline: Deadline) -> Answer:
    """What the shard's consumer service answers; ServiceUnavailableError when it has none."""
    if not shard.has(method):
        raise ServiceUnavailableError(
            f"shard {shard.broker_name} has no consumer service: name its address in the gateway's settings.",
            service="consumer",
            brokerName=shard.broker_name,
        )
    return shard.call(method, request, deadline)


def ask_all(
    shards: Shards, method: ShardMethod[Request, Answer], request: Request, deadline: Deadline
) -> list[tuple[str, Answer | StoreError]]:
    """What the consumer service of each shard answers: with the shard's name, in order."""
    within = deadline.for_one_of(len(shards))
    answers = shards.fan_out.ask(shards, lambda shard: ask_groups(shard, method, request, within))
    return [(shard.broker_name, answer) for shard, answer in zip(shards, answers, strict=True)]


def outcomes_of(answers: Sequence[tuple[str, object]]) -> list[ShardOutcome]:
    """How each shard took part. A shard that does not know the group has answered."""
    return [
        ShardOutcome(name, answer, complete=False)
        if isinstance(answer, StoreError) and not isinstance(answer, GroupNotFoundError)
        else ShardOutcome(name)
        for name, answer in answers
    ]


def raise_failure(answers: Sequence[tuple[str, object]], absent: tuple[type[StoreError], ...], what: str) -> None:
    """Raise the first failure, with the names of all shards that failed; errors in `absent` are no failures.

    Args:
        answers: from `ask_all`.
        absent: what a shard says that has nothing to do.
        what: what the other shards have done, in words; empty: nothing was to be changed.
    """
    failed = [
        (name, answer) for name, answer in answers if isinstance(answer, StoreError) and not isinstance(answer, absent)
    ]
    if not failed:
        return
    names = ", ".join(name for name, _ in failed)
    first = failed[0][1]
    if len(answers) == 1:
        raise first
    done = [name for name, answer in answers if not isinstance(answer, StoreError)]
    told = f" {', '.join(done)}: {what}." if what and done else ""
    error = type(first)(f"{first.message} Shards that failed: {names}.{told} The call may be repeated.")
    error.metadata = {**first.metadata, "brokerNames": names}
    raise error from first


def answered(answers: Sequence[tuple[str, Answer | StoreError]]) -> list[tuple[str, Answer]]:
    """The answers without the errors."""
    return [(name, answer) for name, answer in answers if not isinstance(answer, StoreError)]


def first_names(names: Iterable[str], page_size: int, *, has_more: bool) -> tuple[list[str], bool]:
    """The first names of all shards, which are among the first ones of each, and whether there are more.

    Args:
        names: those of the shards' pages.
        page_size: how many are wanted.
        has_more: whether some shard has more than its page.
    """
    ordered = sorted(names)
    return ordered[:page_size], has_more or len(ordered) > page_size


def check_group(consumer_group: str) -> None:
    """InvalidArgumentError for a text that is no group's name by its length; the consumer service checks the rest."""
    if not consumer_group:
        raise InvalidArgumentError("consumer_group is empty: name a group.", field="consumer_group")
    if len(consumer_group) > GROUP_CHARACTERS_MAX:
        raise InvalidArgumentError(
            f"consumer_group has {len(consumer_group)} characters: at most {GROUP_CHARACTERS_MAX} are possible.",
            field="consumer_group",
        )


def group_not_found(consumer_group: str) -> GroupNotFoundError:
    """The error for an unknown group."""
    return GroupNotFoundError(f"There is no consumer group {consumer_group!r}.", consumerGroup=consumer_group)


def check_users_group(consumer_group: str) -> None:
    """As `check_group`, and for a group of the broker itself: nobody consumes for it, moves it or changes it from here."""
    check_group(consumer_group)
    if is_system_group(consumer_group):
        raise InvalidArgumentError(
            f"the consumer group {consumer_group[:64]} belongs to the system: use another one.", field="consumer_group"
        )


def check_consumed_topic(topic: str) -> None:
    """InvalidArgumentError for a topic that no group consumes: what services keep there is theirs. Finding shows it."""
    check_topic(topic)
    if is_system_topic(topic) and topic not in OPEN_SYSTEM_TOPICS:
        raise InvalidArgumentError(
            f"topic {topic} belongs to the system: no group consumes it; read it without a group.", field="topic"
        )
