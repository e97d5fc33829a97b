"""Certificates that change under a running process, on both sides; and who may open a service's sockets."""

import os
import stat
import threading
from contextlib import contextmanager

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput_client.reloading_channel import LOOK_SECONDS, ReloadingChannel
from services.calling.channel import open_channel
from services.local.server import serve_local
from services.local.wire import APPENDS, LOOKUPS
from services.serving import server_options
from services.serving.server import ServiceServer
from services.serving.tls import TlsIdentity
from services.settings.certificates import TlsFiles, parse_identities
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidSettingError
from tests.services.loopback import SERVICE_NAME, ScriptedCommitLog
from tests.support.certificates import LOOPBACK, URI, Authority, Pem, general_names
from tests.support.waiting import WAIT_SECONDS_MAX


def files_of(pem: Pem) -> TlsFiles:
    return TlsFiles(pem.certificate, pem.key, pem.ca)


@contextmanager
def served(settings: ServiceSettings, **behaviours):
    server = ServiceServer("commitlog", settings)
    server.add(SERVICE_NAME, pb_grpc.add_CommitLogServiceServicer_to_server, ScriptedCommitLog(**behaviours))
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        yield server
    finally:
        server.stop()
        ended.join()


def test_files_that_do_not_fit_together_change_nothing(tmp_path):
    authority = Authority(tmp_path)
    pem = authority.issue("a", *LOOPBACK)
    identity = TlsIdentity(files_of(pem))
    before = identity.current()
    other = authority.issue("b", *LOOPBACK)

    os.replace(other.key, pem.key)  # a new key beside the old certificate
    assert identity.current() is before
    os.replace(other.certificate, pem.certificate)

    assert identity.current() is not before
    assert identity.current() is identity.current()
    pem.ca.unlink()
    assert identity.current() is not before


def test_a_change_in_the_middle_of_reading_is_not_taken(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    pem = authority.issue("a", *LOOPBACK)
    identity = TlsIdentity(files_of(pem))
    before, read = identity.current(), identity._read
    authority.issue("a", *LOOPBACK)

    def read_slowly():
        first = read()
        authority.issue("a", *LOOPBACK)
        return first

    monkeypatch.setattr(identity, "_read", read_slowly)
    assert identity.current() is before
    monkeypatch.undo()
    assert identity.current().certificate == pem.certificate.read_bytes()


@pytest.mark.parametrize("broken", ["missing", "garbage", "foreign key"])
def test_a_process_does_not_start_with_files_that_cannot_be_used(tmp_path, broken):
    authority = Authority(tmp_path)
    pem, other = authority.issue("a"), authority.issue("b")
    if broken == "missing":
        pem.key.unlink()
    elif broken == "garbage":
        pem.certificate.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    else:
        os.replace(other.key, pem.key)

    with pytest.raises(InvalidSettingError, match="TLS files"):
        TlsIdentity(files_of(pem))


def test_a_caller_whose_authority_is_exchanged_goes_on_with_the_new_one_and_cuts_no_call(tmp_path):
    """Both sides get certificates of another authority; a stream that is under way stays on its connection."""
    pem = Authority(tmp_path).issue("node", *LOOPBACK, "spiffe://reput/gateway")
    now = [0.0]
    made = []
    go_on = threading.Event()

    def tail(request, context):
        yield pb.ReputResponse(next_offset=1)
        go_on.wait(WAIT_SECONDS_MAX)
        yield pb.ReputResponse(next_offset=2)

    settings = ServiceSettings(
        address="127.0.0.1:0",
        tls_certificate=pem.certificate,
        tls_key=pem.key,
        tls_ca=pem.ca,
        allowed_identities="gateway=spiffe://reput/gateway;index=spiffe://reput/index;consumequeue=localhost",
    )
    with served(settings, reput=tail, get_message=lambda *_: pb.GetMessageResponse()) as server:

        def make(pem_files):
            credentials = grpc.ssl_channel_credentials(pem_files.ca, pem_files.key, pem_files.certificate)
            made.append(grpc.secure_channel(server.address, credentials, [("grpc.use_local_subchannel_pool", 1)]))
            return made[-1]

        with ReloadingChannel(TlsIdentity(files_of(pem)), make, clock=lambda: now[0]) as channel:
            stub = pb_grpc.CommitLogServiceStub(channel)
            stream = stub.Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX)
            assert next(stream).next_offset == 1
            stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)

            Authority(tmp_path, "another").issue("node", *LOOPBACK, "spiffe://reput/gateway")
            stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)  # on the connection that is there
            assert len(made) == 1
            now[0] += LOOK_SECONDS
            stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)
            assert len(made) == 2
            future = stub.GetMessage.future(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)
            assert future.result() == pb.GetMessageResponse()

            go_on.set()
            assert [answer.next_offset for answer in stream] == [2]
        with pytest.raises(ValueError, match="closed"):
            stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)


def test_without_tls_a_channel_is_as_it_was_and_a_socket_has_none(tmp_path):
    identity = TlsIdentity(files_of(Authority(tmp_path).issue("a", *LOOPBACK)))

    for channel in (open_channel("127.0.0.1:1"), open_channel(f"unix:{tmp_path}/s", identity)):
        assert not isinstance(channel, ReloadingChannel)
        channel.close()


def test_the_sockets_of_a_service_are_for_its_own_user_alone(tmp_path):
    address = f"unix:{tmp_path}/s"
    umask = os.umask(0)
    try:
        settings = ServiceSettings(address=address)
        server = ServiceServer("commitlog", settings)
        serve_local(LOOKUPS, address, {}, server)
        serve_local(APPENDS, address, {}, server)
        server.start()
    finally:
        os.umask(umask)
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        paths = [address.removeprefix("unix:"), LOOKUPS.path(address), APPENDS.path(address)]
        assert [stat.S_IMODE(os.stat(path).st_mode) for path in paths] == [0o600] * 3
    finally:
        server.stop()
        ended.join()


def test_tls_is_set_as_a_whole():
    with pytest.raises(ValueError, match="set together"):
        ServiceSettings(tls_certificate="a.crt", tls_key="a.key")


@pytest.mark.parametrize("text", ["gateway", "gateway=", "stranger=x", "gateway=x;index=x"])
def test_identities_that_say_nothing_or_two_things_are_refused(text):
    with pytest.raises(ValueError, match=r"=|two roles"):
        parse_identities(text)


def test_identities_may_be_several_of_a_role():
    assert parse_identities("gateway=a, b ;index=c;") == {"a": "gateway", "b": "gateway", "c": "index"}


def test_a_certificate_whose_name_is_cut_at_a_zero_byte_is_not_the_gateway(tmp_path):
    """gRPC's own list of names ends at the zero byte."""
    authority = Authority(tmp_path)
    node = authority.issue("node", *LOOPBACK)
    cut = authority.issue("cut", san=general_names((URI, b"spiffe://reput/gateway\0.evil")))
    sound = authority.issue("sound", "spiffe://reput/gateway")
    settings = ServiceSettings(
        address="127.0.0.1:0", tls_certificate=node.certificate, tls_key=node.key, tls_ca=node.ca,
        allowed_identities="gateway=spiffe://reput/gateway",
    )  # fmt: skip
    with served(settings, get_message=lambda *_: pb.GetMessageResponse()) as server:
        with open_channel(server.address, TlsIdentity(files_of(sound))) as channel:
            pb_grpc.CommitLogServiceStub(channel).GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)
        with open_channel(server.address, TlsIdentity(files_of(cut))) as channel, pytest.raises(grpc.RpcError) as error:
            pb_grpc.CommitLogServiceStub(channel).GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)

    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_connection_with_a_certificate_ends_by_its_age_and_its_caller_connects_again(tmp_path, monkeypatch):
    """Otherwise an expired certificate is of use for as long as its connection is kept."""
    monkeypatch.setattr(server_options, "CERTIFIED_AGE_SECONDS", 1)
    pem = Authority(tmp_path).issue("node", *LOOPBACK, "spiffe://reput/gateway")
    settings = ServiceSettings(
        address="127.0.0.1:0", tls_certificate=pem.certificate, tls_key=pem.key, tls_ca=pem.ca,
        allowed_identities="gateway=spiffe://reput/gateway",
    )  # fmt: skip
    credentials = grpc.ssl_channel_credentials(*(path.read_bytes() for path in (pem.ca, pem.key, pem.certificate)))
    ended = threading.Event()
    with (
        served(settings, get_message=lambda *_: pb.GetMessageResponse()) as server,
        grpc.secure_channel(server.address, credentials) as channel,
    ):
        stub = pb_grpc.CommitLogServiceStub(channel)
        stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX)

        def note(state: grpc.ChannelConnectivity) -> None:
            if state is grpc.ChannelConnectivity.IDLE:
                ended.set()

        channel.subscribe(note)
        assert ended.wait(WAIT_SECONDS_MAX)
        channel.unsubscribe(note)  # a thread of gRPC asks for the state, and fails when the channel is closed
        stub.GetMessage(pb.GetMessageRequest(), timeout=WAIT_SECONDS_MAX, wait_for_ready=True)


def test_only_connections_of_callers_with_certificates_have_an_age_by_default(tmp_path):
    pem = Authority(tmp_path).issue("a")
    files = {"tls_certificate": pem.certificate, "tls_key": pem.key, "tls_ca": pem.ca}

    def age_millis(**fields):
        return dict(server_options.options_of(ServiceSettings(**fields))).get("grpc.max_connection_age_ms")

    assert age_millis(**files) == 3_600_000
    assert age_millis(**files, connection_age_seconds=60) == 60_000
    assert age_millis(**files, address="unix:/s") is None
    assert age_millis() is None
