"""The texts that name a message which waits: RocketMQ's recall handle, and the id of a transaction.

    recall handle    base64url of `v1 TOPIC BROKER_NAME DELIVERY_MILLIS UNIQUE_KEY`
    transaction id   base64url of `t1 TOPIC BROKER_NAME COMMIT_LOG_OFFSET UNIQUE_KEY`, of the half message that was sent

The first is that of RocketMQ 5.3.3 (`RecallMessageHandle.HandleV1`), so handles of either are good at both. Ids of transactions
are opaque to clients, and RocketMQ's proxy forgets them when it stops; ours says which shard has the half message.
"""

import base64
import binascii
from typing import NamedTuple

from store.errors import InvalidArgumentError

RECALL, TRANSACTION = "v1", "t1"
# The longest unique key fills the properties of a record, 32,767 bytes; base64 makes a third more of it.
HANDLE_LENGTH_MAX = 48 << 10


class WaitingHandle(NamedTuple):
    """A message that waits. `number`: when it is due (ms since 1970), or the offset of the half message (bytes)."""

    topic: str
    broker_name: str
    number: int
    unique_key: str


def encode_handle(kind: str, handle: WaitingHandle) -> str:
    """The text of a handle; `kind` is RECALL or TRANSACTION."""
    text = f"{kind} {handle.topic} {handle.broker_name} {handle.number} {handle.unique_key}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_handle(kind: str, text: str, field: str) -> WaitingHandle:
    """The handle that a text of a client spells.

    Raises:
        InvalidArgumentError: it is none of this kind; `field` names the argument.
    """
    if len(text) > HANDLE_LENGTH_MAX:
        raise _no_handle(text, field, "it is too long")
    try:
        parts = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ", 4)
    except (ValueError, binascii.Error):
        parts = []
    # The unique key is the last part: one that a client chose may hold spaces.
    if len(parts) < 5 or parts[0] != kind or not parts[3].isdecimal() or len(parts[3]) > 18:
        raise _no_handle(text, field, "it has other parts")
    return WaitingHandle(parts[1], parts[2], int(parts[3]), parts[4])


def _no_handle(text: str, field: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field} {text[:64]!r} is none: {why}; use that of the receipt", field=field)
