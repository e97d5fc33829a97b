"""Values that several of mqadmin's flags have."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from cli.exits import CliError
from cli.mqadmin.administration import _group_attributes_in, shard_of, truth_of


@pytest.mark.parametrize(("text", "truth"), [("", None), ("true", True), ("TRUE", True), ("False", False)])
def test_a_truth_is_read_in_any_case(text: str, truth: bool | None) -> None:
    assert truth_of(text, "-s") is truth


def test_what_java_takes_for_false_in_silence_is_refused() -> None:
    with pytest.raises(CliError, match="-s 'yes' is neither true nor false"):
        truth_of("yes", "-s")


@pytest.mark.parametrize(
    ("attributes", "factor"),
    [("", None), ("+priority.factor=0", 0), (" +priority.factor=100 ,", 100), ("-priority.factor", 100)],
)
def test_the_attribute_of_a_group_is_its_priority_factor(attributes: str, factor: int | None) -> None:
    assert _group_attributes_in(attributes) == (factor, {})


def test_attributes_of_lite_topics_are_those_of_a_group_of_them() -> None:
    attributes = "+lite.bind.topic=Chats,+lite.sub.model=Exclusive, -lite.sub.wildcard,+priority.factor=7"
    lite = {"lite.bind.topic": "Chats", "lite.sub.model": "Exclusive", "lite.sub.wildcard": ""}
    assert _group_attributes_in(attributes) == (7, lite)


@pytest.mark.parametrize(
    "attributes",
    [
        "priority.factor=5",
        "+priority.factor",
        "-priority.factor=5",
        "+priority.factor=101",
        "+priority.factor=x",
        "+lite.bind.topic",
        "-lite.bind.topic=a",
        "+a=b",
    ],
)
def test_other_attributes_of_a_group_are_refused_by_name(attributes: str) -> None:
    with pytest.raises(CliError, match="--attributes"):
        _group_attributes_in(attributes)


def test_an_address_of_a_broker_is_the_only_shard_and_refused_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["broker-a", "broker-a", ""]

    @contextlib.contextmanager
    def query_client(address: str, timeout: float) -> Any:
        services = [SimpleNamespace(broker_name=name) for name in names]
        yield SimpleNamespace(installation=lambda: SimpleNamespace(services=services))

    monkeypatch.setattr("cli.client.query_client", query_client)
    assert shard_of("broker-b", "gateway", 1) == "broker-b"
    assert shard_of("", "gateway", 1) == ""
    assert shard_of("localhost:10911", "gateway", 1) == "broker-a"
    assert "taken for the only shard, broker-a" in capsys.readouterr().err
    names.append("broker-b")
    with pytest.raises(CliError) as refused:
        shard_of("localhost:10911", "gateway", 1)
    assert refused.value.hint == "Shards: broker-a, broker-b."
