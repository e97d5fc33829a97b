"""The topics that a broker of RocketMQ has from its start (`TopicConfigManager.init`, 5.5.0)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from store.format.topic import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_QUEUE_COUNTS,
    TRACE_TOPIC,
    TopicConfig,
    reply_topic_of,
)

AUTO_CREATE_TOPIC = "TBW102"
# TopicConfig's value where the broker sets none.
QUEUE_COUNT_DEFAULT = 16
BENCHMARK_QUEUE_COUNT = 1024


def system_topics(cluster_name: str, broker_name: str, auto_create_queue_count: int) -> dict[str, TopicConfig]:
    """Those topics by name, before the broker has changed any.

    Args:
        cluster_name: RocketMQ's brokerClusterName; a topic has this name.
        broker_name: a topic has this name, too.
        auto_create_queue_count: queues of a topic that its first message creates; 0: none is created, and there is no TBW102.
    """
    open_to_all = PERM_INHERIT | PERM_READ | PERM_WRITE
    rows = [
        _topic("SELF_TEST_TOPIC", 1),
        _topic("BenchmarkTest", BENCHMARK_QUEUE_COUNT),
        _topic(cluster_name, QUEUE_COUNT_DEFAULT, open_to_all),
        _topic(broker_name, 1, open_to_all),
        _topic("OFFSET_MOVED_EVENT", 1),
        _topic(SCHEDULE_TOPIC, SYSTEM_TOPIC_QUEUE_COUNTS[SCHEDULE_TOPIC]),
        _topic(TRACE_TOPIC, 1),
        _topic(reply_topic_of(cluster_name), 1),
        _topic(HALF_TOPIC, 1),
        _topic(OP_HALF_TOPIC, 1),
    ]
    if auto_create_queue_count:
        rows.append(_topic(AUTO_CREATE_TOPIC, auto_create_queue_count, open_to_all))
    return {row.topic: row for row in rows}


def with_rows(own: Mapping[str, TopicConfig], rows: Iterable[TopicConfig]) -> dict[str, TopicConfig]:
    """All topics of a broker by name: its own, and those of its table, which may have rows of its own ones.

    A row that a message made of one of its own lacks the right to be inherited from, which a broker gives at each start.
    """
    topics = dict(own)
    for row in rows:
        inherit = own[row.topic].perm & PERM_INHERIT if row.topic in own else 0
        topics[row.topic] = replace(row, perm=row.perm | inherit) if inherit & ~row.perm else row
    return topics


def _topic(name: str, queue_count: int, perm: int = PERM_READ | PERM_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_count, queue_count, perm)
