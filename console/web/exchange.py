"""Helpers for a request and its answer: forms, cookies, local links, the choice between JSON and a page."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from console.web.failure import Failure

FORM_BYTES_MAX = 8 * 1024
FORM_SECONDS_MAX = 10.0
FORM_FIELD_COUNT_MAX = 16


async def until_gone(request: Request) -> None:
    """Return when the browser has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a posted form; of a repeated name the last. Empty when it is too large, too slow or not a form."""
    try:
        content = await read_content(request, FORM_BYTES_MAX)
        return dict(parse_qsl(content.decode("utf-8", "replace"), max_num_fields=FORM_FIELD_COUNT_MAX))
    except ValueError:
        return {}


async def read_content(request: Request, bytes_max: int) -> bytes:
    """The bytes that are posted; none when they are too many or too slow."""
    content = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS_MAX):
            async for chunk in request.stream():
                content += chunk
                if len(content) > bytes_max:
                    return b""
    except TimeoutError:
        return b""
    return bytes(content)


def set_cookie(request: Request, response: Response, name: str, value: str, max_age: int | None) -> None:
    """Set a cookie that scripts cannot read and requests from other sites do not carry.

    With `max_age` None the browser keeps it until it is closed.
    """
    response.set_cookie(
        name, value, max_age=max_age, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


def own_path(target: str) -> str:
    """The target if it is a path of this console, otherwise `/`."""
    is_own = target.startswith("/") and not target.startswith("//") and "\\" not in target and target.isprintable()
    return target if is_own and target.isascii() else "/"


def here_of(request: Request) -> str:
    """Path and query of the request, unchanged; `/` when they would lead to another host, as `//name` does."""
    path, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
    return own_path(f"{path}?{query}" if query else path)


def sign_in_href(request: Request) -> str:
    """The link to the sign-in page, which returns here."""
    return f"/sign-in?next={quote(here_of(request), safe='')}"


def wants_json(request: Request) -> bool:
    """Whether the client asks for JSON."""
    if request.query_params.get("format") == "json":
        return True
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def json_response(answer: Mapping[str, Any], status_code: int, failure: Failure | None = None) -> Response:
    """An answer as JSON."""
    content = json.dumps(answer, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    headers = {"Retry-After": "1"} if failure is not None and failure.may_retry else None
    return Response(content, status_code, headers, "application/json")
