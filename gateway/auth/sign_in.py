"""Who calls: by an API key, a JWT or a client certificate, in that order of looking.

    metadata        authorization: Bearer reput_...     an API key
                    x-api-key: reput_...                the same
                    authorization: Bearer eyJ...        a JWT
    TLS             a certificate with a name that the access file knows

One is enough, and two in the metadata are refused: which one counted would be a guess. What is shown stands in no error and
no log.
"""

import hmac
from collections.abc import Iterable
from typing import Any

from gateway.auth.access import Access
from gateway.auth.access_file import Clients, WatchedFile
from gateway.auth.api_keys import KEY_PREFIX, hash_key
from gateway.auth.jwt_tokens import JwtTokens
from services.call_guard import peer_identities
from store.errors import UnauthenticatedError

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
BEARER = "bearer "
HOW = "give an API key or a JWT as `authorization: Bearer ...` (docs/security.md)"


class SignIn:
    """Finds a caller's rights; thread-safe.

    Args:
        clients: the access file.
        tokens: checks JWTs; None: none are taken.
        asks_certificates: whether clients show certificates.
    """

    def __init__(self, clients: WatchedFile[Clients], tokens: JwtTokens | None, *, asks_certificates: bool) -> None:
        self._clients = clients
        self._tokens = tokens
        self._asks_certificates = asks_certificates

    def access_of(self, context: Any) -> Access:
        """The rights of whoever makes a gRPC call.

        Raises:
            UnauthenticatedError: nothing is shown, or nothing that is known.
        """
        shown = credential_of(context.invocation_metadata() or ())
        if shown:
            return self.access_by(shown)
        if self._asks_certificates:
            by_certificate = self._clients.current().by_certificate
            for name in peer_identities(context):
                if name in by_certificate:
                    return by_certificate[name]
        raise UnauthenticatedError(f"this gateway wants to know who calls: {HOW}")

    def access_by(self, credential: str) -> Access:
        """The rights of whoever shows an API key or a JWT; errors as `access_of`."""
        clients = self._clients.current()
        if credential.startswith(KEY_PREFIX):
            # Equal hashes are found by a table: how long that takes tells of a hash, which tells nothing of a key.
            wanted = hash_key(credential)
            for known in (wanted,) if wanted in clients.by_key_hash else ():
                if hmac.compare_digest(known, wanted):
                    return clients.by_key_hash[known]
            raise UnauthenticatedError("the API key is not known here, or not any more")
        if self._tokens is None:
            raise UnauthenticatedError(f"this gateway takes no JWTs, and it is no API key of its: {HOW}")
        claims = self._tokens.check(credential)
        access = clients.by_claims(claims.subject, claims.groups)
        if access is None:
            raise UnauthenticatedError("the JWT is sound, and the access file knows neither its subject nor its groups")
        return access


def credential_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """What a call's metadata shows, empty when nothing.

    Raises:
        UnauthenticatedError: it shows two things, or in a way that nobody understands.
    """
    found = ""
    for name, value in metadata:
        if name not in (AUTHORIZATION, API_KEY):
            continue
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        if name == AUTHORIZATION:
            if text[: len(BEARER)].lower() != BEARER:
                raise UnauthenticatedError(f"the authorization is of a kind that is not taken: {HOW}")
            text = text[len(BEARER) :].strip()
        if found or not text:
            raise UnauthenticatedError(f"one API key or JWT is wanted, not {'two' if found else 'none'}: {HOW}")
        found = text
    return found
