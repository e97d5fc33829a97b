"""Which followers the log keeps its records for: expected ones, registered ones, and what is refused."""

import errno
from pathlib import Path

import pytest

from commitlog_svc.reput.followers import FOLLOWER_COUNT_MAX, FollowerRegistry, parse_names
from commitlog_svc.servicer import CommitLogServicer
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import (
    DiskFullError,
    FollowerNotFoundError,
    InvalidArgumentError,
    StoreCorruptedError,
    StoreError,
    StoreRecoveringError,
)
from store.files.file_system import FileSystem, RealFileSystem
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.support.faulty_file_system import FaultyFileSystem

EXPECTED = ("consumequeue", "index")
HOSTILE_NAMES = [
    "",
    "..",
    "../../etc/passwd",
    "Index",
    "1st",
    "a b",
    "a\n",
    "a\x00",
    "index\u0130",
    "a" * 64,
    "%s",
    "-",
]


def registry(directory: Path, fs: FileSystem | None = None, *, read_only: bool = False) -> FollowerRegistry:
    found = FollowerRegistry(fs or RealFileSystem(), directory, EXPECTED, read_only=read_only)
    found.load()
    return found


def test_a_follower_holds_the_log_until_it_reports_and_one_that_is_switched_off_does_not(tmp_path: Path) -> None:
    followers = registry(tmp_path)
    assert {"consumequeue": 0, "index": 0} == followers.needed_offsets()

    followers.report("index", -1, 0, 500)
    followers.report("consumequeue", 300, 1234, 500)

    assert {"consumequeue": 300} == followers.needed_offsets()
    assert [("consumequeue", 300), ("index", -1)] == [(one.name, one.next_offset) for one in followers.all()]
    for next_offset in (-2, 501):
        with pytest.raises(InvalidArgumentError):
            followers.report("index", next_offset, 0, 500)


def test_another_follower_is_registered_by_its_first_report_and_known_after_a_restart(tmp_path: Path) -> None:
    followers = registry(tmp_path)
    assert not list(tmp_path.iterdir())
    followers.report("schedule", 70, 0, 500)
    assert followers.needed_offsets()["schedule"] == 70

    again = registry(tmp_path)

    assert again.needed_offsets() == {"consumequeue": 0, "index": 0, "schedule": 0}
    assert [one.name for one in again.all() if not one.is_expected] == ["schedule"]


def test_one_that_is_removed_holds_the_log_no_longer_neither_after_a_restart(tmp_path: Path) -> None:
    followers = registry(tmp_path)
    for name in ("schedule", "audit"):
        followers.report(name, 70, 0, 500)

    followers.remove("schedule")

    for one in (followers, registry(tmp_path)):
        assert sorted(one.needed_offsets()) == ["audit", "consumequeue", "index"]
    followers.report("schedule", 80, 0, 500)
    assert followers.needed_offsets()["schedule"] == 80


def test_what_is_expected_or_unknown_cannot_be_removed(tmp_path: Path) -> None:
    followers = registry(tmp_path)

    with pytest.raises(InvalidArgumentError, match="setting `followers`"):
        followers.remove("index")
    with pytest.raises(FollowerNotFoundError, match="consumequeue, index"):
        followers.remove("nobody")
    assert sorted(followers.needed_offsets()) == ["consumequeue", "index"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_is_none_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    followers = registry(tmp_path)

    with pytest.raises(InvalidArgumentError, match="not a follower's name"):
        followers.report(name, 0, 0, 500)
    assert len(followers.all()) == 2
    assert not list(tmp_path.iterdir())


def test_a_caller_that_invents_names_comes_to_an_end(tmp_path: Path) -> None:
    followers = registry(tmp_path)
    for number in range(FOLLOWER_COUNT_MAX - len(EXPECTED)):
        followers.report(f"follower-{number}", 0, 0, 500)

    with pytest.raises(InvalidArgumentError, match="the most"):
        followers.report("one-more", 0, 0, 500)
    followers.report("follower-0", 1, 0, 500)
    assert len(registry(tmp_path).all()) == FOLLOWER_COUNT_MAX


def test_before_the_file_is_read_only_expected_ones_may_report(tmp_path: Path) -> None:
    followers = FollowerRegistry(RealFileSystem(), tmp_path, EXPECTED)
    followers.report("index", -1, 0, 0)

    with pytest.raises(StoreRecoveringError):
        followers.report("schedule", 0, 0, 0)
    with pytest.raises(StoreRecoveringError):
        followers.remove("schedule")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"registered":"x"}', b'{"registered":[7]}', b'{"registered":["../x"]}']
)
def test_a_damaged_file_is_refused_and_named(tmp_path: Path, content: bytes) -> None:
    """To guess would let retention remove what a forgotten follower still needs."""
    (tmp_path / "followers.json").write_bytes(content)

    with pytest.raises(StoreCorruptedError, match=r"followers\.json is damaged"):
        registry(tmp_path)
    assert [one.name for one in registry(tmp_path, read_only=True).all()] == ["consumequeue", "index"]


def test_a_name_that_finds_no_room_on_the_disk_is_not_registered(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    followers = registry(tmp_path, disk)
    followers.report("audit", 1, 0, 500)
    disk.fail("pwrite", errno.ENOSPC, path="followers.json")

    with pytest.raises(DiskFullError):
        followers.report("schedule", 1, 0, 500)
    assert "schedule" not in followers.needed_offsets()
    assert "schedule" not in registry(tmp_path).needed_offsets()
    disk.fail("pwrite", errno.ENOSPC, path="followers.json")
    with pytest.raises(StoreError):
        followers.remove("audit")
    assert followers.needed_offsets()["audit"] == 1


def test_a_read_only_log_takes_reports_and_writes_nothing(tmp_path: Path) -> None:
    followers = registry(tmp_path, read_only=True)
    followers.report("schedule", 70, 0, 500)

    assert followers.needed_offsets()["schedule"] == 70
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "names"), [("", []), (" a , b,", ["a", "b"]), ("schedule", ["schedule"])])
def test_the_setting_names_the_expected_ones(tmp_path: Path, text: str, names: list[str]) -> None:
    assert parse_names(text) == names
    assert list(CommitLogSettings(store=tmp_path, followers=text).follower_names) == names


@pytest.mark.parametrize("text", ["a,a", "../x", ",".join(f"f{number}" for number in range(FOLLOWER_COUNT_MAX + 1))])
def test_a_setting_that_names_none_or_too_many_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="follower"):
        CommitLogSettings(store=tmp_path, followers=text)


def test_the_status_lists_all_followers_and_a_removal_takes_one_out(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        [receipt] = append(log, new_message(b"x"))
        service = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
        for name, next_offset in (("index", 0), ("schedule", receipt.end_offset)):
            request = pb.ReportProgressRequest(builder=name, next_offset=next_offset)
            service.ReportProgress(request, None)  # type: ignore[arg-type]  # no context is needed
        status = service.GetStatus(pb.GetStatusRequest(), None)  # type: ignore[arg-type]  # no context is needed
        assert [(one.name, one.expected, one.HasField("next_offset")) for one in status.followers] == [
            ("consumequeue", True, False),
            ("index", True, True),
            ("schedule", False, True),
        ]
        assert status.followers[2].next_offset == receipt.end_offset == status.confirm_offset
        assert status.builder_next_offsets == {"index": 0}, "RocketMQ's two builders alone"

        service.RemoveFollower(pb.RemoveFollowerRequest(name="schedule"), None)  # type: ignore[arg-type]  # as above

        status = service.GetStatus(pb.GetStatusRequest(), None)  # type: ignore[arg-type]  # no context is needed
        assert [one.name for one in status.followers] == ["consumequeue", "index"]


def test_a_log_with_a_damaged_registry_does_not_open_and_holds_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.followers.report("schedule", 0, 0, 0)
    path = tmp_path / "reput" / "commitlog" / "followers.json"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(StoreCorruptedError):
        make_log(tmp_path).recover()
    path.unlink()
    with open_log(tmp_path) as log:
        assert [one.name for one in log.followers.all()] == ["consumequeue", "index"]
