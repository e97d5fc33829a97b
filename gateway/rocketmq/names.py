"""The names that clients may use: RocketMQ's TopicValidator and GrpcValidator."""

import re
from functools import lru_cache

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.status import RefusedError
from store.format.topic import (
    DLQ_PREFIX,
    LITE_TOPIC_NAME,
    RETRY_OR_DLQ_TOPIC_LENGTH_MAX,
    RETRY_PREFIX,
    TOPIC_LENGTH_MAX,
    is_system_group,
    is_system_topic,
)

NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
# Retry and dead-letter topics are named after a group, and a topic.
OWNED_TOPIC_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
GROUP_CHARACTERS_MAX = 120
# The longest name of a lite topic, which clients are told (`LITE_TOPIC_NAME`), and as much as a text shows of a longer one.
LITE_TOPIC_BYTES_MAX = NAME_SHOWN = 64
# Names of topics that are known to be valid; some 200 bytes each.
TOPIC_COUNT_MAX = 4_096


def full_name(resource: v2.Resource) -> str:
    """The name under which RocketMQ stores a topic of a namespace (`NamespaceUtil`)."""
    name: str = resource.name
    return f"{resource.resource_namespace}%{name}" if resource.resource_namespace else name


def topic_of(resource: v2.Resource) -> str:
    """The full name of a topic.

    Raises:
        RefusedError: ILLEGAL_TOPIC.
    """
    return _checked_topic(full_name(resource))


@lru_cache(TOPIC_COUNT_MAX)
def _checked_topic(topic: str) -> str:
    """The name, if it is one; each message names its topic."""
    _check(topic, "topic", v2.ILLEGAL_TOPIC)
    is_owned = topic.startswith(OWNED_TOPIC_PREFIXES)
    characters_max = RETRY_OR_DLQ_TOPIC_LENGTH_MAX if is_owned else TOPIC_LENGTH_MAX
    if len(topic) > characters_max:
        raise RefusedError(v2.ILLEGAL_TOPIC, f"the topic has {len(topic)} characters: use at most {characters_max}")
    if is_system_topic(topic):
        raise RefusedError(v2.ILLEGAL_TOPIC, f"the topic {topic} belongs to the system: use another one")
    return topic


def group_of(resource: v2.Resource) -> str:
    """The full name of a consumer group.

    Raises:
        RefusedError: ILLEGAL_CONSUMER_GROUP.
    """
    group = full_name(resource)
    _check(group, "consumer group", v2.ILLEGAL_CONSUMER_GROUP)
    if len(group) > GROUP_CHARACTERS_MAX:
        raise RefusedError(
            v2.ILLEGAL_CONSUMER_GROUP,
            f"the consumer group has {len(group)} characters: use at most {GROUP_CHARACTERS_MAX}",
        )
    if is_system_group(group) or is_system_group(resource.name):
        raise RefusedError(
            v2.ILLEGAL_CONSUMER_GROUP, f"the consumer group {group} belongs to the system: use another one"
        )
    return group


def check_lite_topic(lite_topic: str) -> None:
    """RefusedError, ILLEGAL_LITE_TOPIC, for what is no name of a lite topic."""
    if LITE_TOPIC_NAME.fullmatch(lite_topic) is None:
        raise RefusedError(
            v2.ILLEGAL_LITE_TOPIC,
            f"the lite topic {lite_topic[:NAME_SHOWN]!r} is no name: 1 to {LITE_TOPIC_BYTES_MAX} letters, digits, _ and - are",
        )


def _check(name: str, what: str, code: "v2.Code") -> None:
    if not name.strip():
        raise RefusedError(code, f"the {what} is empty: name it")
    if NAME.fullmatch(name) is None:
        raise RefusedError(code, f"the {what} has other characters than letters, digits and %|_-: use these")
