"""Builders that may have few open files, and a store with many queues: they get on, and answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import list_queues
from services.rpcs import commitlog as log_rpc
from services.rpcs import consumequeue, index
from store.errors import StoreError
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

ROOT = Path(__file__).parents[2]
QUEUE_COUNT = 1_200
STATUSES = {"consumequeue": consumequeue.GET_STATUS, "index": index.GET_STATUS}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("few") / "store"
    with open_log(root, default_topic_queue_count=QUEUE_COUNT, file_size_bytes=1 << 20) as log:
        for first in range(0, QUEUE_COUNT, 100):
            append(
                log,
                *(new_message(queue_id=queue_id, keys=[f"k{queue_id}"]) for queue_id in range(first, first + 100)),
                sync=False,
            )
    return root


@pytest.fixture
def start(tmp_path: Path):
    processes = []

    def start_service(name: str, store: Path, limit: int = 0) -> tuple[str, Path]:
        address, log = f"unix:{tmp_path}/{name}", tmp_path / f"{name}.log"
        flags = ["--store", str(store), "--address", address]
        if name != "commitlog":
            flags += ["--commitlog-target", f"unix:{tmp_path}/commitlog"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("REPUT_")}
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'protos'}"
        with log.open("wb") as file:
            limited = f"ulimit -n {limit}; " if limit else ""
            command = ["bash", "-c", f'{limited}exec "$0" -m "$@"', sys.executable, f"{name}_svc", *flags]
            processes.append(subprocess.Popen(command, env=environment, stderr=file))
        return address, log

    yield start_service
    for process in reversed(processes):
        process.terminate()
        process.wait(WAIT_SECONDS_MAX)


@pytest.mark.parametrize("limit", [64, pytest.param(128, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", STATUSES)
def test_a_builder_with_few_descriptors_builds_many_queues(start, store, tmp_path, name, limit) -> None:
    commitlog, _ = start("commitlog", store)
    address, log = start(name, tmp_path / "built", limit)
    log_client, client = CommitLogClient(commitlog), ServiceClient(name, address)
    try:

        def is_built() -> bool:
            try:
                end = log_client.call(
                    log_rpc.GET_STATUS, log_rpc.GET_STATUS.request_class(), WAIT_SECONDS_MAX
                ).log_end_offset
                status = client.call(STATUSES[name], STATUSES[name].request_class(), WAIT_SECONDS_MAX)
            except StoreError:
                return False
            return end > 0 and status.next_offset >= end and not status.catching_up

        wait_until(is_built, f"{name} to be built; it says: {log.read_text()[-2000:]}")
        # The commit log may not be there yet when the builder asks it first.
        said = [line for line in log.read_text().splitlines() if "reput.tail.broken" not in line]
        assert not [line for line in said if "failed" in line]
        assert f'"limit": {limit}, "enough": 256' in log.read_text()
    finally:
        log_client.close()
        client.close()


def test_the_queues_of_a_builder_with_few_descriptors_are_read_by_many_callers(start, store, tmp_path) -> None:
    start("commitlog", store)
    address, log = start("consumequeue", tmp_path / "built", 64)
    client = ServiceClient("consumequeue", address)
    try:

        def has_all() -> bool:
            try:
                return len(list_queues(client, "orders", timeout_seconds=WAIT_SECONDS_MAX)) == QUEUE_COUNT
            except StoreError:
                return False

        wait_until(has_all, f"all queues; it says: {log.read_text()[-2000:]}")
        for queue_id in range(0, QUEUE_COUNT, 7):
            request = pb.GetQueueUnitsRequest(topic="orders", queue_id=queue_id, max_units=10)
            assert len(client.call(consumequeue.GET_QUEUE_UNITS, request, WAIT_SECONDS_MAX).units) == 1
    finally:
        client.close()
