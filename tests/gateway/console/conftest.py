"""A console over the records of the broker fixture."""

import pytest

from tests.gateway.console.asking import Browser, console_over
from tests.gateway.test_servicer import ProtoShard


@pytest.fixture
def shard(records) -> ProtoShard:
    return ProtoShard(records)


@pytest.fixture
def browser(shard, fan_out):
    app = console_over([shard], fan_out)
    yield Browser(app)
    app.close()
