"""JWTs: checked with the keys of a JWKS file, by PyJWT. The claims of a checked token are cached until it expires.

Only RS256 and ES256 are accepted, each with a key of its kind. So a token with `alg` `none`, or with an algorithm that would
use a public key as a shared secret, is refused. `exp`, `iss`, `aud` and `sub` are required; `exp` and `nbf` are checked to
within LEEWAY_SECONDS. With several keys, a token names its key by `kid`.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.auth.access_file import WatchedFile
from store.errors import UnauthenticatedError

ALGORITHM_BY_KEY_TYPE = {"RSA": "RS256", "EC": "ES256"}
LEEWAY_SECONDS = 30
RSA_KEY_BITS_MIN = 2_048
# A usual token is below 2 KiB, its cached claims below 1 KiB. The claims of the longest ones take 32 MiB.
TOKEN_CHARACTERS_MAX = 8 * 1024
TOKEN_COUNT_MAX = 4_096
GROUP_COUNT_MAX = 256


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a checked token.

    Attributes:
        subject: its `sub`.
        groups: its `groups`, if it has such a list of texts.
        expiry_seconds: its `exp`, since 1970.
    """

    subject: str
    groups: tuple[str, ...]
    expiry_seconds: float


@dataclass(frozen=True, slots=True)
class _Key:
    algorithm: str
    key: Any


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        # Python takes the last one, other readers the first: nobody could say which keys are in force.
        twice = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return fields


def parse_jwks(data: bytes) -> dict[str, _Key]:
    """Keys by `kid`; one without has the empty text.

    Raises:
        ValueError: it is not a JWKS of public RSA or P-256 keys.
    """
    import jwt  # and `cryptography`: 20 MiB that only gateways with JWTs have

    keys: dict[str, _Key] = {}
    listed = json.loads(data, object_pairs_hook=_fields)
    rows = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(rows, list) or not rows:
        raise ValueError("it has no list `keys`")
    for row in rows:
        kind = row.get("kty") if isinstance(row, dict) else None
        if kind not in ALGORITHM_BY_KEY_TYPE or (kind == "EC" and row.get("crv") != "P-256"):
            raise ValueError(f"a key of kind {kind!r}: only RSA and EC (P-256) keys are accepted")
        if "d" in row:
            raise ValueError("a private key: only public keys belong here")
        kid = str(row.get("kid", ""))
        if kid in keys:
            raise ValueError(f"two keys have the kid {kid!r}")
        algorithm = ALGORITHM_BY_KEY_TYPE[kind]
        if row.get("alg", algorithm) != algorithm:
            raise ValueError(f"key {kid!r} is for {row['alg']!r}: a key of its kind must be for {algorithm}")
        try:
            key = jwt.PyJWK(row, algorithm).key
        except jwt.PyJWTError as error:
            raise ValueError(f"key {kid!r}: {error}") from error
        if kind == "RSA" and key.key_size < RSA_KEY_BITS_MIN:
            raise ValueError(f"key {kid!r} has {key.key_size} bits: at least {RSA_KEY_BITS_MIN} are needed")
        keys[kid] = _Key(algorithm, key)
    return keys


class JwtTokens:
    """Checks tokens; thread-safe.

    Args:
        keys_file: the JWKS.
        issuer: what `iss` must be.
        audience: what `aud` must be, or hold.
        clock: seconds, rising.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        keys_file: Path,
        issuer: str,
        audience: str,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._keys = WatchedFile("jwt_keys_file", keys_file, parse_jwks, clock)
        self._issuer = issuer
        self._audience = audience
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._checked: OrderedDict[bytes, tuple[Mapping[str, _Key], Claims]] = OrderedDict()

    def check(self, token: str) -> Claims:
        """What the token says.

        Raises:
            UnauthenticatedError: the token is refused. The message has the reason, not the token.
        """
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise UnauthenticatedError(f"the JWT has more than {TOKEN_CHARACTERS_MAX} characters")
        if not token.isascii():
            raise UnauthenticatedError("the JWT has other characters than ASCII")
        keys = self._keys.current()
        # By hash, so that memory holds no tokens.
        mark = hashlib.sha256(token.encode("ascii")).digest()
        with self._lock:
            known = self._checked.get(mark)
        if known is not None and known[0] is keys:
            claims = known[1]
            if self._wall_clock() >= claims.expiry_seconds + LEEWAY_SECONDS:
                raise UnauthenticatedError("the JWT has expired")
            return claims
        claims = self._verify(token, keys)
        with self._lock:
            self._checked[mark] = keys, claims
            if len(self._checked) > TOKEN_COUNT_MAX:
                self._checked.popitem(last=False)
        return claims

    def _verify(self, token: str, keys: Mapping[str, _Key]) -> Claims:
        import jwt

        try:
            kid = str(jwt.get_unverified_header(token).get("kid", ""))
            key = keys.get(kid) or (next(iter(keys.values())) if len(keys) == 1 and not kid else None)
            if key is None:
                raise UnauthenticatedError("the JWT is signed by an unknown key")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            expiry_seconds = float(claims["exp"])
        except (jwt.PyJWTError, OverflowError) as error:  # OverflowError: a time that no float holds
            raise UnauthenticatedError(f"the JWT is refused: {type(error).__name__}") from error
        groups = claims.get("groups", ())
        texts = tuple(group for group in groups if isinstance(group, str)) if isinstance(groups, list) else ()
        return Claims(str(claims["sub"]), texts[:GROUP_COUNT_MAX], expiry_seconds)
