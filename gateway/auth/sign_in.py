"""Finds the caller: by an API key, a JWT or a client certificate, in this order.

    metadata        authorization: Bearer reput_...     an API key
                    x-api-key: reput_...                the same
                    authorization: Bearer eyJ...        a JWT
    TLS             a certificate with a name that the access file knows

A request of RocketMQ's remoting protocol is signed with the secret of an access key (services/rocketmq/signature.py) instead.
Two credentials in the metadata are refused, because it would be unclear which one counts. No error and no log line contains
a credential.
"""

import hmac
from collections.abc import Iterable
from typing import Any

from gateway.auth.access import Access
from gateway.auth.access_file import KEY_PREFIX, AccessFile, WatchedFile, hash_key
from gateway.auth.jwt_tokens import JwtTokens
from services.rocketmq.signature import signature_of
from services.serving.identity import peer_identities
from store.errors import UnauthenticatedError

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
BEARER = "bearer "
# What a request with a key that is not known is checked against.
UNKNOWN_SECRET = b"no secret of an access key"
HOW = "give an API key or a JWT as `authorization: Bearer ...` (docs/security.md)"


class SignIn:
    """Finds a caller's rights; thread-safe.

    Args:
        clients: the access file.
        tokens: checks JWTs; None: JWTs are refused.
        asks_certificates: whether clients send certificates.
    """

    def __init__(self, clients: WatchedFile[AccessFile], tokens: JwtTokens | None, *, asks_certificates: bool) -> None:
        self._clients = clients
        self._tokens = tokens
        self._asks_certificates = asks_certificates

    def access_of(self, context: Any) -> Access:
        """The rights of the caller of a gRPC call.

        Raises:
            UnauthenticatedError: there is no credential, or it is not known.
        """
        shown = credential_of(context.invocation_metadata() or ())
        if shown:
            return self.access_by(shown)
        access = self.access_by_certificate(peer_identities(context)) if self._asks_certificates else None
        if access is None:
            raise UnauthenticatedError(f"the call has no credentials: {HOW}")
        return access

    def access_by_certificate(self, names: Iterable[str]) -> Access | None:
        """The rights of a certificate with these names; None when the access file has none of them."""
        by_certificate = self._clients.current().by_certificate if self._asks_certificates else {}
        return next((by_certificate[name] for name in sorted(names) if name in by_certificate), None)

    def access_by_signature(self, access_key: str, signature: str, data: bytes) -> Access:
        """The rights of an access key, whose secret has signed the data; errors as `access_of`.

        A key that is not known takes as long as one that is, and gets the same answer.
        """
        clients = self._clients.current()
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
        clients = self._clients.current()
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


def credential_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The credential of a call's metadata; empty when there is none.

    Raises:
        UnauthenticatedError: there are two, or one of an unknown kind.
    """
    found = ""
    for name, value in metadata:
        if name not in (AUTHORIZATION, API_KEY):
            continue
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        if name == AUTHORIZATION:
            if text[: len(BEARER)].lower() != BEARER:
                raise UnauthenticatedError(f"the authorization is of an unknown kind: {HOW}")
            text = text[len(BEARER) :].strip()
        if found or not text:
            raise UnauthenticatedError(
                f"the metadata has {'two credentials' if found else 'an empty credential'}, not one: {HOW}"
            )
        found = text
    return found
