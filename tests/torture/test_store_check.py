"""The judge is judged: whatever is done to a good store, `check_store` says so."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.torture.drivers import CHECK_LAYOUT, Life
from tests.torture.lives import Lives
from tests.torture.store_check import HEAD, Place, check_store, read_frames
from tests.torture.stores import History, copy_of

LIFE = Life(count=20, file_size_bytes=4096, body_bytes=500)
ENTRIES_AT = 40 + 4 * CHECK_LAYOUT.slot_count


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, History]]:
    with Lives() as lives, lives.directory(tmp_path_factory.mktemp("good")) as directory:
        root = directory / "store"
        history = History()
        history.add(LIFE, lives.live(root, LIFE))
        yield root, history


def problems_of(root: Path, history: History) -> list[str]:
    return check_store(
        root, acked=history.acked, attempted=history.attempted, refused=history.refused, layout=CHECK_LAYOUT
    )


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def queue_file(root: Path) -> Path:
    return min((root / "consumequeue/orders/0").iterdir())


def index_file(root: Path) -> Path:
    return min((root / "index").iterdir())


def log_file(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def zero_unit(root: Path) -> None:
    data = queue_file(root).read_bytes()
    queue_file(root).write_bytes(data[:20] + bytes(20) + data[40:])


def repeat_entry(root: Path) -> None:
    data = bytearray(index_file(root).read_bytes())
    data[ENTRIES_AT + 40 : ENTRIES_AT + 52] = data[ENTRIES_AT + 20 : ENTRIES_AT + 32]
    index_file(root).write_bytes(data)


def one_entry_less(root: Path) -> None:
    newest = max((root / "index").iterdir())
    data = bytearray(newest.read_bytes())
    struct.pack_into(">i", data, 36, struct.unpack_from(">i", data, 36)[0] - 1)
    newest.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a bit of a body": lambda root: flip(log_file(root, 1), HEAD.size + 5),
    "a bit of a header": lambda root: flip(log_file(root, 1), 22),
    "a bit behind the log": lambda root: flip(log_file(root, -1), 4000),
    "a log file": lambda root: log_file(root, 1).unlink(),
    "a bit of a unit": lambda root: flip(queue_file(root), 7),
    "a bit of a tags code": lambda root: flip(queue_file(root), 19),
    "a missing unit": zero_unit,
    "a queue file": lambda root: queue_file(root).unlink(),
    "a unit behind the queue": lambda root: flip(max((root / "consumequeue/orders/0").iterdir()), 79),
    "an index file": lambda root: index_file(root).unlink(),
    "a bit of an entry's hash": lambda root: flip(index_file(root), ENTRIES_AT + 23),
    "a bit of an entry's offset": lambda root: flip(index_file(root), ENTRIES_AT + 31),
    "a bit of an entry's seconds": lambda root: flip(index_file(root), ENTRIES_AT + 55),
    "a bit of an entry's link": lambda root: flip(index_file(root), ENTRIES_AT + 59),
    "a bit of a slot": lambda root: flip(index_file(root), 43),
    "a bit of an index header": lambda root: flip(index_file(root), 7),
    "an entry twice": repeat_entry,
    "an entry that does not count": one_entry_less,
}


def test_a_good_store_has_no_problem(good: tuple[Path, History]) -> None:
    assert problems_of(*good) == []
    assert len(read_frames(good[0], [])) == LIFE.count


@pytest.mark.parametrize("what", DAMAGE)
def test_each_kind_of_damage_is_seen(what: str, good: tuple[Path, History]) -> None:
    root = copy_of(good[0], good[0].with_name("damaged"))
    DAMAGE[what](root)

    assert problems_of(root, good[1])


def test_an_acknowledged_message_that_is_elsewhere_or_nowhere_is_lost(good: tuple[Path, History]) -> None:
    root, history = good[0], good[1].copy()
    name, place = next(iter(history.acked.items()))
    history.acked[name] = place._replace(queue_offset=place.queue_offset + 1)
    history.acked["m-999999"] = Place(0, 0, 0)

    lost = [problem for problem in problems_of(root, history) if problem.startswith("LOST")]
    assert len(lost) == 2


def test_a_message_that_was_refused_as_unwritten_or_never_sent_must_not_be_there(good: tuple[Path, History]) -> None:
    root, history = good[0], good[1].copy()
    name = next(iter(history.acked))
    history.refused.add(name)
    assert problems_of(root, history)

    history.refused.clear()
    del history.acked[name]
    assert problems_of(root, history) == [], "an unacknowledged message may be there"
    history.attempted.discard(name)
    assert problems_of(root, history)
