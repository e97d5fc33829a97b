"""The stored bytes of queues, against the sum of the sizes of the records that the log has."""

import random
from pathlib import Path
from typing import Any

import pytest

from consumequeue_svc import stored_bytes
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumequeue_svc.stored_bytes import StoredBytes
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from tests.consumequeue_svc.test_servicer import Context
from tests.support.builders import Clock, follow, open_queues
from tests.support.dispatches import make_request


def size_of(requests: Any, first: int) -> int:
    return sum(each.record_size_bytes for each in requests if each.commit_log_offset >= first)


def test_stored_bytes_are_those_of_the_records_however_the_log_grows_and_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while files of the queue go."""
    monkeypatch.setattr(stored_bytes, "READ_UNIT_COUNT", 7)
    clock, counted, requests, offset, first = Clock(), StoredBytes(), [], 0, 0
    builder = open_queues(tmp_path, [], clock=clock)
    for number in range(300):
        size = random.randint(100, 70_000)
        requests.append(make_request(number)._replace(commit_log_offset=offset, record_size_bytes=size))
        offset += size
        follow(builder, requests[-1:])
        if random.random() < 0.2:
            if random.random() < 0.5:
                first = max(first, random.choice(requests[-60:]).commit_log_offset)
            clock.seconds += 1
            builder.apply([], offset, first, offset)
            queue = builder._table.queue("orders", 0)
            assert counted.of(queue, first) == size_of(requests, first)


def test_a_list_of_namespaces_has_their_queues_alone_with_their_bytes(tmp_path: Path) -> None:
    topics = ["Orders", "team-a%Orders", "%RETRY%team-a%g", "%RETRY%g", "team-b%Orders"]
    requests = [make_request(n, topic=topics[n % 5], queue_id=0, queue_offset=n // 5) for n in range(50)]
    progress = FollowerProgress()
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 100)
    table.apply(DispatchColumns.of(requests))
    progress.see_log(requests[10].commit_log_offset, requests[-1].next_offset)
    servicer = ConsumeQueueServicer(progress, lambda units, _: [0 for _ in units])
    servicer.open(table)

    rows, token = [], ""
    while True:
        page = servicer.ListQueues(pb.ListQueuesRequest(of_namespaces=True, page_size=2, page_token=token), Context())
        rows += page.queues
        token = page.next_page_token
        if not token:
            break
    of_record = requests[0].record_size_bytes
    assert [(each.topic, each.stored_bytes) for each in rows] == [
        (topic, 8 * of_record) for topic in ("%RETRY%team-a%g", "team-a%Orders", "team-b%Orders")
    ]
    plain = servicer.ListQueues(pb.ListQueuesRequest(), Context()).queues
    assert {each.topic for each in plain} == set(topics)
    assert not any(each.stored_bytes for each in plain)


def test_bytes_of_a_deleted_topic_count_until_its_records_leave_the_log(tmp_path: Path) -> None:
    requests = [make_request(n, topic="team-a%Orders", queue_id=0, queue_offset=n) for n in range(10)]
    progress = FollowerProgress()
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 100)
    table.apply(DispatchColumns.of(requests))
    progress.see_log(0, requests[-1].next_offset)
    servicer = ConsumeQueueServicer(
        progress, lambda units, _: [], deleted_before=lambda topic: requests[-1].next_offset
    )
    servicer.open(table)
    (row,) = servicer.ListQueues(pb.ListQueuesRequest(of_namespaces=True), Context()).queues
    assert (row.min_offset, row.max_offset) == (10, 10)
    assert row.stored_bytes == size_of(requests, 0)
