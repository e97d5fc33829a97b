"""EncodedMessages: a pull's messages, or their records, as the bytes in which they go on; decoded where they are looked at."""

from collections.abc import Iterator, Sequence
from typing import overload

from google.protobuf.message import DecodeError

from reput.message.v1.message_pb2 import MESSAGE_SOURCE_LIVE, StoredMessage
from services.calling.pulled_bytes import RECORDS_TAG, spans_of
from services.convert import stored_message
from store.format.record import decode_record


class EncodedMessages(Sequence[StoredMessage]):
    """See the top of this file.

    Args:
        data: the messages, with the shard's name and their source, each as field 1 of an answer, or their records, as field 8.
        broker_name: the shard's name.

    Attributes:
        data: the same.
    """

    def __init__(self, data: memoryview, broker_name: str) -> None:
        self.data = data
        self._broker_name = broker_name
        self._known_spans: list[tuple[int, int, int]] | None = None

    @property
    def _spans(self) -> list[tuple[int, int, int]]:
        if self._known_spans is None:
            self._known_spans = spans_of(self.data)
        return self._known_spans

    def __bool__(self) -> bool:
        """Whether there are any; does not look at them."""
        return bool(self.data)

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredMessage]: ...
    def __getitem__(self, index: int | slice) -> StoredMessage | Sequence[StoredMessage]:
        if isinstance(index, slice):
            return [self._decoded(span) for span in self._spans[index]]
        return self._decoded(self._spans[index])

    def records(self) -> bytes | None:
        """The records one after the other, as they lie in the log; None when one came as a message.

        `records_or_messages` gives the same, and takes twenty times as long.

        Raises:
            DecodeError: the bytes end within a record, or what stands behind the records is none.
        """
        try:
            return self._joined_records()
        except IndexError:
            raise DecodeError("the records of an answer end within the size of one") from None

    def _joined_records(self) -> bytes | None:
        data = self.data.tobytes()
        parts: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if data[at] != RECORDS_TAG:
                return None
            size_bytes, at = data[at + 1], at + 2
            if size_bytes & 0x80:
                size_bytes &= 0x7F
                shift = 7
                while True:
                    byte = data[at]
                    at += 1
                    size_bytes |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
            parts.append(data[at : at + size_bytes])
            at += size_bytes
        if at != end:
            raise DecodeError("what stands behind the fields of an answer are no records")
        return b"".join(parts)

    def records_or_messages(self) -> Iterator[memoryview | StoredMessage]:
        """Each record as it lies in the log, or the message where it did not come as a record."""
        for span in self._spans:
            tag_at, begin, end = span
            yield self.data[begin:end] if self.data[tag_at] == RECORDS_TAG else self._decoded(span)

    def parts(self, size_bytes_max: int) -> Iterator[tuple[memoryview, int | None]]:
        """The bytes in parts of at most `size_bytes_max`, or of one message, each with the position of the message behind it.

        The position behind the last part is None.
        """
        if len(self.data) > size_bytes_max:
            part_at = 0
            for span in self._spans:
                begin, _, end = span
                if part_at < begin and end - part_at > size_bytes_max:
                    yield self.data[part_at:begin], self._decoded(span).queue_offset
                    part_at = begin
            yield self.data[part_at:], None
        else:
            yield self.data, None

    def _decoded(self, span: tuple[int, int, int]) -> StoredMessage:
        tag_at, begin, end = span
        data = self.data[begin:end].tobytes()
        if self.data[tag_at] == RECORDS_TAG:
            message = stored_message(decode_record(data), self._broker_name)
            message.source = MESSAGE_SOURCE_LIVE
            return message
        return StoredMessage.FromString(data)
