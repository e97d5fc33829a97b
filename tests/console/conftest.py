"""A console over the records of the broker fixture."""

from dataclasses import replace

import pytest

from gateway.ports.delivery import ClientFacts, Filter, FilterKind, GroupSettings
from gateway.ports.groups import Track, TrackState
from tests.console.asking import Browser, console_over
from tests.gateway import conftest as gateway_fixtures
from tests.gateway.groups.memory_groups import MemoryGroups
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.waiting.memory_waiting import MemoryScheduling, delayed, half

# The console asks a gateway, so its tests share the fixtures of the gateway's.
records, fan_out = gateway_fixtures.records, gateway_fixtures.fan_out
tokens, deadline = gateway_fixtures.tokens, gateway_fixtures.deadline


class GroupedShard(MemoryShard):
    """A shard with a consumer group of each kind, which has a position in every topic, and with messages that wait."""

    def shard(self, broker_name="broker-a"):
        groups = MemoryGroups()
        groups.groups = {
            "g": GroupSettings("g", delivery_attempts_max=3),
            "in order": GroupSettings("in order", ordered=True, consume_enabled=False),
        }
        groups.groups |= {
            topic.removeprefix("%DLQ%"): GroupSettings(topic.removeprefix("%DLQ%"))
            for topic in {record.topic for record in self.records}
            if topic.startswith("%DLQ%")
        }
        groups.held = {("g", record.topic, record.queue_id): 1 for record in self.records}
        wanted = (("orders", Filter(FilterKind.TAGS, "a || b")), ("sql", Filter(FilterKind.SQL, "a > 1")))
        groups.members = {"g": [ClientFacts("a-client", "g", wanted, "PYTHON", "1.0")]}
        states = [Track(f"g-{state.name}", state, 2, 1_700_000_000_000, client_id="a-client") for state in TrackState]
        groups.tracks = {record.commit_log_offset: states for record in self.records}
        self.topics["waiting-topic"] = 1
        waiting = MemoryScheduling(
            broker_name,
            [half("K1", "waiting-topic"), half("K2 <b>", "waiting-topic")],
            [delayed(f"M{number}", 1_800_000_000_000, "waiting-topic") for number in range(150)],
        )
        return waiting.in_shard(replace(super().shard(broker_name), groups=groups))


@pytest.fixture
def shard(records) -> MemoryShard:
    return GroupedShard(records)


@pytest.fixture
def browser(shard, fan_out):
    app = console_over([shard], fan_out)
    yield Browser(app)
    app.close()
