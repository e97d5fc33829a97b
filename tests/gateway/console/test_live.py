"""Live tails: each message once, in order, from where the reader was."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.calls import CallContext, Calls
from gateway.console.live import SHOWN_COUNT_MAX, TailPosition, look
from gateway.page_token import PageTokens
from gateway.servicer import GatewayServicer
from gateway.shards import Shards
from store.errors import InvalidArgumentError, TopicNotFoundError
from tests.gateway.test_servicer import ProtoShard


@pytest.fixture
def topic_records(records):
    return [record for record in records if record.topic == "b_log"]


def calls_over(records, fan_out) -> Calls:
    return Calls(GatewayServicer(Shards([ProtoShard(records).shard()], fan_out), PageTokens("x")), CallContext(30))


def test_the_first_look_shows_nothing_old_and_the_following_all_that_came(topic_records, fan_out) -> None:
    position = TailPosition()
    begin = len(topic_records) - 30

    assert look(calls_over(topic_records[:begin], fan_out), "b_log", position).messages == []
    seen = []
    for end in (begin + 7, begin + 7, begin + 20, begin + 30):
        found = look(calls_over(topic_records[:end], fan_out), "b_log", position)
        assert found.skipped_count == 0
        seen += [message.commit_log_offset for message in found.messages]

    assert sorted(seen) == [record.commit_log_offset for record in topic_records[begin:]]
    assert len(set(seen)) == len(seen)


def test_more_than_is_shown_is_counted(topic_records, fan_out) -> None:
    queue = [record for record in topic_records if record.queue_id == 0]
    position = TailPosition({("broker-a", 0): queue[0].queue_offset})

    found = look(calls_over(queue, fan_out), "b_log", position)

    assert found.skipped_count + len(found.messages) == len(queue)
    assert len(found.messages) == SHOWN_COUNT_MAX
    assert found.messages[-1].queue_offset == queue[-1].queue_offset


def test_a_queue_that_appears_is_shown_from_its_begin(topic_records, fan_out) -> None:
    position = TailPosition()
    first = topic_records[0]
    others = [dataclasses.replace(record) for record in topic_records if record.queue_id != first.queue_id][:3]
    look(calls_over([first], fan_out), "b_log", position)

    found = look(calls_over(sorted([first, *others], key=lambda r: r.commit_log_offset), fan_out), "b_log", position)

    assert {m.commit_log_offset for m in found.messages} == {record.commit_log_offset for record in others}


def test_an_unknown_topic_is_said(records, fan_out) -> None:
    with pytest.raises(TopicNotFoundError):
        look(calls_over(records, fan_out), "nope", TailPosition())


@given(st.dictionaries(st.tuples(st.text(min_size=1), st.integers(0, 9999)), st.integers(0, 2**62), max_size=5))
def test_a_position_comes_back_from_its_text(next_offsets) -> None:
    text = TailPosition(next_offsets).to_text()

    assert TailPosition.from_text(text).next_offsets == next_offsets
    assert text.isascii()
    assert "\n" not in text


@pytest.mark.parametrize("text", ["x", "a:b:c", "a:1", "a:1:2:3"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        TailPosition.from_text(text)
