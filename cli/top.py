"""`reput top`: a live screen of rates by topic, lag by group, slow groups, replicas and disk.

It asks what `reput status`, `reput topics` and `reput groups` ask, again and again in a thread of its own, so that keys are
answered at once also while the gateway does not. Rates are differences between samples of the last seconds. The screen is drawn
with rich, which the command has anyway (ADR 0165).

    Tab  the other table      s  sort by the next column    Enter, Esc  open a topic or a group, close it
    Up, Down, PgUp, PgDn      r  turn the order around      q           end
"""

import collections
import contextlib
import dataclasses
import datetime
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, usage_error
from cli.terminal import one_line

if TYPE_CHECKING:
    from rich.text import Text

    from reput_client import ConsumerGroupDetails, QueryClient, ServiceStatus, Topic

TIMEOUT_SECONDS = 5.0
INTERVAL_SECONDS = 2.0
INTERVAL_SECONDS_MIN = 0.5
# Between the two samples of --once.
ONCE_SECONDS = 1.0
# Rates are over this many samples, so that a burst is seen and a single message does not make the screen flicker.
SAMPLE_COUNT_MAX = 6
# Each group costs a call to every shard, and each sample asks for all.
GROUP_COUNT_MAX = 50
# One page of the list.
TOPIC_COUNT_MAX = 1_000
PROBLEM_LINES_MAX = 3
WIDTH_DEFAULT, WIDTH_MIN, HEIGHT_MIN = 80, 40, 8
# A table that shares the screen has at least this many rows.
ROWS_MIN = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """The state of everything at one time.

    Attributes:
        seconds: of a monotonic clock.
        version: of the gateway.
        services: of every shard.
        topics: of people; without RocketMQ's own.
        groups: with their lag.
        notes: what this sample lacks, a sentence each.
    """

    seconds: float
    version: str
    services: "tuple[ServiceStatus, ...]"
    topics: "tuple[Topic, ...]"
    groups: "tuple[ConsumerGroupDetails, ...]"
    notes: tuple[str, ...] = ()


def take_sample(
    client: "QueryClient", topic_part: str = "", group_part: str = "", clock: Callable[[], float] = time.monotonic
) -> Sample:
    """Ask for everything that the screen shows; ReputClientError when the gateway does not answer."""
    from cli.topics import is_rocketmqs_own
    from reput_client import GroupNotFoundError

    seconds = clock()
    installation = client.installation()
    page = next(client.topics(page_size=TOPIC_COUNT_MAX, name_contains=topic_part).pages())
    listed = client.consumer_groups(name_contains=group_part, limit=GROUP_COUNT_MAX)
    groups = []
    for each in listed.groups:
        with contextlib.suppress(GroupNotFoundError):  # it was deleted meanwhile
            groups.append(client.consumer_group(each.consumer_group))
    asked = (*page.shards, *listed.shards, *(shard for each in groups for shard in each.shards))
    notes = [f"shard {shard.broker_name}: {shard.error}" for shard in asked if shard.error is not None]
    if page.next_page_token:
        notes.append(f"only the first {TOPIC_COUNT_MAX:,} topics by name: choose with --topic TEXT")
    if listed.has_more:
        notes.append(f"only the first {GROUP_COUNT_MAX} groups by name: choose with --group TEXT")
    topics = tuple(each for each in page.items if not is_rocketmqs_own(each))
    return Sample(
        seconds, installation.version, installation.services, topics, tuple(groups), tuple(dict.fromkeys(notes))
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its header, its width in characters (0: what is left), and how a value is written."""

    name: str
    width: int = 0
    write: Callable[[Any], str] = str


def _count(value: int) -> str:
    return f"{value:,}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _age(seconds: float | None) -> str:
    from console.parts.formats import duration_text

    return "–" if seconds is None else duration_text(seconds * 1000)


TOPICS = (Column("topic"), Column("queues", 8, _count), Column("messages", 16, _count), Column("in/s", 10, _rate))
GROUPS = (
    Column("group"),
    Column("lag", 10, _count),
    Column("oldest", 9, _age),
    Column("out/s", 9, _rate),
    Column("in flight", 10, _count),
    Column("retries", 8, _count),
    Column("dead", 6, _count),
    Column("members", 8, _count),
)
TOPIC_QUEUES = (
    Column("shard / queue"),
    Column("minOffset", 14, _count),
    Column("maxOffset", 14, _count),
    Column("in/s", 10, _rate),
)
GROUP_QUEUES = (
    Column("topic / shard / queue"),
    Column("lag", 10, _count),
    Column("oldest", 9, _age),
    Column("out/s", 9, _rate),
    Column("in flight", 10, _count),
)
TABLES = {"topics": TOPICS, "groups": GROUPS}
# By which column each table is sorted at first: the rate, and the lag.
SORTED_FIRST = {"topics": 3, "groups": 1}

Row = tuple[Any, ...]


def topic_rows(before: Sample, now: Sample) -> list[Row]:
    """A row of `TOPICS` for each topic."""
    ends = {topic.topic: sum(queue.max_offset for queue in topic.queues) for topic in before.topics}
    return [
        (
            topic.topic,
            topic.queue_count,
            sum(queue.max_offset - queue.min_offset for queue in topic.queues),
            _per_second(
                ends.get(topic.topic), sum(queue.max_offset for queue in topic.queues), now.seconds - before.seconds
            ),
        )
        for topic in now.topics
    ]


def group_rows(before: Sample, now: Sample) -> list[Row]:
    """A row of `GROUPS` for each group."""
    from cli.groups import lag_row, total_row

    positions = {group.settings.consumer_group: _positions(group) for group in before.groups}
    rows = []
    for group in now.groups:
        name = group.settings.consumer_group
        total = total_row(name, group, [lag_row(name, queue) for queue in group.queues])
        rate = _per_second(positions.get(name), _positions(group), now.seconds - before.seconds)
        counts = (total["in_flight"], total["retries"], total["dead_letters"], len(group.members))
        rows.append((name, total["lag"], total["lag_seconds"], rate, *counts))
    return rows


def topic_queue_rows(name: str, before: Sample, now: Sample) -> list[Row]:
    """A row of `TOPIC_QUEUES` for each queue of a topic."""
    ends = {
        (queue.broker_name, queue.queue_id): queue.max_offset
        for topic in before.topics
        for queue in topic.queues
        if topic.topic == name
    }
    return [
        (
            f"{queue.broker_name} / {queue.queue_id}",
            queue.min_offset,
            queue.max_offset,
            _per_second(ends.get((queue.broker_name, queue.queue_id)), queue.max_offset, now.seconds - before.seconds),
        )
        for topic in now.topics
        for queue in topic.queues
        if topic.topic == name
    ]


def group_queue_rows(name: str, before: Sample, now: Sample) -> list[Row]:
    """A row of `GROUP_QUEUES` for each queue of a group, those that are furthest behind first."""
    from cli.groups import seconds_of

    def queues(sample: Sample) -> Iterator[Any]:
        return (queue for group in sample.groups if group.settings.consumer_group == name for queue in group.queues)

    known = {(queue.topic, queue.broker_name, queue.queue_id): queue.consumer_offset for queue in queues(before)}
    rows = [
        (
            f"{queue.topic} / {queue.broker_name} / {queue.queue_id}",
            queue.lag_count,
            seconds_of(queue.lag_age),
            _per_second(
                known.get((queue.topic, queue.broker_name, queue.queue_id)),
                queue.consumer_offset,
                now.seconds - before.seconds,
            ),
            queue.in_flight_count,
        )
        for queue in queues(now)
    ]
    return sorted(rows, key=lambda row: -row[1])


def _positions(group: "ConsumerGroupDetails") -> int:
    return sum(queue.consumer_offset for queue in group.queues)


def _per_second(before: int | None, now: int, seconds: float) -> float | None:
    """None without an earlier count; a position that was moved back counts as 0."""
    return None if before is None or seconds <= 0 else max(0.0, (now - before) / seconds)


@dataclasses.dataclass(slots=True)
class View:
    """What the reader looks at.

    Attributes:
        table: the one that the keys move in.
        opened: the topic or group of that table that fills the screen; empty: none.
        sorted_by: the column of each table.
        is_turned: tables whose order is turned around.
        selected: the name of the chosen row by table.
    """

    table: str = "groups"
    opened: str = ""
    sorted_by: dict[str, int] = dataclasses.field(default_factory=lambda: dict(SORTED_FIRST))
    is_turned: set[str] = dataclasses.field(default_factory=set)
    selected: dict[str, str] = dataclasses.field(default_factory=dict)

    def sort(self, table: str, rows: list[Row]) -> list[Row]:
        """Names rise, numbers fall, unless the order is turned around; unknown numbers come last."""
        place = self.sorted_by[table]
        rows = sorted(rows, key=lambda row: row[0])
        if place == 0:
            return rows[::-1] if table in self.is_turned else rows
        known = sorted((row for row in rows if row[place] is not None), key=lambda row: row[place])
        if table not in self.is_turned:
            known.sort(key=lambda row: -row[place])
        return known + [row for row in rows if row[place] is None]

    def press(self, key: str, tables: dict[str, list[Row]]) -> bool:
        """Do what a key means; `tables` are sorted as they are shown. False: the reader ends it."""
        names = [row[0] for row in tables[self.table]]
        if key in ("q", "ctrl-c"):
            return False
        if key == "tab":
            self.table = "topics" if self.table == "groups" else "groups"
            self.opened = ""
        elif key == "s":
            self.sorted_by[self.table] = (self.sorted_by[self.table] + 1) % len(TABLES[self.table])
        elif key == "r":
            self.is_turned ^= {self.table}
        elif key == "enter" and names:
            self.opened = self.chosen(self.table, names)
        elif key in ("escape", "backspace"):
            self.opened = ""
        elif key in STEPS and names:
            place = names.index(self.chosen(self.table, names)) + STEPS[key]
            self.selected[self.table] = names[min(max(place, 0), len(names) - 1)]
            if self.opened:
                self.opened = self.selected[self.table]
        return True

    def chosen(self, table: str, names: Sequence[str]) -> str:
        """The chosen row of a table, its first one when that has gone; empty without rows."""
        name = self.selected.get(table, "")
        return name if name in names else names[0] if names else ""


# How far keys move the choice.
STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -10, "page-down": 10, "home": -(1 << 30), "end": 1 << 30}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What has been asked so far.

    Attributes:
        before, now: two samples; the same while there is one only.
        failure: why the last question failed; empty when it did not.
    """

    before: Sample | None = None
    now: Sample | None = None
    failure: str = ""


def tables_of(view: View, seen: Seen) -> dict[str, list[Row]]:
    """The rows of both tables in the order that the view has."""
    if seen.before is None or seen.now is None:
        return {"topics": [], "groups": []}
    rows = {"topics": topic_rows(seen.before, seen.now), "groups": group_rows(seen.before, seen.now)}
    return {table: view.sort(table, each) for table, each in rows.items()}


def draw(view: View, seen: Seen, head: str, width: int, height: int | None) -> "list[Text]":
    """The lines of the screen, none wider than `width`.

    Args:
        view: what the reader looks at.
        seen: what has been asked.
        head: the first line.
        width: characters of a line.
        height: lines; None: as many as there are rows, and no keys (--once).
    """
    tables = tables_of(view, seen)
    lines = [_text(_fit(head, width), "bold reverse" if height else "bold")]
    if seen.failure:
        lines.append(_text(_fit(seen.failure, width), "bold red"))
    if seen.before is None or seen.now is None:
        return lines
    lines += [_text(_fit(line, width), style) for line, style in store_lines(seen.before, seen.now)]
    if view.opened:
        columns, rows, said = _opened(view, seen)
        lines += [_text(_fit(line, width)) for line in said]
        room = None if height is None else height - len(lines) - 1
        lines += table_lines(columns, rows, width, room, title=f"{view.table[:-1]} {view.opened}")
    else:
        rooms = _rooms(tables, None if height is None else height - len(lines) - 1)
        for table in ("topics", "groups"):
            chosen = view.chosen(table, [row[0] for row in tables[table]]) if height and table == view.table else ""
            lines += table_lines(
                TABLES[table], tables[table], width, rooms[table], chosen=chosen, sorted_by=view.sorted_by[table]
            )
    if height:
        lines = lines[: height - 1]
        lines += [_text("")] * (height - 1 - len(lines))
        keys = "Esc back" if view.opened else "Enter open"
        lines.append(_text(_fit(f"q end   Tab other table   s sort   r turn around   {keys}", width), "dim"))
    return lines


def _rooms(tables: dict[str, list[Row]], height: int | None) -> dict[str, int | None]:
    """The lines of each table, headers included; the shorter one leaves what it does not need to the other."""
    if height is None:
        return {"topics": None, "groups": None}
    wanted = {table: len(rows) + 1 for table, rows in tables.items()}
    topics = min(wanted["topics"], max(height // 2, height - wanted["groups"], ROWS_MIN + 1))
    return {"topics": topics, "groups": max(height - topics, 0)}


def _opened(view: View, seen: Seen) -> tuple[tuple[Column, ...], list[Row], list[str]]:
    assert seen.before is not None
    assert seen.now is not None
    if view.table == "topics":
        return TOPIC_QUEUES, topic_queue_rows(view.opened, seen.before, seen.now), []
    said = []
    for group in seen.now.groups:
        if group.settings.consumer_group == view.opened:
            said += [f"! {problem}" for problem in group.problems]
            said += [
                f"member {member.client_id} {member.language} {member.version} {member.address}".rstrip()
                for member in group.members
            ]
    return GROUP_QUEUES, group_queue_rows(view.opened, seen.before, seen.now), said[: ROWS_MIN * 2]


def store_lines(before: Sample, now: Sample) -> list[tuple[str, str]]:
    """Lines with their styles: each shard with its log, disk and services that are behind, each replica, and problems."""
    from cli.status import replica_rows, status_rows
    from console.parts.formats import size_text

    ends = {row.broker_name: row.log_end_offset for row in before.services if row.service == "commitlog"}
    behind: dict[str, list[str]] = {}
    for state in status_rows(now.services):
        if state["lag_bytes"]:
            behind.setdefault(state["broker_name"], []).append(f"{state['service']} {size_text(state['lag_bytes'])}")
    lines = []
    problems = [
        f"{row.broker_name} {row.service}: {row.problem if row.error is None else row.error.message}"
        for row in now.services
        if row.error is not None or row.problem
    ]
    for row in now.services:
        if row.service != "commitlog" or row.error is not None:
            continue
        rate = _per_second(ends.get(row.broker_name), row.log_end_offset, now.seconds - before.seconds) or 0
        log = f"log {size_text(row.log_end_offset - row.log_first_offset)}, {size_text(int(rate))}/s"
        disk = ""
        if row.disk_total_bytes:
            used = round(100 * (1 - row.disk_free_bytes / row.disk_total_bytes))
            disk = f"   disk {used} %, {size_text(row.disk_free_bytes)} free, {row.disk_level or row.state}"
        late = "behind: " + ", ".join(behind[row.broker_name]) if behind.get(row.broker_name) else "nothing behind"
        style = "red" if row.disk_level == "full" else ""
        lines.append((f"{row.broker_name}   {log}{disk}   {late}", style))
    for replica in replica_rows(now.services):
        in_sync = "in sync" if replica["in_sync"] else "not in sync"
        lag = f"{size_text(replica['lag_bytes'])}, {_age(replica['lag_millis'] / 1000)} behind"
        text = f"  replica {replica['replica']}   {replica['role']}   {in_sync}   {lag}"
        lines.append((text, "" if replica["in_sync"] else "yellow"))
    problems += now.notes
    lines += [(f"! {problem}", "yellow") for problem in problems[:PROBLEM_LINES_MAX]]
    if len(problems) > PROBLEM_LINES_MAX:
        lines.append((f"! {len(problems) - PROBLEM_LINES_MAX} more: reput status", "yellow"))
    return lines


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int,
    height: int | None,
    *,
    chosen: str = "",
    sorted_by: int | None = None,
    title: str = "",
) -> "list[Text]":
    """A header and the rows around the chosen one, in at most `height` lines (None: all); a `*` marks the sorted column."""
    first = max(width - sum(column.width for column in columns), WIDTH_MIN // 2)
    names = [column.name + "*" * (place == sorted_by) for place, column in enumerate(columns)]
    cells = [f"{name:>{column.width}}" for name, column in zip(names[1:], columns[1:], strict=True)]
    lines = [_text(_fit(_fit(title or names[0], first) + "".join(cells), width), "bold cyan")]
    room = len(rows) if height is None else max(height - 1, 0)
    place = next((number for number, row in enumerate(rows) if row[0] == chosen), 0)
    begin = min(max(place - room + 1, 0), max(len(rows) - room, 0))
    for row in rows[begin : begin + room]:
        cells = [f"{column.write(value):>{column.width}}" for column, value in zip(columns[1:], row[1:], strict=True)]
        line = _fit(_fit(row[0], first) + "".join(cells), width)
        lines.append(_text(line, "reverse" if chosen and row[0] == chosen else ""))
    if not rows and height != 1:
        lines.append(_text("none", "dim"))
    return lines


def _fit(text: str, width: int) -> str:
    """The text in exactly so many places of a terminal; a character of Chinese takes two."""
    from rich.cells import cell_len, set_cell_size

    text = one_line(text)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _text(line: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(line, style=style, no_wrap=True, end="")


class Sampler:
    """Takes samples in a thread, again and again, and goes on after failures.

    Args:
        ask: takes a sample; raises `CliError`.
        interval_seconds: pause between two.
        told: called after each.
    """

    def __init__(self, ask: Callable[[], Sample], interval_seconds: float, told: Callable[[], None]) -> None:
        self._ask = ask
        self._interval_seconds = interval_seconds
        self._told = told
        self._samples: collections.deque[Sample] = collections.deque(maxlen=SAMPLE_COUNT_MAX)
        self._failure = ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Not waited for: a call to a gateway that hangs may take its whole time."""
        self._ended.set()

    def seen(self) -> Seen:
        """What there is now."""
        with self._lock:
            if not self._samples:
                return Seen(failure=self._failure)
            return Seen(self._samples[0], self._samples[-1], self._failure)

    def take(self) -> None:
        """Ask once."""
        try:
            sample = self._ask()
        except CliError as error:
            with self._lock:
                self._failure = f"{error.reason}: {error.message}; asked again every {self._interval_seconds:g} s"
            return
        with self._lock:
            if self._failure:
                self._samples.clear()  # no rate over a time in which nothing was known
            self._failure = ""
            self._samples.append(sample)

    def _run(self) -> None:
        while not self._ended.is_set():
            self.take()
            self._told()
            self._ended.wait(self._interval_seconds)


SEQUENCES = {
    b"\t": "tab",
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "escape",
    b"\x7f": "backspace",
    b"\x03": "ctrl-c",
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
}
KEY_BYTES_MAX = 64


def keys_of(typed: bytes) -> list[str]:
    """The keys in what a terminal sent; what is no known key is left out."""
    keys = []
    while typed:
        known = next((each for each in sorted(SEQUENCES, key=len, reverse=True) if typed.startswith(each)), typed[:1])
        if key := SEQUENCES.get(known) or (known.decode() if known.isalpha() else ""):
            keys.append(key)
        typed = typed[len(known) :]
    return keys


@contextlib.contextmanager
def _raw_keys(descriptor: int) -> Iterator[None]:
    """Keys come at once and are not shown."""
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)  # what was typed before is kept
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def top(
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only topics whose names hold this.")] = "",
    group: Annotated[str, typer.Option("--group", "-g", help="Only groups whose names hold this.")] = "",
    interval: Annotated[
        float, typer.Option("--interval", "-d", min=INTERVAL_SECONDS_MIN, help="Seconds between two samples.")
    ] = INTERVAL_SECONDS,
    once: Annotated[bool, typer.Option("--once", help="Print it once, over one second, and end.")] = False,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Show live which topics get messages, which groups are behind, and how replicas and disks are.

    Keys: q ends, Tab goes to the other table, s sorts by the next column, r turns the order around, arrows choose, Enter
    opens a topic or a group, Esc closes it.
    """
    from cli.client import failure_of, query_client
    from reput_client import ReputClientError

    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        usage_error("reput top needs a terminal", "`reput top --once` prints the same without one.")
    with query_client(address, timeout) as client:

        def ask() -> Sample:
            try:
                return take_sample(client, topic, group)
            except ReputClientError as error:
                raise failure_of(error, address) from error

        if once:
            return print_once(ask, address)
        return show_live(ask, address, interval)


def print_once(ask: Callable[[], Sample], address: str, sleep: Callable[[float], None] = time.sleep) -> Exit:
    """Print the screen as text, from two samples; exit 3 when a service or a shard did not answer."""
    import shutil

    before = ask()
    sleep(ONCE_SECONDS)
    seen = Seen(before, ask())
    assert seen.now is not None
    width = max(shutil.get_terminal_size((WIDTH_DEFAULT, 0)).columns, WIDTH_MIN)
    for line in draw(View(), seen, _head(address, seen), width, None):
        print(line.plain.rstrip())
    is_partial = any(row.error is not None for row in seen.now.services)
    return Exit.PARTIAL if is_partial else Exit.FOUND


def _head(address: str, seen: Seen) -> str:
    from cli.times import iso_text

    version = f" {seen.now.version}" if seen.now is not None else ""
    return f"reput{version} at {address}   {iso_text(datetime.datetime.now(datetime.UTC))[:19]}"


def show_live(ask: Callable[[], Sample], address: str, interval_seconds: float) -> Exit:
    """Draw again after each sample and each key, until the reader ends it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    keyboard = sys.stdin.fileno()
    # Left open until the process ends: the thread of the samples may still write.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wake() -> None:
        with contextlib.suppress(OSError):  # it is awake already, or ends
            os.write(writing, b"\0")

    console = Console(highlight=False, emoji=False, markup=False)
    view = View()
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(_raw_keys(keyboard))
        sampler = cleanup.enter_context(Sampler(ask, interval_seconds, wake))
        live = cleanup.enter_context(Live(console=console, screen=True, auto_refresh=False))
        while True:
            seen = sampler.seen()
            width, height = max(console.width, WIDTH_MIN), max(console.height, HEIGHT_MIN)
            lines = draw(view, seen, _head(address, seen), width, height)
            live.update(Text("\n").join(lines), refresh=True)
            ready, _, _ = select.select([keyboard, reading], [], [])
            if reading in ready:
                os.read(reading, KEY_BYTES_MAX)
            if keyboard in ready:
                typed = os.read(keyboard, KEY_BYTES_MAX)
                # The end of the input ends it, as `q` does.
                if not typed or not all(view.press(key, tables_of(view, seen)) for key in keys_of(typed)):
                    return Exit.FOUND
