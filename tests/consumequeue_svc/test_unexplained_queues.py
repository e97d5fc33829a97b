"""What the log does not explain among the queues is left alone or kept aside, whatever state the store is in."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import saved_ext_file_size_bytes
from consumequeue_svc.unexplained import Keeper, RecordPlace
from store.derive.dispatch import DispatchRequest
from store.errors import DiskFullError, StoreCorruptedError, TopicNotFoundError, UnsupportedStoreError
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
    ext_file_size_bytes: int = 0,
    hidden: Mapping[str, str] = MappingProxyType({}),
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
    keeper = Keeper(aside, places.get)
    table = ConsumeQueueTable(
        root, fs, FILE_SIZE, ext_file_size_bytes=ext_file_size_bytes, keeper=keeper, hidden=hidden
    )
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


def test_a_light_queue_whose_records_retention_removed_is_empty_and_not_refused(tmp_path: Path) -> None:
    """A broker keeps its file for the end of the queue."""
    write_queue(tmp_path, "%LMQ%a", [0])
    table = open_builder(tmp_path)._table
    table.hide_expired(100, 9)
    with pytest.raises(TopicNotFoundError):
        table.queue("%LMQ%a", 0)


def test_a_light_queue_that_no_record_explains_is_named_by_the_table_and_refused_as_unsupported(tmp_path: Path) -> None:
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


def kill_after(builder: ConsumeQueueBuilder, requests: Sequence[DispatchRequest]) -> None:
    """A life that has saved a checkpoint, and is killed."""
    follow(builder, requests)
    builder._prepare_checkpoint(is_clean=False)()


OTHERS = [make_request(number, topic="others") for number in range(29)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_queues_of_our_own_leave_nothing_aside_when_the_log_is_another_one_after_a_failover(
    tmp_path: Path, is_clean: bool
) -> None:
    """A replica's log was cut, and its leader's other records came in the place: the log explains none of the units."""
    builder = open_builder(tmp_path)
    kill_after(builder, REQUESTS)
    if is_clean:
        builder.stop()
    replaced = [*OTHERS, *(make_request(29 + n, topic="others", queue_offset=29 + n) for n in range(9))]
    builder = open_builder(tmp_path, replaced)
    feed(builder, replaced[29:], log_end_offset=replaced[-1].next_offset)  # another record is where the last one was
    for _ in range(2):
        feed(
            builder,
            [request for request in replaced if request.commit_log_offset >= builder.start_offset()],
            log_end_offset=replaced[-1].next_offset,
        )
    builder.stop()
    assert kept(tmp_path) == {}
    assert not (tmp_path / "consumequeue/orders/0" / f"{0:020d}").exists()


def test_queues_of_our_own_leave_nothing_aside_when_the_log_ends_before_their_checkpoint(tmp_path: Path) -> None:
    run(tmp_path)
    for _ in range(2):  # the second life goes on with a replay that was killed
        builder = open_builder(tmp_path, OTHERS)
    follow(builder, OTHERS)
    builder.stop()
    assert kept(tmp_path) == {}


def test_our_own_units_that_a_disk_damaged_are_replaced_and_do_not_stay_aside(tmp_path: Path) -> None:
    """A half made file of a full disk, or a damaged one: the checks have all queues compared with the log."""
    builder = open_builder(tmp_path)
    follow(builder)
    path = tmp_path / "consumequeue/orders/0" / f"{20 * 20:020d}"
    right = path.read_bytes()
    path.write_bytes(UNIT.pack(77, 55, 3) + right[20:])
    with pytest.raises(StoreCorruptedError):
        builder.replay_all()
    builder.abandon()
    run(tmp_path)
    assert path.read_bytes() == right
    assert kept(tmp_path) == {}


def test_a_damaged_checkpointed_queue_leaves_the_other_queues_of_ours_out_of_what_is_kept(tmp_path: Path) -> None:
    """One file is missing, so everything is compared with the log, which is another one meanwhile."""
    two = [*REQUESTS, *(make_request(30 + n, topic="second", queue_offset=n) for n in range(25))]
    builder = open_builder(tmp_path, two)
    follow(builder, two)
    builder.stop()
    (tmp_path / "consumequeue/orders/0" / f"{0:020d}").unlink()
    builder = open_builder(tmp_path, OTHERS)
    follow(builder, OTHERS)
    builder.stop()
    assert [path for path in kept(tmp_path) if "second" in path] == []


def test_what_another_program_added_behind_our_own_units_is_kept_aside_alone(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "consumequeue/orders/0" / f"{20 * 20:020d}"
    data = path.read_bytes()
    added = UNIT.pack(9900, 100, 0)
    path.write_bytes(data[:200] + added + data[220:])
    run(tmp_path)
    assert kept(tmp_path) == {f"consumequeue/orders/0/{400:020d}.from.200": added.rstrip(b"\0")}


def test_a_store_that_was_taken_as_it_is_proves_nothing_about_who_wrote_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log too large to be compared with at a first start: our checkpoints name a broker's queues as well."""
    monkeypatch.setattr("consumequeue_svc.recovery.ADOPTED_LOG_BYTES_MIN", 1)
    before = write_queue(tmp_path, "ghost", [0, 300]).read_bytes()
    run(tmp_path)
    builder = open_builder(tmp_path)
    assert not builder.is_replay
    builder.rebuild()
    follow(builder)
    builder.stop()
    assert kept(tmp_path) == {f"consumequeue/ghost/0/{0:020d}": before}


@pytest.mark.parametrize("offset", [100, 2900])
def test_a_queue_that_a_checkpoint_does_not_know_is_moved_aside_without_a_replay_of_the_log(
    tmp_path: Path, offset: int
) -> None:
    """As after the cut of a replica's log: one queue had the whole log applied again."""
    killed = open_builder(tmp_path)
    kill_after(killed, REQUESTS)
    before = write_queue(tmp_path, "ghost", [offset]).read_bytes()
    builder = open_builder(tmp_path)
    assert not builder.is_replay
    follow(builder)
    builder.stop()
    assert kept(tmp_path) == {f"consumequeue/ghost/0/{0:020d}": before}


def test_a_dispatched_queue_that_a_checkpoint_does_not_know_is_left_alone_without_a_replay_of_the_log(
    tmp_path: Path,
) -> None:
    kill_after(open_builder(tmp_path, dispatched_to="copies"), REQUESTS)
    path = write_queue(tmp_path, "copies", [0, 300])
    before = path.read_bytes()
    builder = open_builder(tmp_path, dispatched_to="copies")
    assert not builder.is_replay
    follow(builder)
    builder.stop()
    assert path.read_bytes() == before
    assert kept(tmp_path) == {}


def test_a_queue_that_a_broker_made_of_a_topic_that_was_hidden_was_moved_aside_and_not_built(tmp_path: Path) -> None:
    """The checkpoint does not know the queue, because the topic was hidden; records before it are of the queue all the same."""
    others = [make_request(30 + n, topic="others", queue_offset=n) for n in range(3)]
    builder = open_builder(tmp_path, [*REQUESTS, *others], hidden={"orders": "batch queues"})
    kill_after(builder, [*REQUESTS, *others])
    path = write_queue(tmp_path, "orders", [])
    before = b"".join(UNIT.pack(each.commit_log_offset, RECORD_SIZE_BYTES, each.tags_code) for each in REQUESTS[:20])
    path.write_bytes(before)
    builder = open_builder(tmp_path, [*REQUESTS, *others])
    follow(builder, [*REQUESTS, *others])
    builder.stop()
    assert path.read_bytes() == before
    assert builder._table.queue("orders", 0).units.end == 30
    assert kept(tmp_path) == {}


@pytest.mark.parametrize("ext_file_size_bytes", [0, 800])
def test_our_own_files_of_consume_queue_ext_go_when_it_is_switched_off_or_gets_another_size(
    tmp_path: Path, ext_file_size_bytes: int
) -> None:
    builder = open_builder(tmp_path, ext_file_size_bytes=400)
    follow(builder)
    builder.stop()
    assert list((tmp_path / "consumequeue_ext").rglob("0*"))
    builder = open_builder(tmp_path, ext_file_size_bytes=ext_file_size_bytes)
    follow(builder)
    builder.stop()
    assert kept(tmp_path) == {}


@pytest.mark.parametrize("size_bytes", [8, -8, 1, "0"])
def test_a_checkpoint_whose_size_of_files_was_damaged_ended_every_start(tmp_path: Path, size_bytes: int | str) -> None:
    """Found by a flipped bit: no unit fits into such a file, and the count of units was divided by."""
    builder = open_builder(tmp_path)
    follow(builder)
    builder.stop()
    before = file_bytes(tmp_path / "consumequeue")
    checkpoint = tmp_path / "reput/consumequeue/checkpoint.json"
    state = json.loads(checkpoint.read_text())
    checkpoint.write_text(json.dumps(state | {"ext_file_size_bytes": size_bytes}))
    assert saved_ext_file_size_bytes(RealFileSystem(), checkpoint) == 0
    builder = open_builder(tmp_path)
    follow(builder)
    builder.stop()
    assert file_bytes(tmp_path / "consumequeue") == before
