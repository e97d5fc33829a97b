"""Compares the answers of a gateway with the records of a log, by brute force."""

import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format.record import Record, decode_record
from tests.support.stack import Stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for, wait_until

SYSTEM_PREFIXES = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_", "rmq_sys_", "%RETRY%", "%DLQ%")
PREPARED_OR_ROLLED_BACK = 4  # the bit of sys_flag that both have: such a record stands in no queue and in no index


def wait_until_shown(stack: Stack, end: int) -> None:
    """Return once log, queues and index end there."""
    rows: list[pb.GetStatusResponse.ServiceStatus] = []

    def is_shown() -> bool:
        rows[:] = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
        return all(
            row.next_offset == end and not row.catching_up
            for row in rows
            if row.service in ("commitlog", "consumequeue", "index")
        )

    wait_until(is_shown, lambda: f"everything ends at {end}: {rows}")


@dataclass(frozen=True)
class Expected:
    """The records that queries find, by brute force.

    Args:
        records: of the whole log.
    """

    records: Sequence[Record]

    def queues(self) -> dict[tuple[str, int], dict[int, int]]:
        """Commit-log offsets by queue offset, by topic and queue."""
        queues: dict[tuple[str, int], dict[int, int]] = {}
        for record in self.records:
            queues.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = record.commit_log_offset
        return queues

    def with_key(self, topic: str, key: str) -> list[int]:
        """Commit-log offsets of a topic's records with a key."""
        return [one.commit_log_offset for one in self.records if one.topic == topic and key in one.keys]

    def with_unique_key(self, topic: str, unique_key: str) -> list[int]:
        """Commit-log offsets of a topic's records with a unique key."""
        found = (one for one in self.records if one.topic == topic)
        return [one.commit_log_offset for one in found if one.properties.get("UNIQ_KEY") == unique_key]


def check_queries(stack: Stack, frames: list[tuple[int, bytes]], sample_count: int = 30) -> None:
    """Compare the four queries with the records themselves: each queue, and a sample of keys, unique keys and ids."""
    decoded = [decode_record(frame, commit_log_offset=offset) for offset, frame in frames]
    expected = Expected([one for one in decoded if not one.sys_flag & PREPARED_OR_ROLLED_BACK])
    for (topic, queue_id), offsets in expected.queues().items():
        _check_queue(stack, topic, queue_id, offsets)
    for record in random.Random(7).sample(expected.records, min(sample_count, len(expected.records))):
        host = record.store_host
        address = socket.inet_pton(socket.AF_INET6 if ":" in host.ip else socket.AF_INET, host.ip)
        offset_msg_id = f"{address.hex().upper()}{host.port:08X}{record.commit_log_offset:016X}"
        by_id = stack.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id), timeout=WAIT_SECONDS_MAX
        )
        assert (by_id.message.commit_log_offset, by_id.message.unique_key) == (
            record.commit_log_offset,
            record.properties.get("UNIQ_KEY", ""),
        )
        if record.topic.startswith(SYSTEM_PREFIXES):
            continue
        if unique_key := record.properties.get("UNIQ_KEY"):
            request = pb.QueryMessageByUniqueKeyRequest(topic=record.topic, unique_key=unique_key, page_size=1000)
            by_unique_key = partial(stack.gateway.QueryMessageByUniqueKey, request, timeout=WAIT_SECONDS_MAX)
            _check_found(by_unique_key, expected.with_unique_key(record.topic, unique_key))
        for key in record.keys[:1]:
            of_key = pb.QueryMessageByKeyRequest(topic=record.topic, key=key, page_size=1000)
            by_key = partial(stack.gateway.QueryMessageByKey, of_key, timeout=WAIT_SECONDS_MAX)
            _check_found(by_key, expected.with_key(record.topic, key))


def _check_queue(stack: Stack, topic: str, queue_id: int, expected: dict[int, int]) -> None:
    found: dict[int, int] = {}
    while len(found) < len(expected):
        answer = stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(
                topic=topic, queue_id=queue_id, queue_offset=min(set(expected) - set(found)), page_size=1000
            ),
            timeout=WAIT_SECONDS_MAX,
        )
        assert answer.messages, (topic, queue_id, len(found))
        found |= {message.queue_offset: message.commit_log_offset for message in answer.messages}
    places = {at: (found.get(at), expected.get(at)) for at in found.keys() | expected.keys()}
    assert {at: both for at, both in places.items() if both[0] != both[1]} == {}, (topic, queue_id)


def _check_found(
    ask: Callable[[], pb.QueryMessageByKeyResponse | pb.QueryMessageByUniqueKeyResponse], expected: list[int]
) -> None:
    told: list[object] = []

    def complete() -> pb.QueryMessageByKeyResponse | pb.QueryMessageByUniqueKeyResponse | None:
        """On a busy machine an answer may say that a service was late: it is asked for again, as it says."""
        answer = ask()
        told[:] = [answer.shards]
        return None if answer.completeness == message_pb2.COMPLETENESS_PARTIAL else answer

    answer = wait_for(complete, lambda: told)
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE
    assert sorted(message.commit_log_offset for message in answer.messages) == expected
