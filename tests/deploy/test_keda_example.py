"""deploy/examples/keda: what KEDA would read from Prometheus is the lag of the group, as the gateway knows it."""

import math
from pathlib import Path
from typing import Any

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.ports import free_port
from tests.support.prometheus import PROMETHEUS, Prometheus
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/examples/keda/scaledobject.yaml").read_text(encoding="utf-8"))
(TRIGGER,) = EXAMPLE["spec"]["triggers"]
GROUP, TOPIC = "orders", "Orders"
SETTINGS = {
    "REPUT_CONSUMER_GROUP_METRICS": "true",
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "4194304",
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
}

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus (Debian's package)"),
]


def _lag(stack: Stack) -> int:
    group = stack.gateway.GetConsumerGroup(pb.GetConsumerGroupRequest(consumer_group=GROUP), timeout=WAIT_SECONDS_MAX)
    return sum(queue.lag_count for queue in group.queues)


def _append(stack: Stack, count: int) -> None:
    """So many messages, over eight queues evenly."""
    messages = [new_message(TOPIC, f"order {number}".encode(), queue_id=number % 8) for number in range(count)]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)


def _commit(stack: Stack, **offsets: int) -> None:
    positions = [
        pb.QueuePosition(topic=TOPIC, queue_id=int(name.removeprefix("queue_")), consumer_offset=offset)
        for name, offset in offsets.items()
    ]
    stack.gateway.CommitOffsets(
        pb.CommitOffsetsRequest(consumer_group=GROUP, positions=positions), timeout=WAIT_SECONDS_MAX
    )


def test_the_query_of_the_example_is_the_lag_that_the_gateway_shows(tmp_path: Path) -> None:
    page = f"127.0.0.1:{free_port()}"
    settings = {**SETTINGS, "REPUT_CONSUMER_METRICS_ADDRESS": page}
    with (
        running_stack(tmp_path / "store", settings=settings) as stack,
        Prometheus(tmp_path / "prometheus", {"reput-consumer": [page]}) as prometheus,
    ):
        assert prometheus.ask(TRIGGER["metadata"]["query"]) == []  # ignoreNullValues decides

        def asked() -> float | None:
            rows = prometheus.ask(TRIGGER["metadata"]["query"])
            return rows[0][1] if rows else None

        _append(stack, 1_000)
        _commit(stack, queue_0=0)  # it never read the other queues, which count too
        stack.wait_until_built()
        wait_until(lambda: _lag(stack) == 1_000, lambda: f"the gateway says {_lag(stack)}")
        wait_until(lambda: asked() == 1_000, lambda: f"Prometheus says {asked()}")
        # KEDA's trigger is an AverageValue: the autoscaler wants so many.
        assert math.ceil(1_000 / float(TRIGGER["metadata"]["threshold"])) == 2

        _commit(stack, queue_0=125, queue_1=75)
        wait_until(lambda: asked() == 800, lambda: f"Prometheus says {asked()}")
        assert _lag(stack) == 800


def test_the_example_names_what_it_scales_and_an_address_of_prometheus() -> None:
    assert (EXAMPLE["apiVersion"], EXAMPLE["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    spec = EXAMPLE["spec"]
    assert spec["scaleTargetRef"]["name"] == EXAMPLE["metadata"]["name"]
    assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    # KEDA takes its metadata as texts only.
    assert all(isinstance(value, str) for value in TRIGGER["metadata"].values())
    assert TRIGGER["metadata"]["serverAddress"].startswith("http://")
