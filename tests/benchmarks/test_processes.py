"""Processes are measured and ended by their ids."""

import pathlib
import subprocess
import sys

import pytest

from benchmarks import processes

SLEEPER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"


def test_a_family_has_children_and_their_memory() -> None:
    started = subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE)
    with processes.ended(started) as process:
        processes.wait_for(lambda: len(processes.family(process.pid)) == 2, "the child", 20)
        pids = processes.family(process.pid)
        assert pids[0] == process.pid
        both, parent = processes.memory_mib(pids), processes.memory_mib(pids[:1])
        assert both > parent > 1
        assert processes.memory_mib(pids, "Pss") <= both
        assert process.stdin is not None
        process.stdin.close()
    processes.wait_for(lambda: not processes.living(pids), "the end", 20)
    assert started.returncode is not None
    assert processes.memory_mib(pids) == 0


def test_a_failed_command_says_what_it_printed() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3:.*the reason"):
        processes.run([sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)"], 30)


def test_a_command_that_takes_too_long_is_gone(tmp_path: pathlib.Path) -> None:
    note = tmp_path / "pid"
    script = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(RuntimeError, match="took more than"):
        processes.run([sys.executable, "-c", script], 1.0)
    if note.exists():
        assert not processes.living([int(note.read_text())])
