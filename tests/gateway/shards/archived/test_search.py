"""SearchMessages over a shard whose log has lost its front, with an archive: the scan is that of the whole log."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.ports.shard import Shard
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.page import PageTokens
from gateway.search.cel_sandbox import CelSandbox
from gateway.search.filter import Conditions
from gateway.search.question import EVERYWHERE, Budgets, OffsetWindow, SearchAnswer, SearchQuestion
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_ARCHIVE
from store.format.record import Record
from tests.gateway.memory_shard import records_in, shown
from tests.gateway.search.searching import Searcher, brute_force, found_offsets, scanned_positions
from tests.gateway.shards.archived.archived_shard import (
    DAMAGES,
    OLD_TOPIC,
    TOPIC,
    archive_of_first_file,
    archived_orders,
    break_archive,
    front_of,
    shard_of,
)
from tests.support.archives import BROKER, Archived

Matches = Callable[[Record], bool]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    return archived_orders(tmp_path_factory.mktemp("archived"))


class OneShard(Searcher):
    """Searches one shard. No question here has an expression, so no process is started."""

    def __init__(self, shard: Shard, fan_out: FanOut) -> None:
        self.shards = Shards([shard], fan_out)
        self.sandbox = CelSandbox()
        self.tokens = PageTokens("a secret")


@pytest.fixture
def searcher(made: Archived, fan_out: FanOut) -> OneShard:
    return OneShard(shard_of(made), fan_out)


def whole_times(made: Archived, chance: random.Random) -> TimeWindow:
    """A window that begins and ends on messages, or between them, in the archive or in the log."""
    times = [record.store_time_millis for record in made.records]
    begin, end = (chance.choice([None, chance.choice(times) + chance.randrange(-1, 2)]) for _ in range(2))
    if begin is not None and end is not None and begin > end:
        begin, end = end, begin
    return TimeWindow(begin, end)


def random_question(made: Archived, seed: int) -> tuple[SearchQuestion, Matches]:
    chance = random.Random(seed)
    topic = chance.choice([TOPIC, TOPIC, TOPIC, OLD_TOPIC])
    queue_id = chance.choice([None, 0, 1]) if topic == TOPIC else chance.choice([None, 1])
    offsets = EVERYWHERE
    if queue_id is not None:
        offsets = OffsetWindow(*(chance.choice([None, chance.randrange(35)]) for _ in range(2)))
    tags = frozenset(chance.sample(["Aa", "BB", "TagC"], chance.choice([0, 0, 1, 2])))
    needle = chance.choice([b"", b"b", b"L"])
    properties = chance.choice([{}, {}, {"TAGS": None}, {"TAGS": "Aa"}])

    def matches(record: Record) -> bool:
        held = record.properties
        return (
            (not tags or held.get("TAGS", "") in tags)
            and all(name in held and value in (None, held[name]) for name, value in properties.items())
            and needle in record.body
        )

    question = SearchQuestion(
        topic,
        queue_id=queue_id,
        offsets=offsets,
        times=whole_times(made, chance),
        newest_first=chance.random() < 0.5,
        conditions=Conditions(tags, properties, needle),
    )
    return question, matches


def all_pages(searcher: Searcher, question: SearchQuestion, seed: int) -> list[SearchAnswer]:
    chance = random.Random(seed)
    budgets = [Budgets(), Budgets(max_records=7), Budgets(max_bytes=30_000)]
    return list(searcher.pages(question, chance.sample(budgets, 2), page_size=chance.choice([1, 3, 1000])))


@pytest.mark.parametrize("seed", range(60))
def test_a_scan_over_archive_and_log_is_one_over_the_whole_log(made: Archived, searcher: OneShard, seed: int) -> None:
    question, matches = random_question(made, seed)

    pages = all_pages(searcher, question, seed)

    assert found_offsets(pages) == brute_force({BROKER: made.records}, question, matches)
    places = scanned_positions(pages)
    assert len(places) == len(set(places))
    assert {page.completeness for page in pages[:-1]} <= {message_pb2.COMPLETENESS_TRUNCATED}
    assert pages[-1].completeness == message_pb2.COMPLETENESS_COMPLETE
    assert sum(page.unreadable_count for page in pages) == 0
    for page in pages:
        for entry in page.entries:
            assert (entry.record.source == MESSAGE_SOURCE_ARCHIVE) == (entry.record.commit_log_offset < front_of(made))


@pytest.mark.parametrize("newest_first", [False, True])
def test_every_position_of_both_is_scanned_once(made: Archived, searcher: OneShard, newest_first: bool) -> None:
    question = SearchQuestion(TOPIC, newest_first=newest_first)

    places = scanned_positions(all_pages(searcher, question, seed=1))

    wanted = {(BROKER, r.queue_id, r.queue_offset) for r in made.records if r.topic == TOPIC}
    assert sorted(places) == sorted(wanted)


def test_a_topic_that_only_the_archive_has_is_searched_by_time_too(made: Archived, searcher: OneShard) -> None:
    first, second = (record for record in made.records if record.topic == OLD_TOPIC)
    assert second.commit_log_offset < front_of(made)

    for times, wanted in (
        (TimeWindow(), [first, second]),
        (TimeWindow(first.store_time_millis + 1, None), [second]),
        (TimeWindow(None, second.store_time_millis - 1), [first]),
    ):
        answer = searcher.search(SearchQuestion(OLD_TOPIC, times=times))
        assert records_in(answer.entries) == list(map(shown, wanted))
        assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_window_of_the_past_reads_little_of_the_rest(made: Archived, searcher: OneShard) -> None:
    """The end of a window bounds the scan: what the log has behind it is not looked at."""
    past = [r for r in made.records if r.topic == TOPIC and r.queue_id == 0][:4]

    answer = searcher.search(
        SearchQuestion(TOPIC, queue_id=0, times=TimeWindow(past[1].store_time_millis, past[-1].store_time_millis))
    )

    assert records_in(answer.entries) == list(map(shown, past[1:]))
    assert answer.scanned_record_count == 3


def times_over_all(made: Archived) -> TimeWindow:
    return TimeWindow(made.records[0].store_time_millis, made.records[-1].store_time_millis)


@pytest.mark.parametrize("with_times", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_archive_makes_a_search_partial_and_never_shorter_than_the_log(
    made: Archived, fan_out: FanOut, tmp_path: Path, damage: str, with_times: bool
) -> None:
    root = tmp_path / "archive"
    break_archive(made.archive, root, damage)
    searcher = OneShard(shard_of(made, archive=root), fan_out)
    question = SearchQuestion(TOPIC, times=times_over_all(made) if with_times else TimeWindow())

    pages = all_pages(searcher, question, seed=2)

    found = {offset for _, offset in found_offsets(pages)}
    wanted = {r.commit_log_offset for r in made.records if r.topic == TOPIC}
    live = {offset for offset in wanted if offset >= front_of(made)}
    assert live <= found <= wanted
    assert found != wanted
    assert message_pb2.COMPLETENESS_PARTIAL in {page.completeness for page in pages}
    assert message_pb2.COMPLETENESS_COMPLETE is not pages[-1].completeness or len(pages) > 1
    errors = [outcome.error.message for page in pages for outcome in page.outcomes if outcome.error is not None]
    assert any(str(root) in message or "not in the archive" in message for message in errors), errors


@pytest.mark.parametrize("with_times", [False, True])
def test_what_neither_archive_nor_log_has_makes_a_search_partial(
    made: Archived, fan_out: FanOut, tmp_path: Path, with_times: bool
) -> None:
    archive = archive_of_first_file(made, tmp_path)
    searcher = OneShard(shard_of(made, archive=archive), fan_out)
    archived_end = int(sorted((made.store / "commitlog").iterdir())[1].name)
    question = SearchQuestion(TOPIC, times=times_over_all(made) if with_times else TimeWindow())

    answer = searcher.search(question, page_size=1000)

    kept = [r for r in made.records if not archived_end <= r.commit_log_offset < front_of(made)]
    assert 0 < len(kept) < len(made.records)
    assert found_offsets([answer]) == brute_force({BROKER: kept}, question, lambda record: True)
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert answer.outcomes[0].error is not None
