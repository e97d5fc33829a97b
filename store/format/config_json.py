"""What RocketMQ's JSON files in `config/` have in common, and how a file says that this project wrote it last.

fastjson writes numbers that are keys without quotes (`{0:12,1:7}`), which no JSON parser takes, and reads them with quotes as
well; here they are written with quotes. A file that this project wrote has a member `reput`. A broker drops it when it writes
the file, so a file without it was written by a broker. Source: `DataVersion` and `ConfigManager` of RocketMQ 5.3.3.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from store.errors import StoreCorruptedError

OWN_MEMBER = "reput"
_BARE_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")


def is_own(data: bytes) -> bool:
    """Whether this project wrote the file last.

    Raises:
        StoreCorruptedError: it is no JSON object; as the other functions.
    """
    return OWN_MEMBER in load_document(data)


def load_document(data: bytes) -> dict[str, Any]:
    """The object that a file holds."""
    text = data.decode(errors="replace")
    try:
        try:
            document = json.loads(text)
        except ValueError:
            document = json.loads(_BARE_KEY.sub(r'\1"\2"\3', text))
    except (ValueError, RecursionError) as error:
        raise StoreCorruptedError(f"a file of config/ cannot be read: {error}", file="config", offset=0) from error
    if not isinstance(document, dict):
        raise StoreCorruptedError("a file of config/ is no JSON object", file="config", offset=0)
    return document


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
