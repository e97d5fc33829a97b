"""Answers over a store that may hold messages where Reput does not read them: PARTIAL with the feature, and only there."""

import pytest

from gateway.ports.shard import STORE_FACTS
from gateway.ports.shards import Shards
from gateway.ports.store_facts import StoreFacts
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_key, query_by_unique_key
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from gateway.queries.by_queue_offset import outcome_of, query_by_queue_offset, search_offset
from gateway.queries.completeness import judge
from gateway.queries.find_message import find_message
from gateway.search.question import OffsetWindow, SearchQuestion
from gateway.shards.store_facts import with_facts
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import RecordNotFoundError, ServiceUnavailableError, StoreRecoveringError, UnsupportedStoreError
from store.format.message_id import encode_offset_msg_id
from tests.gateway.search.searching import Searcher
from tests.gateway.shards.archived.archived_shard import (
    OLD_TOPIC,
    TOPIC,
    ShortenedShard,
    archived_orders,
    front_of,
    shard_of,
)

COMPACTED, PLAIN = "b_order", "b_log"
FRONT = 20  # messages of each queue that are gone from the log


class Facts:
    """What the commit log says; `failure`: nothing."""

    def __init__(self, *topics, deleted=None):
        self.failure = None
        held = {topic: UnsupportedStoreError("it is elsewhere", feature="f") for topic in topics}
        self._facts = StoreFacts(held, deleted or {})

    def facts(self, request, deadline):
        if self.failure is not None:
            raise self.failure
        return self._facts


def key_of(log, topic):
    return next(record.keys[0] for record in log if record.topic == topic and record.keys)


@pytest.fixture(scope="module")
def log(records):
    """What retention has left of the broker's log: the queues of both topics begin behind 0."""
    kept = [each for each in records if each.topic in (COMPACTED, PLAIN)]
    first = max(each.commit_log_offset for each in kept if each.queue_offset == FRONT)
    return [each for each in kept if each.commit_log_offset >= first]


@pytest.fixture
def shards(log, fan_out):
    def make(facts):
        memory = ShortenedShard(log, {COMPACTED: 8, PLAIN: 8})
        memory.first_offset = log[0].commit_log_offset
        return Shards([with_facts(memory.shard().serving(STORE_FACTS, facts.facts))], fan_out)

    return make


@pytest.fixture
def verdicts(log, tokens, deadline, sandbox):
    """What each kind of query says of a topic, and the features that it names."""

    def ask(shards, topic):
        key = key_of(log, topic)
        unique_key = next(each.unique_key for each in log if each.topic == topic and each.unique_key)
        queue = next(each for each in log if each.topic == topic)
        paged = {"page_size_asked": 1000, "page_token": "", "deadline": deadline}
        searcher = Searcher.over(shards, sandbox)
        by_offset = query_by_queue_offset(
            shards, topic, queue.queue_id, 0, broker_name="", page_size_asked=0, deadline=deadline
        )
        position = search_offset(
            shards, topic, queue.queue_id, 0, boundary=gateway_pb.BOUNDARY_LOWER, broker_name="", deadline=deadline
        )
        at_time = outcome_of("a", position, gateway_pb.BOUNDARY_LOWER)
        window = TimeWindow(0, 1 << 50)
        answers = {
            "key": query_by_key(shards, tokens, topic, key, TimeWindow(), **paged),
            "key in a window": query_by_key(shards, tokens, topic, key, window, **paged),
            "unique key": query_by_unique_key(shards, tokens, topic, unique_key, **paged),
            "find": find_message(shards, tokens, key, topic, TimeWindow(), **paged),
            "search": list(searcher.pages(SearchQuestion(topic), page_size=1000))[-1],
            "search by time": list(searcher.pages(SearchQuestion(topic, times=window), page_size=1000))[-1],
        }
        said = {name: (answer.completeness, answer.outcomes[0].error) for name, answer in answers.items()}
        said["queue offset"] = (by_offset.completeness, by_offset.outcome.error)
        said["offset at a time"] = (judge([at_time], more=False), at_time.error)
        return {
            name: (
                completeness == message_pb2.COMPLETENESS_PARTIAL,
                error.metadata["feature"] if error is not None else "",
            )
            for name, (completeness, error) in said.items()
        }

    return ask


@pytest.mark.parametrize(
    ("held", "compacted", "plain"),
    [
        ((COMPACTED,), (True, "f"), (False, "")),
        (("",), (True, "f"), (True, "f")),
        ((), (False, ""), (False, "")),
    ],
    ids=["a topic", "the store", "nothing"],
)
def test_queries_were_complete_though_messages_may_be_in_a_feature_that_is_not_read(
    shards, verdicts, held, compacted, plain
):
    asked = shards(Facts(*held))
    assert set(verdicts(asked, COMPACTED).values()) == {compacted}
    assert set(verdicts(asked, PLAIN).values()) == {plain}


def test_a_find_in_all_topics_was_complete_though_one_of_them_is_compacted(shards, tokens, deadline, log):
    def find(*held):
        answer = find_message(
            shards(Facts(*held)), tokens, "nowhere", "", TimeWindow(), page_size_asked=0, deadline=deadline
        )
        return answer.completeness

    assert [find(COMPACTED), find(""), find()] == [
        message_pb2.COMPLETENESS_PARTIAL,
        message_pb2.COMPLETENESS_PARTIAL,
        message_pb2.COMPLETENESS_COMPLETE,
    ]


def test_what_the_log_has_of_a_queue_is_complete_whatever_lies_elsewhere(shards, deadline, log, sandbox):
    """Positions are those of the broker: from the first one in the log on nothing is missing."""
    asked = shards(Facts(COMPACTED))
    queue = [each for each in log if (each.topic, each.queue_id) == (COMPACTED, 0)]
    first = queue[0].queue_offset
    assert first > 0

    for begin, is_partial in ((first, False), (first - 1, True)):
        answer = query_by_queue_offset(
            asked, COMPACTED, 0, begin, broker_name="", page_size_asked=1000, deadline=deadline
        )
        assert (answer.completeness == message_pb2.COMPLETENESS_PARTIAL) == is_partial
        question = SearchQuestion(COMPACTED, queue_id=0, offsets=OffsetWindow(begin, None))
        pages = list(Searcher.over(asked, sandbox).pages(question, page_size=1000))
        assert ({page.completeness for page in pages} == {message_pb2.COMPLETENESS_PARTIAL}) == is_partial
    for record, boundary in ((queue[0], gateway_pb.BOUNDARY_UPPER), (queue[-1], gateway_pb.BOUNDARY_LOWER)):
        millis = record.store_time_millis
        found = search_offset(asked, COMPACTED, 0, millis, boundary=boundary, broker_name="", deadline=deadline)
        assert outcome_of("a", found, boundary).complete


def test_an_id_whose_record_expired_was_not_found_though_it_may_be_elsewhere(shards, deadline, log):
    host = log[0].store_host

    def ask(at, topic, *held):
        query_by_offset_msg_id(shards(Facts(*held)), encode_offset_msg_id(host, at), topic, "", deadline)

    for topic, held in (("", (COMPACTED,)), (COMPACTED, (COMPACTED,)), (PLAIN, ("",))):
        with pytest.raises(UnsupportedStoreError) as caught:
            ask(0, topic, *held)
        assert caught.value.metadata["feature"] == "f"
    for at, topic, held in ((0, PLAIN, (COMPACTED,)), (0, "", ()), (log[0].commit_log_offset + 1, "", ("",))):
        with pytest.raises(RecordNotFoundError):
            ask(at, topic, *held)


@pytest.mark.parametrize(
    "failure", [ServiceUnavailableError("it is away", service="commitlog"), StoreRecoveringError("soon")]
)
def test_an_answer_was_complete_and_unmarked_while_nothing_was_known_of_the_store(
    shards, tokens, deadline, log, sandbox, failure
):
    facts = Facts()
    facts.failure = failure
    asked = shards(facts)
    record = next(each for each in log if each.topic == PLAIN and each.keys)

    def by_key(key):
        paged = {"page_size_asked": 1000, "page_token": "", "deadline": deadline}
        return query_by_key(asked, tokens, PLAIN, key, TimeWindow(), **paged)

    def by_queue_offset(begin):
        return query_by_queue_offset(
            asked, PLAIN, record.queue_id, begin, broker_name="", page_size_asked=0, deadline=deadline
        )

    def search(begin):
        question = SearchQuestion(PLAIN, queue_id=record.queue_id, offsets=OffsetWindow(begin, None))
        return list(Searcher.over(asked, sandbox).pages(question, page_size=1000))

    nowhere = by_key("nowhere")
    assert (nowhere.completeness, nowhere.outcomes[0].error) == (message_pb2.COMPLETENESS_PARTIAL, failure)
    calls = {
        "id": lambda: query_by_offset_msg_id(
            asked, encode_offset_msg_id(record.store_host, record.commit_log_offset), "", "", deadline
        ),
        "expired id": lambda: query_by_offset_msg_id(
            asked, encode_offset_msg_id(record.store_host, 0), "", "", deadline
        ),
        "key": lambda: by_key(record.keys[0]),
        "queue offset": lambda: by_queue_offset(record.queue_offset),
        "search": lambda: search(record.queue_offset),
    }
    for ask in calls.values():
        with pytest.raises(type(failure)):
            ask()
    facts.failure = None
    assert by_key("nowhere").completeness == message_pb2.COMPLETENESS_COMPLETE
    assert calls["id"]().record.commit_log_offset == record.commit_log_offset


def test_what_was_deleted_with_its_topic_was_found_without_a_word(tmp_path, fan_out, tokens, deadline, sandbox):
    """By every query, in the log and in its archive; what came after the deletion and other topics are not marked."""
    made = archived_orders(tmp_path)
    at = made.records[40].commit_log_offset
    assert front_of(made) < at
    shard = with_facts(shard_of(made).serving(STORE_FACTS, Facts(deleted={TOPIC: at}).facts))
    shards = Shards([shard], fan_out)
    paged = {"page_size_asked": 1000, "page_token": "", "deadline": deadline}

    def marks(entries):
        found = {entry.record.commit_log_offset: entry.record.deleted_with_topic for entry in entries}
        assert found == {offset: offset < at for offset in found}
        return set(found.values())

    def by_id(record):
        offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)
        return query_by_offset_msg_id(shards, offset_msg_id, "", "", deadline)

    records = [record for record in made.records if record.topic == TOPIC]
    both = {True, False}
    assert marks(query_by_key(shards, tokens, TOPIC, "all", TimeWindow(), **paged).entries) == both
    assert marks(map(by_id, records)) == both
    found = find_message(shards, tokens, "all", TOPIC, TimeWindow(), page_size_asked=1000, deadline=deadline)
    assert marks(entry for entry, _ in found.entries) == both
    pages = Searcher.over(shards, sandbox).pages(SearchQuestion(TOPIC), page_size=1000)
    assert marks(entry for page in pages for entry in page.entries) == both
    by_unique_key = [
        entry
        for record in records
        for entry in query_by_unique_key(shards, tokens, TOPIC, record.unique_key, **paged).entries
    ]
    assert marks(by_unique_key) == both
    old = query_by_key(shards, tokens, OLD_TOPIC, "all", TimeWindow(), **paged).entries
    assert [entry.record.deleted_with_topic for entry in old] == [False, False]
