"""`reput lag`: groups that come and go while it asks for them one by one."""

import contextlib

import pytest

import cli.client
from cli.exits import Exit
from cli.groups import show_lag
from cli.options import OutputFormat
from reput_client import GroupNotFoundError
from reput_client.querying.groups import ConsumerGroup, ConsumerGroupDetails, ConsumerGroups


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
