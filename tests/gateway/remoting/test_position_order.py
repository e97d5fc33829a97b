"""Positions that come at once: the newest holds, whichever thread was faster."""

import threading

from gateway.remoting.position_order import PositionOrder
from tests.support.waiting import WAIT_SECONDS_MAX

KEY = ("g", "t", 0)


def test_an_older_position_that_waited_for_a_thread_does_not_overwrite_a_newer_one() -> None:
    order, stored = PositionOrder(), []
    older, newer = order.number(), order.number()
    order.store(KEY, newer, 7, lambda: stored.append(7))
    order.store(KEY, older, 3, lambda: stored.append(3))
    order.store(("g", "t", 1), older, 3, lambda: stored.append(4))  # of another queue
    order.store(KEY, order.number(), 2, lambda: stored.append(2))  # a client may go back
    assert stored == [7, 4, 2]


def test_a_position_that_is_being_stored_is_finished_before_the_next_one() -> None:
    order, stored = PositionOrder(), []
    is_storing, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        is_storing.set()
        assert may_end.wait(WAIT_SECONDS_MAX)
        stored.append(1)

    first, second = order.number(), order.number()
    threads = [
        threading.Thread(target=order.store, args=(KEY, first, 1, slow)),
        threading.Thread(target=order.store, args=(KEY, second, 2, lambda: stored.append(2))),
    ]
    threads[0].start()
    assert is_storing.wait(WAIT_SECONDS_MAX)
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    assert stored == [1, 2]


def test_a_position_that_comes_with_a_pull_never_goes_back() -> None:
    order, stored = PositionOrder(), []
    order.note(KEY, order.number(), 5)
    order.store(KEY, order.number(), 4, lambda: stored.append(4), goes_back=False)
    order.store(KEY, order.number(), 6, lambda: stored.append(6), goes_back=False)
    assert stored == [6]


def test_a_position_that_could_not_be_stored_is_not_the_newest() -> None:
    order, stored = PositionOrder(), []
    older = order.number()

    def fail() -> None:
        raise ValueError

    try:
        order.store(KEY, order.number(), 7, fail)
    except ValueError:
        order.store(KEY, older, 3, lambda: stored.append(3))
    assert stored == [3]
