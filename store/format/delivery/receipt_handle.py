"""The text of a receipt handle: what a consumer gives back to acknowledge one delivery.

    <base64url of the shard's name> . <base64url of the payload> . <base64url of the signature>

    payload: text, parts divided by a blank (names hold none)
        group  topic  queue id  queue offset  delivery number  invisible until (ms since 1970)  serial of the delivery

A handle of an older version has no serial, which reads as 0.

The signature is made and checked by the shard (consumer_svc/delivering/receipt_handle.py). A gateway reads the rest: whom to
ask, and whether the handle is of the topic that its caller names.
"""

import base64
from typing import NamedTuple

# A group and a topic of 255 bytes each, a shard's name, and four numbers.
HANDLE_LENGTH_MAX = 2_048


class HandleParts(NamedTuple):
    """A receipt handle as it is spelled; nothing says that a shard has made it."""

    broker_name: str
    payload: bytes
    signature: bytes


class HandlePayload(NamedTuple):
    """One delivery of a message to a group."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    delivery_number: int
    invisible_until_millis: int
    serial: int = 0


def encode_part(data: bytes) -> str:
    """Base64url without the padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def split_handle(text: str) -> HandleParts:
    """The parts of a handle.

    Raises:
        ValueError: it has others.
    """
    if len(text) > HANDLE_LENGTH_MAX:
        raise ValueError(f"it has {len(text)} characters")
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError("it has other parts")
    try:
        broker_name, payload, signature = map(_decode_part, parts)
        return HandleParts(broker_name.decode(), payload, signature)
    except ValueError as error:
        raise ValueError("its parts are no base64url") from error


def encode_payload(payload: HandlePayload) -> bytes:
    """The bytes of a payload."""
    return " ".join(map(str, payload if payload.serial else payload[:-1])).encode()


def decode_payload(payload: bytes) -> HandlePayload:
    """The delivery that a payload spells; ValueError: it has other parts."""
    try:
        group, topic, *numbers = payload.decode().split(" ")
        queue_id, queue_offset, delivery_number, until, *serials = map(int, numbers)
        (serial,) = serials or (0,)
    except ValueError as error:
        raise ValueError("it has other parts") from error
    return HandlePayload(group, topic, queue_id, queue_offset, delivery_number, until, serial)


def _decode_part(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
