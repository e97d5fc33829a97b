"""Messages as a file for people and programs: a row of CSV or a line of JSON for each, by the contract's names.

A body that is UTF-8 stands in `body` as text; any other in `body_base64`.
"""

import base64
import csv
import io
import json
from typing import Any

COLUMNS = (
    *("offset_msg_id", "store_time", "topic", "origin_topic", "queue_id", "queue_offset", "broker_name", "unique_key"),
    *("tags", "keys", "reconsume_times", "properties", "body", "body_base64"),
)
FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
# A spreadsheet takes a cell that begins so as a formula.
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def row_of(message: Any, body: bytes, store_time: str, origin_topic: str) -> dict[str, Any]:
    """The row of a message.

    Args:
        message: a StoredMessage, or a `reput_client.Message`.
        body: inflated.
        store_time: ISO 8601.
        origin_topic: where a dead letter comes from; may be empty.
    """
    row: dict[str, Any] = {
        "offset_msg_id": message.offset_msg_id,
        "store_time": store_time,
        "topic": message.topic,
        "origin_topic": origin_topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "broker_name": message.broker_name,
        "unique_key": message.unique_key,
        "tags": message.tags,
        "keys": list(message.keys),
        "reconsume_times": message.reconsume_times,
        "properties": dict(sorted(message.properties.items())),
    }
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(body).decode()
    return row


def line_of(row: dict[str, Any], kind: str) -> bytes:
    """A row as a line of the file, with its end."""
    if kind == "jsonl":
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    values = {**row, "keys": " ".join(row["keys"]), "properties": json.dumps(row["properties"], ensure_ascii=False)}
    return _csv_line([_cell(values.get(name, "")) for name in COLUMNS])


def head_of(kind: str) -> bytes:
    """What the file begins with."""
    return _csv_line(COLUMNS) if kind == "csv" else b""


def end_of(kind: str, problem: str) -> bytes:
    """The last line of a file that lacks rows."""
    if kind == "jsonl":
        return json.dumps({"incomplete": problem}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    return _csv_line([f"# incomplete: {problem}"])


def _cell(value: Any) -> str:
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA_BEGINS) else text


def _csv_line(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")
