"""Receipt handles are signed: the signature is the first 16 bytes of the HMAC-SHA256 of the shard's name and the payload.

The key of the HMAC is a secret of the service, so a client cannot make a handle for a message that it did not get.
store/format/delivery/receipt_handle.py has the text. Whether the message is still in flight is asked of the state.
"""

import hashlib
import hmac
from dataclasses import dataclass

from consumer_svc.state.queue_state import QueueRef
from store.errors import InvalidReceiptHandleError
from store.format.delivery.receipt_handle import (
    HandlePayload,
    decode_payload,
    encode_part,
    encode_payload,
    split_handle,
)

MAC_SIZE_BYTES = 16


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """One delivery of a message to a group."""

    queue: QueueRef
    queue_offset: int
    delivery_number: int
    invisible_until_millis: int
    serial: int = 0


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

    def read(self, text: str, consumer_group: str | None) -> ReceiptHandle:
        """The handle of a text, which must be of that group; None: of any.

        Raises:
            InvalidReceiptHandleError: it is none of this service's, or of another group.
        """
        try:
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

    def _mac(self, payload: bytes) -> bytes:
        # All shards may have one secret: the shard's name is signed, too.
        signed = self._prefix.encode() + b"." + payload
        return hmac.digest(self._secret, signed, hashlib.sha256)[:MAC_SIZE_BYTES]
