"""The disk refuses one flush, then works again: the case in which RocketMQ acknowledges a message and loses it.

The disk is ext4 on a loop device on a file that answers EIO once, for the block with a chosen message, unit or index entry.
Linux then marks the page clean: a second fdatasync says OK, reads go on showing the new bytes, the disk has the old ones.
"""

import errno
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import FlushFailedError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import index_key, key_hash
from store.format.java_text import java_string_hash
from store.walk.log_reader import LogReader
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount, level
from tests.torture.seeds import pick_seed
from tests.torture.tools import why_missing
from tests.torture.tools.fuse_fault import Fault, FaultyMount
from tests.torture.tools.lives import (
    BATCH_COUNT_MAX,
    EXIT_CODE_FENCED,
    LAYOUT,
    QUEUE_COUNT,
    QUEUE_FILE_BYTES,
    Key,
    Nursery,
    Order,
    difference_from_rebuild,
    key_of,
    message_of,
)
from tests.torture.tools.loop_disk import LoopDisk, make_image
from tests.torture.tools.tmpfs import tmpfs

REASON = why_missing("fuse", "loop", "ext4")
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(3600 if level() == "full" else 600),
]

RAM_BYTES = 256 << 20
COMMITLOG_SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536",
    "REPUT_COMMITLOG_FLUSH_MODE": "sync",
    "REPUT_COMMITLOG_DEFAULT_TOPIC_QUEUE_COUNT": str(QUEUE_COUNT),
}
BUILDER_SETTINGS = {
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": str(QUEUE_FILE_BYTES),
    "REPUT_INDEX_HASH_SLOT_COUNT": str(LAYOUT.slot_count),
    "REPUT_INDEX_ENTRY_COUNT_MAX": str(LAYOUT.entry_count_max),
}


class BadDisk:
    """An ext4 disk and the faults below it.

    Attributes:
        path: where it is mounted.
    """

    def __init__(self, faults: FaultyMount, disk: LoopDisk) -> None:
        self.path = disk.mount_point
        self._faults = faults
        self._disk = disk

    def refuse_once(self, contains: bytes) -> Callable[[], int]:
        """The next write of a block with these bytes is refused; what is returned tells how often that happened."""
        number = self._faults.add(Fault("write", errno.EIO, contains=contains, count=1))
        return lambda: self._faults.hits(number)

    def refuse_once_after(self, write_count: int) -> Callable[[], int]:
        """The write that comes after so many is refused, whatever it holds: data, file system tables or journal."""
        number = self._faults.add(Fault("write", errno.EIO, skip=write_count, count=1))
        return lambda: self._faults.hits(number)

    def struck_nanoseconds(self) -> int:
        """When a write was refused last; 0 for never."""
        return self._faults.struck_nanoseconds()

    def is_aborted(self) -> bool:
        """Whether the file system has given up its journal and takes no writes any more."""
        try:
            fd = os.open(self.path / "probe", os.O_WRONLY | os.O_CREAT)
            os.fsync(fd)
            os.close(fd)
        except OSError as error:
            return error.errno in (errno.EROFS, errno.EIO)
        return False

    def remount(self) -> None:
        """What is read from here on is what the disk has."""
        self._disk.remount()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "ram", RAM_BYTES) as directory:
        yield directory


@pytest.fixture
def bad_disk(ram: Path, tmp_path: Path) -> Iterator[BadDisk]:
    backing = ram / "backing"
    backing.mkdir()
    make_image(backing / "image", "ext4")
    with (
        FaultyMount(backing, tmp_path / "fuse") as faults,
        LoopDisk(tmp_path / "fuse" / "image", tmp_path / "disk", direct_io=True) as disk,
    ):
        yield BadDisk(faults, disk)


def head_of(key: Key) -> bytes:
    """The first bytes of a message's body: no block of a test's disk holds them but the message's own."""
    return b"%d:%d:%d:" % key


def append(service: Service, number: int, timeout: float = 30.0) -> message_pb2.AppendResult:
    """Appends one numbered message and waits for the disk."""
    request = pb.AppendMessagesRequest(messages=[message_of(Key(0, 0, number))], flush=message_pb2.FLUSH_MODE_SYNC)
    answer: message_pb2.AppendResult = service.stub.AppendMessages(request, timeout=timeout).results[0]
    return answer


def test_this_machine_does_what_the_other_tests_are_about(bad_disk: BadDisk) -> None:
    fd = os.open(bad_disk.path / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 65536)
    os.fsync(fd)
    hits = bad_disk.refuse_once(b"marker")
    os.pwrite(fd, b"marker", 0)

    with pytest.raises(OSError, match="Input/output error"):
        os.fdatasync(fd)
    os.fdatasync(fd)

    assert hits() == 1
    assert os.pread(fd, 6, 0) == b"marker"
    os.close(fd)
    bad_disk.remount()
    assert (bad_disk.path / "file").read_bytes()[:6] == bytes(6)


@pytest.mark.parametrize("position", [0, 50, 4096 + 50, 5 * 4096])
def test_forgetting_the_cache_from_inside_a_page_forgets_that_page_too(position: int, bad_disk: BadDisk) -> None:
    """A safe point lies inside a page: what a refused flush left in the rest of that page was recovered as if written.

    The kernel keeps the page, or the larger folio, that lies across the position that it is given.
    """
    fs = RealFileSystem()
    fd = fs.open(bad_disk.path / "file", os.O_RDWR | os.O_CREAT)
    fs.fallocate(fd, 0, 1 << 20)
    fs.pwrite(fd, b"a" * 65536, 0)
    fs.fdatasync(fd)
    assert fs.pread(fd, 65536, 0) == b"a" * 65536
    bad_disk.refuse_once(b"marker")
    fs.pwrite(fd, b"marker", position + 20)
    with pytest.raises(FlushFailedError):
        fs.fdatasync(fd)

    fs.drop_cache(fd, position)

    assert fs.pread(fd, 6, position + 20) == b"aaaaaa"
    fs.close(fd)


def test_rmq_2706_a_refused_flush_is_never_acknowledged_and_the_restart_has_what_was(
    bad_disk: BadDisk, nursery: Nursery, ram: Path
) -> None:
    """Also #3129 and #5235. In RocketMQ a second flush says OK, the message is acknowledged, and gone after a restart."""
    seed = pick_seed("fsyncgate of the log")
    dice = random.Random(seed)
    count = amount(sample=2, change=3, full=50)
    ack_count = 0
    for number in range(count):
        root = bad_disk.path / f"store-{number}"
        victim = Key(number, 0, dice.randrange(1, 60))
        hits = bad_disk.refuse_once(head_of(victim))
        writer_count = dice.choice((1, 3))
        life = nursery.begin(
            Order("append", str(root), life=number, seed=dice.getrandbits(32), writer_count=writer_count)
        )
        life.read_acks(BATCH_COUNT_MAX)  # it must not come so far
        if not life.refused:
            life.kill()
        life.read_to_end()

        assert hits() == 1
        assert life.broken == ""
        assert life.exit_code == EXIT_CODE_FENCED
        assert "refused to flush" in life.refused
        assert all(ack.number < victim.number for ack in life.acks if ack.writer == 0)
        promised = {writer: max((a.number for a in life.acks if a.writer == writer), default=-1) for writer in range(3)}

        # In place: the page cache still shows what the disk does not have.
        found = nursery.check(root, ram / "report")
        assert found.problem == ""
        if writer_count == 1:  # else somebody may have written into its block during the flush, and it went with that
            assert victim not in found.keys
        last = dict.fromkeys(range(3), -1)
        for key in found.keys:
            assert key.number == last[key.writer] + 1, f"a hole before {key}"
            last[key.writer] = key.number
        assert all(last[writer] >= promised[writer] for writer in promised), (last, promised)
        if dice.random() < 0.5:
            later = nursery.begin(Order("append", str(root), life=1000 + number, batch_count=20))
            later.read_acks(20)
            later.kill()
            assert later.broken == ""
            acked = [Key(1000 + number, 0, i) for i in range(later.acks[-1].number + 1)]
        else:
            acked = []
        bad_disk.remount()

        on_disk = nursery.check(root, ram / "report")
        assert on_disk.problem == ""
        assert on_disk.keys[: len(found.keys)] == found.keys
        assert on_disk.keys[len(found.keys) :][: len(acked)] == acked
        ack_count += len(life.acks) + len(acked)
        subprocess.run(["rm", "-r", str(root)], check=True)
    print(f"{count} refused flushes of the log: {ack_count} acknowledgements, 0 lost, 0 false")


def test_whatever_block_is_refused_no_acknowledged_message_is_lost(
    bad_disk: BadDisk, nursery: Nursery, ram: Path
) -> None:
    """The refused block may be the log's, a checkpoint's, the file system's own, or its journal's.

    While its journal is refused ext4 may say OK to the fdatasync that is under way, of which nobody above can know: an
    answer that came after the refusal counts only when the refused block was not the journal's, which then is aborted.
    """
    seed = pick_seed("one refused block, any")
    dice = random.Random(seed)
    count, fenced_count, ack_count = amount(sample=3, change=20, full=200), 0, 0
    for number in range(count):
        root = bad_disk.path / f"store-{number}"
        hits = bad_disk.refuse_once_after(dice.randrange(200))
        life = nursery.begin(
            Order("append", str(root), life=number, seed=dice.getrandbits(32), writer_count=dice.choice((1, 3)))
        )
        life.read_acks(150)
        life.kill()
        assert life.broken == ""
        if hits() == 1:
            fenced_count += life.exit_code != -9
        struck_nanoseconds, is_aborted = bad_disk.struck_nanoseconds(), bad_disk.is_aborted()
        bad_disk.remount()

        found = nursery.check(root, ram / "report")
        assert found.problem == ""
        kept = set(found.keys)
        lost = [ack for ack in life.acks if Key(number, ack.writer, ack.number) not in kept]
        if is_aborted:
            lost = [ack for ack in lost if ack.nanoseconds < struck_nanoseconds]
        assert lost == []
        ack_count += len(life.acks)
        subprocess.run(["rm", "-r", str(root)], check=True)
    print(f"{count} refused blocks: {fenced_count} ended the process, {ack_count} acknowledgements, 0 lost")


def test_the_service_fences_itself_says_why_and_ends_and_the_next_one_serves_what_was_acknowledged(
    bad_disk: BadDisk,
) -> None:
    root = bad_disk.path / "store"
    hits = bad_disk.refuse_once(head_of(Key(0, 0, 20)))
    with Service("commitlog", root, COMMITLOG_SETTINGS) as service:
        acked = [append(service, number) for number in range(20)]
        with pytest.raises(grpc.RpcError) as refused:
            append(service, 20)
        assert hits() == 1
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "refused to flush" in refused.value.details()
        with pytest.raises(grpc.RpcError):
            append(service, 99)  # answered by a fenced log, or by nobody any more
        wait_until(lambda: service.process.poll() is not None, "the fenced process ends")
        assert service.process.returncode == EXIT_CODE_FENCED
        assert "log.fenced" in service.log()

    with Service("commitlog", root, COMMITLOG_SETTINGS) as service:  # the page cache is as it was
        status = service.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
        request = pb.BatchGetMessagesRequest(commit_log_offsets=[result.commit_log_offset for result in acked])
        read = service.stub.BatchGetMessages(request, timeout=WAIT_SECONDS_MAX).outcomes
        assert [key_of(outcome.message.body) for outcome in read] == [Key(0, 0, number) for number in range(20)]
        last = read[-1].message
        assert status.log_end_offset == last.commit_log_offset + last.store_size_bytes
        append(service, 21)
    bad_disk.remount()
    requests = list(LogReader(root).dispatch_requests())
    bodies = [LogReader(root).record(r.commit_log_offset, r.record_size_bytes).body for r in requests]
    assert [key_of(body).number for body in bodies] == [*range(20), 21]


@pytest.mark.parametrize("builder", ["consumequeue", "index"])
def test_a_builder_whose_flush_was_refused_goes_on_alone_and_equals_a_rebuild(
    builder: str, bad_disk: BadDisk, ram: Path, tmp_path: Path
) -> None:
    seed = pick_seed(f"fsyncgate of the {builder} service")
    dice = random.Random(seed)
    count = amount(sample=1, change=1, full=25)
    for turn in range(count):
        log_root, root = tmp_path / f"log-{turn}", bad_disk.path / f"store-{turn}"
        victim = dice.randrange(1, 30)
        with Service("commitlog", log_root, COMMITLOG_SETTINGS) as log:
            settings = BUILDER_SETTINGS | {"REPUT_COMMITLOG_TARGET": log.address}
            with Service(builder, root, settings) as service:
                hits = bad_disk.refuse_once(unit_of(victim) if builder == "consumequeue" else entry_of(victim))
                for number in range(40):
                    append_tagged(log, number)
                end_offset = log.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset
                wait_until(lambda hits=hits: hits() == 1, "the disk refuses")  # type: ignore[misc]
                wait_until(
                    lambda log=log, end=end_offset: progress_of(log, builder) >= end,  # type: ignore[misc]
                    f"the builder goes on; it says\n{service.log()[-1500:]}",
                )
                assert service.process.poll() is None, "it lives"
                wait_until(lambda service=service: service.health() == "serving", "it serves again")  # type: ignore[misc]
                append_tagged(log, 40)
                end_offset = log.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset
                wait_until(
                    lambda log=log, end=end_offset: progress_of(log, builder) >= end,  # type: ignore[misc]
                    "the builder takes one more",
                )
                assert service.stop() == 0
            log.stop()
        bad_disk.remount()
        requests = list(LogReader(log_root).dispatch_requests())
        assert len(requests) == 41
        assert difference_from_rebuild(root, requests, ram / "rebuilt", of=builder) == ""
    print(f"{count} refused flushes of the {builder} service: equal to a rebuild each time")


def append_tagged(service: Service, number: int) -> None:
    """Appends a message with a tag and a key of its own."""
    message = message_pb2.NewMessage(
        topic="orders", body=b"x", queue_id=number % QUEUE_COUNT, tags=f"tag number {number}", keys=[f"key-{number}"]
    )
    service.stub.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX)


def progress_of(log: Service, builder: str) -> int:
    """How far a builder says that its files are on the disk."""
    status = log.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
    return int(status.builder_next_offsets.get(builder, -1))


def unit_of(number: int) -> bytes:
    """The tags code in a message's queue unit."""
    return struct.pack(">q", java_string_hash(f"tag number {number}"))


def entry_of(number: int) -> bytes:
    """The hash of a message's key, and the first half of its offset, in its index entry."""
    return struct.pack(">ii", key_hash(index_key("orders", f"key-{number}")), 0)
