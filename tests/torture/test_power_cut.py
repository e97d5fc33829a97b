"""Power cuts of real file systems, ext4 and xfs: what was promised is there afterwards, and nothing else.

After each cut the store is recovered and every message in it is compared with what its writer wrote:
- sync: every acknowledged message is there;
- async: what is missing is a suffix of the log, none of it older than the flush interval, none of it ever shown by Reput;
- what an earlier recovery kept is still there, what it cut never comes back;
- queues and index equal a rebuild from the log, byte for byte.

An answer given after the cut is no promise: a machine without power gives none, and ext4 says OK to an fdatasync that was
under way when it was shut down (it could not make its extents written any more, and does not report that).
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
from tests.torture.tools.lives import Ack, Key, Life, Nursery, Order, Report
from tests.torture.tools.loop_disk import LoopDisk, make_image
from tests.torture.tools.power_cut import cut_power
from tests.torture.tools.tmpfs import tmpfs

REASON = why_missing("loop", "ext4", "xfs")
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(7200 if level() == "full" else 600),
]

RAM_BYTES = 1 << 30  # at most; images are sparse
KINDS = ("ext4", "xfs")
LIVES_A_STORE = 20
FLUSH_INTERVAL_MILLIS = 10
# The interval bounds how long written bytes wait for their flush to begin. A busy machine with a slow disk adds to it.
LATE_MILLIS_MAX = 20_000
NEVER_SECONDS = 60  # longer than a life lasts


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def ram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tmpfs(tmp_path_factory.mktemp("ram"), RAM_BYTES) as directory:
        yield directory


@pytest.fixture
def disk(request: pytest.FixtureRequest, ram: Path, tmp_path: Path) -> Iterator[LoopDisk]:
    kind = getattr(request, "param", "ext4")
    image = make_image(ram / f"{tmp_path.name}.{kind}", kind)
    with LoopDisk(image, tmp_path / "disk", kind) as disk:
        yield disk
    image.unlink()


def cut_and_remount(disk: LoopDisk, life: Life) -> int:
    """Cuts the power under a life, ends it, mounts again; the moment before the cut (monotonic nanoseconds)."""
    moment = time.monotonic_ns()
    cut_power(disk.mount_point)
    life.kill()
    assert not life.broken, life.broken
    disk.remount()
    return moment


def judge(life: Life, number: int, before: list[Key], after: Report, *, is_sync: bool, cut_at: int) -> float:
    """Compares what a life was promised with what is left of it; the age of the oldest loss in milliseconds (0: none)."""
    assert after.problem == ""
    assert after.keys[: len(before)] == before, "what an earlier recovery kept is gone, or what it cut came back"
    mine = after.keys[len(before) :]
    left: dict[int, int] = {}
    for key in mine:
        assert (key.life, key.number) == (number, left.get(key.writer, 0)), f"{key} is a hole or of another life"
        left[key.writer] = key.number + 1
    shown_offset = max((offset for offset, moment in life.flushes if moment < cut_at), default=0)
    assert after.end_offset >= shown_offset, "the builders were shown what was not on the disk"
    promised = [ack for ack in life.acks if ack.nanoseconds < cut_at]
    lost = [ack for ack in promised if ack.number >= left.get(ack.writer, 0)]
    if is_sync:
        assert lost == [], f"acknowledged and lost: {lost[:5]}"
    kept_ends = [ack.end_offset for ack in promised if ack not in lost]
    assert all(end <= after.end_offset for end in kept_ends)
    assert all(ack.end_offset > after.end_offset for ack in lost), "what is lost is no suffix"
    return max((_age_millis(ack, cut_at) for ack in lost), default=0.0)


def _age_millis(ack: Ack, cut_at: int) -> float:
    return (cut_at - ack.nanoseconds) / 1e6


@pytest.mark.parametrize("disk", KINDS, indirect=True)
@pytest.mark.parametrize("flush_mode", ["sync", "async"])
def test_a_power_cut_at_any_moment_takes_nothing_that_was_promised(
    flush_mode: str, disk: LoopDisk, ram: Path, nursery: Nursery, tmp_path: Path
) -> None:
    seed = pick_seed(f"power cut {disk.kind} {flush_mode}")
    dice = random.Random(seed)
    cut_count = -(-amount(sample=12, change=60, full=5000) // 4)
    ack_count = loss_count = during_recovery_count = 0
    oldest_millis = 0.0
    began = time.monotonic()
    kept: list[Key] = []
    for number in range(cut_count):
        root = disk.mount_point / f"store-{number // LIVES_A_STORE}"
        if number % LIVES_A_STORE == 0:
            kept = []
        order = Order(
            "append",
            str(root),
            life=number,
            seed=dice.getrandbits(32),
            flush_mode=flush_mode,
            flush_interval_millis=FLUSH_INTERVAL_MILLIS,
            writer_count=dice.choice((1, 1, 3)),
        )
        life = nursery.begin(order)
        enough = dice.choice((0, 3, 30, 120)) if flush_mode == "sync" else dice.choice((0, 30, 400))
        during_recovery = number > 0 and dice.random() < 0.15
        if not during_recovery:
            life.read_until(lambda life: life.recovered is not None)
            life.read_acks(enough)
        spin_until = time.monotonic() + dice.random() * (0.02 if during_recovery else 0.005)
        while time.monotonic() < spin_until:
            pass
        cut_at = cut_and_remount(disk, life)
        during_recovery_count += life.recovered is None
        report = nursery.check(root, ram / f"{tmp_path.name}.report", is_clean=dice.random() < 0.5)
        millis = judge(life, number, kept, report, is_sync=flush_mode == "sync", cut_at=cut_at)
        assert millis <= FLUSH_INTERVAL_MILLIS + LATE_MILLIS_MAX
        oldest_millis = max(oldest_millis, millis)
        loss_count += millis > 0
        ack_count += len(life.acks)
        kept = report.keys
    seconds = time.monotonic() - began
    print(
        f"{cut_count} power cuts of {disk.kind}, {flush_mode}: {ack_count} acknowledgements, {loss_count} cuts took "
        f"unflushed ones, the oldest {oldest_millis:.1f} ms old; {during_recovery_count} cuts during recovery; "
        f"{seconds / cut_count * 1000:.0f} ms a cut with its check"
    )


@pytest.mark.parametrize("disk", KINDS, indirect=True)
def test_rmq_8239_nothing_is_built_or_shown_that_a_power_cut_can_take(
    disk: LoopDisk, ram: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """A consumer read a message that was not flushed yet; after the crash its offset was ahead of the log."""
    root = disk.mount_point / "store"
    # Nothing is flushed for its age or for a snapshot; Linux itself writes dirty pages only after 30 s.
    order = Order(
        "append",
        str(root),
        flush_mode="async",
        flush_interval_millis=NEVER_SECONDS * 1000,
        snapshot_seconds=NEVER_SECONDS,
        batch_count=50,
    )
    life = nursery.begin(order)
    life.read_acks(50)
    cut_at = cut_and_remount(disk, life)

    report = nursery.check(root, ram / f"{tmp_path.name}.report")

    assert report.end_offset < life.acks[-1].end_offset
    judge(life, 0, [], report, is_sync=False, cut_at=cut_at)


@pytest.mark.parametrize("disk", KINDS, indirect=True)
def test_rmq_405_a_cut_between_log_and_queue_leaves_no_message_without_its_unit(
    disk: LoopDisk, ram: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """The log was flushed, the queues were not: their units were missing for good."""
    root = disk.mount_point / "store"
    life = nursery.begin(Order("append", str(root), has_builders=False, batch_count=40))
    life.read_acks(40)
    cut_at = cut_and_remount(disk, life)

    report = nursery.check(root, ram / f"{tmp_path.name}.report")

    assert judge(life, 0, [], report, is_sync=True, cut_at=cut_at) == 0
    assert len(report.keys) >= 40


@pytest.mark.parametrize("disk", KINDS, indirect=True)
def test_rmq_10666_a_cut_off_tail_stays_gone_after_a_power_cut(
    disk: LoopDisk, ram: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """The truncation was in memory alone: after a crash the stale tail was valid again.

    The tail: half a record, then noise, then more noise in the next file.
    """
    root = disk.mount_point / "store"
    life = nursery.begin(Order("append", str(root), batch_count=60))
    life.read_acks(60)
    life.kill()
    requests = list(LogReader(root).dispatch_requests())
    end_offset = requests[-1].next_offset
    files = sorted(Path(commit_log_dir(str(root))).iterdir())
    current = max(path for path in files if int(path.name) <= end_offset)
    size_bytes = current.stat().st_size
    at = end_offset - int(current.name)
    head = LogReader(root).record(requests[0].commit_log_offset, requests[0].record_size_bytes)
    assert head.commit_log_offset == 0
    half = files[0].read_bytes()[: requests[0].record_size_bytes // 2]
    with current.open("r+b") as file:
        file.seek(at)
        file.write((half + random.Random(1).randbytes(size_bytes))[: size_bytes - at])
    disk.remount()

    life = nursery.begin(Order("recover", str(root)))
    life.read_until(lambda life: life.recovered is not None)
    cut_and_remount(disk, life)

    assert life.recovered == (end_offset, end_offset)
    assert current.read_bytes()[at:] == bytes(size_bytes - at)
    report = nursery.check(root, ram / f"{tmp_path.name}.report")
    assert (report.end_offset, report.problem) == (end_offset, "")
    assert len(report.keys) == len(requests)
