"""A continuous rebuild whose driver is killed at random, again and again, ends where an undisturbed rebuild ends."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.pipeline.rebuild.test_rebuild_on_spark import SETTINGS, append
from tests.support.stack import hosted_stack
from tests.torture.amount import amount

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

KILL_COUNT = amount(sample=1, change=1, full=20)
KILL_SECONDS_MAX = 5.0


def _start(target: str, out: Path, scratch: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.pipeline.rebuild.continuous_driver", target, str(out), str(scratch)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _kill(driver: subprocess.Popen) -> None:
    os.killpg(driver.pid, signal.SIGKILL)  # the driver, its Java process and its workers: a machine that is gone
    driver.wait()


def test_killed_at_random_points_nothing_is_missing_and_nothing_is_there_twice(tmp_path):
    number = random.Random(20261122)
    out = tmp_path / "out"
    with hosted_stack(tmp_path / "store", settings=SETTINGS) as stack:
        target = stack.addresses["commitlog"]
        append(stack, 0, 3000)
        kills = 0
        while kills < KILL_COUNT:
            append(stack, 3000 + kills * 200, 200)
            driver = _start(target, out, tmp_path / "scratch")
            assert driver.stdout is not None
            for line in driver.stdout:
                if line.strip() == "started":
                    break
            killer = threading.Timer(number.random() * KILL_SECONDS_MAX, _kill, (driver,))
            killer.start()
            output = driver.stdout.read()
            killer.join()
            assert driver.returncode == -signal.SIGKILL or "caught up" in output, output
            kills += 1
        driver = _start(target, out, tmp_path / "scratch")
        output, _ = driver.communicate(timeout=300)
        assert "caught up" in output
        stack.wait_until_built()

    rebuild_here(tmp_path / "store", tmp_path / "undisturbed")
    assert_same_store(out, tmp_path / "undisturbed")
    assert_same_store(out, tmp_path / "store")
