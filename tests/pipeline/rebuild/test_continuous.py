"""The continuous rebuild without Spark: batches that come again, lives that end anywhere, damage between lives."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from cli.pipeline.rebuild_builders import OnlineBuilders
from pipeline.rebuild.continuous import ContinuousRebuild, ReputStreamReader, read_manifest
from store.errors import StoreRecoveringError
from store.files.file_system import RealFileSystem
from store.readers.index_reader import list_index_files
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.pipeline.rebuild.test_rebuild_on_spark import LAYOUT, SETTINGS, append
from tests.support.seeds import seeds
from tests.support.stack import HostedStack, hosted_stack

BATCH_BYTES = 60_000
NAMES = ("begin_offset", "next_offset", "log_first_offset", "log_end_offset", "columns")


class _Frame:
    def __init__(self, rows: list[tuple]) -> None:
        columns = [pa.array([row[n] for row in rows], pa.binary() if n == 4 else pa.int64()) for n in range(5)]
        self._table = pa.table(dict(zip(NAMES, columns, strict=True)))

    def toArrow(self) -> pa.Table:
        return self._table


def _open(stack: HostedStack, out: Path) -> ContinuousRebuild:
    return ContinuousRebuild(RealFileSystem(), out, stack.addresses["commitlog"], OnlineBuilders(LAYOUT))


def _batches(stack: HostedStack, begin: int) -> list[_Frame]:
    """Every batch of the stream from an offset on, as Spark would ask for them."""
    reader = ReputStreamReader(stack.addresses["commitlog"], begin, BATCH_BYTES)
    start, frames = reader.initialOffset(), []
    while (end := reader.latestOffset(start, ReadMaxBytes(BATCH_BYTES))) != start:
        frames.append(_Frame([row for part in reader.partitions(start, end) for row in reader.read(part)]))
        start = end
    return frames


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with hosted_stack(tmp_path_factory.mktemp("live") / "store", settings=SETTINGS) as running:
        append(running, 0, 2500)
        running.wait_until_built()
        yield running


@pytest.fixture(scope="module")
def undisturbed(stack, tmp_path_factory) -> Path:
    """What one rebuild makes of the log; the live index on the disk lacks what its service has not flushed yet."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    rebuild_here(stack.store, out, layout=LAYOUT)
    return out


@pytest.mark.parametrize("seed", seeds(6, short=2))
def test_batches_that_come_again_to_lives_that_end_anywhere_leave_what_one_pass_leaves(
    stack, undisturbed, tmp_path, seed
):
    number, out = random.Random(seed), tmp_path / "out"
    frames = _batches(stack, -1)
    assert len(frames) > 10
    done = 0
    while done < len(frames):
        rebuild = _open(stack, out)
        # Spark brings a batch that it does not know to be done, maybe some that are.
        at = max(done - number.randrange(3), 0)
        for frame in frames[at : at + 1 + number.randrange(6)]:
            rebuild.apply(frame, at)
            at += 1
        done = max(done, at)
        assert read_manifest(RealFileSystem(), out).end_offset == rebuild.next_offset
        rebuild.stop() if number.random() < 0.3 else rebuild.abandon()
    assert_same_store(out, undisturbed)


@pytest.mark.parametrize("kind", ["queue", "index"])
def test_files_that_are_gone_are_made_again_before_the_stream_goes_on(stack, undisturbed, tmp_path, kind):
    out, frames = tmp_path / "out", _batches(stack, -1)
    rebuild = _open(stack, out)
    for number, frame in enumerate(frames[:8]):
        rebuild.apply(frame, number)
    rebuild.abandon()
    queues = sorted(path for path in (out / "consumequeue").rglob("*") if path.is_file())
    victim = queues[0] if kind == "queue" else list_index_files(RealFileSystem(), out)[-1]
    victim.unlink()

    rebuild = _open(stack, out)
    for number, frame in enumerate(frames[8:], 8):
        rebuild.apply(frame, number)
    rebuild.stop()

    assert_same_store(out, undisturbed)


def test_every_record_comes_once_whatever_the_batches(stack):
    counts = []
    for batch_bytes in (BATCH_BYTES, 1 << 30):
        reader = ReputStreamReader(stack.addresses["commitlog"], -1, batch_bytes)
        start, begins = reader.initialOffset(), []
        while (end := reader.latestOffset(start, ReadMaxBytes(batch_bytes))) != start:
            rows = [row for part in reader.partitions(start, end) for row in reader.read(part)]
            assert (rows[0][0], rows[-1][1]) == (start["phy"], end["phy"])
            begins += [row[0] for row in rows]
            start = end
        assert begins == sorted(set(begins))
        counts.append(start)
    assert counts[0] == counts[1]


def test_a_batch_brings_the_builders_to_its_end_and_no_further(stack, tmp_path):
    rebuild = _open(stack, tmp_path / "out")
    for number, frame in enumerate(_batches(stack, -1)[:3]):
        rebuild.apply(frame, number)
        assert rebuild.next_offset == frame.toArrow()["next_offset"][-1].as_py()
    rebuild.abandon()


def test_a_batch_that_comes_after_the_stop_is_refused(stack, tmp_path):
    rebuild = _open(stack, tmp_path / "out")
    rebuild.stop()
    with pytest.raises(StoreRecoveringError):
        rebuild.apply(_batches(stack, -1)[0], 0)
