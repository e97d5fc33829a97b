"""The name server answers as RocketMQ's: each step of the scenario, against the recorded answers of 5.5.0."""

import json
import queue
import threading
from typing import Any, cast

import pytest

from nameserver_svc import requests
from nameserver_svc.kv_config import KvConfig
from nameserver_svc.requests import NameServer
from nameserver_svc.route_table import RouteTable
from services.rocketmq.command import Command
from services.rocketmq.remoting_server import Connection
from tests.nameserver_svc.scenario import ANSWERS, STEPS, End, body, broker, comparable, topic
from tests.support.waiting import WAIT_SECONDS_MAX


def test_every_step_is_answered_as_rocketmq_answers_it() -> None:
    table = RouteTable(lambda: 0.0)
    server = NameServer(table, KvConfig(None), {}, gives_order_config=False)
    recorded = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    assert len(recorded) == len(STEPS)
    different = []
    for number, (step, row) in enumerate(zip(STEPS, recorded, strict=True)):
        if isinstance(step, End):
            table.end_owner(step.connection)
            continue
        code, remark, fields, content = server.answer(step.command(), step.connection)
        ours = comparable(Command(code, fields, content, remark=remark), step.compares)
        theirs = comparable(
            Command(row["code"], row["fields"], row["body"].encode(), remark=row["remark"]), step.compares
        )
        if ours != theirs:
            different.append((number, step, ours, theirs))
    assert different == []


def test_a_request_whose_handling_fails_is_answered_and_does_not_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = RouteTable(lambda: 0.0)
    server = NameServer(table, KvConfig(None), {}, gives_order_config=False)

    def fail(topic: str) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(table, "route", fail)
    code, remark, _, _ = server.answer(Command(105, {"topic": "t"}), 0)
    assert (code, remark) == (1, "the name server failed: RuntimeError('a bug')")


class Caller:
    """A connection, as far as a name server looks at it."""

    def __init__(self) -> None:
        self.is_closed = False
        self.answers: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def answer(self, _request: Command, answer: Command) -> None:
        self.answers.put(answer)


def registration() -> Command:
    return Command(103, broker("a", "10.0.0.1:10911"), body(topic("t")))


def test_a_large_registration_held_up_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read by the thread of all connections: no route was told meanwhile."""
    reading, may_go_on = threading.Event(), threading.Event()
    decode = requests.decode_registration

    def slow(*arguments: Any) -> Any:
        reading.set()
        assert may_go_on.wait(WAIT_SECONDS_MAX)
        return decode(*arguments)

    monkeypatch.setattr(requests, "decode_registration", slow)
    table = RouteTable(lambda: 0.0)
    server = NameServer(table, KvConfig(None), {}, gives_order_config=False)
    its, client = Caller(), Caller()
    server.on_command(cast("Connection", its), registration())
    assert reading.wait(WAIT_SECONDS_MAX)
    server.on_command(cast("Connection", client), Command(105, {"topic": "t"}))
    assert client.answers.get(timeout=WAIT_SECONDS_MAX).code == 17
    may_go_on.set()
    assert its.answers.get(timeout=WAIT_SECONDS_MAX).code == 0
    server.on_command(cast("Connection", client), Command(105, {"topic": "t"}))
    assert client.answers.get(timeout=WAIT_SECONDS_MAX).code == 0
    server.close()


def test_a_broker_whose_connection_ends_while_its_registration_is_read_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = requests.decode_registration
    table = RouteTable(lambda: 0.0)
    server = NameServer(table, KvConfig(None), {}, gives_order_config=False)
    its = Caller()

    def end_meanwhile(*arguments: Any) -> Any:
        its.is_closed = True
        server.on_close(cast("Connection", its))
        return decode(*arguments)

    monkeypatch.setattr(requests, "decode_registration", end_meanwhile)
    server.on_command(cast("Connection", its), registration())
    assert its.answers.get(timeout=WAIT_SECONDS_MAX).code == 0
    server.close()
    assert table.broker_count == 0
