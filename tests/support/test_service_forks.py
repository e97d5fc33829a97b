"""What `Service` forks ends as an interpreter would, says why, and never outlives the tests."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.support.processes import wait_until_gone
from tests.support.service import Service
from tests.support.service_forks import ServiceFork

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
