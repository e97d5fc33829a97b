"""Rights by topic, and what names that callers invent may cost."""

import tracemalloc
from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.auth.access import ANY, DECISION_COUNT_MAX, NAME_CHARACTERS_MAX, READ, WRITE, Access, Role, _decided
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.status import from_rpc_error
from store.errors import InvalidArgumentError
from tests.gateway.auth.conftest import SecuredStack, shown
from tests.gateway.auth.test_answers import refusal
from tests.support.waiting import WAIT_SECONDS_MAX

LONG = 1 << 20


def kept_bytes(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pattern", ["orders-*", "*"])
def test_names_longer_than_a_topics_leave_nothing_in_memory(pattern: str) -> None:
    access = Access("c", {Role.READ: [pattern]})

    def ask() -> None:
        for number in range(64):
            assert access.allows(READ, f"{number:0{LONG}d}") is (pattern == "*")

    assert kept_bytes(ask) < LONG


def test_the_decisions_of_all_clients_together_are_bounded() -> None:
    """JWTs make a client of each combination of groups, so a bound for each client would be none."""
    topic = "\U0001f600" * (NAME_CHARACTERS_MAX - 5)  # the widest characters
    before = _decided.cache_info().currsize

    def ask() -> None:
        for client in range(8):
            access = Access(f"c{client}", {Role.READ: ["orders-*"]})
            for number in range(DECISION_COUNT_MAX // 4):
                assert not access.allows(ANY, f"{topic}{number:05d}")

    kept = kept_bytes(ask)
    assert before <= _decided.cache_info().currsize <= DECISION_COUNT_MAX
    assert kept < 28 << 20
    _decided.cache_clear()


def test_two_clients_with_one_name_have_their_own_rights() -> None:
    reader, writer = Access("c", {Role.READ: ["t"]}), Access("c", {Role.WRITE: ["t"]})

    assert (reader.allows(READ, "t"), writer.allows(READ, "t")) == (True, False)
    assert (reader.allows(WRITE, "t"), writer.allows(WRITE, "t")) == (False, True)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("client", ["own-reader", "chief"])
def test_a_caller_that_invents_long_names_is_refused_and_fills_no_memory(secured: SecuredStack, client: str) -> None:
    stub, gateway = secured.as_client(client), secured.stack.process.pid

    def ask(number: int) -> Exception:
        name = f"{number:0{4 * LONG - 100}d}"
        return refusal(
            lambda: stub.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic=name, key="k"), timeout=WAIT_SECONDS_MAX)
        )

    assert isinstance(ask(0), InvalidArgumentError)
    for number in range(8):  # buffers of gRPC have their size afterwards
        ask(number)
    before = resident_bytes(gateway)
    for number in range(24):
        error = ask(number)
        assert isinstance(error, InvalidArgumentError)
        assert error.metadata["field"] == "topic"
    assert resident_bytes(gateway) - before < 48 << 20


@pytest.mark.parametrize("client", ["own-writer", "chief"])
def test_appends_with_long_names_are_refused_before_rights_are_asked(secured: SecuredStack, client: str) -> None:
    messages = [message_pb2.NewMessage(topic=topic, body=b"x") for topic in ("shop-orders", "x" * 256)]
    request = pb.AppendMessagesRequest(messages=messages)

    error = refusal(lambda: secured.as_client(client).AppendMessages(request, timeout=WAIT_SECONDS_MAX))

    assert isinstance(error, InvalidArgumentError)
    assert (error.metadata["field"], error.metadata["index"]) == ("topic", "1")


def test_rocketmqs_calls_with_long_names_are_refused_alike(secured: SecuredStack) -> None:
    route = v2.QueryRouteRequest(topic=v2.Resource(name="x" * 256))
    with pytest.raises(grpc.RpcError) as refused:
        v2_grpc.MessagingServiceStub(secured.stack.channel).QueryRoute(
            route, timeout=WAIT_SECONDS_MAX, metadata=shown("own-reader")
        )

    assert isinstance(from_rpc_error(refused.value), InvalidArgumentError)
