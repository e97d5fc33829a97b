"""Stored bytes by namespace: the analytics and the service say the same of one store, also after retention and a deletion."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.tables import namespaces, traffic
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.format.topic import namespace_of
from store.walk.log_reader import LogReader
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

FILE_BYTES = 16_384
TOPICS = (
    "team-a%Orders",
    "team-b%Orders",
    "Orders",
    "%RETRY%team-a%billing",
    "%DLQ%team-b%audit",
    "team-b%Gone",
    "%RETRY%g",
)
EXPIRING = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400",
    "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": "1",
    "REPUT_COMMITLOG_DELETE_WHEN_HOURS": ";".join(map(str, range(24))),
}


def stored_bytes(stack: HostedStack) -> dict[str, int]:
    """As the service says."""
    answer = stack.gateway.ListTenants(pb.ListTenantsRequest(), timeout=WAIT_SECONDS_MAX)
    return {each.namespace: each.stored_bytes for each in answer.tenants if each.stored_bytes}


def log_files(store: Path) -> list[str]:
    return sorted(os.listdir(store / "commitlog"))


@pytest.mark.parametrize("expires", [False, True])
def test_the_analytics_and_the_service_agree_on_the_stored_bytes_of_namespaces(
    spark: SparkSession, tmp_path: Path, expires: bool
) -> None:
    store = tmp_path / "store"
    with hosted_stack(store, settings=EXPIRING if expires else None) as stack:
        for number in range(140):
            message = new_message(TOPICS[number % len(TOPICS)], b"%03d" % number * (number + 1), queue_id=0)
            request = pb.AppendMessagesRequest(messages=[message])
            stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
        stack.gateway.DeleteTopic(pb.DeleteTopicRequest(topic="team-b%Gone"), timeout=WAIT_SECONDS_MAX)
        if expires:
            # The file that is written to stays, and one that was made ahead.
            wait_until(lambda: len(log_files(store)) <= 2, lambda: log_files(store))

        def of_log() -> dict[str, int]:
            sums: dict[str, int] = {}
            for record in LogReader(store).dispatch_requests():
                if namespace := namespace_of(record.topic):
                    sums[namespace] = sums.get(namespace, 0) + record.record_size_bytes
            return sums

        wait_until(lambda: stored_bytes(stack) == of_log(), lambda: f"{stored_bytes(stack)} {of_log()}")
        answered = stored_bytes(stack)

    def read_log(columns: list[str]):  # type: ignore[no-untyped-def]  # as the job has it
        return spark.read.format("commitlog").option("columns", ",".join(columns)).load(str(store))

    found = traffic(read_log)  # type: ignore[arg-type]
    try:
        rows = {row.namespace: row for row in namespaces(found.topics).collect()}
    finally:
        found.kept.unpersist()
    assert {name: row.store_size_bytes for name, row in rows.items()} == answered
    assert answered.keys() == {"team-a", "team-b"}
    assert sum(row.message_count for row in rows.values()) == (
        140 * 5 // 7 if not expires else pytest.approx(10, abs=10)
    )
