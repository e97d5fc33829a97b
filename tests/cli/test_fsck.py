"""`reput fsck`: exit codes, JSON, who it refuses, and what a repair leaves behind."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cli.main
from cli.repair import Repairer
from store.errors import FlushFailedError
from store.files.file_system import RealFileSystem
from store.files.locks import BrokerLock, OwnerLock
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS, use_delay_levels
from store.format.derived.queue_unit import FILLER, encode_queue_unit
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.support import append, new_message, open_log
from tests.store.audit.support import audit, bad_codes, find, flip, patch, records
from tests.support.command import run_command
from tests.support.dispatches import file_bytes

CLEAN, FOUND, USAGE, REPAIRED, DISK_FAILED = range(5)
Capture = pytest.CaptureFixture[str]


def fsck(*arguments: object) -> int:
    """Runs the command in this process; its exit code."""
    return cli.main.main(["fsck", *map(str, arguments)])


def fsck_json(capsys: Capture, *arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit code and the document that is printed."""
    capsys.readouterr()
    code = fsck(*arguments, "-o", "json")
    return code, json.loads(capsys.readouterr().out)


def part(root: Path, name: str) -> dict[str, bytes]:
    """All files below a folder of a root."""
    return file_bytes(root / name)


def index_contents(root: Path) -> list[bytes]:
    """Index files in their order; their names are times."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


# What a repair makes where nothing is left to say it.
SMALL_FILES = {
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "1280",
    "REPUT_INDEX_HASH_SLOT_COUNT": "97",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "200",
}


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL_FILES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def made_by_us(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root that this project wrote: log by its engine, queues and indexes by its builders, all state there."""
    root = tmp_path_factory.mktemp("fsck") / "ours"
    with open_log(root) as log:
        for number in range(300):
            message = new_message(b"body %d" % number * 5, topic=f"t{number % 3}", keys=[f"k{number}", "all"], tags="T")
            append(log, message, sync=False)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SMALL_FILES.items():
            environment.setenv(name, value)
        Repairer(RealFileSystem(), root, lambda done, total: None).run(None)
    shutil.rmtree(root / "reput" / "fsck", ignore_errors=True)
    assert audit(root).findings.is_clean
    assert {path.stat().st_size for path in (root / "index").iterdir()} == {4428}
    return root


@pytest.fixture
def our_store(made_by_us: Path, tmp_path: Path) -> Path:
    """A copy of `made_by_us` to write on."""
    return Path(shutil.copytree(made_by_us, tmp_path / "ours"))


def test_a_clean_store_exits_0_and_is_not_touched(broker_store: Path, capsys: Capture) -> None:
    before = file_bytes(broker_store)

    assert fsck(broker_store) == CLEAN

    assert "clean (0 error, 0 warning" in capsys.readouterr().out
    assert file_bytes(broker_store) == before


@pytest.fixture
def _rocketmqs_levels() -> Iterator[None]:
    """The list of delay levels is one of the process, and the command runs in this one."""
    yield
    use_delay_levels(DELAY_LEVELS_MILLIS)


@pytest.mark.usefixtures("_rocketmqs_levels")
def test_times_of_delayed_messages_are_judged_by_the_list_of_the_store(broker_store: Path, capsys: Capture) -> None:
    code, found = fsck_json(capsys, broker_store, "--delay-levels", "9s 9s 9s")

    assert code == FOUND
    assert {Path(each["file"]).parts[:2] for each in found["findings"] if each["severity"] == "error"} == {
        ("consumequeue", "SCHEDULE_TOPIC_XXXX")
    }


def test_a_malformed_list_of_delay_levels_is_a_usage_error(broker_store: Path, capsys: Capture) -> None:
    assert fsck(broker_store, "--delay-levels", "1s 5") == USAGE
    assert "level 2 of the delay levels is '5'" in capsys.readouterr().err


def test_the_json_has_stable_keys(broker_store: Path, capsys: Capture) -> None:
    code, found = fsck_json(capsys, broker_store)

    assert code == CLEAN
    assert list(found) == [
        "store", "exit_code", "clean", "severities", "counts", "findings", "findings_left_out", "log", "queues", "index",
        "bytes", "seconds", "repair",
    ]  # fmt: skip
    assert found["severities"] == {"error": 0, "warning": 0, "info": 2}
    assert found["counts"] == {"LOG_RECORD_UNGUARDED": 2784, "LOG_UNIQUE_KEY_REPEATED": 76}
    assert list(found["findings"][0]) == [
        "code", "severity", "file", "byte", "commit_log_offset", "count", "what", "what_to_do",
    ]  # fmt: skip
    assert found["log"]["record_count"] == found["queues"]["unit_count"] == 2784
    assert found["index"]["key_count"] == found["index"]["entry_count"] == 6249
    assert found["bytes"] == sum(
        len(data)
        for name, data in file_bytes(broker_store).items()
        if name.startswith(("commitlog", "consumeq", "index"))
    )
    assert found["seconds"] > 0
    assert found["repair"] is None


def test_findings_exit_1_and_are_shown_with_file_and_byte(copy_of_engine_crc_store: Path, capsys: Capture) -> None:
    path, byte, _, _ = records(copy_of_engine_crc_store)[7]
    flip(path, byte + 30)

    assert fsck(copy_of_engine_crc_store) == FOUND

    shown = capsys.readouterr().out
    assert "LOG_DAMAGED" in shown
    assert f"commitlog/{path.name}" in shown
    assert str(byte) in shown
    assert "bring the file back from a copy" in shown


def test_a_row_of_topics_json_that_cannot_be_read_is_a_finding_of_its_own(our_store: Path, capsys: Capture) -> None:
    path = our_store / "config" / "topics.json"
    document = json.loads(path.read_text())
    document["topicConfigTable"]["t1"]["perm"] = "all"
    path.write_text(json.dumps(document))

    code, answer = fsck_json(capsys, our_store)

    assert code == FOUND
    (finding,) = [each for each in answer["findings"] if each["code"].startswith("TOPIC")]
    assert (finding["code"], finding["severity"]) == ("TOPIC_ROW_UNREADABLE", "error")
    assert "'t1': perm is 'all'" in finding["what"]


def test_what_is_no_store_exits_2(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "letters").mkdir()

    assert fsck(tmp_path) == USAGE
    assert fsck(tmp_path / "nowhere") == USAGE
    assert fsck() == USAGE
    assert "not a RocketMQ store" in capsys.readouterr().err


@pytest.mark.parametrize("component", ["commitlog", "consumequeue", "index", "consumer", "schedule"])
@pytest.mark.parametrize("flags", [[], ["--repair"]])
def test_a_root_that_one_of_our_services_holds_exits_2(
    component: str, flags: list[str], copy_of_engine_store: Path, capsys: Capture
) -> None:
    lock = OwnerLock(copy_of_engine_store / "reput" / component / "lock", wait_seconds=0)
    lock.acquire()
    try:
        assert fsck(copy_of_engine_store, *flags) == USAGE
    finally:
        lock.release()
    assert "STORE_LOCKED" in capsys.readouterr().err
    assert fsck(copy_of_engine_store) == CLEAN


def test_a_root_that_a_broker_holds_exits_2(copy_of_engine_store: Path, capsys: Capture) -> None:
    lock = BrokerLock(copy_of_engine_store / "lock", wait_seconds=0)
    lock.acquire()
    try:
        assert fsck(copy_of_engine_store) == USAGE
    finally:
        lock.release()
    assert "stop it first" in capsys.readouterr().err


def test_a_read_only_mount_is_audited_and_not_repaired(copy_of_engine_store: Path) -> None:
    flip(next((copy_of_engine_store / "consumequeue").rglob("0000*")), 19)
    before = file_bytes(copy_of_engine_store)
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77; shift; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", str(copy_of_engine_store)]
    command += [sys.executable, "-m", "cli.main", "fsck", str(copy_of_engine_store)]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is missing (util-linux)")

    audited = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if audited.returncode == 77 or "unshare" in audited.stderr:
        pytest.skip(f"a mount of one's own needs root: {audited.stderr.strip()}")
    repaired = subprocess.run([*command, "--repair"], capture_output=True, text=True, timeout=60, check=False)

    assert (audited.returncode, repaired.returncode) == (FOUND, USAGE)
    assert "QUEUE_UNIT_WRONG" in audited.stdout
    assert "PERMISSION_DENIED" in repaired.stderr
    assert file_bytes(copy_of_engine_store) == before


def test_an_audit_changes_nothing_and_leaves_no_lock_behind(copy_of_engine_store: Path) -> None:
    before = sorted(copy_of_engine_store.rglob("*"))

    assert fsck(copy_of_engine_store) == CLEAN

    assert sorted(copy_of_engine_store.rglob("*")) == before


def test_a_disk_that_cannot_be_read_exits_4(
    copy_of_engine_store: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fs: RealFileSystem, fd: int, size_bytes: int, position: int) -> bytes:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(RealFileSystem, "pread", failing)

    assert fsck(copy_of_engine_store) == DISK_FAILED
    assert "DISK_FAILED" in capsys.readouterr().err


def test_state_of_consumers_and_of_what_waits_is_of_ordinary_topics_and_their_own_files_are_left_alone(
    our_store: Path, capsys: Capture
) -> None:
    state_topics = ("rmq_sys_REPUT_CONSUMER_STATE", "rmq_sys_REPUT_SCHEDULE_STATE")
    waiting = our_store / "reput" / "schedule" / "timers" / "1700000000"
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"made again when it is lost")
    secret = our_store / "reput" / "consumer" / "secret"
    secret.write_bytes(b"of this store root")
    secret.chmod(0o600)
    with open_log(our_store) as log:
        states = [
            internal_record(b"\x08\x01" * number, topic=topic) for number in range(1, 9) for topic in state_topics
        ]
        append_internal(log, internal_record(topic="%RETRY%g_t1"), *states)

    assert bad_codes(our_store) == set(), "the queues are behind the log, which their service mends"
    shutil.rmtree(our_store / "consumequeue")
    assert fsck(our_store, "--repair") == REPAIRED
    code, document = fsck_json(capsys, our_store)

    assert (code, document["findings"]) == (CLEAN, [])
    assert all((our_store / "consumequeue" / topic / "0").is_dir() for topic in state_topics)
    assert waiting.read_bytes() == b"made again when it is lost"
    assert (secret.read_bytes(), secret.stat().st_mode & 0o777) == (b"of this store root", 0o600)


def test_repair_of_a_clean_store_changes_nothing(our_store: Path) -> None:
    before = file_bytes(our_store)

    assert fsck(our_store, "--repair") == CLEAN

    assert file_bytes(our_store) == before | {"lock": b"lock"}


def _wreck_queues(root: Path) -> None:
    for number, path in enumerate(sorted((root / "consumequeue").rglob("0*"))):
        if path.is_file():
            patch(path, number % 40, b"\xee" * 7)


def _lose_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def _wreck_index(root: Path) -> None:
    for path in (root / "index").iterdir():
        patch(path, 600, b"\xee" * 300)


def _lose_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def _shorten(root: Path) -> None:
    for path in [min((root / "index").iterdir()), *(root / "consumequeue").rglob("0000*")]:
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("wreck", [_wreck_queues, _wreck_index, _shorten])
def test_repair_equals_what_rocketmq_wrote_byte_for_byte(
    wreck: Callable[[Path], None], broker_store: Path, copy_of_broker_store: Path
) -> None:
    wreck(copy_of_broker_store)
    log = part(copy_of_broker_store, "commitlog")
    wrecked = file_bytes(copy_of_broker_store)
    assert fsck(copy_of_broker_store) == FOUND

    assert fsck(copy_of_broker_store, "--repair") == REPAIRED

    assert part(copy_of_broker_store, "consumequeue") == part(broker_store, "consumequeue")
    assert index_contents(copy_of_broker_store) == index_contents(broker_store)
    assert part(copy_of_broker_store, "commitlog") == log
    assert fsck(copy_of_broker_store) == CLEAN
    kept = part(copy_of_broker_store, "reput/fsck/1")
    assert kept
    assert all(wrecked[name] == data for name, data in kept.items())


@pytest.mark.parametrize("wreck", [_lose_queues, _lose_index, _wreck_queues, _wreck_index])
def test_repair_equals_what_our_services_wrote(wreck: Callable[[Path], None], our_store: Path) -> None:
    queues, index = part(our_store, "consumequeue"), index_contents(our_store)
    wreck(our_store)
    for setting in ("consumequeue", "index"):
        shutil.rmtree(our_store / "reput" / setting)

    assert fsck(our_store, "--repair") == REPAIRED

    assert (part(our_store, "consumequeue"), index_contents(our_store)) == (queues, index)


def test_repair_without_repair_log_leaves_a_damaged_log_and_what_knows_more_than_it(
    copy_of_engine_crc_store: Path, capsys: Capture
) -> None:
    path, byte, _, _ = records(copy_of_engine_crc_store)[100]
    flip(path, byte + 60)
    queue = next((copy_of_engine_crc_store / "consumequeue").rglob("0000*"))
    flip(queue, 19)
    before = file_bytes(copy_of_engine_crc_store)

    assert fsck(copy_of_engine_crc_store, "--repair") == FOUND

    after = {name: data for name, data in file_bytes(copy_of_engine_crc_store).items() if "lock" not in name}
    assert after == before
    assert "queues and indexes are unchanged" in capsys.readouterr().out


def test_repair_log_cuts_at_the_damage_and_keeps_everything_behind_it(
    copy_of_engine_crc_store: Path, capsys: Capture
) -> None:
    root = copy_of_engine_crc_store
    path, byte, offset, _ = records(root)[100]
    flip(path, byte + 60)
    log = part(root, "commitlog")

    code, found = fsck_json(capsys, root, "--repair-log", "--yes")

    assert code == REPAIRED
    assert found["repair"]["log_cut_offset"] == offset
    assert found["repair"]["records_cut"] == 399
    assert found["log"]["end_offset"] == offset
    assert found["log"]["record_count"] == found["queues"]["unit_count"] == 100
    assert any("399 whole records" in line for line in found["repair"]["steps"])
    kept = part(root, "reput/fsck/1/commitlog")
    cut = kept.pop(f"{path.name}.from.{offset}")
    assert cut == log[path.name][byte:].rstrip(b"\0")
    assert kept == {name: data for name, data in log.items() if name > path.name}
    assert part(root, "commitlog") == {path.name: log[path.name][:byte].ljust(262144, b"\0")}
    with open_log(root, file_size_bytes=262144) as opened:
        assert opened.status.end_offset == offset


def test_repair_log_cuts_a_torn_tail(our_store: Path) -> None:
    path, byte, offset, frame = records(our_store)[-1]
    patch(path, byte + len(frame) - 30, bytes(30))
    shutil.rmtree(our_store / "reput" / "commitlog")
    assert bad_codes(our_store) >= {"LOG_TORN_TAIL"}

    assert fsck(our_store, "--repair") == FOUND  # queues are repaired, the tail is the log's
    assert bad_codes(our_store) == {"LOG_TORN_TAIL"}
    assert fsck(our_store, "--repair-log", "--yes") == REPAIRED

    assert audit(our_store).log.end_offset == offset
    assert not any(path.read_bytes()[byte:])


def test_repair_log_closes_a_gap_of_files(copy_of_engine_crc_store: Path) -> None:
    (copy_of_engine_crc_store / "commitlog" / f"{262144:020d}").unlink()

    assert fsck(copy_of_engine_crc_store, "--repair-log", "--yes") == REPAIRED

    assert audit(copy_of_engine_crc_store).log.end_offset == 262144
    assert set(part(copy_of_engine_crc_store, "reput/fsck/1/commitlog")) == {f"{2 * 262144:020d}"}


def test_a_log_that_was_flushed_further_is_accepted_after_repair_log(our_store: Path) -> None:
    path, byte, offset, frame = records(our_store)[-1]
    patch(path, byte, bytes(len(frame)))
    assert "LOG_SHORTER_THAN_FLUSHED" in bad_codes(our_store)

    assert fsck(our_store, "--repair-log", "--yes") == REPAIRED

    with open_log(our_store) as log:
        assert log.status.end_offset == offset


def test_a_queue_of_retired_records_keeps_its_end_and_gets_fillers_for_what_is_wrong(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for topic, count in (("old", 100), ("new", 300)):
            for number in range(count):
                append(log, new_message(b"%d" % number * 100, topic=topic, queue_id=0), sync=False)
    assert fsck(tmp_path, "--repair") == REPAIRED
    for path in sorted((tmp_path / "commitlog").iterdir())[:-3]:
        path.unlink()
    shutil.rmtree(tmp_path / "reput" / "commitlog")
    found = audit(tmp_path)
    assert found.findings.is_clean
    assert found.queues_with_records == {("new", 0)}
    last = max((tmp_path / "consumequeue" / "old" / "0").iterdir())  # the one before expires
    data = last.read_bytes()
    patch(last, 40, b"\x7f" * 20)
    patch(last, 100, bytes(20))
    assert "QUEUE_SURPLUS_UNITS" in bad_codes(tmp_path)

    assert fsck(tmp_path, "--repair") == REPAIRED

    filler = encode_queue_unit(FILLER)
    assert last.read_bytes() == data[:40] + filler + data[60:100] + filler + data[120:]
    with open_log(tmp_path) as log:
        assert append(log, new_message(b"next", topic="old", queue_id=0))[0].queue_offset == 100


def test_repair_log_needs_a_yes_where_nobody_can_be_asked(copy_of_engine_crc_store: Path) -> None:
    flip(*records(copy_of_engine_crc_store)[100][:2])
    before = file_bytes(copy_of_engine_crc_store)

    finished = run_command("fsck", str(copy_of_engine_crc_store), "--repair-log")

    assert finished.returncode == USAGE
    assert "--yes" in finished.stderr
    assert file_bytes(copy_of_engine_crc_store) == before


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", REPAIRED), (b"n\n", FOUND)])
def test_repair_log_asks_on_a_terminal_and_shows_a_bar_there(
    answer: bytes, code: int, copy_of_engine_crc_store: Path
) -> None:
    flip(*records(copy_of_engine_crc_store)[100][:2])
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli.main", "fsck", str(copy_of_engine_crc_store), "--repair-log"]
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    try:
        while b"[y/N]" not in shown:
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 4096)
        os.write(ours, answer)
        assert process.wait(60) == code
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"399 whole records behind it are lost" in shown
    assert b"log" in shown


def test_a_no_leaves_the_log(copy_of_engine_crc_store: Path) -> None:
    flip(*records(copy_of_engine_crc_store)[100][:2])
    log = part(copy_of_engine_crc_store, "commitlog")
    asked = []

    def say_no(question: str) -> bool:
        asked.append(question)
        return False

    found, report = Repairer(RealFileSystem(), copy_of_engine_crc_store, lambda done, total: None).run(say_no)

    assert not found.findings.is_clean
    assert not report.has_repaired
    assert "399 whole records behind it are lost" in asked[0]
    assert part(copy_of_engine_crc_store, "commitlog") == log


def test_rmq_678_a_checkpoint_ahead_of_the_log_is_set_back(copy_of_broker_store: Path) -> None:
    path = copy_of_broker_store / "checkpoint"
    was = decode_checkpoint(path.read_bytes())
    path.write_bytes(encode_checkpoint(StoreCheckpoint(was.physic_msg_timestamp + 10**9, was.logics_msg_timestamp, 7)))
    assert find(copy_of_broker_store, "CHECKPOINT_AHEAD").byte == 0

    assert fsck(copy_of_broker_store, "--repair") == REPAIRED

    now = decode_checkpoint(path.read_bytes())
    assert was.physic_msg_timestamp <= now.physic_msg_timestamp < was.physic_msg_timestamp + 10**6
    assert now.index_msg_timestamp == 7


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("commitlog/snapshot.json", {"commit_log_offset": 10**9}, "STATE_AHEAD"),
        ("commitlog/snapshot.json", {"last_record_crc": 1}, "STATE_WRONG"),
        ("commitlog/snapshot.json", {"queue_offsets": {}}, "STATE_WRONG"),
        ("consumequeue/checkpoint.json", {"next_offset": 10**9}, "STATE_AHEAD"),
        ("consumequeue/checkpoint.json", {"next_offset": 5}, "STATE_WRONG"),
        ("consumequeue/checkpoint.json", {"queues": {}}, "STATE_WRONG"),
        ("consumequeue/checkpoint.json", {"queues": 5}, "STATE_DAMAGED"),
        ("index/checkpoint.json", {"next_offset": 10**9}, "STATE_AHEAD"),
        ("index/checkpoint.json", {"next_offset": 5}, "STATE_WRONG"),
        ("index/checkpoint.json", {"header": [1, 2, 3, 4, 5, 6]}, "STATE_WRONG"),
        ("index/checkpoint.json", {"files": ["20200101000000000"]}, "STATE_WRONG"),
        ("index/checkpoint.json", None, "STATE_DAMAGED"),
        ("commitlog/durable", None, "STATE_DAMAGED"),
    ],
)
def test_our_own_state_is_compared_with_the_log(
    name: str, change: dict[str, Any] | None, code: str, our_store: Path
) -> None:
    path = our_store / "reput" / name
    if change is None:
        path.write_bytes(b"\xff" * 12)
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    queues, index = part(our_store, "consumequeue"), index_contents(our_store)

    assert find(our_store, code).file == f"reput/{name}"
    assert fsck(our_store, "--repair") == REPAIRED

    assert (part(our_store, "consumequeue"), index_contents(our_store)) == (queues, index)
    assert (our_store / "reput" / "fsck" / "1" / "reput" / name).exists()


def test_builders_that_are_behind_the_log_are_no_finding(our_store: Path) -> None:
    with open_log(our_store) as log:
        append(log, new_message(b"one more", topic="t0", keys=["late"]), new_message(b"new", topic="t9"))

    found = audit(our_store).findings

    assert found.is_clean, found.kept
    assert found.counts["QUEUE_BEHIND_LOG"] == 2
    assert found.counts["INDEX_BEHIND_LOG"] == 3


class _StopsAfter(RealFileSystem):
    """A disk that refuses every change after so many: the process is as good as dead from there on."""

    def __init__(self, change_count: int) -> None:
        self.left = change_count

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise FlushFailedError("the process ends here")

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._count()
        super().pwrite(fd, data, position)

    def rename(self, source: str | Path, target: str | Path) -> None:
        self._count()
        super().rename(source, target)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        self._count()
        super().ftruncate(fd, size_bytes)

    def unlink(self, path: str | Path) -> None:
        self._count()
        super().unlink(path)


@pytest.mark.parametrize("step", [11, pytest.param(5, marks=pytest.mark.long)])
def test_a_repair_that_ends_anywhere_in_the_middle_can_be_done_again(
    engine_crc_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setenv("REPUT_INDEX_HASH_SLOT_COUNT", "33")  # the store's own division must not get lost on the way
    expected: dict[str, bytes] | None = None
    stop = 0
    while True:
        root = tmp_path / str(stop)
        shutil.copytree(engine_crc_store, root)
        for path in root.rglob("*"):
            if path.is_file():
                path.chmod(0o644)
        path, byte, offset, _ = records(root)[300]
        flip(path, byte + 60)
        _wreck_index(root)
        pristine = file_bytes(root)
        ended = True
        try:
            Repairer(_StopsAfter(stop), root, lambda done, total: None).run(lambda question: True)
        except FlushFailedError:
            ended = False
            assert (root / "abort").exists() or not audit(root).findings.is_clean
        assert fsck(root, "--repair-log", "--yes") in (CLEAN, REPAIRED)
        found = audit(root)
        assert found.findings.is_clean
        assert found.log.end_offset == offset
        tree = part(root, "commitlog") | part(root, "consumequeue") | dict(enumerate(index_contents(root)))
        expected = expected or tree
        assert tree == expected
        behind = pristine[f"commitlog/{path.name}"][byte:].rstrip(b"\0")
        kept = [copy.read_bytes() for copy in (root / "reput" / "fsck").rglob(f"{path.name}.from.*")]
        assert behind in kept
        shutil.rmtree(root)
        if ended:
            break
        stop += step if stop > 6 else 1
    assert stop > 10


class _CannotGrow(RealFileSystem):
    """A disk that refuses to give a file its length."""

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        raise FlushFailedError("the process ends here")


def test_a_repair_that_left_one_empty_queue_file_made_all_others_of_the_default_size(
    copy_of_engine_crc_store: Path,
) -> None:
    root = copy_of_engine_crc_store
    sizes = {len(data) for data in part(root, "consumequeue").values()}
    path, byte, _, _ = records(root)[300]
    flip(path, byte + 60)
    with pytest.raises(FlushFailedError):
        Repairer(_CannotGrow(), root, lambda done, total: None).run(lambda question: True)
    assert {len(data) for data in part(root, "consumequeue").values()} == {0}

    assert fsck(root, "--repair-log", "--yes") == REPAIRED

    assert {len(data) for data in part(root, "consumequeue").values()} == sizes


LAST_RECORD, LOG_END, LAST_FILE = 2490708, 2491130, 2097152
CRASHES: dict[str, tuple[Callable[[Path], None], set[str], int]] = {
    "as_is": (lambda root: None, set(), LOG_END),
    "torn_last_record": (
        lambda root: patch(root / "commitlog" / f"{LAST_FILE:020d}", LOG_END - 37 - LAST_FILE, bytes(37)),
        {"LOG_TORN_TAIL", "QUEUE_SURPLUS_UNITS", "INDEX_SURPLUS_ENTRIES"},
        LAST_RECORD,
    ),
    "flipped_body_byte": (
        lambda root: flip(root / "commitlog" / f"{LAST_FILE:020d}", LAST_RECORD + 100 - LAST_FILE),
        {"LOG_TORN_TAIL", "QUEUE_SURPLUS_UNITS", "INDEX_SURPLUS_ENTRIES"},
        LAST_RECORD,
    ),
    "garbage_tail": (
        lambda root: patch(root / "commitlog" / f"{LAST_FILE:020d}", LOG_END - LAST_FILE, bytes(range(1, 200))),
        {"LOG_TORN_TAIL"},
        LOG_END,
    ),
    "no_consumequeue": (lambda root: shutil.rmtree(root / "consumequeue"), {"QUEUE_MISSING_UNITS"}, LOG_END),
    "no_index": (lambda root: shutil.rmtree(root / "index"), {"INDEX_MISSING_KEYS"}, LOG_END),
    "no_checkpoint": (lambda root: (root / "checkpoint").unlink(), set(), LOG_END),
}


@pytest.mark.parametrize("case", CRASHES)
def test_what_a_crash_of_rocketmq_leaves_is_named_and_mended(case: str, copy_of_crashed_store: Path) -> None:
    damage, codes, end_offset = CRASHES[case]
    damage(copy_of_crashed_store)

    assert bad_codes(copy_of_crashed_store) - {"CHECKPOINT_AHEAD"} == codes
    assert fsck(copy_of_crashed_store, "--repair-log", "--yes") == (REPAIRED if codes else CLEAN)

    found = audit(copy_of_crashed_store)
    assert found.findings.is_clean
    assert found.log.end_offset == end_offset
    assert found.unit_count == found.log.record_count == 2784 - (end_offset == LAST_RECORD)
    if end_offset == LOG_END:
        assert found.key_count == found.entry_count == 6249


PLANTED = {
    "abort as a directory": lambda root: (root / "abort").mkdir(),
    "a name that is not UTF-8": lambda root: os.mkdir(bytes(root) + b"/consumequeue/\xff\xfe"),
    "a file among the topics": lambda root: (root / "consumequeue" / "stray").write_bytes(b"x"),
    "a queue id of 200 digits": lambda root: (root / "consumequeue" / "t0" / ("9" * 200)).mkdir(),
    "a file with a queue's number": lambda root: (root / "consumequeue" / "t0" / "77").write_bytes(b"x"),
    "a directory with a queue file's name": lambda root: (
        root / "consumequeue" / "t0" / "0" / "00000000000000128000"
    ).mkdir(),
    "a queue file beyond all offsets": lambda root: (root / "consumequeue" / "t0" / "0" / ("9" * 20)).write_bytes(b"x"),
    "a directory with an index file's name": lambda root: (root / "index" / "20300101000000000").mkdir(),
    "a file among the indexes": lambda root: (root / "index" / "stray").write_bytes(b"x"),
    "a directory with a log file's name": lambda root: (root / "commitlog" / "00000000000999999488").mkdir(),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_somebody_planted_is_told_and_the_rest_is_checked(
    made_by_us: Path, tmp_path: Path, capsys: Capture, planted: str
) -> None:
    root = tmp_path / "store"
    shutil.copytree(made_by_us, root)
    PLANTED[planted](root)

    code, found = fsck_json(capsys, root)

    assert code in (CLEAN, FOUND)
    assert found["log"]["record_count"] == 300
    assert found["queues"]["wrong_count"] == 0
    assert found["findings"], "nothing is told"
    assert fsck(root) == code
