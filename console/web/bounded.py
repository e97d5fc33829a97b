"""A time limit for each answer.

web_server.py closes the connection of a browser that does not read its answer.
"""

import asyncio
from typing import Any

import structlog

from console.calls import PAGE_SECONDS
from console.web.live import STREAM_SECONDS_MAX
from console.web.request_guard import Asgi, Scope

# A page's own time and time for the browser to read it.
ANSWER_SECONDS_MAX = PAGE_SECONDS + 15.0
TAIL_SECONDS_MAX = STREAM_SECONDS_MAX + 15.0

_log = structlog.get_logger("reput.console")


def bounded(application: Asgi) -> Asgi:
    """The application with a time limit for each answer."""

    async def run(scope: Scope, receive: Any, send: Any) -> None:
        is_tail = scope["path"].startswith("/topics/") and scope["path"].endswith("/tail")
        try:
            async with asyncio.timeout(TAIL_SECONDS_MAX if is_tail else ANSWER_SECONDS_MAX):
                await application(scope, receive, send)
        except TimeoutError:
            _log.info("console.not_taken", path=scope["path"])  # the web server closes the connection

    return run
