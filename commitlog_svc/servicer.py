"""CommitLogService: reads each request, calls the log and writes the answer; `services` turns errors into statuses."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import grpc
from google.protobuf.message import DecodeError

from commitlog_svc.append.records import AppendReceipt
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.reput.reput import ReputBatch
from commitlog_svc.status_answer import status_answer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.convert import dispatch_to_proto, millis_to_timestamp, stored_message, timestamp_to_millis
from services.local.server import FileAnswer
from services.local.wire import LocalMethod
from services.observing.append_refusals import refusal_counter
from services.serving.raw_handlers import AnyHandler, add_with_raw
from services.status import to_status
from store.errors import BrokerNotFoundError, InvalidArgumentError, StoreError
from store.format.freshness_token import encode_freshness_token
from store.format.host import Host, encode_host
from store.format.record_layout import I64

OFFSET_COUNT_MAX = 1000
BODY_BYTES_DEFAULT = 3_670_016
BODY_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = (4 << 20) - 4096  # of several records: the default limit of clients
SINGLE_ANSWER_BYTES_MAX = (4 << 20) + (96 << 10)  # the largest body with the largest properties
UNKNOWN_HOST = Host("127.0.0.1", 0)
SYNC_BY_FLUSH_MODE: dict[int, bool | None] = {
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
        store_host: the host in offsetMsgIds, `IP:port`.
        auto_create_topic: whether the first message of a topic creates it.
    """

    def __init__(self, log: CommitLog, broker_name: str, store_host: str, *, auto_create_topic: bool = True) -> None:
        self._log = log
        self._broker_name = broker_name
        self._auto_create_topic = auto_create_topic
        self._id_prefix = encode_host(Host.parse(store_host)).hex().upper()

    def handlers(self) -> dict[str, AnyHandler]:
        """The handlers of appends, without serializers: their requests and responses stay bytes."""
        return {
            "AppendMessages": grpc.unary_unary_rpc_method_handler(self.append_messages),
            "AppendMessageStream": grpc.stream_stream_rpc_method_handler(self.append_message_stream),
        }

    def append_messages(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """AppendMessages: appends all messages of a request, or none."""
        return self.append_bytes(request, _peer(context.peer()))

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """AppendMessageStream: AppendMessages for each request of a stream; `error` says why a request was refused."""
        peer = _peer(context.peer())

        # Not a generator: it would keep each request until the next one comes.
        return map(partial(self._append_on_stream, born_host=peer), requests)

    def local_appends(self) -> dict[LocalMethod, Callable[[bytes], bytes]]:
        """Both append methods for callers on this machine: services/local/server.py."""
        return {
            LocalMethod.APPEND: partial(self.append_bytes, born_host=UNKNOWN_HOST),
            LocalMethod.APPEND_ON_STREAM: partial(self._append_on_stream, born_host=UNKNOWN_HOST),
        }

    def AppendInternal(
        self, request: pb.AppendInternalRequest, context: grpc.ServicerContext
    ) -> pb.AppendInternalResponse:
        """Appends the records of a service as one atomic unit."""
        self._check_shard(request.broker_name)
        receipts = self._log.opened.appends.append_internal(
            request.records, sync=_is_sync(request.flush), born_host=_peer(context.peer())
        )
        return pb.AppendInternalResponse(results=map(self._result_maker(), receipts))

    def GetMessage(self, request: pb.GetMessageRequest, context: grpc.ServicerContext) -> pb.GetMessageResponse:
        """Reads the record that starts at an offset."""
        record = self._log.opened.reads.get(request.commit_log_offset)
        return pb.GetMessageResponse(message=stored_message(record, self._broker_name))

    def BatchGetMessages(
        self, request: pb.BatchGetMessagesRequest, context: grpc.ServicerContext
    ) -> pb.BatchGetMessagesResponse:
        """Reads records at several offsets, each with its own outcome."""
        offsets = request.commit_log_offsets
        if len(offsets) > OFFSET_COUNT_MAX:
            raise InvalidArgumentError(
                f"a request holds at most {OFFSET_COUNT_MAX} offsets, not {len(offsets)}: split it",
                field="commit_log_offsets",
                count=len(offsets),
            )
        if request.body_bytes_max < 0:
            raise InvalidArgumentError(
                f"body_bytes_max is {request.body_bytes_max}: 0 or more is allowed", field="body_bytes_max"
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
                record = self._log.opened.reads.get(offset)
                bodies_end = bodies_end or len(record.body) > body_bytes_left
                outcome.message.CopyFrom(stored_message(record, self._broker_name, omit_body=bodies_end))
            except StoreError as error:
                outcome.error.CopyFrom(to_status(error))
            size_bytes = outcome.ByteSize() + 8
            if response.outcomes and answer_bytes + size_bytes > ANSWER_BYTES_MAX:
                break
            if size_bytes > SINGLE_ANSWER_BYTES_MAX:  # a store from elsewhere may hold larger records
                outcome.message.body = b""
                outcome.message.body_omitted = True
                size_bytes = outcome.ByteSize() + 8
            answer_bytes += size_bytes
            body_bytes_left -= len(outcome.message.body)
            response.outcomes.append(outcome)
        return response

    def open_log_file(self, request: pb.GetMessageRequest, context: object) -> FileAnswer:
        """The file that holds an offset, and the range of the log that may be read, for readers on this machine.

        See services/local/log_files.py.

        Raises:
            OffsetOutOfRangeError: the offset is outside the log, or its file was just removed.
        """
        reads, log = self._log.opened.reads, self._log.status
        fd = reads.open_file(request.commit_log_offset)
        status = pb.GetStatusResponse(
            broker_name=self._broker_name,
            log_first_offset=log.first_offset,
            log_end_offset=reads.readable_offset,
            file_size_bytes=log.file_size_bytes,
        )
        return FileAnswer(status.SerializeToString(), fd)

    def Reput(self, request: pb.ReputRequest, context: grpc.ServicerContext) -> Iterator[pb.ReputResponse]:
        """Streams what followers need of each confirmed record, from an offset on."""
        # Not a generator: it would keep each batch until the receiver takes the next one.
        batches = self._log.following.follow(
            request.start_offset,
            request.batch_bytes_max,
            columns=request.columns,
            while_recovering=request.while_recovering,
        )
        return map(_reput_response, batches)

    def ReportProgress(
        self, request: pb.ReportProgressRequest, context: grpc.ServicerContext
    ) -> pb.ReportProgressResponse:
        """Notes up to where a follower is durable; a new name is registered."""
        store_time_millis = timestamp_to_millis(request.store_time, "store_time")
        confirm_offset = self._log.following.confirm_offset
        self._log.followers.report(request.builder, request.next_offset, store_time_millis, confirm_offset)
        return pb.ReportProgressResponse()

    def RemoveFollower(
        self, request: pb.RemoveFollowerRequest, context: grpc.ServicerContext
    ) -> pb.RemoveFollowerResponse:
        """Forgets a registered follower, so that retention no longer waits for it."""
        self._log.followers.remove(request.name)
        return pb.RemoveFollowerResponse()

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """Lists the topics as configured in `config/topics.json`."""
        _ = self._log.opened  # until the log is recovered, the table is empty
        return pb.ListTopicsResponse(
            topics=[
                pb.ListTopicsResponse.Topic(
                    topic=config.topic,
                    write_queue_count=_int32_count(config.write_queue_count),
                    read_queue_count=_int32_count(config.read_queue_count),
                )
                for config in self._log.topics.all()
            ],
            new_topic_queue_count=self._log.topics.new_topic_queue_count if self._auto_create_topic else 0,
        )

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """Returns offsets, files, recovery and the followers' progress."""
        return status_answer(self._log, self._broker_name)

    def append_bytes(self, data: bytes, born_host: Host) -> bytes:
        """An AppendMessagesResponse for a request's bytes; requests of a stream have the same fields."""
        answer = self._log.opened.appends.append_request(
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
            raise InvalidArgumentError(
                f"the request is not an AppendMessagesRequest: {error}", field="request"
            ) from error
        sync = _is_sync(request.flush)
        self._check_shard(request.broker_name)
        if request.check_only:
            self._log.opened.appends.check_messages(
                request.messages, born_host=born_host, deduplicate=request.deduplicate
            )
            return []
        return self._log.opened.appends.append_messages(
            request.messages,
            sync=sync,
            born_host=born_host,
            deduplicate=request.deduplicate,
        )

    def _check_shard(self, broker_name: str) -> None:
        if broker_name not in ("", self._broker_name):
            raise BrokerNotFoundError(
                f"this is the shard {self._broker_name!r}, not {broker_name!r}: nothing was written",
                brokerName=broker_name,
                brokerNames=self._broker_name,
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
    """Registers all methods at a server; appends as bytes."""
    add_with_raw(pb_grpc.add_CommitLogServiceServicer_to_server, servicer, servicer.handlers(), server)


def _is_sync(flush: int) -> bool | None:
    """Whether an append waits for the disk; None: as the settings say."""
    if flush not in SYNC_BY_FLUSH_MODE:
        raise InvalidArgumentError(f"flush {flush} is not a FlushMode: use one of the proto", field="flush")
    return SYNC_BY_FLUSH_MODE[flush]


def _reput_response(batch: ReputBatch) -> pb.ReputResponse:
    response = pb.ReputResponse(
        requests=map(dispatch_to_proto, batch.requests),
        next_offset=batch.next_offset,
        log_first_offset=batch.log_first_offset,
        log_end_offset=batch.log_end_offset,
    )
    if batch.columns is not None and len(batch.columns):
        from services.reput_columns import columns_to_proto  # an idle log does not load numpy

        response.columns.CopyFrom(columns_to_proto(batch.columns))
    return response


@lru_cache(maxsize=4096)
def _peer(peer: str) -> Host:
    """The caller's address, for `born_host`; loopback and port 0 for a caller on a unix socket."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return UNKNOWN_HOST
    try:
        return Host.parse(address.replace("%5B", "[").replace("%5D", "]"))
    except StoreError:
        return UNKNOWN_HOST


def _int32_count(count: int) -> int:
    """A count of `topics.json`, which may hold any number, as RocketMQ's 32 bits can."""
    return min(max(count, 0), (1 << 31) - 1)
