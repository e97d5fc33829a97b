"""`reput top`: what the screen says, what keys do, and that it goes on after the gateway was away."""

import os
import pty
import sys
from datetime import timedelta

import pytest

from cli import top
from cli.exits import CliError, Exit
from cli.top import Sample, Sampler, Seen, View, draw, keys_of, print_once, tables_of, take_sample
from reput_client import (
    ConsumerGroup,
    ConsumerGroupDetails,
    GroupMember,
    GroupQueue,
    Queue,
    ReplicaStatus,
    ReputClientError,
    ServiceStatus,
    Topic,
)

MEBIBYTE = 1 << 20


def topic(name: str, *ends: int) -> Topic:
    return Topic(name, tuple(Queue("broker-a", number, 0, end) for number, end in enumerate(ends)), len(ends))


def group(name: str, offset: int, end: int, *, age: timedelta | None = None, dead: int = 0) -> ConsumerGroupDetails:
    queue = GroupQueue("Orders", "broker-a", 0, offset, 0, end, end - offset, age, 2, 0)
    member = GroupMember("worker-1", "PYTHON", "1.0", "10.0.0.7:4711", (("Orders", "*"),))
    return ConsumerGroupDetails(ConsumerGroup(name, False, 17, False, False), (member,), (queue,), 3, dead, (), ())


def service(name: str, **values: object) -> ServiceStatus:
    given = {"error": None, "state": "serving", "problem": "", "catching_up": False} | values
    offsets = {"log_first_offset": 0, "log_end_offset": 0, "next_offset": 0}
    return ServiceStatus("broker-a", name, "unix:/x", **{**offsets, **given})


def sample(seconds: float, moved: int = 0, **values: object) -> Sample:
    """A store in which `moved` messages came and were consumed since the beginning."""
    log = {"log_end_offset": 10 * MEBIBYTE + moved * 1024, "next_offset": 10 * MEBIBYTE + moved * 1024}
    disk = {"disk_total_bytes": 100 << 30, "disk_free_bytes": 66 << 30, "disk_level": "ok"}
    replicas = (ReplicaStatus("b", False, True, 2 * MEBIBYTE, 1500),)
    services = (service("commitlog", **log, **disk, replicas=replicas), service("index", next_offset=9 * MEBIBYTE))
    groups = (
        group("billing", 50 + moved, 90 + moved, age=timedelta(seconds=12), dead=1),
        group("audit", 90, 90),
    )
    return Sample(seconds, "1.0", services, (topic("Orders", 90 + moved), topic("支付", 5, 7)), groups, **values)


SEEN = Seen(sample(0), sample(10, moved=20))


def text(view: View, seen: Seen = SEEN, width: int = 80, height: int | None = None) -> list[str]:
    return [line.plain.rstrip() for line in draw(view, seen, "reput", width, height)]


def test_the_screen_says_rates_lag_replicas_and_disk() -> None:
    assert text(View()) == [
        "reput",
        "broker-a   log 10 MiB, 2.0 KiB/s   disk 34 %, 66 GiB free, ok   behind: index 1…",
        "  replica b   follower   not in sync   2.0 MiB, 1.5 s behind",
        "topic                                           queues        messages     in/s*",
        "Orders                                               1             110       2.0",
        "支付                                                 2              12       0.0",
        "group                     lag*   oldest    out/s in flight retries  dead members",
        "billing                     40   12.0 s      2.0         2       3     1       1",
        "audit                        0        –      0.0         2       3     0       1",
    ]


def test_no_line_is_wider_than_the_screen_and_none_below_it() -> None:
    from rich.cells import cell_len

    crowd = tuple(topic(f"Orders-{number:03}-" + "x" * 40, number) for number in range(100))
    many = Seen(sample(0), Sample(10, "1.0", SEEN.now.services, crowd, SEEN.now.groups, ("a note",) * 9))
    for width, height in ((80, 24), (40, 8), (200, 50)):
        lines = text(View(), many, width, height)
        assert len(lines) == height
        assert all(cell_len(line) <= width for line in lines)
    assert "! 7 more: reput status" not in text(View(), many)  # notes are told once each by `take_sample`


def test_keys_move_choose_open_and_close() -> None:
    view = View()

    def press(*keys: str) -> None:
        assert all(view.press(key, tables_of(view, SEEN)) for key in keys)

    press("down", "enter")
    assert (view.table, view.opened) == ("groups", "audit")
    assert any(line.startswith("member worker-1 PYTHON 1.0 10.0.0.7:4711") for line in text(view, height=24))
    press("up")
    assert view.opened == "billing"
    press("escape", "tab", "end", "enter")
    assert (view.table, view.opened) == ("topics", "支付")
    assert text(view, height=24)[3:6] == [
        "topic 支付                                     minOffset     maxOffset      in/s",
        "broker-a / 0                                           0             5       0.0",
        "broker-a / 1                                           0             7       0.0",
    ]
    assert not view.press("q", tables_of(view, SEEN))


def test_tables_are_sorted_by_any_column_and_turned_around() -> None:
    view = View(table="topics")

    def names() -> list[str]:
        return [row[0] for row in tables_of(view, SEEN)["topics"]]

    assert names() == ["Orders", "支付"]  # by rate
    view.press("r", {"topics": []})
    assert names() == ["支付", "Orders"]
    view.press("r", {"topics": []})
    view.press("s", {"topics": []})
    assert (view.sorted_by["topics"], names()) == (0, ["Orders", "支付"])
    view.press("s", {"topics": []})
    assert names() == ["支付", "Orders"]  # by queues


def test_a_group_without_an_age_is_last_in_either_order() -> None:
    view = View(sorted_by={"topics": 3, "groups": 2})
    for _ in range(2):
        assert [row[0] for row in tables_of(view, SEEN)["groups"]] == ["billing", "audit"]
        view.press("r", {"groups": []})


def test_the_chosen_row_stays_in_sight() -> None:
    crowd = tuple(topic(f"T{number:02}", number) for number in range(50))
    seen = Seen(SEEN.before, Sample(10, "1.0", SEEN.now.services, crowd, ()))
    view = View(table="topics", sorted_by={"topics": 0, "groups": 1})
    for key in ("end", "up"):
        view.press(key, tables_of(view, seen))

    assert any(line.startswith("T48") for line in text(view, seen, height=24))
    assert not any(line.startswith("T00") for line in text(view, seen, height=24))


def test_what_does_not_answer_is_said_on_the_screen() -> None:
    lost = service("consumer", error=ReputClientError("no answer"))
    now = Sample(1, "1.0", (*SEEN.now.services, lost), (), (), ("shard b: away",))
    lines = text(View(), Seen(now, now, "SERVICE_UNAVAILABLE: no answer"))

    assert lines[1] == "SERVICE_UNAVAILABLE: no answer"
    assert "! broker-a consumer: no answer" in lines
    assert "! shard b: away" in lines
    assert lines.count("none") == 2


def test_names_cannot_steer_the_terminal() -> None:
    now = Sample(1, "1.0", (), (topic("a\x1b[2Jb", 1),), ())
    assert any(line.startswith("a\\x1b[2Jb") for line in text(View(), Seen(now, now)))


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B\tjs", ["up", "down", "tab", "j", "s"]),
        (b"\x1b", ["escape"]),
        (b"\r\x7f\x1b[6~", ["enter", "backspace", "page-down"]),
        ("1é".encode(), []),
    ],
)
def test_what_a_terminal_sends_is_read_as_keys(typed: bytes, keys: list[str]) -> None:
    assert keys_of(typed) == keys


def test_a_gateway_that_was_away_is_shown_again_by_itself() -> None:
    away = CliError(Exit.UNAVAILABLE, "UNAVAILABLE", "no answer from x")
    answers = iter([sample(0), away, sample(20, 1), sample(22, 21)])

    def ask() -> Sample:
        answer = next(answers)
        if isinstance(answer, CliError):
            raise answer
        return answer

    sampler = Sampler(ask, 2.0, lambda: None)
    sampler.take()
    sampler.take()
    assert sampler.seen().failure == "UNAVAILABLE: no answer from x; asked again every 2 s"
    assert sampler.seen().now == sample(0)  # what was known stays
    sampler.take()
    assert sampler.seen() == Seen(sample(20, 1), sample(20, 1))  # no rate over the time without answers
    sampler.take()
    assert tables_of(View(), sampler.seen())["topics"][0][3] == 10.0


def test_once_is_printed_without_a_terminal(capsys, monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    samples, slept = iter([SEEN.before, SEEN.now]), []

    assert print_once(lambda: next(samples), "127.0.0.1:8081", slept.append) is Exit.FOUND
    head, *rest = capsys.readouterr().out.splitlines()
    assert head.startswith("reput 1.0 at 127.0.0.1:8081   ")
    assert rest == text(View())[1:]
    assert slept == [top.ONCE_SECONDS]


def test_the_live_screen_ends_by_a_key_and_leaves_the_terminal_as_it_was(monkeypatch, capsys) -> None:
    import termios

    outer, inner = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(inner, "r", closefd=False))
    before = termios.tcgetattr(inner)
    os.write(outer, b"\t\x1b[B\rsq")
    try:
        assert top.show_live(lambda: SEEN.now, "127.0.0.1:8081", 60.0) is Exit.FOUND
        assert termios.tcgetattr(inner) == before
    finally:
        os.close(outer)
        os.close(inner)


def test_a_screen_without_a_terminal_is_refused_with_the_way_out() -> None:
    with pytest.raises(CliError) as refused:
        top.top()
    assert "--once" in refused.value.hint


class Client:
    """A gateway with one person's topic, one of RocketMQ's, and two groups, of which one goes before it is asked for."""

    def installation(self):
        from reput_client import Installation

        return Installation("1.0", SEEN.now.services)

    def topics(self, *, page_size: int, name_contains: str):
        from reput_client import Completeness, Page, ShardOutcome

        away = ShardOutcome("broker-b", ReputClientError("away"), False, 0, None, 0)
        page = Page((topic("Orders", 1), topic("%RETRY%billing", 1)), Completeness.PARTIAL, (away,), None, "more")
        assert (page_size, name_contains) == (top.TOPIC_COUNT_MAX, "Ord")

        class Pages:
            def pages(self):
                return iter([page])

        return Pages()

    def consumer_groups(self, *, name_contains: str, limit: int):
        from reput_client import ConsumerGroups

        groups = tuple(ConsumerGroup(name, False, 17, False, False) for name in ("billing", "gone"))
        assert (name_contains, limit) == ("", top.GROUP_COUNT_MAX)
        return ConsumerGroups(groups, (), has_more=True)

    def consumer_group(self, name: str):
        from reput_client import GroupNotFoundError

        if name == "gone":
            raise GroupNotFoundError("it was deleted")
        return group(name, 1, 2)


def test_a_sample_says_what_it_lacks() -> None:
    taken = take_sample(Client(), "Ord", clock=lambda: 7.0)

    assert (taken.seconds, taken.version) == (7.0, "1.0")
    assert [each.topic for each in taken.topics] == ["Orders"]
    assert [each.settings.consumer_group for each in taken.groups] == ["billing"]
    assert taken.notes == (
        "shard broker-b: away",
        "only the first 1,000 topics by name: choose with --topic TEXT",
        "only the first 50 groups by name: choose with --group TEXT",
    )
