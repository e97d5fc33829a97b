"""A batch writer: what comes meanwhile is written together, by its thread or by a caller that waits for it."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from services.following.batch_writer import BatchWriter
from store.errors import FlushFailedError, ServiceUnavailableError, StoreError
from tests.support.waiting import WAIT_SECONDS_MAX


@dataclass
class Item:
    name: str
    done: "Future[str]" = field(default_factory=Future)

    def outcome(self) -> str:
        return self.done.result(WAIT_SECONDS_MAX)


class Writer(BatchWriter[Item]):
    """Says which thread wrote; can be held, and fails with what it is given."""

    def __init__(self) -> None:
        self.written: list[tuple[list[str], str]] = []
        self.error: Exception | None = None
        self.fails_with: Exception | None = None
        self.arrived = threading.Semaphore(0)
        self.release = threading.Event()
        self.release.set()
        self.reasons: list[StoreError] = []
        super().__init__("writer", "an item", self.reasons.append)

    def put(self, *names: str, writes_here: bool = False) -> list[Item]:
        items = [Item(name) for name in names]
        self._put(*items, writes_here=writes_here)
        return items

    def _take(self, submitted: "deque[Item]") -> list[Item]:
        taken = list(submitted)
        submitted.clear()
        return taken

    def _write(self, taken: Sequence[Item]) -> None:
        self.written.append(([item.name for item in taken], threading.current_thread().name))
        self.arrived.release()
        assert self.release.wait(WAIT_SECONDS_MAX)
        if self.fails_with is not None:
            raise self.fails_with
        for item in taken:
            item.done.set_result(item.name)

    def _broken(self, error: StoreError | None) -> ServiceUnavailableError:
        return ServiceUnavailableError("broken" if error else "closed")


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    made.release.set()
    made.close()


def test_the_thread_writes_what_is_submitted(writer: Writer) -> None:
    (item,) = writer.put("a")

    assert item.outcome() == "a"
    assert writer.written == [(["a"], "writer")]


def test_a_caller_that_waits_writes_itself(writer: Writer) -> None:
    items = writer.put("a", "b", writes_here=True)

    assert [item.done.done() for item in items] == [True, True]
    assert writer.written == [(["a", "b"], threading.current_thread().name)]


def test_what_comes_while_a_caller_writes_is_left_to_the_thread(writer: Writer) -> None:
    writer.release.clear()
    first = threading.Thread(target=writer.put, args=("a",), kwargs={"writes_here": True}, name="caller")
    first.start()
    assert writer.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    later = [*writer.put("b", writes_here=True), *writer.put("c")]
    writer.release.set()
    first.join(WAIT_SECONDS_MAX)

    assert [item.outcome() for item in later] == ["b", "c"]
    assert writer.written == [(["a"], "caller"), (["b", "c"], "writer")]


def test_a_write_of_a_caller_that_fails_breaks_the_writer(writer: Writer) -> None:
    writer.fails_with = FlushFailedError("the disk is gone")
    items = [*writer.put("a", writes_here=True), *writer.put("b", writes_here=True), *writer.put("c")]

    assert [str(item.done.exception(0)) for item in items] == ["broken"] * 3
    assert writer.reasons == [writer.fails_with]
    assert len(writer.written) == 1
    writer.close()  # its thread has ended


def test_the_end_waits_for_a_caller_that_writes(writer: Writer) -> None:
    writer.release.clear()
    first = threading.Thread(target=writer.put, args=("a",), kwargs={"writes_here": True})
    first.start()
    assert writer.arrived.acquire(timeout=WAIT_SECONDS_MAX)
    (later,) = writer.put("b")
    closing = threading.Thread(target=writer.close)
    closing.start()
    writer.release.set()
    closing.join(WAIT_SECONDS_MAX)
    first.join(WAIT_SECONDS_MAX)

    assert later.outcome() == "b"
    assert [str(item.done.exception(0)) for item in writer.put("c", writes_here=True)] == ["closed"]
