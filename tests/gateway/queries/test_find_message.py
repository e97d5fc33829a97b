"""FindMessage beside a scan over all records: any id or key, whatever its topic."""

from dataclasses import replace

import pytest

from gateway.ports.shard import store_millis
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries import find_in_shard
from gateway.queries.find_message import FindAnswer, find_message
from gateway.queries.page_token import PageTokens
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError, ServiceUnavailableError, TopicNotFoundError
from store.format.message_id import encode_offset_msg_id
from store.format.properties import encode_properties
from store.format.record import Record
from tests.gateway.memory_shard import MemoryShard


def offset_msg_id(record: Record) -> str:
    return encode_offset_msg_id(record.store_host, record.commit_log_offset)


def with_properties(record: Record, **properties: str) -> Record:
    return replace(record, properties_bytes=encode_properties({**record.properties, **properties}))


def scan(
    records, text: str, topic: str = "", window: TimeWindow | None = None
) -> list[tuple[int, gateway_pb.MatchedBy]]:
    """(offset, what matched): the id's record first, then newest first."""
    window = window or TimeWindow()
    by_id, others = [], []
    for record in records:
        if topic not in ("", record.topic) or not window.holds(record.store_time_millis):
            continue
        if offset_msg_id(record) == text:
            by_id.append((record.commit_log_offset, gateway_pb.MATCHED_BY_OFFSET_MSG_ID))
        elif record.unique_key == text:
            others.append((record, gateway_pb.MATCHED_BY_UNIQUE_KEY))
        elif text in record.keys:
            others.append((record, gateway_pb.MATCHED_BY_KEY))
    others.sort(key=lambda item: (item[0].store_time_millis, item[0].commit_log_offset), reverse=True)
    return by_id + [(record.commit_log_offset, how) for record, how in others]


def find(shards, text, deadline, topic="", window=None, page_size=1000, page_token="", max_millis=0) -> FindAnswer:
    return find_message(
        shards,
        PageTokens("secret"),
        text,
        topic,
        window or TimeWindow(),
        page_size_asked=page_size,
        page_token=page_token,
        max_millis=max_millis,
        deadline=deadline,
    )


def all_pages(shards, text, deadline, page_size=1000, between=lambda: None, **arguments) -> list[FindAnswer]:
    """Every page; `between` is called before each but the first."""
    pages = [find(shards, text, deadline, page_size=page_size, **arguments)]
    while pages[-1].next_page_token:
        between()
        token = pages[-1].next_page_token
        pages.append(find(shards, text, deadline, page_size=page_size, page_token=token, **arguments))
        assert len(pages) < 500, "the pages do not end"
    return pages


def found(answer: FindAnswer) -> list[tuple[int, gateway_pb.MatchedBy]]:
    return [(entry.record.commit_log_offset, how) for entry, how in answer.entries]


@pytest.fixture
def shards(records, fan_out) -> Shards:
    return Shards([MemoryShard(records).shard()], fan_out)


def test_every_id_and_key_of_the_store_is_found_without_its_topic(shards, records, deadline) -> None:
    texts = {offset_msg_id(record) for record in records[::37]} | {r.unique_key for r in records[::41] if r.unique_key}
    texts |= {key for record in records[::43] for key in record.keys}
    assert len(texts) > 20
    for text in sorted(texts):
        answer = find(shards, text, deadline)
        assert found(answer) == scan(records, text), text
        assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE
    assert answer.topic_count == len({record.topic for record in records})


def test_topic_and_window_narrow_it(shards, records, deadline) -> None:
    record = next(r for r in records if r.keys)
    key, topic = record.keys[0], record.topic
    window = TimeWindow(record.store_time_millis, record.store_time_millis)
    assert found(find(shards, key, deadline, topic)) == scan(records, key, topic)
    assert found(find(shards, key, deadline, topic, window)) == scan(records, key, topic, window)
    assert found(find(shards, offset_msg_id(record), deadline, "", TimeWindow(record.store_time_millis + 1))) == []


def test_a_32_hex_id_that_is_valid_both_ways_finds_both(records, fan_out, deadline) -> None:
    first, second = [record for record in records if record.unique_key][:2]
    text = offset_msg_id(first)
    twin = with_properties(second, UNIQ_KEY=text)
    log = [twin if record is second else record for record in records]
    answer = find(Shards([MemoryShard(log).shard()], fan_out), text, deadline)
    assert found(answer) == [
        (first.commit_log_offset, gateway_pb.MATCHED_BY_OFFSET_MSG_ID),
        (second.commit_log_offset, gateway_pb.MATCHED_BY_UNIQUE_KEY),
    ]


def test_a_message_that_has_the_text_twice_is_there_once(records, fan_out, deadline) -> None:
    record = next(record for record in records if record.unique_key and record.keys)
    text = offset_msg_id(record)
    both = with_properties(record, UNIQ_KEY=text, KEYS=text)
    log = [both if each is record else each for each in records]
    answer = find(Shards([MemoryShard(log).shard()], fan_out), text, deadline)
    assert found(answer) == [(record.commit_log_offset, gateway_pb.MATCHED_BY_OFFSET_MSG_ID)]


def test_an_id_of_another_host_is_not_this_record(shards, records, deadline) -> None:
    record = records[0]
    other = encode_offset_msg_id(replace(record.store_host, port=1), record.commit_log_offset)
    assert found(find(shards, other, deadline)) == []


def test_what_does_not_fit_is_said(shards, records, deadline) -> None:
    by_key: dict[str, int] = {}
    for record in records:
        for key in set(record.keys):
            by_key[key] = by_key.get(key, 0) + 1
    key = max(by_key, key=by_key.__getitem__)
    answer = find(shards, key, deadline, page_size=2)
    assert found(answer) == scan(records, key)[:2]
    assert answer.completeness == message_pb2.COMPLETENESS_TRUNCATED


def test_a_match_by_id_that_had_no_room_was_dropped_in_silence(records, fan_out, deadline) -> None:
    """One id in two shards of one store host; no index knows it."""
    shards = Shards([MemoryShard(records).shard("a"), MemoryShard(records).shard("b")], fan_out)
    record = records[7]
    one = find(shards, offset_msg_id(record), deadline, page_size=1)
    both = find(shards, offset_msg_id(record), deadline, page_size=2)
    assert (found(one), one.completeness) == (
        [(record.commit_log_offset, gateway_pb.MATCHED_BY_OFFSET_MSG_ID)],
        message_pb2.COMPLETENESS_TRUNCATED,
    )
    assert (len(both.entries), both.completeness) == (2, message_pb2.COMPLETENESS_COMPLETE)


def test_more_topics_than_are_looked_through_is_said(shards, deadline, monkeypatch) -> None:
    monkeypatch.setattr(find_in_shard, "TOPIC_COUNT_MAX", 1)
    answer = find(shards, "no such key", deadline)
    assert (answer.completeness, answer.topic_count) == (message_pb2.COMPLETENESS_TRUNCATED, 1)


def test_a_dead_shard_is_partial_and_two_are_an_error(records, fan_out, deadline) -> None:
    record = next(record for record in records if record.keys)
    dead = MemoryShard(records, failures={"search": ServiceUnavailableError("down")})
    answer = find(Shards([MemoryShard(records).shard("a"), dead.shard("b")], fan_out), record.keys[0], deadline)
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert found(answer) == scan(records, record.keys[0])
    assert [outcome.error is not None for outcome in answer.outcomes] == [False, True]
    with pytest.raises(ServiceUnavailableError):
        find(Shards([dead.shard("b")], fan_out), record.keys[0], deadline)


def test_two_shards_merge_newest_first(records, fan_out, deadline) -> None:
    record = next(record for record in records if record.keys)
    later = [replace(each, store_time_millis=each.store_time_millis + 1) for each in records]
    shards = Shards([MemoryShard(records).shard("a"), MemoryShard(later).shard("b")], fan_out)
    times = [store_millis(entry.record) for entry, _ in find(shards, record.keys[0], deadline).entries]
    assert times == sorted(times, reverse=True)
    assert len(times) == 2 * len(scan(records, record.keys[0]))


def test_bad_questions_and_unknown_topics_are_refused(shards, deadline) -> None:
    for arguments in ({"text": ""}, {"text": "k", "topic": "a/b"}, {"text": "k", "page_size": -1}):
        with pytest.raises(InvalidArgumentError):
            find(shards, deadline=deadline, **arguments)
    with pytest.raises(TopicNotFoundError):
        find(shards, "k", deadline, topic="nobody-knows-it")
