"""Who sits at the browser. Off: nobody needs to say. On: a token, kept by the browser until it is closed.

The token (an API key or a JWT) is in a cookie that no script can read and no other site can make the browser send
(HttpOnly, SameSite=Strict; Secure where the console itself has TLS). Each page is asked for with it, so that it ends
when the gateway says so; the console itself remembers nobody.
"""

from typing import Protocol

from gateway.console.calls import Metadata

COOKIE = "reput_session"
TOKEN_CHARACTERS_MAX = 3_800  # a browser keeps 4,096 bytes a cookie, its name and attributes included


class Gate(Protocol):
    """Decides who may come in."""

    is_on: bool

    def name_of(self, token: str, peer: str) -> str:
        """Whose token it is that the browser at `peer` shows; UnauthenticatedError when it is nobody's."""

    def sees_store(self, token: str, peer: str) -> bool:
        """Whether its owner may ask for the state of the services; UnauthenticatedError."""


class OpenGate:
    """Everybody may."""

    is_on = False

    def name_of(self, token: str, peer: str) -> str:
        """Nobody's."""
        return ""

    def sees_store(self, token: str, peer: str) -> bool:
        """Everybody."""
        return True


def metadata_of(token: str) -> Metadata:
    """What a client with this token would send."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def is_token(text: str) -> bool:
    """Whether a cookie and a header can hold it."""
    return (
        0 < len(text) <= TOKEN_CHARACTERS_MAX
        and text.isascii()
        and text.isprintable()
        and not set(text) & set(' ";,\\')
    )
