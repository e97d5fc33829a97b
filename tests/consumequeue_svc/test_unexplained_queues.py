"""What the log does not explain among the queues is left alone or kept aside, whatever state the store is in."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.unexplained import Keeper, RecordPlace
from store.derive.dispatch import DispatchRequest
from store.errors import DiskFullError, UnsupportedStoreError
from store.files.aside import FOLDER_COUNT_MAX, Aside, builder_folder
from store.files.file_system import RealFileSystem
from tests.support.dispatches import RECORD_SIZE_BYTES, feed, file_bytes, make_request

FILE_SIZE = 400  # 20 units
UNIT = struct.Struct(">qiq")
REQUESTS = [make_request(number) for number in range(30)]
LOG_END = REQUESTS[-1].next_offset


def write_queue(root: Path, topic: str, offsets: Sequence[int], queue_id: int = 0, *, size: int = FILE_SIZE) -> Path:
    """A queue file whose units point to these offsets."""
    path = root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(UNIT.pack(offset, RECORD_SIZE_BYTES, 0) for offset in offsets).ljust(size, b"\0"))
    return path


def open_builder(
    root: Path,
    requests: Sequence[DispatchRequest] = REQUESTS,
    *,
    dispatched_to: str = "",
    log_first: int = 0,
    told: list[str] | None = None,
) -> ConsumeQueueBuilder:
    """A recovered builder over a log of these records, all of which name one further queue."""
    fs = RealFileSystem()
    places = {
        request.commit_log_offset: RecordPlace(
            request.topic, request.queue_id, request.queue_offset, frozenset(filter(None, [dispatched_to]))
        )
        for request in requests
    }
    words = told if told is not None else []
    aside = Aside(
        fs,
        root,
        builder_folder(root, "consumequeue"),
        tell=lambda path, kept, why: words.append(f"{path.relative_to(root)}: {why}"),
    )
    table = ConsumeQueueTable(root, fs, FILE_SIZE, keeper=Keeper(aside, places.get))
    table.load()
    builder = ConsumeQueueBuilder(table, root / "reput/consumequeue/checkpoint.json")
    builder.recover(is_clean_store=True, log_first_offset=log_first, log_end_offset=requests[-1].next_offset)
    builder.begin()
    return builder


def follow(builder: ConsumeQueueBuilder, requests: Sequence[DispatchRequest] = REQUESTS, *, log_first: int = 0) -> None:
    """Feeds the builder from where it begins to the log's end."""
    start = max(builder.start_offset(), log_first)
    rest = [request for request in requests if request.commit_log_offset >= start]
    feed(builder, rest, log_end_offset=requests[-1].next_offset, log_first_offset=log_first)


def kept(root: Path) -> dict[str, bytes]:
    """Everything that was moved aside, by its path below the numbered folder."""
    found = file_bytes(root / "reput/aside/consumequeue")
    return {name.partition("/")[2]: data for name, data in found.items()}


def run(root: Path, *, dispatched_to: str = "") -> None:
    """One life: the log is followed to its end, and the builder stops."""
    builder = open_builder(root, dispatched_to=dispatched_to)
    follow(builder)
    builder.stop()


def test_a_light_queue_stays_as_it_is_through_a_first_start_a_clean_one_and_one_after_a_kill(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "%LMQ%first%r%a", [0, 300, 500])
    before = path.read_bytes()
    run(tmp_path)
    assert path.read_bytes() == before
    run(tmp_path)
    assert path.read_bytes() == before
    killed = open_builder(tmp_path)
    follow(killed)
    newer = write_queue(tmp_path, "%LMQ%late", [2900])  # a broker was there before the next start
    run(tmp_path)
    assert path.read_bytes() == before
    assert newer.exists()
    assert kept(tmp_path) == {}


def test_a_light_queue_is_named_by_the_table_and_a_read_of_it_is_refused_as_unsupported(tmp_path: Path) -> None:
    write_queue(tmp_path, "%LMQ%a", [0])
    table = open_builder(tmp_path)._table
    assert "%LMQ%a/0" in table.left_alone_words()
    with pytest.raises(UnsupportedStoreError, match="multi-dispatch"):
        table.queue("%LMQ%a", 0)


def test_a_queue_that_records_name_in_their_multi_dispatch_is_left_alone_also_at_later_starts(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "copies", [0, 300, 500])
    before = path.read_bytes()
    for _ in range(3):
        run(tmp_path, dispatched_to="copies")
        assert path.read_bytes() == before
    assert kept(tmp_path) == {}


def test_a_dispatched_queue_makes_way_aside_when_its_topic_gets_records_of_its_own(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "copies", [0, 300])
    before = path.read_bytes()
    run(tmp_path, dispatched_to="copies")
    own = [*REQUESTS, make_request(30, topic="copies", queue_offset=0)]
    builder = open_builder(tmp_path, own, dispatched_to="copies")
    follow(builder, own)
    builder.stop()
    assert kept(tmp_path) == {f"consumequeue/copies/0/{0:020d}": before}
    assert UNIT.unpack_from(path.read_bytes())[0] == 3000


def test_a_queue_that_no_record_explains_is_moved_aside_and_told_with_its_reason(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "ghost", [0, 300, 500])
    before = path.read_bytes()
    told: list[str] = []
    builder = open_builder(tmp_path, told=told)
    follow(builder)
    builder.stop()
    assert not path.exists()
    assert kept(tmp_path) == {f"consumequeue/ghost/0/{0:020d}": before}
    assert told == [f"consumequeue/ghost/0/{0:020d}: the log has no record for these units"]


def test_a_queue_put_into_the_store_after_a_clean_stop_is_moved_aside(tmp_path: Path) -> None:
    run(tmp_path)
    before = write_queue(tmp_path, "ghost", [100]).read_bytes()
    run(tmp_path)
    assert kept(tmp_path) == {f"consumequeue/ghost/0/{0:020d}": before}


@pytest.mark.parametrize("offset", [100, 2900])
def test_a_queue_put_into_the_store_after_a_kill_is_moved_aside(tmp_path: Path, offset: int) -> None:
    killed = open_builder(tmp_path)
    follow(killed)
    before = write_queue(tmp_path, "ghost", [offset]).read_bytes()
    run(tmp_path)
    assert kept(tmp_path) == {f"consumequeue/ghost/0/{0:020d}": before}


def test_units_behind_the_end_of_a_foreign_log_are_kept_aside_before_they_are_cut(tmp_path: Path) -> None:
    offsets = [request.commit_log_offset for request in REQUESTS[:10]]
    ours = [make_request(number) for number in range(10)]
    path = write_queue(tmp_path, "orders", [*offsets, 7700, 7800])
    builder = open_builder(tmp_path, ours)
    follow(builder, ours)
    builder.stop()
    assert UNIT.unpack_from(path.read_bytes(), 200) == (0, 0, 0)
    (data,) = kept(tmp_path).values()
    assert data.ljust(40, b"\0") == UNIT.pack(7700, 100, 0) + UNIT.pack(7800, 100, 0).ljust(20, b"\0")


def test_units_that_point_to_other_records_than_the_log_gives_are_kept_before_they_are_overwritten(
    tmp_path: Path,
) -> None:
    path = write_queue(tmp_path, "orders", [9100 + 100 * number for number in range(5)])
    before = path.read_bytes()
    run(tmp_path)
    assert kept(tmp_path) == {f"consumequeue/orders/0/{0:020d}": before.rstrip(b"\0")}
    assert UNIT.unpack_from(path.read_bytes(), 20)[0] == 100


def test_a_queue_file_that_is_too_long_keeps_its_rest_aside(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "orders", [request.commit_log_offset for request in REQUESTS[:20]])
    path.write_bytes(path.read_bytes() + b"more")
    run(tmp_path)
    assert kept(tmp_path) == {f"consumequeue/orders/0/{0:020d}.from.{FILE_SIZE}": b"more"}


def test_a_kill_moves_nothing_aside_of_what_the_builder_wrote_itself(tmp_path: Path) -> None:
    killed = open_builder(tmp_path, REQUESTS[:10])
    follow(killed, REQUESTS[:10])
    killed.stop()
    more = [*REQUESTS, *(make_request(30 + n, topic="new", queue_offset=n) for n in range(25))]
    killed = open_builder(tmp_path, more)
    follow(killed, more)
    again = open_builder(tmp_path, more)
    follow(again, more)
    again.stop()
    assert kept(tmp_path) == {}
    assert len(file_bytes(tmp_path / "consumequeue")) == 4


def test_a_queue_whose_records_expired_stays_where_it_is(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "old", [0, 300])
    before = path.read_bytes()
    builder = open_builder(tmp_path, log_first=1000)
    follow(builder, log_first=1000)
    builder.stop()
    assert path.read_bytes() == before


def test_a_file_of_consume_queue_ext_that_a_broker_wrote_is_moved_aside(tmp_path: Path) -> None:
    write_queue(tmp_path, "orders", [0])
    ext = tmp_path / f"consumequeue_ext/orders/0/{0:020d}"
    ext.parent.mkdir(parents=True)
    ext.write_bytes(b"bit maps")
    run(tmp_path)
    assert kept(tmp_path)[f"consumequeue_ext/orders/0/{0:020d}"] == b"bit maps"


def test_a_full_folder_of_what_was_moved_aside_stops_the_builder_with_words_and_removes_nothing(tmp_path: Path) -> None:
    for number in range(FOLDER_COUNT_MAX):
        (tmp_path / f"reput/aside/consumequeue/{number + 1}").mkdir(parents=True)
        (tmp_path / f"reput/aside/consumequeue/{number + 1}/kept").touch()
    path = write_queue(tmp_path, "ghost", [0])
    builder = open_builder(tmp_path)
    with pytest.raises(DiskFullError, match="look at them, then remove"):
        follow(builder)
    assert path.exists()


def test_two_starts_keep_two_folders_and_overwrite_nothing(tmp_path: Path) -> None:
    contents = []
    for offset in (0, 300):
        path = write_queue(tmp_path, "ghost", [offset])
        contents.append(path.read_bytes())
        run(tmp_path)
        path.parent.rmdir()
    folders = sorted((tmp_path / "reput/aside/consumequeue").iterdir())
    assert [folder.name for folder in folders] == ["1", "2"]
    assert [next(folder.rglob("0000*")).read_bytes() for folder in folders] == contents
