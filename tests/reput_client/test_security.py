"""What a client trusts and shows."""

import asyncio
import os
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import AsyncQueryClient, ClientSecurity, QueryClient, reloading_channel
from tests.support.certificates import LOOPBACK, Authority, Pem


class NamedCallers(grpc.GenericRpcHandler):
    """Answers every call, and remembers whose certificate its connection has."""

    def __init__(self):
        self.names = []

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request, context):
        self.names += [name.decode() for name in context.auth_context()["x509_common_name"]]
        return pb.GetStatusResponse().SerializeToString()


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def callers(authority) -> Iterator[tuple[NamedCallers, str]]:
    pem, callers = authority.issue("gateway", *LOOPBACK), NamedCallers()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((callers,))
    pair = pem.key.read_bytes(), pem.certificate.read_bytes()
    credentials = grpc.ssl_server_credentials([pair], pem.ca.read_bytes(), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield callers, f"127.0.0.1:{port}"
    server.stop(0).wait()


def security_of(pem: Pem) -> ClientSecurity:
    return ClientSecurity(ca_file=pem.ca, certificate_file=pem.certificate, key_file=pem.key, api_key="reput_x")


def test_a_client_showed_the_certificate_that_it_began_with_for_ever(authority, callers, monkeypatch):
    monkeypatch.setattr(reloading_channel, "LOOK_SECONDS", 0.0)
    server, address = callers
    with QueryClient(address, security=security_of(authority.issue("first", under="client"))) as client:
        client.installation()
        authority.issue("renewed", under="client")
        client.installation()
        client.installation()

    assert server.names == ["first", "renewed", "renewed"]


def test_a_client_of_asyncio_showed_the_certificate_that_it_began_with_for_ever(authority, callers, monkeypatch):
    monkeypatch.setattr(reloading_channel, "LOOK_SECONDS", 0.0)
    server, address = callers

    async def ask() -> None:
        async with AsyncQueryClient(address, security=security_of(authority.issue("first", under="client"))) as client:
            await client.installation()
            authority.issue("renewed", under="client")
            await client.installation()
            await client.installation()

    asyncio.run(ask())
    assert server.names == ["first", "renewed", "renewed"]


def test_a_new_key_beside_the_old_certificate_changes_nothing(authority):
    pem = authority.issue("a", under="client")
    files = security_of(pem).pem_files()
    before = files.current()
    other = authority.issue("b", under="other")

    os.replace(other.key, pem.key)
    assert files.current() is before
    os.replace(other.certificate, pem.certificate)
    assert files.current().certificate == pem.certificate.read_bytes()
    pem.ca.unlink()
    assert files.current() is files.current()
    with pytest.raises(FileNotFoundError):
        security_of(pem).pem_files()


def test_a_key_travels_to_this_machine_or_over_tls_and_nowhere_else():
    keyed = ClientSecurity(api_key="reput_x")
    for local in ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/tmp/s"):
        assert keyed.metadata(local)
    with pytest.raises(ValueError, match="without TLS"):
        keyed.metadata("gateway:8081")

    assert ClientSecurity(api_key="reput_x", tls=True).metadata("gateway:8081")
    assert ClientSecurity(api_key="reput_x", allow_plaintext=True).metadata("gateway:8081")
    assert ClientSecurity().metadata("gateway:8081") is None


def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    metadata = ClientSecurity(token_file=path).metadata("127.0.0.1:1")

    assert metadata() == (("authorization", "Bearer one"),)
    path.write_text("another")
    assert metadata() == (("authorization", "Bearer another"),)


def test_the_key_is_not_shown_with_the_object():
    assert "reput_x" not in repr(ClientSecurity(api_key="reput_x"))


@pytest.mark.parametrize(
    "fields",
    [{"certificate_file": "c"}, {"api_key": "k", "token_file": "t"}, {"tls": False, "ca_file": "c"}],
)
def test_what_contradicts_itself_is_refused(fields):
    with pytest.raises(ValueError, match=r"given|together"):
        ClientSecurity(**fields)


def test_the_environment_says_the_same():
    names = ("REPUT_CLIENT_CA", "REPUT_CLIENT_CERTIFICATE", "REPUT_CLIENT_KEY", "REPUT_TOKEN_FILE")
    security = ClientSecurity.from_environment(dict.fromkeys(names, "f"))

    assert (security.ca_file, security.key_file, security.token_file, security.uses_tls) == ("f", "f", "f", True)
    assert ClientSecurity.from_environment({}) == ClientSecurity()
