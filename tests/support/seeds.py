"""Seeds of random tests: some for `make test`, the rest for `make ci`."""

import pytest


def seeds(count: int, *, short: int) -> list[object]:
    """The numbers below `count` as parameters; those from `short` on are marked `long`."""
    return [seed if seed < short else pytest.param(seed, marks=pytest.mark.long) for seed in range(count)]
