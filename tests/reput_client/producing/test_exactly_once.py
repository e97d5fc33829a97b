"""The real services, killed in the middle: every future resolves, and what was acknowledged is there exactly once."""

import os
import pathlib
import signal
import subprocess

from reput_client import Producer, QueryClient, RetryPolicy
from reput_client.errors import ReputClientError
from tests.support.stack import Stack, hosted_stack

MESSAGE_COUNT = 2000
KILL_AFTER_COUNT = 500


def commit_log_pid(stack: Stack) -> int:
    """The commitlog service's process, a child of `reput serve`."""
    children = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(stack.process.pid)], capture_output=True, text=True, check=True
    ).stdout
    return next(int(line.split()[0]) for line in children.splitlines() if "commitlog_svc" in line)


def test_a_kill_of_the_commit_log_loses_and_doubles_nothing(tmp_path: pathlib.Path) -> None:
    stack = Stack(tmp_path / "store")
    address = stack.addresses["gateway"]
    port = address.rpartition(":")[2]
    retry = RetryPolicy(attempt_count_max=1000, pause_seconds_first=0.05, pause_seconds_max=0.5)
    restarted = None
    try:
        with Producer(address, batch_count_max=16, retry=retry, delivery_seconds_max=240) as producer:
            made = [producer.send("Once", b"%d" % i) for i in range(KILL_AFTER_COUNT)]
            made[KILL_AFTER_COUNT // 2].result(60)
            os.kill(commit_log_pid(stack), signal.SIGKILL)
            made += [producer.send("Once", b"%d" % i) for i in range(KILL_AFTER_COUNT, MESSAGE_COUNT)]
            stack.process.wait(60)  # `reput serve` ends with any of its services
            restarted = hosted_stack(tmp_path / "store", gateway_port=int(port))
            assert producer.flush(240)
        receipts, failures = [], []
        for future in made:
            assert future.done()
            try:
                receipts.append(future.result(0))
            except ReputClientError as error:
                failures.append(error)
        assert failures == []
        restarted.wait_until_built()
        with QueryClient(address, require_complete=True) as client:
            for i, receipt in enumerate(receipts):
                if i % 20 and not receipt.deduplicated:
                    continue
                copies = list(client.by_unique_key("Once", receipt.unique_key))
                assert [(copy.body, copy.offset_msg_id) for copy in copies] == [(b"%d" % i, receipt.offset_msg_id)]
            stored = [
                message.body
                for topic in client.topics()
                for queue in topic.queues
                for message in client.by_offset("Once", queue.queue_id, page_size=1000)
            ]
        assert sorted(stored) == sorted(b"%d" % i for i in range(MESSAGE_COUNT)), "each message once"
    finally:
        stack.kill()
        if restarted is not None:
            restarted.stop()
