"""What stands before every page: which host names and origins are let in, and what each answer forbids the browser.

A page of a stranger must not get at ours through the reader's own browser: not by a name of his that suddenly means
our address (DNS rebinding: only IP addresses, localhost and the names of the settings are answered), not by a form of
his (only our own pages may post), not by a frame around us, and not by what a message brings into the page (the
content security policy lets nothing run or load that is not ours).
"""

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# For bytes that anybody may have put into a message: shown by no means, run by no means.
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


class Guard:
    """See the module.

    Args:
        host_names: names by which browsers may call the console; `*`: any.
    """

    def __init__(self, host_names: str = "") -> None:
        self._host_names = frozenset(name.strip().lower() for name in host_names.split(",") if name.strip())

    def around(self, application: Asgi) -> Asgi:
        """The application behind the guard."""

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
        """Status and text for a request that is not let in, by its headers in lower case."""
        host = headers.get("host", "")
        if not self.knows(host):
            return 421, (
                f"This console is not known as {host[:200]!r}. Use its IP address or localhost, or put the name into "
                "REPUT_GATEWAY_CONSOLE_HOST_NAMES.\n"
            )
        if method in _SAFE_METHODS:
            return None
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
        is_own = (
            site in ("", "same-origin") and (not origin or urlsplit(origin).netloc == host) and bool(site or origin)
        )
        return None if is_own else (403, "This form did not come from the console's own page.\n")

    def knows(self, host: str) -> bool:
        """Whether a browser that was sent to this `Host` is meant to come here."""
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


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _say(send: Callable[[Any], Awaitable[None]], status_code: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text.encode())).encode())]
    await send({"type": "http.response.start", "status": status_code, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
