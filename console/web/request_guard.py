"""Checks the host name and origin of each request, and sets security headers on each answer.

Another site must not reach the console through the user's browser:

    DNS rebinding         requests are answered for IP addresses, localhost and the names of the settings only
    forms of other sites  only the console's own pages may post
    frames                no site may embed the console
    message contents      the content security policy runs and loads the console's own files only
"""

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# For the bytes of a message, which must never be rendered or executed.
DOWNLOAD_POLICY = "default-src 'none'; sandbox"
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}
ANY_NAME = "*"
_SAFE_METHODS = ("GET", "HEAD")

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class RequestGuard:
    """Checks requests and sets the headers of answers.

    Args:
        host_names: host names that browsers may use for the console; `*`: any.
    """

    def __init__(self, host_names: str = "") -> None:
        self._host_names = frozenset(name.strip().lower() for name in host_names.split(",") if name.strip())

    def around(self, application: Asgi) -> Asgi:
        """The application with these checks."""

        async def guarded(
            scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
        ) -> None:
            async def send_with_headers(message: Any) -> None:
                if message["type"] == "http.response.start":
                    present = {name.lower() for name, _ in message["headers"]}
                    message["headers"] = [
                        *message["headers"],
                        *((n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present),
                    ]
                await send(message)

            refusal = self.refusal(scope["method"], _headers(scope))
            if refusal:
                await _say(send_with_headers, *refusal)
            else:
                await application(scope, receive, send_with_headers)

        return guarded

    def refusal(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and text of a refusal, by the headers in lower case; None when the request is allowed."""
        host = headers.get("host", "")
        if not self.knows(host):
            return 421, (
                f"This console is not known as {host[:200]!r}. Use its IP address or localhost, or put the name into "
                "REPUT_GATEWAY_CONSOLE_HOST_NAMES.\n"
            )
        if method in _SAFE_METHODS:
            return None
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
        is_own = site in ("", "same-origin") and (not origin or _host_of(origin) == host) and bool(site or origin)
        return None if is_own else (403, "This form did not come from the console's own page.\n")

    def knows(self, host: str) -> bool:
        """Whether this `Host` is one of the console's names."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if not name:
            return False
        if name == "localhost" or name.endswith(".localhost") or ANY_NAME in self._host_names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._host_names
        return True


def _host_of(origin: str) -> str:
    """The host of an `Origin`; empty when it is none, as for `null`."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _say(send: Callable[[Any], Awaitable[None]], status_code: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text.encode())).encode())]
    await send({"type": "http.response.start", "status": status_code, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
