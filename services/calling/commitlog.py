"""CommitLogClient: what callers of a commitlog need beyond single calls: log files, atomic appends, files in parts."""

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import grpc

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from services import convert, status
from services.calling.client import EndlessStream, ServiceClient
from services.local.encoded_records import EncodedRun, MessageForm, RecordEncoder
from services.local.log_files import LogFiles
from services.local.wire import LOOKUPS, LocalMethod
from services.rpcs import commitlog as rpc
from services.serving.deadline import SECONDS_DEFAULT
from services.serving.server_options import RECEIVE_BYTES_MAX
from services.serving.tls import TlsIdentity
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError
from store.files.config_file import ConfigFile

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns, Int32s, Int64s

SERVICE = "commitlog"
BATCH_GET_COUNT_MAX = 1_000
BODY_BYTES_DEFAULT = 3_670_016
CONFIG_PART_BYTES = 1 << 20
TIMER_LOG = "timerlog"
# Larger results are not read from files: the service is asked, because it limits the size of its answers.
FILE_READ_BYTES_MAX = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ReputBatch:
    """A batch of the tail.

    Attributes:
        columns: records in log order; None for a heartbeat.
        next_offset: resume here after applying the batch (bytes).
        log_first_offset: the log's first record (bytes).
        log_end_offset: end of the log as far as it may be shown (bytes); END_UNKNOWN while it is being recovered.
    """

    columns: "DispatchColumns | None"
    next_offset: int
    log_first_offset: int
    log_end_offset: int


class ReputStream:
    """A running Reput call: iterate over its batches; `cancel` ends it from any thread."""

    def __init__(self, stream: EndlessStream[pb.ReputResponse]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[ReputBatch]:
        """Batches, without end; errors as those of EndlessStream, and ServiceUnavailableError for an inconsistent batch."""
        for response in self._stream:
            yield ReputBatch(
                _columns(response), response.next_offset, response.log_first_offset, response.log_end_offset
            )

    def cancel(self) -> None:
        """End the call; a waiting iteration raises ServiceUnavailableError."""
        self._stream.cancel()


def _columns(response: pb.ReputResponse) -> "DispatchColumns | None":
    """The records of a batch, also from a server that does not send columns."""
    if not response.HasField("columns") and not response.requests:
        return None
    from services import reput_columns

    if response.requests:
        return reput_columns.columns_from_requests(response.requests)
    return reput_columns.columns_from_proto(response.columns)


class CommitLogClient(ServiceClient):
    """Calls one commitlog service, and reads sound records from its log's files where they are on this machine.

    Here stands what is more than a call; the rest is `call` with an RPC of services/rpcs/commitlog.py.

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: used for all calls instead of a channel and sockets of its own.
        tls: our certificate for its own channel; None: no TLS.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None, tls: TlsIdentity | None = None) -> None:
        super().__init__(SERVICE, target, channel, tls, read_by_caller=True)
        self._files = LogFiles(self.socket(LOOKUPS))
        self._encoder = RecordEncoder(self._files)

    def append_internal(
        self,
        records: Sequence[pb.InternalRecord],
        *,
        flush: message_pb2.FlushMode,
        follower: str = "",
        follower_epoch: int = 0,
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> list[message_pb2.AppendResult]:
        """Append records as one atomic unit; a receipt for each, in order. Never retried.

        Args:
            records: 1 to 1,024.
            flush: when the service answers.
            follower: the name of the follower that appends; empty: it is not fenced.
            follower_epoch: which life of the follower this is.
            timeout_seconds: for the one attempt.

        Raises:
            FollowerFencedError: a later life of the follower has appended; nothing was written.
            InvalidArgumentError: the records are too many bytes together for the service, or for a log file; likewise.
            InvalidMessageError: the service does not store one of them; likewise.
            StoreError: others as the service raises them.
        """
        request = pb.AppendInternalRequest(
            records=records, flush=flush, follower=follower, follower_epoch=follower_epoch
        )
        data = request.SerializeToString()
        if len(data) > RECEIVE_BYTES_MAX:  # gRPC's own refusal cannot be told from a service that is busy
            raise InvalidArgumentError(
                f"the request takes {len(data)} bytes, and the service receives {RECEIVE_BYTES_MAX} at most: split it",
                field="records",
                sizeBytes=len(data),
                sizeBytesMax=RECEIVE_BYTES_MAX,
            )
        mark = self._files.mark()
        appended = self._call_on_socket(
            LocalMethod.APPEND_INTERNAL, rpc.APPEND_INTERNAL, request, data, timeout_seconds
        )
        self._files.learn(mark, appended.readable_offset)  # who appends often reads what was written shortly before
        return list(appended.results)

    def read_config_file(self, name: str, *, timeout_seconds: float = SECONDS_DEFAULT) -> bytes | None:
        """The content of `read_config`."""
        return self.read_config(name, timeout_seconds=timeout_seconds).content

    def read_config(self, name: str, *, timeout_seconds: float = SECONDS_DEFAULT) -> ConfigFile:
        """A file of `config/`, or what is used in its place; the content is sound, whatever the disk has."""
        parts = self.collect(rpc.READ_CONFIG_FILE, pb.ReadConfigFileRequest(name=name), timeout_seconds)
        content = b"".join(part.content for part in parts) if any(part.exists for part in parts) else None
        return ConfigFile(content, parts[0].problem, parts[0].is_backup) if parts else ConfigFile(None)

    def write_config_file(self, name: str, content: bytes, *, timeout_seconds: float = SECONDS_DEFAULT) -> None:
        """Replace a file of `config/`; it is on the disk when this returns.

        Raises:
            InvalidArgumentError: the name is not allowed, or the content is empty or too large.
            StoreReadOnlyError: the store is served read-only.
        """
        parts = [content[begin : begin + CONFIG_PART_BYTES] for begin in range(0, len(content), CONFIG_PART_BYTES)]
        requests = [
            pb.WriteConfigFileRequest(name=name, content=part, is_last=number == len(parts))
            for number, part in enumerate(parts, 1)
        ] or [pb.WriteConfigFileRequest(name=name, is_last=True)]
        self.exchange(rpc.WRITE_CONFIG_FILE, requests, timeout_seconds)

    def write_timer_log(self, parts: Iterable[bytes], *, timeout_seconds: float = SECONDS_DEFAULT) -> None:
        """Replace `timerlog/`; it is on the disk when this returns. Never retried.

        Args:
            parts: units, without the position of the one before; each at most 4 MiB.
            timeout_seconds: for the one attempt.

        Raises:
            StoreReadOnlyError, DiskFullError: the files are unchanged.
        """
        requests = itertools.chain(
            (pb.WriteConfigFileRequest(name=TIMER_LOG, content=part) for part in parts),
            [pb.WriteConfigFileRequest(name=TIMER_LOG, is_last=True)],
        )
        self.exchange(rpc.WRITE_CONFIG_FILE, requests, timeout_seconds, attempt_count_max=1)

    def get(self, commit_log_offset: int, *, timeout_seconds: float = SECONDS_DEFAULT) -> message_pb2.StoredMessage:
        """The record that starts at an offset.

        Raises:
            RecordNotFoundError: no record starts there.
            OffsetOutOfRangeError: the offset is outside the log.
            RecordCorruptedError: the bytes there are damaged.
        """
        began = time.monotonic()
        found = self._read(commit_log_offset, timeout_seconds)
        if found is not None and found.store_size_bytes <= FILE_READ_BYTES_MAX:
            return found
        mark = self._files.mark()
        request = pb.GetMessageRequest(commit_log_offset=commit_log_offset)
        response = self.call(rpc.GET_MESSAGE, request, timeout_seconds - (time.monotonic() - began))
        self._files.learn(mark, response.message.commit_log_offset + response.message.store_size_bytes)
        return response.message

    def get_many(
        self,
        commit_log_offsets: Sequence[int],
        *,
        body_bytes_max: int = BODY_BYTES_DEFAULT,
        omit_bodies: bool = False,
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> list[message_pb2.StoredMessage | StoreError]:
        """The outcome for each offset, in order: the record, or the error that `get` would raise.

        Makes as many requests as needed. Once the answers hold `body_bytes_max` bytes of bodies, later records come
        without bodies (`body_omitted`).
        """
        began = time.monotonic()
        read = self._read_all(commit_log_offsets, body_bytes_max, timeout_seconds, omit_bodies=omit_bodies)
        if read is not None:
            return read
        timeout_seconds -= time.monotonic() - began
        mark, next_offset = self._files.mark(), 0
        outcomes: list[message_pb2.StoredMessage | StoreError] = []
        body_bytes_left = body_bytes_max if body_bytes_max > 0 else BODY_BYTES_DEFAULT
        while len(outcomes) < len(commit_log_offsets):
            request = pb.BatchGetMessagesRequest(
                commit_log_offsets=commit_log_offsets[len(outcomes) : len(outcomes) + BATCH_GET_COUNT_MAX],
                body_bytes_max=max(1, body_bytes_left),
                omit_bodies=omit_bodies or body_bytes_left <= 0,
            )
            response = self.call(rpc.BATCH_GET_MESSAGES, request, timeout_seconds)
            if not response.outcomes:
                raise ServiceUnavailableError(
                    f"{SERVICE} answered BatchGetMessages without an outcome", service=SERVICE
                )
            for outcome in response.outcomes:
                if outcome.HasField("message"):
                    message = outcome.message
                    body_bytes_left -= len(message.body)
                    outcomes.append(message)
                    next_offset = max(next_offset, message.commit_log_offset + message.store_size_bytes)
                else:
                    outcomes.append(status.from_status(outcome.error))
        self._files.learn(mark, next_offset)
        return outcomes

    def encode_run(
        self,
        form: MessageForm,
        queue_offset: int,
        commit_log_offsets: "Int64s",
        sizes_bytes: "Int32s",
        *,
        body_bytes_left: int,
        is_first: bool,
        timeout_seconds: float = SECONDS_DEFAULT,
    ) -> EncodedRun | None:
        """See RecordEncoder; messages from the log's files only. None: `get_many` has to be asked for all."""
        return self._encoder.encode(
            form,
            queue_offset,
            commit_log_offsets,
            sizes_bytes,
            body_bytes_left=body_bytes_left,
            is_first=is_first,
            timeout_seconds=timeout_seconds,
        )

    def store_times_millis(
        self, commit_log_offsets: Sequence[int], *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> list[int | StoreError]:
        """The store time in milliseconds of the record at each offset, or the error; bodies are not sent."""
        outcomes = self.get_many(commit_log_offsets, omit_bodies=True, timeout_seconds=timeout_seconds)
        return [
            outcome
            if isinstance(outcome, StoreError)
            else convert.timestamp_to_millis(outcome.store_time, "store_time")
            for outcome in outcomes
        ]

    def reput(
        self, start_offset: int, batch_bytes_max: int = 0, *, while_recovering: bool = False, gather_millis: int = 0
    ) -> ReputStream:
        """Follow the log from an offset (-1 = its first record); services/following/reput_tail.py reconnects, too."""
        request = pb.ReputRequest(
            start_offset=start_offset,
            batch_bytes_max=batch_bytes_max,
            columns=True,
            while_recovering=while_recovering,
            gather_millis=gather_millis,
        )
        return ReputStream(self.follow(rpc.REPUT, request))

    def is_written_at(self, commit_log_offset: int) -> bool | None:
        """Whether anything was written from the end of a record on (bytes), by the log's files; None: only a call can tell."""
        return self._files.is_written_at(commit_log_offset)

    def readable_offset(self, *, flush_soon: bool = False, timeout_seconds: float = SECONDS_DEFAULT) -> int | None:
        """Everything that was acknowledged lies before it (bytes); None while the log is being recovered.

        Also opens the file that holds it, from which `is_written_at` answers afterwards. With `flush_soon` followers see it
        soon, whatever the log's flush interval is.
        """
        began = time.monotonic()
        answer = self.call(rpc.GET_STATUS, pb.GetStatusRequest(flush_soon=flush_soon), timeout_seconds)
        if answer.state == "recovering":
            return None
        offset = answer.readable_offset if answer.HasField("readable_offset") else answer.log_end_offset
        self._files.open_end(offset, timeout_seconds - (time.monotonic() - began))
        return offset

    def close(self) -> None:
        """See ServiceClient."""
        self._files.close()
        super().close()

    def _read_all(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, timeout_seconds: float, *, omit_bodies: bool
    ) -> list[message_pb2.StoredMessage | StoreError] | None:
        """All records from the log's files, bodies left out as the service does; None when the service has to be asked."""
        messages: list[message_pb2.StoredMessage | StoreError] = []
        body_bytes_left = body_bytes_max if body_bytes_max > 0 else BODY_BYTES_DEFAULT
        size_bytes_left = FILE_READ_BYTES_MAX
        for commit_log_offset in commit_log_offsets:
            message = self._read(commit_log_offset, timeout_seconds)
            if message is None:
                return None
            size_bytes_left -= message.store_size_bytes
            if size_bytes_left < 0:
                return None
            body_size_bytes = len(message.body)
            omit_bodies = omit_bodies or body_size_bytes > body_bytes_left
            if omit_bodies and body_size_bytes:
                message.body = b""
                message.body_omitted = True
            body_bytes_left -= 0 if omit_bodies else body_size_bytes
            messages.append(message)
        return messages

    def _read(self, commit_log_offset: int, timeout_seconds: float) -> message_pb2.StoredMessage | None:
        """The record at an offset, from the log's files; None when the service has to be asked."""
        message = self._encoder.message(commit_log_offset, timeout_seconds)
        if message is None:  # what is not ordinary
            record = self._files.read(commit_log_offset, timeout_seconds)
            message = None if record is None else convert.stored_message(record, self._files.broker_name)
        return message
