"""A shard whose log has lost its front, with an archive: every answer is that of the whole log, and says where it is from."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES, Built, body_size_bytes, get_records
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import MatchAnswer, query_by_key, query_by_unique_key
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset, queue_place
from gateway.queries.list_topics import list_topics
from gateway.queries.page import PageTokens
from gateway.shards.archived_shard import with_archive
from pipeline.archive import archive as archive_job
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_ARCHIVE
from store.archive.archive_reader import ArchiveReader
from store.errors import (
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
    UnsupportedStoreError,
)
from store.format.message_id import encode_offset_msg_id
from tests.gateway.memory_shard import records_in, shown
from tests.gateway.shards.archived.archived_shard import (
    BARRED,
    DAMAGES,
    OLD_TOPIC,
    TOPIC,
    ShortenedShard,
    archive_of_first_file,
    archived_orders,
    bar_archive,
    break_archive,
    front_of,
    shard_of,
)
from tests.support.archives import BROKER, Archived


class HastyShard(ShortenedShard):
    """Its index ends each answer after two candidates, though asked for more."""

    def search(self, *arguments: Any, count_max: int, **named: Any) -> Built:
        return super().search(*arguments, count_max=min(count_max, 2), **named)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    return archived_orders(tmp_path_factory.mktemp("archived"))


@pytest.fixture
def shards(made: Archived, fan_out: FanOut) -> Shards:
    return Shards([shard_of(made)], fan_out)


def pages(shards: Shards, tokens: PageTokens, deadline: Deadline, key: str, page_size: int) -> list[MatchAnswer]:
    answers: list[MatchAnswer] = []
    token = ""
    while True:
        answer = query_by_key(
            shards, tokens, TOPIC, key, TimeWindow(), page_size_asked=page_size, page_token=token, deadline=deadline
        )
        answers.append(answer)
        token = answer.next_page_token
        if not token:
            return answers


@pytest.mark.parametrize("page_size", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("key", ["all", "AaAa", "BBBB", "none"])
def test_pages_go_on_from_log_to_archive_without_loss_or_doubles(
    made: Archived, shards: Shards, tokens: PageTokens, deadline: Deadline, key: str, page_size: int
):
    answers = pages(shards, tokens, deadline, key, page_size)

    entries = [entry for answer in answers for entry in answer.entries]
    assert made.keyed(TOPIC, key) == [entry.record.commit_log_offset for entry in entries]
    first_offset = front_of(made)
    archived = [entry.record.source == MESSAGE_SOURCE_ARCHIVE for entry in entries]
    assert archived == [entry.record.commit_log_offset < first_offset for entry in entries]
    by_offset = {record.commit_log_offset: record for record in made.records}
    assert records_in(entries) == [shown(by_offset[entry.record.commit_log_offset]) for entry in entries]
    assert {message_pb2.COMPLETENESS_TRUNCATED} >= {answer.completeness for answer in answers[:-1]}
    assert message_pb2.COMPLETENESS_COMPLETE is answers[-1].completeness


def test_an_index_that_answers_in_small_pieces_loses_nothing_to_an_archive_that_is_behind(
    made: Archived, fan_out: FanOut, tokens: PageTokens, deadline: Deadline, tmp_path: Path
):
    archive_job.run(None, made.store, tmp_path / "archive")  # without the file that is still written to
    shards = Shards([shard_of(made, archive=tmp_path / "archive", kind=HastyShard)], fan_out)

    answers = pages(shards, tokens, deadline, "all", 7)

    found = [entry.record.commit_log_offset for answer in answers for entry in answer.entries]
    assert made.keyed(TOPIC, "all") == found


def test_a_message_whose_file_is_gone_is_found_by_unique_key_and_by_id(
    made: Archived, shards: Shards, tokens: PageTokens, deadline: Deadline
):
    for record in made.records:
        answer = query_by_unique_key(
            shards, tokens, record.topic, record.unique_key, page_size_asked=0, page_token="", deadline=deadline
        )
        assert [shown(record)] == records_in(answer.entries)
        assert message_pb2.COMPLETENESS_COMPLETE is answer.completeness
        offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)
        entry = query_by_offset_msg_id(shards, offset_msg_id, record.topic, "", deadline)
        assert [shown(record)] == records_in([entry])


def test_an_id_that_names_no_start_of_a_record_is_not_found(made: Archived, shards: Shards, deadline: Deadline):
    offset_msg_id = encode_offset_msg_id(made.records[0].store_host, made.records[0].commit_log_offset + 4)

    with pytest.raises(RecordNotFoundError):
        query_by_offset_msg_id(shards, offset_msg_id, "", "", deadline)


def test_a_new_queue_of_a_log_that_lost_nothing_was_refused_before_the_first_file_was_archived(
    made: Archived, fan_out: FanOut, deadline: Deadline, tmp_path: Path
):
    """So a consumer over remoting could not begin: it asks for its place in the queue of its retries."""
    reader = ArchiveReader(tmp_path, BROKER)
    memory = ShortenedShard(made.records, {TOPIC: 2, OLD_TOPIC: 2, "new": 1})
    shards = Shards([with_archive(memory.shard(), reader, lambda record, omit_body: shown(record))], fan_out)
    with pytest.raises(StoreError):
        reader.queues("new")
    assert queue_place(shards, "new", 0, 0, broker_name="", deadline=deadline).max_offset == 0
    answer = query_by_queue_offset(shards, "new", 0, 0, broker_name="", page_size_asked=1, deadline=deadline)
    assert (answer.entries, answer.max_offset) == ((), 0)


def test_a_queue_without_files_of_a_log_that_lost_some_is_refused_while_the_archive_cannot_be_read(
    made: Archived, fan_out: FanOut, deadline: Deadline, tmp_path: Path
):
    shards = Shards([shard_of(made, archive=tmp_path, topics={TOPIC: 2, "new": 1})], fan_out)
    with pytest.raises(StoreError, match="archive"):
        queue_place(shards, "new", 0, 0, broker_name="", deadline=deadline)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_queue_reads_as_one_over_archive_and_log(made: Archived, shards: Shards, deadline: Deadline, count: int):
    for (topic, queue_id), rows in made.queues().items():
        for begin in range(len(rows) + 1):
            answer = query_by_queue_offset(
                shards, topic, queue_id, begin, broker_name="", page_size_asked=count, deadline=deadline
            )
            expected = [rows[place] for place in range(begin, min(begin + count, len(rows)))]
            assert list(map(shown, expected)) == records_in(answer.entries)
            assert (0, len(rows)) == (answer.min_offset, answer.max_offset)
            is_end = begin + count >= len(rows)
            assert (
                message_pb2.COMPLETENESS_COMPLETE if is_end else message_pb2.COMPLETENESS_TRUNCATED
            ) is answer.completeness
            assert begin + len(expected) == answer.next_queue_offset


def test_topics_show_the_range_of_both(made: Archived, shards: Shards, tokens: PageTokens, deadline: Deadline):
    answer = list_topics(shards, tokens, 0, "", deadline)

    ranges = {(row.topic, q.queue_id): (q.min_offset, q.max_offset) for row in answer.topics for _, q in row.queues}
    assert {name: (0, len(rows)) for name, rows in made.queues().items()} == ranges
    assert message_pb2.COMPLETENESS_COMPLETE is answer.completeness


def test_an_archive_without_the_files_that_are_gone_makes_answers_partial(
    made: Archived, fan_out: FanOut, tokens: PageTokens, deadline: Deadline, tmp_path: Path
):
    first = min((made.store / "commitlog").iterdir())
    archive = archive_of_first_file(made, tmp_path)
    shards = Shards([shard_of(made, archive=archive)], fan_out)
    gone = [r for r in made.records if int(first.name) + first.stat().st_size <= r.commit_log_offset < front_of(made)]
    assert gone

    (answer,) = pages(shards, tokens, deadline, "all", 1000)

    expected = set(made.keyed(TOPIC, "all")) - {record.commit_log_offset for record in gone}
    assert expected == {entry.record.commit_log_offset for entry in answer.entries}
    assert message_pb2.COMPLETENESS_PARTIAL is answer.completeness
    error = answer.outcomes[0].error
    assert isinstance(error, StoreCorruptedError)
    assert str(gone[0].commit_log_offset) in error.message
    by_place = query_by_queue_offset(shards, TOPIC, 0, 0, broker_name="", page_size_asked=100, deadline=deadline)
    assert message_pb2.COMPLETENESS_PARTIAL is by_place.completeness
    assert {r.commit_log_offset for r in made.queues()[TOPIC, 0].values()} - {r.commit_log_offset for r in gone} == {
        entry.record.commit_log_offset for entry in by_place.entries
    }


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_archive_is_told_and_never_an_empty_answer(
    made: Archived, fan_out: FanOut, tokens: PageTokens, deadline: Deadline, tmp_path: Path, damage: str
):
    root = tmp_path / "archive"
    break_archive(made.archive, root, damage)
    shards = Shards([shard_of(made, archive=root)], fan_out)
    oldest = made.records[0]

    answers = pages(shards, tokens, deadline, "all", 1000)
    unique = query_by_unique_key(
        shards, tokens, TOPIC, oldest.unique_key, page_size_asked=0, page_token="", deadline=deadline
    )
    for answer in (*answers, unique):
        assert message_pb2.COMPLETENESS_PARTIAL is answer.completeness
        assert answer.outcomes[0].error is not None
        assert str(root) in answer.outcomes[0].error.message or "not in the archive" in answer.outcomes[0].error.message
    live = front_of(made)
    kept = {offset for offset in made.keyed(TOPIC, "all") if offset >= live}
    assert kept <= {entry.record.commit_log_offset for answer in answers for entry in answer.entries}
    with pytest.raises((StoreCorruptedError, UnsupportedStoreError, RecordNotFoundError)):
        query_by_offset_msg_id(
            shards, encode_offset_msg_id(oldest.store_host, oldest.commit_log_offset), "", "", deadline
        )
    by_place = query_by_queue_offset(shards, TOPIC, 0, 0, broker_name="", page_size_asked=1, deadline=deadline)
    assert message_pb2.COMPLETENESS_PARTIAL is by_place.completeness
    assert by_place.outcome.error is not None
    if damage in ("no archive", "bad manifest"):
        assert message_pb2.COMPLETENESS_PARTIAL is list_topics(shards, tokens, 0, "", deadline).completeness


@pytest.mark.parametrize("part", BARRED)
def test_an_archive_that_cannot_be_read_failed_whole_queries(
    made: Archived, fan_out: FanOut, tokens: PageTokens, deadline: Deadline, tmp_path: Path, part: str
):
    """As one whose disk has gone (ESTALE), or whose rights are too narrow (EACCES)."""
    root = tmp_path / "archive"
    bar_archive(made.archive, root, part)
    shards = Shards([shard_of(made, archive=root)], fan_out)
    oldest = made.records[0]
    live = front_of(made)

    (answer,) = pages(shards, tokens, deadline, "all", 1000)
    by_place = query_by_queue_offset(shards, TOPIC, 0, 0, broker_name="", page_size_asked=1, deadline=deadline)
    listed = list_topics(shards, tokens, 0, "", deadline)

    kept = {offset for offset in made.keyed(TOPIC, "all") if offset >= live}
    assert kept <= {entry.record.commit_log_offset for entry in answer.entries}
    for outcome in (answer.outcomes[0], by_place.outcome, listed.outcomes[0]):
        assert not outcome.complete
        assert isinstance(outcome.error, ServiceUnavailableError)
        assert outcome.error.metadata["service"] == "archive"
        assert str(root) in outcome.error.message
    assert {message_pb2.COMPLETENESS_PARTIAL} == {answer.completeness, by_place.completeness, listed.completeness}
    with pytest.raises(ServiceUnavailableError):
        query_by_offset_msg_id(
            shards, encode_offset_msg_id(oldest.store_host, oldest.commit_log_offset), "", "", deadline
        )
    row = next(row for row in shards.named("").call(STATUSES, None, deadline) if row.status.service == "archive")
    assert row.error is not None or row.status.problem or part.startswith("index")


def test_a_status_row_says_what_the_archive_holds(made: Archived, shards: Shards, deadline: Deadline):
    rows = {row.status.service: row.status for row in shards.named("").call(STATUSES, None, deadline)}

    assert (0, made.records[-1].next_offset, "") == (
        rows["archive"].log_first_offset,
        rows["archive"].log_end_offset,
        rows["archive"].problem,
    )


def test_bodies_keep_to_their_budget_across_log_and_archive(made: Archived, deadline: Deadline):
    shard = shard_of(made)
    offsets: Sequence[int] = [record.commit_log_offset for record in reversed(made.records)]

    outcomes = get_records(shard, offsets, 30_000, deadline)

    assert offsets == [outcome.commit_log_offset for outcome in outcomes]  # type: ignore[union-attr]
    whole = [outcome for outcome in outcomes if not outcome.body_omitted]  # type: ignore[union-attr]
    assert 30_000 >= sum(body_size_bytes(outcome) for outcome in whole)  # type: ignore[union-attr]
    omitted = [bool(outcome.body_omitted) for outcome in outcomes if body_size_bytes(outcome)]  # type: ignore[union-attr]
    assert omitted == sorted(omitted)
    assert len(list(itertools.groupby(omitted))) == 2
