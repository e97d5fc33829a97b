"""Freshness tokens: the receipt's word for "this message, in this shard", given to a query that must know of it.

    +---------+-------------------+--------------------+----------+
    | version | commit-log offset | shard's name       | check    |   text
    +---------+-------------------+--------------------+----------+
      "1"       16 hex digits       1 or more            8 hex digits: CRC-32 of all before it, in UTF-8

The offset is where the record starts: whoever has built further than that has built the whole record, for builders go
from record to record. Digits are upper case, so that a token has one spelling.

The check finds what was cut, mistyped or mixed up. It is no seal: a token opens nothing, and one that is made up makes
only its maker wait. So the log can make tokens without sharing a secret with any gateway.
"""

import zlib
from dataclasses import dataclass

from store.errors import InvalidFreshnessTokenError

VERSION = "1"
OFFSET_DIGIT_COUNT = 16
CHECK_DIGIT_COUNT = 8
# What stands around the shard's name, in characters.
FRAME_CHARACTER_COUNT = len(VERSION) + OFFSET_DIGIT_COUNT + CHECK_DIGIT_COUNT
# A shard's name comes from an operator's setting and is short.
TOKEN_BYTES_MAX = 1024
_DIGITS = frozenset("0123456789ABCDEF")
_OFFSET_MAX = (1 << 63) - 1
_SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class FreshnessToken:
    """What a token says: the shard, and where the record starts in its log (bytes)."""

    broker_name: str
    commit_log_offset: int


def encode_freshness_token(broker_name: str, commit_log_offset: int) -> str:
    """The token of the record that starts there in the shard's log."""
    text = f"{VERSION}{commit_log_offset:016X}{broker_name}"
    return f"{text}{zlib.crc32(text.encode()):08X}"


def decode_freshness_token(token: str) -> FreshnessToken:
    """What the token says.

    Raises:
        InvalidFreshnessTokenError: it is none, was changed, or is of another version.
    """
    size_bytes = len(token.encode())
    if not token or size_bytes > TOKEN_BYTES_MAX:
        raise _invalid(token, f"has {size_bytes} bytes; 1 to {TOKEN_BYTES_MAX} are possible")
    if token[0] != VERSION:
        raise _invalid(token, f"is of version {token[0]!r}; this gateway knows version {VERSION!r}")
    text, check = token[:-CHECK_DIGIT_COUNT], token[-CHECK_DIGIT_COUNT:]
    digits, broker_name = text[1 : 1 + OFFSET_DIGIT_COUNT], text[1 + OFFSET_DIGIT_COUNT :]
    if not broker_name:
        raise _invalid(token, "is cut short")
    if check != f"{zlib.crc32(text.encode()):08X}":
        raise _invalid(token, "is not as it was made: its check does not fit")
    if not _DIGITS.issuperset(digits) or int(digits, 16) > _OFFSET_MAX:
        raise _invalid(token, "names no offset")
    return FreshnessToken(broker_name, int(digits, 16))


def _invalid(token: str, what: str) -> InvalidFreshnessTokenError:
    shown = token[:_SHOWN_CHARACTERS]
    return InvalidFreshnessTokenError(
        f"The freshness token {shown!r} {what}: give a token exactly as the append's answer had it.",
        field="freshness_tokens",
        value=shown,
    )
