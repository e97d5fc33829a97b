"""Records as the bytes of messages, by `messages_kernel.py` from the files of `log_files.py`: runs of a queue, and single ones.

A pull of 1,000 messages makes as few objects as one of 10. What is not ordinary is left to the plain path, record by record.
"""

import contextlib
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from reput.message.v1.message_pb2 import MESSAGE_SOURCE_LIVE, StoredMessage
from services.local.log_files import LogFiles
from store.compiled import loading

if TYPE_CHECKING:
    from store.derive.dispatch_columns import Int32s, Int64s

KERNEL = "services.local.messages_kernel"
# Most records are read many at a time; one that is larger takes the plain path.
RECORDS_SIZE_BYTES = 512 << 10
# Room for the message of any such record: its properties, at most 32 KiB, grow to less than 8 times their size.
TARGET_SIZE_BYTES = RECORDS_SIZE_BYTES + (512 << 10)
BUFFERS_KEPT_MAX = 4  # so many threads encode at the same time without a new buffer


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What all messages of a run have in common.

    Attributes:
        topic, queue_id: the queue.
        broker_name: the shard's name in the messages, which also say that they are in the log.
        as_records: runs have records instead of messages.
    """

    topic: str
    queue_id: int
    broker_name: str
    as_records: bool = False

    def shown(self, message: StoredMessage) -> StoredMessage:
        """A message in this form; the same object."""
        message.broker_name = self.broker_name
        message.source = MESSAGE_SOURCE_LIVE
        return message


def fields_of(data: bytes) -> list[tuple[bytes, int]]:
    """The fields of a run with one after the other: the bytes of each, and where its record or message begins in them."""
    found: list[tuple[bytes, int]] = []
    at = 0
    while at < len(data):
        begin, size_bytes, shift = at, 0, 0
        at += 1
        while True:
            byte = data[at]
            at += 1
            size_bytes |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        found.append((data[begin : at + size_bytes], at - begin))
        at += size_bytes
    return found


@dataclass(frozen=True, slots=True)
class EncodedRun:
    """Messages as field 1 of an answer, or records as field 8.

    Attributes:
        data: the bytes, in pieces.
        count: messages.
        body_bytes_left: what is left for further bodies.
        is_full: the next message has a larger body.
    """

    data: list[bytes]
    count: int
    body_bytes_left: int
    is_full: bool


class _Buffers(NamedTuple):
    """Where the messages are written, and all that the kernel writes."""

    target: memoryview
    kernels: Any


class RecordEncoder:
    """Encodes records of one log; thread-safe.

    Args:
        files: the log's.
    """

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._kept: deque[_Buffers] = deque(maxlen=BUFFERS_KEPT_MAX)
        self._tail = "", b""

    def message(self, commit_log_offset: int, timeout_seconds: float) -> StoredMessage | None:
        """The message that starts at an offset; None without the kernel, or when the plain path has to read it.

        Args:
            commit_log_offset: in bytes.
            timeout_seconds: for a file that has to be handed over first.
        """
        kernel = loading.load(KERNEL)
        part = None if kernel is None else self._files.part(commit_log_offset, timeout_seconds)
        if kernel is None or part is None:
            return None
        buffers = self._take_buffers(kernel)
        try:
            size_bytes = kernel.encode_one(
                buffers.kernels, part.fd, part.file_offset, part.end_offset, commit_log_offset, self._tail_now()
            )
            if not size_bytes or not part.has_name():
                return None
            return StoredMessage.FromString(bytes(buffers.target[:size_bytes]))
        finally:
            self._kept.append(buffers)

    def _tail_now(self) -> bytes:
        """The last fields of a single message: the name of the shard."""
        name, tail = self._tail
        if name != self._files.broker_name:
            name = self._files.broker_name
            tail = StoredMessage(broker_name=name).SerializeToString()
            self._tail = name, tail
        return tail

    def encode(
        self,
        form: MessageForm,
        queue_offset: int,
        commit_log_offsets: "Int64s",
        sizes_bytes: "Int32s",
        *,
        body_bytes_left: int,
        is_first: bool,
        timeout_seconds: float,
    ) -> EncodedRun | None:
        """The messages of consecutive units, up to the first that is not ordinary or has no room; None without the kernel.

        Records are given without a compiled kernel too: no other code of this side reads them as they lie in the log.

        Args:
            form: what the messages have in common.
            queue_offset: position of the first unit.
            commit_log_offsets, sizes_bytes: of the records, as the units say.
            body_bytes_left: bytes of bodies.
            is_first: whether one message is taken whatever its size.
            timeout_seconds: for each file that has to be handed over first.
        """
        kernel = loading.load(KERNEL)
        if kernel is None:
            if not form.as_records:
                return None
            kernel = loading.plain(KERNEL)
        buffers = self._take_buffers(kernel)
        try:
            return self._encode(
                kernel, buffers, form, queue_offset, commit_log_offsets, sizes_bytes,
                body_bytes_left, is_first, timeout_seconds,
            )  # fmt: skip
        finally:
            self._kept.append(buffers)

    def _encode(
        self,
        kernel: Any,
        buffers: _Buffers,
        form: MessageForm,
        queue_offset: int,
        commit_log_offsets: "Int64s",
        sizes_bytes: "Int32s",
        body_bytes_left: int,
        is_first: bool,
        timeout_seconds: float,
    ) -> EncodedRun:
        topic, head, tail = _parts(form)
        pieces: list[bytes] = []
        row, count = 0, len(commit_log_offsets)
        code = kernel.NO_ROOM
        while row < count and code in (kernel.NO_ROOM, kernel.BEYOND):
            record_offset = int(commit_log_offsets[row])
            part = self._files.part(record_offset, timeout_seconds, end_offset=record_offset + int(sizes_bytes[row]))
            if part is None:
                break
            end, size_bytes, left, code = kernel.encode(
                buffers.kernels, part.fd, part.file_offset, part.end_offset, commit_log_offsets, sizes_bytes, row,
                queue_offset + row, form.queue_id, topic, head, tail, form.as_records, is_first and not row,
                body_bytes_left,
            )  # fmt: skip
            if not part.has_name():
                return EncodedRun(pieces, row, body_bytes_left, is_full=False)
            if end == row:
                break
            pieces.append(bytes(buffers.target[:size_bytes]))
            row, body_bytes_left = end, left
        return EncodedRun(pieces, row, body_bytes_left, code == kernel.FULL)

    def _take_buffers(self, kernel: Any) -> _Buffers:
        with contextlib.suppress(IndexError):
            kept = self._kept.pop()
            # Not those of the compiled kernel, once kernels are switched off.
            if isinstance(kept.kernels, kernel.Buffers):
                return kept
        target = memoryview(bytearray(TARGET_SIZE_BYTES))
        spans = memoryview(bytearray(8 * kernel.SPAN_COUNT)).cast("q")
        return _Buffers(target, kernel.Buffers(bytearray(RECORDS_SIZE_BYTES), spans, target))


@lru_cache(maxsize=1024)
def _parts(form: MessageForm) -> tuple[bytes, bytes, bytes]:
    """The topic; the first and the last fields of each message."""
    head = StoredMessage(topic=form.topic, queue_id=form.queue_id).SerializeToString()
    return form.topic.encode(), head, form.shown(StoredMessage()).SerializeToString()
