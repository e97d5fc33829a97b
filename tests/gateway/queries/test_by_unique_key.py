"""A message that waits is found by its unique key in the system topic where it waits, while its own topic has no copy."""

from dataclasses import replace

import pytest

from gateway.ports.shards import Shards
from gateway.queries.by_unique_key import query_by_unique_key
from reput.message.v1 import message_pb2
from store.errors import PermissionDeniedError, TopicNotFoundError
from store.format.properties import REAL_TOPIC, UNIQ_KEY, encode_properties
from store.format.topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.gateway.memory_shard import MemoryShard

KEY = "0102FC0000000126AB0B15C0DB00000001"
TOPIC = "Later"


@pytest.fixture
def waiting(records):
    """Makes a record of a system topic that waits for a topic; each lies behind the one before."""

    def make(waiting_topic, topic=TOPIC, number=0):
        properties = encode_properties({UNIQ_KEY: KEY, REAL_TOPIC: topic})
        return replace(records[number], topic=waiting_topic, properties_bytes=properties)

    return make


@pytest.fixture
def ask(fan_out, tokens, deadline):
    def ask(shard, *, looks=True, page_token=""):
        return query_by_unique_key(
            Shards([shard.shard()], fan_out),
            tokens,
            TOPIC,
            KEY,
            page_size_asked=0,
            page_token=page_token,
            deadline=deadline,
            waits_for=(lambda found: found.properties.get(REAL_TOPIC, "")) if looks else None,
        )

    return ask


def topics(answer):
    return [entry.record.topic for entry in answer.entries]


@pytest.mark.parametrize("waiting_topic", [SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_message_is_found_where_it_waits(waiting, ask, waiting_topic, is_known):
    """Also when it is the first message of its topic, which nobody knows yet."""
    answer = ask(MemoryShard([waiting(waiting_topic)], topics={TOPIC: 4} if is_known else {}))
    assert topics(answer) == [waiting_topic]
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_copy_in_its_topic_is_the_answer_and_not_the_record_that_waited(waiting, ask):
    shard = MemoryShard([waiting(SCHEDULE_TOPIC), waiting(TOPIC, number=1)], topics={TOPIC: 4})
    assert topics(ask(shard)) == [TOPIC]


def test_a_message_of_another_topic_with_the_same_key_is_not_found(waiting, ask):
    shard = MemoryShard([waiting(SCHEDULE_TOPIC, topic="Other")], topics={TOPIC: 4})
    assert topics(ask(shard)) == []
    shard.topics = {}
    with pytest.raises(TopicNotFoundError):
        ask(shard)


def test_only_the_topic_is_looked_at_when_nobody_says_what_a_record_waits_for(waiting, ask):
    shard = MemoryShard([waiting(SCHEDULE_TOPIC)], topics={TOPIC: 4})
    assert topics(ask(shard, looks=False)) == []
    shard.topics = {}
    with pytest.raises(TopicNotFoundError):
        ask(shard, looks=False)


def test_a_system_topic_that_the_caller_may_not_read_hides_only_itself(waiting, ask):
    class Guarded(MemoryShard):
        def search(self, topic, *arguments, **named):
            if topic == HALF_TOPIC:
                raise PermissionDeniedError("not for this caller")
            return super().search(topic, *arguments, **named)

    half = waiting(HALF_TOPIC)
    assert topics(ask(Guarded([half, waiting(TIMER_TOPIC, number=1)], topics={TOPIC: 4}))) == [TIMER_TOPIC]
    assert topics(ask(Guarded([half], topics={TOPIC: 4}))) == []
