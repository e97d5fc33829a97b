"""One disk, one fault, two stores: the disk refuses the flush of one message, once, and works from then on.

RocketMQ with SYNC_FLUSH answers PUT_OK for that message and does not have it after a restart (its flush is tried
again, and Linux says OK to the second try). Ours refuses it, ends, and has after a restart what it acknowledged.
"""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.walk.log_reader import LogReader
from tests.rocketmq import real_broker
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.torture.tools import enter_own_namespace, why_missing
from tests.torture.tools.fuse_fault import Fault, FaultyMount
from tests.torture.tools.loop_disk import LoopDisk, make_image
from tests.torture.tools.tmpfs import tmpfs

REASON = real_broker.why_unavailable() or why_missing("fuse", "loop", "ext4")
pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

HEALTHY = ["healthy-0", "healthy-1", "healthy-2"]
VICTIM = "VICTIM"
RUN_COUNT = 3
EXIT_CODE_FENCED = 3
SETTINGS = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20), "REPUT_COMMITLOG_FLUSH_MODE": "sync"}


class BadDisk:
    """ext4 on a device that refuses the block with the victim in it, once told to."""

    def __init__(self, faults: FaultyMount, disk: LoopDisk) -> None:
        self.path = disk.mount_point
        self._faults = faults
        self._disk = disk
        self._number = -1

    def begin_to_fail(self) -> None:
        """The next write of the victim's block is refused."""
        self._number = self._faults.add(Fault("write", errno.EIO, contains=VICTIM.encode(), count=1))

    def refusal_count(self) -> int:
        """How often it was."""
        return self._faults.hits(self._number)

    def heal_and_remount(self) -> None:
        """All is well, and nothing is in the page cache."""
        self._faults.clear()
        self._disk.remount()


@pytest.fixture
def bad_disk(tmp_path: Path) -> Iterator[BadDisk]:
    with tmpfs(tmp_path / "ram", 256 << 20) as ram:
        backing = ram / "backing"
        backing.mkdir()
        make_image(backing / "image", "ext4", 128 << 20)
        with (
            FaultyMount(backing, tmp_path / "fuse") as faults,
            LoopDisk(tmp_path / "fuse" / "image", tmp_path / "disk", direct_io=True) as disk,
        ):
            yield BadDisk(faults, disk)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs StoreProbe."""
    enter_own_namespace()
    classes, home = tmp_path_factory.mktemp("classes"), tmp_path_factory.mktemp("home")
    source = real_broker.JAVA_SOURCES / "StoreProbe.java"
    path = real_broker.classpath()
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(classes), str(source)], check=True)
    flags = [f"-Duser.home={home}", "-Xmx400m", *real_broker.RealRocketMQ.short_life, *real_broker.JVM_FLAGS]
    return ["setpriv", "--pdeathsig", "KILL", "java", *flags, "-cp", f"{classes}:{path}", "StoreProbe"]


def words_of(lines: list[str], word: str) -> list[list[str]]:
    """The fields of the lines that begin with a word."""
    return [line.split("\t")[1:] for line in lines if line.split("\t")[0] == word]


def put_with_rocketmq(probe: list[str], work: Path, disk: BadDisk, *, fails: bool) -> dict[str, str]:
    """What RocketMQ answers for each message."""
    command = [*probe, "put", str(work), str(disk.path / "commitlog")]
    with (
        open(work / "probe.log", "wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            lines = []
            while "READY" not in lines:
                line = process.stdout.readline()
                assert line, f"the probe ended:\n{(work / 'probe.log').read_text()[-2000:]}"
                lines.append(line.rstrip("\n"))
            if fails:
                disk.begin_to_fail()
            rest, _ = process.communicate("go\n", timeout=WAIT_SECONDS_MAX)
        finally:
            process.kill()
    lines += rest.splitlines()
    return {answer[0]: answer[1] for answer in words_of(lines, "PUT")}


def read_with_rocketmq(probe: list[str], work: Path, disk: BadDisk) -> list[str]:
    """The messages that RocketMQ has after a restart."""
    command = [*probe, "get", str(work), str(disk.path / "commitlog")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=True)
    return [body for body in words_of(done.stdout.splitlines(), "FOUND")[0][0].split(",") if body]


def append(service: Service, body: str) -> str:
    """What we answer: PUT_OK, or the code of the error."""
    request = pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic="orders", queue_id=0, body=body.encode())]
    )
    try:
        service.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "PUT_OK"


def bodies_of(root: Path) -> list[str]:
    """The messages in our log."""
    reader = LogReader(root)
    requests = list(reader.dispatch_requests())
    return [reader.record(r.commit_log_offset, r.record_size_bytes).body.decode() for r in requests]


def test_on_the_same_bad_disk_rocketmq_acknowledges_and_loses_what_we_refuse(
    probe: list[str], bad_disk: BadDisk, tmp_path: Path
) -> None:
    for turn in range(RUN_COUNT):
        work = tmp_path / f"rocketmq-{turn}"
        work.mkdir()
        theirs = put_with_rocketmq(probe, work, bad_disk, fails=True)
        assert bad_disk.refusal_count() == 1
        bad_disk.heal_and_remount()
        their_messages = read_with_rocketmq(probe, work, bad_disk)
        print(f"RocketMQ {real_broker.VERSION}, SYNC_FLUSH, run {turn}: {theirs}, after the restart {their_messages}")
        assert theirs == dict.fromkeys([*HEALTHY, VICTIM], "PUT_OK"), "RocketMQ acknowledges"
        assert their_messages == HEALTHY, "and loses"
        subprocess.run(["rm", "-r", str(bad_disk.path / "commitlog")], check=True)

        root = bad_disk.path / f"ours-{turn}"
        with Service("commitlog", root, SETTINGS) as service:
            ours = {body: append(service, body) for body in HEALTHY}
            bad_disk.begin_to_fail()
            ours[VICTIM] = append(service, VICTIM)
            exit_code = service.process.wait(60)
        assert bad_disk.refusal_count() == 1
        with Service("commitlog", root, SETTINGS) as service:  # in place, with whatever the page cache shows
            again = append(service, "after")
        bad_disk.heal_and_remount()
        our_messages = bodies_of(root)
        print(f"Reput, sync, run {turn}: {ours}, exit code {exit_code}, after the restart {our_messages}")
        assert ours == dict.fromkeys(HEALTHY, "PUT_OK") | {VICTIM: "UNAVAILABLE"}
        assert exit_code == EXIT_CODE_FENCED
        assert again == "PUT_OK"
        assert our_messages == [*HEALTHY, "after"]


def test_without_the_fault_rocketmq_keeps_all_four_on_that_disk(
    probe: list[str], bad_disk: BadDisk, tmp_path: Path
) -> None:
    """The control: it is the refused flush that loses the message, not the disk or the probe."""
    work = tmp_path / "rocketmq"
    work.mkdir()
    theirs = put_with_rocketmq(probe, work, bad_disk, fails=False)
    bad_disk.heal_and_remount()

    assert theirs == dict.fromkeys([*HEALTHY, VICTIM], "PUT_OK")
    assert read_with_rocketmq(probe, work, bad_disk) == [*HEALTHY, VICTIM]
    assert os.path.exists(bad_disk.path / "commitlog")
