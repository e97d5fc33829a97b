"""A message's body as a file: to be saved, never to be shown or run by the browser that fetches it."""

from starlette.responses import Response

from gateway.console.body import inflated
from gateway.console.calls import Calls
from gateway.console.guard import DOWNLOAD_POLICY
from gateway.console.pages.message import read_message
from gateway.console.question import Question


def download(calls: Calls, question: Question) -> Response:
    """The body, inflated where it can be; with `stored=1` as it is stored."""
    message = read_message(calls, question)
    content = message.body if question.text("stored") else inflated(message.body, message.sys_flag)[0]
    headers = {
        "Content-Disposition": f'attachment; filename="{_safe(message.offset_msg_id)}.body"',
        "Content-Security-Policy": DOWNLOAD_POLICY,
    }
    return Response(content, 200, headers, "application/octet-stream")


def _safe(offset_msg_id: str) -> str:
    return "".join(character for character in offset_msg_id if character.isascii() and character.isalnum())[:64]
