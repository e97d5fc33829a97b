"""`reput explain` beside a running stack with small index files, summarized as they are sealed, and after a restart."""

import json
import pathlib
import subprocess
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for, wait_until

SETTINGS = {"REPUT_INDEX_HASH_SLOT_COUNT": "50", "REPUT_INDEX_ENTRY_COUNT_MAX": "41"}  # 40 keys a file
COUNT = 300


def reput(stack: HostedStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("explain", *arguments, REPUT_ADDRESS=stack.addresses["gateway"])


def explain(stack: HostedStack, **fields: object) -> pb.ExplainQueryResponse:
    request = pb.ExplainQueryRequest(by_key=pb.QueryMessageByKeyRequest(topic="Explain", **fields))
    return stack.gateway.ExplainQuery(request, timeout=WAIT_SECONDS_MAX)


def lookup_of(stack: HostedStack, **fields: object) -> pb.ShardExplanation.Lookup:
    return explain(stack, **fields).shards[0].lookups[0]


def wait_until_summarized(stack: HostedStack, sealed_count: int) -> pb.ShardExplanation.Lookup:
    """The explanation of a key that is nowhere, once a file without summary is only the newest."""

    def find() -> Any:
        lookup = lookup_of(stack, key="nowhere")
        walked = [visit for visit in lookup.visits if visit.passed_over == pb.PASSED_OVER_UNSPECIFIED]
        return lookup if len(lookup.visits) == sealed_count + 1 and len(walked) <= 1 + sealed_count // 3 else None

    return wait_for(find, "the summaries of sealed files")


def test_a_key_is_explained_file_by_file_before_and_after_a_restart(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path, settings=SETTINGS) as stack:
        messages = [new_message("Explain", b"%d" % n, keys=["all", f"own-{n}"]) for n in range(COUNT)]
        receipts = []
        for at in range(0, COUNT, 100):
            request = pb.AppendMessagesRequest(messages=messages[at : at + 100])
            receipts += stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results
        stack.wait_until_built()
        # A unique key and two keys each: 900 entries, 22 full files and one of 20.
        wait_until_summarized(stack, 22)
        lookup = lookup_of(stack, key="own-7")
        assert (lookup.candidate_count, lookup.match_count, lookup.rejected_count) == (1, 1, 0)
        found = [visit for visit in lookup.visits if visit.candidate_count]
        assert [visit.name for visit in found] == [lookup.visits[-1].name], "the oldest file"
        assert {visit.entry_count for visit in lookup.visits} == {40, 20}

        everything = explain(stack, key="all", page_size=1000)
        assert everything.message_count == COUNT
        assert everything.completeness == message_pb2.COMPLETENESS_COMPLETE
        assert {row.name for row in everything.shards[0].steps} == {"index.search", "log.read"}

        done = reput(stack, "-t", "Explain", "-k", "own-7", "-o", "json")
        assert done.returncode == 0, done.stderr
        (shard,) = json.loads(done.stdout)["shards"]
        assert shard["lookups"][0]["match_count"] == 1
        assert {visit["passed_over"] for visit in shard["lookups"][0]["visits"]} >= {"filter"}
        done = reput(stack, "own-7", "-t", "Explain", "-o", "jsonl")
        assert json.loads(done.stdout)["broker_name"] == "broker-a"
        table = reput(stack, "-t", "Explain", "-k", "own-7").stdout
        assert "1 candidates: 1 match" in table
        assert "passed over by filter" in table
        assert reput(stack, "-i", receipts[0].offset_msg_id).returncode == 0
        assert reput(stack, "-t", "Explain", "-k", "nowhere").returncode == 1
        assert reput(stack, "-k", "no topic given").returncode == 2
        assert reput(stack, "-t", "NoSuchTopic", "-k", "x").returncode == 1
    made = tmp_path / "reput/index/summaries"
    summaries = sorted(path.name for path in made.iterdir())
    assert summaries == sorted(path.name for path in (tmp_path / "index").iterdir())[:-1]

    for path in list(made.iterdir())[:5]:
        path.unlink()
    with hosted_stack(tmp_path, settings=SETTINGS) as stack:
        stack.wait_until_built()
        wait_until_summarized(stack, 22)
        wait_until(
            lambda: sorted(path.name for path in made.iterdir()) == summaries, "the removed summaries are made again"
        )
        first, last = (row.store_time.ToMilliseconds() for row in (receipts[0], receipts[-1]))
        done = reput(stack, "-t", "Explain", "-k", "own-7", "-e", str(first - 1), "-o", "json")
        (lookup,) = json.loads(done.stdout)["shards"][0]["lookups"]
        assert lookup["match_count"] == 0
        # What the shard holds came along: now it need not be asked.
        done = reput(stack, "-t", "Explain", "-k", "own-7", "-e", str(first - 1), "-o", "json")
        (lookup,) = json.loads(done.stdout)["shards"][0]["lookups"]
        assert (lookup["passed_over"], lookup["visits"]) == ("time", [])
        assert lookup_of(stack, key="own-299").match_count == 1
        assert last >= first
