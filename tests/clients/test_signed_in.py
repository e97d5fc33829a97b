"""Official clients of five languages, unmodified, sign in with an access key: a right, wrong, missing and revoked one, and with
a clock that is an hour off. What a refused client says of the reason is the client's own; it sends nothing in any case."""

import contextlib
import itertools
import pathlib
import time
import types
from collections.abc import Iterator

import pytest

import gateway.__main__
from services.rocketmq.codes import RequestCode
from tests.clients import programs
from tests.clients.programs import Program, Said
from tests.gateway.remoting.requests import SignedClient
from tests.support.stack import hosted_stack
from tests.support.waiting import wait_until

WHY_NOT = programs.why_unavailable()
pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
OPERATORS = '[[clients]]\nname = "operators"\naccess_keys = {operators-key = "their-secret"}\nadmin = ["*"]\n'
SHOP = '[[clients]]\nname = "shop"\naccess_keys = {shop-key = "its-secret"}\nwrite = ["Orders"]\n'
RIGHT = {"access_key": "shop-key", "secret": "its-secret"}
# Of the others the reason is in a log file of the client, or nowhere.
SAY_WHY = ("java", "go", "node")


class Server:
    """A gateway that wants its clients to sign in, with a clock that can be set."""

    def __init__(self, work: pathlib.Path, address: str, access: pathlib.Path, clock: list[float]) -> None:
        self.work = work
        self.address = address
        self.access = access
        self.clock = clock
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def producer(self, language: str, **credentials: str) -> Iterator[Program]:
        order: Said = {"role": "send", "endpoint": self.address, "topic": "Orders", **credentials}
        program = Program(language, order, self.work / f"program-{next(self._numbers)}")
        try:
            yield program
        finally:
            program.kill()


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    access, clock = tmp_path / "access.toml", [0.0]
    access.write_text(OPERATORS + SHOP)
    clocks = types.SimpleNamespace(time=lambda: time.time() + clock[0], monotonic=time.monotonic)
    monkeypatch.setattr(gateway.__main__, "time", clocks)
    settings = {"REPUT_GATEWAY_AUTH": "on", "REPUT_GATEWAY_ACCESS_FILE": str(access)}
    with hosted_stack(tmp_path / "store", settings=settings, remoting_port=0) as stack:
        with contextlib.closing(
            SignedClient(stack.addresses["remoting"], "operators-key", "their-secret")
        ) as operators:
            topic = {"topic": "Orders", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
            made = operators.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topicFilterType="SINGLE_TAG", **topic)
            assert made.code == 0, made.remark
        yield Server(tmp_path, stack.addresses["gateway"], access, clock)


def sends(producer: Program) -> bool:
    """Whether a message is sent; False: the client was refused, and has ended or says that it failed."""
    before = len(producer.events("sent"))

    def is_over() -> bool:
        refused = producer.process.poll() is not None or producer.events("failed")
        return bool(refused) or len(producer.events("sent")) > before

    wait_until(lambda: is_over() or producer.events("started"), producer.log)
    if not is_over():
        with contextlib.suppress(BrokenPipeError):
            producer.tell(body="an order")
        wait_until(is_over, producer.log)
    return len(producer.events("sent")) > before


@pytest.mark.parametrize("language", programs.LANGUAGES)
def test_an_official_client_signs_in_with_its_own_key_only(server: Server, language: str) -> None:
    refused = (
        ({"access_key": "shop-key", "secret": "wrong-secret"}, 0.0, "has not made this signature"),
        ({"access_key": "nobody", "secret": "its-secret"}, 0.0, "has not made this signature"),
        ({}, 0.0, "no credentials"),
        (RIGHT, 3600.0, "behind the gateway's clock"),
        (RIGHT, -3600.0, "ahead of the gateway's clock"),
    )
    for credentials, clock, why in refused:
        server.clock[0] = clock
        with server.producer(language, **credentials) as producer:
            assert not sends(producer), (language, why)
            assert why in producer.log() or language not in SAY_WHY

    server.clock[0] = 0.0
    with server.producer(language, **RIGHT) as producer:
        assert sends(producer), producer.log()
        server.access.write_text(OPERATORS)  # revoked
        wait_until(lambda: not sends(producer), "the next send is refused")
