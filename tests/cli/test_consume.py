"""`reput consume` finds the queues that a topic gets while it runs."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from cli.groups import consume
from reput_client.errors import UnavailableError


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
    assert enough.wait(10)
    assert pulled == [(later, 7)]
