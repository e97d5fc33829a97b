"""Three commitlogs in memory and what spreads over them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.gateway.appends.memory_logs import NAMES, Log, spread_over


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def logs(pool):
    return {name: Log(name, pool) for name in NAMES}


@pytest.fixture
def spread(logs):
    return spread_over(logs)
