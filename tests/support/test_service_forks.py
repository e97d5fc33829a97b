"""What `Service` and `Stack` fork ends as an interpreter would, says why, and never outlives the tests."""

import functools
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.support.processes import wait_until_gone
from tests.support.service import Service
from tests.support.service_forks import ServiceFork
from tests.support.stack import Stack, running_stack

ASKS = """
import pathlib, signal, sys
from tests.support.service import Service
service = Service("commitlog", pathlib.Path(sys.argv[1]))
print(service.pid, flush=True)
signal.pause()
"""


def test_a_forked_service_ends_with_the_code_of_its_end(tmp_path: pathlib.Path) -> None:
    with Service("commitlog", tmp_path / "store") as service:
        assert isinstance(service.process, ServiceFork)
        assert service.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            service.process.wait(0)
        assert service.stop() == 0
        assert service.process.returncode == 0
    with Service("commitlog", tmp_path / "store") as service:
        service.kill()
        assert service.process.returncode == -signal.SIGKILL


def test_a_forked_service_prints_into_its_own_log(tmp_path: pathlib.Path) -> None:
    with (
        Service("index", tmp_path / "store", {"REPUT_INDEX_NO_SUCH": "1"}, wait="") as wrong,
        Service("commitlog", tmp_path / "store") as right,
    ):
        assert wrong.process.wait(60) == 2
        assert "REPUT_INDEX_NO_SUCH" in wrong.log()
        assert "REPUT_INDEX_NO_SUCH" not in right.log()
        assert '"service": "commitlog"' in right.log()


def test_a_forked_service_is_named_as_its_interpreter_would_be(tmp_path: pathlib.Path) -> None:
    with Service("commitlog", tmp_path / "store") as service:
        proc = pathlib.Path(f"/proc/{service.pid}")
        assert (proc / "cwd").readlink() == pathlib.Path.cwd()
        assert (proc / "cmdline").read_bytes().split(b"\0")[:4] == [
            *(sys.executable.encode(), b"-P", b"-m", b"commitlog_svc"),
        ]
        assert {(proc / "fd" / number).readlink() for number in "12"} == {service.log_path}


def test_forked_services_end_when_the_process_that_asked_for_them_is_killed(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", ASKS, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=pathlib.Path(__file__).parents[2]) as asking:
        try:
            assert asking.stdout is not None
            pid = int(asking.stdout.readline())
            os.kill(pid, 0)
        finally:
            asking.kill()
    wait_until_gone([pid])


def seen_of(pid: int) -> dict[str, object]:
    """What a process shows of itself."""
    proc = pathlib.Path(f"/proc/{pid}")
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return {
        "words": (proc / "cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
        "group and session": fields[2:4],
        "nice": fields[16],
        "directory": os.readlink(proc / "cwd"),
        "standard streams": [os.readlink(proc / "fd" / number) for number in "012"],
        "limits": (proc / "limits").read_text(),
        **{name: status[name] for name in ("Umask", "SigBlk", "SigIgn", "SigCgt")},
    }


def seen_of_all(stack: Stack) -> dict[str, str]:
    """The same for the processes of a stack, without the names of its files."""
    pids = {"reput serve": stack.process.pid, **stack.children()}
    names = {str(stack.store): "STORE", str(stack.log_path.parent): "SCRATCH"}
    found = {name: repr(seen_of(pid)) for name, pid in pids.items()}
    return {
        name: functools.reduce(lambda text, each: text.replace(*each), names.items(), seen)
        for name, seen in found.items()
    }


def test_a_forked_stack_looks_like_one_that_a_user_starts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"REPUT_UMASK": "0077"}
    with running_stack(tmp_path / "store", settings=settings) as forked:
        assert isinstance(forked.process, ServiceFork)
        monkeypatch.setattr(Stack, "is_forked", False)
        with running_stack(tmp_path / "other", settings=settings) as started:
            assert isinstance(started.process, subprocess.Popen)
            forks, interpreters = (len(os.listdir(f"/proc/{each.process.pid}/fd")) for each in (forked, started))
            assert forks == interpreters
            assert seen_of_all(forked) == seen_of_all(started)
        assert started.process.returncode == 0
    assert forked.process.returncode == 0


def test_a_forked_stack_says_why_it_cannot_start_and_ends_with_that_code(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 2.*No such option: --no-such-flag"):
        Stack(tmp_path / "store", "--no-such-flag")
    with pytest.raises(RuntimeError, match=r"(?s)ended with 2.*REPUT_INDEX_NO_SUCH"):
        Stack(tmp_path / "store", settings={"REPUT_INDEX_NO_SUCH": "1"})


def test_the_services_of_a_forked_stack_end_when_it_is_killed(tmp_path: pathlib.Path) -> None:
    with running_stack(tmp_path / "store") as stack:
        pids = stack.children().values()
        os.kill(stack.process.pid, signal.SIGKILL)
        assert stack.process.wait() == -signal.SIGKILL
    wait_until_gone(pids)
