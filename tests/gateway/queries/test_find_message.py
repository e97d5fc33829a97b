"""FindMessage beside a scan over all records: any id or key, whatever its topic.

The pages of a find beside a scan over all records: each match once, whatever happens between two pages.

Finds in which a shard stops answering, once or for good: each match at most once, and the pages end.
"""

from collections import Counter
from dataclasses import replace

import pytest

from gateway.ports.shard import store_millis
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries import find_message as finding
from gateway.queries.find_message import FindAnswer, Place, find_message, from_fields, to_fields
from gateway.queries.page import PAGE_BYTES_MAX, PageTokens
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError, InvalidPageTokenError, ServiceUnavailableError, TopicNotFoundError
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
    texts = {offset_msg_id(record) for record in records[::211]} | {
        r.unique_key for r in records[::223] if r.unique_key
    }
    texts |= {key for record in records[::97] for key in record.keys}
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
    monkeypatch.setattr(finding, "TOPIC_COUNT_MAX", 1)
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


COMMON = "in-many-topics"


def common_log(records, topic_count: int, each: int) -> list[Record]:
    """A log whose records have one key, in so many topics in turn, far more of them in the first."""
    plain = [record for record in records if record.topic == "b_log"][: topic_count * each]
    log = []
    for number, record in enumerate(plain):
        topic = f"t{number % topic_count:03d}" if number % 3 else "t000"
        log.append(replace(with_properties(record, KEYS=COMMON), topic=topic))
    return log


def shown(pages) -> list[tuple[int, gateway_pb.MatchedBy]]:
    return [match for page in pages for match in found(page)]


@pytest.mark.parametrize("page_size", [1, 3, 7, 64])
@pytest.mark.parametrize("topic_count", [1, 3, 40])
def test_the_pages_are_the_matches_in_the_order_of_the_log(records, fan_out, deadline, page_size, topic_count) -> None:
    log = common_log(records, topic_count, 80 // topic_count + 1)
    pages = all_pages(Shards([MemoryShard(log).shard()], fan_out), COMMON, deadline, page_size)

    assert shown(pages) == [(record.commit_log_offset, gateway_pb.MATCHED_BY_KEY) for record in reversed(log)]
    assert [page.completeness for page in pages[:-1]] == [message_pb2.COMPLETENESS_TRUNCATED] * (len(pages) - 1)
    assert pages[-1].completeness == message_pb2.COMPLETENESS_COMPLETE


def test_every_key_of_the_store_has_all_its_pages(records, fan_out, deadline) -> None:
    shards = Shards([MemoryShard(records).shard()], fan_out)
    counts = Counter(key for record in records for key in record.keys)
    for key, _ in counts.most_common(6):
        assert shown(all_pages(shards, key, deadline, 17)) == scan(records, key), key


def test_later_pages_ask_only_for_topics_that_have_more(records, fan_out, deadline) -> None:
    memory = MemoryShard(records)
    key = Counter(key for record in records for key in record.keys).most_common(1)[0][0]
    first = find(Shards([memory.shard()], fan_out), key, deadline, page_size=2)
    memory.calls.clear()
    find(Shards([memory.shard()], fan_out), key, deadline, page_size=2, page_token=first.next_page_token)

    with_key = {record.topic for record in records if key in record.keys}
    assert memory.calls.count("search") == len(with_key) < len({record.topic for record in records})
    assert "list_queues" not in memory.calls


@pytest.mark.parametrize("topic_count", [2, 30])
def test_a_writer_between_two_pages_changes_nothing(records, fan_out, deadline, topic_count) -> None:
    log = common_log(records, topic_count, 120 // topic_count)
    growing = log[: len(log) // 2]
    rest = iter(log[len(log) // 2 :])
    memory = [MemoryShard(growing)]

    def append() -> None:
        growing.extend(record for record, _ in zip(rest, range(3), strict=False))
        memory[0] = MemoryShard(list(growing))

    class Now:
        def now(self):
            return Shards([memory[0].shard()], fan_out)

    wanted = [(record.commit_log_offset, gateway_pb.MATCHED_BY_KEY) for record in reversed(growing)]
    pages = [find(Now().now(), COMMON, deadline, page_size=4)]
    while pages[-1].next_page_token:
        append()
        pages.append(find(Now().now(), COMMON, deadline, page_size=4, page_token=pages[-1].next_page_token))

    assert shown(pages) == wanted


def test_two_shards_and_one_that_fails_on_the_first_page(records, fan_out, deadline) -> None:
    log = common_log(records, 12, 5)
    other = MemoryShard([replace(record, store_time_millis=record.store_time_millis + 7) for record in log])
    shards = Shards([MemoryShard(log).shard("a"), other.shard("b")], fan_out)
    wanted = Counter((name, record.commit_log_offset) for name in "ab" for record in log)
    other.failures["search"] = ServiceUnavailableError("down")
    seen: Counter[tuple[str, int]] = Counter()

    pages = all_pages(shards, COMMON, deadline, 9, between=other.failures.clear)
    for page in pages:
        seen.update((entry.broker_name, entry.record.commit_log_offset) for entry, _ in page.entries)

    assert seen == wanted
    assert pages[0].completeness == message_pb2.COMPLETENESS_PARTIAL


def test_the_message_by_its_id_is_there_once_on_all_pages(records, fan_out, deadline) -> None:
    log = common_log(records, 20, 4)
    text = offset_msg_id(log[30])
    log = [with_properties(record, KEYS=f"{COMMON} {text}") for record in log]
    pages = all_pages(Shards([MemoryShard(log).shard()], fan_out), text, deadline, 5)

    assert shown(pages) == scan(log, text)
    assert shown(pages)[0] == (log[30].commit_log_offset, gateway_pb.MATCHED_BY_OFFSET_MSG_ID)


@pytest.mark.parametrize("page_size", [1, 2])
def test_one_id_in_several_shards_has_a_page_for_each(records, fan_out, deadline, page_size) -> None:
    log = [
        with_properties(record, KEYS=offset_msg_id(records[7])) if 3 < n < 9 else record
        for n, record in enumerate(records[:12])
    ]
    shards = Shards([MemoryShard(log).shard(name) for name in "abc"], fan_out)
    pages = all_pages(shards, offset_msg_id(log[7]), deadline, page_size)

    by_id = [how for _, how in shown(pages)].count(gateway_pb.MATCHED_BY_OFFSET_MSG_ID)
    assert (by_id, len(shown(pages))) == (3, 15)
    assert (
        len({(entry.broker_name, entry.record.commit_log_offset) for page in pages for entry, _ in page.entries}) == 15
    )


def test_groups_of_topics_follow_one_another(records, fan_out, deadline, monkeypatch) -> None:
    monkeypatch.setattr(finding, "TOPIC_COUNT_MAX", 7)
    monkeypatch.setattr(finding, "NAMED_COUNT_MAX", 2)
    log = common_log(records, 30, 4)
    pages = all_pages(Shards([MemoryShard(log).shard()], fan_out), COMMON, deadline, 3)

    assert sorted(shown(pages)) == sorted((record.commit_log_offset, gateway_pb.MATCHED_BY_KEY) for record in log)
    assert max(page.topic_count for page in pages) == 7


def test_time_that_is_over_ends_a_page_and_not_the_find(records, fan_out, deadline) -> None:
    log = common_log(records, 30, 4)
    memory = MemoryShard(log)
    slow = replace(deadline, clock=lambda: deadline.at_seconds - 1_000 + 0.01 * len(memory.calls))
    slow = replace(slow, allowed_seconds=1_000.0)
    pages = all_pages(Shards([memory.shard()], fan_out), COMMON, slow, 50, max_millis=100)

    assert sorted(shown(pages)) == sorted((record.commit_log_offset, gateway_pb.MATCHED_BY_KEY) for record in log)
    assert len(pages) > 3
    assert pages[0].topic_count < 10


@pytest.mark.parametrize("named_max", [0, 8])
def test_a_topic_full_of_another_key_of_the_same_hash_does_not_stop_the_pages(
    records, fan_out, deadline, named_max, monkeypatch
) -> None:
    """`AaAa` and `BBBB` have one hash; more candidates of the other key than one call gets past."""
    from gateway.queries import by_key

    monkeypatch.setattr(by_key, "CANDIDATE_ROUNDS_MAX", 2)
    monkeypatch.setattr(finding, "NAMED_COUNT_MAX", named_max)
    plain = [record for record in records if record.topic == "b_log"]
    plain = (plain * 4)[:600]
    log, offset = [], 0
    for number, record in enumerate(plain):
        key = "AaAa" if number < 5 or number % 100 == 50 else "BBBB"
        moved = replace(with_properties(record, KEYS=key), topic=f"t{number % 2}", commit_log_offset=offset)
        log.append(moved)
        offset += moved.store_size_bytes + 64
    pages = all_pages(Shards([MemoryShard(log).shard()], fan_out), "AaAa", deadline, 4)

    wanted = [record.commit_log_offset for record in reversed(log) if "AaAa" in record.keys]
    assert [offset for offset, _ in shown(pages)] == wanted


def test_a_token_is_of_one_question(records, fan_out, deadline) -> None:
    shards = Shards([MemoryShard(records).shard()], fan_out)
    key = Counter(key for record in records for key in record.keys).most_common(1)[0][0]
    token = find(shards, key, deadline, page_size=1).next_page_token
    for arguments in (
        {"text": "other"},
        {"text": key, "topic": "b_log"},
        {"text": key, "page_token": token[:7] + ("A" if token[7] != "A" else "B") + token[8:]},
    ):
        with pytest.raises(InvalidPageTokenError):
            find(shards, deadline=deadline, **{"page_token": token, **arguments})
    with pytest.raises(InvalidArgumentError):
        find(shards, key, deadline, max_millis=-1)


def test_a_shard_that_a_token_knows_and_the_gateway_does_not_is_partial(records, fan_out, deadline) -> None:
    log = common_log(records, 3, 9)
    both = Shards([MemoryShard(log).shard("a"), MemoryShard(log).shard("b")], fan_out)
    token = find(both, COMMON, deadline, page_size=5).next_page_token
    answer = find(Shards([MemoryShard(log).shard("a")], fan_out), COMMON, deadline, page_token=token)

    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [outcome.broker_name for outcome in answer.outcomes if outcome.error] == ["b"]


def test_places_are_what_their_fields_say() -> None:
    places = {
        "a": Place("", "t9", 77, {"t:1": 5, "订单": 6}),
        "b:c": Place("t3", named={"%RETRY%g": 1}, is_last=True),
        "d": Place("z", is_last=True),
    }
    fields = PageTokens("s").open(PageTokens("s").seal("m", {}, to_fields(places)), "m", {})
    assert from_fields(fields) == places
    assert [place.is_done for place in places.values()] == [False, False, True]


def test_a_page_full_by_bytes_has_a_token_for_the_rest(records, fan_out, deadline) -> None:
    class Large(MemoryShard):
        """Each record fills more than half a page."""

        def get_many(self, commit_log_offsets, body_bytes_max, deadline):
            found = super().get_many(commit_log_offsets, body_bytes_max, deadline)
            for one in found:
                one.body = bytes(PAGE_BYTES_MAX // 2 + 1)
            return found

    ((key, _),) = Counter(key for record in records for key in record.keys).most_common(1)
    shards = Shards([Large(records).shard()], fan_out)

    answer = find_message(shards, PageTokens("s"), key, "", TimeWindow(), page_size_asked=5, deadline=deadline)

    assert len(answer.entries) == 1
    assert answer.next_page_token


class FlakyShard(MemoryShard):
    """Does not answer some calls of one method, counted from 1."""

    method = "search"
    failing = range(0)
    call_count = 0

    def _called(self, name, deadline) -> None:
        super()._called(name, deadline)
        if name == self.method:
            self.call_count += 1
            if self.call_count in self.failing:
                raise ServiceUnavailableError("down", service=name)


class DeadTopicShard(MemoryShard):
    """From the second question on, the index says nothing about one topic."""

    dead_topic = ""
    asked_count = 0

    def search(self, topic, key, window, **arguments):
        if topic == self.dead_topic:
            self.asked_count += 1
            if self.asked_count > 1:
                raise ServiceUnavailableError("dead", service="index")
        return super().search(topic, key, window, **arguments)


def flaky(log, method: str, failing: range) -> FlakyShard:
    shard = FlakyShard(log)
    shard.method, shard.failing = method, failing
    return shard


def shown_counts(pages: list[FindAnswer]) -> Counter[tuple[str, int]]:
    return Counter((entry.broker_name, entry.record.commit_log_offset) for page in pages for entry, _ in page.entries)


def patient_pages(shards: Shards, text: str, deadline, page_size: int) -> list[FindAnswer]:
    """All pages for a caller who asks for a page again when there was no answer."""
    pages: list[FindAnswer] = []
    token, refused_count = "", 0
    while not pages or token:
        try:
            pages.append(find(shards, text, deadline, page_size=page_size, page_token=token))
        except ServiceUnavailableError:
            refused_count += 1
            assert refused_count < 3, "it fails once"
            continue
        token = pages[-1].next_page_token
        assert len(pages) < 500, "the pages do not end"
    return pages


@pytest.mark.parametrize("failing_call", [1, 5, 9])
def test_what_a_shard_had_found_before_it_failed_was_shown_on_two_pages(
    records, fan_out, deadline, failing_call
) -> None:
    log = common_log(records, 12, 5)
    shard = flaky(log, "search", range(failing_call, failing_call + 1))
    pages = all_pages(Shards([MemoryShard(log).shard("a"), shard.shard("b")], fan_out), COMMON, deadline, 9)

    assert shown_counts(pages) == Counter((name, record.commit_log_offset) for name in "ab" for record in log)
    assert pages[0].completeness == message_pb2.COMPLETENESS_PARTIAL
    assert pages[0].topic_count == len({record.topic for record in log})
    assert {entry.broker_name for entry, _ in pages[0].entries} == {"a"}


@pytest.mark.parametrize("method", ["search", "get_many"])
def test_a_topic_that_failed_once_in_the_middle_of_a_page_brought_back_all_others(
    records, fan_out, deadline, method
) -> None:
    """More topics than a token names: then one byte says where all of them go on."""
    log = common_log(records, 30, 4)
    want = Counter(("a", record.commit_log_offset) for record in log)
    early_count = 0
    for failing_call in range(25, 60):
        shards = Shards([flaky(log, method, range(failing_call, failing_call + 1)).shard("a")], fan_out)
        pages = patient_pages(shards, COMMON, deadline, 25)
        assert shown_counts(pages) == want, failing_call
        partial = [page for page in pages if page.completeness == message_pb2.COMPLETENESS_PARTIAL]
        assert all(page.next_page_token and page.outcomes[0].error for page in partial), failing_call
        early_count += bool(partial)
    assert early_count, "none failed in the middle"


def test_the_message_by_its_id_was_shown_again_when_its_shard_failed_behind_it(records, fan_out, deadline) -> None:
    log = common_log(records, 12, 5)
    text = offset_msg_id(log[30])
    log = [with_properties(record, KEYS=f"{COMMON} {text}") for record in log]
    shard = flaky(log, "search", range(4, 5))
    pages = all_pages(Shards([shard.shard("a"), MemoryShard(log).shard("b")], fan_out), text, deadline, 7)

    assert shown_counts(pages) == Counter((name, record.commit_log_offset) for name in "ab" for record in log)
    assert [how for _, how in pages[0].entries].count(gateway_pb.MATCHED_BY_OFFSET_MSG_ID) == 2


def test_a_shard_without_room_for_its_message_by_id_that_fails_too_shows_it_later(records, fan_out, deadline) -> None:
    log = common_log(records, 12, 5)
    text = offset_msg_id(log[30])
    shard = flaky(log, "search", range(4, 5))
    pages = all_pages(Shards([MemoryShard(log).shard("a"), shard.shard("b")], fan_out), text, deadline, 1)

    assert shown_counts(pages) == Counter((name, log[30].commit_log_offset) for name in "ab")


@pytest.mark.parametrize("topic_count", [3, 30])
def test_a_topic_that_fails_for_ever_does_not_keep_the_pages_from_ending(
    records, fan_out, deadline, topic_count
) -> None:
    log = common_log(records, topic_count, 120 // topic_count)
    shard = DeadTopicShard(log)
    shard.dead_topic = "t000"  # the one with most matches
    pages = all_pages(Shards([shard.shard("a"), MemoryShard(log).shard("b")], fan_out), COMMON, deadline, 10)
    shown = shown_counts(pages)

    assert max(shown.values()) == 1
    assert all(("b", record.commit_log_offset) in shown for record in log)
    assert pages[-1].completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [outcome.broker_name for outcome in pages[-1].outcomes if outcome.error] == ["a"]


def test_a_shard_alone_whose_topic_fails_for_ever_says_so(records, fan_out, deadline) -> None:
    log = common_log(records, 30, 4)
    shard = DeadTopicShard(log)
    shard.dead_topic = "t000"
    shards = Shards([shard.shard()], fan_out)
    pages = [find(shards, COMMON, deadline, page_size=60)]
    with pytest.raises(ServiceUnavailableError, match="dead"):
        while pages[-1].next_page_token:
            pages.append(find(shards, COMMON, deadline, page_size=60, page_token=pages[-1].next_page_token))

    assert pages[0].entries
    assert len(pages) < 3
    assert max(shown_counts(pages).values()) == 1
