"""One seed for each random test: printed, so that a failure can be replayed with TORTURE_SEED."""

import os
import random


def pick_seed(name: str) -> int:
    """A fresh seed, or TORTURE_SEED; printed with the test's name (pytest shows it when the test fails)."""
    given = os.environ.get("TORTURE_SEED")
    seed = int(given) if given else random.SystemRandom().getrandbits(32)
    print(f"{name}: seed {seed} (replay: TORTURE_SEED={seed})")
    return seed
