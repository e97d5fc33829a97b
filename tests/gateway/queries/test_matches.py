"""Matches of one shard, and of several in one page, at the limits of a call."""

from dataclasses import replace

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.matches import EXHAUSTED_CURSOR, KeyQuestion, MatchStream, merge_matches
from gateway.queries.page import Page
from store.errors import ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard, candidates


def matches_below(record, topic: str, offset: int) -> bool:
    return record.topic == topic and "AaAa" in record.keys and record.commit_log_offset < offset


class Colliding(MemoryShard):
    """Its index gives one candidate a call, never a match, and each call takes 3 seconds."""

    now = 0.0

    def search(self, topic, key, window, *, below_offset, count_max, deadline, explain=False):
        type(self).now += 3.0
        self.calls.append("search")
        offset = self.records[-len(self.calls)].commit_log_offset
        return candidates((offset,), True, self.progress_now)


def test_a_stream_begins_no_round_when_the_deadline_is_near(records) -> None:
    Colliding.now = 0.0
    shard = Colliding(records).shard()
    question = KeyQuestion("no-such-topic", "k", TimeWindow(), lambda record: True)
    stream = MatchStream(shard, question, Page(5), None, Deadline.after(10.0, lambda: Colliding.now))

    stream.advance()

    assert (stream.head, stream.failed, stream.has_more) == (None, False, True)
    assert Colliding.now == 9.0, "8 of 10 seconds were over after the third round"


def test_a_shard_at_its_end_stays_there_while_another_goes_on(records, fan_out, deadline) -> None:
    keyed = [record for record in records if record.keys and record.topic == "b_log"]
    key = next(iter(keyed[-1].keys))
    shards = Shards([MemoryShard(keyed[-1:]).shard("short"), MemoryShard(records).shard("long")], fan_out)
    question = KeyQuestion("b_log", key, TimeWindow(), lambda record: key in record.keys)

    page = merge_matches(shards, question, {"short": EXHAUSTED_CURSOR}, 1, deadline)
    count = sum(key in record.keys for record in records if record.topic == "b_log")

    assert [entry.broker_name for entry in page.entries] == ["long"]
    assert (page.cursors.get("short") == EXHAUSTED_CURSOR) == (count > 1)


def test_cursors_are_those_of_each_shard(records, fan_out, deadline) -> None:
    shards = Shards([MemoryShard(records).shard("a"), MemoryShard([]).shard("b")], fan_out)
    topic = max({r.topic for r in records}, key=lambda name: sum(r.topic == name and "AaAa" in r.keys for r in records))
    question = KeyQuestion(topic, "AaAa", TimeWindow(), lambda record: "AaAa" in record.keys)

    page = merge_matches(shards, question, {}, 1, deadline)

    match = page.entries[0].record.commit_log_offset
    following = max(r.commit_log_offset for r in records if matches_below(r, topic, match))
    assert following < page.cursors["a"] <= match, "candidates of other keys behind the match are used up"
    assert page.cursors["b"] == EXHAUSTED_CURSOR


def test_a_problem_of_the_index_makes_the_shard_incomplete_and_is_its_error(records, deadline) -> None:
    problem = ServiceUnavailableError("a part cannot be read")

    class Lacking(MemoryShard):
        def search(self, *arguments, **named):
            return replace(super().search(*arguments, **named), problem=problem)

    question = KeyQuestion("b_order", "AaAa", TimeWindow(), lambda record: "AaAa" in record.keys)
    stream = MatchStream(Lacking(records).shard(), question, Page(5), None, deadline)

    stream.advance()

    assert stream.head is not None
    assert (stream.outcome().complete, stream.outcome().error) == (False, problem)


def test_a_later_round_for_older_candidates_made_an_answer_complete_that_lacked_the_newest(records, deadline) -> None:
    """Only the first round looks at the newest records. The index had reached them when the second one asked for older ones."""
    behind, reached = BuildProgress(10, 20, catching_up=False), BuildProgress(20, 20, catching_up=False)

    class Reaching(MemoryShard):
        def search(self, *arguments, below_offset, **named):
            found = super().search(*arguments, below_offset=below_offset, **named)
            offsets = found.answer.commit_log_offsets[:1]
            progress = behind if below_offset is None else reached
            return candidates(offsets, bool(offsets), progress)

    record = next(record for record in records if record.keys)
    shard = Reaching(records)
    question = KeyQuestion(record.topic, record.keys[0], TimeWindow(), lambda record: False)
    stream = MatchStream(shard.shard(), question, Page(5), None, deadline)

    stream.advance()

    assert shard.calls.count("search") > 1
    assert (stream.outcome().complete, stream.outcome().progress) == (False, behind)
