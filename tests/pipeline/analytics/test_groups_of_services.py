"""What a running store writes about its groups is what the job reads: positions against `GetConsumerGroup`, without Spark."""

from pathlib import Path

import pyarrow as pa

from pipeline.analytics.replay import CHANGE_SCHEMA, COLUMNS, STATE_TOPIC, changes_of, events_of
from pipeline.scan.schema import NATIVE_SCHEMA
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import Consumer
from tests.pipeline.brute_force import make_reader
from tests.pipeline.rocketmq.gateways import append
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ACKED = 3


def test_positions_are_those_that_the_services_answer(tmp_path: Path) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        endpoint = stack.addresses["gateway"]
        append(endpoint, "Popped", [b"%d" % number for number in range(8)], queue_id=1)
        append(endpoint, "Pulled", [b"%d" % number for number in range(8)], queue_id=0)
        stack.wait_until_built()
        position = pb.QueuePosition(topic="Pulled", queue_id=0, consumer_offset=2)
        for offset in (2, 7):
            position.consumer_offset = offset
            stack.gateway.CommitOffsets(
                pb.CommitOffsetsRequest(consumer_group="pulls", positions=[position]), timeout=WAIT_SECONDS_MAX
            )
        with Consumer(endpoint, "pops", {"Popped": "*"}) as consumer:
            for _ in range(ACKED):
                delivery = consumer.take(WAIT_SECONDS_MAX)
                assert delivery is not None
                delivery.ack().result(WAIT_SECONDS_MAX)

        def answers() -> dict[tuple[str, str, int], int]:
            return {
                (name, row.topic, row.queue_id): row.consumer_offset
                for name in ("pops", "pulls")
                for row in stack.gateway.GetConsumerGroup(
                    pb.GetConsumerGroupRequest(consumer_group=name), timeout=WAIT_SECONDS_MAX
                ).queues
                if row.topic in ("Popped", "Pulled")
            }

        # What a program did not take was not attempted, so it stays where it is.
        expected = {("pops", "Popped", 1): ACKED, ("pulls", "Pulled", 0): 7}
        wait_until(lambda: answers() == expected, answers)
    schema = NATIVE_SCHEMA.__class__([NATIVE_SCHEMA[name] for name in COLUMNS])
    reader = make_reader(tmp_path / "store", schema, topics=STATE_TOPIC)
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    changes = pa.Table.from_batches(list(changes_of(batches)), CHANGE_SCHEMA)
    order = [(name, "ascending") for name in ("consumer_group", "commit_log_offset", "number")]
    events = [row for batch in events_of(changes.sort_by(order).to_batches()) for row in batch.to_pylist()]
    positions = {(row["consumer_group"], row["topic"], row["queue_id"]): row["consumer_offset"] for row in events}
    assert {place: positions.get(place) for place in expected} == expected
    consumed = dict.fromkeys(("pops", "pulls"), 0)
    for row in events:
        consumed[row["consumer_group"]] += 0 if row["first"] is None else row["last"] - row["first"] + 1
    # The first commit of a group that pulls says where it begins, not what it consumed.
    assert consumed == {"pops": ACKED, "pulls": 5}
