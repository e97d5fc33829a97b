"""What a person sees while the log is being recovered."""

import io
import os
import pathlib
import pty
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from deploy.progress import LINE_SECONDS, SHOW_AFTER_SECONDS, RecoveryDisplay
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from tests.support.service import ROOT, Service
from tests.support.stack import NO_REMOTING


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def recovery(done: int) -> SimpleNamespace:
    return SimpleNamespace(begin_offset=1000, next_offset=1000 + done, end_offset=2000)


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    lines: list[str] = []
    clock = Clock()
    with RecoveryDisplay(lines.append, io.StringIO(), clock) as display:
        for done in (0, 250, 251, 500):
            clock.now += LINE_SECONDS / 2
            display.update(recovery(done))

    assert lines == [
        "recovering the log: 25 % (250 of 1,000 bytes, about 15 s left)",
        "recovering the log: 50 % (500 of 1,000 bytes, about 10 s left)",
    ]


def test_a_recovery_that_is_over_at_once_is_not_looked_at() -> None:
    clock = Clock()
    display = RecoveryDisplay(lambda line: None, io.StringIO(), clock)
    clock.now += SHOW_AFTER_SECONDS / 2
    assert not display.wants_update()
    clock.now += SHOW_AFTER_SECONDS
    assert display.wants_update()
    display.update(recovery(1))
    assert not display.wants_update()


@pytest.mark.parametrize("begin_next_end", [(0, 0, 0), (5, 3, 4), (0, 9, 5)])
def test_numbers_that_make_no_sense_do_not_matter(begin_next_end: tuple[int, int, int]) -> None:
    begin, following, end = begin_next_end
    lines: list[str] = []
    clock = Clock()
    with RecoveryDisplay(lines.append, io.StringIO(), clock) as display:
        clock.now += LINE_SECONDS + 1
        display.update(SimpleNamespace(begin_offset=begin, next_offset=following, end_offset=end))

    assert all("100 %" in line for line in lines)


def test_a_terminal_gets_a_bar() -> None:
    leader, follower = pty.openpty()
    with open(follower, "w", encoding="utf-8") as terminal:
        lines: list[str] = []
        with RecoveryDisplay(lines.append, terminal, Clock()) as display:
            display.update(recovery(250))
            display.update(recovery(500))
            # The bar comes in several writes, and a read gives what one of them left there.
            shown = ""
            while not ("recovering the log" in shown and "━" in shown):
                assert select.select([leader], [], [], 30)[0], f"the bar never came, only {shown!r}"
                shown += os.read(leader, 65536).decode(errors="replace")
    os.close(leader)

    assert lines == []


# The walk, in plain Python, stops at its tenth record until the test has seen its progress.
HELD_RECOVERY = """
import pathlib, time
from store.walk.checks import FullCheck
real, taken = FullCheck.take, []
def held(*arguments):
    taken.append("commitlog_svc" in pathlib.Path("/proc/self/cmdline").read_text())
    deadline = time.monotonic() + 60
    while len(taken) > 10 and taken[-1] and not pathlib.Path({go_on!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return real(*arguments)
FullCheck.take = held
"""


def test_a_real_recovery_of_a_stack_is_shown_on_a_terminal(tmp_path: pathlib.Path) -> None:
    """The whole way: a store to walk, a walk that is held, `reput serve` on a terminal."""
    store = tmp_path / "store"
    with Service("commitlog", store, {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576"}) as service:
        request = pb.AppendMessagesRequest()
        for number in range(1000):
            request.messages.add(topic="orders", body=b"%d" % number)
        service.stub.AppendMessages(request, timeout=30)
        service.stub.AppendMessages(pb.AppendMessagesRequest(messages=request.messages[:1], flush=2), timeout=30)
        service.kill()
    (store / "reput" / "commitlog" / "snapshot.json").unlink(missing_ok=True)
    site = tmp_path / "site"
    site.mkdir()
    go_on = tmp_path / "go-on"
    # Only the commitlog's process is held, a fork of this one.
    held = "import sys\nif 'cli.serving' in sys.orig_argv:\n" + "".join(
        f"    {line}\n" for line in HELD_RECOVERY.format(go_on=str(go_on)).strip().splitlines()
    )
    (site / "sitecustomize.py").write_text(held)
    leader, follower = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")} | NO_REMOTING
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "serve", "--store", str(store), "--gateway-port", "0", "--console-port", "0"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower,
        env={**inherited, "REPUT_KERNELS": "off", "PYTHONPATH": os.pathsep.join((str(site), str(ROOT), str(ROOT / "protos")))},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    deadline = time.monotonic() + 60
    try:
        while b"reput: serving" not in shown:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            shown += os.read(leader, 65536)
            if b"recovering the log" in shown and "━".encode() in shown:
                go_on.touch()
    finally:
        process.terminate()
        process.wait(30)
        os.close(leader)

    assert b"recovering the log" in shown
    assert "━".encode() in shown
