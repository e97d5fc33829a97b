"""The topics that every broker has, beside the rows of a table."""

from services.rocketmq.system_topics import system_topics, with_rows
from store.format.topic import TopicConfig


def test_a_broker_has_its_own_topics_with_rocketmqs_values() -> None:
    own = system_topics("c", "b", 8)
    assert {name: (row.read_queue_count, row.perm) for name, row in own.items() if row.perm == 7} == {
        "TBW102": (8, 7),
        "b": (1, 7),
        "c": (16, 7),
    }
    assert own["SCHEDULE_TOPIC_XXXX"].write_queue_count == 18
    assert "TBW102" not in system_topics("c", "b", 0)


def test_a_row_of_its_own_topic_keeps_its_queues_and_stays_one_to_inherit_from() -> None:
    found = with_rows(system_topics("c", "b", 8), [TopicConfig("TBW102", 4, 4), TopicConfig("t", 2, 2)])
    assert (found["TBW102"].read_queue_count, found["TBW102"].perm) == (4, 7)
    assert (found["t"].read_queue_count, found["t"].perm) == (2, 6)
