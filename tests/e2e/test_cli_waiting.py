"""`reput send` with a delay, `scheduled`, `recall` and `transactions`, against a real stack."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from reput_client import NewMessage, QueryClient, TransactionProducer
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import wait_until

SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(8 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("store"), settings=SETTINGS) as running:
        yield running


def cli(stack: HostedStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, "--address", stack.addresses["gateway"])


def test_the_command_sends_lists_and_recalls_delayed_messages(stack: HostedStack) -> None:
    sent = cli(stack, "send", "-t", "ByHand", "-b", "x", "--delay", "10m", "-o", "jsonl")
    assert sent.returncode == 0, sent.stderr
    handle = json.loads(sent.stdout)["recall_handle"]
    with QueryClient(stack.addresses["gateway"]) as queries:
        wait_until(lambda: list(queries.scheduled_messages("ByHand")), "the schedule service has seen it")
    listed = cli(stack, "scheduled", "-t", "ByHand")
    assert (listed.returncode, listed.stdout.count("ByHand")) == (0, 1)
    assert cli(stack, "recall", handle).returncode == 0
    again = cli(stack, "recall", handle)
    assert (again.returncode, "SCHEDULED_MESSAGE_NOT_FOUND" in again.stderr) == (1, True)
    assert cli(stack, "scheduled", "-t", "ByHand").returncode == 1
    both = cli(stack, "send", "-t", "ByHand", "-b", "x", "--delay", "10s", "--delay-level", "1")
    assert both.returncode == 2


def test_the_command_lists_and_ends_hanging_transactions(stack: HostedStack) -> None:
    with TransactionProducer(stack.addresses["gateway"]) as producer:
        ids = [producer.send_half(NewMessage("Hanging", b"%d" % n)).receipt.transaction_id for n in range(2)]
    with QueryClient(stack.addresses["gateway"]) as queries:
        wait_until(
            lambda: len(list(queries.pending_transactions("Hanging"))) == 2, "the schedule service has seen both"
        )
    listed = cli(stack, "transactions", "-t", "Hanging", "-o", "jsonl")
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 2)
    assert cli(stack, "transactions", "--commit", ids[0]).returncode == 0
    assert cli(stack, "transactions", "--rollback", ids[1]).returncode == 0
    assert cli(stack, "transactions", "--rollback", ids[1]).returncode == 1
    assert cli(stack, "transactions", "-t", "Hanging").returncode == 1
