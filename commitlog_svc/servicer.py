"""CommitLogService: reads each request, calls the log and writes the answer; `services` turns errors into statuses."""

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc
from google.protobuf.message import DecodeError

from commitlog_svc.answers import change_of_create, change_of_update, status_answer, topic_row
from commitlog_svc.append.append_path import Written
from commitlog_svc.append.records import AppendReceipt
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.nameservers import NameServers
from commitlog_svc.replication.replica import Replica
from commitlog_svc.reput.reput import ReputBatch
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.commitlog.v1 import replication_pb2
from reput.message.v1 import message_pb2
from services.convert import dispatch_to_proto, millis_to_timestamp, stored_message, timestamp_to_millis
from services.local.server import FileAnswer, Handler, over_bytes
from services.local.wire import LocalMethod
from services.observing.meters import refusal_counter
from services.serving.calls.append_pump import Pumped, StreamPump
from services.serving.calls.later_answers import AnswersInOrder, LaterAnswer
from services.serving.calls.raw_handlers import AnyHandler, add_with_raw
from services.serving.interceptors import check_field_count
from services.status import to_status
from store.errors import BrokerNotFoundError, InvalidArgumentError, StoreError
from store.features.table import held_elsewhere
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, encode_handle
from store.format.freshness_token import encode_freshness_token
from store.format.host import Host, encode_host
from store.format.record_layout import I64

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

OFFSET_COUNT_MAX = 1000
BODY_BYTES_DEFAULT = 3_670_016
BODY_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = (4 << 20) - 4096  # of several records: the default limit of clients
CONFIG_PART_BYTES = 1 << 20
SINGLE_ANSWER_BYTES_MAX = (4 << 20) + (96 << 10)  # the largest body with the largest properties
# Of a stream over gRPC: what a gateway has under way on one (gateway/appends/backpressure.py). Each may take 4 MiB.
UNANSWERED_COUNT_MAX = 8
UNKNOWN_HOST = Host("127.0.0.1", 0)
SYNC_BY_FLUSH_MODE: dict[int, bool | None] = {
    message_pb2.FLUSH_MODE_UNSPECIFIED: None,
    message_pb2.FLUSH_MODE_ASYNC: False,
    message_pb2.FLUSH_MODE_SYNC: True,
    message_pb2.FLUSH_MODE_REPLICATED: True,
}

_count_refusal = refusal_counter("CommitLogService/AppendMessageStream")


class CommitLogServicer(pb_grpc.CommitLogServiceServicer):
    """Serves one CommitLog.

    Args:
        log: the log, recovered or not.
        broker_name: the shard's name.
        store_host: the host in offsetMsgIds, `IP:port`.
        auto_create_topic: whether the first message of a topic creates it.
        replica: the log's replication; None: the shard has one copy.
        in_memory_size_bytes: how much of the end of the log is expected to be in memory; None: not known.
        broker_address: where clients of the remoting protocol reach the shard; empty: nowhere.

    Attributes:
        registration: the shard's at name servers; None: it registers at none, or not yet.
    """

    def __init__(
        self,
        log: CommitLog,
        broker_name: str,
        store_host: str,
        *,
        auto_create_topic: bool = True,
        replica: Replica | None = None,
        in_memory_size_bytes: int | None = None,
        broker_address: str = "",
    ) -> None:
        self._log = log
        self._broker_name = broker_name
        self._auto_create_topic = auto_create_topic
        self._replica = replica
        self._in_memory_size_bytes = in_memory_size_bytes
        self._broker_address = broker_address
        self.registration: NameServers | None = None
        # The newest batch that a follower got: the others that are as far get it, too (column_batches.py).
        self._encoded: tuple[DispatchColumns, pb.ReputColumns] | None = None
        self._id_prefix = encode_host(Host.parse(store_host)).hex().upper()

    def handlers(self) -> dict[str, AnyHandler]:
        """The handlers of appends and of FetchLog, without serializers: their requests and responses stay bytes."""
        return {
            "AppendMessages": grpc.unary_unary_rpc_method_handler(self.append_messages),
            "AppendMessageStream": grpc.stream_stream_rpc_method_handler(
                Pumped(self.append_message_stream, self.pump_message_stream)
            ),
            "FetchLog": grpc.unary_stream_rpc_method_handler(self.fetch_log),
        }

    def append_messages(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """AppendMessages: appends all messages of a request, or none."""
        return self.append_bytes(request, _peer(context.peer()))

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """AppendMessageStream: AppendMessages for each request of a stream; `error` says why a request was refused."""
        peer = _peer(context.peer())

        # Not a generator: it would keep each request until the next one comes.
        return AnswersInOrder(requests, partial(self._append_on_stream, born_host=peer), context)

    def pump_message_stream(self, pump: StreamPump, context: grpc.ServicerContext) -> bool:
        """The same, fed by gRPC's polling thread."""
        requests: SimpleQueue[bytes | None] = SimpleQueue()

        def end() -> None:
            requests.put(None)

        if not context.add_callback(end):  # no request is asked for any more, so none says that the call has ended
            end()
        pump.start(requests.put, UNANSWERED_COUNT_MAX)
        try:
            for answer in self.append_message_stream(iter(requests.get, None), context):
                pump.send(answer)
        finally:
            pump.wait_until_sent()  # the call must not end before its last answers are sent
        return True

    def local_appends(self) -> dict[LocalMethod, Handler]:
        """The append methods for callers on this machine: services/local/server.py."""
        return {
            LocalMethod.APPEND_INTERNAL: over_bytes(pb.AppendInternalRequest, self.AppendInternal),
            LocalMethod.APPEND: partial(self.append_bytes, born_host=UNKNOWN_HOST),
            LocalMethod.APPEND_ON_STREAM: partial(self._append_on_stream, born_host=UNKNOWN_HOST),
        }

    def local_tails(self) -> dict[LocalMethod, Handler]:
        """What followers follow, for callers on this machine: services/local/server.py."""
        return {LocalMethod.REPUT: over_bytes(pb.ReputRequest, self.Reput)}

    def AppendInternal(
        self, request: pb.AppendInternalRequest, context: grpc.ServicerContext | None
    ) -> pb.AppendInternalResponse:
        """Appends the records of a service as one atomic unit."""
        self._check_shard(request.broker_name)
        log = self._log.opened
        receipts = log.appends.append_internal(
            request.records,
            sync=_is_sync(request.flush),
            born_host=UNKNOWN_HOST if context is None else _peer(context.peer()),
            follower=request.follower,
            follower_epoch=request.follower_epoch,
            replicated=request.flush == message_pb2.FLUSH_MODE_REPLICATED,
            new_topics=request.new_topics,
        )
        return pb.AppendInternalResponse(
            results=map(self._result_maker(), receipts), readable_offset=log.reads.readable_offset
        )

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

    def Reput(self, request: pb.ReputRequest, context: grpc.ServicerContext | None) -> Iterator[pb.ReputResponse]:
        """Streams what followers need of each confirmed record, from an offset on."""
        # Not a generator: it would keep each batch until the receiver takes the next one.
        batches = self._log.following.follow(
            request.start_offset,
            request.batch_bytes_max,
            columns=request.columns,
            while_recovering=request.while_recovering,
            gather_millis=request.gather_millis,
        )
        return map(self._reput_response, batches)

    def Replicate(
        self, request_iterator: Iterator[replication_pb2.ReplicateRequest], context: grpc.ServicerContext
    ) -> Iterator[replication_pb2.ReplicateResponse]:
        """Sends the log to a replica of the shard."""
        replica = self._replicas("hello")
        _ = self._log.opened
        return replica.serve(request_iterator)

    def fetch_log(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """FetchLog: sends files of the log to a replica that is far behind."""
        try:
            asked = replication_pb2.FetchLogRequest.FromString(request)
        except DecodeError as error:
            raise InvalidArgumentError("the request is no FetchLogRequest") from error
        _ = self._log.opened
        return self._replicas("replica").fetch(asked)

    def _replicas(self, field: str) -> Replica:
        if self._replica is None:
            raise InvalidArgumentError(
                f"the shard {self._broker_name!r} has one copy: set coordinator of commitlog on each replica",
                field=field,
            )
        return self._replica

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

    def ReadConfigFile(
        self, request: pb.ReadConfigFileRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ReadConfigFileResponse]:
        """Reads a file of `config/`, part by part."""
        content, problem, is_backup = self._log.opened.config_files.read(request.name)
        if content is None:
            return iter([pb.ReadConfigFileResponse(problem=problem)])
        parts = (content[begin : begin + CONFIG_PART_BYTES] for begin in range(0, len(content), CONFIG_PART_BYTES))
        return (
            pb.ReadConfigFileResponse(content=part, exists=True, problem=problem, is_backup=is_backup) for part in parts
        )

    def WriteConfigFile(
        self, request_iterator: Iterator[pb.WriteConfigFileRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.WriteConfigFileResponse]:
        """Replaces a file of `config/` with the last of its parts."""
        writing = self._log.opened.config_files.writing()

        def take(request: pb.WriteConfigFileRequest) -> pb.WriteConfigFileResponse:
            writing.take(request.name, request.content, is_last=request.is_last)
            return pb.WriteConfigFileResponse()

        return map(take, request_iterator)

    def CreateTopic(self, request: pb.CreateTopicRequest, context: grpc.ServicerContext) -> pb.CreateTopicResponse:
        """Creates a topic."""
        config = self._log.opened.topic_commands.create(request.topic, change_of_create(request))
        self._have_taken()
        return pb.CreateTopicResponse(topic=topic_row(config))

    def UpdateTopic(self, request: pb.UpdateTopicRequest, context: grpc.ServicerContext) -> pb.UpdateTopicResponse:
        """Changes a topic."""
        config = self._log.opened.topic_commands.update(request.topic, change_of_update(request))
        self._have_taken()
        return pb.UpdateTopicResponse(topic=topic_row(config))

    def _have_taken(self) -> None:
        """The name servers know the topics as they are now, or were waited for long enough."""
        if self.registration is not None:
            self.registration.wait_until_taken()

    def DeleteTopic(self, request: pb.DeleteTopicRequest, context: grpc.ServicerContext) -> pb.DeleteTopicResponse:
        """Takes a topic out of `config/topics.json`."""
        return pb.DeleteTopicResponse(existed=self._log.opened.topic_commands.delete(request.topic))

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """Lists the topics as configured in `config/topics.json`."""
        _ = self._log.opened  # until the log is recovered, the table is empty
        version = self._log.topics.version
        if request.known_version == version:
            return pb.ListTopicsResponse(version=version)
        return pb.ListTopicsResponse(
            topics=() if request.without_topics else map(topic_row, self._log.topics.all()),
            new_topic_queue_count=self._log.topics.new_topic_queue_count if self._auto_create_topic else 0,
            version=version,
            deleted_before=self._log.topics.deleted,
            held_elsewhere={
                topic: pb.ListTopicsResponse.HeldElsewhere(feature=feature, text=text)
                for topic, (feature, text) in held_elsewhere(self._log.root.features).items()
            },
        )

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """Returns offsets, files, recovery and the followers' progress."""
        answer = status_answer(self._log, self._broker_name, self._replica)
        if request.flush_soon and self._log.status.is_ready:
            with contextlib.suppress(StoreError):  # the status says what is wrong
                self._log.opened.appends.flush_soon()
                self._log.following.show_now(is_read=True)
        if self._in_memory_size_bytes is not None:
            answer.in_memory_size_bytes = self._in_memory_size_bytes
        answer.broker_address = self._broker_address
        if self.registration is not None:
            answer.nameservers.update(self.registration.registered())
        return answer

    def append_bytes(self, data: bytes, born_host: Host) -> bytes:
        """An AppendMessagesResponse for a request's bytes; requests of a stream have the same fields."""
        answer, written = self._write_bytes(data, born_host)
        if written is not None:
            self._log.opened.appends.settle(written)
        return answer

    def _append_on_stream(self, request: bytes, born_host: Host) -> bytes | LaterAnswer:
        try:
            answer, written = self._write_bytes(request, born_host)
            if written is None:
                return answer
            appends = self._log.opened.appends
            if not appends.waits(written):
                appends.settle(written)
                return answer
        except StoreError as error:
            return _refused_on_stream(error)

        def settled() -> bytes:
            try:
                appends.settle(written)
            except StoreError as error:
                return _refused_on_stream(error)
            return answer

        return LaterAnswer(settled)

    def _write_bytes(self, data: bytes, born_host: Host) -> tuple[bytes, Written | None]:
        """The answer to an append, and what it still waits for; None: for nothing, because nothing was to be written."""
        appends = self._log.opened.appends
        done = appends.write_request(
            data, born_host=born_host, id_prefix=self._id_prefix, broker_name=self._broker_name
        )
        receipts, written = done if done is not None else self._write_plainly(data, born_host)
        if isinstance(receipts, bytes):
            return receipts, written
        return pb.AppendMessagesResponse(results=map(self._result_maker(), receipts)).SerializeToString(), written

    def _write_plainly(self, data: bytes, born_host: Host) -> tuple[list[AppendReceipt], Written | None]:
        check_field_count(data, "AppendMessages")  # also of a stream, and of a local socket
        try:
            request = pb.AppendMessagesRequest.FromString(data)
        except DecodeError as error:
            raise InvalidArgumentError(
                f"the request is not an AppendMessagesRequest: {error}", field="request"
            ) from error
        sync = _is_sync(request.flush)
        self._check_shard(request.broker_name)
        appends = self._log.opened.appends
        if request.check_only:
            appends.check_messages(request.messages, born_host=born_host, deduplicate=request.deduplicate)
            return [], None
        return appends.write_messages(
            request.messages,
            sync=sync,
            born_host=born_host,
            deduplicate=request.deduplicate,
            replicated=request.flush == message_pb2.FLUSH_MODE_REPLICATED,
        )

    def _reput_response(self, batch: ReputBatch) -> pb.ReputResponse:
        response = pb.ReputResponse(
            requests=map(dispatch_to_proto, batch.requests),
            next_offset=batch.next_offset,
            log_first_offset=batch.log_first_offset,
            log_end_offset=batch.log_end_offset,
        )
        columns = batch.columns
        if columns is not None and len(columns):
            encoded = self._encoded
            if encoded is None or encoded[0] is not columns:
                from services.reput_columns import columns_to_proto  # an idle log does not load numpy

                self._encoded = encoded = (columns, columns_to_proto(columns))
            response.columns.CopyFrom(encoded[1])
        return response

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
            offset, waiting = receipt.commit_log_offset, receipt.waiting
            recall_handle = transaction_id = ""
            if waiting is not None and waiting.is_half:
                half = WaitingHandle(waiting.topic, broker_name, offset, receipt.unique_key)
                transaction_id = encode_handle(TRANSACTION, half)
            elif waiting is not None and waiting.recall_millis:
                timed = WaitingHandle(waiting.topic, broker_name, waiting.recall_millis, receipt.unique_key)
                recall_handle = encode_handle(RECALL, timed)
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
                recall_handle=recall_handle,
                transaction_id=transaction_id,
            )

        return make


def _refused_on_stream(error: StoreError) -> bytes:
    status = to_status(error)
    _count_refusal(status.code)
    return pb.AppendMessageStreamResponse(error=status).SerializeToString()


def add_to_server(servicer: CommitLogServicer, server: grpc.Server) -> None:
    """Registers all methods at a server; appends as bytes."""
    add_with_raw(pb_grpc.add_CommitLogServiceServicer_to_server, servicer, servicer.handlers(), server)


def _is_sync(flush: int) -> bool | None:
    """Whether an append waits for the disk; None: as the settings say."""
    if flush not in SYNC_BY_FLUSH_MODE:
        raise InvalidArgumentError(f"flush {flush} is not a FlushMode: use one of the proto", field="flush")
    return SYNC_BY_FLUSH_MODE[flush]


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
