"""FairThreads: who gets the threads of a door."""

import threading
from collections.abc import Iterator

import pytest

from gateway.remoting.fair_threads import ADMINISTRATION_THREAD_COUNT, THREAD_COUNT, FairThreads
from services.serving.admission.shares import Client, client_of_peer
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    threads = FairThreads("test-work")
    yield threads
    threads.close()


class Slow:
    """Work that runs until the test lets it end."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._turn = threading.Semaphore(0)

    def work(self, name: str) -> None:
        self.began.append(name)
        self._turn.acquire()

    def end(self, count: int = 1) -> None:
        self._turn.release(count)


def named(host: str, port: int = 1) -> Client:
    return client_of_peer(f"ipv4:{host}:{port}")


def test_a_client_that_asks_for_much_leaves_threads_to_others(threads: FairThreads) -> None:
    slow, is_done = Slow(), threading.Event()
    hog, other = named("10.0.0.1"), named("10.0.0.2")
    for _ in range(500):
        assert threads.add(hog, lambda: slow.work("hog"))
    wait_until(lambda: len(slow.began) == THREAD_COUNT // 2, "half of the threads")
    assert threads.add(other, is_done.set)
    assert is_done.wait(WAIT_SECONDS_MAX)
    assert len(slow.began) == THREAD_COUNT // 2
    slow.end(500)


def test_clients_take_turns_when_all_threads_are_in_use() -> None:
    threads, slow = FairThreads("test-work", thread_count=2), Slow()
    hog, other = named("10.0.0.1"), named("10.0.0.2")
    for _ in range(100):
        threads.add(hog, lambda: slow.work("hog"))
    threads.add(other, lambda: slow.work("other"))
    threads.add(other, lambda: slow.work("other"))
    wait_until(lambda: len(slow.began) == 2, "a piece of each")
    assert sorted(slow.began) == ["hog", "other"]
    slow.end(102)
    wait_until(lambda: len(slow.began) == 102, "everything")
    threads.close()


def test_administration_has_a_few_threads_and_never_none(threads: FairThreads) -> None:
    slow, usual = Slow(), Slow()
    hog = named("10.0.0.1")
    for _ in range(100):
        threads.add(hog, lambda: slow.work("administration"), is_administration=True)
    wait_until(lambda: len(slow.began) == ADMINISTRATION_THREAD_COUNT, "its threads")
    for number in range(50):
        threads.add(named("10.0.0.2", number), lambda: usual.work("usual"))
    wait_until(lambda: len(usual.began) >= THREAD_COUNT // 2, "threads for the rest")
    assert len(slow.began) == ADMINISTRATION_THREAD_COUNT
    slow.end(100)
    wait_until(lambda: len(slow.began) == 100, "all of it, while the rest is slow")
    usual.end(50)
    wait_until(lambda: len(usual.began) == 50, "the rest")


def test_work_beyond_a_share_is_refused_and_its_room_comes_back() -> None:
    threads, slow = FairThreads("test-work", work_count_max=8), Slow()
    hog = named("10.0.0.1")
    taken = [threads.add(hog, lambda: slow.work("hog")) for _ in range(6)]
    assert taken == [True] * 4 + [False] * 2
    assert threads.add(named("10.0.0.2"), lambda: slow.work("other"))
    slow.end(5)
    wait_until(lambda: threads.add(hog, lambda: None), "room")
    threads.close()
    assert not threads.add(hog, lambda: None)
