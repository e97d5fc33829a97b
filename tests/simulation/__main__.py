"""Histories of a simulated world, by hand: `python -m tests.simulation replicas|consumers|waiting [--minutes M] [--seed N]`.

Without a seed it draws one after the other and says how many there were in a minute; the first that breaks a promise is
printed with its seed, and the exit code is 1. `--seed N` replays one history, and prints it also when it breaks nothing.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable

from tests.simulation import consumers, shard, waiting
from tests.simulation.world import BrokenPromiseError, World


def _replicas(seed: int) -> tuple[World, dict[str, int]]:
    made = shard.run_history(seed)
    return made.world, {"takeovers": made.takeovers, "acknowledged messages": len(made.acknowledged)}


def _consumers(seed: int) -> tuple[World, dict[str, int]]:
    made = consumers.run_history(seed)
    acked_count = sum(len(group.acked) for group in made.groups)
    return made.world, {"lives": made.life_count, "moves": made.move_count, "acknowledged messages": acked_count}


def _waiting(seed: int) -> tuple[World, dict[str, int]]:
    made = waiting.run_history(seed)
    return made.world, {"lives": made.life_count, "messages that waited": len(made.delivered)}


Run = Callable[[int], tuple[World, dict[str, int]]]
WORLDS: dict[str, Run] = {
    "replicas": _replicas,
    "consumers": _consumers,
    "waiting": _waiting,
}


def main() -> int:
    """Run histories until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, help="replay this history")
    given = parser.parse_args()
    run = WORLDS[given.world]
    begin, cpu_begin, count, seconds = time.monotonic(), time.process_time(), 0, 0.0
    sums: dict[str, int] = {}
    try:
        if given.seed is not None:
            print("\n".join(run(given.seed)[0].history))
            return 0
        while time.monotonic() < begin + given.minutes * 60:
            world, counts = run(random.SystemRandom().getrandbits(32))
            count, seconds = count + 1, seconds + world.now
            sums = {name: sums.get(name, 0) + more for name, more in counts.items()}
    except BrokenPromiseError as error:
        print(error)
        return 1
    rate, cpu_rate = (count / spent * 60 for spent in (time.monotonic() - begin, time.process_time() - cpu_begin))
    told = ", ".join(f"{amount:,} {name}" for name, amount in sums.items())
    print(
        f"{count:,} histories of {seconds:,.0f} simulated seconds, {told}: all promises kept; {rate:,.0f} histories a "
        f"minute, {cpu_rate:,.0f} in a minute of CPU time"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
