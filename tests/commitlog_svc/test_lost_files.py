"""A log file that loses its name or its directory under the open log: nothing in it is acknowledged any more."""

import os
import shutil
from pathlib import Path

import grpc
import pytest

from commitlog_svc import commit_log
from commitlog_svc.commit_log import CommitLog
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import FLUSH_MODE_SYNC
from services.status import from_rpc_error
from store.errors import LogFileLostError, StoreCorruptedError, StoreError
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.support.stack import running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


def active_file(root: Path) -> Path:
    """The file that holds the end of the log; a next one may have been made ahead."""
    return sorted((root / "commitlog").iterdir())[0]


def unlinked(root: Path) -> None:
    active_file(root).unlink()


def moved(root: Path) -> None:
    active_file(root).rename(root / "elsewhere")


def replaced_by_a_copy(root: Path) -> None:
    copy = root / "copy"
    shutil.copyfile(active_file(root), copy)
    copy.replace(active_file(root))


def directory_moved(root: Path) -> None:
    (root / "commitlog").rename(root / "commitlog.old")


def directory_removed(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def root_moved(root: Path) -> None:
    root.rename(root.with_name("another name"))


LOSSES = [unlinked, moved, replaced_by_a_copy, directory_moved, directory_removed, root_moved]


@pytest.mark.parametrize("lose", LOSSES)
def test_no_sync_append_is_acknowledged_once_its_file_is_lost(tmp_path: Path, lose) -> None:
    root = tmp_path / "s"
    fenced: list[StoreError] = []
    log = make_log(root, on_fenced=fenced.append)
    log.recover()
    append(log, new_message(b"kept"))

    lose(root)

    for _ in range(3):
        with pytest.raises(LogFileLostError, match="put the file or its directory back") as lost:
            append(log, new_message(b"nowhere"))
        assert lost.value.metadata["file"].startswith(str(root / "commitlog"))
    assert (log.status.state, [type(error) for error in fenced]) == ("fenced", [LogFileLostError])
    log.close()


def lost_of(log: CommitLog) -> None:
    wait_until(lambda: log.status.state == "fenced", "the log to be fenced")
    assert "was removed or moved" in log.status.problem


@pytest.mark.parametrize("lose", LOSSES)
def test_a_log_that_nobody_writes_to_notices_it_by_itself(tmp_path: Path, monkeypatch, lose) -> None:
    monkeypatch.setattr(commit_log, "FILES_SECONDS", 0.05)
    log = make_log(tmp_path / "s")
    log.recover()
    append(log, new_message())

    lose(tmp_path / "s")

    lost_of(log)
    log.close()


def test_a_file_that_is_full_is_missed_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(commit_log, "FILES_SECONDS", 0.05)
    log = make_log(tmp_path / "s")
    log.recover()
    for _ in range(40):
        append(log, new_message(bytes(1000)))
    assert log.status.file_count > 2

    active_file(tmp_path / "s").unlink()

    lost_of(log)
    log.close()


def test_files_that_retention_removes_are_not_lost(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(commit_log, "FILES_SECONDS", 0.0)
    with open_log(
        tmp_path / "s",
        file_reserved_seconds=1,
        delete_when_hours=";".join(f"{hour:02d}" for hour in range(24)),
        delete_files_interval_millis=0,
        clean_resource_interval_millis=0,
        followers="",
    ) as log:
        for _ in range(80):
            append(log, new_message(bytes(1000)))
        wait_until(lambda: log.status.first_offset > 0, "retention")
        append(log, new_message())
        assert log.status.state == "serving"


def test_the_restart_after_a_lost_file_names_it_and_serves_no_shorter_log(tmp_path: Path) -> None:
    """What was acknowledged must not be missing without a word."""
    root = tmp_path / "s"
    log = make_log(root)
    log.recover()
    for _ in range(40):
        append(log, new_message(bytes(1000)))
    last = Path(log.opened.appends.appender._file(log.status.end_offset).path)
    last.unlink()
    with pytest.raises(LogFileLostError):
        append(log, new_message())
    log.close()

    again = make_log(root)
    with pytest.raises(StoreCorruptedError) as refused:
        again.recover()
    assert last.name in refused.value.message


def test_a_file_that_was_put_back_is_the_log_again(tmp_path: Path) -> None:
    root = tmp_path / "s"
    log = make_log(root)
    log.recover()
    receipt = append(log, new_message(b"kept"))[0]
    file = active_file(root)
    os.rename(file, root / "aside")
    with pytest.raises(LogFileLostError):
        append(log, new_message(b"unknown"))
    log.close()

    os.rename(root / "aside", file)

    with open_log(root) as restarted:
        assert restarted.opened.reads.get(receipt.commit_log_offset).body == b"kept"
        append(restarted, new_message())


def test_the_real_service_answers_with_the_reason_and_ends_with_the_code_of_a_fence(tmp_path: Path) -> None:
    with running_stack(tmp_path / "s", "--single-process") as stack:
        request = pb.AppendMessagesRequest(messages=[new_message()], flush=FLUSH_MODE_SYNC)
        stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        active_file(tmp_path / "s").unlink()

        with pytest.raises(grpc.RpcError) as refused:
            stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)

        assert isinstance(from_rpc_error(refused.value), LogFileLostError)
        assert stack.process.wait(WAIT_SECONDS_MAX) == 3
        assert '"event": "log.fenced"' in stack.log()
