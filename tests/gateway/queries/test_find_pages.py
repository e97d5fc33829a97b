"""The pages of a find beside a scan over all records: each match once, whatever happens between two pages."""

from collections import Counter
from dataclasses import replace

import pytest

from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries import find_in_shard
from gateway.queries.find_message import find_message
from gateway.queries.find_places import Place, from_fields, to_fields
from gateway.queries.limits import PAGE_BYTES_MAX
from gateway.queries.page_token import PageTokens
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError, InvalidPageTokenError, ServiceUnavailableError
from store.format.record import Record
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.queries.test_find_message import all_pages, find, found, offset_msg_id, scan, with_properties

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
    monkeypatch.setattr(find_in_shard, "TOPIC_COUNT_MAX", 7)
    monkeypatch.setattr(find_in_shard, "NAMED_COUNT_MAX", 2)
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
    from gateway.queries import matches

    monkeypatch.setattr(matches, "CANDIDATE_ROUNDS_MAX", 2)
    monkeypatch.setattr(find_in_shard, "NAMED_COUNT_MAX", named_max)
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
