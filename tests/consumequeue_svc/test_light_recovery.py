"""Light queues after any stop equal those made from the log alone, beside queues of their own files."""

import shutil
from pathlib import Path

import pytest

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from store.derive.dispatch import DispatchRequest
from store.errors import StoreCorruptedError, TopicNotFoundError
from store.format.derived.light_unit import ENTRY_SIZE_BYTES
from store.format.properties import LightPlace
from tests.consumequeue_svc.test_recovery import Clock, follow, open_builder
from tests.support.dispatches import make_request

COUNT = 60
END = COUNT * 100
QUEUES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")


def records(count: int = COUNT) -> list[DispatchRequest]:
    """Each second one is in `%LMQ%a`, each third one in `%LMQ%b` and `%LMQ%c`."""
    return [
        make_request(number)._replace(
            light_places=(
                *([LightPlace("%LMQ%a", number // 2)] if number % 2 == 0 else []),
                *([LightPlace(name, number // 3) for name in QUEUES[1:]] if number % 3 == 0 else []),
            )
        )
        for number in range(count)
    ]


def table_of(builder: ConsumeQueueBuilder) -> ConsumeQueueTable:
    return builder._table


def light(builder: ConsumeQueueBuilder) -> dict[str, list[int]]:
    """Of each queue the commit-log offsets of its units."""
    found = {}
    for name in QUEUES:
        try:
            queue = table_of(builder).queue(name, 0)
        except TopicNotFoundError:
            continue
        found[name] = [unit.commit_log_offset for _, unit in queue.units.units(0, 1000)]
    return found


def expected(count: int = COUNT) -> dict[str, list[int]]:
    rows = {
        "%LMQ%a": list(range(0, count * 100, 200)),
        "%LMQ%b": list(range(0, count * 100, 300)),
        "%LMQ%c": list(range(0, count * 100, 300)),
    }
    return {name: row for name, row in rows.items() if row}


def test_a_stop_goes_on_where_it_was(tmp_path: Path) -> None:
    builder = open_builder(tmp_path, END)
    follow(builder, records()[:31], log_end=3100)
    assert light(builder) == expected(31)
    builder.stop()

    builder = open_builder(tmp_path, END)
    assert (builder.progress.next_offset, light(builder)) == (3100, expected(31))
    follow(builder, records())
    assert light(builder) == expected()
    builder.stop()


def test_a_kill_loses_what_its_checkpoint_does_not_have_and_gets_it_again(tmp_path: Path) -> None:
    clock = Clock()
    builder = open_builder(tmp_path, END, clock=clock)
    follow(builder, records()[:31], log_end=3100)
    clock.seconds += 2
    builder.apply([], 3100, 0, END)
    follow(builder, records())

    builder = open_builder(tmp_path, END)
    assert (builder.progress.next_offset, light(builder)) == (3100, expected(31))
    follow(builder, records())
    assert light(builder) == expected()


def test_a_log_that_is_shorter_now_takes_the_units_behind_its_end(tmp_path: Path) -> None:
    builder = open_builder(tmp_path, END)
    follow(builder, records())
    builder.stop()

    builder = open_builder(tmp_path, 3100)
    follow(builder, records(31), log_end=3100)
    assert light(builder) == expected(31)


def lose_entries(root: Path) -> None:
    (root / "reput/consumequeue/light" / f"units.{0:020d}").unlink()


def lose_folder(root: Path) -> None:
    shutil.rmtree(root / "reput/consumequeue/light")


def lose_checkpoint(root: Path) -> None:
    (root / "reput/consumequeue/checkpoint.json").unlink()


def damage_names(root: Path) -> None:
    """Of the size that it had: what reads it first is the start."""
    path = next((root / "reput/consumequeue/light").glob("names.*"))
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("change", [lose_entries, lose_folder, lose_checkpoint, damage_names])
def test_what_is_lost_is_built_again_from_the_log(tmp_path: Path, change) -> None:
    builder = open_builder(tmp_path, END)
    follow(builder, records())
    builder.stop()
    change(tmp_path)

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
    assert table_of(builder).queue("orders", 0).units.end == COUNT
    builder.stop()


def test_an_empty_store_of_an_older_version_knows_all_light_queues(tmp_path: Path) -> None:
    open_builder(tmp_path, 0).stop()
    builder = open_builder(tmp_path, END)
    follow(builder, records())

    assert light(builder) == expected()


def test_a_damaged_entry_of_a_queue_that_grows_has_all_queues_built_again(tmp_path: Path) -> None:
    builder = open_builder(tmp_path, END)
    follow(builder, records(31), log_end=3100)
    builder.stop()
    builder = open_builder(tmp_path, END)  # its checkpoint has a CRC of the newest entries only
    path = next((tmp_path / "reput/consumequeue/light").glob("units.*"))
    data = bytearray(path.read_bytes())
    data[-ENTRY_SIZE_BYTES + 10] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreCorruptedError):
        follow(builder, records())

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
