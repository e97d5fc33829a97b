"""SearchMessages over the broker's log: the same as brute force, in whatever pages, and honest about what it lacks."""

import threading
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.ports.deadline import Deadline
from gateway.ports.shards import FanOut
from gateway.ports.time_window import TimeWindow
from gateway.search.filter import Conditions, hex_needle
from gateway.search.question import Budgets, OffsetWindow, SearchQuestion
from gateway.search.scan import CallerGoneError
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from services.serving.calls.cancellation import Cancellation
from store.errors import (
    BrokerNotFoundError,
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidPageTokenError,
    QueueNotFoundError,
    RecordCorruptedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from tests.gateway.search.searching import (
    Searcher,
    TaggedShard,
    brute_force,
    found_offsets,
    inflated,
    scanned_positions,
)
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "b_order"
ALL = SearchQuestion(TOPIC)
# What an expression says, said again in Python.
CEL = (
    ("message.queue_offset % 3 == 0", lambda r: r.queue_offset % 3 == 0),
    (
        "'color' in message.properties && message.properties.color == 'red'",
        lambda r: r.properties.get("color") == "red",
    ),
    ("message.keys.exists(k, k.endsWith('7'))", lambda r: any(key.endswith("7") for key in r.keys)),
    ("size(message.body) > 100 || message.tags == '创建'", lambda r: len(inflated(r)) > 100 or r.tags == "创建"),
    ("message.body_text.contains('1')", lambda r: "1" in inflated(r).decode("utf-8", "replace")),
    (
        "message.store_time_millis % 2 == 0 && message.unique_key != ''",
        lambda r: r.store_time_millis % 2 == 0 and bool(r.unique_key),
    ),
)


@pytest.fixture(scope="module")
def logs(records):
    """The broker's log, dealt out to two shards by queue."""
    return {
        "broker-b": [record for record in records if record.queue_id % 2],
        "broker-a": [record for record in records if record.queue_id % 2 == 0],
    }


@pytest.fixture(scope="module")
def searcher(logs, sandbox):
    fan_out = FanOut(4)
    yield Searcher({name: TaggedShard(log) for name, log in logs.items()}, fan_out, sandbox)
    fan_out.close()


def one_shard(records, fan_out, sandbox, **fields) -> tuple[Searcher, TaggedShard]:
    shard = TaggedShard(records, **fields)
    return Searcher({"broker-a": shard}, fan_out, sandbox), shard


@st.composite
def questions(draw):
    topic = draw(st.sampled_from([TOPIC, "b_log", "b_payment", "SCHEDULE_TOPIC_XXXX", "%RETRY%b_cg"]))
    queue_id = draw(st.none() | st.integers(0, 3)) if topic.startswith("b_") else None
    offsets = OffsetWindow()
    if queue_id is not None:
        offsets = OffsetWindow(draw(st.none() | st.integers(0, 250)), draw(st.none() | st.integers(0, 250)))
    tags = draw(st.frozensets(st.sampled_from(["TagA", "Aa", "BB", "创建", "hot", "delay", "batch", ""]), max_size=2))
    properties = draw(
        st.dictionaries(
            st.sampled_from(["color", "KEYS", "DELAY"]), st.none() | st.sampled_from(["red", "3"]), max_size=1
        )
    )
    needle = draw(st.sampled_from([b""] * 3 + [b"1", b"\xe5", b"order", b"\x00"]))
    cel, cel_matches = draw(st.sampled_from([("", lambda record: True)] * 2 + list(CEL)))
    # The log's times by rank, so that windows begin and end on messages as well as between them.
    ranks = draw(st.none() | st.tuples(st.integers(0, 2783), st.integers(0, 2783), st.integers(-1, 1)))

    def matches(record) -> bool:
        return (
            (not tags or record.properties.get("TAGS", "") in tags)
            and all(
                name in record.properties and value in (None, record.properties[name])
                for name, value in properties.items()
            )
            and needle in inflated(record)
            and cel_matches(record)
        )

    return (
        SearchQuestion(
            topic,
            broker_name=draw(st.sampled_from(["", "", "broker-a"])),
            queue_id=queue_id,
            offsets=offsets,
            newest_first=draw(st.booleans()),
            conditions=Conditions(tags, properties, needle, cel),
        ),
        ranks,
        matches,
    )


def is_there(question: SearchQuestion, logs) -> bool:
    return bool(brute_force(logs, replace(question, offsets=OffsetWindow(), times=TimeWindow()), lambda record: True))


ASKED = (
    questions(),
    st.integers(1, 300),
    st.lists(st.builds(Budgets, st.integers(0, 90), st.integers(0, 60_000)), min_size=1, max_size=3),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(*ASKED)
def test_pages_are_what_brute_force_finds(searcher, logs, records, asked, page_size, budgets):
    assert_pages_are_what_brute_force_finds(searcher, logs, records, asked, page_size, budgets)


@pytest.mark.long
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(*ASKED)
def test_pages_of_many_questions_are_what_brute_force_finds(searcher, logs, records, asked, page_size, budgets):
    assert_pages_are_what_brute_force_finds(searcher, logs, records, asked, page_size, budgets)


def assert_pages_are_what_brute_force_finds(searcher, logs, records, asked, page_size, budgets):
    question, ranks, matches = asked
    if ranks is not None:
        first, last = sorted(ranks[:2])
        begin, end = records[first].store_time_millis + ranks[2], records[last].store_time_millis - ranks[2]
        question = replace(question, times=TimeWindow(min(begin, end), max(begin, end)))
    if not is_there(question, logs):
        return
    pages = list(searcher.pages(question, budgets, page_size=page_size))

    assert found_offsets(pages) == brute_force(logs, question, matches)
    assert all(len(page.entries) <= page_size for page in pages)
    positions = scanned_positions(pages)
    assert len(positions) == len(set(positions)), "each position once"
    everything = brute_force(logs, question, lambda record: True)
    by_offset = {record.commit_log_offset: record for record in records}
    wanted = {(name, by_offset[offset].queue_id, by_offset[offset].queue_offset) for name, offset in everything}
    assert wanted <= set(positions), "and none is missing"
    if question.times == TimeWindow():
        assert wanted == set(positions)
    assert sum(page.scanned_record_count for page in pages) == len(positions)
    assert [page.completeness for page in pages] == [message_pb2.COMPLETENESS_TRUNCATED] * (len(pages) - 1) + [
        message_pb2.COMPLETENESS_COMPLETE
    ]
    assert pages[-1].stop == gateway_pb.SEARCH_STOP_END


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_budget_of_records_ends_the_page_exactly_there(searcher, newest_first):
    question = replace(ALL, newest_first=newest_first)
    pages = list(searcher.pages(question, [Budgets(max_records=7)], page_size=1000))

    assert {page.scanned_record_count for page in pages[:-1]} == {7}
    assert {page.stop for page in pages[:-1]} == {gateway_pb.SEARCH_STOP_RECORDS}
    assert len(found_offsets(pages)) == len({*found_offsets(pages)}) == 4 * 226


def test_a_budget_of_bytes_is_kept_but_for_a_record_that_is_larger(searcher, logs):
    sizes = {r.commit_log_offset: r.store_size_bytes for log in logs.values() for r in log}
    for page in searcher.pages(ALL, [Budgets(max_bytes=2_000)], page_size=1000):
        read = [sizes[offset] for _, offset in found_offsets([page])]
        assert page.scanned_bytes == sum(read)
        assert page.scanned_bytes <= 2_000 or len(read) == 1
        assert not page.next_page_token or page.stop == gateway_pb.SEARCH_STOP_BYTES


def test_a_tag_code_spares_reading(searcher, logs):
    question = replace(ALL, conditions=Conditions(tags=frozenset(["hot"])))
    answer = searcher.search(question, page_size=1000)

    hot = [r for log in logs.values() for r in log if r.topic == TOPIC and r.tags == "hot"]
    assert len(answer.entries) == len(hot) == 100
    assert answer.scanned_bytes == sum(record.store_size_bytes for record in hot)
    assert answer.scanned_record_count == 4 * 226


def test_tags_of_one_code_are_told_apart(searcher, logs):
    """`Aa` and `BB` have the same hash in Java."""
    for tag in ("Aa", "BB"):
        answer = searcher.search(replace(ALL, conditions=Conditions(tags=frozenset([tag]))), page_size=1000)
        expected = brute_force(logs, ALL, lambda record, tag=tag: record.properties.get("TAGS") == tag)
        assert found_offsets([answer]) == expected
        assert expected


def test_the_code_of_a_delayed_message_is_its_time_and_rules_out_nothing(searcher):
    question = SearchQuestion("SCHEDULE_TOPIC_XXXX", conditions=Conditions(tags=frozenset(["delay"])))

    assert len(searcher.search(question, page_size=1000).entries) == 20


def test_a_compressed_body_is_searched_as_it_was_sent(searcher, logs):
    compressed = [r for log in logs.values() for r in log if r.sys_flag & 1 and r.topic.startswith("b_")]
    needles = [(record, inflated(record)[-64:]) for record in compressed]
    needles = [(record, needle) for record, needle in needles if needle not in record.body]
    assert needles
    for record, needle in needles:
        for conditions in (Conditions(needle=needle), Conditions(needle=hex_needle(needle.hex(" ")))):
            question = SearchQuestion(record.topic, conditions=conditions)
            found = found_offsets(searcher.pages(question, page_size=1000))
            assert found == brute_force(logs, question, lambda r, needle=needle: needle in inflated(r))
            assert record.commit_log_offset in [offset for _, offset in found]


def test_what_does_not_inflate_is_counted_and_the_answer_partial(records, fan_out, sandbox):
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0][:20]
    log[3] = replace(log[3], sys_flag=0x301, body=b"no zlib at all")
    log[5] = replace(log[5], sys_flag=0x101, body=b"LZ4, perhaps")
    searcher, _ = one_shard(log, fan_out, sandbox)
    answer = searcher.search(replace(ALL, conditions=Conditions(cel="size(message.body) >= 0")))

    assert [entry.record.queue_offset for entry in answer.entries] == [n for n in range(20) if n not in (3, 5)]
    assert (answer.unreadable_count, answer.completeness) == (2, message_pb2.COMPLETENESS_PARTIAL)
    assert isinstance(answer.outcomes[0].error, RecordCorruptedError)
    assert answer.outcomes[0].error.metadata["commitLogOffset"] == str(log[3].commit_log_offset)
    # Whoever does not look into bodies gets them all.
    assert len(searcher.search(ALL).entries) == 20


def test_a_damaged_record_is_counted_and_the_scan_goes_on(records, fan_out, sandbox):
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0][:20]
    damage = RecordCorruptedError("rotten", commitLogOffset=log[4].commit_log_offset)
    searcher, _ = one_shard(log, fan_out, sandbox, damaged={log[4].commit_log_offset: damage})
    answer = searcher.search(ALL)

    assert [entry.record.queue_offset for entry in answer.entries] == [n for n in range(20) if n != 4]
    assert (answer.unreadable_count, answer.completeness) == (1, message_pb2.COMPLETENESS_PARTIAL)
    assert answer.outcomes[0].error is damage


def test_an_answer_while_the_queues_are_built_is_partial(records, fan_out, sandbox):
    searcher, _ = one_shard(records, fan_out, sandbox, catching_up=True)

    assert list(searcher.pages(ALL, page_size=1000))[-1].completeness == message_pb2.COMPLETENESS_PARTIAL


def test_an_answer_was_partial_without_the_progress_that_tells_why(records, fan_out, sandbox):
    """The queues were behind when they were listed, and built when they were read: the first word gives the reason."""
    searcher, shard = one_shard(records, fan_out, sandbox)
    shard.built_offset = behind = records[-1].commit_log_offset

    def list_queues(topic, deadline):
        shard.built_offset = None
        return TaggedShard.list_queues(shard, topic, deadline)

    shard.list_queues = list_queues
    (outcome,) = searcher.search(ALL).outcomes

    assert (outcome.complete, outcome.progress.next_offset) == (False, behind)


def test_a_dead_shard_makes_every_later_page_partial(logs, fan_out, sandbox):
    error = ServiceUnavailableError("dead", service="consumequeue")
    shards = {name: TaggedShard(log) for name, log in logs.items()}
    shards["broker-a"].failures["list_queues"] = error
    searcher = Searcher(shards, fan_out, sandbox)
    pages = list(searcher.pages(ALL, page_size=100))

    assert len(pages) > 3
    assert {page.completeness for page in pages} == {message_pb2.COMPLETENESS_PARTIAL}
    for page in pages:
        failed = [outcome for outcome in page.outcomes if outcome.error is not None]
        assert [outcome.broker_name for outcome in failed] == ["broker-a"]
    assert pages[0].outcomes[0].error is error
    assert found_offsets(pages) == brute_force({"broker-b": logs["broker-b"]}, ALL, lambda record: True)
    # None alive is no empty answer.
    shards["broker-b"].failures["list_queues"] = error
    with pytest.raises(ServiceUnavailableError):
        searcher.search(ALL)
    with pytest.raises(ServiceUnavailableError):
        searcher.search(ALL, page_size=100, page_token=pages[0].next_page_token)


@pytest.mark.parametrize("known", [["broker-a"], ["broker-b"]])
def test_a_token_of_a_shard_that_this_gateway_does_not_know_was_complete(logs, fan_out, sandbox, known):
    both = Searcher({name: TaggedShard(log) for name, log in logs.items()}, fan_out, sandbox)
    missing = "broker-b" if known == ["broker-a"] else "broker-a"
    alone = sum(record.topic == TOPIC for record in logs["broker-a"])
    first = both.search(ALL, page_size=alone + 10 if missing == "broker-b" else 10)
    fewer = Searcher({name: TaggedShard(logs[name]) for name in known}, fan_out, sandbox)
    pages = [fewer.search(ALL, page_size=100, page_token=first.next_page_token)]
    while pages[-1].next_page_token:
        pages.append(fewer.search(ALL, page_size=100, page_token=pages[-1].next_page_token))

    assert len(pages) > 1 or missing == "broker-b"
    for page in pages:
        assert page.completeness == message_pb2.COMPLETENESS_PARTIAL
        (unknown,) = [outcome for outcome in page.outcomes if outcome.error is not None]
        assert (unknown.broker_name, unknown.complete) == (missing, False)
    assert isinstance(pages[0].outcomes[0].error, BrokerNotFoundError)
    rest = [(name, log) for name, log in logs.items() if name in known and name > missing]
    assert found_offsets(pages) == brute_force(dict(rest), ALL, lambda record: True)


def test_a_shard_that_dies_in_the_middle_says_how_far_it_was_read(logs, fan_out, sandbox):
    shards = {name: TaggedShard(log) for name, log in logs.items()}
    searcher = Searcher(shards, fan_out, sandbox)
    first = searcher.search(ALL, Budgets(max_records=50), page_size=1000)
    shards["broker-a"].failures["get_many"] = ServiceUnavailableError("dead", service="commitlog")
    rest = searcher.search(ALL, page_size=1000, page_token=first.next_page_token)

    assert (first.completeness, rest.completeness) == (
        message_pb2.COMPLETENESS_TRUNCATED,
        message_pb2.COMPLETENESS_PARTIAL,
    )
    assert [scanned.broker_name for scanned in rest.scanned_ranges] == ["broker-b", "broker-b"]
    assert len(scanned_positions([first, rest])) == 50 + 2 * 226


def test_a_record_of_another_place_is_damage_of_the_queue(records, fan_out, sandbox):
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0][:3]
    searcher, shard = one_shard(log, fan_out, sandbox)
    shard._by_offset[log[1].commit_log_offset] = replace(log[1], queue_offset=99)
    answer = searcher.search(ALL)

    assert [entry.record.queue_offset for entry in answer.entries] == [0, 2]
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert "rebuild the queues" in answer.outcomes[0].error.message


@pytest.mark.parametrize("newest_first", [False, True])
def test_what_was_appended_meanwhile_does_not_shift_pages(records, fan_out, sandbox, newest_first):
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0]
    searcher, _ = one_shard(log[:100], fan_out, sandbox)
    question = replace(ALL, newest_first=newest_first)
    first = searcher.search(question, page_size=30)
    grown, _ = one_shard(log, fan_out, sandbox)
    token, pages = first.next_page_token, [first]
    while token:
        pages.append(grown.search(question, page_size=30, page_token=token))
        token = pages[-1].next_page_token

    assert sorted(offset for _, offset in found_offsets(pages)) == [record.commit_log_offset for record in log[:100]]


@pytest.mark.parametrize(
    "other",
    [
        replace(ALL, topic="b_log"),
        replace(ALL, newest_first=True),
        replace(ALL, queue_id=0),
        replace(ALL, queue_id=0, offsets=OffsetWindow(0, 5)),
        replace(ALL, times=TimeWindow(1)),
        replace(ALL, conditions=Conditions(tags=frozenset("a"))),
        replace(ALL, conditions=Conditions(properties={"a": None})),
        replace(ALL, conditions=Conditions(needle=b"a")),
        replace(ALL, conditions=Conditions(cel="true")),
        replace(ALL, broker_name="broker-a"),
    ],
)
def test_a_token_of_another_question_is_refused(searcher, other):
    token = searcher.search(ALL, page_size=1).next_page_token
    with pytest.raises(InvalidPageTokenError):
        searcher.search(other, page_size=1, page_token=token)


@given(st.data())
def test_a_tampered_token_is_refused(searcher, data):
    token = searcher.search(ALL, page_size=1).next_page_token
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_").filter(lambda character: character != token[at]))
    with pytest.raises(InvalidPageTokenError):
        searcher.search(ALL, page_size=1, page_token=token[:at] + other + token[at + 1 :])


def test_places_that_are_not_there(searcher, logs, fan_out, sandbox):
    with pytest.raises(TopicNotFoundError):
        searcher.search(SearchQuestion("no-such-topic"))
    with pytest.raises(BrokerNotFoundError):
        searcher.search(replace(ALL, broker_name="broker-z"))
    configured = Searcher({"broker-a": TaggedShard(logs["broker-a"], topics={TOPIC: 8})}, fan_out, sandbox)
    assert configured.search(replace(ALL, queue_id=7)).completeness == message_pb2.COMPLETENESS_COMPLETE
    with pytest.raises(QueueNotFoundError):
        configured.search(replace(ALL, queue_id=8))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: SearchQuestion(""), "topic"),
        (lambda: SearchQuestion(TOPIC, queue_id=-1), "queue_id"),
        (lambda: SearchQuestion(TOPIC, offsets=OffsetWindow(1)), "queue_id"),
        (lambda: SearchQuestion(TOPIC, queue_id=1, offsets=OffsetWindow(-1)), "begin_queue_offset"),
        (lambda: SearchQuestion(TOPIC, times=TimeWindow(2, 1)), "begin_time"),
        (lambda: Budgets(max_records=-1), "max_records"),
        (lambda: Budgets(max_bytes=-1), "max_bytes"),
        (lambda: Budgets(max_millis=-1), "max_millis"),
        (lambda: Conditions(tags=frozenset(map(str, range(65)))), "tags"),
        (lambda: Conditions(properties={"": None}), "properties"),
        (lambda: Conditions(needle=b"x" * 65_537), "needle"),
        (lambda: hex_needle("abc"), "body_hex"),
        (lambda: hex_needle("zz"), "body_hex"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_field(make, field):
    with pytest.raises(InvalidArgumentError) as refused:
        make()
    assert refused.value.metadata["field"] == field


def test_a_message_outside_the_window_between_others_is_none(records, fan_out, sandbox):
    """A store whose clock once stepped back."""
    log = [record for record in records if record.topic == TOPIC and record.queue_id == 0][:6]
    log = [replace(record, store_time_millis=time) for record, time in zip(log, (1, 5, 100, 6, 7, 101), strict=True)]
    searcher, _ = one_shard(log, fan_out, sandbox)
    for cel in ("", "message.store_time_millis != 6"):
        question = replace(ALL, times=TimeWindow(5, 7), conditions=Conditions(cel=cel))
        expected = [offset for offset, time in ((1, 5), (3, 6), (4, 7)) if not cel or time != 6]
        assert [entry.record.queue_offset for entry in searcher.search(question).entries] == expected


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class SlowShard(TaggedShard):
    """Each read of records takes a second of a clock, and calls back before."""

    def __init__(self, records, clock, before_read=lambda: None) -> None:
        super().__init__(records)
        self.clock = clock
        self.before_read = before_read
        self.step_seconds = 1.0

    def get_many(self, commit_log_offsets, body_bytes_max, deadline):
        self.before_read()
        self.clock.seconds += self.step_seconds
        return super().get_many(commit_log_offsets, body_bytes_max, deadline)


def test_a_budget_of_time_ends_the_page_and_every_page_moves_on(records, fan_out, sandbox):
    clock = Clock()
    searcher = Searcher({"broker-a": SlowShard(records, clock)}, fan_out, sandbox)
    token, pages = "", []
    while not pages or token:
        deadline = Deadline.after(100, clock)
        pages.append(searcher.search(ALL, Budgets(max_millis=1), page_size=1000, page_token=token, deadline=deadline))
        token = pages[-1].next_page_token
    assert {page.stop for page in pages[:-1]} == {gateway_pb.SEARCH_STOP_TIME}
    assert all(page.entries for page in pages)
    assert len(pages) >= 8, "128 records at a time"
    assert len(found_offsets(pages)) == 4 * 226


class SlowListShard(SlowShard):
    """The list of queues takes a second, too."""

    def list_queues(self, topic, deadline):
        self.clock.seconds += self.step_seconds
        return super().list_queues(topic, deadline)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_that_ended_with_its_queue_was_answered_again_for_ever_when_time_was_short(
    records, fan_out, sandbox, newest_first
):
    """The next page found nothing left of that queue, took this for a step, and had no time for the next queue."""
    clock = Clock()
    searcher = Searcher({"broker-a": SlowListShard(records, clock)}, fan_out, sandbox)
    token, pages = "", []
    while (not pages or token) and len(pages) < 50:
        deadline = Deadline.after(100, clock)
        question = replace(ALL, newest_first=newest_first)
        pages.append(
            searcher.search(question, Budgets(max_millis=1), page_size=1000, page_token=token, deadline=deadline)
        )
        token = pages[-1].next_page_token

    assert token == ""
    assert len(found_offsets(pages)) == 4 * 226


def test_the_page_comes_before_the_deadline_with_what_there_is(records, fan_out, sandbox):
    clock = Clock()
    searcher = Searcher({"broker-a": SlowShard(records, clock)}, fan_out, sandbox)
    answer = searcher.search(ALL, page_size=1000, deadline=Deadline.after(4, clock))

    assert answer.stop == gateway_pb.SEARCH_STOP_TIME
    assert 0 < len(answer.entries) < 4 * 226
    assert clock.seconds <= 4


def test_a_shard_that_hangs_costs_a_page_half_its_time_and_is_left_out(logs, fan_out, sandbox):
    """It takes all of the time that a read is given; what comes before and behind it is found."""
    clock = Clock()
    a, b = SlowShard(logs["broker-a"], clock), TaggedShard(logs["broker-b"])
    searcher = Searcher({"broker-a": a, "broker-b": b}, fan_out, sandbox)
    first = searcher.search(ALL, Budgets(max_records=10), page_size=1000, deadline=Deadline.after(100, clock))
    a.step_seconds = 60.0
    rest = searcher.search(ALL, page_size=1000, page_token=first.next_page_token, deadline=Deadline.after(100, clock))
    assert [outcome.broker_name for outcome in rest.outcomes if outcome.error] == ["broker-a"]
    assert isinstance(rest.outcomes[0].error, DeadlineExceededError)
    assert rest.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert scanned_positions([first])[-1] == ("broker-a", 0, 9)
    assert (scanned_positions([rest]), rest.stop) == ([], gateway_pb.SEARCH_STOP_TIME)
    last = searcher.search(ALL, page_size=1000, page_token=rest.next_page_token)
    assert scanned_positions([last])[0] == ("broker-b", 1, 0)
    assert last.completeness == message_pb2.COMPLETENESS_PARTIAL


def test_a_cancelled_search_reads_nothing_more(records, fan_out, sandbox):
    cancellation = Cancellation()
    shard = SlowShard(records, Clock(), cancellation.cancel)
    with pytest.raises(CallerGoneError):
        Searcher({"broker-a": shard}, fan_out, sandbox).search(ALL, page_size=1000, cancellation=cancellation)

    assert shard.calls.count("get_many") <= 1


def test_a_cancelled_search_does_not_wait_for_a_shard_that_hangs(records, sandbox):
    """The search is back while the shard's answer is still held: by order, not by a clock."""
    cancellation, reading, release = Cancellation(), threading.Event(), threading.Event()
    fan_out = FanOut(2)

    def hang() -> None:
        reading.set()
        release.wait(60)

    shard = SlowShard(records, Clock(), hang)
    searcher = Searcher({"broker-a": shard}, fan_out, sandbox)
    canceller = threading.Thread(target=lambda: (reading.wait(WAIT_SECONDS_MAX), cancellation.cancel()))
    canceller.start()
    try:
        with pytest.raises(CallerGoneError) as gone:
            searcher.search(ALL, cancellation=cancellation)
        assert "get_many" not in shard.calls, "the read has not ended yet"
        assert gone.value.pending is not None
        assert not gone.value.pending.done()
    finally:
        release.set()
        canceller.join(WAIT_SECONDS_MAX)
        fan_out.close()
    gone.value.pending.result(WAIT_SECONDS_MAX)
