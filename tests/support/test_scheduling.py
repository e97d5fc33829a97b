"""Long files first, those of a shared fixture together: tests in a project of their own, with real workers."""

import heapq
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence

from tests.support import scheduling

ROOT = pathlib.Path(__file__).parents[2]
FILES = {
    "test_a_plain.py": "def test_plain(): note(__file__)\n",
    "test_b_waits.py": "import subprocess\n\n\ndef test_waits(): note(__file__)\n",
    "test_c_spark.py": "def test_one(spark): note(__file__)\n",
    "test_d_spark.py": "def test_other(\n    tmp_path, spark\n): note(__file__)\n",
    "test_e_image.py": "def test_image(serve_image): note(__file__)\n",
    "test_f_image.py": "def test_again(serve_image): note(__file__)\n",
    "tests/rocketmq/test_mirror.py": "def test_mirror(): note(__file__)\n",
    "tests/rocketmq/test_follow.py": "def test_follow(): note(__file__)\n",
}
NOTE = """
import os, pathlib
def note(file):
    with open("notes", "a") as notes:
        notes.write(f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')} {pathlib.Path(file).name}\\n")
"""


def notes_of(folder: pathlib.Path, *options: str) -> list[list[str]]:
    """Who ran which file, in their order."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(NOTE + text)
    fixtures = "".join(
        f"\n\n@pytest.fixture(scope='session')\ndef {name}():\n    yield 1\n    note('end of {name}')\n"
        for name in scheduling.SHARED
    )
    (folder / "conftest.py").write_text(f"import pytest\n{NOTE}{fixtures}")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "notes").write_text("")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.scheduling",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split(maxsplit=1) for line in (folder / "notes").read_text().splitlines()]


def test_one_process_runs_shared_fixtures_first_then_the_longest_then_what_waits(tmp_path: pathlib.Path) -> None:
    ran = [file for _, file in notes_of(tmp_path)]

    assert ran == [
        *("test_c_spark.py", "test_d_spark.py", "end of spark"),
        *("test_e_image.py", "test_f_image.py", "end of serve_image"),
        *("test_mirror.py", "test_follow.py", "test_b_waits.py", "test_a_plain.py"),
    ]


def test_of_two_processes_each_shared_fixture_is_in_one(tmp_path: pathlib.Path) -> None:
    ran = notes_of(tmp_path, "-n", "2")
    ends = [note for note in ran if note[1].startswith("end of")]
    assert sorted(note for _, note in ends) == ["end of serve_image", "end of spark"]
    ran = [note for note in ran if note not in ends]

    assert sorted(file for _, file in ran) == sorted(pathlib.Path(name).name for name in FILES)
    for shared in ("spark", "image"):
        assert len({worker for worker, file in ran if shared in file}) == 1
    assert len({worker for worker, _ in ran}) == 2


class Worker:
    """A process as the scheduler sees it: it runs a test when it has the one after it, or is to end."""

    def __init__(self) -> None:
        self.shutting_down = False
        self.queue: list[int] = []
        self.gateway = types.SimpleNamespace(id="gw")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def can_run(self) -> bool:
        return len(self.queue) > 1 or (self.shutting_down and bool(self.queue))


def simulated(seconds_of: Mapping[str, Sequence[float]], worker_count: int) -> Iterator[tuple[float, list[str]]]:
    """What each of the processes runs from each moment on at which a test begins.

    Args:
        seconds_of: of each test, by file; the files in the order in which they were collected.
        worker_count: processes.
    """
    config = types.SimpleNamespace(
        option=types.SimpleNamespace(loadscopereorder=True),
        rootpath=ROOT / "none",
        getvalue=lambda _: ["popen"] * worker_count,
    )
    log = types.SimpleNamespace(loadscopesched=lambda *_: None, loadfilesched=lambda *_: None)
    scheduler = scheduling.LongFilesFirst(config, log)  # type: ignore[arg-type]
    tests = [f"{file}::test_{number}" for file, seconds in seconds_of.items() for number in range(len(seconds))]
    durations = [one for seconds in seconds_of.values() for one in seconds]
    workers = [Worker() for _ in range(worker_count)]
    for worker in workers:
        scheduler.add_node(worker)  # type: ignore[arg-type]
        scheduler.add_node_collection(worker, tests)  # type: ignore[arg-type]
    scheduler.schedule()
    running: dict[int, int] = {}
    ends: list[tuple[float, int]] = []
    now = 0.0
    while True:
        for number, worker in enumerate(workers):
            if number not in running and worker.can_run():
                running[number] = worker.queue.pop(0)
                heapq.heappush(ends, (now + durations[running[number]], number))
        yield now, [tests[index].partition("::")[0] for index in running.values()]
        if not ends:
            assert not any(worker.queue for worker in workers)
            return
        now, number = heapq.heappop(ends)
        scheduler.mark_test_complete(workers[number], running.pop(number))  # type: ignore[arg-type]


def test_tests_that_wait_run_beside_others_in_a_third_of_the_processes_until_they_are_done() -> None:
    files = {f"tests/e2e/test_{number}.py": [1.0] * 10 for number in range(20)}
    files |= {f"tests/torture/test_{number}.py": [1.0] * 10 for number in range(4)}

    *moments, (end, _) = list(simulated(files, 6))
    counts = [sum(file.startswith("tests/torture/") for file in running) for _, running in moments if len(running) == 6]

    assert counts == sorted(counts, reverse=True)
    assert counts.count(2) >= 19 * 6, "for the whole time of all of them"
    assert end == sum(map(sum, files.values())) / 6


def test_a_file_that_was_given_to_a_process_in_a_long_test_waited_for_it() -> None:
    files = {"tests/test_long.py": [100.0, 1.0]} | {f"tests/test_{number}.py": [30.0] for number in range(4)}

    *_, (end, _) = simulated(files, 2)

    assert end == 120, "the four others run in the other process meanwhile"


def test_files_with_a_recorded_time_are_there() -> None:
    assert [name for name in scheduling.SECONDS if not (ROOT / name).is_file()] == []
