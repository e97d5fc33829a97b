"""Sign-in of a browser by a token, if the gateway requires it.

The token is an API key or a JWT. The browser keeps it, until it is closed, in a cookie that scripts cannot read and that
requests from other sites do not carry (HttpOnly, SameSite=Strict; Secure if the console has TLS). The gateway checks the
token with each page, so a revoked token ends the session. The console stores no sessions.
"""

from typing import Protocol

from console.calls import Metadata

COOKIE = "reput_session"
TOKEN_CHARACTERS_MAX = 3_800  # a browser keeps 4,096 bytes a cookie, its name and attributes included


class SignIn(Protocol):
    """Checks the token of a browser; `is_on` says whether one is needed."""

    is_on: bool

    def name_of(self, token: str, peer: str) -> str:
        """The name of the client with this token; UnauthenticatedError when the token is not valid.

        `peer` is the browser's address.
        """

    def sees_store(self, token: str, peer: str) -> bool:
        """Whether that client may ask for the state of the services; UnauthenticatedError."""


class NoSignIn:
    """No token is needed, and every browser may see everything."""

    is_on = False

    def name_of(self, token: str, peer: str) -> str:
        """Empty: there are no names."""
        return ""

    def sees_store(self, token: str, peer: str) -> bool:
        """Always."""
        return True


def metadata_of(token: str) -> Metadata:
    """The metadata that a gRPC client with this token would send."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def is_token(text: str) -> bool:
    """Whether a cookie and a header can hold the text."""
    return (
        0 < len(text) <= TOKEN_CHARACTERS_MAX
        and text.isascii()
        and text.isprintable()
        and not set(text) & set(' ";,\\')
    )
