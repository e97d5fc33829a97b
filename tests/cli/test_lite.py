"""`reput lite`, and how `reput groups` and `reput lag` show a group of lite topics."""

import json
import pathlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cli.groups import bound_text
from cli.main import main
from reput_client import LiteGroup
from tests.gateway.rocketmq.test_lite_consuming import lite_consumer, receive, send
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(pathlib.Path(tmp_path_factory.mktemp("lite")) / "store") as one:
        yield one


@pytest.fixture
def reput(stack: HostedStack, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb; its exit code, and what it printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*arguments, "--address", stack.addresses["gateway"]])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_lite_topics_and_their_groups_are_made_filled_listed_and_counted(stack: HostedStack, reput: Any) -> None:
    def rows(*arguments: str, of: str = "lite_topics") -> list[dict[str, Any]]:
        code, out, err = reput(*arguments, "-O", "json")
        assert code in (0, 1), err
        return list(json.loads(out)[of])

    assert reput("topic", "create", "Chats", "--type", "LITE")[0] == 0
    (group,) = rows("group", "update", "readers", "--lite-bind-topic", "Chats", "--lite-client-quota", "9", of="groups")
    assert (group["lite"]["bind_topic"], group["lite"]["client_quota"]) == ("Chats", 9)
    (group,) = rows("updateSubGroup", "-g", "readers", "--attributes", "+lite.sub.model=Exclusive", of="groups")
    assert (group["lite"]["bind_topic"], group["lite"]["exclusive"]) == ("Chats", True)
    bound = "bound to the lite topics of Chats: one belongs to its newest subscriber, at most 9 for a client"
    assert bound in reput("group", "update", "readers", "--consume")[1]
    code, _, err = reput("group", "update", "readers", "--lite-bind-topic", "Others")
    assert (code, "bound to Chats" in err) == (2, True)
    consumer = lite_consumer(stack, "readers", "Chats", "user-1", "user-2")
    for body in ("0", "1"):
        assert reput("send", "-t", "Chats", "--lite-topic", "user-1", "-b", body)[0] == 0
    send(consumer, "user-2", "first")
    receive(consumer, 3)
    send(consumer, "user-2", "0", "1", "2")
    send(consumer, "other", "0")

    def lag() -> int:
        return int(rows("lag", "readers", of="totals")[0]["lag"])

    wait_until(lambda: lag() == 3, lambda: f"the lag is {lag()}")
    found = {row["lite_topic"]: row for row in rows("lite", "Chats")}
    assert set(found) == {"other", "user-1", "user-2"}
    assert found["other"]["consumer_group"] is None
    one = found["user-2"]
    assert (one["consumer_group"], one["lag_count"], one["max_offset"]) == ("readers", 3, 4)
    assert one["clients"] == ["client-1"]
    assert [row["lite_topic"] for row in rows("lite", "Chats", "--name", "USER", "-g", "readers")] == [
        "user-1",
        "user-2",
    ]
    assert [row["lite_topic"] for row in rows("lite", "Chats", "-l", "other")] == ["other"]
    of_client = rows("lite", "Chats", "-g", "readers", "--client", "client-1")
    assert [row["lite_topic"] for row in of_client] == ["user-1", "user-2"]
    code, out, err = reput("lite", "Chats", "--limit", "1")
    assert (code, "other" in out, "more than 1 lite topics" in err) == (0, True, True)
    assert reput("lite", "Chats", "--client", "c")[0] == 2
    assert reput("lite", "Chats", "--name", "nothing-like-it")[0] == 1
    assert "lite topics of Chats: 3 to consume" in reput("lag", "readers")[1]
    shown = reput("groups", "readers")[1]
    assert "lite topics of Chats: 3 to consume" in shown
    assert bound in shown
    code, _, err = reput("send", "-t", "Chats", "-b", "for nobody")
    assert (code, "lite topics" in err) == (2, True)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, "subscribers share one"),
        ({"client_quota": -1}, "subscribers share one"),
        ({"exclusive": True}, "one belongs to its newest subscriber"),
        ({"exclusive": True, "wildcard": True, "client_quota": 5}, "each client gets all of them"),
    ],
)
def test_a_line_says_what_a_group_of_lite_topics_is_bound_to(attributes: dict[str, Any], text: str) -> None:
    plain = LiteGroup("Chats", False, False, 0, False, False)
    assert bound_text(replace(plain, **attributes)) == f"bound to the lite topics of Chats: {text}"
