"""SearchMessages over a real socket: what a client sends and sees, and its cancel."""

import threading
from dataclasses import replace

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.queries.page import PAGE_BYTES_MAX
from gateway.reput.search import SEARCH_COUNT_MAX
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.serving.calls.cancellation import Cancellation
from store.errors import InvalidArgumentError, ResourceBusyError
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.reput.test_servicer import refusal, serving
from tests.gateway.search.searching import inflated
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "b_payment"


class HeldShard(MemoryShard):
    """Reads wait until they are let go."""

    def __init__(self, records) -> None:
        super().__init__(records)
        self.reading = threading.Semaphore(0)
        self.release = threading.Event()

    def get_many(self, commit_log_offsets, body_bytes_max, deadline):
        self.reading.release()
        assert self.release.wait(60)
        return super().get_many(commit_log_offsets, body_bytes_max, deadline)


@pytest.fixture(scope="module")
def gateway(records):
    with serving(MemoryShard(records), "127.0.0.1:1") as stub:
        yield stub


def everything(gateway, **fields) -> list[pb.SearchMessagesResponse]:
    request = pb.SearchMessagesRequest(topic=TOPIC, page_size=1000, **fields)
    pages = []
    while not pages or request.page_token:
        pages.append(gateway.SearchMessages(request, timeout=60))
        request.page_token = pages[-1].next_page_token
    return pages


def offsets(pages) -> list[int]:
    return [message.commit_log_offset for page in pages for message in page.messages]


def test_every_field_of_a_request_counts(gateway, records):
    of_topic = [record for record in records if record.topic == TOPIC]
    times = sorted(record.store_time_millis for record in of_topic)
    begin, end = times[100], times[-100]

    def brute(matches):
        found = [record for record in of_topic if matches(record)]
        return [r.commit_log_offset for r in sorted(found, key=lambda r: (r.queue_id, r.queue_offset))]

    window = {"begin_time": Timestamp(), "end_time": Timestamp()}
    window["begin_time"].FromMilliseconds(begin)
    window["end_time"].FromMilliseconds(end)
    color = pb.SearchMessagesRequest.Property
    for fields, matches in (
        ({}, lambda r: True),
        ({"tags": ["TagA", "创建"]}, lambda r: r.tags in ("TagA", "创建")),
        ({"properties": [color(name="color", value="red")]}, lambda r: r.properties.get("color") == "red"),
        ({"properties": [color(name="color")]}, lambda r: "color" in r.properties),
        ({"body_text": "17"}, lambda r: b"17" in inflated(r)),
        ({"body_hex": "31 37"}, lambda r: b"17" in inflated(r)),
        ({"cel": "message.tags == 'TagA'"}, lambda r: r.tags == "TagA"),
        ({"queue_id": 0}, lambda r: r.queue_id == 0),
        (
            {"queue_id": 2, "begin_queue_offset": 5, "end_queue_offset": 9},
            lambda r: r.queue_id == 2 and 5 <= r.queue_offset < 9,
        ),
        (window, lambda r: begin <= r.store_time_millis <= end),
        ({"broker_name": "broker-a"}, lambda r: True),
    ):
        pages = everything(gateway, **fields)
        assert offsets(pages) == brute(matches), fields
        assert offsets(pages), fields
    assert (pages[-1].stop, pages[-1].completeness) == (pb.SEARCH_STOP_END, message_pb2.COMPLETENESS_COMPLETE)
    newest = everything(gateway, queue_id=1, order=pb.SEARCH_ORDER_NEWEST_FIRST)
    assert offsets(newest) == brute(lambda r: r.queue_id == 1)[::-1]
    answer = gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC, **window), timeout=60)
    assert (answer.begin_time, answer.end_time) == (window["begin_time"], window["end_time"])


def test_an_answer_says_what_was_looked_at(gateway):
    answer = gateway.SearchMessages(
        pb.SearchMessagesRequest(topic=TOPIC, max_records=300, cel="message.properties.color == 'red'", page_size=999),
        timeout=60,
    )
    ranges = [(r.broker_name, r.queue_id, r.begin_offset, r.end_offset) for r in answer.scanned_ranges]
    assert ranges == [("broker-a", 0, 0, 218), ("broker-a", 1, 0, 82)]
    assert (answer.scanned_record_count, answer.stop) == (300, pb.SEARCH_STOP_RECORDS)
    assert answer.cel_error == "there is no key 'color'"
    assert len(answer.messages) < answer.cel_error_count < 300
    assert [shard.broker_name for shard in answer.shards] == ["broker-a"]


def test_a_page_stays_below_what_clients_take(records):
    """Twenty bodies of 300 KB, and one that fits no page."""
    huge = max((record for record in records if record.topic == TOPIC), key=lambda record: len(record.body))
    log = []
    for number in range(20):
        body = bytes(PAGE_BYTES_MAX + 1) if number == 7 else huge.body
        fields = {"queue_offset": number, "commit_log_offset": number * 8_000_000, "store_size_bytes": len(body) + 500}
        log.append(replace(huge, **fields, body=body, sys_flag=0))
    with serving(MemoryShard(log), "127.0.0.1:1") as stub:
        pages = everything(stub, cel="size(message.body) > 1000")
    assert offsets(pages) == [record.commit_log_offset for record in log]
    assert all(page.ByteSize() < 4 << 20 for page in pages)
    assert [m.queue_offset for page in pages for m in page.messages if m.body_omitted] == [7]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"order": 9}, "order"),
        ({"body_hex": "0g"}, "body_hex"),
        ({"cel": "message.topic =="}, "cel"),
        ({"max_millis": -1}, "max_millis"),
        ({"page_size": -1}, "page_size"),
        ({"end_queue_offset": 5}, "queue_id"),
        ({"properties": [pb.SearchMessagesRequest.Property(name="a")] * 2}, "properties"),
    ],
)
def test_a_wrong_field_is_named(gateway, fields, field):
    request = pb.SearchMessagesRequest(**{"topic": TOPIC, **fields})
    error = refusal(lambda: gateway.SearchMessages(request, timeout=60))
    assert isinstance(error, InvalidArgumentError)
    assert error.metadata["field"] == field


def test_only_so_many_searches_run_and_a_cancelled_one_reads_nothing_more(records, monkeypatch):
    """All places are taken by searches that wait for their first read; cancelled, none makes a second."""
    held = HeldShard(records)
    cancelled = threading.Semaphore(0)
    cancel = Cancellation.cancel

    def noted(self) -> None:
        cancel(self)
        cancelled.release()

    monkeypatch.setattr(Cancellation, "cancel", noted)
    request = pb.SearchMessagesRequest(topic=TOPIC)
    with serving(held, "127.0.0.1:1") as stub:
        calls = [stub.SearchMessages.future(request, timeout=60) for _ in range(SEARCH_COUNT_MAX)]
        for _ in calls:
            assert held.reading.acquire(timeout=WAIT_SECONDS_MAX)
        assert isinstance(refusal(lambda: stub.SearchMessages(request, timeout=60)), ResourceBusyError)
        for call in calls:
            call.cancel()
        for _ in calls:
            assert cancelled.acquire(timeout=WAIT_SECONDS_MAX)
        held.release.set()
        nothing = pb.SearchMessagesRequest(topic=TOPIC, queue_id=0, begin_queue_offset=1 << 40)
        while True:  # until the reads have given back their places
            try:
                answer = stub.SearchMessages(nothing, timeout=60)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            else:
                break
    assert answer.stop == pb.SEARCH_STOP_END
    assert held.calls.count("get_many") == SEARCH_COUNT_MAX
