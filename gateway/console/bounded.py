"""An end to each answer: none is made for ever, whatever its page waits for.

Who does not take an answer that is made loses the connection in web_server.py.
"""

import asyncio
from typing import Any

import structlog

from gateway.console.calls import PAGE_SECONDS
from gateway.console.guard import Asgi, Scope
from gateway.console.live import STREAM_SECONDS_MAX

# A page's own time and some for the browser to take it.
ANSWER_SECONDS_MAX = PAGE_SECONDS + 15.0
TAIL_SECONDS_MAX = STREAM_SECONDS_MAX + 15.0

_log = structlog.get_logger("reput.console")


def bounded(application: Asgi) -> Asgi:
    """The application, each answer with an end."""

    async def run(scope: Scope, receive: Any, send: Any) -> None:
        is_tail = scope["path"].startswith("/topics/") and scope["path"].endswith("/tail")
        try:
            async with asyncio.timeout(TAIL_SECONDS_MAX if is_tail else ANSWER_SECONDS_MAX):
                await application(scope, receive, send)
        except TimeoutError:
            _log.info("console.not_taken", path=scope["path"])  # the web server closes the connection

    return run
