"""Queries by key and by unique key, against brute force over the broker fixture's log.

A message that waits is found by its unique key in the system topic where it waits, while its own topic has no copy.

Matches of one shard, and of several in one page, at the limits of a call.
"""

from dataclasses import replace

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, store_millis
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import (
    EXHAUSTED_CURSOR,
    KeyQuestion,
    MatchStream,
    merge_matches,
    query_by_key,
    query_by_unique_key,
)
from gateway.queries.page import CANDIDATE_ROUNDS_MAX, PAGE_BYTES_MAX, Page
from reput.message.v1 import message_pb2
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidPageTokenError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecordCorruptedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from store.format.properties import REAL_TOPIC, UNIQ_KEY, encode_properties
from store.format.topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.gateway.memory_shard import MemoryShard, candidates

COLLIDING_KEYS = ("AaAa", "AaBB", "BBAa", "BBBB")


@pytest.fixture
def ask(fan_out, tokens, deadline):
    def ask(shards, topic="b_order", key="AaAa", window=None, page_size=0, page_token="", of_tags=False):
        if isinstance(shards, MemoryShard):
            shards = {"broker-a": shards}
        return query_by_key(
            Shards([memory.shard(name) for name, memory in shards.items()], fan_out),
            tokens,
            topic,
            key,
            window or TimeWindow(),
            page_size_asked=page_size,
            page_token=page_token,
            deadline=deadline,
            of_tags=of_tags,
        )

    return ask


def offsets(answer):
    return [entry.record.commit_log_offset for entry in answer.entries]


def matches(records, key, topic="b_order", window=None):
    window = window or TimeWindow()
    return [
        record.commit_log_offset
        for record in reversed(records)
        if record.topic == topic and key in record.keys and window.holds(record.store_time_millis)
    ]


def all_pages(ask, shards, **question):
    answers = [ask(shards, **question)]
    while answers[-1].next_page_token:
        assert len(answers) < 1000
        answers.append(ask(shards, **{**question, "page_token": answers[-1].next_page_token}))
    return answers


def enlarged(record, body_size_bytes):
    grown = record.store_size_bytes - len(record.body) + body_size_bytes
    return replace(record, body=bytes(body_size_bytes), store_size_bytes=grown)


def spread(records, body_size_bytes):
    """The records with large bodies, at offsets that leave room for them."""
    at, placed = 0, []
    for record in records:
        placed.append(replace(enlarged(record, body_size_bytes), commit_log_offset=at))
        at += placed[-1].store_size_bytes
    return placed


@pytest.mark.parametrize("key", COLLIDING_KEYS)
@pytest.mark.parametrize("page_size", [1, 7, 64, 1000])
def test_pages_together_hold_every_match_once_newest_first(ask, records, key, page_size):
    answers = all_pages(ask, MemoryShard(records), key=key, page_size=page_size)

    assert [offset for answer in answers for offset in offsets(answer)] == matches(records, key)
    assert all(len(answer.entries) <= page_size for answer in answers)
    assert [answer.completeness for answer in answers[:-1]] == [message_pb2.COMPLETENESS_TRUNCATED] * (len(answers) - 1)
    assert answers[-1].completeness == message_pb2.COMPLETENESS_COMPLETE


@pytest.mark.parametrize("tags", ["TagA", "创建", "Aa", "none"])
def test_messages_are_found_by_their_whole_tags(ask, records, tags):
    answers = all_pages(ask, MemoryShard(records), key=tags, page_size=50, of_tags=True)

    found = [
        record.commit_log_offset for record in reversed(records) if (record.topic, record.tags) == ("b_order", tags)
    ]
    assert [offset for answer in answers for offset in offsets(answer)] == found
    assert bool(found) == (tags != "none")


def test_a_page_of_a_key_is_none_of_the_tags_with_its_text(ask, records):
    memory = MemoryShard(records)
    token = ask(memory, key="AaAa", page_size=1).next_page_token

    with pytest.raises(InvalidPageTokenError):
        ask(memory, key="AaAa", page_size=1, page_token=token, of_tags=True)


def test_page_sizes_default_to_64_are_clamped_at_1000_and_refused_below_0(ask, records):
    memory = MemoryShard(records)

    assert len(ask(memory, key="AaBB").entries) == 64
    assert len(ask(memory, key="AaBB", page_size=2**31 - 1).entries) == len(matches(records, "AaBB"))
    with pytest.raises(InvalidArgumentError) as refused:
        ask(memory, page_size=-1)
    assert refused.value.metadata["field"] == "page_size"


def test_windows_are_exact_to_the_millisecond_at_both_ends(ask, records):
    stored = sorted({r.store_time_millis for r in records if r.topic == "b_order" and "AaAa" in r.keys})
    for begin in stored[::27]:
        for end in (begin, begin + 1, stored[-1] - 1, stored[-1]):
            if begin <= end:
                window = TimeWindow(begin, end)
                expected = matches(records, "AaAa", window=window)
                assert offsets(ask(MemoryShard(records), window=window, page_size=1000)) == expected


@pytest.mark.parametrize("shard_count", [1, 2])
def test_a_flood_of_collisions_ends_the_call_with_a_token_and_paging_still_arrives(ask, records, shard_count):
    """One match lies under more colliding records than one call looks at; a second shard has one match."""
    model = next(record for record in records if record.topic == "b_order" and record.keys == ("AaAa",))
    keys = model.properties_bytes
    other = keys.replace(b"KEYS\x01AaAa", b"KEYS\x01BBBB")
    assert other != keys
    size = model.store_size_bytes
    flood = [
        replace(model, commit_log_offset=at * size, properties_bytes=keys if at == 0 else other) for at in range(5000)
    ]
    memory = MemoryShard(flood)
    other_shard = MemoryShard([replace(model, commit_log_offset=size)])
    shards = {"broker-a": memory, "broker-b": other_shard}

    answers = all_pages(ask, dict(list(shards.items())[:shard_count]), page_size=1)

    assert [offset for answer in answers for offset in offsets(answer)] == [size, 0][-shard_count:]
    assert answers[0].entries == ()
    assert answers[0].completeness == message_pb2.COMPLETENESS_TRUNCATED
    assert memory.calls.count("search") <= CANDIDATE_ROUNDS_MAX * len(answers)


def test_pages_are_cut_by_bytes_and_lose_no_body(ask, records):
    """Bodies of 1 MiB: three fit, the fourth begins the next page."""
    memory = MemoryShard(spread([r for r in records if r.topic == "b_order" and "AaAa" in r.keys][:8], 1 << 20))

    answers = all_pages(ask, memory)

    assert [len(answer.entries) for answer in answers] == [3, 3, 2]
    assert not any(entry.body_omitted for answer in answers for entry in answer.entries)


def test_a_body_that_fits_no_page_is_omitted(ask, records):
    large = spread([r for r in records if r.topic == "b_order" and "AaAa" in r.keys][:3], PAGE_BYTES_MAX + 1)
    answer = ask(MemoryShard(large))

    assert [entry.body_omitted for entry in answer.entries] == [True] * 3
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_bodies_of_collisions_take_no_room_from_matches(ask, records):
    """The rejected record's 3 MiB come first and use up what one read may carry."""
    match, collision = (
        next(r for r in records if r.topic == "b_order" and r.keys == (key,)) for key in ("AaAa", "BBBB")
    )
    memory = MemoryShard(spread([match, collision], 3 << 20))

    answer = ask(memory)

    assert [(entry.record.commit_log_offset, entry.body_omitted) for entry in answer.entries] == [(0, False)]


def test_an_unknown_topic_is_not_found_and_a_known_one_without_a_match_is_empty(ask, records):
    memory = MemoryShard(records, topics={"configured": 8})

    with pytest.raises(TopicNotFoundError):
        ask(memory, topic="nosuch")
    assert ask(memory, topic="b_order", key="nosuch").completeness == message_pb2.COMPLETENESS_COMPLETE
    assert ask(memory, topic="configured", key="nosuch").entries == ()


@pytest.mark.parametrize("topic", ["", "../../x", "a/b", "..", "x\0", "x" * 256])
def test_what_can_be_no_topic_is_refused_by_field(ask, records, topic):
    with pytest.raises(InvalidArgumentError) as refused:
        ask(MemoryShard(records), topic=topic)

    assert refused.value.metadata["field"] == "topic"


def test_an_empty_key_is_refused_by_field(ask, records):
    with pytest.raises(InvalidArgumentError) as refused:
        ask(MemoryShard(records), key="")

    assert refused.value.metadata["field"] == "key"


def test_a_key_of_megabytes_took_seconds_of_the_index(ask, records):
    """No message can have it: all its properties together have 32,767 bytes at most."""
    for key in ("k" * 32_768, "é" * 16_384):
        with pytest.raises(InvalidArgumentError) as refused:
            ask(MemoryShard(records), key=key)
        assert (refused.value.metadata["field"], refused.value.metadata["sizeBytes"]) == ("key", "32768")
    assert offsets(ask(MemoryShard(records), key="k" * 32_767)) == []


def test_a_token_serves_its_own_query_only(ask, records):
    memory = MemoryShard(records)
    token = ask(memory, page_size=2).next_page_token

    with pytest.raises(InvalidPageTokenError):
        ask(memory, key="BBBB", page_token=token)
    with pytest.raises(InvalidPageTokenError):
        ask(memory, window=TimeWindow(0, None), page_token=token)


def test_a_failure_is_never_an_empty_answer(ask, records):
    for port in ("search", "get_many"):
        with pytest.raises(ServiceUnavailableError):
            ask(MemoryShard(records, failures={port: ServiceUnavailableError("gone")}))


def test_a_damaged_candidate_makes_the_answer_partial(ask, records):
    expected = matches(records, "AaAa")
    damage = RecordCorruptedError("bad", commitLogOffset=expected[1])
    answer = ask(MemoryShard(records, damaged={expected[1]: damage}), page_size=1000)

    assert offsets(answer) == [expected[0], *expected[2:]]
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert answer.outcomes[0].error is damage


def test_candidates_that_expired_are_no_loss_and_those_behind_the_log_are(ask, records):
    found = matches(records, "AaAa")
    gone = found[-1]
    for first_offset, completeness in (
        (gone + 1, message_pb2.COMPLETENESS_COMPLETE),
        (gone, message_pb2.COMPLETENESS_PARTIAL),
    ):
        error = OffsetOutOfRangeError("outside", offset=gone, firstOffset=first_offset, lastOffset=1 << 50)
        answers = all_pages(ask, MemoryShard(records, damaged={gone: error}))

        assert [offset for answer in answers for offset in offsets(answer)] == found[:-1]
        assert answers[-1].completeness is completeness


def test_an_index_that_is_still_being_built_makes_the_answer_partial(ask, records):
    answer = ask(MemoryShard(records, catching_up=True), key="nosuch")

    assert (answer.entries, answer.completeness) == ((), message_pb2.COMPLETENESS_PARTIAL)


def test_a_passed_deadline_is_an_error(fan_out, tokens, records):
    with pytest.raises(DeadlineExceededError):
        query_by_key(
            Shards([MemoryShard(records).shard()], fan_out),
            tokens,
            "b_order",
            "AaAa",
            TimeWindow(),
            page_size_asked=0,
            page_token="",
            deadline=Deadline.after(0),
        )


def test_shards_are_merged_newest_first(ask, records):
    halves = {"broker-a": MemoryShard(records[::2]), "broker-b": MemoryShard(records[1::2])}
    ordered = sorted(
        (record.store_time_millis, name, record.commit_log_offset)
        for name, memory in halves.items()
        for record in memory.records
        if record.topic == "b_order" and "AaBB" in record.keys
    )

    answers = all_pages(ask, halves, key="AaBB", page_size=10)

    entries = [entry for answer in answers for entry in answer.entries]
    found = [(store_millis(e.record), e.broker_name, e.record.commit_log_offset) for e in entries]
    assert found == ordered[::-1]


def test_a_shard_that_fails_leaves_a_partial_answer_that_names_it(ask, records):
    gone = ServiceUnavailableError("gone", service="index")
    shards = {"broker-a": MemoryShard(records), "broker-b": MemoryShard(records, failures={"search": gone})}

    answers = all_pages(ask, shards, page_size=50)

    assert [offset for answer in answers for offset in offsets(answer)] == matches(records, "AaAa")
    assert {answer.completeness for answer in answers} == {message_pb2.COMPLETENESS_PARTIAL}
    assert [outcome.error for outcome in answers[0].outcomes] == [None, gone]


def test_a_unique_key_finds_every_copy_whatever_its_age(fan_out, tokens, deadline, records):
    shards = Shards([MemoryShard(records).shard()], fan_out)
    copies: dict[tuple[str, str], list[int]] = {}
    for record in reversed(records):
        copies.setdefault((record.topic, record.unique_key or ""), []).append(record.commit_log_offset)
    several = [name for name, found in copies.items() if name[1] and len(found) > 1]
    assert several
    for topic, unique_key in [*several, *list(copies)[:50]]:
        if unique_key:
            answer = query_by_unique_key(
                shards, tokens, topic, unique_key, page_size_asked=0, page_token="", deadline=deadline
            )
            assert offsets(answer) == copies[topic, unique_key]


def test_a_shard_of_an_earlier_page_that_is_not_known_any_more_is_named_on_every_page(records, ask):
    """It must not look as if its messages had been all."""
    of_a, of_b = MemoryShard(records), MemoryShard(records)
    first = ask({"broker-a": of_a, "broker-b": of_b}, page_size=1)

    pages = all_pages(
        lambda shards, **fields: ask(shards, page_size=1, **fields), of_a, page_token=first.next_page_token
    )

    assert len(pages) > 1
    for page in pages:
        assert page.completeness == message_pb2.COMPLETENESS_PARTIAL
        (outcome,) = [outcome for outcome in page.outcomes if outcome.broker_name == "broker-b"]
        assert "broker-b" in outcome.error.message


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
def ask_unique(fan_out, tokens, deadline):
    def ask_unique(shard, *, looks=True, page_token=""):
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

    return ask_unique


def topics(answer):
    return [entry.record.topic for entry in answer.entries]


@pytest.mark.parametrize("waiting_topic", [SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_message_is_found_where_it_waits(waiting, ask_unique, waiting_topic, is_known):
    """Also when it is the first message of its topic, which nobody knows yet."""
    answer = ask_unique(MemoryShard([waiting(waiting_topic)], topics={TOPIC: 4} if is_known else {}))
    assert topics(answer) == [waiting_topic]
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_copy_in_its_topic_is_the_answer_and_not_the_record_that_waited(waiting, ask_unique):
    shard = MemoryShard([waiting(SCHEDULE_TOPIC), waiting(TOPIC, number=1)], topics={TOPIC: 4})
    assert topics(ask_unique(shard)) == [TOPIC]


def test_a_message_of_another_topic_with_the_same_key_is_not_found(waiting, ask_unique):
    shard = MemoryShard([waiting(SCHEDULE_TOPIC, topic="Other")], topics={TOPIC: 4})
    assert topics(ask_unique(shard)) == []
    shard.topics = {}
    with pytest.raises(TopicNotFoundError):
        ask_unique(shard)


def test_only_the_topic_is_looked_at_when_nobody_says_what_a_record_waits_for(waiting, ask_unique):
    shard = MemoryShard([waiting(SCHEDULE_TOPIC)], topics={TOPIC: 4})
    assert topics(ask_unique(shard, looks=False)) == []
    shard.topics = {}
    with pytest.raises(TopicNotFoundError):
        ask_unique(shard, looks=False)


def test_a_system_topic_that_the_caller_may_not_read_hides_only_itself(waiting, ask_unique):
    class Guarded(MemoryShard):
        def search(self, topic, *arguments, **named):
            if topic == HALF_TOPIC:
                raise PermissionDeniedError("not for this caller")
            return super().search(topic, *arguments, **named)

    half = waiting(HALF_TOPIC)
    assert topics(ask_unique(Guarded([half, waiting(TIMER_TOPIC, number=1)], topics={TOPIC: 4}))) == [TIMER_TOPIC]
    assert topics(ask_unique(Guarded([half], topics={TOPIC: 4}))) == []


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
