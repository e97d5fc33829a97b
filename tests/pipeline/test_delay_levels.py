"""A store with its own list of delay levels: times of delivery follow it, in whichever process a task runs."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.log_scan import LogSplit, outline_log, plan_splits, scan_split
from pipeline.scan.options import OptionError
from store.files.file_system import RealFileSystem
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS, use_delay_levels
from store.format.record import decode_record
from tests.pipeline.brute_force import make_reader, read
from tests.pipeline.logs import write_log
from tests.store.walk.logs import frames_of, message

FILE_BYTES = 1 << 16
OWN = "7s 3m"


@pytest.fixture(autouse=True)
def _rocketmqs_levels() -> Iterator[None]:
    """The list is one of the process."""
    yield
    use_delay_levels(DELAY_LEVELS_MILLIS)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two messages that wait, of level 1 and of one above the largest, and one that does not."""
    waiting = [message("SCHEDULE_TOPIC_XXXX", f"DELAY\x01{level}\x02UNIQ_KEY\x01u\x02") for level in (1, 9)]
    return write_log(tmp_path, frames_of([*waiting, message()], base=0), file_bytes=FILE_BYTES)


@pytest.fixture
def wanted(store: Path) -> list[int]:
    """Times of delivery of the two: their store times and the delays of the store's own list."""
    data = (store / "commitlog" / f"{0:020d}").read_bytes()
    first = decode_record(data[: int.from_bytes(data[:4], "big")])
    behind = data[first.store_size_bytes :]
    second = decode_record(behind[: int.from_bytes(behind[:4], "big")])
    return [first.store_time_millis + 7_000, second.store_time_millis + 180_000]


def test_rows_of_a_scan_follow_the_list_of_the_option(store: Path, wanted: list[int]) -> None:
    assert [row["tagsCode"] for row in read(store, delayLevels=OWN)][:2] == wanted
    assert [row["tagsCode"] for row in read(store)][:2] != wanted


def test_a_list_that_is_none_is_refused_by_the_name_of_its_option(store: Path) -> None:
    with pytest.raises(OptionError, match=r"delayLevels='7s 3': level 2"):
        make_reader(store, delayLevels="7s 3")


def test_a_task_of_a_rebuild_or_an_audit_follows_the_list_of_its_driver(store: Path, wanted: list[int]) -> None:
    fs = RealFileSystem()
    use_delay_levels((7_000, 180_000))
    outline = outline_log(fs, store, durable_offset=None, is_live=False)
    sent = pickle.dumps(plan_splits(fs, store, outline, FILE_BYTES))
    use_delay_levels(DELAY_LEVELS_MILLIS)  # as in the process of an executor
    codes: list[int] = []
    splits: list[LogSplit] = pickle.loads(sent)  # our own bytes, as Spark sends them
    for split in splits:
        scan_split(split, lambda columns: codes.extend(columns.tags_codes.tolist()))
    assert codes[:2] == wanted
