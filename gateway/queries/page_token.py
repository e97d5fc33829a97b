"""Page tokens: where a query goes on, sealed so that it can go on only there.

    +---------+------------------------+----------------------+
    | version | cursors                | seal                 |   base64url without padding
    +---------+------------------------+----------------------+
      1 byte    JSON, compact            16 bytes

    cursors   {"broker-a": 1234, ...}: in each shard only records that start below that byte of its log follow;
              0 = the shard has no more, a shard that is not named has not been asked yet. ListTopics has one
              cursor, the last topic's name.
    seal      HMAC-SHA256, cut to 16 bytes, over version, method, the query's fields and the cursors

Nothing of a token is secret. The seal keeps a cursor from being used with another query (whose answer would silently
lack matches) or made up. Gateways that share the secret understand each other's tokens, also after a restart.
"""

import base64
import binascii
import hmac
import json
from collections.abc import Mapping

from store.errors import InvalidPageTokenError

_VERSION = b"\x01"
# Made once: `json.dumps` with options makes one for each call.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_SEAL_SIZE_BYTES = 16
# The cursors of 1,000 shards whose names have 30 characters take 65 KiB, with 150 characters 222 KiB. A request may have
# 4 MiB.
_TOKEN_CHARACTERS_MAX = 256 * 1024

_REFUSAL = "The page token was not made by this service for this query: leave it out to start from the newest."


class PageTokens:
    """Seals and opens page tokens.

    Args:
        secret: what the seal is made with; the same on every gateway that serves the same clients.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def seal(self, method: str, query: Mapping[str, str | int | None], cursors: Mapping[str, str | int]) -> str:
        """The token that continues `query` of `method` at the cursors."""
        body = _compact(cursors)
        return base64.urlsafe_b64encode(_VERSION + body + self._seal(method, query, body)).rstrip(b"=").decode()

    def open(self, token: str, method: str, query: Mapping[str, str | int | None]) -> dict[str, str | int]:
        """The cursors in a token, none in an empty one; InvalidPageTokenError when it is no token of this query."""
        if not token:
            return {}
        if len(token) > _TOKEN_CHARACTERS_MAX:
            raise InvalidPageTokenError(_REFUSAL)
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidPageTokenError(_REFUSAL) from error
        body, seal = data[1:-_SEAL_SIZE_BYTES], data[-_SEAL_SIZE_BYTES:]
        if data[:1] != _VERSION or not hmac.compare_digest(seal, self._seal(method, query, body)):
            raise InvalidPageTokenError(_REFUSAL)
        # base64 ignores the unused bits of its last character: one token, one spelling.
        if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != token:
            raise InvalidPageTokenError(_REFUSAL)
        cursors: dict[str, str | int] = json.loads(body)
        return cursors

    def _seal(self, method: str, query: Mapping[str, str | int | None], body: bytes) -> bytes:
        sealed = b"\0".join((_VERSION, method.encode(), _compact(query), body))
        return hmac.digest(self._secret, sealed, "sha256")[:_SEAL_SIZE_BYTES]


def _compact(fields: Mapping[str, str | int | None] | Mapping[str, str | int]) -> bytes:
    # ASCII with escapes: no NUL, so that the sealed parts cannot be shifted into one another.
    return _ENCODER.encode(fields).encode("ascii")


def shard_cursors(cursors: Mapping[str, str | int]) -> dict[str, int]:
    """The cursors of a query over shards: a byte count for each."""
    return {name: cursor for name, cursor in cursors.items() if isinstance(cursor, int)}
