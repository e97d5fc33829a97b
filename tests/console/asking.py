"""Asks a console's application as a browser would, without a socket."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from console.pages.reports import Reports
from console.web.app import ConsoleApp, ConsoleSource
from console.web.request_guard import RequestGuard
from console.web.sign_in import ConsoleGateway, NoSignIn, SignIn
from gateway.groups.asked_members import Way
from gateway.ports.shards import FanOut, Shards
from gateway.queries.page import PageTokens
from gateway.reput.servicer import GatewayServicer
from services.serving.calls.blocked_caller import Offer
from services.status import to_status
from store.errors import ServiceUnavailableError

HOST = "localhost:8080"
OWN_PAGE = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
NO_OFFERS: dict[str, Offer] = dict.fromkeys(
    ("AppendMessages", "RecallMessage", "EndTransaction"),
    lambda _request, caller: caller.fail(to_status(ServiceUnavailableError("this gateway of the test has no log"))),
)
VOID_TAGS = {"meta", "link", "input", "br", "img", "hr"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Asks one application; cookies are given by hand.

    Args:
        app: the console.
    """

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, b"", headers)

    def get_json(self, path: str) -> Answer:
        return self.get(path, accept="application/json")

    def post(self, path: str, form: bytes, **headers: str) -> Answer:
        return self.ask("POST", path, form, {**OWN_PAGE, **headers})

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return asyncio.run(self._ask(method, path, body, {"host": HOST, **headers}))

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        raw_path, _, query = path.partition("?")
        from urllib.parse import unquote

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        messages: list[dict[str, Any]] = []
        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        await self._app.application(scope, receive, send)
        head = messages[0]
        found = {name.decode().lower(): value.decode() for name, value in head["headers"]}
        return Answer(head["status"], found, b"".join(message.get("body", b"") for message in messages[1:]))


def console_over(
    memories: Sequence[Any],
    fan_out: FanOut,
    *,
    sign_in: SignIn | None = None,
    reports: Reports | None = None,
    ways: Sequence[Way] = (),
    offers: Mapping[str, Offer] | None = None,
    **parts: Any,
) -> ConsoleApp:
    """A console over shards in memory, called broker-a, broker-b, ...

    Args:
        memories: the shards.
        fan_out: asks them.
        sign_in: checks tokens; None: none is needed.
        reports: of the pipeline.
        ways: lead to members of their groups.
        offers: the methods that answer later; without them these fail.
        parts: of the ConsoleSource.
    """
    shards = Shards([memory.shard(f"broker-{'abcdef'[number]}") for number, memory in enumerate(memories)], fan_out)
    servicer = GatewayServicer(shards, PageTokens("secret"))
    servicer.asked_members.ways += ways
    gateway = ConsoleGateway(servicer, NO_OFFERS | dict(offers or {}))
    return ConsoleApp(ConsoleSource(gateway, sign_in or NoSignIn(), RequestGuard(), reports or Reports(None), **parts))


class Tags(HTMLParser):
    """Every start tag with its attributes, every text; complains about a page that is not well nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())
