"""The driver of a stream is killed at random, again and again: files and topic hold every message once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.rocketmq.gateways import append, read_batch
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

ROOT = Path(__file__).parents[3]
LIFE_SECONDS_MAX = 4.0
# More than one life of a driver gets through in this time, some 0.3 s a batch: the last one has work left.
MESSAGES_PER_LIFE = 1500
MESSAGES_PER_BATCH = 100


@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_a_driver_killed_at_random_copies_every_message_once(tmp_path: Path) -> None:
    dice = random.Random(pick_seed("test_a_driver_killed_at_random_copies_every_message_once"))
    kill_count = amount(sample=1, change=1, full=20)
    message_count = MESSAGES_PER_LIFE * (kill_count + 1)
    work = tmp_path / "work"
    work.mkdir()
    with hosted_stack(tmp_path / "store") as stack:
        endpoint = stack.addresses["gateway"]
        append(endpoint, "From", [b"%d" % i for i in range(message_count)], keys=["k"])
        stack.wait_until_built()
        for _ in range(kill_count):
            begun = planned_batches(work)
            driver = start_driver(endpoint, work, MESSAGES_PER_BATCH)
            try:
                wait_until_planned(driver, work, begun)
                time.sleep(dice.uniform(0, LIFE_SECONDS_MAX))  # chance decides where the kill finds it
            finally:
                kill(driver)
        assert not (work / "numbers.json").exists(), "every kill came while there was work"
        while True:
            last = start_driver(endpoint, work, message_count)
            try:
                code = last.wait(WAIT_SECONDS_MAX * 4)
            finally:
                kill(last)
            if code == 0:
                break
            assert fell_to_sparks_race(work), (work / "log").read_text()[-4000:]
        stack.wait_until_built()
        copied = [int(row["body"]) for row in read_batch(endpoint, subscribe="Into", columns="body")]

    assert sorted(json.loads((work / "numbers.json").read_text())) == list(range(message_count))
    assert Counter(copied) == Counter(range(message_count))


# What ends a driver for a reason of Spark's. Two streams of one session share a Java HashMap that one writes while the other's
# task is serialized; no task of that batch can then be read. And a Python worker has ten seconds to connect, which no setting
# changes: too few on a busy machine.
SPARKS_DEATHS = (b"java.io.OptionalDataException", b"Python worker failed to connect back")
SPARKS_DEATH_COUNT_MAX = 3


def start_driver(endpoint: str, work: Path, messages_per_batch: int) -> "subprocess.Popen[bytes]":
    """The driver, in a session of its own, which its Java and Python processes share."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
    command = [sys.executable, "-m", "tests.pipeline.rocketmq.copy_topic", endpoint, str(work)]
    command.append(str(messages_per_batch))
    with open(work / "log", "ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd=work, start_new_session=True
        )


def planned_batches(work: Path) -> int:
    """Micro-batches whose offsets are written down."""
    return sum(1 for name in ("files", "topic") for _ in (work / name / "offsets").glob("[0-9]*"))


def wait_until_planned(driver: "subprocess.Popen[bytes]", work: Path, begun: int) -> None:
    """Until this driver has begun a batch of its own."""

    def said() -> str:
        return (work / "log").read_text()[-4000:]

    def is_planned_or_lost() -> bool:
        if planned_batches(work) > begun:
            return True
        if driver.poll() is not None and fell_to_sparks_race(work):
            return True  # a life lost like any other
        assert driver.poll() is None, said()
        return False

    wait_until(is_planned_or_lost, said)


def fell_to_sparks_race(work: Path) -> bool:
    """Whether the driver ended by itself for what is Spark's; accepted SPARKS_DEATH_COUNT_MAX times.

    A driver that is started again goes on, which is what this test is about.
    """
    accepted = work / "accepted"
    ends = [int(line) for line in accepted.read_text().split()] if accepted.exists() else []
    said = (work / "log").read_bytes()
    new = said[ends[-1] if ends else 0 :]
    if len(ends) >= SPARKS_DEATH_COUNT_MAX or not any(words in new for words in SPARKS_DEATHS):
        return False
    accepted.write_text(" ".join(map(str, [*ends, len(said)])))
    return True


def kill(driver: "subprocess.Popen[bytes]") -> None:
    """End the driver and all that it started, at once; returns when nothing of it is left."""

    def is_gone() -> bool:
        pids = processes_of(driver.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.poll()
        return not pids

    wait_until(is_gone, "all that the driver started has ended")
    driver.wait(WAIT_SECONDS_MAX)


def processes_of(session_id: int) -> list[int]:
    """The live processes of a session."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session_id and fields[0] != "Z":
            pids.append(int(stat.parent.name))
    return pids
