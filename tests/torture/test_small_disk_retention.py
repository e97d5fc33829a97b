"""A log that is written to for longer than its disk is large: old files make room, and every byte that went is told of."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.service import Service
from tests.support.waiting import wait_for
from tests.torture.amount import amount
from tests.torture.tools import why_missing
from tests.torture.tools.tmpfs import tmpfs

REASON = why_missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

FILE_BYTES = 64 << 10
DISK_BYTES = 4 << 20
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES),
    "REPUT_COMMITLOG_DELETE_FILES_INTERVAL_MILLIS": "0",
    "REPUT_COMMITLOG_DELETE_FILE_BATCH_COUNT_MAX": "50",
    "REPUT_COMMITLOG_CLEAN_RESOURCE_INTERVAL_MILLIS": "0",
}
CALL_SECONDS = 30.0
RETRY_SECONDS = 0.05


def append(service: Service, body: bytes) -> message_pb2.AppendResult:
    """Appends, again and again while the disk is full."""
    request = pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="orders", body=body)])

    def try_once() -> message_pb2.AppendResult | None:
        try:
            return service.stub.AppendMessages(request, timeout=CALL_SECONDS).results[0]
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:  # type: ignore[attr-defined]
                raise
            return None

    return wait_for(try_once, "the disk has room again", poll_seconds=RETRY_SECONDS)


def settled_status(service: Service) -> pb.GetStatusResponse:
    """A status that was not taken between an event, which is written first, and the removal of its file."""

    def find() -> pb.GetStatusResponse | None:
        status: pb.GetStatusResponse = service.stub.GetStatus(pb.GetStatusRequest(), timeout=CALL_SECONDS)
        return status if status.retention_events[0].end_offset == status.log_first_offset else None

    return wait_for(find, "an event for the first offset of the log", poll_seconds=RETRY_SECONDS)


def read_oldest(service: Service, receipts: Sequence[message_pb2.AppendResult]) -> pb.GetStatusResponse:
    """Read the oldest message that is left; the status that names it. While room is made, the next one may be the oldest."""

    def try_once() -> pb.GetStatusResponse | None:
        status = settled_status(service)
        oldest = next(one for one in receipts if one.commit_log_offset >= status.log_first_offset)
        try:
            service.stub.GetMessage(pb.GetMessageRequest(commit_log_offset=oldest.commit_log_offset))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.OUT_OF_RANGE:  # type: ignore[attr-defined]
                raise
            return None
        return status

    return wait_for(try_once, "the oldest message is read", poll_seconds=RETRY_SECONDS)


def check_events(status: pb.GetStatusResponse) -> None:
    events = list(reversed(status.retention_events))
    assert 0 == events[0].begin_offset
    assert status.log_first_offset == events[-1].end_offset
    assert all(earlier.end_offset == later.begin_offset for earlier, later in itertools.pairwise(events))
    assert status.log_first_offset // FILE_BYTES == sum(event.file_count for event in events)
    assert {"disk-clean-forcibly"} == {event.reason for event in events}
    assert not any(event.lost_builder_next_offsets for event in events)


def test_rmq_1790_a_log_larger_than_its_disk_goes_on_and_tells_what_it_dropped(tmp_path: Path) -> None:
    store = tmp_path / "store"
    total_bytes = DISK_BYTES + amount(sample=8, change=40, full=1000) * FILE_BYTES
    with tmpfs(store, DISK_BYTES):
        with Service("commitlog", store, SETTINGS) as service:
            for builder in ("consumequeue", "index"):
                service.stub.ReportProgress(pb.ReportProgressRequest(builder=builder, next_offset=-1))
            receipts = [append(service, b"first")]
            while receipts[-1].commit_log_offset < total_bytes:
                receipts.append(append(service, b"%d" % len(receipts) + bytes(16_000)))
            status = settled_status(service)
            assert status.log_first_offset > total_bytes - DISK_BYTES
            check_events(status)
            service.stub.GetMessage(pb.GetMessageRequest(commit_log_offset=receipts[-1].commit_log_offset))
            status = read_oldest(service, receipts)
            assert service.stop() == 0

        with Service("commitlog", store, SETTINGS) as service:
            again = settled_status(service)
            assert status.log_end_offset == again.log_end_offset
            check_events(again)
            assert service.stop() == 0
