"""Freshness tokens: a receipt names its record with one, and a query that gets the token waits until that record is built.

    +---------+-------------------+--------------------+----------+
    | version | commit-log offset | shard's name       | check    |   text
    +---------+-------------------+--------------------+----------+
      "1"       16 hex digits       1 or more            8 hex digits: CRC-32 of all before it, in UTF-8

The offset is where the record starts. Builders apply whole records, so a builder beyond the offset has built the record.
Digits are upper case, so that a token has one spelling.

The check detects a token that was cut, mistyped or mixed up. It is not a signature: a token grants no access, and a forged
token only makes its own caller wait. So the log can make tokens without sharing a secret with any gateway.
"""

import zlib
from dataclasses import dataclass

from store.errors import InvalidFreshnessTokenError

VERSION = "1"
OFFSET_DIGIT_COUNT = 16
CHECK_DIGIT_COUNT = 8
# Characters before and behind the shard's name.
FRAME_CHARACTER_COUNT = len(VERSION) + OFFSET_DIGIT_COUNT + CHECK_DIGIT_COUNT
# Names of shards are settings, and short.
TOKEN_BYTES_MAX = 1024
_DIGITS = frozenset("0123456789ABCDEF")
_OFFSET_MAX = (1 << 63) - 1
_SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class FreshnessToken:
    """The content of a token: the shard, and where the record starts in its log (bytes)."""

    broker_name: str
    commit_log_offset: int


def encode_freshness_token(broker_name: str, commit_log_offset: int) -> str:
    """The token of the record that starts there in the shard's log."""
    text = f"{VERSION}{commit_log_offset:016X}{broker_name}"
    return f"{text}{zlib.crc32(text.encode()):08X}"


def decode_freshness_token(token: str) -> FreshnessToken:
    """The content of a token.

    Raises:
        InvalidFreshnessTokenError: it is not a token, was changed, or is of another version.
    """
    size_bytes = len(token.encode())
    if not token or size_bytes > TOKEN_BYTES_MAX:
        raise _invalid(token, f"has {size_bytes} bytes; 1 to {TOKEN_BYTES_MAX} are allowed")
    if token[0] != VERSION:
        raise _invalid(token, f"is of version {token[0]!r}; this gateway knows version {VERSION!r}")
    text, check = token[:-CHECK_DIGIT_COUNT], token[-CHECK_DIGIT_COUNT:]
    digits, broker_name = text[1 : 1 + OFFSET_DIGIT_COUNT], text[1 + OFFSET_DIGIT_COUNT :]
    if not broker_name:
        raise _invalid(token, "is cut short")
    if check != f"{zlib.crc32(text.encode()):08X}":
        raise _invalid(token, "was changed: its check does not match")
    if not _DIGITS.issuperset(digits) or int(digits, 16) > _OFFSET_MAX:
        raise _invalid(token, "names no offset")
    return FreshnessToken(broker_name, int(digits, 16))


def _invalid(token: str, what: str) -> InvalidFreshnessTokenError:
    shown = token[:_SHOWN_CHARACTERS]
    return InvalidFreshnessTokenError(
        f"The freshness token {shown!r} {what}: send the token exactly as in the answer of the append.",
        field="freshness_tokens",
        value=shown,
    )
