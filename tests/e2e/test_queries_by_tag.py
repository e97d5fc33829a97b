"""Queries by topic and tags: complete where the index has entries of tags for all messages, and never falsely empty."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from cli.main import main  # noqa: F401 - the command is run in this process
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import QueryClient, ReputClientError
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "Orders"
TAGS = ("TagA", "Tag", "创建", "A || B", None)


def append(stack: HostedStack, count: int, prefix: str = "u") -> None:
    messages = [
        new_message(TOPIC, b"x", unique_key=f"{prefix}{n}", **({"tags": tags} if (tags := TAGS[n % 5]) else {}))
        for n in range(count)
    ]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    store = tmp_path_factory.mktemp("tags") / "store"
    with hosted_stack(store, settings={"REPUT_INDEX_TAGS": "on"}) as running:
        append(running, 50)
        yield running


def by_tag(stack: HostedStack, tags: str, **fields: object) -> pb.QueryMessageByKeyResponse:
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=tags, key_type=pb.KEY_TYPE_TAGS, **fields)
    return stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)


@pytest.mark.parametrize("number", range(4))
def test_messages_are_found_by_their_whole_tags_newest_first(stack: HostedStack, number: int) -> None:
    wanted = [f"u{n}" for n in reversed(range(50)) if n % 5 == number]
    found = by_tag(stack, TAGS[number] or "")
    assert [message.unique_key for message in found.messages] == wanted
    assert found.completeness == message_pb2.COMPLETENESS_COMPLETE
    first = by_tag(stack, TAGS[number] or "", page_size=4)
    rest = by_tag(stack, TAGS[number] or "", page_token=first.next_page_token)
    assert [message.unique_key for message in (*first.messages, *rest.messages)] == wanted


def test_a_page_token_of_a_query_by_key_does_not_fit_one_by_tags(stack: HostedStack) -> None:
    token = by_tag(stack, "TagA", page_size=2).next_page_token
    with pytest.raises(grpc.RpcError) as refused:
        request = pb.QueryMessageByKeyRequest(topic=TOPIC, key="TagA", page_token=token)
        stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_client_and_the_command_find_by_tags(stack: HostedStack) -> None:
    with QueryClient(stack.addresses["gateway"]) as client:
        assert [message.unique_key for message in client.by_tag(TOPIC, "创建", max_messages=2)] == ["u47", "u42"]
    arguments = ("find", "TagA", "--tag", "-t", TOPIC, "-m", "2", "--address", stack.addresses["gateway"])
    found = run_command(*arguments, "-o", "jsonl")
    assert found.stdout.count("\n") == 2, found.stderr
    assert '"u45"' in found.stdout
    assert run_command("find", "TagA", "--tag", "--address", stack.addresses["gateway"]).returncode == 2


def test_an_index_without_entries_of_tags_refuses_and_one_that_got_them_later_says_what_may_be_missing(
    tmp_path: Path,
) -> None:
    with hosted_stack(tmp_path / "store", settings={"REPUT_INDEX_TAGS": "off"}) as stack:
        append(stack, 10)
        address = stack.addresses["gateway"]
        with QueryClient(address) as client, pytest.raises(ReputClientError, match="REPUT_INDEX_TAGS=on"):
            list(client.by_tag(TOPIC, "TagA"))
        scanned = run_command(
            "queryMsgByKey", "-t", TOPIC, "-k", "TagA", "-p", "T", "-o", "jsonl", "--address", address
        )
        assert scanned.stdout.count("\n") == 2, scanned.stderr
    with hosted_stack(tmp_path / "store", settings={"REPUT_INDEX_TAGS": "on"}) as stack:
        append(stack, 5, "v")
        found = by_tag(stack, "TagA")
        assert [message.unique_key for message in found.messages] == ["v0"]
        assert found.completeness == message_pb2.COMPLETENESS_PARTIAL
        assert "may be missing" in found.shards[0].error.message
    with hosted_stack(tmp_path / "store") as stack:  # it stays so
        append(stack, 1, "w")
        assert [message.unique_key for message in by_tag(stack, "TagA").messages] == ["w0", "v0"]
