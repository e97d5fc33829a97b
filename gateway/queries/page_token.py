"""Page tokens: where a query goes on, encrypted so that it says nothing and can go on only there.

    +---------+----------+-----------+-----------------------------+
    | version | nonce    | seal      | cursors, encrypted          |   base64url without padding
    +---------+----------+-----------+-----------------------------+
      1 byte    16 bytes   16 bytes    multiple of 64 bytes

    cursors   {"broker-a": 1234, ...}: in each shard only records that start below that byte of its log follow;
              0 = the shard has no more, a shard that is not named has not been asked yet. ListTopics has one
              cursor, the last topic's name. JSON, compact, with spaces behind it up to a multiple of 64 bytes
    nonce     random: two tokens of one place differ
    seal      AES-256-SIV (RFC 5297) over version, method, the query's fields, nonce and cursors

A place in a list may lie at something that the caller may not see: its time, its offset, the topic's name. So a token is opaque
to its caller, and its length is that of many places. The seal keeps a cursor from being used with another query (whose answer
would silently lack matches) or made up. Gateways that share the secret understand each other's tokens, also after a restart.
"""

import base64
import binascii
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from store.errors import InvalidPageTokenError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

# The default of the setting: known to everybody.
KNOWN_TO_ALL = "reput"
_VERSION = b"\x02"
# Made once: `json.dumps` with options makes one for each call.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_NONCE_SIZE_BYTES = 16
_SEAL_SIZE_BYTES = 16
_BLOCK_SIZE_BYTES = 64
# The cursors of 1,000 shards whose names have 30 characters take 65 KiB, with 150 characters 222 KiB. A request may have
# 4 MiB.
_TOKEN_CHARACTERS_MAX = 256 * 1024

_REFUSAL = "The page token was not made by this service for this query: leave it out to start from the newest."


class PageTokens:
    """Seals and opens page tokens.

    Args:
        secret: what the tokens are encrypted with; the same on every gateway that serves the same clients.
        random_bytes: so many bytes of a source of randomness for secrets.
    """

    def __init__(self, secret: str, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._key = hmac.digest(secret.encode(), b"reput page tokens", "sha512")
        self._random_bytes = random_bytes

    @cached_property
    def _cipher(self) -> "AESSIV":
        # Loaded with the first token: it takes 8 MB.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        return AESSIV(self._key)

    def seal(self, method: str, query: Mapping[str, str | int | None], cursors: Mapping[str, str | int]) -> str:
        """The token that continues `query` of `method` at the cursors."""
        body = _compact(cursors)
        body += b" " * (-len(body) % _BLOCK_SIZE_BYTES)
        nonce = self._random_bytes(_NONCE_SIZE_BYTES)
        sealed = self._cipher.encrypt(body, [_VERSION, method.encode(), _compact(query), nonce])
        return base64.urlsafe_b64encode(_VERSION + nonce + sealed).rstrip(b"=").decode()

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
        head_size_bytes = len(_VERSION) + _NONCE_SIZE_BYTES
        nonce, sealed = data[len(_VERSION) : head_size_bytes], data[head_size_bytes:]
        if data[:1] != _VERSION or len(sealed) < _SEAL_SIZE_BYTES + _BLOCK_SIZE_BYTES:
            raise InvalidPageTokenError(_REFUSAL)
        # base64 ignores the unused bits of its last character: one token, one spelling.
        if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != token:
            raise InvalidPageTokenError(_REFUSAL)
        from cryptography.exceptions import InvalidTag

        try:
            body = self._cipher.decrypt(sealed, [_VERSION, method.encode(), _compact(query), nonce])
        except InvalidTag as error:
            raise InvalidPageTokenError(_REFUSAL) from error
        cursors: dict[str, str | int] = json.loads(body)
        return cursors


def _compact(fields: Mapping[str, str | int | None] | Mapping[str, str | int]) -> bytes:
    # ASCII with escapes: the same bytes whatever the text.
    return _ENCODER.encode(fields).encode("ascii")


def shard_cursors(cursors: Mapping[str, str | int]) -> dict[str, int]:
    """The cursors of a query over shards: a byte count for each."""
    return {name: cursor for name, cursor in cursors.items() if isinstance(cursor, int)}
