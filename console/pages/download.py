"""A message's body as a file to save; the browser must not render or execute it."""

from starlette.responses import Response

from console.bodies.body import inflated
from console.calls import Calls
from console.pages.message import read_message
from console.question import Question
from console.web.request_guard import DOWNLOAD_POLICY


def download(calls: Calls, question: Question) -> Response:
    """The body, inflated if possible; with `stored=1` the stored bytes."""
    message = read_message(calls, question)
    content = message.body if question.text("stored") else inflated(message.body, message.sys_flag)[0]
    headers = {
        "Content-Disposition": f'attachment; filename="{_safe(message.offset_msg_id)}.body"',
        "Content-Security-Policy": DOWNLOAD_POLICY,
    }
    return Response(content, 200, headers, "application/octet-stream")


def _safe(offset_msg_id: str) -> str:
    return "".join(character for character in offset_msg_id if character.isascii() and character.isalnum())[:64]
