"""A soak with everything on, for a change half a minute of load with an upgrade from today's code to itself; see soak.py.

A release soaks SOAK_MINUTES (120), with today's code twice, and beginning with each release that is kept. By hand: `make soak`.
"""

import os
from pathlib import Path

import pytest

from tests.soak.soak import Soak
from tests.support.etcd import ETCD, MISSING
from tests.support.releases import COMMITS
from tests.torture.seeds import pick_seed

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(900)]

SECONDS = 24.0


def soak(directory: Path, seconds: float, before: str = "") -> None:
    seed = pick_seed("a soak")
    figures = Soak(directory, seconds, seed, before).go()
    print(figures.table())
    assert figures.problems == [], f"seed {seed}; stores and logs are in {directory}"


def test_a_short_soak_with_everything_on_keeps_all_promises(tmp_path: Path) -> None:
    soak(tmp_path, SECONDS)


@pytest.mark.release
@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("before", ["", *COMMITS])
def test_hours_with_everything_on_and_an_upgrade_keep_all_promises(before: str, tmp_path: Path) -> None:
    soak(tmp_path, 60 * float(os.environ.get("SOAK_MINUTES") or 120), before)
