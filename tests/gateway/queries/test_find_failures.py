"""Finds in which a shard stops answering, once or for good: each match at most once, and the pages end."""

from collections import Counter

import pytest

from gateway.ports.shards import Shards
from gateway.queries.find_message import FindAnswer
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.queries.test_find_message import all_pages, find, offset_msg_id, with_properties
from tests.gateway.queries.test_find_pages import COMMON, common_log


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
