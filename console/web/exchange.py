"""Helpers for a request and its answer: forms, cookies, local links, the choice between JSON and a page, and a failure as a
page shows it: the reason by name, the gateway's error text, and a hint.

A misspelled parameter is refused, since the page would answer another question without it.
"""

import asyncio
import difflib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from console.words import Words
from services.status import reason_of, to_status
from store.errors import InvalidArgumentError, StoreError

# By gRPC's code, as google.rpc.Code maps to HTTP.
HTTP_STATUS_BY_CODE = {
    3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 409, 11: 400, 12: 501, 13: 500, 14: 503, 15: 500, 16: 401,
}  # fmt: skip
_RETRY_STATUSES = (429, 503, 504)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure.

    Attributes:
        reason: as in ErrorInfo.
        title: in the reader's language.
        message: the gateway's error text.
        explanation: the same in the reader's language, less detailed; empty in English.
        hint: what to do, in the reader's language; may be empty.
        status_code: the HTTP status.
    """

    reason: str
    title: str
    message: str
    hint: str
    status_code: int
    explanation: str = ""

    @property
    def may_retry(self) -> bool:
        """Whether the same request may work in a moment."""
        return self.status_code in _RETRY_STATUSES


def failure_of(error: StoreError, words: Words) -> Failure:
    """The failure for an error, by its gRPC code."""
    status_code = HTTP_STATUS_BY_CODE.get(to_status(error).code, 500)
    title, hint = {
        400: (words("The request is not valid"), ""),
        401: (words("Sign in"), ""),
        403: (words("Not allowed"), words("A client with another role may see it.")),
        404: (words("Not found"), ""),
        429: (words("Too busy"), words("Try again in a moment.")),
        503: (
            words("The store does not answer"),
            words("Try again in a moment; the page Store shows which service is down."),
        ),
        504: (words("It took too long"), words("Ask for less, or try again.")),
    }.get(status_code, (words("It failed"), ""))
    reason = reason_of(type(error))
    return Failure(reason, title, error.message, hint, status_code, words.reason(reason))


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


# Those that the script and the links add; they are no part of the description.
OF_THE_SCRIPT = {
    "/": {"part", "have", "lang"},
    "/explain": {"part", "have", "lang"},
    "/groups": {"part", "whole"},
    "/replicas": {"part"},
    "/topics": {"part", "whole"},
    "/topics/{topic}": {"part", "tag", "whole"},
    "/store": {"part"},
}
# What the contract calls a parameter that has another name here.
NAMES_OF_THE_CONTRACT = {
    "begin_time": "begin",
    "body_hex": "body",
    "body_text": "body",
    "broker_name": "broker",
    "end_time": "end",
    "name": "q",
    "name_contains": "q",
    "offset_msg_id": "id",
    "page_size": "size",
    "page_token": "page",
    "query": "q",
    "queue_id": "queue",
    "queue_offset": "offset",
    "tags": "tag",
    "text": "body",
    "unique_key": "unique",
}


def parameters_by_path(description: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """The names of the parameters of each path.

    Args:
        description: the OpenAPI description of all pages.
    """
    return {
        path: frozenset(each["name"] for each in page["get"]["parameters"] if each["in"] == "query")
        | OF_THE_SCRIPT.get(path, set())
        | {"format"}
        for path, page in description["paths"].items()
    }


def check_parameters(given: Collection[str], known: frozenset[str]) -> None:
    """InvalidArgumentError for the first name that the page does not take; it says which one may be meant."""
    for name in given:
        if name in known:
            continue
        meant = NAMES_OF_THE_CONTRACT.get(name, "")
        if meant not in known:
            meant = next(iter(difflib.get_close_matches(name, sorted(known), 1)), "")
        taken = ", ".join(sorted(known - {"format", "part", "have", "lang", "whole"}))
        raise InvalidArgumentError(
            f"This page takes no parameter {name!r}{f': {meant} is meant?' if meant else '.'} "
            + (f"It takes {taken}." if taken else "It takes none."),
            field=name,
        )
