"""Page: messages up to a count and a number of bytes.

Beside it, the limits of requests and answers, and the checks whose errors name the field.

A page token says where a query goes on, encrypted so that it says nothing and can go on only there.

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
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gateway.ports.shard import body_size_bytes, head_size_bytes
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import InvalidArgumentError, InvalidPageTokenError
from store.format.properties import PROPERTIES_SIZE_BYTES_MAX

PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1000
# 3.5 MiB: below the 4 MiB that gRPC clients receive by default, with room for what surrounds the messages.
PAGE_BYTES_MAX = 3_670_016
BODY_CHUNK_BYTES = 1 << 20
# Rounds of candidates asked of one shard's index in one call: a key that shares its hash with many others ends the page
# early, perhaps empty, with a token to go on.
CANDIDATE_ROUNDS_MAX = 16
# Candidates asked for at least, once the first round was not enough.
CANDIDATE_ROUND_COUNT = 64
QUEUE_OFFSET_MAX = (1 << 63) - 1
_NAME_BYTES_MAX = 255
# A separator of directories, and control characters.
_NO_NAME = re.compile("[/\x00-\x1f\x7f]")


def page_size(asked: int, field: str) -> int:
    """0 is the default, above the maximum is clamped; InvalidArgumentError when negative."""
    if asked < 0:
        raise InvalidArgumentError(f"{field} is {asked}: it must be 0 (the default) or more.", field=field, value=asked)
    return min(asked or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def check_topic(topic: str, field: str = "topic") -> None:
    """InvalidArgumentError for a text that cannot be a topic's name, because names become directories.

    It accepts more than an append does, so that every topic of a foreign store can be queried.
    """
    if not topic:
        raise InvalidArgumentError(f"{field} is empty: name the topic to look in.", field=field)
    check_topic_size(topic, field)
    if topic in {".", ".."} or _NO_NAME.search(topic):
        raise InvalidArgumentError(f"{topic!r} can be no topic's name.", field=field, value=topic)


def check_topic_size(topic: str, field: str = "topic") -> None:
    """InvalidArgumentError for a name longer than a topic can have."""
    size_bytes = len(topic.encode())
    if size_bytes > _NAME_BYTES_MAX:
        raise InvalidArgumentError(
            f"{field} has {size_bytes} bytes: at most {_NAME_BYTES_MAX} are possible.",
            field=field,
            sizeBytes=size_bytes,
        )


def check_not_empty(text: str, field: str) -> None:
    """InvalidArgumentError when the text is empty."""
    if not text:
        raise InvalidArgumentError(f"{field} is empty.", field=field)


def check_key(text: str, field: str) -> None:
    """InvalidArgumentError when the text is empty, or longer than all properties of a message together.

    Its hash is made once for each topic that is looked in.
    """
    check_not_empty(text, field)
    size_bytes = len(text.encode())
    if size_bytes > PROPERTIES_SIZE_BYTES_MAX:
        raise InvalidArgumentError(
            f"{field} has {size_bytes} bytes: at most {PROPERTIES_SIZE_BYTES_MAX} are possible.",
            field=field,
            sizeBytes=size_bytes,
        )


def check_not_negative(number: int, field: str) -> None:
    """InvalidArgumentError when the number is below 0."""
    if number < 0:
        raise InvalidArgumentError(f"{field} is {number}: it must be 0 or more.", field=field, value=number)


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A message of a page; with `body_omitted` its body stays out of the answer."""

    broker_name: str
    record: StoredMessage
    body_omitted: bool


@dataclass(slots=True)
class Page:
    """Collects entries until the page is full.

    Args:
        count_max: messages that fit.
        bytes_max: bytes that fit, properties included.
    """

    count_max: int
    bytes_max: int = PAGE_BYTES_MAX
    entries: list[PageEntry] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def missing_count(self) -> int:
        """Messages that still fit by count."""
        return self.count_max - len(self.entries)

    @property
    def free_bytes(self) -> int:
        """Bytes that are left."""
        return max(self.bytes_max - self.size_bytes, 0)

    def wants_body(self, record: StoredMessage) -> bool:
        """Whether the omitted body of the record would fit, so that the record must be read again with it."""
        return record.body_omitted and head_size_bytes(record) + body_size_bytes(record) <= self.free_bytes

    def add(self, broker_name: str, record: StoredMessage) -> bool:
        """Add the record if it fits; False ends the page.

        A record whose body does not fit begins the next page; only a body too large for any page is omitted.
        """
        if self.missing_count <= 0:
            return False
        head_bytes, body_bytes, free_bytes = head_size_bytes(record), body_size_bytes(record), self.free_bytes
        with_body = not record.body_omitted and head_bytes + body_bytes <= free_bytes
        if not with_body and self.entries:
            is_too_large_for_any_page = head_bytes + body_bytes > self.bytes_max
            # An empty page accepts any message; otherwise no page could get past it.
            if not is_too_large_for_any_page or head_bytes > free_bytes:
                return False
        self.entries.append(PageEntry(broker_name, record, not with_body))
        self.size_bytes += head_bytes + (body_bytes if with_body else 0)
        return True


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
        """The cursors in a token; an empty token has no cursors. InvalidPageTokenError for a token of another query."""
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
