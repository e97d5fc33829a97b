"""The six services over TLS, each with its own certificate: what works, who is let in, and certificates that are exchanged."""

import datetime
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput.commitlog.v1 import commitlog_service_pb2
from reput.consumequeue.v1 import consumequeue_service_pb2
from reput.consumer.v1 import consumer_service_pb2
from reput.index.v1 import index_service_pb2
from reput.schedule.v1 import schedule_service_pb2
from reput_client import ClientSecurity, PermissionDeniedError, Producer, QueryClient, UnauthenticatedError
from services.methods import METHODS
from tests.gateway.auth.conftest import access_text, key_of
from tests.support.certificates import LOOPBACK, Authority, Pem
from tests.support.command import run_command
from tests.support.ports import free_port
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX

ROLES = ("gateway", "commitlog", "consumequeue", "index", "consumer", "schedule")
INNER = {
    "commitlog": commitlog_service_pb2,
    "consumequeue": consumequeue_service_pb2,
    "index": index_service_pb2,
    "consumer": consumer_service_pb2,
    "schedule": schedule_service_pb2,
}
# Who may call what, stated a second time: a row that is missing here fails the test.
CALLED_BY = {
    "commitlog": {
        "AppendMessages": "gateway",
        "AppendMessageStream": "gateway",
        "AppendInternal": "consumer schedule",
        "GetMessage": "gateway consumequeue consumer schedule",
        "BatchGetMessages": "gateway consumequeue consumer schedule",
        "ListTopics": "gateway consumequeue consumer schedule",
        "CreateTopic": "gateway",
        "UpdateTopic": "gateway",
        "DeleteTopic": "gateway",
        "ReadConfigFile": "consumer schedule",
        "WriteConfigFile": "consumer schedule",
        "Reput": "consumequeue index consumer schedule",
        "ReportProgress": "consumequeue index consumer schedule",
        "RemoveFollower": "",
        "Replicate": "commitlog",
        "FetchLog": "commitlog",
        "GetStatus": "gateway commitlog consumequeue index consumer schedule",
    },
    "consumequeue": dict.fromkeys(
        ("ListQueues", "ListLightQueues", "GetQueueUnits", "SearchOffset", "GetStatus"), "gateway consumer schedule"
    ),
    "index": dict.fromkeys(("SearchKey", "GetFilterPages", "GetStatus"), "gateway"),
    "consumer": dict.fromkeys(
        (
            "PopMessages",
            "AckMessages",
            "ChangeInvisibleDuration",
            "ForwardToDeadLetterTopic",
            "PullMessages",
            "SendBackMessages",
            "LockQueues",
            "CommitOffsets",
            "GetOffsets",
            "ResetOffsets",
            "SeeTopics",
            "KeepClients",
            "EndClient",
            "WatchArrivals",
            "ListGroups",
            "GetFigures",
            "GetGroup",
            "UpdateGroup",
            "DeleteGroup",
            "TrackMessage",
            "SyncLiteSubscription",
            "ListLiteTopics",
            "GetStatus",
        ),
        "gateway",
    ),
    "schedule": dict.fromkeys(
        (
            "EndTransaction",
            "EndTransactions",
            "RecallMessage",
            "ListPendingTransactions",
            "ListScheduledMessages",
            "KeepProducers",
            "WatchChecks",
            "GetStatus",
        ),
        "gateway",
    ),
}
SMALL = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
}


class SecureService(Service):
    """A service over TLS, asked for its health with a certificate."""

    def __init__(self, name: str, store: Path, caller: ClientSecurity, settings: dict[str, str]) -> None:
        self._caller = caller
        super().__init__(name, store, settings, wait="")

    @property
    def channel(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = open_channel(self.address, self._caller)
        return self._channel


def open_channel(address: str, caller: ClientSecurity) -> grpc.Channel:
    credentials = caller.channel_credentials()
    options = [("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


def as_caller(pem: Pem) -> ClientSecurity:
    return ClientSecurity(ca_file=pem.ca, certificate_file=pem.certificate, key_file=pem.key)


class SecureStack:
    """Services by name, and the certificates."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.authority = Authority(directory / "tls")
        self.pem = {role: self.authority.issue(role, *LOOPBACK, f"spiffe://reput/{role}") for role in ROLES}
        self.health_port = free_port()
        store, access = directory / "store", directory / "access.toml"
        access.write_text(access_text({"clerk": {"read": ["shop-*"], "write": ["shop-*"]}, "chief": {"admin": ["*"]}}))
        self.services: dict[str, SecureService] = {}

        def start(name: str, **settings: str) -> None:
            pem = self.pem[name]
            caller = ClientSecurity(ca_file=pem.ca) if name == "gateway" else as_caller(self.pem["gateway"])
            service = SecureService(name, store, caller, pem.settings() | SMALL | settings)
            self.services[name] = stack.enter_context(service)

        start(
            "commitlog",
            REPUT_COMMITLOG_HEALTH_ADDRESS=f"127.0.0.1:{self.health_port}",
            REPUT_ALLOWED_IDENTITIES=";".join(f"{role}=spiffe://reput/{role}" for role in ROLES),
        )
        self.services["commitlog"].wait_until()
        target = {"REPUT_COMMITLOG_TARGET": self.services["commitlog"].address}
        start("consumequeue", **target)
        start("index", **target)
        for name in ("consumequeue", "index"):
            self.services[name].wait_until()
        for name in ("consumequeue", "index"):
            target[f"REPUT_{name.upper()}_TARGET"] = self.services[name].address
        for name in ("consumer", "schedule"):
            start(name, **target)
        for name in ("consumer", "schedule"):
            self.services[name].wait_until()
            target[f"REPUT_{name.upper()}_TARGET"] = self.services[name].address
        start(
            "gateway",
            REPUT_GATEWAY_AUTH="on",
            REPUT_GATEWAY_ACCESS_FILE=str(access),
            **target,
            REPUT_GATEWAY_CONSOLE="off",
        )
        self.services["gateway"].wait_until()

    def address(self, name: str) -> str:
        return self.services[name].address

    def client(self, name: str) -> ClientSecurity:
        return ClientSecurity(ca_file=self.authority.path, api_key=key_of(name))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStack]:
    with ExitStack() as stack:
        yield SecureStack(stack, tmp_path_factory.mktemp("mutual-tls"))


def test_messages_go_in_and_come_out_over_tls_by_every_client_of_ours(secure: SecureStack):
    address, clerk = secure.address("gateway"), secure.client("clerk")
    with Producer(address, security=clerk) as producer:
        receipt = producer.send_and_wait("shop-orders", b"hello", keys=["tls-key"])
        refused, beside_it = producer.send("bank", b"not mine"), producer.send("shop-orders", b"in the same request")
        with pytest.raises(PermissionDeniedError):
            refused.result(timeout=WAIT_SECONDS_MAX)
        assert beside_it.result(timeout=WAIT_SECONDS_MAX).queue_offset >= 0
    with QueryClient(address, security=clerk) as client:
        assert client.by_id(receipt.offset_msg_id).body == b"hello"
        with pytest.raises(PermissionDeniedError):
            client.status()
    nobody = ClientSecurity(ca_file=secure.authority.path)
    with QueryClient(address, security=nobody) as client, pytest.raises(UnauthenticatedError):
        client.by_id(receipt.offset_msg_id)
    with Producer(address, security=nobody) as producer, pytest.raises(UnauthenticatedError):
        producer.send_and_wait("shop-orders", b"from nobody")
    command = ["queryMsgById", "-i", receipt.offset_msg_id, "-O", "json"]
    command += ["--address", address, "--tls-ca", str(secure.authority.path)]
    told = run_command(*command, REPUT_API_KEY=key_of("clerk"))
    assert told.returncode == 0, told.stderr
    assert "shop-orders" in json.dumps(json.loads(told.stdout))


@pytest.mark.parametrize("service", INNER)
def test_each_service_may_call_what_it_needs_and_nothing_else(secure: SecureStack, service: str):
    """Also nobody with a certificate of the authority that names no service."""
    (descriptor,) = INNER[service].DESCRIPTOR.services_by_name.values()
    assert {method.name for method in descriptor.methods} == set(CALLED_BY[service])
    stranger = secure.authority.issue("stranger", *LOOPBACK, "spiffe://reput/operator")
    callers = {role: secure.pem[role] for role in ROLES} | {"stranger": stranger}

    for caller, pem in callers.items():
        with open_channel(secure.address(service), as_caller(pem)) as channel:
            for method in descriptor.methods:
                code = outcome(channel, descriptor.full_name, method, caller)
                is_allowed = caller in CALLED_BY[service][method.name].split()
                assert (code is not grpc.StatusCode.PERMISSION_DENIED) == is_allowed, (caller, method.name, code)


def outcome(channel: grpc.Channel, service: str, method, caller: str) -> grpc.StatusCode:
    kind = ("stream" if method.client_streaming else "unary") + ("_stream" if method.server_streaming else "_unary")
    request = GetMessageClass(method.input_type)()
    if method.name == "ReportProgress":
        request.builder = caller
    call = getattr(channel, kind)(
        f"/{service}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    try:
        answer = call(iter([request]) if method.client_streaming else request, timeout=WAIT_SECONDS_MAX)
        if method.server_streaming:
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_every_rpc_between_services_has_a_rule():
    paths = {
        f"/{service.full_name}/{method.name}"
        for module in INNER.values()
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert all(METHODS[path].roles for path in paths)


def test_a_builder_reports_no_progress_in_the_name_of_the_other(secure: SecureStack):
    with open_channel(secure.address("commitlog"), as_caller(secure.pem["index"])) as channel:
        report = channel.unary_unary(
            "/reput.commitlog.v1.CommitLogService/ReportProgress",
            request_serializer=lambda request: request.SerializeToString(),
        )
        with pytest.raises(grpc.RpcError) as refused:
            report(
                commitlog_service_pb2.ReportProgressRequest(builder="consumequeue", next_offset=1),
                timeout=WAIT_SECONDS_MAX,
            )

    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("kind", ["plaintext", "no certificate", "rogue", "expired"])
def test_who_shows_no_sound_certificate_does_not_get_in(secure: SecureStack, tmp_path: Path, kind: str):
    ca, day = secure.authority.path, datetime.timedelta(days=1)
    rogue = Authority(tmp_path, "rogue").issue("gateway", *LOOPBACK, "spiffe://reput/gateway")
    expired = secure.authority.issue("gateway", *LOOPBACK, "spiffe://reput/gateway", lifetime=-day, under="expired")
    caller = {
        "plaintext": ClientSecurity(),
        "no certificate": ClientSecurity(ca_file=ca),
        "rogue": ClientSecurity(ca_file=ca, certificate_file=rogue.certificate, key_file=rogue.key),
        "expired": as_caller(expired),
    }[kind]

    with open_channel(secure.address("commitlog"), caller) as channel, pytest.raises(grpc.RpcError) as refused:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_health_is_told_without_tls_where_it_is_asked_for_and_nothing_else_is(secure: SecureStack):
    with grpc.insecure_channel(f"127.0.0.1:{secure.health_port}") as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS_MAX)
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/reput.commitlog.v1.CommitLogService/GetStatus")(b"", timeout=WAIT_SECONDS_MAX)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_an_exchanged_certificate_is_shown_to_the_next_caller_and_a_broken_one_is_not(secure: SecureStack):
    files, address = secure.pem["gateway"], secure.address("gateway")

    def serial() -> str:
        context = ssl.create_default_context(cafile=str(secure.authority.path))
        host, port = address.split(":")
        with (
            socket.create_connection((host, int(port)), timeout=WAIT_SECONDS_MAX) as raw,
            context.wrap_socket(raw, server_hostname=host) as connection,
        ):
            return connection.getpeercert()["serialNumber"]

    before = serial()
    assert serial() == before
    files.certificate.write_bytes(b"half of a rotation")
    assert serial() == before
    secure.authority.issue("gateway", *LOOPBACK, "spiffe://reput/gateway")

    assert serial() != before
    assert "tls.reload_failed" in secure.services["gateway"].log()
    with QueryClient(address, security=secure.client("chief")) as client:
        assert {row.service: row.error for row in client.status()} == dict.fromkeys(INNER, None)


def test_the_services_log_no_key_and_no_secret(secure: SecureStack):
    logs = "".join(service.log() for service in secure.services.values())

    assert "audit.denied" in logs
    for secret in (key_of("clerk"), key_of("chief"), "PRIVATE KEY", "BEGIN"):
        assert secret not in logs
