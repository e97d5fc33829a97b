"""Receipt handles: what a consumer gives back to acknowledge one delivery.

    <base64url of the shard's name> . <base64url of the payload> . <base64url of the first 16 bytes of the HMAC-SHA256 of both>

    payload: text, parts divided by a blank (names hold none)
        group  topic  queue id  queue offset  delivery number  invisible until (ms since 1970)

The key of the HMAC is a secret of the service, so a client cannot make a handle for a message that it did not get. The
gateway reads only the first part. Whether the message is still in flight is asked of the state.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from consumer_svc.state.queue_state import QueueRef
from store.errors import InvalidReceiptHandleError

MAC_SIZE_BYTES = 16
# A group and a topic of 255 bytes each, and four numbers.
HANDLE_LENGTH_MAX = 2_048


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """One delivery of a message to a group."""

    queue: QueueRef
    queue_offset: int
    delivery_number: int
    invisible_until_millis: int


class ReceiptHandles:
    """Makes and reads handles.

    Args:
        broker_name: the shard's name.
        secret: signs them.
    """

    def __init__(self, broker_name: str, secret: bytes) -> None:
        self._prefix = _encode(broker_name.encode())
        self._secret = secret

    def make(self, handle: ReceiptHandle) -> str:
        """The text of a handle."""
        queue = handle.queue
        payload = (
            f"{queue.consumer_group} {queue.topic} {queue.queue_id} {handle.queue_offset} {handle.delivery_number} "
            f"{handle.invisible_until_millis}"
        ).encode()
        return f"{self._prefix}.{_encode(payload)}.{_encode(self._mac(payload))}"

    def read(self, text: str, consumer_group: str | None) -> ReceiptHandle:
        """The handle of a text, which must be of that group; None: of any.

        Raises:
            InvalidReceiptHandleError: it is none of this service's, or of another group.
        """
        try:
            if len(text) > HANDLE_LENGTH_MAX:
                raise ValueError(f"it has {len(text)} characters")
            prefix, payload_text, mac_text = text.split(".")
            payload = _decode(payload_text)
            if prefix != self._prefix:
                raise ValueError("it names another shard")
            if not hmac.compare_digest(_decode(mac_text), self._mac(payload)):
                raise ValueError("its signature is not this service's")
            group, topic, queue_id, queue_offset, delivery_number, until = payload.decode().split(" ")
            if consumer_group is not None and group != consumer_group:
                raise ValueError("it belongs to another consumer group")
        except (ValueError, binascii.Error) as error:
            raise InvalidReceiptHandleError(
                f"receipt handle {text[:32]!r}... cannot be used: {error}; give back the handle as it was delivered",
                field="receipt_handle",
            ) from error
        return ReceiptHandle(QueueRef(group, topic, int(queue_id)), int(queue_offset), int(delivery_number), int(until))

    def _mac(self, payload: bytes) -> bytes:
        # All shards may have one secret: the shard's name is signed, too.
        signed = self._prefix.encode() + b"." + payload
        return hmac.digest(self._secret, signed, hashlib.sha256)[:MAC_SIZE_BYTES]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
