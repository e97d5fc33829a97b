"""`format("rocketmq")` with a gateway that has TLS and wants to know its clients, as the chart's may."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.rocketmq.options import SecurityOptions, read_options
from pipeline.rocketmq.sink import TaskIdentity, append_rows, sink_options
from pipeline.scan.options import OptionError
from reput_client import ClientSecurity
from tests.gateway.auth.conftest import access_text, key_of
from tests.pipeline.rocketmq.gateways import read_batch
from tests.support.certificates import LOOPBACK, Authority
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ORDERS = {"endpoint": "127.0.0.1:1", "subscribe": "Orders"}


class Secured:
    """A gateway with TLS and sign-in, and the options that reach it."""

    def __init__(self, endpoint: str, ca: Path, token: Path) -> None:
        self.endpoint = endpoint
        self.options = {"tlsCaFile": str(ca), "tokenFile": str(token)}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "ca")
    pem = authority.issue("gateway", *LOOPBACK)
    (directory / "access.toml").write_text(access_text({"spark": {"read": ["*"], "write": ["*"], "admin": ["*"]}}))
    (directory / "token").write_text(key_of("spark"))
    settings = {
        "REPUT_GATEWAY_AUTH": "on",
        "REPUT_GATEWAY_ACCESS_FILE": str(directory / "access.toml"),
        "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": str(pem.certificate),
        "REPUT_GATEWAY_PUBLIC_TLS_KEY": str(pem.key),
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
    }
    with hosted_stack(directory / "store", settings=settings) as stack:
        yield Secured(stack.addresses["gateway"], authority.path, directory / "token")


def bodies(secured: Secured, topic: str, **options: str) -> list[bytes]:
    return sorted(row["body"] for row in read_batch(secured.endpoint, subscribe=topic, **options))


def test_the_sink_and_the_source_reach_a_gateway_with_tls_and_sign_in(secured: Secured) -> None:
    given = {"endpoint": secured.endpoint, "topic": "Orders", "retrySeconds": f"{WAIT_SECONDS_MAX}", **secured.options}
    options = pickle.loads(pickle.dumps(sink_options(given, overwrite=False)))
    receipt = append_rows(iter([pa.record_batch({"body": [b"one", b"two"]})]), options, TaskIdentity("job", -1, 0))

    assert receipt.row_count == 2
    # Rows are seen once the queues are built.
    wait_until(lambda: bodies(secured, "Orders", **secured.options) == [b"one", b"two"], "the rows")


def test_what_a_task_needs_may_come_from_the_environment_of_its_machine(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPUT_CLIENT_CA", secured.options["tlsCaFile"])
    monkeypatch.setenv("REPUT_API_KEY", key_of("spark"))

    given = {"endpoint": secured.endpoint, "topic": "Logs", "retrySeconds": f"{WAIT_SECONDS_MAX}"}
    options = sink_options(given, overwrite=False)
    append_rows(iter([pa.record_batch({"body": [b"x"]})]), options, TaskIdentity("job", -1, 1))

    wait_until(lambda: bodies(secured, "Logs") == [b"x"], "the row")


def test_without_a_token_the_gateway_refuses(secured: Secured) -> None:
    with pytest.raises(Exception, match=r"(?i)unauthenticated|api key|sign"):
        read_batch(secured.endpoint, subscribe="Orders", tlsCaFile=secured.options["tlsCaFile"])


@pytest.mark.parametrize("name", ["apiKey", "api_key", "token", "PASSWORD"])
def test_an_option_with_a_secret_is_refused_and_its_value_not_repeated(name: str) -> None:
    """Spark shows options in plans."""
    with pytest.raises(OptionError, match="tokenFile") as refused:
        read_options(ORDERS | {name: "reput_canary"})
    assert "canary" not in str(refused.value)


def test_nothing_secret_is_pickled_for_the_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("reput_canary")
    monkeypatch.setenv("REPUT_API_KEY", "reput_canary")
    options = read_options(ORDERS | {"tokenFile": str(tmp_path / "token")})

    assert b"canary" not in pickle.dumps(options)
    assert "canary" not in repr(options)


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        (SecurityOptions(), {}, None),
        (SecurityOptions(tls=True), {}, ClientSecurity(tls=True)),
        (SecurityOptions(), {"REPUT_CLIENT_CA": "/e"}, ClientSecurity(ca_file="/e")),
        (SecurityOptions(ca_file="/o"), {"REPUT_CLIENT_CA": "/e"}, ClientSecurity(ca_file="/o")),
        (SecurityOptions(token_file="/o"), {"REPUT_API_KEY": "k"}, ClientSecurity(token_file="/o")),
        (SecurityOptions(tls=True), {"REPUT_API_KEY": "k"}, ClientSecurity(tls=True, api_key="k")),
        (
            SecurityOptions(certificate_file="/c", key_file="/k"),
            {"REPUT_CLIENT_CERTIFICATE": "/e", "REPUT_CLIENT_KEY": "/e"},
            ClientSecurity(certificate_file="/c", key_file="/k"),
        ),
    ],
)
def test_an_option_is_stronger_than_the_environment(options, environ, expected) -> None:
    assert options.security(environ) == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tlsKeyFile": "/k"}, "tlsCertificateFile and tlsKeyFile"),
        ({"tls": "yes"}, "tls is 'yes'"),
        ({"tls": "false", "tlsCaFile": "/ca"}, "tls is false"),
        ({"tlsCaFil": "/ca"}, "did you mean tlsCaFile"),
    ],
)
def test_options_that_do_not_fit_together_are_refused_by_name(options, says) -> None:
    with pytest.raises(OptionError, match=says):
        read_options(ORDERS | options)


@pytest.mark.parametrize(
    ("endpoint", "options", "says"),
    [
        ("127.0.0.1:1", {"tlsCaFile": "/nowhere/ca.crt"}, "/nowhere/ca.crt"),
        ("gateway.example:8081", {"tokenFile": "/nowhere/token"}, "without TLS"),
    ],
)
def test_what_cannot_be_used_on_this_machine_is_said(endpoint, options, says) -> None:
    with pytest.raises(OptionError, match=says):
        read_batch(endpoint, subscribe="Orders", **options)
