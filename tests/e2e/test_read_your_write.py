"""A message is found by the program that sent it: with the token of its receipt, by every query, every time."""

import json
import pathlib
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from reput_client import Completeness, Producer, QueryClient
from services.status import from_rpc_error
from store.errors import InvalidFreshnessTokenError
from store.format.freshness_token import encode_freshness_token
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.torture.amount import amount

TOPIC = "Fresh"
COMPLETE = message_pb2.COMPLETENESS_COMPLETE
THREAD_COUNT = 12


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("fresh") / "store") as running:
        yield running


def send(gateway: gateway_grpc.GatewayServiceStub, topic: str, key: str) -> message_pb2.AppendResult:
    request = pb.AppendMessagesRequest(messages=[new_message(topic, key.encode(), keys=[key])])
    (result,) = gateway.AppendMessages(request, timeout=60).results
    return result


def found_ids(
    gateway: gateway_grpc.GatewayServiceStub, sent: message_pb2.AppendResult, key: str, way: int
) -> list[str]:
    """What a query finds that is asked right behind the append.

    Others append at the same time, so the shard may be behind them, but not behind this message.
    """
    tokens = [sent.freshness_token]
    if way == 0:
        answer = gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key=key, freshness_tokens=tokens), timeout=60
        )
    elif way == 1:
        answer = gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=sent.unique_key, freshness_tokens=tokens),
            timeout=60,
        )
    elif way == 2:
        answer = gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(
                topic=TOPIC, queue_id=sent.queue_id, queue_offset=sent.queue_offset, max_messages=1,
                freshness_tokens=tokens,
            ),
            timeout=60,
        )  # fmt: skip
    else:
        answer = gateway.FindMessage(pb.FindMessageRequest(text=key, topic=TOPIC, freshness_tokens=tokens), timeout=60)
    (shard,) = answer.shards
    assert not shard.HasField("error"), answer
    assert shard.indexed_up_to_offset > sent.commit_log_offset
    messages = [match.message for match in answer.matches] if way == 3 else answer.messages
    return [message.offset_msg_id for message in messages]


@pytest.mark.parametrize(
    "round_count", [200, pytest.param(amount(sample=2_000, change=2_000, full=10_000), marks=pytest.mark.bench)]
)
def test_each_message_is_found_right_after_it_was_sent(stack: HostedStack, round_count: int) -> None:
    """The builders are some 10 ms behind, so without the tokens most rounds would find nothing."""
    local = threading.local()

    def round_trip(number: int) -> None:
        if not hasattr(local, "gateway"):
            local.gateway = gateway_grpc.GatewayServiceStub(stack.channel)
        key = f"key-{round_count}-{number}"
        sent = send(local.gateway, TOPIC, key)
        assert found_ids(local.gateway, sent, key, number % 4) == [sent.offset_msg_id], number

    with ThreadPoolExecutor(THREAD_COUNT) as pool:
        assert len(list(pool.map(round_trip, range(round_count)))) == round_count


def test_a_search_and_a_time_see_what_was_sent(stack: HostedStack) -> None:
    for number in range(20):
        key = f"scan-{number}"
        sent = send(stack.gateway, "FreshScan", key)
        tokens = [sent.freshness_token]
        scan = pb.SearchMessagesRequest(
            topic="FreshScan", queue_id=sent.queue_id, body_text=key, freshness_tokens=tokens
        )
        answer = stack.gateway.SearchMessages(scan, timeout=60)
        assert (answer.completeness, [m.offset_msg_id for m in answer.messages]) == (COMPLETE, [sent.offset_msg_id])
        at = stack.gateway.SearchOffset(
            pb.SearchOffsetRequest(
                topic="FreshScan", queue_id=sent.queue_id, time=sent.store_time, boundary=pb.BOUNDARY_UPPER,
                freshness_tokens=tokens,
            ),
            timeout=60,
        )  # fmt: skip
        assert (at.queue_offset, at.max_offset) == (sent.queue_offset, sent.queue_offset + 1)
        assert at.last_store_time == sent.store_time
        (shard,) = at.shards
        assert shard.indexed_up_to_offset > sent.commit_log_offset


def test_without_a_token_every_answer_says_how_far_it_knows(stack: HostedStack) -> None:
    """Offset and time, of the index and of the queues."""
    sent = send(stack.gateway, TOPIC, "lag")
    found_ids(stack.gateway, sent, "lag", 0)
    found_ids(stack.gateway, sent, "lag", 2)
    window = pb.SearchOffsetRequest(topic=TOPIC, queue_id=sent.queue_id, time=sent.store_time)
    answers = [
        stack.gateway.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic=TOPIC, key="lag"), timeout=60),
        stack.gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=sent.unique_key), timeout=60
        ),
        stack.gateway.FindMessage(pb.FindMessageRequest(text="lag"), timeout=60),
        stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic=TOPIC, queue_id=sent.queue_id), timeout=60
        ),
        stack.gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC), timeout=60),
        stack.gateway.SearchOffset(window, timeout=60),
    ]
    for answer in answers:
        (shard,) = answer.shards
        assert shard.broker_name == "broker-a"
        assert shard.log_end_offset >= shard.indexed_up_to_offset > sent.commit_log_offset
        assert shard.indexed_up_to_time.ToMilliseconds() >= sent.store_time.ToMilliseconds()


def test_foreign_and_changed_tokens_are_refused_at_once(stack: HostedStack) -> None:
    sent = send(stack.gateway, TOPIC, "refused")
    status = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=60)
    end = next(row.log_end_offset for row in status.services if row.service == "commitlog")
    tokens = [
        sent.freshness_token[:-1] + ("0" if sent.freshness_token[-1] != "0" else "1"),
        "2" + sent.freshness_token[1:],
        encode_freshness_token("broker-z", sent.commit_log_offset),
        encode_freshness_token("broker-a", end + 1_000_000),
        "",
    ]
    for token in tokens:
        begin = time.monotonic()
        request = pb.QueryMessageByKeyRequest(topic=TOPIC, key="refused", freshness_tokens=[token])
        with pytest.raises(grpc.RpcError) as refused:
            stack.gateway.QueryMessageByKey(request, timeout=60)
        assert isinstance(from_rpc_error(refused.value), InvalidFreshnessTokenError)
        assert time.monotonic() - begin < 30, "not after the whole deadline"


def test_the_client_library_finds_what_it_sent_by_the_receipt(stack: HostedStack) -> None:
    with Producer(stack.addresses["gateway"]) as producer, QueryClient(stack.addresses["gateway"]) as client:
        for number in range(20):
            receipt = producer.send_and_wait(TOPIC, b"from the library", keys=[f"library-{number}"])
            pages = client.by_key(TOPIC, f"library-{number}", after=receipt)
            assert [message.offset_msg_id for message in pages] == [receipt.offset_msg_id]
            assert pages.completeness is Completeness.COMPLETE
        futures = [producer.send(TOPIC, b"many", keys=["library-many"]) for _ in range(50)]
        receipts = [future.result() for future in futures]
        found = client.by_key(TOPIC, "library-many", after=receipts)
        assert {message.offset_msg_id for message in found} == {receipt.offset_msg_id for receipt in receipts}


def reput(stack: HostedStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, REPUT_ADDRESS=stack.addresses["gateway"])


def test_the_command_prints_a_token_and_takes_it(stack: HostedStack) -> None:
    (sent,) = json.loads(reput(stack, "send", "-t", "FreshCli", "-b", "b", "-k", "cli", "-o", "json").stdout)["results"]
    token = sent["freshness_token"]
    found = reput(stack, "find", "cli", "-t", "FreshCli", "--after", token, "-o", "json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert [row["offset_msg_id"] for row in document["messages"]] == [sent["offset_msg_id"]]
    assert document["shards"][0]["indexed_up_to_offset"] > sent["commit_log_offset"]
    queue = ["-t", "FreshCli", "-i", str(sent["queue_id"])]
    for verb in (
        ["queryMsgByKey", "-t", "FreshCli", "-k", "cli"],
        ["queryMsgByUniqueKey", "-t", "FreshCli", "-i", sent["unique_key"]],
        ["queryMsgByOffset", *queue, "-o", str(sent["queue_offset"])],
        ["search", "-t", "FreshCli"],
        ["searchOffset", *queue, "--time", sent["store_time"]],
    ):
        done = reput(stack, *verb, "--after", token, "-o", "json")
        assert (done.returncode, done.stderr) == (0, ""), verb
        refused = reput(stack, *verb, "--after", token[:-1])
        assert (refused.returncode, "INVALID_FRESHNESS_TOKEN" in refused.stderr) == (2, True), verb
    at = json.loads(reput(stack, "searchOffset", *queue, "--time", sent["store_time"], "-o", "json").stdout)
    assert (at["queue_offset"], at["first_store_time"]) == (sent["queue_offset"], sent["store_time"])


def test_a_builder_that_cannot_build_costs_its_share_of_the_deadline_and_is_named(tmp_path: pathlib.Path) -> None:
    """A folder in /proc stands for a disk that refuses: it does so for root too."""
    store = tmp_path / "store"
    with hosted_stack(store) as stack:
        before = send(stack.gateway, "before", "k")
        stack.wait_until_built()
        (store / "consumequeue" / "blocked").symlink_to("/proc/sys/fs")
        sent = send(stack.gateway, "blocked", "k")
        request = pb.QueryMessageByOffsetRequest(
            topic="before", queue_id=before.queue_id, max_messages=9, freshness_tokens=[sent.freshness_token]
        )
        answer = stack.gateway.QueryMessageByOffset(request, timeout=3)
        shown = reput(
            stack, "queryMsgByOffset", "-t", "before", "-i", str(before.queue_id), "-o", "0",
            "--after", sent.freshness_token, "--timeout", "3",
        )  # fmt: skip
        (store / "consumequeue" / "blocked").unlink()
        healed = stack.gateway.QueryMessageByOffset(request, timeout=60)

    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [message.offset_msg_id for message in answer.messages] == [before.offset_msg_id]
    (shard,) = answer.shards
    assert f"byte {sent.commit_log_offset}" in shard.error.message
    assert shard.indexed_up_to_offset <= sent.commit_log_offset
    assert shown.returncode == 3
    assert "broker-a" in shown.stderr
    assert healed.completeness == COMPLETE


def found_without_a_token(
    gateway: gateway_grpc.GatewayServiceStub, sent: message_pb2.AppendResult, topic: str, key: str
) -> dict[str, tuple[int, list[str]]]:
    """By query, the completeness and the ids of what is found right behind the append."""
    shared = {"topic": topic, "queue_id": sent.queue_id}
    answers = {
        "key": gateway.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic=topic, key=key), timeout=60),
        "unique key": gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic=topic, unique_key=sent.unique_key), timeout=60
        ),
        "offset": gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(queue_offset=sent.queue_offset, **shared), timeout=60
        ),
        "search": gateway.SearchMessages(pb.SearchMessagesRequest(body_text=key, **shared), timeout=60),
    }
    found = {
        name: (answer.completeness, [m.offset_msg_id for m in answer.messages]) for name, answer in answers.items()
    }
    find = gateway.FindMessage(pb.FindMessageRequest(text=key, topic=topic), timeout=60)
    found["find"] = (find.completeness, [match.message.offset_msg_id for match in find.matches])
    return found


def test_an_acknowledged_message_was_not_found_without_a_token_and_the_answer_was_complete(
    tmp_path: pathlib.Path,
) -> None:
    """Each query in turn is the first behind its append, with a stream of other appends and without."""
    settings = {"REPUT_GATEWAY_BUILDER_WAIT_MILLIS": "10000"}
    with hosted_stack(tmp_path / "store", settings=settings) as stack:
        over = threading.Event()

        def keep_appending() -> None:
            channel = grpc.insecure_channel(stack.addresses["gateway"])
            with channel:
                others = gateway_grpc.GatewayServiceStub(channel)
                while not over.is_set():
                    send(others, "Others", "other")

        thread = threading.Thread(target=keep_appending)
        try:
            for number in range(20):
                if number == 10:
                    thread.start()
                key = f"plain-{number}"
                sent = send(stack.gateway, f"Plain{number % 5}", key)
                found = found_without_a_token(stack.gateway, sent, f"Plain{number % 5}", key)
                assert found == dict.fromkeys(found, (COMPLETE, [sent.offset_msg_id])), number
        finally:
            over.set()
            if thread.ident is not None:
                thread.join()
