"""Light queues after any stop equal those made from the log alone, beside queues of their own files."""

import errno
import json
import re
import shutil
from pathlib import Path

import pytest

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from store.derive.dispatch import DispatchRequest
from store.errors import DiskFullError, StoreCorruptedError, TopicNotFoundError, UnsupportedStoreError
from store.format.derived.light_unit import ENTRY_SIZE_BYTES
from store.format.properties import LightPlace
from tests.consumequeue_svc.test_recovery import Clock, follow, open_builder
from tests.support.dispatches import make_request
from tests.support.faulty_file_system import FaultyFileSystem

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


def as_of_an_older_version(root: Path) -> None:
    path = root / "reput/consumequeue/checkpoint.json"
    state = json.loads(path.read_text())
    del state["light"]
    path.write_text(json.dumps(state))


def test_a_store_with_a_brokers_light_queues_is_looked_through_once_after_an_update(tmp_path: Path) -> None:
    """Versions before left these queues alone."""
    builder = open_builder(tmp_path, END)
    follow(builder, records())
    builder.stop()
    as_of_an_older_version(tmp_path)
    lose_folder(tmp_path)
    file = tmp_path / f"consumequeue/%LMQ%a/0/{0:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(4000))

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    builder.stop()

    assert light(builder) == expected()
    assert file.read_bytes() == bytes(4000)
    assert not open_builder(tmp_path, END).is_replay


def test_light_queues_that_may_lack_a_front_are_refused_until_retention_has_passed_it(tmp_path: Path) -> None:
    """A mirror that an older version kept has no folder that tells of light queues."""
    builder = open_builder(tmp_path, 3100)
    follow(builder, records(31), log_end=3100)
    builder.stop()
    as_of_an_older_version(tmp_path)
    lose_folder(tmp_path)

    builder = open_builder(tmp_path, END)
    follow(builder, records())
    with pytest.raises(UnsupportedStoreError, match="known from byte 3100"):
        table_of(builder).queue("%LMQ%a", 0)
    with pytest.raises(UnsupportedStoreError, match="known from byte 3100"):
        table_of(builder).of_topic("%LMQ%none")
    builder.stop()
    builder = open_builder(tmp_path, END)
    with pytest.raises(UnsupportedStoreError, match="known from byte 3100"):
        table_of(builder).queue("%LMQ%a", 0)

    table_of(builder).hide_expired(3100, 9)

    assert light(builder)["%LMQ%a"] == list(range(3200, END, 200))


def test_light_queues_are_built_again_behind_an_older_version_that_went_on_with_the_store(tmp_path: Path) -> None:
    """After a downgrade and an upgrade they were refused until retention had passed that point."""
    builder = open_builder(tmp_path, 3100)
    follow(builder, records(31), log_end=3100)
    builder.stop()
    as_of_an_older_version(tmp_path)

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
    assert table_of(builder).queue("orders", 0).units.end == COUNT
    builder.stop()


def behind_an_older_version(root: Path) -> None:
    """A store whose checkpoint does not know the light queues, and whose folder has them."""
    builder = open_builder(root, 3100)
    follow(builder, records(31), log_end=3100)
    builder.stop()
    as_of_an_older_version(root)


def test_a_kill_while_light_queues_are_built_again_refused_them_after_all(tmp_path: Path) -> None:
    """Their files were removed before anything said that they are built again."""
    behind_an_older_version(tmp_path)
    assert open_builder(tmp_path, END).is_replay  # and no more of it: the first file of the replay was never written

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
    builder.stop()


def test_a_full_disk_while_light_queues_are_built_again_refused_them_after_all(tmp_path: Path) -> None:
    behind_an_older_version(tmp_path)
    fs = FaultyFileSystem()
    fs.fail("pwrite", errno.ENOSPC, path="checkpoint.json", lasting=True)
    with pytest.raises(DiskFullError):
        open_builder(tmp_path, END, fs=fs).begin()

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
    builder.stop()


def test_a_large_log_without_a_checkpoint_was_taken_as_it_is_and_its_light_queues_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumequeue_svc.recovery.ADOPTED_LOG_BYTES_MIN", 1)
    builder = open_builder(tmp_path, END)
    follow(builder, records())
    builder.stop()
    lose_checkpoint(tmp_path)

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()
    builder.stop()


def test_light_queues_of_a_large_log_that_may_lack_a_front_are_built_as_the_refusal_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said to remove the checkpoint: then such a log was taken as it is."""
    monkeypatch.setattr("consumequeue_svc.recovery.ADOPTED_LOG_BYTES_MIN", 1)
    builder = open_builder(tmp_path, 3100)
    follow(builder, records(31), log_end=3100)
    builder.stop()
    as_of_an_older_version(tmp_path)
    lose_folder(tmp_path)
    builder = open_builder(tmp_path, 3100)
    follow(builder, records(31), log_end=3100)
    builder.stop()
    assert not (tmp_path / "reput/consumequeue/light").exists(), "a copy may leave out empty folders"
    assert not open_builder(tmp_path, 3100).is_replay

    with pytest.raises(UnsupportedStoreError, match=re.escape("write {} into the file")):
        table_of(open_builder(tmp_path, 3100)).queue("%LMQ%a", 0)

    (tmp_path / "reput/consumequeue/checkpoint.json").write_text("{}")

    builder = open_builder(tmp_path, END)
    assert builder.is_replay
    follow(builder, records())
    assert light(builder) == expected()


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
