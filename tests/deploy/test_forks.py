"""Services as forks of the process that has imported them: what `python -m` gives a service, a fork has as well."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.services.test_light_imports import NOT_NEEDED, ROOT, SERVICES

FORK = """
import os, signal, subprocess, sys, threading
from deploy import forks
def fork(run, *words, **environ):
    return forks.fork(run, ["python", "-m", *words], environ)
"""


def printed_by(code: str) -> str:
    """Standard output and errors of a process of its own: one with the threads of a test must not fork."""
    return subprocess.run(
        [sys.executable, "-P", "-c", FORK + code],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protos'}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("run", "code"),
    [("None", 0), ("sys.exit(7)", 7), ("sys.exit('words')", 1), ("1 / 0", 1), ("os.kill(os.getpid(), 9)", -9)],
)
def test_a_fork_ends_with_the_code_of_what_it_ran(run: str, code: int) -> None:
    said = printed_by(f"print('code', fork(lambda: {run}).wait(30))")

    assert said.splitlines()[-1] == f"code {code}"
    assert ("ZeroDivisionError" in said) == (run == "1 / 0")


def test_a_fork_has_no_signal_handler_and_no_descriptor_of_its_parent() -> None:
    said = printed_by("""
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
signal.signal(signal.SIGCHLD, lambda *_: None)
pipe = os.pipe()
os.set_blocking(pipe[1], False)
signal.set_wakeup_fd(pipe[1])
def run():
    print(signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.set_wakeup_fd(-1), sys.stdin.read() == "")
    print([fd for fd in pipe if "pipe:" in os.path.realpath(f"/proc/self/fd/{fd}")])
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)
child = fork(run)
print(child.wait(30), child.poll())
""")

    assert said.splitlines() == ["True -1 True", "[]", f"{-signal.SIGTERM} {-signal.SIGTERM}"]


def test_a_fork_that_is_waited_for_in_vain_can_be_killed() -> None:
    said = printed_by("""
child = fork(signal.pause)
try:
    child.wait(0.01)
except subprocess.TimeoutExpired as error:
    print(error)
child.kill()
print(child.wait(), child.kill())
""")

    assert "timed out after 0.01 seconds" in said
    assert said.splitlines()[-1] == f"{-signal.SIGKILL} None"


def test_a_fork_is_listed_with_its_own_command_and_has_only_the_environment_given_to_it() -> None:
    said = printed_by("""
words = lambda: open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))
fork(lambda: print(words(), dict(os.environ)), "index_svc", REPUT_STORE="/nowhere").wait(30)
print(words()[1:3])
""")

    assert said.splitlines() == ["['python', '-m', 'index_svc'] {'REPUT_STORE': '/nowhere'}", "['-P', '-c']"]


def test_a_process_with_a_second_thread_does_not_fork() -> None:
    said = printed_by("""
print(forks.can_fork())
done = threading.Event()
threading.Thread(target=done.wait).start()
print(forks.can_fork())
done.set()
""")

    assert said.split() == ["True", "False"]


def test_a_service_is_forked_the_first_time_and_a_new_interpreter_after_it_with_the_same_answer() -> None:
    said = printed_by("""
from deploy.hosts import Processes
host = Processes()
environ = {"PYTHONPATH": os.environ["PYTHONPATH"], "REPUT_NAMESERVER_NONSENSE": "1"}
for _ in range(2):
    child = host.start("nameserver", environ)
    print(type(child).__name__, child.wait(30), flush=True)
""").splitlines()

    assert said[1::2] == ["Fork 2", "Popen 2"]
    assert said[0] == said[2]
    assert "REPUT_NAMESERVER_NONSENSE" in said[0]


def test_the_process_that_forks_services_loads_no_more_for_them_than_they_do_alone(tmp_path: pathlib.Path) -> None:
    names = [name.removesuffix("_svc") for name in SERVICES]
    said = printed_by(f"""
import pathlib
from deploy import hosts, local
stack = local.LocalStack(pathlib.Path({str(tmp_path)!r}), environ={{}})
stack._set_value("", "store_host")
print(hosts.imported(*{names!r}))
import asyncio.sslproto
assert asyncio.sslproto.ssl is not None
print(" ".join(name for name, module in sys.modules.items() if module))
""")

    environment, loaded = said.splitlines()
    assert "GRPC_VERBOSITY" in environment
    assert not NOT_NEEDED & set(loaded.split())
