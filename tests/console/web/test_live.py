"""Live tails: each message once, in order, from where the reader was."""

import dataclasses
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.calls import CallContext, Calls
from console.web import live
from console.web.live import SHOWN_COUNT_MAX, TailPosition, look
from gateway.ports.shards import Shards
from gateway.queries.page import PageTokens
from gateway.reput.servicer import GatewayServicer
from store.errors import InvalidArgumentError, ResourceBusyError, TopicNotFoundError
from tests.console.asking import Tags
from tests.gateway.memory_shard import MemoryShard


@pytest.fixture
def topic_records(records):
    return [record for record in records if record.topic == "b_log"]


def calls_over(records, fan_out) -> Calls:
    return Calls(GatewayServicer(Shards([MemoryShard(records).shard()], fan_out), PageTokens("x")), CallContext(30))


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


def test_with_tags_their_messages_are_shown_and_the_others_counted(topic_records, fan_out) -> None:
    wanted = ("batch", "TagB")
    expected = [record for record in topic_records if record.properties.get("TAGS") in wanted]
    assert 0 < len(expected) < len(topic_records)
    queues = {(record.queue_id, "broker-a") for record in topic_records}
    position = TailPosition({(name, queue_id): 0 for queue_id, name in queues})
    seen, passed_count, skipped_count = [], 0, 0

    while (found := look(calls_over(topic_records, fan_out), "b_log", position, wanted)).has_moved:
        seen += [message.commit_log_offset for message in found.messages]
        passed_count += found.passed_count
        skipped_count += found.skipped_count

    assert passed_count + len(expected) == len(topic_records)
    assert set(seen) <= {record.commit_log_offset for record in expected}
    assert len(set(seen)) == len(seen) == len(expected) - skipped_count


def test_a_rare_tag_of_a_busy_queue_is_not_skipped(topic_records, fan_out) -> None:
    queue = [record for record in topic_records if record.queue_id == 0]
    begin = queue[-1].queue_offset - SHOWN_COUNT_MAX  # what is before it would be skipped without tags
    counts = Counter(record.tags for record in queue)
    rare = next(r.tags for r in queue if r.tags and r.queue_offset < begin and counts[r.tags] <= SHOWN_COUNT_MAX)
    expected = [record for record in queue if record.tags == rare]

    position = TailPosition({("broker-a", 0): queue[0].queue_offset})
    looks = []
    while not looks or looks[-1].has_moved:  # a look is bounded in time
        looks.append(look(calls_over(queue, fan_out), "b_log", position, (rare,)))

    seen = [message.commit_log_offset for found in looks for message in found.messages]
    assert seen == [record.commit_log_offset for record in expected]
    assert [sum(found.skipped_count for found in looks), sum(found.passed_count for found in looks)] == [
        0,
        len(queue) - len(expected),
    ]


def test_after_an_error_the_next_look_sees_the_same_again(topic_records, fan_out, monkeypatch) -> None:
    first_of = {record.queue_id: record.queue_offset for record in reversed(topic_records)}
    begin = {("broker-a", queue_id): offset for queue_id, offset in first_of.items()}
    position = TailPosition(dict(begin))
    calls = calls_over(topic_records, fan_out)
    ask = calls.ask

    def busy(method, *rest):
        if method == calls.gateway.QueryMessageByOffset:
            raise ResourceBusyError("busy")
        return ask(method, *rest)

    monkeypatch.setattr(calls, "ask", busy)
    with pytest.raises(ResourceBusyError):
        look(calls, "b_log", position)
    assert position.next_offsets == begin


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


def events_of(text: str) -> list[tuple[str, str, str]]:
    """Name, id and data of each event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            found.append((fields["event"], fields.get("id", ""), fields["data"]))
    return found


def test_a_stream_with_tags_says_how_far_it_is(browser, topic_records, monkeypatch) -> None:
    monkeypatch.setattr(live, "STREAM_SECONDS_MAX", 0.3)
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    for name in ("SEARCH_MILLIS_MAX", "LOOK_MILLIS_MAX"):  # however slow the machine is
        monkeypatch.setattr(live, name, 5_000)
    begin = TailPosition({("broker-a", record.queue_id): 0 for record in topic_records}).to_text()

    answer = browser.get(f"/topics/b_log/tail?format=json&tag=TagA+%7C%7C+TagB&from={begin}")

    events = events_of(answer.text)
    assert events[-1][0] == "end"
    shown = [message for name, _, data in events if name == "rows" for message in json.loads(data)]
    assert shown
    assert {message["tags"] for message in shown} == {"TagA", "TagB"}
    assert len({message["commitLogOffset"] for message in shown}) == len(shown)
    named, last, count = [event for event in events if event[0] == "passed"][-1]
    assert (named, int(count) > 0) == ("passed", True)
    assert all(at > 0 for at in TailPosition.from_text(last).next_offsets.values())


def test_a_stream_says_where_it_begins_before_anything_comes(browser, topic_records, monkeypatch) -> None:
    """So that a reader who pauses before the first message goes on there."""
    monkeypatch.setattr(live, "STREAM_SECONDS_MAX", 0.1)

    ((name, position, count), _end) = events_of(browser.get("/topics/b_log/tail").text)

    ends = {("broker-a", record.queue_id): record.queue_offset + 1 for record in topic_records}
    assert (name, count, TailPosition.from_text(position).next_offsets) == ("passed", "0", ends)


def test_an_expression_of_no_tag_is_refused_and_the_page_keeps_a_good_one(browser) -> None:
    assert browser.get_json("/topics/b_log/tail?tag=%7C%7C").status == 400
    fields = [attributes for tag, attributes in Tags(browser.get("/topics/b_log?tag=A+%7C%7C+%3Cb%3E").text).tags]
    assert [field["value"] for field in fields if field.get("name") == "tag"] == ["A || <b>"]
