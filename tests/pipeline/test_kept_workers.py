"""What a worker that Spark keeps puts aside: once, when a task is done; other processes are left alone."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.kept_workers import KEPT_WORKER
from tests.pipeline.logs import write_files
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).parents[2]
TWICE = """
import gc
from pipeline.kept_workers import settle
settle()
first = gc.get_freeze_count()
later = [[] for _ in range(1000)]
settle()
print(first, gc.get_freeze_count())
"""
TASK = """
import gc, os, sys
from pipeline.kept_workers import KEPT_WORKER
from tests.pipeline.brute_force import make_reader
reader = make_reader(sys.argv[1], columns="topic")
kept = os.environ.pop(KEPT_WORKER, None) if sys.argv[2] == "task" else None
planned = reader.partitions()
os.environ.update({KEPT_WORKER: kept} if kept else {})
before = gc.get_freeze_count()
for split in planned:
    list(reader.read(split))
print(before, gc.get_freeze_count())
"""


def run(program: str, *arguments: object, is_kept: bool) -> list[int]:
    environ = {name: value for name, value in os.environ.items() if name != KEPT_WORKER}
    environ |= {KEPT_WORKER: "1"} if is_kept else {}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT, env={**environ, "REPUT_KERNELS": "off"}, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=True,
    )  # fmt: skip
    return [int(number) for number in done.stdout.split()]


def test_a_kept_worker_puts_aside_what_it_holds_once() -> None:
    first, second = run(TWICE, is_kept=True)
    assert 0 < second <= first  # what is put aside still ends when nobody has it


def test_any_other_process_is_left_alone() -> None:
    assert run(TWICE, is_kept=False) == [0, 0]


def test_a_plan_ends_with_it(tmp_path: Path) -> None:
    write_files(tmp_path)
    planned, read = run(TASK, tmp_path, "plan", is_kept=True)
    assert 0 < read <= planned


def test_a_task_ends_with_it(tmp_path: Path) -> None:
    write_files(tmp_path)
    planned, read = run(TASK, tmp_path, "task", is_kept=True)
    assert planned == 0 < read


def test_plans_and_tasks_elsewhere_do_not(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert run(TASK, tmp_path, "plan", is_kept=False) == [0, 0]
