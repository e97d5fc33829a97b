"""Every moment at which one run could have lost its power: the disk after each flush, and with any part of what followed.

The run appends, rolls over to new files, is killed, finds a torn tail at its next start, cuts it, and goes on. Its block
writes are recorded; each moment is played onto an image, mounted and recovered. Then:
- what was acknowledged by that moment is there;
- all that is there is a prefix of what the run wrote, in its order;
- queues and index equal a rebuild from the log.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.format.paths import commit_log_dir
from store.walk.log_reader import LogReader
from tests.torture.amount import amount, level
from tests.torture.seeds import pick_seed
from tests.torture.tools import why_missing
from tests.torture.tools.block_log import Epoch, Replay, copy_sparse, read_epochs, some_of
from tests.torture.tools.fuse_fault import FaultyMount
from tests.torture.tools.lives import Key, Life, Nursery, Order
from tests.torture.tools.loop_disk import LoopDisk, make_image
from tests.torture.tools.tmpfs import tmpfs

REASON = why_missing("fuse", "loop", "ext4")
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(7200 if level() == "full" else 600),
]

RAM_BYTES = 512 << 20
DISK_BYTES = 16 << 20
LOG_FILE_BYTES = 16384
BATCH_COUNT = 12
TAIL_BYTES = 3000
SUBSETS_AN_EPOCH = 20


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "ram", RAM_BYTES) as directory:
        yield directory


class Run:
    """A recorded run.

    Attributes:
        base: the disk before it.
        epochs: what it wrote.
        promises: (bytes of block log, message) of each acknowledgement, in time's order.
        keys: all that was in the log at its end, in log order.
    """

    def __init__(self, directory: Path, ram: Path, nursery: Nursery, dice: random.Random) -> None:
        backing = ram / "backing"
        backing.mkdir(exist_ok=True)
        image = make_image(backing / "image", "ext4", DISK_BYTES)
        self.base = ram / "base"
        copy_sparse(image, self.base)
        record = ram / "blocks"
        record.unlink(missing_ok=True)
        self.promises: list[tuple[int, Key]] = []
        with (
            FaultyMount(backing, directory / "fuse", record=record) as faults,
            LoopDisk(faults.mount_point / "image", directory / "disk", direct_io=True) as disk,
        ):
            root = disk.mount_point / "store"
            for number in range(2):
                order = Order(
                    "append",
                    str(root),
                    life=number,
                    seed=dice.getrandbits(32),
                    file_size_bytes=LOG_FILE_BYTES,
                    writer_count=dice.choice((1, 2)),
                    batch_count=BATCH_COUNT,
                    block_log=str(record),
                )
                life = nursery.begin(order)
                life.read_acks(BATCH_COUNT * order.writer_count)
                life.kill()
                self._remember(life, number)
                if number == 0:
                    self._tear(root, dice)
            self.keys = nursery.check(root, ram / "report", file_size_bytes=LOG_FILE_BYTES).keys
        self.epochs = read_epochs(record)

    def _remember(self, life: Life, number: int) -> None:
        assert life.broken == ""
        assert life.refused == ""
        self.promises += [(ack.block_log_bytes, Key(number, ack.writer, ack.number)) for ack in life.acks]

    def _tear(self, root: Path, dice: random.Random) -> None:
        """Half a record and noise behind the log's end, on the disk."""
        requests = list(LogReader(root).dispatch_requests())
        end_offset = requests[-1].next_offset
        files = sorted(Path(commit_log_dir(str(root))).iterdir())
        path = next(path for path in files if int(path.name) <= end_offset < int(path.name) + LOG_FILE_BYTES)
        half = files[0].read_bytes()[: requests[0].record_size_bytes // 2]
        at = end_offset - int(path.name)
        with path.open("r+b") as file:
            file.seek(at)
            file.write((half + dice.randbytes(TAIL_BYTES))[: LOG_FILE_BYTES - at])


def moments(epochs: list[Epoch], dice: random.Random) -> dict[int, int]:
    """Which flushes are looked at, and how many random parts of the epoch behind each."""
    count = len(epochs)
    if level() == "full":
        return dict.fromkeys(range(count), SUBSETS_AN_EPOCH)
    numbers = range(count) if level() == "change" else sorted(dice.sample(range(count), min(count, 16)))
    parts = dict.fromkeys(numbers, 0)
    for _ in range(amount(sample=8, change=40, full=0)):
        parts[dice.choice(list(numbers))] += 1
    return parts


def test_at_every_moment_of_a_run_the_disk_has_what_was_promised(ram: Path, nursery: Nursery, tmp_path: Path) -> None:
    seed = pick_seed("block log")
    dice = random.Random(seed)
    for turn in range(amount(sample=1, change=1, full=10)):
        run = Run(tmp_path / str(turn), ram, nursery, dice)
        assert len({key.life for key in run.keys}) == 2, "both lives are in the log"
        replay, parts = Replay(run.base, ram), moments(run.epochs, dice)
        began, image_count, flushed_bytes = time.monotonic(), 0, 0
        for number, epoch in enumerate(run.epochs):
            promised = {key for at_bytes, key in run.promises if at_bytes <= flushed_bytes}
            for part in range(parts[number] + 1 if number in parts else 0):
                image = replay.image(some_of(epoch.writes, dice) if part else [])
                with LoopDisk(image, tmp_path / "replayed") as disk:
                    report = nursery.check(disk.mount_point / "store", ram / "report", file_size_bytes=LOG_FILE_BYTES)
                where = f"run {turn}, behind flush {number} of {len(run.epochs)}, part {part}"
                assert report.problem == "", where
                assert report.keys == run.keys[: len(report.keys)], where
                assert promised <= set(report.keys), where
                image_count += 1
            replay.advance(epoch)
            flushed_bytes = epoch.end_bytes
        seconds = time.monotonic() - began
        print(
            f"run {turn}: {len(run.epochs) - 1} flushes, {sum(len(epoch.writes) for epoch in run.epochs)} block writes, "
            f"{len(run.promises)} acknowledgements; {image_count} disks mounted and recovered, 0 lost, "
            f"{seconds / image_count * 1000:.0f} ms each"
        )
