"""CommitLogService: the RPCs, each read, called and answered; failures are raised and become statuses in `services`."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version

import grpc
from google.protobuf.message import DecodeError

from commitlog_svc.appender import AppendReceipt
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.reput import ReputBatch
from commitlog_svc.retention_state import RetentionEvent
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.append_calls import Append
from services.append_refusals import refusal_counter
from services.convert import dispatch_to_proto, millis_to_timestamp, stored_message, timestamp_to_millis
from services.lookup_calls import FileAnswer
from services.raw_handlers import add_with_raw
from services.status import to_status
from store.errors import BrokerNotFoundError, InvalidArgumentError, OffsetOutOfRangeError, StoreError
from store.format.freshness_token import encode_freshness_token
from store.format.host import Host, encode_host
from store.format.record_layout import I64

OFFSET_COUNT_MAX = 1000
BODY_BYTES_DEFAULT = 3_670_016
BODY_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = (4 << 20) - 4096  # of several records: what a client takes by default
SINGLE_ANSWER_BYTES_MAX = (4 << 20) + (96 << 10)  # a largest body with largest properties
UNKNOWN_HOST = Host("127.0.0.1", 0)
SYNC_BY_FLUSH_MODE = {
    message_pb2.FLUSH_MODE_UNSPECIFIED: None,
    message_pb2.FLUSH_MODE_ASYNC: False,
    message_pb2.FLUSH_MODE_SYNC: True,
}

_count_refusal = refusal_counter("CommitLogService/AppendMessageStream")


class CommitLogServicer(pb_grpc.CommitLogServiceServicer):
    """Serves one CommitLog.

    Args:
        log: the log, recovered or not.
        broker_name: the shard's name.
        store_host: what ids are made of.
    """

    def __init__(self, log: CommitLog, broker_name: str, store_host: str) -> None:
        self._log = log
        self._broker_name = broker_name
        self._id_prefix = encode_host(Host.parse(store_host)).hex().upper()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        """The handlers of appends, without serializers: their requests and responses stay bytes."""
        return {
            "AppendMessages": grpc.unary_unary_rpc_method_handler(self.append_messages),
            "AppendMessageStream": grpc.stream_stream_rpc_method_handler(self.append_message_stream),
        }

    def append_messages(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """AppendMessages; see the proto."""
        return self.append_bytes(request, _peer(context.peer()))

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """AppendMessageStream; see the proto. Its messages have the fields of AppendMessages', and `error`."""
        peer = _peer(context.peer())

        # Not a generator: one would keep each request while its reader sleeps.
        return map(partial(self._append_on_stream, born_host=peer), requests)

    def local_appends(self) -> dict[Append, Callable[[bytes], bytes]]:
        """The same two for callers of this machine: services/append_server.py."""
        return {
            Append.UNARY: partial(self.append_bytes, born_host=UNKNOWN_HOST),
            Append.ON_STREAM: partial(self._append_on_stream, born_host=UNKNOWN_HOST),
        }

    def GetMessage(self, request: pb.GetMessageRequest, context: grpc.ServicerContext) -> pb.GetMessageResponse:
        """See the proto."""
        record = self._log.get(request.commit_log_offset)
        return pb.GetMessageResponse(message=stored_message(record, self._broker_name))

    def BatchGetMessages(
        self, request: pb.BatchGetMessagesRequest, context: grpc.ServicerContext
    ) -> pb.BatchGetMessagesResponse:
        """See the proto."""
        offsets = request.commit_log_offsets
        if len(offsets) > OFFSET_COUNT_MAX:
            raise InvalidArgumentError(
                f"at most {OFFSET_COUNT_MAX} offsets a request, not {len(offsets)}: split it",
                field="commit_log_offsets",
                count=len(offsets),
            )
        if request.body_bytes_max < 0:
            raise InvalidArgumentError(
                f"body_bytes_max is {request.body_bytes_max}; 0 or more is possible", field="body_bytes_max"
            )
        body_bytes_left = min(request.body_bytes_max or BODY_BYTES_DEFAULT, BODY_BYTES_MAX)
        if request.omit_bodies:
            body_bytes_left = 0
        response = pb.BatchGetMessagesResponse()
        answer_bytes = 0
        bodies_end = request.omit_bodies
        for offset in offsets:
            outcome = pb.BatchGetMessagesResponse.Outcome()
            try:
                record = self._log.get(offset)
                bodies_end = bodies_end or len(record.body) > body_bytes_left
                outcome.message.CopyFrom(stored_message(record, self._broker_name, omit_body=bodies_end))
            except StoreError as error:
                outcome.error.CopyFrom(to_status(error))
            size_bytes = outcome.ByteSize() + 8
            if response.outcomes and answer_bytes + size_bytes > ANSWER_BYTES_MAX:
                break
            if size_bytes > SINGLE_ANSWER_BYTES_MAX:  # a foreign store may hold larger ones
                outcome.message.body = b""
                outcome.message.body_omitted = True
                size_bytes = outcome.ByteSize() + 8
            answer_bytes += size_bytes
            body_bytes_left -= len(outcome.message.body)
            response.outcomes.append(outcome)
        return response

    def open_log_file(self, request: pb.GetMessageRequest, context: object) -> FileAnswer:
        """The log's range and the file that holds an offset, for readers of this machine: services/lookup_calls.py.

        Raises:
            OffsetOutOfRangeError: the offset is outside the log, or its file was just removed.
        """
        log = self._log
        try:
            fd = log.open_file(request.commit_log_offset)
        except FileNotFoundError as error:
            raise OffsetOutOfRangeError("the file was removed", offset=request.commit_log_offset) from error
        status = pb.GetStatusResponse(
            broker_name=self._broker_name,
            log_first_offset=log.first_offset,
            log_end_offset=log.end_offset,
            file_size_bytes=log.file_size_bytes,
        )
        return FileAnswer(status, fd)

    def Reput(self, request: pb.ReputRequest, context: grpc.ServicerContext) -> Iterator[pb.ReputResponse]:
        """See the proto."""
        # Not a generator: one would keep each batch while its reader sleeps.
        batches = self._log.follow(
            request.start_offset,
            request.batch_bytes_max,
            columns=request.columns,
            while_recovering=request.while_recovering,
        )
        return map(_reput_response, batches)

    def ReportProgress(
        self, request: pb.ReportProgressRequest, context: grpc.ServicerContext
    ) -> pb.ReportProgressResponse:
        """See the proto."""
        store_time_millis = timestamp_to_millis(request.store_time, "store_time")
        self._log.progress.report(request.builder, request.next_offset, store_time_millis, self._log.flushed_offset)
        return pb.ReportProgressResponse()

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """See the proto."""
        self._log.require_ready()
        return pb.ListTopicsResponse(
            topics=[
                pb.ListTopicsResponse.Topic(
                    topic=config.topic,
                    write_queue_count=config.write_queue_count,
                    read_queue_count=config.read_queue_count,
                )
                for config in self._log.topics.all()
            ],
            new_topic_queue_count=self._log.new_topic_queue_count,
        )

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto."""
        log = self._log
        status = pb.GetStatusResponse(
            broker_name=self._broker_name, read_only=log.root.read_only, state=log.state, version=_version()
        )
        status.problem = log.problem
        if not log.is_ready:
            progress = log.recovery_progress
            status.recovery.begin_offset = progress.begin_offset
            status.recovery.next_offset = progress.next_offset
            status.recovery.end_offset = progress.end_offset
            status.recovery.record_count = progress.record_count
            status.recovery.is_followable = log.is_followable
            if log.is_followable:
                status.log_first_offset = log.first_offset
        if log.is_ready:
            status.log_first_offset = log.first_offset
            status.log_end_offset = log.end_offset
            status.log_flushed_offset = log.flushed_offset
            status.file_size_bytes = log.file_size_bytes
            status.file_count = log.file_count
            if log.last_store_time_millis:
                status.last_store_time.CopyFrom(millis_to_timestamp(log.last_store_time_millis))
            status.builder_next_offsets.update(log.progress.next_offsets())
            usage = log.disk_usage
            if usage is not None:
                status.disk.total_bytes = usage.total_bytes
                status.disk.free_bytes = usage.free_bytes
                status.disk.level = usage.level.word
            status.retention_events.extend(map(_retention_event, reversed(log.retention_events)))
        return status

    def append_bytes(self, data: bytes, born_host: Host) -> bytes:
        """An AppendMessagesResponse for a request's bytes; those of a stream have the same fields."""
        answer = self._log.append_request(
            data, born_host=born_host, id_prefix=self._id_prefix, broker_name=self._broker_name
        )
        if isinstance(answer, bytes):
            return answer
        receipts = answer if answer is not None else self._append_plainly(data, born_host)
        return pb.AppendMessagesResponse(results=map(self._result_maker(), receipts)).SerializeToString()

    def _append_on_stream(self, request: bytes, born_host: Host) -> bytes:
        try:
            return self.append_bytes(request, born_host)
        except StoreError as error:
            status = to_status(error)
            _count_refusal(status.code)
            return pb.AppendMessageStreamResponse(error=status).SerializeToString()

    def _append_plainly(self, data: bytes, born_host: Host) -> list[AppendReceipt]:
        try:
            request = pb.AppendMessagesRequest.FromString(data)
        except DecodeError as error:
            raise InvalidArgumentError(f"the request is no AppendMessagesRequest: {error}", field="request") from error
        if request.flush not in SYNC_BY_FLUSH_MODE:
            raise InvalidArgumentError(f"flush {request.flush} is no FlushMode", field="flush")
        if request.broker_name not in ("", self._broker_name):
            raise BrokerNotFoundError(
                f"this is the shard {self._broker_name!r}, not {request.broker_name!r}: nothing was written",
                brokerName=request.broker_name,
                brokerNames=self._broker_name,
            )
        if request.check_only:
            self._log.check_messages(request.messages, born_host=born_host, deduplicate=request.deduplicate)
            return []
        return self._log.append_messages(
            request.messages,
            sync=SYNC_BY_FLUSH_MODE[request.flush],
            born_host=born_host,
            deduplicate=request.deduplicate,
        )

    def _result_maker(self) -> Callable[[AppendReceipt], message_pb2.AppendResult]:
        prefix, broker_name, result = self._id_prefix, self._broker_name, message_pb2.AppendResult

        def make(receipt: AppendReceipt) -> message_pb2.AppendResult:
            offset = receipt.commit_log_offset
            return result(
                offset_msg_id=prefix + I64.pack(offset).hex().upper(),
                unique_key=receipt.unique_key,
                queue_id=receipt.queue_id,
                queue_offset=receipt.queue_offset,
                commit_log_offset=offset,
                store_time=millis_to_timestamp(receipt.store_time_millis),
                broker_name=broker_name,
                deduplicated=receipt.deduplicated,
                freshness_token=encode_freshness_token(broker_name, offset),
            )

        return make


def add_to_server(servicer: CommitLogServicer, server: grpc.Server) -> None:
    """Serve everything, appends as bytes."""
    add_with_raw(pb_grpc.add_CommitLogServiceServicer_to_server, servicer, servicer.handlers(), server)


def _reput_response(batch: ReputBatch) -> pb.ReputResponse:
    response = pb.ReputResponse(
        requests=map(dispatch_to_proto, batch.requests),
        next_offset=batch.next_offset,
        log_first_offset=batch.log_first_offset,
        log_end_offset=batch.log_end_offset,
    )
    if batch.columns is not None and len(batch.columns):
        from services.reput_columns import columns_to_proto  # an idle log does without numpy

        response.columns.CopyFrom(columns_to_proto(batch.columns))
    return response


def _retention_event(event: RetentionEvent) -> pb.RetentionEvent:
    return pb.RetentionEvent(
        time=millis_to_timestamp(event.time_millis),
        begin_offset=event.begin_offset,
        end_offset=event.end_offset,
        file_count=event.file_count,
        reason=event.reason,
        lost_builder_next_offsets=event.lost_builder_next_offsets,
    )


@lru_cache(maxsize=4096)
def _peer(peer: str) -> Host:
    """The caller's address, for `born_host`; a caller without one (a unix socket) gets a loopback address, port 0."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return UNKNOWN_HOST
    try:
        return Host.parse(address.replace("%5B", "[").replace("%5D", "]"))
    except StoreError:
        return UNKNOWN_HOST


def _version() -> str:
    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
