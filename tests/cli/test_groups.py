"""`reput lag`: groups that come and go while it asks for them one by one."""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest

import cli.client
from cli.exits import CliError, Exit
from cli.groups import groups, show_lag
from cli.options import OutputFormat
from reput_client import GroupNotFoundError
from reput_client.querying.groups import (
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroups,
    ConsumerRunningInfo,
    RunningQueue,
    RunningTopic,
)


class OneGone:
    """A gateway whose second group is forgotten after it was listed."""

    def consumer_groups(self, topic: str = "", *, name_contains: str = "", limit: int | None = None) -> ConsumerGroups:
        return ConsumerGroups((settings_of("here"), settings_of("gone")), ())

    def consumer_group(self, name: str) -> ConsumerGroupDetails:
        if name == "gone":
            raise GroupNotFoundError("there is no consumer group 'gone'")
        return ConsumerGroupDetails(settings_of(name), (), (), 0, 0, (), ())


def settings_of(name: str) -> ConsumerGroup:
    return ConsumerGroup(name, False, 17, False, False)


@pytest.fixture(autouse=True)
def one_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.client, "query_client", lambda *_: contextlib.nullcontext(OneGone()))


def test_a_group_whose_last_member_left_ended_the_lag_of_all_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_lag("", "", OutputFormat.TABLE, "localhost:1", 1.0) == Exit.FOUND
    assert "here: 0 messages to consume" in capsys.readouterr().out


def test_a_group_that_is_asked_for_by_name_and_gone_is_an_error() -> None:
    with pytest.raises(GroupNotFoundError):
        show_lag("gone", "", OutputFormat.TABLE, "localhost:1", 1.0)


class OneMember:
    """A gateway with a member that tells a queue and the stacks of its threads."""

    def __init__(self, *, told_by_gateway: bool) -> None:
        self.told_by_gateway = told_by_gateway

    def consumer_running_info(self, name: str, client_id: str, *, with_stack_trace: bool) -> ConsumerRunningInfo:
        assert (name, client_id) == ("billing", "c1")
        pulled = datetime(2026, 11, 29, tzinfo=UTC)
        queue = RunningQueue("Orders", "broker-a", 1, 7, 3, 2, 7, 9, True, False, pulled, None)
        topic = RunningTopic("Orders", 1.5, 13.0, 3.5, 12.25, 0.5, 5)
        stack = "main \x1b[2J\n  at Listener" if with_stack_trace else ""
        subscriptions = (("Orders", "a || b"),)
        return ConsumerRunningInfo({"x": "y"}, subscriptions, (queue,), (topic,), stack, self.told_by_gateway)


def run_groups(monkeypatch: pytest.MonkeyPatch, told_by_gateway: bool = False, **flags: Any) -> int:
    gateway = OneMember(told_by_gateway=told_by_gateway)
    monkeypatch.setattr(cli.client, "query_client", lambda *_: contextlib.nullcontext(gateway))
    return groups(name="billing", member="c1", **flags)


def test_what_a_member_does_now_is_shown_with_the_stacks_of_its_threads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_groups(monkeypatch, with_stack_trace=True) == Exit.FOUND
    shown = capsys.readouterr()
    for text in ("Orders", "12.25", "subscriptions: Orders:a || b", "main \\x1b[2J\n  at Listener\n"):
        assert text in shown.out
    assert shown.err == ""
    assert run_groups(monkeypatch, output=OutputFormat.JSON) == Exit.FOUND
    (member,) = json.loads(capsys.readouterr().out)["members"]
    assert (member["told_by"], member["properties"], member["stack_trace"]) == ("member", {"x": "y"}, "")
    assert member["queues"][0]["last_pull_time"] == "2026-11-29T00:00:00.000Z"
    assert member["queues"][0]["last_consume_time"] is None


def test_a_member_that_was_not_asked_is_named_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_groups(monkeypatch, told_by_gateway=True) == Exit.FOUND
    assert "the gateway tells this: the member came over gRPC" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [{"member": "c1"}, {"name": "billing", "with_stack_trace": True}])
def test_a_member_without_its_group_is_a_mistake(flags: dict[str, Any]) -> None:
    with pytest.raises(CliError) as error:
        groups(**flags)
    assert error.value.code is Exit.USAGE
