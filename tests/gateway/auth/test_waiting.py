"""What waits, as a caller sees it that may not see all topics; and the audit of what ends a wait."""

import json

import grpc
import pytest

from gateway.auth.access import READ, Access, Role
from gateway.auth.caller_shards import CallerShards, VisibleTopics, work_for
from gateway.ports.deadline import Deadline
from gateway.ports.shards import Shards
from gateway.ports.waiting import LIST_SCHEDULED, LIST_TRANSACTIONS
from gateway.queries.page import PageTokens
from gateway.reput.waiting import SCHEDULED, TRANSACTIONS
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from store.errors import PermissionDeniedError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, encode_handle
from tests.gateway.auth.conftest import OTHER, OWN, SecuredStack
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.waiting.memory_waiting import MemoryScheduling, delayed, half
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.fixture
def shards(fan_out):
    waiting = MemoryScheduling(
        "broker-a", [half("A", OWN), half("B", OTHER)], [delayed("C", topic=OTHER), delayed("D", topic=OWN)]
    )
    return CallerShards(Shards([waiting.in_shard(MemoryShard([]).shard())], fan_out))


def seen(shards, patterns, topic=""):
    """Unique keys and counts of both lists, as a reader of these topics gets them."""
    with work_for(VisibleTopics(Access("c", {Role.READ: patterns}), READ)):
        (shard,) = shards.now()
    halves = shard.call(
        LIST_TRANSACTIONS, schedule_pb.ListPendingTransactionsRequest(topic=topic, page_size=64), Deadline.after(60)
    )
    waits = shard.call(
        LIST_SCHEDULED, schedule_pb.ListScheduledMessagesRequest(topic=topic, page_size=64), Deadline.after(60)
    )
    return [
        ([each.unique_key for each in halves.transactions], halves.pending_count),
        ([each.unique_key for each in waits.messages], waits.pending_count),
    ]


def test_messages_of_topics_that_the_caller_may_not_see_are_left_out_and_not_counted(shards) -> None:
    assert seen(shards, ["*"]) == [(["A", "B"], 2), (["C", "D"], 2)]
    assert seen(shards, ["shop-*"]) == [(["A"], 0), (["D"], 0)]
    assert seen(shards, ["shop-*"], OWN) == [(["A"], 0), (["D"], 0)]
    with pytest.raises(PermissionDeniedError):
        seen(shards, ["shop-*"], OTHER)


@pytest.mark.parametrize("listing", [TRANSACTIONS, SCHEDULED], ids=["transactions", "scheduled"])
@pytest.mark.parametrize("page_size", [1, 2, 64])
def test_pages_did_not_count_the_messages_of_a_topic_that_the_caller_may_not_see(fan_out, listing, page_size) -> None:
    """Each of them gave an empty page and a token."""

    def pages(hidden_count: int) -> list[list[str]]:
        halves = [half(f"B{n}", OTHER) for n in range(hidden_count)] + [half("A", OWN), half("A2", OWN)]
        waits = [delayed(f"B{n}", topic=OTHER) for n in range(hidden_count)]
        service = MemoryScheduling("broker-a", halves, [*waits, delayed("A", topic=OWN), delayed("A2", topic=OWN)])
        source = CallerShards(Shards([service.in_shard(MemoryShard([]).shard())], fan_out))
        found, token = [], ""
        while not found or token:
            with work_for(VisibleTopics(Access("c", {Role.READ: ["shop-*"]}), READ)):
                page = listing.page(source.now(), PageTokens("s"), "", page_size, token, Deadline.after(60))
            found.append([item.unique_key for _, item in page.items])
            token = page.next_page_token
        return found

    assert pages(40) == pages(0)


def test_the_audit_log_has_the_verdicts_and_recalls_of_each_client(secured: SecuredStack) -> None:
    writer = secured.as_client("own-writer")
    name = WaitingHandle(OWN, "broker-a", 1_000, "K")
    for call, request in (
        (
            writer.EndTransaction,
            pb.EndTransactionRequest(transaction_id=encode_handle(TRANSACTION, name), resolution=1),
        ),
        (writer.RecallMessage, pb.RecallMessageRequest(recall_handle=encode_handle(RECALL, name))),
    ):
        request.topic = OWN
        with pytest.raises(grpc.RpcError) as refused:
            call(request, timeout=WAIT_SECONDS_MAX)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND

    def audited() -> set[tuple[str, ...]]:
        lines = [json.loads(line) for line in secured.stack.log().splitlines() if '"audit.append"' in line]
        return {(line["client"], line["method"].rpartition("/")[2], line["topic"], line["outcome"]) for line in lines}

    wanted = {("own-writer", method, OWN, "NOT_FOUND") for method in ("EndTransaction", "RecallMessage")}
    wait_until(lambda: wanted <= audited(), audited)  # a line is written after the answer
