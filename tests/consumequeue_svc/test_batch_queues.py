"""The ranges of batch queues: of a broker's files, of the log behind them, and of the log alone."""

from pathlib import Path

from consumequeue_svc.batch_queues import BatchQueues
from store.derive.queue_runs import Batch
from store.files.file_system import RealFileSystem
from tests.store.format.derived.test_batch_unit import WRITTEN
from tests.store.readers.test_batch_queue_reader import write_queue

FS = RealFileSystem()
QUEUE = ("bcq", 0)
LOGGED = [Batch("bcq", 0, 0, 0), Batch("bcq", 0, 3, 720), Batch("bcq", 0, 5, 1032)]
COUNTS = {0: 3, 720: 2, 1032: 7}


def queues(root: Path, *batches: Batch) -> BatchQueues:
    found = BatchQueues(FS, root, COUNTS.get)
    found.note(batches)
    return found


def test_a_log_whose_broker_has_not_built_its_queues_tells_the_range_itself(tmp_path: Path) -> None:
    """As the broker at its start, which answered 0 and 12 for this log."""
    found = queues(tmp_path, *LOGGED)
    assert found.queue_ids({"bcq"}) == {QUEUE}
    assert found.range(QUEUE, 0, 10_000) == (0, 12, True)
    assert found.range(QUEUE, 1032, 10_000) == (5, 12, False), "a batch between might be the first"
    assert found.range(QUEUE, 2000, 10_000) == (12, 12, True)


def test_a_broker_s_files_tell_the_begin_and_the_log_what_lies_behind_them(tmp_path: Path) -> None:
    write_queue(tmp_path, WRITTEN[: 2 * 46])
    found = queues(tmp_path, *LOGGED)
    assert found.range(QUEUE, 0, 10_000) == (0, 12, True)
    assert found.range(QUEUE, 500, 10_000) == (3, 12, True)
    assert queues(tmp_path).range(QUEUE, 0, 10_000) == (0, 5, True), "the log was not followed there"
    assert queues(tmp_path).queue_ids({"bcq"}) == {QUEUE}
    assert queues(tmp_path).queue_ids({"other"}) == set()


def test_a_last_batch_that_does_not_say_its_count_makes_a_range_in_part(tmp_path: Path) -> None:
    found = BatchQueues(FS, tmp_path)
    found.note(LOGGED)
    assert found.range(QUEUE, 0, 10_000) == (0, 6, False)


def test_a_checkpoint_and_a_replay_keep_the_first_and_the_last_batch(tmp_path: Path) -> None:
    found = queues(tmp_path)
    found.restore(queues(tmp_path, *LOGGED).state())
    assert found.range(QUEUE, 0, 10_000) == (0, 12, True)
    found.note(LOGGED[:2])
    assert found.range(QUEUE, 0, 10_000) == (0, 12, True)


def test_batches_of_a_log_that_was_cut_are_forgotten_until_it_is_followed_again(tmp_path: Path) -> None:
    found = queues(tmp_path, *LOGGED)
    found.cut(1033)
    assert found.range(QUEUE, 0, 1033) == (0, 12, True)
    found.cut(1032)
    assert found.queue_ids({"bcq"}) == set()
    found.note(LOGGED[:2])
    assert found.range(QUEUE, 0, 1032) == (0, 5, True)
