"""Finds the caller: by an API key, a JWT, a signature or a client certificate, in this order.

    metadata        authorization: Bearer reput_...     an API key
                    x-api-key: reput_...                the same
                    authorization: Bearer eyJ...        a JWT
                    authorization: MQv2-HMAC-SHA1 ...   a date, signed with the secret of an access key by RocketMQ's clients
    TLS             a certificate with a name that the access file knows

A request of RocketMQ's remoting protocol is signed with the secret of an access key, too (services/rocketmq/signature.py).
The signature of a call is of its date only, so it is good for every call while the date is near the gateway's clock. A stream
is checked again as long as it goes on (gateway/auth/guard.py), except for its date, which was near when the stream began.
Two credentials in the metadata are refused, because it would be unclear which one counts. No error and no log line contains
a credential.
"""

import hmac
import time
from collections.abc import Callable, Iterable
from datetime import tzinfo
from typing import Any, NamedTuple

from gateway.auth.access import Access
from gateway.auth.access_file import KEY_PREFIX, AccessFile, WatchedFile, hash_key
from gateway.auth.jwt_tokens import JwtTokens
from services.rocketmq.signature import (
    ALGORITHM,
    DATE_TIME,
    CallSignature,
    parse_authorization,
    seconds_off,
    signature_of,
)
from services.serving.identity import peer_identities
from store.errors import UnauthenticatedError

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
BEARER = "bearer "
# What a request with a key that is not known is checked against.
UNKNOWN_SECRET = b"no secret of an access key"
HOW = (
    "give an API key or a JWT as `authorization: Bearer ...`, or an access key and its secret to a client of RocketMQ "
    "(docs/security.md)"
)
DATE_CHARACTERS_SHOWN = 40


class SignatureDates(NamedTuple):
    """Which dates of signed calls are near enough.

    Attributes:
        window_seconds: how far a date may be from this clock, in both directions.
        zones: where clients write their local time as if it was UTC.
        wall_clock: seconds since 1970.
    """

    window_seconds: float
    zones: tuple[tzinfo, ...] = ()
    wall_clock: Callable[[], float] = time.time

    def check(self, date: str, client: str) -> None:
        """UnauthenticatedError, which names the client that has signed it, when a date is too far away, or is none."""
        shown = date[:DATE_CHARACTERS_SHOWN]
        try:
            off_seconds = seconds_off(date, self.wall_clock(), self.zones)
        except ValueError as error:
            raise UnauthenticatedError(f"the {DATE_TIME} of the call, {shown!r}, is no date", client=client) from error
        if abs(off_seconds) > self.window_seconds:
            direction = "ahead of" if off_seconds > 0 else "behind"
            raise UnauthenticatedError(
                f"the {DATE_TIME} of the call, {shown!r}, is {abs(off_seconds):.0f} s {direction} the gateway's clock, and may "
                f"be {self.window_seconds:g} s off: set the clock of the client's machine, or, where its client writes local "
                f"time, run it with TZ=UTC or name the time zone in signature_time_zones of the gateway",
                client=client,
            )


class SignIn:
    """Finds a caller's rights; thread-safe.

    Args:
        clients: the access file; also an attribute.
        tokens: checks JWTs; None: JWTs are refused.
        asks_certificates: whether clients send certificates.
        dates: which dates of signed calls are near enough.
    """

    def __init__(
        self,
        clients: WatchedFile[AccessFile],
        tokens: JwtTokens | None,
        *,
        asks_certificates: bool,
        dates: SignatureDates,
    ) -> None:
        self.clients = clients
        self._tokens = tokens
        self._asks_certificates = asks_certificates
        self._dates = dates

    def access_of(self, context: Any, *, has_begun: bool = False) -> Access:
        """The rights of the caller of a gRPC call.

        Args:
            context: the call's.
            has_begun: whether it was checked when it began: the date of its signature is then not looked at.

        Raises:
            UnauthenticatedError: there is no credential, or it is not known or no longer valid.
        """
        shown = credential_of(context.invocation_metadata() or ())
        if isinstance(shown, CallSignature):
            access_by_key = self.access_by_signature(shown.access_key, shown.signature, shown.date.encode())
            if not has_begun:
                self._dates.check(shown.date, access_by_key.name)
            return access_by_key
        if shown:
            return self.access_by(shown)
        access = self.access_by_certificate(peer_identities(context)) if self._asks_certificates else None
        if access is None:
            raise UnauthenticatedError(f"the call has no credentials: {HOW}")
        return access

    def access_by_certificate(self, names: Iterable[str]) -> Access | None:
        """The rights of a certificate with these names; None when the access file has none of them."""
        by_certificate = self.clients.current().by_certificate if self._asks_certificates else {}
        return next((by_certificate[name] for name in sorted(names) if name in by_certificate), None)

    def access_by_signature(self, access_key: str, signature: str, data: bytes) -> Access:
        """The rights of an access key, whose secret has signed the data; errors as `access_of`.

        A key that is not known takes as long as one that is, and gets the same answer.
        """
        clients = self.clients.current()
        wanted = signature_of(data, clients.secrets.get(access_key, UNKNOWN_SECRET))
        is_right = hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace"))
        access = clients.by_access_key.get(access_key)
        if access is None or not is_right:
            raise UnauthenticatedError(
                "the access key is not known, or its secret has not made this signature: see access_keys of the access file "
                "(docs/security.md)"
            )
        return access

    def access_by(self, credential: str) -> Access:
        """The rights for an API key or a JWT; errors as `access_of`."""
        clients = self.clients.current()
        if credential.startswith(KEY_PREFIX):
            # The time of a table lookup may reveal a part of the hash, which reveals nothing of the key.
            wanted = hash_key(credential)
            for known in (wanted,) if wanted in clients.by_key_hash else ():
                if hmac.compare_digest(known, wanted):
                    return clients.by_key_hash[known]
            raise UnauthenticatedError("this API key is not known, or no longer valid")
        if self._tokens is None:
            raise UnauthenticatedError(
                f"the credential is not a known API key, and this gateway accepts no JWTs: {HOW}"
            )
        claims = self._tokens.check(credential)
        access = clients.by_claims(claims.subject, claims.groups)
        if access is None:
            raise UnauthenticatedError("the JWT is valid, but the access file has neither its subject nor its groups")
        return access


def credential_of(metadata: Iterable[tuple[str, str | bytes]]) -> str | CallSignature:
    """The credential of a call's metadata: an API key, a JWT or a signature; empty when there is none.

    Raises:
        UnauthenticatedError: there are two, or one that is of an unknown kind or cannot be read.
    """
    texts = [(name, value if isinstance(value, str) else value.decode("utf-8", "replace")) for name, value in metadata]
    found: str | CallSignature = ""
    for name, text in texts:
        if name not in (AUTHORIZATION, API_KEY):
            continue
        if name == AUTHORIZATION and text[: len(ALGORITHM)].lower() == ALGORITHM:
            signature = _signature_in(text, dict(texts).get(DATE_TIME, ""))
            if signature is None:  # of a client without an access key
                continue
            credential: str | CallSignature = signature
        elif name == AUTHORIZATION:
            if text[: len(BEARER)].lower() != BEARER:
                raise UnauthenticatedError(f"the authorization is of an unknown kind: {HOW}")
            credential = text[len(BEARER) :].strip()
        else:
            credential = text
        if found or not credential:
            raise UnauthenticatedError(
                f"the metadata has {'two credentials' if found else 'an empty credential'}, not one: {HOW}"
            )
        found = credential
    return found


def _signature_in(authorization: str, date: str) -> CallSignature | None:
    try:
        return parse_authorization(authorization, date)
    except ValueError as error:
        raise UnauthenticatedError(f"{error}: {HOW}") from error
