"""Queries over archive and store together equal brute force over the whole log, whatever retention has taken."""

import json
import random
import shutil
from pathlib import Path

import pytest

from cli.main import main
from pipeline.archive import archive
from pipeline.archive.query import QueryAnswer, Source, UnionReader
from store.errors import RecordCorruptedError, RecordNotFoundError, StoreCorruptedError, UnsupportedStoreError
from store.format.message_id import encode_offset_msg_id
from store.format.record import Record
from store.format.topic import encode_topic_table
from tests.support.archives import Archived, archived, message, write_log
from tests.support.fixture_stores import STORE_NAMES

Parts = tuple[Archived, UnionReader, int]


@pytest.fixture(scope="module", params=["whole", "front gone", "log gone", "archive behind"])
def place_and_parts(
    request: pytest.FixtureRequest, broker_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Parts]:
    """The broker's log, spread over archive and store in one of the ways that retention and archiving leave; to be read."""
    place = tmp_path_factory.mktemp("parts")
    return place, spread(broker_store, place, request.param)


@pytest.fixture
def parts(place_and_parts: tuple[Path, Parts]) -> Parts:
    return place_and_parts[1]


def spread(whole: Path, tmp_path: Path, how: str) -> Parts:
    store = tmp_path / "store"
    shutil.copytree(whole / "commitlog", store / "commitlog")
    for path in (store / "commitlog").iterdir():
        path.chmod(0o644)
    made = archived(whole, tmp_path / "all")
    files = sorted((store / "commitlog").iterdir())
    first = 0
    if how == "archive behind":  # what is still written to is only in the log
        archive.run(None, store, tmp_path / "archive")
    else:
        (tmp_path / "all").rename(tmp_path / "archive")
    if how in ("front gone", "archive behind"):
        files[0].unlink()
        first = int(files[1].name)
    if how == "log gone":
        return made, UnionReader(tmp_path / "archive", None), 1 << 62
    return made, UnionReader(tmp_path / "archive", store), first


def assert_found(expected: list[Record], answer: QueryAnswer, first_live: int) -> None:
    assert answer.problem is None
    assert expected == [found.record for found in answer.messages]
    for found in answer.messages:
        live = found.record.commit_log_offset >= first_live
        assert (Source.LIVE if live else Source.ARCHIVE) is found.source


def test_by_key_and_by_unique_key(parts: Parts):
    made, union, first_live = parts
    by_offset = {record.commit_log_offset: record for record in made.records}
    names = random.sample(sorted(made.names()), 25)
    names += [name for name in sorted(made.names()) if name[1] in ("AaAa", "BBBB") or not name[1].isascii()][:20]

    for topic, key in names:
        matches = [by_offset[offset] for offset in made.keyed(topic, key)]
        expected = [record for record in matches if key in record.keys]
        assert_found(expected, union.by_key(topic, key, count=10_000), first_live)
        copies = [record for record in matches if record.unique_key == key]
        assert_found(copies, union.by_unique_key(topic, key, count=10_000), first_live)
        if expected:
            middle = expected[len(expected) // 2].store_time_millis
            inside = [record for record in expected if record.store_time_millis >= middle]
            assert_found(inside, union.by_key(topic, key, begin_millis=middle, count=10_000), first_live)
            newest = union.by_key(topic, key, count=1)
            assert (expected[:1], len(expected) > 1) == ([f.record for f in newest.messages], newest.has_more)


def test_by_id_finds_archived_and_live_records_and_nothing_between(parts: Parts):
    made, union, first_live = parts

    for record in made.records[::7]:
        found = union.by_id(encode_offset_msg_id(record.store_host, record.commit_log_offset))
        assert_found([record], QueryAnswer([found]), first_live)
    last = made.records[-1]
    for offset in (last.next_offset, last.commit_log_offset + 1, 1 << 50):
        with pytest.raises(RecordNotFoundError):
            union.by_id(encode_offset_msg_id(last.store_host, offset))


def test_by_queue_offset_goes_on_from_the_archive_into_the_log(parts: Parts):
    made, union, first_live = parts

    for (topic, queue_id), rows in made.queues().items():
        for begin in (0, len(rows) // 2, max(rows), max(rows) + 1):
            expected = [rows[place] for place in sorted(rows) if place >= begin]
            answer = union.by_offset(topic, queue_id, begin, count=20)
            assert_found(expected[:20], answer, first_live)
            assert (len(expected) > 20) == answer.has_more


@pytest.mark.parametrize("name", STORE_NAMES)
def test_every_message_of_every_fixture_is_found_in_all_four_ways(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
):
    made, union, first_live = spread(request.getfixturevalue(f"{name}_store"), tmp_path, "front gone")
    queues = made.queues()

    for record in random.sample(made.records, 25):
        found = union.by_id(encode_offset_msg_id(record.store_host, record.commit_log_offset))
        assert_found([record], QueryAnswer([found]), first_live)
        for key in {*record.keys}:
            assert record in [found.record for found in union.by_key(record.topic, key, count=10_000).messages]
        if record.unique_key:
            answer = union.by_unique_key(record.topic, record.unique_key, count=10_000)
            assert record in [found.record for found in answer.messages]
        if queues.get((record.topic, record.queue_id), {}).get(record.queue_offset) == record:
            answer = union.by_offset(record.topic, record.queue_id, record.queue_offset)
            assert_found([record], answer, first_live)


def test_log_that_is_missing_between_archive_and_store_is_told(tmp_path: Path):
    store = write_log(tmp_path / "store", [message(n, keys="k") for n in range(2000)])
    files = sorted((store / "commitlog").iterdir())
    (tmp_path / "part" / "commitlog").mkdir(parents=True)
    shutil.copy(files[0], tmp_path / "part" / "commitlog")
    archive.run(None, tmp_path / "part", tmp_path / "archive", include_active=True)
    for path in files[:3]:
        path.unlink()

    union = UnionReader(tmp_path / "archive", store)

    for answer in (union.by_key("orders", "k"), union.by_offset("orders", 0, 0)):
        assert isinstance(answer.problem, StoreCorruptedError)
        assert "65536" in answer.problem.message
        assert answer.messages


def test_what_is_no_archive_is_refused(tmp_path: Path):
    with pytest.raises(UnsupportedStoreError):
        UnionReader(tmp_path, None)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["pipeline", "query", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_the_verb_prints_rows_with_their_source(
    place_and_parts: tuple[Path, Parts], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    place, (made, _union, first_live) = place_and_parts
    flags = ["--archive", place / "archive"] + (["--store", place / "store"] if first_live < 1 << 62 else [])
    record = next(record for record in made.records if record.keys)
    source = "live" if record.commit_log_offset >= first_live else "archive"
    offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)

    for asked in (
        ("byKey", "-t", record.topic, "-k", record.keys[0], "-m", 1000),
        ("byId", "-i", offset_msg_id),
        ("byUniqueKey", "-t", record.topic, "-i", record.unique_key),
        ("byOffset", "-t", record.topic, "--queueId", record.queue_id, "--offset", record.queue_offset),
    ):
        code, out = run(capsys, *asked, *flags, "-o", "json")
        answer = json.loads(out)
        assert 0 == code
        assert source in {row["source"] for row in answer["messages"] if row["offset_msg_id"] == offset_msg_id}
    assert 1 == run(capsys, "byKey", "-t", record.topic, "-k", "no such key", *flags)[0]
    assert 1 == run(capsys, "byId", "-i", encode_offset_msg_id(record.store_host, 1 << 50), *flags)[0]
    assert 2 == run(capsys, "byKey", "-t", record.topic, *flags)[0]
    assert 2 == run(capsys, "byId", "-i", "no id", *flags)[0]
    assert 2 == run(capsys, "byId", "-i", offset_msg_id, "--archive", tmp_path / "nothing")[0]
    assert 0 == run(capsys, "byId", "-i", offset_msg_id, "--dry-run", *flags)[0]


def damage(store: Path, record: Record, at: int = 120) -> None:
    """Turns over a byte of a record in the log; one at 120 is in its body."""
    path = max(one for one in (store / "commitlog").iterdir() if int(one.name) <= record.commit_log_offset)
    data = bytearray(path.read_bytes())
    data[record.commit_log_offset - int(path.name) + at] ^= 0xFF
    path.write_bytes(data)


def of_queue(tmp_path: Path) -> Archived:
    """An archived log of 400 messages with keys and bodies of 200 bytes in two and a bit files."""
    return archived(
        write_log(tmp_path / "store", [message(n, keys=f"k{n} all", body=b"x" * 200) for n in range(400)]),
        tmp_path / "archive",
    )


def asked_of(record: Record) -> list[tuple[object, ...]]:
    """A record in all four ways."""
    return [
        ("byId", "-i", encode_offset_msg_id(record.store_host, record.commit_log_offset)),
        ("byUniqueKey", "-t", "orders", "-i", record.unique_key),
        ("byKey", "-t", "orders", "-k", record.keys[0]),
        ("byOffset", "-t", "orders", "--queueId", 0, "--offset", record.queue_offset, "-m", 1),
    ]


@pytest.mark.parametrize("at", [4, 120])
def test_a_damaged_record_of_the_log_hid_the_one_in_the_archive(
    at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    made = of_queue(tmp_path)
    record = made.records[10]
    damage(made.store, record, at)

    for asked in asked_of(record):
        code, out = run(capsys, *asked, "--archive", made.archive, "--store", made.store, "-o", "json")
        [row] = json.loads(out)["messages"]
        assert (code, row["source"], row["queue_offset"]) == (0, "archive", 10), asked


def test_a_damaged_record_that_only_the_log_has_lost_the_whole_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = of_queue(tmp_path)
    shutil.rmtree(made.archive)
    archive.run(None, made.store, made.archive)
    record = made.records[-5]
    damage(made.store, record)
    flags = ("--archive", made.archive, "--store", made.store)

    union = UnionReader(made.archive, made.store)
    everything = union.by_key("orders", "all", count=1000)
    page = union.by_offset("orders", 0, record.queue_offset - 3, count=5)

    assert [found.record for found in everything.messages] == [one for one in reversed(made.records) if one != record]
    assert [found.record.queue_offset - record.queue_offset for found in page.messages] == [-3, -2, -1, 1]
    for problem in (everything.problem, page.problem):
        assert isinstance(problem, RecordCorruptedError)
        assert str(record.commit_log_offset) in problem.message
    assert [run(capsys, *asked, *flags)[0] for asked in asked_of(record)] == [2, 3, 3, 3]


def test_damage_between_records_of_the_log_lost_the_whole_page(tmp_path: Path):
    made = of_queue(tmp_path)
    shutil.rmtree(made.archive)
    archive.run(None, made.store, made.archive)
    record = made.records[-5]
    damage(made.store, record, at=4)

    answer = UnionReader(made.archive, made.store).by_key("orders", "all", count=1000)

    assert [found.record for found in answer.messages] == list(reversed(made.records[:-5]))
    assert isinstance(answer.problem, StoreCorruptedError)


@pytest.mark.parametrize("at", [4, 120])
def test_an_id_is_damaged_where_a_record_started_and_not_found_elsewhere(at: int, tmp_path: Path):
    made = of_queue(tmp_path)
    shutil.rmtree(made.archive)
    archive.run(None, made.store, made.archive)
    before, record, last = made.records[-6], made.records[-5], made.records[-1]
    damage(made.store, record, at)
    union = UnionReader(made.archive, made.store)

    def ask(offset: int) -> None:
        union.by_id(encode_offset_msg_id(last.store_host, offset))

    with pytest.raises(RecordCorruptedError):
        ask(record.commit_log_offset)
    for offset in (before.commit_log_offset + 1, made.records[3].commit_log_offset + 1):
        with pytest.raises(RecordNotFoundError):
            ask(offset)
    if at == 120:
        for offset in (last.commit_log_offset + 1, last.next_offset, last.next_offset + 50):
            with pytest.raises(RecordNotFoundError):
                ask(offset)


def test_a_record_that_became_zeros_is_damaged_not_missing(tmp_path: Path):
    made = of_queue(tmp_path)
    shutil.rmtree(made.archive)
    archive.run(None, made.store, made.archive)
    record = made.records[-5]
    path = max((made.store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    at = record.commit_log_offset - int(path.name)
    data[at : at + record.store_size_bytes] = bytes(record.store_size_bytes)
    path.write_bytes(data)

    with pytest.raises(RecordCorruptedError):
        UnionReader(made.archive, made.store).by_id(encode_offset_msg_id(record.store_host, record.commit_log_offset))


def test_archive_and_log_were_complete_though_a_compacted_topic_may_have_more(tmp_path: Path):
    made = of_queue(tmp_path)
    (made.store / "compaction/compactionLog/orders/0").mkdir(parents=True)
    union = UnionReader(made.archive, made.store)
    unique_key = made.records[0].unique_key
    assert unique_key is not None
    for answer in (union.by_key("orders", "all"), union.by_unique_key("orders", unique_key)):
        assert isinstance(answer.problem, UnsupportedStoreError)
        assert answer.problem.metadata["feature"] == "compaction"
        assert answer.messages
    assert union.by_offset("orders", 0, 0).problem is None
    assert union.by_key("other", "all").problem is None

    (made.store / "tieredstore/broker").mkdir(parents=True)
    problem = UnionReader(made.archive, made.store).by_key("other", "all").problem
    assert problem is not None
    assert problem.metadata["feature"] == "tiered-storage"


def test_archive_and_log_did_not_say_what_was_deleted_with_its_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    made = of_queue(tmp_path)
    at = made.records[300].commit_log_offset
    (made.store / "config").mkdir()
    (made.store / "config/topics.json").write_bytes(encode_topic_table({}, None, time_millis=1, deleted={"orders": at}))
    union = UnionReader(made.archive, made.store)
    answer = union.by_key("orders", "all", count=1000)
    assert len(answer.messages) == 400
    assert {each.is_deleted for each in answer.messages} == {True, False}
    for found in (*answer.messages, *union.by_offset("orders", 0, 0, count=1000).messages):
        assert found.is_deleted == (found.record.commit_log_offset < at)
    record = made.records[0]
    offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)
    assert union.by_id(offset_msg_id).is_deleted
    flags = ("--archive", made.archive, "--store", made.store, "-O", "json")
    code, out = run(capsys, "byId", "-i", offset_msg_id, *flags)
    assert (code, json.loads(out)["messages"][0]["deleted_with_topic"]) == (0, True)
