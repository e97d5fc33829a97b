"""The dead letters of a group as a file: all of them in the order of their queues, or chosen ones."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from console.actions.sending import stored_of
from console.bodies.body import inflated
from console.calls import Calls
from console.parts.formats import time_attribute
from console.parts.letters_file import FORMATS, end_of, head_of, line_of, row_of
from console.parts.message_row import DEAD_LETTER_PREFIX
from console.web.request_guard import DOWNLOAD_POLICY
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import timestamp_to_millis
from services.message_copy import origin_topic_of
from store.errors import InvalidArgumentError, StoreError, TopicNotFoundError

EXPORT_COUNT_MAX = 10_000
EXPORT_BYTES_MAX = 32 << 20
# The file ends, and says so, before the page's time is over.
EXPORT_END_SECONDS = 3.0
QUEUE_PAGE_COUNT = 256
CHOSEN_COUNT_MAX = 64


def export(calls: Calls, consumer_group: str, kind: str, ids: Sequence[str] | None = None) -> Response:
    """The file; its last line says so when dead letters are missing. InvalidArgumentError for what cannot be exported.

    Args:
        calls: of the page.
        consumer_group: whose dead letters.
        kind: `csv` or `jsonl`.
        ids: only these; None: all.
    """
    if kind not in FORMATS:
        raise InvalidArgumentError(f"as is {kind!r}: csv or jsonl is needed.", field="as")
    topic = DEAD_LETTER_PREFIX + consumer_group
    lines = [head_of(kind)]
    try:
        problem = _chosen(calls, topic, kind, lines, ids) if ids is not None else _all(calls, topic, kind, lines)
    except StoreError as error:
        if len(lines) == 1:
            raise
        problem = error.message
    if problem:
        lines.append(end_of(kind, problem))
    name = f"dead-letters{'-incomplete' if problem else ''}.{kind}"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": DOWNLOAD_POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    return Response(b"".join(lines), 200, headers, FORMATS[kind])


def _chosen(calls: Calls, topic: str, kind: str, lines: list[bytes], ids: Sequence[str]) -> str:
    if not 0 < len(ids) <= CHOSEN_COUNT_MAX:
        raise InvalidArgumentError(f"{len(ids)} dead letters are chosen: choose 1 to {CHOSEN_COUNT_MAX}.", field="id")
    size_bytes = 0
    for offset_msg_id in ids:
        letter = stored_of(calls, offset_msg_id, "")
        if letter.topic != topic:
            raise InvalidArgumentError(f"{offset_msg_id} is no dead letter of {topic!r}.", field="id")
        line = _line(letter, kind)
        size_bytes += len(line)
        if size_bytes > EXPORT_BYTES_MAX:
            return f"it has {len(lines) - 1} dead letters, which is the limit: `reput dlq export` has none"
        lines.append(line)
    return ""


def _all(calls: Calls, topic: str, kind: str, lines: list[bytes]) -> str:
    """Adds a line for each; why some are missing, or an empty text."""
    size_bytes = 0
    listed = calls.ask(calls.gateway.ListTopics, pb.ListTopicsRequest(topic=topic))
    missing = [each.broker_name for each in listed.shards if each.HasField("error")]
    for queue in (queue for found in listed.topics for queue in found.queues):
        position = queue.min_offset
        while position < queue.max_offset:
            if calls.context.time_remaining() < EXPORT_END_SECONDS:
                return "it took too long: `reput dlq export` has no such limit"
            request = pb.QueryMessageByOffsetRequest(
                topic=topic,
                queue_id=queue.queue_id,
                queue_offset=position,
                broker_name=queue.broker_name,
                max_messages=min(QUEUE_PAGE_COUNT, queue.max_offset - position),
            )
            try:
                page = calls.ask(calls.gateway.QueryMessageByOffset, request)
            except TopicNotFoundError:  # retention, or a drop, was faster
                break
            for letter in page.messages:
                line = _line(_whole(calls, letter), kind)
                size_bytes += len(line)
                if len(lines) > EXPORT_COUNT_MAX or size_bytes > EXPORT_BYTES_MAX:
                    return f"it has {len(lines) - 1} dead letters, which is the limit: `reput dlq export` has none"
                lines.append(line)
            position = max(position + 1, page.next_queue_offset)
    return f"the shards {', '.join(missing)} did not answer" if missing else ""


def _whole(calls: Calls, letter: Any) -> Any:
    return stored_of(calls, letter.offset_msg_id, letter.broker_name) if letter.body_omitted else letter


def _line(letter: Any, kind: str) -> bytes:
    body, _ = inflated(letter.body, letter.sys_flag)
    store_time = time_attribute(timestamp_to_millis(letter.store_time, "store_time"))
    return line_of(row_of(letter, body, store_time, origin_topic_of(letter)), kind)
