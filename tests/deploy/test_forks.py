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
    ("run", "code", "words"),
    [
        ("None", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('words')", 1, "words"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_a_fork_ends_with_the_code_and_the_words_of_what_it_ran(run: str, code: int, words: str) -> None:
    said = printed_by(f"print('code', fork(lambda: {run}).wait(30))").splitlines()

    assert said[-1] == f"code {code}"
    assert said[-2:-1] == ([words] if words else [])


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_fork_of_a_process_without_standard_streams_has_the_null_device_in_their_place(
    closed: tuple[int, ...], tmp_path: pathlib.Path
) -> None:
    """Otherwise its descriptor 1 or 2 would be a file of its parent, or its own next one, and lines would go there."""
    said = tmp_path / "said"
    code = f"""
parents = open({str(said)!r}, "w")  # it takes the lowest number that is free
def run():
    opened = [os.path.realpath(f"/proc/self/fd/{{number}}") for number in (0, *{closed!r})]
    with open({str(said)!r}, "a") as file:
        print(file.fileno(), *opened, file=file, flush=True)
    sys.exit("words")
code = fork(run).wait(30)
with open({str(said)!r}, "a") as file:
    print(code, file=file)
"""
    subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -P -c "$1" ' + " ".join(f"{number}>&-" for number in closed), sys.executable, FORK + code],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protos'}"}, check=True, timeout=60,
    )  # fmt: skip

    assert said.read_text().splitlines() == [" ".join(["3", *["/dev/null"] * (1 + len(closed))]), "1"]


def test_what_its_parent_has_not_written_yet_is_written_once() -> None:
    said = printed_by("""
print("before", end=" ")
fork(lambda: print("in the fork", end=" ")).wait(30)
print("after")
""")

    assert said == "before in the fork after\n"


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


def test_a_signal_that_comes_at_once_ends_a_fork_and_reaches_its_parent_not_at_all() -> None:
    said = printed_by("""
signal.signal(signal.SIGTERM, lambda *_: None)
reader, writer = os.pipe()
os.set_blocking(reader, False)
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
for _ in range(20):
    child = fork(signal.pause)
    child.terminate()
    print(child.wait(5))
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
try:
    print(os.read(reader, 100))
except BlockingIOError:
    print("no byte")
""")

    assert said.splitlines() == [str(-signal.SIGTERM)] * 20 + ["no byte"]


def test_a_fork_closes_the_descriptors_that_are_open_and_tries_no_other_numbers() -> None:
    """Named after a start of minutes: without the kernel's call for a range, each of its numbers was closed."""
    said = printed_by("""
tried = []
close = os.close
os.close = lambda number: (tried.append(number), close(number))[1]
os.closerange = None
high = os.dup2(0, 900)
def run():
    print(900 in tried, len(tried) < 20, os.listdir("/proc/self/fd"))
print(fork(run).wait(30))
""")

    assert said.splitlines() == ["True True ['0', '1', '2', '3']", "0"]


def test_a_process_forks_only_where_the_kernel_lets_it_watch_its_children() -> None:
    said = printed_by("""
import errno
print(forks.can_fork())
opened = len(os.listdir("/proc/self/fd"))
forks.can_fork()
print(len(os.listdir("/proc/self/fd")) == opened)
def refused(pid):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
os.pidfd_open = refused
print(forks.can_fork())
""")

    assert said.split() == ["True", "True", "False"]


def test_a_process_that_calls_by_grpc_does_not_fork_although_python_knows_of_one_thread() -> None:
    said = printed_by("""
import grpc
with grpc.insecure_channel("127.0.0.1:1") as channel:
    try:
        channel.unary_unary("/none/None")(b"", timeout=5)
    except grpc.RpcError:
        print(threading.active_count(), forks.can_fork())
""")

    assert said.split() == ["1", "False"]


def test_the_threads_of_numpy_do_not_keep_a_process_from_forks() -> None:
    said = printed_by("""
os.environ["OPENBLAS_NUM_THREADS"] = "2"  # a test process has it have none
import numpy
threads = forks.threads()
print(forks.can_fork(threads))
fork(lambda: print((numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum())).wait(30)
""")

    assert said.split() == ["True", "27000000.0"]


def test_a_crash_of_a_fork_is_told_at_its_standard_error_where_its_parent_tells_its_own_elsewhere(
    tmp_path: pathlib.Path,
) -> None:
    """Otherwise the traceback would go into the file that has the descriptor in the fork, such as the log."""
    said = printed_by(f"""
import faulthandler
elsewhere = open({str(tmp_path / "elsewhere")!r}, "w")
faulthandler.enable(elsewhere)
def run():
    mine = open({str(tmp_path / "mine")!r}, "w")
    assert mine.fileno() == elsewhere.fileno()
    os.kill(os.getpid(), signal.SIGSEGV)
print(fork(run).wait(30))
""")

    assert "Segmentation fault" in said
    assert said.splitlines()[-1] == str(-signal.SIGSEGV)
    assert (tmp_path / "mine").read_text() == (tmp_path / "elsewhere").read_text() == ""


def test_a_service_that_cannot_be_imported_tells_why_and_ends_alone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken_svc.py").write_text("import no_such_library\n")
    said = printed_by(f"""
sys.path.insert(0, {str(tmp_path)!r})
from deploy import hosts, modules
modules.MODULES["broken"] = "broken_svc"
host = hosts.Processes()
environ = {{"PYTHONPATH": {str(tmp_path)!r} + os.pathsep + os.environ["PYTHONPATH"], "REPUT_NAMESERVER_NONSENSE": "1"}}
print("code", host.start("broken", environ).wait(30), flush=True)
print("code", type(host.start("nameserver", environ)).__name__, flush=True)
""").splitlines()

    assert [line for line in said if line.startswith(("ModuleNotFoundError", "code"))][:3] == [
        "ModuleNotFoundError: No module named 'no_such_library'",
        "code 1",
        "code Fork",
    ]


@pytest.mark.parametrize("before", ["enable", "disable"])
def test_a_process_looks_for_garbage_after_its_forks_as_it_did_before_but_not_among_what_they_share(
    before: str,
) -> None:
    said = printed_by(f"""
import gc
from deploy.hosts import Processes
gc.{before}()
child = Processes().start("nameserver", {{"PYTHONPATH": os.environ["PYTHONPATH"], "REPUT_NAMESERVER_NONSENSE": "1"}})
print(child.wait(30), gc.isenabled(), gc.get_freeze_count() > 50_000)
""")

    assert said.splitlines()[-1] == f"2 {before == 'enable'} True"
