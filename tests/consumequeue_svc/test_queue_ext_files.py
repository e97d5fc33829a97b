"""ConsumeQueueExt as it is written: the bytes of RocketMQ's layout, whatever is killed, damaged, switched or expired.

`queue_ext.lay_out`, which tests compare with RocketMQ's own class, says what the files of a queue must hold.
"""

import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from store.derive.dispatch import DispatchRequest
from store.files.file_system import RealFileSystem
from store.format.derived.queue_ext import QueueExtUnit, ext_address, is_ext_address, lay_out
from store.format.derived.queue_unit import QueueUnit, decode_queue_units, encode_queue_unit
from tests.support.dispatches import feed, file_bytes, make_request, requests_of

FILE_SIZE = 4000
EXT_FILE_SIZE = 1024  # 51 units, and 4 bytes at the end
NO_UNIT = (4, 12)


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def opened(
    root: Path,
    log_end: int,
    *,
    ext: int = EXT_FILE_SIZE,
    clock: Clock | None = None,
    log_first: int = 0,
    file_size: int = FILE_SIZE,
) -> ConsumeQueueBuilder:
    table = ConsumeQueueTable(root, RealFileSystem(), file_size, ext_file_size_bytes=ext)
    table.load()
    checkpoint = root / "reput/consumequeue/checkpoint.json"
    builder = ConsumeQueueBuilder(table, checkpoint, clock=clock or Clock())
    builder.recover(is_clean_store=True, log_first_offset=log_first, log_end_offset=log_end)
    return builder


def follow(builder: ConsumeQueueBuilder, requests: Sequence[DispatchRequest], log_first: int = 0) -> None:
    start = max(builder.start_offset(), log_first)
    left = [request for request in requests if request.commit_log_offset >= start]
    feed(builder, left, log_end_offset=requests[-1].next_offset, log_first_offset=log_first)


def built(root: Path, requests: Sequence[DispatchRequest], **options: int) -> dict[str, bytes]:
    builder = opened(root, requests[-1].next_offset, **options)
    follow(builder, requests, options.get("log_first", 0))
    builder.stop()
    return files_of(root)


def files_of(root: Path) -> dict[str, bytes]:
    return {
        f"{folder}/{name}": data
        for folder in ("consumequeue", "consumequeue_ext")
        for name, data in file_bytes(root / folder).items()
    }


def served(builder: ConsumeQueueBuilder, topic: str, queue_id: int) -> list[QueueUnit]:
    queue = builder._table.queue(topic, queue_id)
    return list(queue.resolved(queue.units.units(0, 10_000)))


@pytest.fixture(scope="module")
def requests(broker_store: Path) -> list[DispatchRequest]:
    return requests_of(broker_store)


@pytest.fixture(scope="module")
def expected(requests: list[DispatchRequest], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return built(tmp_path_factory.mktemp("expected"), requests)


def walk(root: Path, topic: str, queue_id: int) -> int:
    """Where RocketMQ finds the end when it opens the files, as `ConsumeQueueExt.recover` walks them; bytes."""
    end = 0
    for path in sorted((root / "consumequeue_ext" / topic / str(queue_id)).iterdir()):
        data, at = path.read_bytes(), 0
        while at + 2 <= len(data) and (size := struct.unpack_from(">h", data, at)[0]) > 0:
            at += size
        end = int(path.name) + at
    return end


def test_files_and_addresses_are_those_that_rocketmq_lays_out(
    requests: list[DispatchRequest], expected: dict[str, bytes]
) -> None:
    by_queue: dict[tuple[str, int], list[DispatchRequest]] = {}
    for request in requests:
        if request.sys_flag & 0xC not in NO_UNIT:
            by_queue.setdefault((request.topic, request.queue_id), []).append(request)
    wanted: dict[str, bytes] = {}
    for (topic, queue_id), rows in by_queue.items():
        assert [row.queue_offset for row in rows] == list(range(len(rows)))
        data, addresses = lay_out([QueueExtUnit(r.tags_code, r.store_time_millis) for r in rows], 0, EXT_FILE_SIZE)
        units = b"".join(
            encode_queue_unit(QueueUnit(r.commit_log_offset, r.record_size_bytes, address))
            for r, address in zip(rows, addresses, strict=True)
        )
        for folder, content, size in (
            ("consumequeue", units, FILE_SIZE),
            ("consumequeue_ext", data, EXT_FILE_SIZE),
        ):
            for at in range(0, len(content), size):
                wanted[f"{folder}/{topic}/{queue_id}/{at:020d}"] = content[at : at + size].ljust(size, b"\0")
    assert expected == wanted


def test_served_units_have_their_tags_codes(tmp_path: Path, requests: list[DispatchRequest]) -> None:
    built(tmp_path / "on", requests)
    built(tmp_path / "off", requests, ext=0)
    end = requests[-1].next_offset
    on, off = opened(tmp_path / "on", end), opened(tmp_path / "off", end, ext=0)
    for queue_id, _ in off._table.items():
        assert served(on, *queue_id) == served(off, *queue_id)
    assert not (tmp_path / "off" / "consumequeue_ext").exists()


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_at_any_time_leaves_what_a_rebuild_makes(
    tmp_path: Path, requests: list[DispatchRequest], expected: dict[str, bytes], seed: int
) -> None:
    """Behind the checkpoint a power cut may keep any part of queues and ext files: zeros here and there."""
    random_, clock = random.Random(seed), Clock()
    end = requests[-1].next_offset
    builder = opened(tmp_path, end, clock=clock)
    feed(builder, requests[:800], log_end_offset=requests[799].next_offset)
    clock.seconds += 2
    builder.apply([], requests[799].next_offset, 0, end)
    saved = files_of(tmp_path)
    feed(builder, requests[800:2000], log_end_offset=end)

    for name, data in files_of(tmp_path).items():
        kept = -(-len(saved.get(name, b"").rstrip(b"\0")) // 20) * 20
        tail = bytearray(data[kept:])
        for at in range(0, len(tail), 20):
            if random_.random() < 0.3:
                tail[at : at + 20] = bytes(len(tail[at : at + 20]))
        (tmp_path / name).write_bytes(data[:kept] + tail)
    builder = opened(tmp_path, end)
    assert builder.progress.next_offset == requests[799].next_offset
    follow(builder, requests)
    builder.stop()
    assert files_of(tmp_path) == expected


@pytest.mark.parametrize("killed_after", [None, 700])
@pytest.mark.parametrize(("before", "after"), [(0, EXT_FILE_SIZE), (EXT_FILE_SIZE, 0), (4096, EXT_FILE_SIZE)])
def test_the_switch_builds_all_queues_again(
    tmp_path: Path, requests: list[DispatchRequest], before: int, after: int, killed_after: int | None
) -> None:
    built(tmp_path / "store", requests, ext=before)
    end = requests[-1].next_offset
    if killed_after is not None:
        clock = Clock()
        builder = opened(tmp_path / "store", end, ext=after, clock=clock)
        for at in range(0, killed_after, 100):
            clock.seconds += 2
            builder.apply(requests[at : at + 100], requests[at + 99].next_offset, 0, end)
        for (topic, queue_id), _ in builder._table.items():
            wrong = [
                unit
                for unit in served(builder, topic, queue_id)
                if not is_ext_address(unit.tags_code)
                and unit.tags_code
                != next(r for r in requests if r.commit_log_offset == unit.commit_log_offset).tags_code
            ]
            assert wrong == [], "an address that is not known is better than a wrong tags code"
    assert built(tmp_path / "store", requests, ext=after) == built(tmp_path / "other", requests, ext=after)


DAMAGES = {
    "all ext files are gone": lambda root: shutil.rmtree(root / "consumequeue_ext"),
    "the first ext file is gone": lambda root: next(
        iter(sorted((root / "consumequeue_ext/b_order/0").iterdir()))
    ).unlink(),
    "an ext file is short": lambda root: (root / f"consumequeue_ext/b_order/0/{EXT_FILE_SIZE:020d}").write_bytes(b"1"),
    "the last ext unit is wrong": lambda root: _zero_last_unit(root / "consumequeue_ext/b_order/0"),
}


def _zero_last_unit(folder: Path) -> None:
    path = max(folder.iterdir())
    data = path.read_bytes()
    end = -(-len(data.rstrip(b"\0")) // 20) * 20
    path.write_bytes((data[: end - 20] + bytes([0, 20, 9, 9])).ljust(len(data), b"\0"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_that_a_start_sees_is_repaired(
    tmp_path: Path, requests: list[DispatchRequest], expected: dict[str, bytes], damage: str
) -> None:
    built(tmp_path, requests)
    DAMAGES[damage](tmp_path)
    assert built(tmp_path, requests) == expected


def make_foreign(root: Path, seed: int, plain_count: int) -> None:
    """Makes the store one of a broker that computed bit maps for some units, or had it off for the first of each queue."""
    random_ = random.Random(seed)
    for queue in sorted((root / "consumequeue").glob("*/*")):
        paths = sorted(queue.iterdir())
        units = [u for path in paths for u in decode_queue_units(path.read_bytes()) if not u.is_empty]
        bit_maps = (b"",) if plain_count else (b"", b"", bytes(20), random_.randbytes(8))
        ext = [QueueExtUnit(u.tags_code, 7, random_.choice(bit_maps)) for u in units[plain_count:]]
        data, addresses = lay_out(ext, 0, EXT_FILE_SIZE)
        addresses = [u.tags_code for u in units[:plain_count]] + addresses
        log = b"".join(encode_queue_unit(u._replace(tags_code=a)) for u, a in zip(units, addresses, strict=True))
        for number, path in enumerate(paths):
            path.write_bytes(log[number * FILE_SIZE : (number + 1) * FILE_SIZE].ljust(FILE_SIZE, b"\0"))
        folder = root.joinpath("consumequeue_ext", *queue.parts[-2:])
        folder.mkdir(parents=True)
        for at in range(0, len(data), EXT_FILE_SIZE):
            (folder / f"{at:020d}").write_bytes(data[at : at + EXT_FILE_SIZE].ljust(EXT_FILE_SIZE, b"\0"))


@pytest.mark.parametrize(("seed", "plain_count"), [(1, 0), (2, 0), (3, 3), (4, 60)])
def test_a_store_that_is_laid_out_otherwise_never_shows_a_wrong_tags_code_while_it_is_built_again(
    tmp_path: Path, requests: list[DispatchRequest], expected: dict[str, bytes], seed: int, plain_count: int
) -> None:
    """The places differ then: ours overwrite theirs, to which units still point that the replay has not reached."""
    built(tmp_path, requests, ext=0)
    shutil.rmtree(tmp_path / "reput")
    make_foreign(tmp_path, seed, plain_count)
    codes = {request.commit_log_offset: request.tags_code for request in requests}
    end = requests[-1].next_offset
    builder = opened(tmp_path, end)
    for at in range(0, len(requests), 97):
        part = requests[at : at + 97]
        builder.apply(part, part[-1].next_offset, 0, end)
        for queue_id, _ in builder._table.items():
            for unit in served(builder, *queue_id):
                assert unit.tags_code == codes[unit.commit_log_offset] or is_ext_address(unit.tags_code)
    builder.stop()
    assert files_of(tmp_path) == expected


def orders(count: int, first: int = 0, number: int = 0) -> list[DispatchRequest]:
    """Records of one queue, from a position on, and from a record of the log on."""
    return [make_request(number + n, queue_offset=first + n) for n in range(count)]


@pytest.mark.parametrize("ext", [EXT_FILE_SIZE, 1 << 16])
@pytest.mark.parametrize("first", [1, 50, 51, 52, 130, 4_000])
def test_a_queue_that_begins_late_can_be_walked_from_its_first_file(tmp_path: Path, first: int, ext: int) -> None:
    rows = orders(120, first)
    files = built(tmp_path, rows, ext=ext, file_size=20 * 40)
    assert walk(tmp_path, "orders", 0) == _end(first + 120, ext)
    (tmp_path / "reput/consumequeue/checkpoint.json").unlink()
    assert built(tmp_path, rows, ext=ext, file_size=20 * 40) == files
    builder = opened(tmp_path, rows[-1].next_offset, ext=ext, file_size=20 * 40)
    assert [unit.tags_code for unit in served(builder, "orders", 0)] == [row.tags_code for row in rows]


@pytest.mark.parametrize("width", [1, 30, 51, 400])
def test_a_gap_can_be_walked(tmp_path: Path, width: int) -> None:
    rows = orders(70) + orders(70, 70 + width, 70)
    files = built(tmp_path, rows)
    assert walk(tmp_path, "orders", 0) == _end(140 + width)
    (tmp_path / "reput/consumequeue/checkpoint.json").unlink()
    assert built(tmp_path, rows) == files
    builder = opened(tmp_path, rows[-1].next_offset)
    assert [unit.tags_code for unit in served(builder, "orders", 0)] == [row.tags_code for row in rows]


def _end(count: int, file_size: int = EXT_FILE_SIZE) -> int:
    """The byte behind so many units without bit maps."""
    file, place = divmod(count - 1, (file_size - 4) // 20)
    return file * file_size + (place + 1) * 20


def test_a_topic_that_begins_anew_begins_anew_here(tmp_path: Path) -> None:
    rows = orders(200) + orders(60, 0, 200)
    built(tmp_path / "both", rows)
    other = opened(tmp_path / "second", rows[-1].next_offset)
    feed(other, rows[200:], log_end_offset=rows[-1].next_offset)
    other.stop()
    assert files_of(tmp_path / "both") == files_of(tmp_path / "second")


def test_ext_files_go_with_the_log(tmp_path: Path) -> None:
    """Retention takes them with the messages, a kill in between or not; a rebuild of what is left gives the same places."""
    rows = orders(1000)
    end, first = rows[-1].next_offset, rows[600].commit_log_offset
    clock = Clock()
    builder = opened(tmp_path, end, clock=clock)
    follow(builder, rows)
    for _ in range(5):
        clock.seconds += 61
        builder.apply([], end, first, end)
    builder.stop()
    folder = tmp_path / "consumequeue_ext/orders/0"
    assert min(int(path.name) for path in folder.iterdir()) == 600 // 51 * EXT_FILE_SIZE
    left = files_of(tmp_path)

    shutil.rmtree(tmp_path / "consumequeue_ext")
    again = built(tmp_path, rows[600:], log_first=first)
    assert again.keys() == left.keys()
    for name, data in again.items():
        if name.startswith("consumequeue_ext") and int(Path(name).name) > 600 // 51 * EXT_FILE_SIZE:
            assert data == left[name]
    builder = opened(tmp_path, end, log_first=first)
    queue = builder._table.queue("orders", 0)
    units = list(queue.resolved(queue.units.units(600, 1000, first)))
    assert [unit.tags_code for unit in units] == list(range(600, 1000))


def test_expired_ext_files_that_a_kill_left_go_at_the_start(tmp_path: Path) -> None:
    rows = orders(1000)
    end, first = rows[-1].next_offset, rows[600].commit_log_offset
    built(tmp_path, rows)
    kept = dict(file_bytes(tmp_path / "consumequeue_ext"))
    clock = Clock()
    builder = opened(tmp_path, end, clock=clock, log_first=first)
    for _ in range(5):
        clock.seconds += 61
        builder.apply([], end, first, end)
    builder.stop()
    left = files_of(tmp_path)
    assert len(left) < len(kept)
    for name, data in kept.items():  # the checkpoint was written, and the kill came before the files were removed
        (tmp_path / "consumequeue_ext" / name).write_bytes(data)

    builder = opened(tmp_path, end, log_first=first)
    assert not builder.is_replay
    builder.stop()
    assert files_of(tmp_path) == left


def test_a_log_that_was_cut_back_cuts_the_ext_files(tmp_path: Path) -> None:
    rows = orders(153)  # three whole files
    built(tmp_path / "long", rows)
    shorter = rows[:102]
    assert built(tmp_path / "long", shorter) == built(tmp_path / "short", shorter)


def test_the_last_address_says_whether_a_queue_is_laid_out_like_ours(tmp_path: Path) -> None:
    rows = orders(60)
    built(tmp_path, rows)
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), FILE_SIZE, ext_file_size_bytes=EXT_FILE_SIZE)
    table.load()
    queue = table.queue("orders", 0)
    assert queue.has_own_layout()
    path = tmp_path / f"consumequeue/orders/0/{0:020d}"
    data = bytearray(path.read_bytes())
    data[59 * 20 + 12 : 60 * 20] = (ext_address(_end(60)) & (2**64 - 1)).to_bytes(8, "big")
    path.write_bytes(data)
    assert not queue.has_own_layout()
