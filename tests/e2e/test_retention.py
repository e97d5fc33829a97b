"""Expiry through running services: what goes, where everything begins afterwards, and who is told."""

import itertools
import json
import pathlib
from typing import Any

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as commitlog_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.service import Service
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for, wait_until

pytestmark = pytest.mark.life

MESSAGE_COUNT = 120
QUEUE_COUNT = 2
SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "16384",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400",
    "REPUT_INDEX_HASH_SLOT_COUNT": "50",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "100",
}
EXPIRING = SMALL_FILES | {
    "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": "1",
    "REPUT_COMMITLOG_DELETE_WHEN_HOURS": ";".join(str(hour) for hour in range(24)),
}


def log_status(stack: Stack) -> commitlog_pb.GetStatusResponse:
    with grpc.insecure_channel(stack.addresses["commitlog"]) as channel:
        return commitlog_grpc.CommitLogServiceStub(channel).GetStatus(
            commitlog_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX
        )


def append_all(stack: Stack) -> list[message_pb2.AppendResult]:
    receipts: list[message_pb2.AppendResult] = []
    for i in range(MESSAGE_COUNT):
        message = new_message("Expiring", b"%04d" % i * 200, keys=[f"k-{i}", "all"], queue_id=i % QUEUE_COUNT)
        answer = stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX)
        receipts.append(answer.results[0])
    return receipts


def wait_until_expired(stack: Stack) -> commitlog_pb.GetStatusResponse:
    """Until nothing but the file written to, and one made ahead, is left."""

    def find() -> Any:
        status = log_status(stack)
        return status if status.log_end_offset - status.log_first_offset <= status.file_size_bytes else None

    return wait_for(find, lambda: log_status(stack))


def wait_until_min_offset(stack: Stack, queue_id: int, queue_offset: int) -> pb.QueryMessageByOffsetResponse:
    """The queue's owner hears of the log's new beginning with the next batch, and cuts behind it."""
    request = pb.QueryMessageByOffsetRequest(topic="Expiring", queue_id=queue_id, queue_offset=0, max_messages=32)

    def find() -> pb.QueryMessageByOffsetResponse | None:
        answer = stack.gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX)
        return answer if answer.min_offset == queue_offset else None

    return wait_for(find, f"queue {queue_id} begins at {queue_offset}")


def by_key(stack: Stack, key: str) -> pb.QueryMessageByKeyResponse:
    request = pb.QueryMessageByKeyRequest(topic="Expiring", key=key, page_size=MESSAGE_COUNT)
    return stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)


def by_unique_key(stack: Stack, unique_key: str) -> pb.QueryMessageByUniqueKeyResponse:
    request = pb.QueryMessageByUniqueKeyRequest(topic="Expiring", unique_key=unique_key)
    return stack.gateway.QueryMessageByUniqueKey(request, timeout=WAIT_SECONDS_MAX)


def code_by_id(stack: Stack, offset_msg_id: str) -> grpc.StatusCode:
    try:
        stack.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id), timeout=WAIT_SECONDS_MAX
        )
    except grpc.RpcError as error:
        return error.code()  # type: ignore[attr-defined]
    return grpc.StatusCode.OK


def assert_the_rest_is_found_and_the_gone_is_gone(
    stack: Stack, receipts: list[message_pb2.AppendResult], first_offset: int
) -> None:
    keys = {receipt.commit_log_offset: f"k-{i}" for i, receipt in enumerate(receipts)}
    gone = [receipt for receipt in receipts if receipt.commit_log_offset < first_offset]
    there = [receipt for receipt in receipts if receipt.commit_log_offset >= first_offset]
    assert gone
    assert there
    for receipt in (gone[0], gone[len(gone) // 2], gone[-1]):
        assert code_by_id(stack, receipt.offset_msg_id) is grpc.StatusCode.NOT_FOUND
        for answer in (by_key(stack, keys[receipt.commit_log_offset]), by_unique_key(stack, receipt.unique_key)):
            assert not answer.messages
            assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE
    for receipt in there:
        assert code_by_id(stack, receipt.offset_msg_id) is grpc.StatusCode.OK
        for answer in (by_key(stack, keys[receipt.commit_log_offset]), by_unique_key(stack, receipt.unique_key)):
            assert [receipt.commit_log_offset] == [message.commit_log_offset for message in answer.messages]
    assert {r.commit_log_offset for r in there} == {m.commit_log_offset for m in by_key(stack, "all").messages}
    for queue_id in range(QUEUE_COUNT):
        rest = [receipt for receipt in there if receipt.queue_id == queue_id]
        answer = wait_until_min_offset(stack, queue_id, rest[0].queue_offset)
        assert rest[-1].queue_offset + 1 == answer.max_offset
        begin = pb.QueryMessageByOffsetRequest(
            topic="Expiring", queue_id=queue_id, queue_offset=rest[0].queue_offset, max_messages=32
        )
        answer = stack.gateway.QueryMessageByOffset(begin, timeout=WAIT_SECONDS_MAX)
        assert [r.commit_log_offset for r in rest][:32] == [m.commit_log_offset for m in answer.messages]


def assert_events_account_for_what_is_missing(status: commitlog_pb.GetStatusResponse) -> None:
    events = list(reversed(status.retention_events))
    assert 0 == events[0].begin_offset
    assert status.log_first_offset == events[-1].end_offset
    assert all(later.begin_offset == earlier.end_offset for earlier, later in itertools.pairwise(events))
    assert status.log_first_offset // status.file_size_bytes == sum(event.file_count for event in events)
    assert all(not event.lost_builder_next_offsets for event in events)


def test_expired_files_go_and_every_query_begins_where_the_log_does_also_after_a_restart(
    tmp_path: pathlib.Path,
) -> None:
    store = tmp_path / "store"
    with running_stack(store, settings=SMALL_FILES) as stack:
        receipts = append_all(stack)
        stack.wait_until_built()
        before = log_status(stack)
        assert (0, 0) == (before.log_first_offset, len(before.retention_events))
        assert before.disk.level in ("ok", "clean", "clean-forcibly")
        assert before.disk.total_bytes > before.disk.free_bytes > 0

    with running_stack(store, settings=EXPIRING) as stack:
        status = wait_until_expired(stack)
        assert 0 < status.log_first_offset < status.log_end_offset == before.log_end_offset
        assert {"expired"} == {event.reason for event in status.retention_events}
        assert_events_account_for_what_is_missing(status)
        assert_the_rest_is_found_and_the_gone_is_gone(stack, receipts, status.log_first_offset)
        assert "retention.removed" in stack.log()

    with running_stack(store, settings=SMALL_FILES) as stack:  # the first file is not at 0 now
        stack.wait_until_built()
        again = log_status(stack)
        assert status.log_first_offset == again.log_first_offset
        assert list(status.retention_events) == list(again.retention_events)
        assert_the_rest_is_found_and_the_gone_is_gone(stack, receipts, again.log_first_offset)
        for queue_id in range(QUEUE_COUNT):
            last = [receipt for receipt in receipts if receipt.queue_id == queue_id][-1]
            message = new_message("Expiring", b"more", queue_id=queue_id)
            answer = stack.gateway.AppendMessages(
                pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX
            )
            assert last.queue_offset + 1 == answer.results[0].queue_offset


def test_files_taken_away_by_hand_are_told_of_and_the_rest_is_served(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with running_stack(store, settings=SMALL_FILES) as stack:
        receipts = append_all(stack)
        stack.wait_until_built()
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    for name in names[:3]:
        (store / "commitlog" / name).unlink()

    with running_stack(store, settings=SMALL_FILES) as stack:
        stack.wait_until_built()
        status = log_status(stack)
        assert int(names[3]) == status.log_first_offset
        assert [(0, int(names[3]), 3, "outside")] == [
            (event.begin_offset, event.end_offset, event.file_count, event.reason) for event in status.retention_events
        ]
        assert_the_rest_is_found_and_the_gone_is_gone(stack, receipts, status.log_first_offset)


def test_builders_that_do_not_run_hold_the_log(tmp_path: pathlib.Path) -> None:
    with Service("commitlog", tmp_path / "store", EXPIRING) as service:
        for i in range(MESSAGE_COUNT):
            message = new_message("Expiring", b"%04d" % i * 200)
            service.stub.AppendMessages(
                commitlog_pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX
            )
        wait_until(lambda: "retention.held" in service.log(), "retention is held")

        status = service.stub.GetStatus(commitlog_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
        assert (0, 0) == (status.log_first_offset, len(status.retention_events))


def test_an_index_that_is_switched_off_does_not_hold_the_log(tmp_path: pathlib.Path) -> None:
    with running_stack(tmp_path / "store", settings=EXPIRING | {"REPUT_INDEX_ENABLED": "false"}) as stack:
        append_all(stack)
        status = wait_until_expired(stack)

        assert -1 == status.builder_next_offsets["index"]
        assert_events_account_for_what_is_missing(status)
        state = json.loads((tmp_path / "store" / "reput" / "commitlog" / "retention.json").read_text())
        assert len(status.retention_events) == len(state["events"])
