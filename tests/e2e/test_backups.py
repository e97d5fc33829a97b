"""A backup of a store that is served, restored: messages, groups and what waits are as they were, told by its services."""

import json
import os
import shutil
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from cli.backup.places import DirectoryPlace, read_backups
from cli.backup.restoring import Moment, restore_store
from cli.backup.taking import take_backup
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import QueryClient
from tests.cli.backup.made import log_bytes, prefix
from tests.support.command import run_command
from tests.support.releases import ROOT, environ_of
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPIC, BROKER = "Orders", "broker-a"
FILE_BYTES = 1 << 20
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "20000",
}


def command(stack: HostedStack, *arguments: str) -> str:
    done = run_command(*arguments, "--address", stack.addresses["gateway"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(stack: HostedStack, *keys: str) -> list[message_pb2.AppendResult]:
    messages = [new_message(TOPIC, key.encode(), keys=[key], queue_id=0) for key in keys]
    request = pb.AppendMessagesRequest(messages=messages, flush=message_pb2.FLUSH_MODE_SYNC)
    return list(stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results)


def waiting(stack: HostedStack) -> list[tuple[datetime, str, str]]:
    """What waits: when it is due, its unique key and where its record lies."""
    with QueryClient(stack.addresses["gateway"]) as queries:
        found = queries.scheduled_messages(TOPIC)
        return sorted((each.delivery_time, each.unique_key, each.offset_msg_id) for each in found)


def lag(stack: HostedStack, group: str) -> int:
    return int(json.loads(command(stack, "lag", group, "-o", "json"))["totals"][0]["lag"])


def consume(stack: HostedStack, group: str, count: int) -> list[str]:
    printed = command(stack, "consume", "-t", TOPIC, "-g", group, "-m", str(count), "-o", "jsonl")
    return [json.loads(line)["keys"][0] for line in printed.splitlines()]


def test_messages_groups_and_timers_are_as_they_were_at_the_moment(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path / "place")
    with hosted_stack(tmp_path / "store", settings=SETTINGS) as stack:
        send(stack, "a", "b", "c", "d", "e")
        stack.wait_until_built()
        assert consume(stack, "readers", 2) == ["a", "b"]
        command(stack, "send", "-t", TOPIC, "-b", "later", "--delay", "1h", "-o", "jsonl")
        wait_until(lambda: len(waiting(stack)) == 1, "the schedule service has seen it")
        waits = [waiting(stack)]
        first = take_backup(tmp_path / "store", place, BROKER)

        assert consume(stack, "readers", 1) == ["c"]
        send(stack, "f")
        command(stack, "send", "-t", TOPIC, "-b", "much later", "--delay", "2h", "-o", "jsonl")
        wait_until(lambda: len(waiting(stack)) == 2, "the schedule service has seen both")
        waits.append(waiting(stack))
        second = take_backup(tmp_path / "store", place, BROKER)
    ends = [report.counts["end_offset"] for report in (first, second)]
    assert ends[0] < ends[1]
    assert second.counts["copied_bytes"] == ends[1] - ends[0]

    for end, waited, rest in zip(ends, waits, (["c", "d", "e"], ["d", "e", "f"]), strict=True):
        out = tmp_path / f"at-{end}"
        report = restore_store(place, out, Moment(offset=end))
        assert report.findings == []
        assert log_bytes(out) == prefix(tmp_path / "store", end, FILE_BYTES)
        with hosted_stack(out, settings=SETTINGS) as stack:
            stack.wait_until_built()
            wait_until(lambda stack=stack, waited=waited: len(waiting(stack)) == len(waited), "what waits is known")
            assert waiting(stack) == waited
            assert lag(stack, "readers") == 3
            assert consume(stack, "readers", 3) == rest
            send(stack, "g")  # it goes on
    assert [backup.end_offset for backup in read_backups(place)[0]] == ends


# What the kubelet makes of a pod of the CronJob: its own mounts and processes, and the volume read-only. With "hidden" it does
# not see the locks of the services, as over a network volume that has none.
JOB = """
set -e
mount --bind "$1" "$1"
if [ "$3" = hidden ]; then
    for lock in "$1"/lock "$1"/reput/*/lock; do mount --bind "$4" "$lock"; done
fi
mount -o remount,ro,bind "$1"
if touch "$1/x" 2> /dev/null; then exit 99; fi
exec "$5" -P -m cli.main backup --store "$1" --to "$2"
"""
CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


def has_containers() -> bool:
    """Whether namespaces can be made here."""
    if shutil.which(CONTAINER[0]) is None:
        return False
    return subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_containers(), reason="needs root and unshare (util-linux)")
@pytest.mark.parametrize("locks", ["seen", "hidden"])
def test_a_job_in_a_container_backs_up_the_volume_of_a_running_commit_log(tmp_path: Path, locks: str) -> None:
    """It takes no lock, stops nobody, and has all that was acknowledged, whether it sees the locks of the services or not."""
    store, place, nothing = tmp_path / "store", tmp_path / "place", tmp_path / "nothing"
    nothing.touch()
    is_over = threading.Event()
    with hosted_stack(store, settings=SETTINGS) as stack:
        (last,) = send(stack, "acknowledged")

        def go_on() -> None:
            while not is_over.is_set():
                send(stack, "meanwhile")

        sender = threading.Thread(target=go_on)
        sender.start()
        try:
            command = [*CONTAINER, "sh", "-c", JOB, "job"]
            arguments = [str(store), str(place), locks, str(nothing), sys.executable]
            environ = {**os.environ, **environ_of(ROOT)}
            done = subprocess.run(
                [*command, *arguments],
                env=environ,
                capture_output=True,
                text=True,
                timeout=WAIT_SECONDS_MAX,
                check=False,
            )
        finally:
            is_over.set()
            sender.join(WAIT_SECONDS_MAX)
        assert not sender.is_alive()
        (behind,) = send(stack, "behind")
    # Without the locks it takes what is not yet marked as on the disk for the end of an unclean stop.
    found = {finding["kind"] for finding in json.loads(done.stdout)["findings"]}
    assert (done.returncode, found) in [(0, set()), *([(1, {"log_not_whole"})] if locks == "hidden" else [])], done
    (backup,) = read_backups(DirectoryPlace(place / BROKER))[0]
    assert last.commit_log_offset < backup.end_offset <= behind.commit_log_offset
    assert restore_store(DirectoryPlace(place / BROKER), tmp_path / "out", log_only=True).findings == []
    assert log_bytes(tmp_path / "out") == prefix(store, backup.end_offset, FILE_BYTES)
