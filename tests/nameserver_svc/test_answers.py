"""The name server answers as RocketMQ's: each step of the scenario, against the recorded answers of 5.5.0."""

import json

import pytest

from nameserver_svc.kv_config import KvConfig
from nameserver_svc.requests import NameServer
from nameserver_svc.route_table import RouteTable
from services.rocketmq.command import Command
from tests.nameserver_svc.scenario import ANSWERS, STEPS, End, comparable


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
