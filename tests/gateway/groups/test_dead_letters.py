"""Dead letters sent again, over shards in memory: pages, what cannot be sent, and that a run ends."""

from dataclasses import replace

import pytest

from gateway.delivery import queue_end
from gateway.groups.dead_letters import Letter, Resending, ResendQuestion
from gateway.ports.delivery import message_filter
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import (
    GroupNotFoundError,
    IllegalFilterError,
    InvalidMessageError,
    InvalidPageTokenError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from tests.gateway.delivery.memory_delivery import pulled_of
from tests.gateway.groups.memory_groups import MemoryGroups, group_settings
from tests.gateway.memory_shard import MemoryShard, with_log_end

QUESTION = ResendQuestion("g", message_filter(""), TimeWindow())


def letter_of(record) -> Letter:
    return Letter(str(record.queue_offset), record.store_time_millis, "T" if record.queue_offset != 5 else "")


class Sends:
    """An Appending that keeps what it got; `bad` are positions that cannot be sent."""

    def __init__(self):
        self.sent = []
        self.bad = set()
        self.failure = None

    def append(self, broker_name, letters, deadline):
        if self.failure is not None:
            raise self.failure
        if any(letter.queue_offset in self.bad for letter in letters):
            raise InvalidMessageError("too large", field="body")
        self.sent += [letter.queue_offset for letter in letters]
        return [f"new-{letter.queue_offset}" for letter in letters]


class Letters:
    """A shard whose group `g` has ten dead letters."""

    def __init__(self, records, fan_out, tokens):
        model = records[0]
        self.records = [
            replace(
                model,
                topic="%DLQ%g",
                queue_id=0,
                queue_offset=number,
                commit_log_offset=number * model.store_size_bytes,
                store_time_millis=1_000 * number,
            )
            for number in range(10)
        ]
        self.groups = MemoryGroups(MemoryShard(self.records))
        self.groups.groups["g"] = group_settings("g")
        self.sends = Sends()
        self.fan_out = fan_out
        self.resending = Resending(
            Shards([self.groups.shard("broker-a")], fan_out), tokens, self.pull, letter_of, self.sends
        )

    def with_log_end(self, log_end_offset):
        """The shards, with a log that ends there."""

        class LogEnd:
            def is_written_at(self, commit_log_offset, deadline=None):
                return None

            def offset(self, request, deadline):
                return log_end_offset

        return Shards([with_log_end(self.groups.shard("broker-a"), LogEnd())], self.fan_out)

    def pull(self, broker_name, ask, deadline):
        found = self.records[ask.queue_offset : ask.queue_offset + ask.max_messages]
        status = gateway_pb.PULL_STATUS_FOUND if found else gateway_pb.PULL_STATUS_NO_NEW_MSG
        return pulled_of(found, ask.queue_offset + len(found), 0, len(self.records), status)


@pytest.fixture
def letters(records, fan_out, tokens) -> Letters:
    return Letters(records, fan_out, tokens)


def ids(resent) -> list[str]:
    return [each.letter.offset_msg_id for each in resent]


def test_pages_send_each_letter_once_and_in_order_but_the_one_that_names_no_topic(letters, deadline):
    token, pages = "", []
    while True:
        resent, token = letters.resending.resend(replace(QUESTION, max_messages=4), token, deadline)
        pages.append(ids(resent))
        if not token:
            break

    assert pages == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9"]]
    assert letters.sends.sent == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_dry_run_names_all_and_sends_none(letters, deadline):
    resent, token = letters.resending.resend(replace(QUESTION, dry_run=True), "", deadline)

    assert ids(resent) == [str(number) for number in range(10)]
    assert not any(each.new_offset_msg_id for each in resent)
    assert (token, letters.sends.sent) == ("", [])


def test_what_is_given_up_again_meanwhile_is_not_sent_again_by_the_same_run(letters, deadline):
    _, token = letters.resending.resend(replace(QUESTION, max_messages=4), "", deadline)
    last = letters.records[-1]
    letters.records.append(
        replace(last, queue_offset=10, commit_log_offset=last.commit_log_offset + last.store_size_bytes)
    )

    resent, token = letters.resending.resend(replace(QUESTION, max_messages=100), token, deadline)

    assert ids(resent)[-1] == "9"
    assert token == ""


def test_a_letter_that_cannot_be_sent_ends_the_page_before_it_and_then_fails_by_itself(letters, deadline):
    letters.sends.bad = {2}

    resent, token = letters.resending.resend(QUESTION, "", deadline)

    assert (ids(resent), letters.sends.sent) == (["0", "1"], [0, 1])
    with pytest.raises(InvalidMessageError):
        letters.resending.resend(QUESTION, token, deadline)
    assert letters.sends.sent == [0, 1]


def test_a_window_of_store_times_chooses_the_letters(letters, deadline):
    resent, token = letters.resending.resend(replace(QUESTION, window=TimeWindow(2_000, 4_000)), "", deadline)

    assert (ids(resent), token) == (["2", "3", "4"], "")


def test_a_failed_append_is_an_error_when_nothing_was_sent(letters, deadline):
    letters.sends.failure = ServiceUnavailableError("away")

    with pytest.raises(ServiceUnavailableError):
        letters.resending.resend(QUESTION, "", deadline)


def test_a_shard_that_is_away_is_an_error_and_its_letters_are_not_passed_over(letters, deadline):
    letters.groups.memory.failures["list_queues"] = ServiceUnavailableError("away")

    with pytest.raises(ServiceUnavailableError):
        letters.resending.resend(QUESTION, "", deadline)
    assert letters.sends.sent == []


def test_a_group_without_dead_letters_has_none_and_an_unknown_one_is_not_found(letters, fan_out, tokens, deadline):
    groups = MemoryGroups()
    groups.groups["g"] = group_settings("g")
    resending = Resending(Shards([groups.shard("broker-a")], fan_out), tokens, letters.pull, letter_of, letters.sends)

    assert resending.resend(QUESTION, "", deadline) == ([], "")
    with pytest.raises(GroupNotFoundError):
        resending.resend(replace(QUESTION, consumer_group="no-such"), "", deadline)


def test_a_bad_expression_was_taken_where_there_is_no_dead_letter_to_try_it_on(letters, fan_out, tokens, deadline):
    groups = MemoryGroups(MemoryShard([]))
    groups.groups["g"] = group_settings("g")
    asked = []

    def pull(broker_name, ask, deadline):
        asked.append(ask)
        if ask.filter.sql == "a >":
            raise IllegalFilterError("the expression ends too early", expression="a >")
        raise TopicNotFoundError("there is no message in this shard")

    resending = Resending(Shards([groups.shard("broker-a")], fan_out), tokens, pull, letter_of, letters.sends)

    with pytest.raises(IllegalFilterError):
        resending.resend(replace(QUESTION, filter=message_filter("a >", is_sql=True)), "", deadline)

    assert resending.resend(replace(QUESTION, filter=message_filter("a > 1", is_sql=True)), "", deadline) == ([], "")
    assert resending.resend(QUESTION, "", deadline) == ([], "")
    assert len(asked) == 2
    late = replace(QUESTION, filter=message_filter("a >", is_sql=True), window=TimeWindow(begin_millis=1 << 40))
    elsewhere = Resending(Shards([letters.groups.shard("broker-a")], fan_out), tokens, pull, letter_of, letters.sends)
    with pytest.raises(IllegalFilterError):  # none was given up since then
        elsewhere.resend(late, "", deadline)


def test_a_token_of_a_dry_run_is_not_taken_for_sending(letters, deadline):
    _, token = letters.resending.resend(replace(QUESTION, dry_run=True, max_messages=2), "", deadline)

    with pytest.raises(InvalidPageTokenError):
        letters.resending.resend(QUESTION, token, deadline)


def test_letters_that_the_consumer_service_had_not_seen_were_passed_over(letters, deadline, monkeypatch):
    seen_count, looks = 6, []

    def pull(broker_name, ask, deadline):
        nonlocal seen_count
        looks.append(ask.queue_offset)
        if looks[-3:] == [6, 6, 6]:
            seen_count = 10
        found = letters.records[ask.queue_offset : min(ask.queue_offset + ask.max_messages, seen_count)]
        status = gateway_pb.PULL_STATUS_FOUND if found else gateway_pb.PULL_STATUS_NO_NEW_MSG
        return pulled_of(found, ask.queue_offset + len(found), 0, seen_count, status, seen_offset=seen_count)

    monkeypatch.setattr(letters.resending, "_pull", pull)
    monkeypatch.setattr(letters.resending, "_shards", letters.with_log_end(10))
    resent, token = letters.resending.resend(QUESTION, "", deadline)
    assert (ids(resent), token) == ([str(number) for number in range(10)], "")

    seen_count, looks = 6, [7]
    monkeypatch.setattr(queue_end, "BEHIND_SECONDS_MAX", 0.05)
    monkeypatch.setattr(letters.resending, "_shards", letters.with_log_end(11))
    with pytest.raises(ServiceUnavailableError, match="is not known"):
        letters.resending.resend(replace(QUESTION, window=TimeWindow(9_000)), "", deadline)


def test_a_topic_of_dead_letters_that_was_not_seen_yet_was_taken_for_an_empty_one(letters, deadline, monkeypatch):
    def pull(broker_name, ask, deadline):
        raise TopicNotFoundError("no messages", seenOffset=6)

    monkeypatch.setattr(queue_end, "BEHIND_SECONDS_MAX", 0.05)
    monkeypatch.setattr(letters.resending, "_pull", pull)
    monkeypatch.setattr(letters.resending, "_shards", letters.with_log_end(10))
    with pytest.raises(ServiceUnavailableError):
        letters.resending.resend(QUESTION, "", deadline)


def test_queues_that_were_being_built_hid_dead_letters(letters, deadline):
    letters.groups.memory.catching_up = True
    with pytest.raises(ServiceUnavailableError, match="being built"):
        letters.resending.resend(QUESTION, "", deadline)
    assert letters.sends.sent == []
