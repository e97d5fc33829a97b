"""What a process does with its embedded stores: it ends, forks, spawns, is interrupted. Each in a program of its own."""

import pathlib
import subprocess
import sys

import pytest

import reput_embedded

SECONDS_MAX = 120
PREAMBLE = """
import os, pathlib, sys
import reput_embedded
root = pathlib.Path(sys.argv[1])
"""


def run(root: pathlib.Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PREAMBLE + program, str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def bodies(root: pathlib.Path) -> list[bytes]:
    with reput_embedded.open(root, read_only=True) as store:
        return [each.body for each in store.search("Orders")]


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "producer.send('Orders', b'last')"])
def test_a_program_that_ends_without_close_ends_and_keeps_what_it_appended(tmp_path: pathlib.Path, end: str) -> None:
    program = f"""
store = reput_embedded.open(root)
store.append("Orders", b"first")
consumer = store.consume("Orders", "g")
consumer.take(timeout_seconds=0)
producer = store.producer(linger_millis=1000)
{end}
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "abort").exists(), "it was stopped cleanly"
    assert bodies(tmp_path) == ([b"first", b"last"] if "last" in end else [b"first"])


def test_an_error_that_ends_the_program_leaves_a_store_that_was_stopped_cleanly(tmp_path: pathlib.Path) -> None:
    ended = run(tmp_path, "store = reput_embedded.open(root)\nstore.append('Orders', b'x')\nraise ValueError('mine')\n")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ValueError: mine"
    assert not (tmp_path / "abort").exists()


def test_a_child_of_a_fork_is_refused_with_words_and_the_parent_goes_on(tmp_path: pathlib.Path) -> None:
    program = """
import multiprocessing
store = reput_embedded.open(root)
store.append("Orders", b"parent")
def child():
    for call in (lambda: store.append("Orders", b"child"), lambda: list(store.search("Orders")), store.producer,
                 lambda: store.consume("Orders", "g")):
        try:
            call()
        except reput_embedded.ForkedStoreError as error:
            assert f"belongs to process {os.getppid()}, and process {os.getpid()} is a fork of it" in str(error)
        else:
            raise AssertionError("it was answered")
    store.close()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0, process.exitcode
store.append("Orders", b"parent again")
assert len(list(store.search("Orders"))) == 2
store.close()
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_child_of_a_fork_opens_no_store_after_its_parent_had_one(tmp_path: pathlib.Path) -> None:
    program = """
reput_embedded.open(root / "parent").close()
pid = os.fork()
if pid == 0:
    try:
        reput_embedded.open(root / "child")
    except reput_embedded.ForkedStoreError as error:
        os._exit(0 if "spawn" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
reput_embedded.open(root / "parent").close()
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "child").exists()


def test_a_child_of_a_fork_opens_a_store_where_its_parent_opened_none(tmp_path: pathlib.Path) -> None:
    program = """
pid = os.fork()
if pid == 0:
    with reput_embedded.open(root) as store:
        store.append("Orders", b"child")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bodies(tmp_path) == [b"child"]


def test_the_import_broke_tls_of_asyncio_and_changed_the_environment(tmp_path: pathlib.Path) -> None:
    program = """
import os
before = dict(os.environ)
import reput_embedded, asyncio, asyncio.sslproto, ssl, sys
assert dict(os.environ) == before, set(os.environ) - set(before)
assert asyncio.sslproto.ssl is ssl
async def connect():
    async def serve(reader, writer):
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=ssl.create_default_context())
    except (ssl.SSLError, OSError):
        pass  # the server speaks no TLS; without the module it was a RuntimeError
asyncio.run(connect())
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_forked_child_that_lives_on_kept_the_store_of_its_parent_locked(tmp_path: pathlib.Path) -> None:
    program = """
store = reput_embedded.open(root)
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    os.read(reader, 1)  # until the parent has ended
    os._exit(0)
store.close()
reput_embedded.open(root).close()
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_processes_that_are_spawned_open_stores_of_their_own(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        """
import multiprocessing, pathlib, sys
import reput_embedded

def work(root):
    with reput_embedded.open(root) as store:
        store.append("Orders", b"x")
        return len(list(store.search("Orders")))

if __name__ == "__main__":
    with reput_embedded.open(sys.argv[1] + "/parent") as store, multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, [sys.argv[1] + "/a", sys.argv[1] + "/b"]) == [1, 1]
        store.append("Orders", b"x")
"""
    )
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_while_the_program_calls_its_store_leaves_it_usable(tmp_path: pathlib.Path) -> None:
    program = """
import signal, time
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
with reput_embedded.open(root) as store:
    keys = [f"key-{number}" for number in range(50)]
    for key in keys:
        store.append("Orders", key.encode(), keys=[key])
    end = time.monotonic() + 5
    while interrupted < 200 and time.monotonic() < end:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00007 * (interrupted % 40))
            while time.monotonic() < end:  # one that comes in a finalizer is lost
                for key in keys:
                    assert [each.body for each in store.by_key("Orders", key)] == [key.encode()], key
        except KeyboardInterrupt:
            interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    for key in keys:
        assert [each.body for each in store.by_key("Orders", key)] == [key.encode()], key
    store.append("Orders", b"still")
assert interrupted > 10, interrupted
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_notebook_with_a_running_event_loop_uses_a_store_both_ways(tmp_path: pathlib.Path) -> None:
    program = """
import asyncio
from reput_client import AsyncQueryClient
async def cell():
    store = reput_embedded.open(root)
    store.append("Orders", b"x", keys=["k"])
    assert len(list(store.by_key("Orders", "k"))) == 1
    async with AsyncQueryClient(store.target) as client:
        assert len([each async for each in client.by_key("Orders", "k")]) == 1
    store.close()
asyncio.run(cell())
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_import_loads_no_web_server_no_data_frames_and_no_compiler(tmp_path: pathlib.Path) -> None:
    program = """
with reput_embedded.open(root) as store:
    store.append("Orders", b"x", keys=["k"])
    list(store.by_key("Orders", "k"))
names = ("console", "jinja2", "starlette", "uvicorn", "pandas", "pyarrow", "pyspark", "typer", "cryptography",
         "opentelemetry", "prometheus_client", "jwt", "celpy", "pytest")
loaded = [name for name in names if name in sys.modules]
assert loaded == [], loaded
resident = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
assert int(resident.split()[1]) < 150 * 1024, resident
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
