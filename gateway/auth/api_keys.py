"""API keys: `reput_` and 256 random bits in base64url. Services keep the SHA-256 (access_file.py says why that is enough)."""

import base64
import hashlib
from collections.abc import Callable

KEY_PREFIX = "reput_"
KEY_RANDOM_BYTES = 32


def make_key(random_bytes: Callable[[int], bytes]) -> str:
    """A new key, from a source of randomness for secrets (`secrets.token_bytes`)."""
    return KEY_PREFIX + base64.urlsafe_b64encode(random_bytes(KEY_RANDOM_BYTES)).rstrip(b"=").decode()


def hash_key(key: str) -> str:
    """What the access file has of a key: 64 hex digits."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
