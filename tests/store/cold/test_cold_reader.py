"""The cold tier answers as brute force over the log does, in few requests, and says when it cannot."""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import get_units, list_queues, search_key
from gateway.ports.time_window import TimeWindow
from gateway.shards.cold_objects import UriObjects
from pipeline.archive import ship_cold
from store.cold.manifest import decode_manifest, encode_manifest
from store.cold.objects import PageCache, index_name, log_name, manifest_name
from store.cold.reader import AWAY_SECONDS, LOOK_SECONDS, ColdReader
from store.errors import (
    OffsetOutOfRangeError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    UnsupportedStoreError,
)
from store.format.record import Record, decode_record
from store.format.sys_flag import TransactionType
from tests.gateway.shards.archived.archived_shard import shard_over
from tests.support.archives import BEGIN_MILLIS, BROKER, Archived, message, write_log
from tests.support.falling_times import falling_times, moments_of
from tests.support.fixture_stores import walk_frames
from tests.support.object_store import CREDENTIALS, running_object_store

TOPIC = "orders"
FILE_BYTES = 1 << 17
CACHE_BYTES = 4 << 20
# Queue 2 has records without a place in it: its units have gaps.
HALF = int(TransactionType.PREPARED)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    """A log of several files, each of several pages; every record of its sealed files."""
    root = tmp_path_factory.mktemp("cold")
    messages = [
        message(
            n,
            topic=TOPIC,
            queue_id=n % 3,
            keys=f"all key{n}" + (" often" if n % 100 == 0 else ""),
            sys_flag=HALF if n % 3 == 2 and n % 5 == 0 else 0,
        )
        for n in range(2500)
    ]
    store = write_log(root / "store", messages, file_bytes=FILE_BYTES, millis_between=2)
    sealed_end = max(int(path.name) for path in (store / "commitlog").iterdir())
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(store)]
    return Archived(store, root / "none", [record for record in records if record.commit_log_offset < sealed_end])


@pytest.fixture(scope="module")
def tier(made: Archived, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tier")
    assert ship_cold.run(made.store, f"file://{root}", broker_name=BROKER).findings == []
    return root


@pytest.fixture
def copied(tier: Path, tmp_path: Path) -> Path:
    """A tier to damage."""
    for path in (tier / BROKER).iterdir():
        (tmp_path / "tier" / BROKER).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tier" / BROKER / path.name).write_bytes(path.read_bytes())
    return tmp_path / "tier"


def open_tier(root: Path, cache: Path, cache_bytes: int = CACHE_BYTES) -> ColdReader:
    uri = f"file://{root}"
    return ColdReader(uri, BROKER, UriObjects(uri), PageCache(cache, cache_bytes))


def segments_of(root: Path) -> list:
    return decode_manifest((root / manifest_name(BROKER)).read_bytes(), "cold.json")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def record_of(made: Archived, number: int) -> Record:
    return made.records[number]


def test_every_record_is_read_by_its_offset(made: Archived, tier: Path, tmp_path: Path) -> None:
    reader = open_tier(tier, tmp_path)

    assert len(segments_of(tier)) > 2
    assert [reader.record(record.commit_log_offset) for record in made.records] == made.records
    for offset in (made.records[7].commit_log_offset + 1, made.records[0].commit_log_offset + 5):
        with pytest.raises(RecordNotFoundError):
            reader.record(offset)
    with pytest.raises(OffsetOutOfRangeError):
        reader.record(reader.range()[1])


@pytest.mark.parametrize("key", ["all", "often", "key7", "key1999", "U00000400", "nobody"])
@pytest.mark.parametrize("count", [1, 300, 10_000])
def test_records_of_a_key_are_those_of_brute_force(
    made: Archived, tier: Path, tmp_path: Path, key: str, count: int
) -> None:
    reader = open_tier(tier, tmp_path)
    expected = [
        r.commit_log_offset for r in reversed(made.records) if key in (*r.keys, r.unique_key) and r.sys_flag != HALF
    ]

    found: list[int] = []
    below, is_cut = None, False
    while not is_cut:
        hits = reader.search(TOPIC, key, below_offset=below, count=count)
        assert hits.problem is None
        found += hits.commit_log_offsets
        if not hits.more:
            break
        is_cut, below = count == 1 and len(found) > 20, found[-1]

    def holds(offset: int) -> bool:
        record = reader.record(offset)
        return key in (*record.keys, record.unique_key) and record.sys_flag != HALF

    assert found == sorted(set(found), reverse=True)
    matches = [offset for offset in found if holds(offset)]
    assert matches == (expected[: len(matches)] if is_cut else expected)


def test_units_of_queues_with_and_without_gaps_are_those_of_brute_force(
    made: Archived, tier: Path, tmp_path: Path
) -> None:
    reader = open_tier(tier, tmp_path)

    for (topic, queue_id), queue in made.queues().items():
        expected = [(o, r.commit_log_offset, r.store_size_bytes) for o, r in sorted(queue.items())]
        assert reader.queues(topic)[topic, queue_id] == (min(queue), max(queue) + 1)
        for begin in (0, 1, 144, 145, 400, max(queue)):
            hits = reader.units(topic, queue_id, begin, 300)
            assert hits.problem is None
            assert [tuple(unit) for unit in hits.units] == [unit for unit in expected if unit[0] >= begin][:300]


def test_positions_of_times_are_those_of_brute_force(made: Archived, tier: Path, tmp_path: Path) -> None:
    reader = open_tier(tier, tmp_path)

    for (topic, queue_id), queue in made.queues().items():
        times = sorted((record.store_time_millis, offset) for offset, record in queue.items())
        for asked in {times[0][0] - 1, times[-1][0] + 1} | {t + step for t, _ in times[::37] for step in (-1, 0, 1)}:
            lower = next((offset for time, offset in times if time >= asked), None)
            upper = next((offset for time, offset in reversed(times) if time <= asked), None)
            assert reader.at_time(topic, queue_id, asked).queue_offset == lower
            assert reader.at_time(topic, queue_id, asked, is_upper=True).queue_offset == upper


@pytest.mark.parametrize("is_known", [True, False], ids=["known what rises", "manifest of an earlier version"])
def test_positions_in_the_tier_are_those_of_brute_force_where_store_times_fall(
    tmp_path: Path, *, is_known: bool
) -> None:
    times = falling_times(BEGIN_MILLIS, 1500, seed=3)
    times[:600] = sorted(times[:600])
    messages = [message(n, topic=TOPIC, queue_id=n % 3) for n in range(1500)]
    store = write_log(tmp_path / "store", messages, file_bytes=FILE_BYTES, time_of=times.__getitem__)
    assert ship_cold.run(store, f"file://{tmp_path}/tier", broker_name=BROKER).findings == []
    segments = segments_of(tmp_path / "tier")
    assert {queue.times_rise for segment in segments for queue in segment.queues} == {True, False}
    if not is_known:
        unknown = [replace(s, queues=tuple(replace(q, times_rise=False) for q in s.queues)) for s in segments]
        (tmp_path / "tier" / manifest_name(BROKER)).write_bytes(encode_manifest(unknown))
    reader = open_tier(tmp_path / "tier", tmp_path / "cache")

    for queue_id in range(3):
        rows = [(number // 3, times[number]) for number in range(queue_id, 1500, 3)]
        rows = rows[: reader.queues(TOPIC)[TOPIC, queue_id][1]]
        for asked in moments_of(times, 80, seed=4):
            lower = next((offset for offset, time in rows if time >= asked), None)
            upper = next((offset for offset, time in reversed(rows) if time <= asked), None)
            found = [reader.at_time(TOPIC, queue_id, asked, is_upper=is_upper) for is_upper in (False, True)]
            assert [(hit.queue_offset, hit.problem) for hit in found] == [(lower, None), (upper, None)], asked


@pytest.mark.parametrize("part", ["log", "key page", "unit page", "fences", "manifest", "no log", "no index"])
def test_damage_of_an_object_is_noticed_and_named(made: Archived, copied: Path, tmp_path: Path, part: str) -> None:
    segment = segments_of(copied)[0]
    log, index = copied / log_name(BROKER, 0), copied / index_name(BROKER, 0)
    record = next(r for r in made.records[10:] if not r.sys_flag)
    unit_pages = -(-segment.unit_count // 145)
    match part:
        case "log":
            flip(log, record.commit_log_offset + record.store_size_bytes - 3)  # in its properties
        case "key page":
            for number in range(-(-segment.key_count // 255)):
                flip(index, (unit_pages + number) * 4096 + 100)
        case "unit page":
            flip(index, 100)
        case "fences":
            flip(index, segment.fences_position + 1)
        case "manifest":
            path = copied / manifest_name(BROKER)
            path.write_bytes(path.read_bytes().replace(b'"key_count": ', b'"key_count": 1'))
        case _:
            (log if part == "no log" else index).unlink()
    reader = open_tier(copied, tmp_path / "cache")

    problems = [
        reader.search(TOPIC, record.keys[1]).problem,
        reader.units(TOPIC, 0, 0, 1).problem,
        reader.at_time(TOPIC, 0, record.store_time_millis).problem,
    ]
    if part in ("log", "no log"):
        with pytest.raises(StoreCorruptedError) as raised:
            reader.record(record.commit_log_offset)
        problems.append(raised.value)
    noticed = [problem for problem in problems if problem is not None]

    assert noticed
    assert all(isinstance(problem, StoreCorruptedError) and problem.metadata["file"] for problem in noticed)


def test_a_damaged_log_file_left_out_the_messages_of_those_behind_it(
    made: Archived, copied: Path, tmp_path: Path
) -> None:
    first, second = segments_of(copied)[:2]
    flip(copied / index_name(BROKER, first.first_offset), first.fences_position + 1)
    flip(copied / index_name(BROKER, first.first_offset), 100)
    reader = open_tier(copied, tmp_path / "cache")
    behind = [
        record for record in made.records if record.queue_id == 0 and record.commit_log_offset >= second.first_offset
    ]

    hits = reader.units(TOPIC, 0, 0, 10_000)
    found = reader.at_time(TOPIC, 0, behind[0].store_time_millis)

    assert [unit.commit_log_offset for unit in hits.units] == [record.commit_log_offset for record in behind]
    assert isinstance(hits.problem, StoreCorruptedError)
    assert found.queue_offset == behind[0].queue_offset


class Store:
    """Objects of another store, until it is away."""

    def __init__(self, objects: UriObjects) -> None:
        self._objects = objects
        self.is_away = False
        self.asked_count = 0

    def stamp(self, name: str) -> str | None:
        self._ask()
        return self._objects.stamp(name)

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes:
        self._ask()
        return self._objects.read_at(name, position, size_bytes)

    def _ask(self) -> None:
        self.asked_count += 1
        if self.is_away:
            raise ServiceUnavailableError("it is away", service="objects")


def test_answers_are_partial_while_the_store_is_away_and_whole_when_it_is_back(
    made: Archived, tier: Path, tmp_path: Path
) -> None:
    store, now = Store(UriObjects(f"file://{tier}")), [0.0]
    reader = ColdReader(str(tier), BROKER, store, PageCache(tmp_path, CACHE_BYTES), lambda: now[0])
    shard = shard_over(made, reader)
    deadline = Deadline.after(60)
    store.is_away = True

    def search():
        return search_key(shard, TOPIC, "key7", TimeWindow(), below_offset=None, count_max=9, deadline=deadline)

    first = search()
    asked = store.asked_count
    again = search()
    stretch = get_units(shard, TOPIC, 0, 0, 5, deadline)
    now[0] += AWAY_SECONDS + 1
    store.is_away = False
    back = search()
    now[0] += LOOK_SECONDS + 1
    store.is_away = True
    known = list_queues(shard, TOPIC, deadline)

    assert isinstance(first.problem, ServiceUnavailableError)
    assert isinstance(again.problem, ServiceUnavailableError)
    assert isinstance(stretch.problem, ServiceUnavailableError)
    assert store.asked_count > asked == 1, "while it is away, it is asked once"
    assert back.problem is None
    assert list(back.answer.commit_log_offsets) == [record_of(made, 7).commit_log_offset]
    assert {queue.min_offset for queue in known} == {0, 1} or {queue.min_offset for queue in known} == {0}


def test_a_place_without_this_shard_is_refused(tmp_path: Path) -> None:
    reader = open_tier(tmp_path, tmp_path / "cache")

    assert isinstance(reader.problem(), UnsupportedStoreError)


def test_the_cache_stays_within_its_limit_and_damage_in_it_heals(made: Archived, tier: Path, tmp_path: Path) -> None:
    limit = 200_000
    reader = open_tier(tier, tmp_path, limit)
    for record in made.records[::50]:
        reader.record(record.commit_log_offset)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
    for path in tmp_path.iterdir():
        flip(path, 50)
    (tmp_path / "left.tmp").write_bytes(b"of a killed process")

    healed = open_tier(tier, tmp_path, limit)

    assert [healed.record(record.commit_log_offset) for record in made.records[::50]] == made.records[::50]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit
    assert not (tmp_path / "left.tmp").exists()
    open_tier(tier, tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_each_query_takes_a_bounded_number_of_requests(
    made: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by the server, so with the requests that pyarrow makes to open an object."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_object_store() as server:
        server.fs.create_dir("cold")
        uri = server.uri("cold/tier")
        ship_cold.run(made.store, uri, broker_name=BROKER)
        record = next(r for r in made.records[600:] if not r.sys_flag)
        file_count = len(segments_of(server.download("cold/tier", tmp_path / "copy")))

        def asked(number: int, ask) -> tuple[int, int]:
            """Requests of the first time in a gateway that knows the manifest, and of the next."""
            reader = ColdReader("tier", BROKER, UriObjects(uri), PageCache(tmp_path / str(number), CACHE_BYTES))
            server.request_count()
            reader.range()
            assert server.request_count() == 3
            ask(reader)
            first = server.request_count()
            ask(reader)
            return first, server.request_count()

        def by_key(reader: ColdReader) -> None:
            window = {"begin_millis": record.store_time_millis, "end_millis": record.store_time_millis}
            hits = reader.search(TOPIC, record.unique_key, **window)
            assert reader.record(hits.commit_log_offsets[0]) == record

        def by_key_at_any_time(reader: ColdReader) -> None:
            hits = reader.search(TOPIC, record.unique_key)
            assert reader.record(hits.commit_log_offsets[0]) == record

        def by_id(reader: ColdReader) -> None:
            assert reader.record(record.commit_log_offset) == record

        def by_queue_offset(reader: ColdReader) -> None:
            unit = reader.units(TOPIC, record.queue_id, record.queue_offset, 1).units[0]
            assert reader.record(unit.commit_log_offset) == record

        def by_time(reader: ColdReader) -> None:
            assert reader.at_time(TOPIC, record.queue_id, record.store_time_millis).queue_offset == record.queue_offset

        # The figures of docs/cold-tier.md.
        assert asked(1, by_key) == (5, 0)
        assert asked(2, by_key_at_any_time) == (3 * file_count + 2, 0)
        assert asked(3, by_id) == (5, 0)
        assert asked(4, by_queue_offset) == (4, 0)
        assert asked(5, by_time) == (3, 0)


@pytest.mark.parametrize("name", ["broker_store", "engine_store"])
def test_a_store_of_rocketmq_answers_from_the_tier_as_from_its_log(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    store: Path = request.getfixturevalue(name)
    report = ship_cold.run(store, f"file://{tmp_path}/tier", broker_name=BROKER)
    end = max(segment.end_offset for segment in segments_of(tmp_path / "tier"))
    records = [decode_record(frame, commit_log_offset=at) for at, frame in walk_frames(store) if at < end]
    shipped = Archived(store, tmp_path / "none", records)
    reader = open_tier(tmp_path / "tier", tmp_path / "cache")

    assert report.counts["record_count"] == len(records) > 100
    assert [reader.record(record.commit_log_offset) for record in records] == records
    for (topic, queue_id), queue in shipped.queues().items():
        units = reader.units(topic, queue_id, 0, 10_000).units
        assert [(unit.queue_offset, unit.commit_log_offset) for unit in units] == [
            (offset, record.commit_log_offset) for offset, record in sorted(queue.items())
        ]
    for topic, key in sorted(shipped.names())[::20]:
        hits = reader.search(topic, key, count=10_000)
        assert set(hits.commit_log_offsets) >= set(shipped.keyed(topic, key))
        assert hits.problem is None


def test_a_server_that_refuses_or_has_ended_is_told_as_unavailable(
    made: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_object_store() as server:
        reader = ColdReader("tier", BROKER, UriObjects(server.uri("absent/tier")), PageCache(tmp_path, CACHE_BYTES))
        no_bucket = reader.problem()
        server.fs.create_dir("cold")
        ship_cold.run(made.store, server.uri("cold/tier"), broker_name=BROKER)
        reader = ColdReader("tier", BROKER, UriObjects(server.uri("cold/tier")), PageCache(tmp_path, CACHE_BYTES))
        first = reader.record(made.records[0].commit_log_offset)
        assert reader.problem() is None
        server.end()

    with pytest.raises(ServiceUnavailableError):
        reader.record(made.records[-1].commit_log_offset)
    assert reader.record(made.records[0].commit_log_offset) == first, "what is cached is still answered"
    assert isinstance(reader.search(TOPIC, "all").problem, ServiceUnavailableError)
    assert isinstance(no_bucket, ServiceUnavailableError | UnsupportedStoreError)


def test_a_manifest_that_nests_without_limit_is_damaged_and_no_other_error():
    with pytest.raises(StoreCorruptedError, match=r"cold\.json"):
        decode_manifest(b'{"cold":' + b"[" * 100_000, "cold.json")
