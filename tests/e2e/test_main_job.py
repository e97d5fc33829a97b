"""The main job: append, four queries, a clean restart and a kill of its processes in between; the command on top."""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request

import grpc
import pytest

from cli import demo
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.command import run_command
from tests.support.stack import NO_REMOTING, SMALL_LOG_FILES, HostedStack, Stack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
}


def rows(finished: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    """What a run with `-o jsonl` printed."""
    return [json.loads(line) for line in finished.stdout.splitlines()]


def append_three_ways(stack: HostedStack | Stack) -> dict[str, message_pb2.AppendResult]:
    """One message unary, 30 as a batch, 40 over a stream; the receipts by key."""
    receipts = {}
    one = new_message("Orders", "第一".encode(), keys=["u-0"], tags="unary")
    answer = stack.gateway.AppendMessages(
        pb.AppendMessagesRequest(messages=[one], flush=message_pb2.FLUSH_MODE_SYNC), timeout=WAIT_SECONDS_MAX
    )
    receipts["u-0"] = answer.results[0]

    batch = [new_message("Orders", b"batch", keys=[f"b-{i}", "all"], tags="batch") for i in range(30)]
    answer = stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=batch), timeout=WAIT_SECONDS_MAX)
    receipts |= {f"b-{i}": result for i, result in enumerate(answer.results)}

    streamed = [
        pb.AppendMessageStreamRequest(messages=[new_message("Orders", b"stream", keys=[f"s-{i}"], queue_id=i % 4)])
        for i in range(40)
    ]
    for i, response in enumerate(stack.gateway.AppendMessageStream(iter(streamed), timeout=WAIT_SECONDS_MAX)):
        assert response.error.code == 0, response.error.message
        receipts[f"s-{i}"] = response.results[0]
    assert len(receipts) == 71
    return receipts


def assert_four_queries_find(stack: HostedStack | Stack, receipts: dict[str, message_pb2.AppendResult]) -> None:
    """Each message by each query, and each time the same message."""
    for key, receipt in receipts.items():
        by_key = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="Orders", key=key), timeout=WAIT_SECONDS_MAX
        )
        by_id = stack.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=receipt.offset_msg_id), timeout=WAIT_SECONDS_MAX
        )
        by_unique_key = stack.gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic="Orders", unique_key=receipt.unique_key), timeout=WAIT_SECONDS_MAX
        )
        by_offset = stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(
                topic="Orders", queue_id=receipt.queue_id, queue_offset=receipt.queue_offset, max_messages=1
            ),
            timeout=WAIT_SECONDS_MAX,
        )
        assert by_key.completeness == message_pb2.COMPLETENESS_COMPLETE
        assert [by_id.message] == list(by_key.messages) == list(by_unique_key.messages) == list(by_offset.messages)
        assert receipt.commit_log_offset == by_id.message.commit_log_offset


def test_what_was_appended_is_found_by_all_four_queries_also_after_a_restart_and_a_kill(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with hosted_stack(store, settings=SMALL_FILES) as stack:
        receipts = append_three_ways(stack)
        stack.wait_until_built()
        assert_four_queries_find(stack, receipts)

    killed = Stack(store, settings=SMALL_FILES)
    try:
        killed.wait_until_built()
        assert_four_queries_find(killed, receipts)
        more = killed.gateway.AppendMessages(
            pb.AppendMessagesRequest(
                messages=[new_message("Orders", b"before the kill", keys=["k-0"])], flush=message_pb2.FLUSH_MODE_SYNC
            ),
            timeout=WAIT_SECONDS_MAX,
        )
        receipts["k-0"] = more.results[0]
        fresh = pb.QueryMessageByKeyRequest(
            topic="Orders", key="k-0", freshness_tokens=[receipts["k-0"].freshness_token]
        )
        (message,) = killed.gateway.QueryMessageByKey(fresh, timeout=WAIT_SECONDS_MAX).messages
        assert message.body == b"before the kill"
    finally:
        killed.kill()

    with hosted_stack(store, settings=SMALL_FILES) as stack:
        stack.wait_until_built()
        assert_four_queries_find(stack, receipts)
        positions = {(receipt.queue_id, receipt.queue_offset) for receipt in receipts.values()}
        assert len(positions) == len(receipts), "no position is given twice"


def test_read_only_answers_refuses_appends_and_leaves_every_file_as_it_was(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with hosted_stack(store, settings=SMALL_FILES) as stack:
        receipts = append_three_ways(stack)
        stack.wait_until_built()

    def every_file() -> dict[str, tuple[bytes, int]]:
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}

    before = every_file()
    with hosted_stack(store, settings=SMALL_FILES, read_only=True) as stack:
        stack.wait_until_built()
        assert_four_queries_find(stack, receipts)
        with pytest.raises(grpc.RpcError) as refused:
            stack.gateway.AppendMessages(
                pb.AppendMessagesRequest(messages=[new_message("Orders", b"x")]), timeout=WAIT_SECONDS_MAX
            )
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION

    assert before == every_file()


def test_the_command_sends_loads_and_asks_like_mqadmin(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store", settings=SMALL_FILES) as stack:
        here = ["--address", stack.addresses["gateway"]]
        sent = run_command("send", "-t", "Bin", "-k", "b-1", "-c", "raw", "-p", "room=一", "--sync", "-o", "jsonl", *here,
                     stdin=bytes(range(256)))  # fmt: skip
        assert sent.returncode == 0, sent.stderr
        (receipt,) = rows(sent)
        lines = [
            {"topic": "Many", "body": f"body {i}", "keys": ["many"], "unique_key": "7F00000100002A9F18B4AAC2A1B20000"}
            for i in range(150)
        ]
        loaded = run_command("load", "-", *here, stdin="\n".join(map(json.dumps, lines)).encode())
        assert (loaded.returncode, loaded.stdout) == (0, "150 messages appended\n"), loaded.stderr
        stack.wait_until_built()

        (found,) = rows(run_command("queryMsgByKey", "-t", "Bin", "-k", "b-1", "-o", "jsonl", "--body", "hex", *here))
        assert bytes(range(256)).hex() == found["body"]
        assert found["body_format"] == "hex"
        assert found["tags"] == "raw"
        assert isinstance(found["properties"], dict)
        assert found["properties"]["room"] == "一"
        at = ["-i", str(receipt["queue_id"]), "-o", str(receipt["queue_offset"])]
        for same in (
            ["queryMsgById", "-i", str(receipt["offset_msg_id"])],
            ["queryMsgByUniqueKey", "-t", "Bin", "-i", str(receipt["unique_key"])],
            ["queryMsgByOffset", "-t", "Bin", "-b", "broker-a", *at],
        ):
            answer = run_command(*same, "-o", "jsonl", "--body", "hex", *here)
            assert (0, [found]) == (answer.returncode, rows(answer)), same

        paged = run_command("queryMsgByKey", "-t", "Many", "-k", "many", "-m", "100", "-o", "jsonl", *here)
        assert [f"body {i}" for i in range(149, 49, -1)] == [row["body"] for row in rows(paged)]
        one = run_command("queryMsgByUniqueKey", "-t", "Many", "-i", lines[0]["unique_key"], "-o", "json", *here)
        every = run_command(
            "queryMsgByUniqueKey", "-t", "Many", "-i", lines[0]["unique_key"], "-a", "-o", "json", *here
        )
        assert len(json.loads(one.stdout)["messages"]) == 1
        assert len(json.loads(every.stdout)["messages"]) == 150
        assert json.loads(every.stdout)["completeness"] == "COMPLETE"
        assert run_command("queryMsgByKey", "-t", "Many", "-k", "many", "-b", "-1h", "-e", "now", *here).returncode == 0
        assert run_command("queryMsgByKey", "-t", "Many", "-k", "many", "-e", "-1h", *here).returncode == 1
        assert run_command("queryMsgByKey", "-t", "Many", "-k", "many", "-b", "now", "-e", "-1h", *here).returncode == 2

        for nothing in (
            ["queryMsgByKey", "-t", "Many", "-k", "none"],
            ["queryMsgByKey", "-t", "NoSuchTopic", "-k", "none"],
            ["queryMsgById", "-i", "7F00000100002A9F00000000000FFFFF"],
            ["queryMsgByOffset", "-t", "Many", "-i", "0", "-o", "999999"],
        ):
            answer = run_command(*nothing, *here)
            assert (answer.returncode, answer.stdout) == (1, ""), (nothing, answer)
        refused = run_command("queryMsgById", "-i", "no id", *here)
        assert refused.returncode == 2
        assert "INVALID_MESSAGE_ID" in refused.stderr

        topics = run_command("topics", "--queues", *here)
        assert topics.returncode == 0
        assert re.search(r"^Many +broker-a +0 ", topics.stdout, re.MULTILINE)
        assert run_command("status", *here).returncode == 0


def test_a_message_cannot_steer_the_terminal_that_shows_it(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store", settings=SMALL_FILES) as stack:
        here = ["--address", stack.addresses["gateway"]]
        run_command("send", "-t", "Logs", "-k", "k", "-b", "\x1b]0;owned\x07 \x1b[2J", *here)
        stack.wait_until_built()
        for output in ("table", "json", "jsonl"):
            shown = run_command("queryMsgByKey", "-t", "Logs", "-k", "k", "--body", "text", "-o", output, *here)
            assert shown.returncode == 0
            assert "\x1b" not in shown.stdout
            assert "owned" in shown.stdout


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, str, list[str]]:
    """A store that a demonstration has made, what that printed, and the jobs of the reports in its console."""
    store = tmp_path_factory.mktemp("demonstrated") / "store"
    return store, *_demonstrate(store)


def assert_the_four_queries_are_shown(shown: str) -> None:
    for verb in ("queryMsgByKey", "queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset"):
        assert len(re.findall(rf"^\$ \S*reput {verb} ", shown, re.MULTILINE)) == 1, shown
    # A query by key shows a table, or the columns of one below each other; the other three show one whole message each.
    assert len(re.findall(r"^commit_log_offset +[0-9]+$", shown, re.MULTILINE)) == 3, shown
    assert "reput.gateway.v1.GatewayService/QueryMessageByKey" in shown


def test_the_demonstration_shows_the_four_queries_on_samples_and_ends_with_an_interrupt(
    demonstrated: tuple[pathlib.Path, str, list[str]],
) -> None:
    """What `make run` prints."""
    assert demonstrated[2] == ["audit"]
    assert "Appended 40 sample messages" in demonstrated[1]
    assert_the_four_queries_are_shown(demonstrated[1])


@pytest.mark.parametrize("read_only", [False, True])
def test_the_demonstration_shows_the_four_queries_on_a_store_that_it_finds(
    demonstrated: tuple[pathlib.Path, str, list[str]], capsys: pytest.CaptureFixture[str], read_only: bool
) -> None:
    """What `make run STORE=dir` prints once the services run."""
    with hosted_stack(demonstrated[0], read_only=read_only) as stack:
        demo._show(stack.background._stack, read_only)
    shown = capsys.readouterr().out
    assert "Appended" not in shown
    assert_the_four_queries_are_shown(shown)


def _demonstrate(store: pathlib.Path) -> tuple[str, list[str]]:
    """Run `reput demo` until its console has a report, and end it with Ctrl-C: what it printed, and the jobs of its reports."""
    ports = store.with_name("ports.json")
    command = [sys.executable, "-m", "cli.main", "demo", "--store", str(store), "--gateway-port", "0"]
    command += ["--console-port", "0", "--port-file", str(ports)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, **SMALL_LOG_FILES, **NO_REMOTING},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        shown = b""
        deadline = time.monotonic() + 60
        while b"GatewayService" not in shown:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = process.stdout.read1() if ready else b""
            if not piece:
                process.kill()
                raise AssertionError(f"the demonstration did not end: {shown.decode()}")
            shown += piece
        jobs: list[str] = []

        def has_report() -> bool:
            page = f"http://{json.loads(ports.read_text())['console']}/reports?format=json"
            with urllib.request.urlopen(page, timeout=WAIT_SECONDS_MAX) as answer:
                jobs[:] = [report["job"] for report in json.load(answer)["reports"]]
            return bool(jobs)

        wait_until(has_report, "the console has a report")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS_MAX) == 0
    return shown.decode(), jobs
