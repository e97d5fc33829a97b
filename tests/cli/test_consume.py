"""`reput consume` finds the queues that a topic gets while it runs."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cli.client
from cli import consume
from cli.exits import Exit
from reput_client import Completeness, PullStatus, Queue, QueuePosition
from reput_client.errors import NotFoundError, UnavailableError
from tests.support.command import run_command
from tests.support.waiting import WAIT_SECONDS_MAX


def test_a_queue_that_the_topic_gets_later_is_pulled_from_its_first_message_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume, "QUEUES_SECONDS", 0.001)
    first, later = (SimpleNamespace(broker_name="a", queue_id=number, min_offset=7) for number in (0, 1))
    looks: list[list[SimpleNamespace]] = [[first], [first, later], [first, later], [first, later]]
    enough = threading.Event()

    class Client:
        def topics(self, topic: str) -> Iterator[SimpleNamespace]:
            if len(looks) == 2:
                looks.pop()
                raise UnavailableError("the gateway restarts")
            if not looks:
                enough.set()
                threading.Event().wait()  # the thread ends with the process
            yield SimpleNamespace(queues=looks.pop(0))

    pulled: list[tuple[SimpleNamespace, int]] = []
    wanted = consume.Wanted("T", "", "", "", waits=True)
    threading.Thread(
        target=consume._pull_new,
        args=(Client(), wanted, {("a", 0)}, lambda source, begin: pulled.append((source, begin))),
        daemon=True,
    ).start()
    assert enough.wait(WAIT_SECONDS_MAX)
    assert pulled == [(later, 7)]


class Rows(list[SimpleNamespace]):
    """Topics, and how complete they are."""

    completeness = Completeness.COMPLETE


class Store:
    """A topic of two queues, and the positions of a group."""

    def __init__(self) -> None:
        self.queues = [Queue("a", number, 0, 4) for number in (0, 1)]
        self.positions: dict[tuple[str, int], int] = {}

    def topics(self, topic: str) -> Rows:
        return Rows([SimpleNamespace(queues=list(self.queues))])

    def offsets(self, group: str, topic: str) -> list[QueuePosition]:
        if not self.positions:
            raise NotFoundError("no such group")
        return [QueuePosition(topic, number, at, name) for (name, number), at in self.positions.items()]

    def commit_offsets(self, group: str, rows: list[QueuePosition], *, begins: bool) -> None:
        assert begins
        for row in rows:
            self.positions.setdefault((row.broker_name, row.queue_id), row.consumer_offset)


def test_a_queue_that_came_after_the_group_began_was_read_from_its_end() -> None:
    store: Any = Store()
    wanted = consume.Wanted("T", "g", "", "", waits=False)
    assert [at for _, at in consume.queue_positions(store, wanted, "latest")] == [4, 4]
    store.queues.append(Queue("b", 0, 2, 9))

    assert [at for _, at in consume.queue_positions(store, wanted, "latest")] == [4, 4, 2]
    assert store.positions == {("a", 0): 4, ("a", 1): 4, ("b", 0): 2}


@pytest.mark.parametrize("words", [["consume", "-t", "T", "--until-end"], ["tail", "T"]])
def test_a_topic_whose_shard_did_not_answer_was_told_as_one_without_messages(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    class Missing(Store):
        def topics(self, topic: str) -> Rows:
            rows = Rows([SimpleNamespace(queues=[])])
            rows.completeness = Completeness.PARTIAL
            return rows

    monkeypatch.setattr(cli.client, "query_client", lambda *_: contextlib.nullcontext(Missing()))
    run = run_command(*words)
    assert run.returncode == Exit.PARTIAL
    assert "a shard did not answer" in run.stderr


def test_what_was_printed_last_was_committed_with_the_next_message_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose messages were all printed lagged until the command ended, and a kill printed them again."""
    monkeypatch.setattr(consume, "COMMIT_SECONDS", 0.01)
    printed, over = threading.Event(), threading.Event()

    class Client:
        def __init__(self) -> None:
            self.answers = iter([UnavailableError("the gateway restarts"), None])
            self.committed: list[QueuePosition] = []

        def pull(self, *_: object, **__: object) -> Iterator[SimpleNamespace]:
            yield SimpleNamespace(status=PullStatus.FOUND, next_offset=7)
            over.wait()
            yield SimpleNamespace(status=PullStatus.FOUND, next_offset=7)

        def commit_offsets(self, group: str, rows: list[QueuePosition]) -> None:
            failure = next(self.answers)
            if failure is not None:
                raise failure
            self.committed += rows
            over.set()

    client: Any = Client()
    commits = consume._Commits(client, "T", "g")
    commits._due_seconds = float("inf")  # the first message comes before a second has passed
    wanted = consume.Wanted("T", "g", "", "", waits=False)
    for source, batch in consume.pull_batches(client, wanted, [(Queue("a", 0, 0, 7), 0)], commits.look):
        if printed.is_set():
            break
        commits.note(source, batch.next_offset)
        commits._due_seconds = 0.0
        printed.set()
    assert client.committed == [QueuePosition("T", 0, 7, "a")]


def test_a_queue_that_is_pulled_after_the_client_was_closed_ends_without_a_traceback() -> None:
    """Of several queues one was refused: each of the others wrote a traceback."""

    class Closed:
        def pull(self, *_: object, **__: object) -> Iterator[object]:
            raise ValueError("Cannot invoke RPC: Channel closed!")

    ready: queue.Queue[Any] = queue.Queue()
    client: Any = Closed()
    consume._pull(client, consume.Wanted("T", "g", "", "", waits=False), Queue("a", 0, 0, 4), 0, ready)
    assert ready.empty()
