"""The service on loopback: each RPC, its errors and restarts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.gateway.v1 import gateway_service_pb2
from reput.message.v1 import message_pb2
from services.methods import METHODS
from services.status import error_info, from_rpc_error, status_of
from store.errors import (
    BrokerNotFoundError,
    FollowerNotFoundError,
    InvalidArgumentError,
    InvalidMessageError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
    StoreReadOnlyError,
)
from store.format.sys_flag import TransactionType
from tests.commitlog_svc.internal import internal_record
from tests.commitlog_svc.support import new_message
from tests.support.service import Service, hosted_service
from tests.support.waiting import WAIT_SECONDS_MAX


@contextmanager
def running(store: Path, **settings: str) -> Iterator[grpc.Channel]:
    """The service in this process, asked over a port by a client with gRPC's default limits."""
    with (
        hosted_service("commitlog", store, settings) as service,
        grpc.insecure_channel(service.address, options=[("grpc.max_receive_message_length", 4 << 20)]) as channel,
    ):
        yield channel


def test_messages_survive_a_restart_and_every_rpc_answers(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with running(store) as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        unary = stub.AppendMessages(
            pb.AppendMessagesRequest(
                messages=[new_message(b"%d" % i, keys=[f"k{i}"], tags="T") for i in range(10)],
                flush=message_pb2.FLUSH_MODE_SYNC,
            )
        ).results
        answers = list(
            stub.AppendMessageStream(
                iter(
                    [
                        pb.AppendMessageStreamRequest(messages=[new_message(b"streamed")]),
                        pb.AppendMessageStreamRequest(messages=[new_message(), new_message(b"")]),
                        pb.AppendMessageStreamRequest(messages=[new_message(b"goes on")]),
                    ]
                )
            )
        )
        assert [1, 0, 1] == [len(answer.results) for answer in answers]
        info = error_info(answers[1].error)
        assert info is not None
        assert ("INVALID_MESSAGE", "1") == (info.reason, info.metadata["index"])
        message = stub.GetMessage(pb.GetMessageRequest(commit_log_offset=unary[3].commit_log_offset)).message
        assert (b"3", ["k3"], "T", "broker-a") == (message.body, list(message.keys), message.tags, message.broker_name)
        assert unary[3].offset_msg_id == message.offset_msg_id
        assert unary[3].store_time == message.store_time
        assert message.born_host.startswith("127.0.0.1:")
        assert ["orders"] == [topic.topic for topic in stub.ListTopics(pb.ListTopicsRequest()).topics]
    with running(store) as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        status = stub.GetStatus(pb.GetStatusRequest())
        assert ("serving", False, 1) == (status.state, status.read_only, status.file_count)
        assert status.log_end_offset == status.log_flushed_offset
        followed = []
        stream = stub.Reput(pb.ReputRequest(start_offset=-1))
        while len(followed) < 12:
            followed += next(stream).requests
        stream.cancel()
        assert [result.commit_log_offset for result in unary] == [r.commit_log_offset for r in followed[:10]]
        assert ["k4"] == list(followed[4].keys)
        stub.ReportProgress(pb.ReportProgressRequest(builder="index", next_offset=status.log_end_offset))
        stub.ReportProgress(pb.ReportProgressRequest(builder="schedule", next_offset=0))
        status = stub.GetStatus(pb.GetStatusRequest())
        assert {"index": status.confirm_offset} == status.builder_next_offsets
        assert ["consumequeue", "index", "schedule"] == [follower.name for follower in status.followers]
        stub.RemoveFollower(pb.RemoveFollowerRequest(name="schedule"))
        with pytest.raises(grpc.RpcError) as refused:
            stub.RemoveFollower(pb.RemoveFollowerRequest(name="schedule"))
        assert FollowerNotFoundError is type(from_rpc_error(refused.value))
    assert not (store / "abort").exists()


def test_errors_carry_their_class_and_where(tmp_path: Path) -> None:
    with running(tmp_path / "s") as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        stub.AppendMessages(pb.AppendMessagesRequest(messages=[new_message()]))
        cases = [
            (lambda: stub.GetMessage(pb.GetMessageRequest(commit_log_offset=1)), RecordNotFoundError),
            (lambda: stub.GetMessage(pb.GetMessageRequest(commit_log_offset=-1)), OffsetOutOfRangeError),
            (lambda: stub.AppendMessages(pb.AppendMessagesRequest()), InvalidArgumentError),
            (
                lambda: stub.AppendMessages(pb.AppendMessagesRequest(messages=[new_message(b"")])),
                InvalidMessageError,
            ),
            (lambda: next(stub.Reput(pb.ReputRequest(start_offset=1 << 40))), OffsetOutOfRangeError),
            (lambda: stub.BatchGetMessages(pb.BatchGetMessagesRequest(body_bytes_max=-1)), InvalidArgumentError),
        ]
        for call, expected in cases:
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert status_of(refused.value) is not None
            assert expected is type(from_rpc_error(refused.value))


def test_many_messages_fit_a_default_client_and_bodies_are_left_out_when_they_do_not(tmp_path: Path) -> None:
    with running(tmp_path / "s") as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        offsets = []
        for size in (1 << 20, 2 << 20, 2 << 20, 100):
            request = pb.AppendMessagesRequest(messages=[new_message(b"x" * size)])
            offsets.append(stub.AppendMessages(request).results[0].commit_log_offset)
        outcomes = stub.BatchGetMessages(pb.BatchGetMessagesRequest(commit_log_offsets=[*offsets, 5])).outcomes
        without = stub.BatchGetMessages(
            pb.BatchGetMessagesRequest(commit_log_offsets=offsets, omit_bodies=True)
        ).outcomes
        big = [new_message(b"y", properties={"p": "q" * 32_000}) for _ in range(100)]
        large = [
            result.commit_log_offset
            for begin in range(0, 100, 50)
            for result in stub.AppendMessages(pb.AppendMessagesRequest(messages=big[begin : begin + 50])).results
        ]
        copies = stub.BatchGetMessages(
            pb.BatchGetMessagesRequest(commit_log_offsets=large * 2)  # 200 of 32 kB: more than fits
        ).outcomes

    assert [False, False, True, True] == [outcome.message.body_omitted for outcome in outcomes[:4]]
    assert "error" == outcomes[4].WhichOneof("outcome")
    assert all(outcome.message.body_omitted and not outcome.message.body for outcome in without)
    assert 0 < len(copies) < 200


def test_read_only_serves_and_refuses(copy_of_broker_store: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy_of_broker_store.rglob("*")}
    with running(copy_of_broker_store, REPUT_READ_ONLY="true") as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        assert stub.GetStatus(pb.GetStatusRequest()).read_only
        assert "b_order" == stub.GetMessage(pb.GetMessageRequest(commit_log_offset=0)).message.topic
        with pytest.raises(grpc.RpcError) as refused:
            stub.AppendMessages(pb.AppendMessagesRequest(messages=[new_message()]))

    assert StoreReadOnlyError is type(from_rpc_error(refused.value))
    assert before == {path: path.stat().st_mtime_ns for path in copy_of_broker_store.rglob("*")}


def test_a_request_for_another_shard_or_for_a_check_alone_writes_nothing(tmp_path: Path) -> None:
    """Also once requests are taken by compiled code, which must leave these to the plain way."""
    settings = {"REPUT_BROKER_NAME": "shard-7"}
    with Service("commitlog", tmp_path / "store", settings) as service:
        stub = service.stub
        ones = [new_message(body=b"x") for _ in range(10)]
        stub.AppendMessages(pb.AppendMessagesRequest(messages=ones), timeout=60)
        end_offset = stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset

        with pytest.raises(grpc.RpcError) as refused:
            stub.AppendMessages(
                pb.AppendMessagesRequest(messages=ones, broker_name="shard-8"), timeout=WAIT_SECONDS_MAX
            )
        error = from_rpc_error(refused.value)
        assert isinstance(error, BrokerNotFoundError)
        assert error.metadata["brokerNames"] == "shard-7"
        assert not stub.AppendMessages(
            pb.AppendMessagesRequest(messages=ones, check_only=True), timeout=WAIT_SECONDS_MAX
        ).results
        ones[3].body = b""
        with pytest.raises(grpc.RpcError) as refused:
            stub.AppendMessages(pb.AppendMessagesRequest(messages=ones, check_only=True), timeout=WAIT_SECONDS_MAX)
        assert from_rpc_error(refused.value).metadata["index"] == "3"

        assert stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset == end_offset
        ones[3].body = b"x"
        named = pb.AppendMessagesRequest(messages=ones, broker_name="shard-7")
        assert {result.broker_name for result in stub.AppendMessages(named, timeout=WAIT_SECONDS_MAX).results} == {
            "shard-7"
        }


def test_a_service_appends_records_of_several_topics_as_one(tmp_path: Path) -> None:
    with running(tmp_path / "s", REPUT_BROKER_NAME="shard-7") as channel:
        stub = pb_grpc.CommitLogServiceStub(channel)
        moved = internal_record(b"m", "%RETRY%g", reconsume_times=1, properties={"UNIQ_KEY": "U", "ORIGIN": "0"})
        state = internal_record(b"s", "STATE", sys_flag=TransactionType.PREPARED, born_host="10.1.2.3:4")
        results = stub.AppendInternal(
            pb.AppendInternalRequest(records=[moved, state], flush=message_pb2.FLUSH_MODE_SYNC),
            timeout=WAIT_SECONDS_MAX,
        ).results
        found = [
            stub.GetMessage(pb.GetMessageRequest(commit_log_offset=result.commit_log_offset)).message
            for result in results
        ]
        end_offset = stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_flushed_offset

        assert ["U", ""] == [result.unique_key for result in results]
        assert [message.offset_msg_id for message in found] == [result.offset_msg_id for result in results]
        assert [("%RETRY%g", b"m", 1, 0), ("STATE", b"s", 0, 4)] == [
            (message.topic, message.body, message.reconsume_times, message.sys_flag) for message in found
        ]
        assert ("10.1.2.3:4", "0") == (found[1].born_host, found[0].properties["ORIGIN"])
        assert end_offset == found[1].commit_log_offset + found[1].store_size_bytes

        bad = internal_record(topic="")
        cases = [
            (pb.AppendInternalRequest(), InvalidArgumentError, ""),
            (pb.AppendInternalRequest(records=[moved, bad]), InvalidMessageError, "1"),
            (pb.AppendInternalRequest(records=[moved], broker_name="shard-8"), BrokerNotFoundError, ""),
            (pb.AppendInternalRequest(records=[moved], flush=9), InvalidArgumentError, ""),
        ]
        for request, expected, index in cases:
            with pytest.raises(grpc.RpcError) as refused:
                stub.AppendInternal(request, timeout=WAIT_SECONDS_MAX)
            error = from_rpc_error(refused.value)
            assert (expected, index) == (type(error), error.metadata.get("index", ""))
        assert end_offset == stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset


def test_no_client_of_the_gateway_can_append_as_a_service() -> None:
    methods = {method.name for method in gateway_service_pb2.DESCRIPTOR.services_by_name["GatewayService"].methods}

    assert "AppendMessages" in methods
    assert "AppendInternal" not in methods
    assert METHODS["/reput.commitlog.v1.CommitLogService/AppendInternal"].roles.isdisjoint(
        {"gateway", "consumequeue", "index"}
    )
