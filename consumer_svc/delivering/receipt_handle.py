"""Receipt handles are signed: the signature is the first 16 bytes of the HMAC-SHA256 of the shard's name and the payload.

The key of the HMAC is a secret of the service, so a client cannot make a handle for a message that it did not get.
store/format/delivery/receipt_handle.py has the text. Whether the message is still in flight is asked of the state.

A handle that a client of RocketMQ's remoting protocol made of an answer has room for 31 bits only: its mark. The mark signs the
group, the times and the serial of the delivery, which the handle does not hold: it can only be checked while the delivery is in
flight. A changed time makes a new mark, so older handles of the delivery are none any more (ADR 0131).
"""

import hashlib
import hmac
from dataclasses import dataclass

from consumer_svc.state.queue_state import QueueRef
from store.errors import InvalidReceiptHandleError
from store.format.delivery.receipt_handle import (
    ExtraInfo,
    HandlePayload,
    decode_check_point,
    decode_payload,
    encode_check_point,
    encode_part,
    encode_payload,
    split_handle,
    topic_kind_of,
)

MAC_SIZE_BYTES = 16


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """One delivery of a message to a group.

    Attributes:
        queue: where the message lies, and the group.
        queue_offset: its position.
        delivery_number: how often it was handed out; 0 in a check point, which does not say it.
        invisible_until_millis: when it becomes visible again (ms since 1970).
        serial: of the delivery; 0 in a check point, likewise.
        pop_millis: of a check point: when its time began (ms since 1970).
        mark: of a check point; None: it is none.
    """

    queue: QueueRef
    queue_offset: int
    delivery_number: int
    invisible_until_millis: int
    serial: int = 0
    pop_millis: int = 0
    mark: int | None = None


class ReceiptHandles:
    """Makes and reads handles.

    Args:
        broker_name: the shard's name.
        secret: signs them.
    """

    def __init__(self, broker_name: str, secret: bytes) -> None:
        self._broker_name = broker_name
        self._prefix = encode_part(broker_name.encode())
        self._secret = secret

    def make(self, handle: ReceiptHandle) -> str:
        """The text of a handle."""
        queue = handle.queue
        payload = encode_payload(
            HandlePayload(
                queue.consumer_group,
                queue.topic,
                queue.queue_id,
                handle.queue_offset,
                handle.delivery_number,
                handle.invisible_until_millis,
                handle.serial,
            )
        )
        return f"{self._prefix}.{encode_part(payload)}.{encode_part(self._mac(payload))}"

    def make_check_point(self, handle: ReceiptHandle, pop_millis: int, start_offset: int) -> str:
        """The text of a handle of which a client gets parts; see ExtraInfo."""
        queue = handle.queue
        invisible_millis = handle.invisible_until_millis - pop_millis
        mark = self.mark(queue.consumer_group, pop_millis, handle.invisible_until_millis, handle.serial)
        return encode_check_point(
            queue.topic,
            ExtraInfo(
                start_offset,
                pop_millis,
                invisible_millis,
                mark,
                topic_kind_of(queue.topic),
                self._broker_name,
                queue.queue_id,
                handle.queue_offset,
            ),
        )

    def mark(self, consumer_group: str, pop_millis: int, invisible_until_millis: int, serial: int) -> int:
        """The mark of check points: 31 bits."""
        signed = f"{consumer_group} {pop_millis} {invisible_until_millis} {serial}"
        # A signed handle has a `.` here, so the two sign different texts.
        mac = hmac.digest(self._secret, f"{self._prefix} {signed}".encode(), hashlib.sha256)
        return int.from_bytes(mac[:4], "big") >> 1

    def read(self, text: str, consumer_group: str | None) -> ReceiptHandle:
        """The handle of a text, which must be of that group; None: of any, and no check point, which names no group.

        Raises:
            InvalidReceiptHandleError: it is none of this service's, or of another group.
        """
        try:
            if " " in text and consumer_group is not None:
                return self._read_check_point(text, consumer_group)
            parts = split_handle(text)
            if parts.broker_name != self._broker_name:
                raise ValueError("it names another shard")
            if not hmac.compare_digest(parts.signature, self._mac(parts.payload)):
                raise ValueError("its signature is not this service's")
            payload = decode_payload(parts.payload)
            if consumer_group is not None and payload.consumer_group != consumer_group:
                raise ValueError("it belongs to another consumer group")
        except ValueError as error:
            raise InvalidReceiptHandleError(
                f"receipt handle {text[:32]!r}... cannot be used: {error}; give back the handle as it was delivered",
                field="receipt_handle",
            ) from error
        queue = QueueRef(payload.consumer_group, payload.topic, payload.queue_id)
        return ReceiptHandle(
            queue, payload.queue_offset, payload.delivery_number, payload.invisible_until_millis, payload.serial
        )

    def _read_check_point(self, text: str, consumer_group: str) -> ReceiptHandle:
        topic, info = decode_check_point(text)
        if info.broker_name != self._broker_name:
            raise ValueError("it names another shard")
        return ReceiptHandle(
            QueueRef(consumer_group, topic, info.queue_id),
            info.queue_offset,
            0,
            info.pop_millis + info.invisible_millis,
            pop_millis=info.pop_millis,
            mark=info.mark,
        )

    def _mac(self, payload: bytes) -> bytes:
        # All shards may have one secret: the shard's name is signed, too.
        signed = self._prefix.encode() + b"." + payload
        return hmac.digest(self._secret, signed, hashlib.sha256)[:MAC_SIZE_BYTES]
