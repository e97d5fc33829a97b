"""A console over the records of the broker fixture."""

import pytest

from gateway.ports.time_window import set_millis
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1.gateway_service_pb2 import MessageFilter, TrackState
from tests.console.asking import Browser, console_over
from tests.gateway import conftest as gateway_fixtures
from tests.gateway.groups.memory_groups import MemoryGroups, group_settings
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.waiting.memory_waiting import MemoryScheduling, delayed, half
from tests.support.waiting import WAIT_SECONDS_MAX

# The console asks a gateway, so its tests share the fixtures of the gateway's.
records, fan_out = gateway_fixtures.records, gateway_fixtures.fan_out
tokens, deadline = gateway_fixtures.tokens, gateway_fixtures.deadline


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits less than a second for what stands beside its message, and the machine may be busy."""
    for name in ("RELATED", "STATUS", "TRACK"):
        monkeypatch.setattr(f"console.pages.message.{name}_SECONDS_MAX", WAIT_SECONDS_MAX)


def tracks_of_each_state() -> list[pb.TrackMessageResponse.Track]:
    tracks = []
    for name, state in list(TrackState.items())[1:]:
        track = pb.TrackMessageResponse.Track(
            consumer_group=f"g-{name.removeprefix('TRACK_STATE_')}",
            state=state,
            delivery_attempts=2,
            client_id="a-client",
        )
        set_millis(track.visible_time, 1_700_000_000_000)
        tracks.append(track)
    return tracks


class GroupedShard(MemoryShard):
    """A shard with a consumer group of each kind, which has a position in every topic, and with messages that wait."""

    def shard(self, broker_name="broker-a"):
        groups = MemoryGroups()
        groups.groups = {
            "g": group_settings("g", delivery_attempts_max=3),
            "in order": group_settings("in order", ordered=True, consume_enabled=False),
        }
        groups.groups |= {
            topic.removeprefix("%DLQ%"): group_settings(topic.removeprefix("%DLQ%"))
            for topic in {record.topic for record in self.records}
            if topic.startswith("%DLQ%")
        }
        groups.held = {("g", record.topic, record.queue_id): 1 for record in self.records}
        wanted = [
            gateway_pb.TopicSubscription(topic="orders", filter=MessageFilter(tags="a || b")),
            gateway_pb.TopicSubscription(topic="sql", filter=MessageFilter(sql="a > 1")),
        ]
        member = pb.Client(
            client_id="a-client", consumer_group="g", subscriptions=wanted, language="PYTHON", version="1.0"
        )
        groups.members = {"g": [member]}
        groups.tracks = dict.fromkeys((record.commit_log_offset for record in self.records), tracks_of_each_state())
        self.topics["waiting-topic"] = 1
        waiting = MemoryScheduling(
            broker_name,
            [half("K1", "waiting-topic"), half("K2 <b>", "waiting-topic")],
            [delayed(f"M{number}", 1_800_000_000_000, "waiting-topic") for number in range(150)],
        )
        return waiting.in_shard(groups.in_shard(super().shard(broker_name)))


@pytest.fixture
def shard(records) -> MemoryShard:
    return GroupedShard(records)


@pytest.fixture
def browser(shard, fan_out):
    app = console_over([shard], fan_out)
    yield Browser(app)
    app.close()
