"""Tasks of a world go on in an order of its seed, by the clocks of their processes, and never after a kill."""

import threading
import time

import pytest

from tests.simulation.world import World


def test_what_waits_with_a_timeout_goes_on_by_the_clock_of_its_process() -> None:
    with World(1) as world:
        seen: list[tuple[str, float]] = []
        threads = _threading_of(world)
        for name, rate in (("slow", 0.5), ("fast", 2.0)):

            def work(name: str = name) -> None:
                condition = threads.Condition()
                with condition:
                    condition.wait(1.0)
                seen.append((name, world.now))

            world.begin(world.process(name, rate), work)
        world.run_until(10.0)
    assert seen == [("fast", 0.5), ("slow", 2.0)]


def test_a_killed_process_never_goes_on_and_holds_nothing_up() -> None:
    with World(1) as world:
        threads, seen = _threading_of(world), list[str]()
        process = world.process("p")
        event = threads.Event()

        def work() -> None:
            try:
                event.wait()
                seen.append("went on")
            finally:
                event.wait()  # returns at once: nothing of a dead process waits
                seen.append("unreachable")

        world.begin(process, work)
        world.run_until(1.0)
        world.kill(process)
        event.set()
        world.run_until(2.0)
        assert seen == []


def test_locks_and_clocks_of_reput_are_those_of_the_world_while_it_is_open() -> None:
    from commitlog_svc.append import group_commit

    with World(1) as world:
        assert group_commit.threading is not threading  # type: ignore[attr-defined]
        world.run_until(5.0)
        assert group_commit.time.monotonic() == 5.0  # type: ignore[attr-defined]
        commits = group_commit.GroupCommit(lambda begin, end: None, 10, lambda error: None)
        assert commits._clock() == 5.0
    assert group_commit.threading is threading  # type: ignore[attr-defined]
    assert group_commit.GroupCommit(lambda begin, end: None, 10, lambda error: None)._clock is time.monotonic


def test_a_lock_is_held_by_one_task_and_the_first_that_waits_gets_it() -> None:
    with World(1) as world:
        lock, order = _threading_of(world).Lock(), list[int]()

        def work(number: int) -> None:
            with lock:
                order.append(number)
                world.pause(1.0)
                order.append(number)

        for number in range(3):
            world.begin(None, lambda number=number: (world.pause(number / 10), work(number)))  # type: ignore[misc]
        world.run_until(10.0)
    assert order == [0, 0, 1, 1, 2, 2]


def test_what_a_task_raises_ends_the_world() -> None:
    with World(1) as world, pytest.raises(ZeroDivisionError):
        world.begin(None, lambda: 1 / 0)
        world.run_until(1.0)


def _threading_of(world: World):  # type: ignore[no-untyped-def]
    from tests.simulation.world import SimulatedThreading

    return SimulatedThreading(world)
