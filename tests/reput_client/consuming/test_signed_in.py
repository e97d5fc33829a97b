"""Consumers at a gateway that wants its clients to sign in."""

import hashlib
import pathlib
from collections.abc import Iterator

import pytest

from reput_client import (
    ClientSecurity,
    Consumer,
    PermissionDeniedError,
    Producer,
    PullConsumer,
    PullConsumerSettings,
    SendBackOutcome,
    UnauthenticatedError,
)
from tests.reput_client.consuming.support import WAIT_SECONDS
from tests.support.stack import Stack, running_stack

KEYS = {"shop": "reput_key-of-shop", "bank": "reput_key-of-bank"}
QUICK = PullConsumerSettings(members_seconds=0.2)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root: pathlib.Path = tmp_path_factory.mktemp("guarded")
    access = "".join(
        f'[[clients]]\nname = "{name}"\napi_key_sha256 = ["{hashlib.sha256(key.encode()).hexdigest()}"]\n'
        f'read = ["{name}-*"]\nwrite = ["{name}-*"]\n'
        for name, key in KEYS.items()
    )
    (root / "access.toml").write_text(access)
    (root / "access.toml").chmod(0o600)
    settings = {"REPUT_GATEWAY_AUTH": "on", "REPUT_GATEWAY_ACCESS_FILE": str(root / "access.toml")}
    with running_stack(root / "store", "--single-process", settings=settings) as stack:
        yield stack


def test_a_consumer_with_the_right_consumes_and_acknowledges(guarded: Stack) -> None:
    target, security = guarded.addresses["gateway"], ClientSecurity(api_key=KEYS["shop"])
    with Producer(target, security=security) as producer:
        producer.send("shop-orders", b"mine")
    with Consumer(target, "shop-group", {"shop-orders": "*"}, security=security) as consumer:
        delivery = consumer.take(WAIT_SECONDS)
        assert delivery is not None
        assert delivery.message.body == b"mine"
        delivery.ack().result(WAIT_SECONDS)
    with PullConsumer(target, "shop-pull", {"shop-orders": "*"}, security=security, settings=QUICK) as puller:
        messages = puller.poll(timeout_seconds=WAIT_SECONDS)
        assert [message.body for message in messages] == [b"mine"]
        assert puller.send_back(messages) == [SendBackOutcome.OK]
        puller.commit()
        # It may not read %RETRY%shop-pull, and goes on with what it may read.
        with Producer(target, security=security) as producer:
            producer.send("shop-orders", b"next")
        assert [message.body for message in puller.poll(timeout_seconds=WAIT_SECONDS)] == [b"next"]
    assert guarded.log().count("%RETRY%shop-pull") <= 1


@pytest.mark.parametrize(
    ("security", "error"),
    [(None, UnauthenticatedError), (ClientSecurity(api_key=KEYS["bank"]), PermissionDeniedError)],
    ids=["nobody", "another"],
)
def test_a_consumer_without_the_right_ends_with_that_error(
    guarded: Stack, security: ClientSecurity | None, error: type[Exception]
) -> None:
    target = guarded.addresses["gateway"]
    with Consumer(target, "g", {"shop-orders": "*"}, security=security) as consumer, pytest.raises(error):
        consumer.take(WAIT_SECONDS)
    with (
        PullConsumer(target, "g", {"shop-orders": "*"}, security=security, settings=QUICK) as puller,
        pytest.raises(error),
    ):
        puller.poll(timeout_seconds=WAIT_SECONDS)
