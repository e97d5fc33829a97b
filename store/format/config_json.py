"""What RocketMQ's JSON files in `config/` have in common, and how a file says that this project wrote it last.

fastjson writes numbers that are keys without quotes (`{0:12,1:7}`), which no JSON parser takes, and reads them with quotes as
well; here they are written with quotes. A file that this project wrote has a member `reput`. A broker drops it when it writes
the file, so a file without it was written by a broker. Source: `DataVersion` and `ConfigManager` of RocketMQ 5.3.3.

A file is sound when it is UTF-8, one JSON object and nothing behind it, and when its table is an object as well. The reader of
files that may be damaged is `store/files/config_file.py`.
"""

import io
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from store.errors import StoreCorruptedError

OWN_MEMBER = "reput"
# A text, which is left as it is, or a key that is a number without quotes. A text of a damaged file may have no end: it
# is taken to the end of the file and never gone back over, so that no character takes memory or a second pass.
_TEXT_OR_BARE_KEY = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{,]\s*(-?\d+)\s*:', re.DOTALL)
# The members of each file that hold its rows; a file may be without.
TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "topics.json": ("topicConfigTable",),
        "topicQueueMapping.json": ("topicQueueMappingInfoMap",),
        "subscriptionGroup.json": ("subscriptionGroupTable",),
        "consumerOffset.json": ("offsetTable",),
        "lmqConsumerOffset.json": ("offsetTable", "lmqOffsetTable"),
        "consumerFilter.json": ("filterDataByTopic",),
        "consumerOrderInfo.json": ("table",),
        "messageRequestMode.json": ("messageRequestModeMap",),
        "delayOffset.json": ("offsetTable",),
        "timermetrics": ("timingCount",),
        "transactionMetrics": ("transactionCount",),
    }
)


def is_own(data: bytes) -> bool:
    """Whether this project wrote the file last.

    Raises:
        StoreCorruptedError: it is no JSON object; as the other functions.
    """
    return OWN_MEMBER in load_document(data)


def load_document(data: bytes, name: str = "config") -> dict[str, Any]:
    """The object that a file holds.

    Args:
        data: the bytes of the file.
        name: of the file, for the error; its table must be an object, if the file has one.

    Raises:
        StoreCorruptedError: the file is damaged.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _damaged(name, f"it is no UTF-8 ({error.reason})", error.start) from error
    try:
        document = _loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"it is no JSON ({error})", getattr(error, "pos", 0)) from error
    return _with_table(document, name)


def salvage_document(data: bytes, name: str = "config") -> dict[str, Any]:
    """What can still be read of a damaged file: the object at its begin; what is no UTF-8 becomes U+FFFD.

    Raises:
        StoreCorruptedError: as `load_document`.
    """
    text = data.decode("utf-8-sig", errors="replace").lstrip()
    try:
        try:
            document, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:
            document, _ = json.JSONDecoder().raw_decode(with_quoted_keys(text))
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"it is no JSON ({error})", 0) from error
    return _with_table(document, name)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        quoted = with_quoted_keys(text)
        if quoted == text:
            raise
    return json.loads(quoted)


def with_quoted_keys(text: str) -> str:
    """The text with quotes around numbers that are keys.

    It is written piece by piece: a list of the pieces, which `re.sub` makes, takes up to 26 times the text.
    """
    written = io.StringIO()
    done = 0
    for found in _TEXT_OR_BARE_KEY.finditer(text):
        if found[1]:
            first, last = found.span(1)
            written.write(f'{text[done:first]}"{found[1]}"')
            done = last
    written.write(text[done:])
    return written.getvalue()


def _with_table(document: Any, name: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise _damaged(name, "it is no JSON object", 0)
    for table in TABLES.get(name, ()):
        if not isinstance(document.get(table, {}), dict):
            raise _damaged(name, f"{table} is no object", 0)
    return document


def _damaged(name: str, why: str, offset: int) -> StoreCorruptedError:
    file = name if name == "config" else f"config/{name}"
    shown = "a file of config/" if name == "config" else file
    return StoreCorruptedError(f"{shown} cannot be read: {why}", file=file, offset=offset)


def next_document(previous: bytes | None, time_millis: int) -> dict[str, Any]:
    """The object of the file before, with its next `dataVersion` and the member that says who wrote it (ms since 1970)."""
    document = load_document(previous) if previous else {}
    version = document.get("dataVersion")
    counter = version.get("counter") if isinstance(version, dict) else 0
    document["dataVersion"] = (dict(version) if isinstance(version, dict) else {"stateVersion": 0}) | {
        "counter": (counter if isinstance(counter, int) else 0) + 1,
        "timestamp": time_millis,
    }
    document[OWN_MEMBER] = {"writtenMillis": time_millis}
    return document


def dump_document(document: Mapping[str, Any]) -> bytes:
    """The bytes of a file."""
    return json.dumps(document, indent="\t", separators=(",", ":"), ensure_ascii=False).encode(
        errors="backslashreplace"
    )
