"""A real stack whose gateway wants its clients to sign in, with messages of two topics."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

OWN = "shop-orders"
OTHER = "bank-transfers"
CLIENTS = {
    "own-reader": {"read": ["shop-*"]},
    "own-writer": {"write": ["shop-*"]},
    "own-admin": {"admin": ["shop-*"]},
    "other-reader": {"read": [OTHER]},
    "other-writer": {"write": [OTHER]},
    "chief": {"admin": ["*"]},
    "idler": {},
}


def key_of(client: str) -> str:
    """Any text that begins so is a key; those of tests need not be random."""
    return f"reput_test-key-of-{client}"


def access_text(clients: dict[str, dict[str, list[str]]]) -> str:
    parts = []
    for name, rights in clients.items():
        parts.append(f'[[clients]]\nname = "{name}"')
        parts.append(f'api_key_sha256 = ["{hashlib.sha256(key_of(name).encode()).hexdigest()}"]')
        parts += [f"{role} = {patterns}".replace("'", '"') for role, patterns in rights.items()]
    return "\n".join(parts) + "\n"


def shown(client: str | None) -> tuple[tuple[str, str], ...]:
    return () if client is None else (("authorization", f"Bearer {key_of(client)}"),)


class As(gateway_grpc.GatewayServiceStub):
    """A stub that shows a client's key with each call."""

    def __init__(self, channel: grpc.Channel, client: str | None) -> None:
        super().__init__(grpc.intercept_channel(channel, _Shows(shown(client))))


class _Shows(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, metadata):
        self._metadata = metadata

    def _go_on(self, continuation, details, request):
        class Details(grpc.ClientCallDetails):
            method, timeout, metadata = details.method, details.timeout, self._metadata
            credentials, wait_for_ready, compression = None, None, None

        return continuation(Details(), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_stream = _go_on


class SecuredStack:
    """The stack, and messages in it: one of each topic with the same key and with ids."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.chief = As(stack.channel, "chief")
        stack.gateway = self.chief  # which `wait_until_built` asks
        self.ids: dict[str, str] = {}
        self.unique_keys: dict[str, str] = {}
        for topic in (OWN, OTHER):
            message = message_pb2.NewMessage(topic=topic, body=f"body of {topic}".encode(), keys=["common-key"])
            result = self.chief.AppendMessages(
                pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX
            ).results[0]
            self.ids[topic], self.unique_keys[topic] = result.offset_msg_id, result.unique_key
        stack.wait_until_built()

    def as_client(self, client: str | None) -> As:
        return As(self.stack.channel, client)


@pytest.fixture(scope="package")
def access_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "access.toml"
    path.write_text(access_text(CLIENTS))
    return path


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory, access_file: Path) -> Iterator[SecuredStack]:
    settings = {
        "REPUT_GATEWAY_AUTH": "on",
        "REPUT_GATEWAY_ACCESS_FILE": str(access_file),
        "REPUT_LOG_LEVEL": "debug",
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
        "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
        "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
    }
    with running_stack(tmp_path_factory.mktemp("store"), "--single-process", settings=settings) as stack:
        yield SecuredStack(stack)
