"""A console over the records of the broker fixture."""

import pytest

from tests.console.asking import Browser, console_over
from tests.gateway import conftest as gateway_fixtures
from tests.gateway.test_servicer import ProtoShard

# The console asks a gateway, so its tests share the fixtures of the gateway's.
records, fan_out = gateway_fixtures.records, gateway_fixtures.fan_out
tokens, deadline = gateway_fixtures.tokens, gateway_fixtures.deadline


@pytest.fixture
def shard(records) -> ProtoShard:
    return ProtoShard(records)


@pytest.fixture
def browser(shard, fan_out):
    app = console_over([shard], fan_out)
    yield Browser(app)
    app.close()
