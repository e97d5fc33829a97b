"""The options of format("commitlog"); upper and lower case of names are equal, as in Spark.

path                    the store root: the directory that contains commitlog/, or its URI    required
                        in an object store or HDFS, such as s3://BUCKET/STORE
columns                 names, separated by commas                                            all
includeBody             false leaves the column body out                                      true
raw                     true adds the column raw: the whole record                            false
verify                  none: lengths. structure: lengths, and each record states its own     structure
                        offset. crc: also the body's CRC, and __CRC32# where there is one
corrupt                 fail: an error that names the byte. skip: go on at the next sound     fail
                        record. report: also a row for each stretch left out, with the
                        reason in column damage
topics, queueIds        only these, separated by commas                                       all
startingPhysicalOffset  records that start at this byte or after it                           the log's first
endingPhysicalOffset    records that start before this byte                                   the log's end
startingTimestamp       records stored at this time or later; milliseconds since 1970 UTC,    any
                        or ISO 8601
endingTimestamp         records stored before this time                                       any
splitBytes              approximate bytes of the log for one task; k, m, g                    256m
batchRows               rows in an Arrow batch, at most                                       8192
failOnDataLoss          false goes on when retention has deleted a file since the scan was    true
                        planned
pushdown                true hands a `where` to the scan: only for a DataFrame that serves    false
                        one query
delayLevels             the store's list of delay levels, if it has its own: for tagsCode       RocketMQ's
boundaryCache           directory or URI where record boundaries of complete files are kept,  the user's cache
                        or off
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pipeline.object_root import ObjectRoot
from services.object_uri import check_uri, is_uri
from store.errors import InvalidArgumentError
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS, parse_delay_levels

SPLIT_BYTES = 256 << 20
SPLIT_BYTES_MIN = 1 << 10
BATCH_ROWS = 8192
BATCH_ROWS_MAX = 1 << 17  # as many rows of small records as 16 MiB hold
OFFSET_MAX = (1 << 63) - 1
_SIZE = re.compile(r"([0-9]+)\s*([kmg]?)b?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}
# Options of the other format: they get an error text of their own, not that of a misspelt name.
ROCKETMQ_OPTIONS = frozenset(
    name.lower()
    for name in (
        "endpoint", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "maxOffsetsPerTrigger",
        "maxBytesPerTrigger", "minPartitions", "tags", "includeHeaders", "view",
    )
)  # fmt: skip

_Word = TypeVar("_Word", bound=StrEnum)


class OptionError(ValueError):
    """An option is unknown, missing or unusable; the message names it."""


class Verify(StrEnum):
    """How much of each record is checked."""

    NONE = "none"
    STRUCTURE = "structure"
    CRC = "crc"


class Corrupt(StrEnum):
    """What the scan does at bytes that are not a record."""

    FAIL = "fail"
    SKIP = "skip"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The checked options of a scan; see the module's table. Times are in milliseconds since 1970 UTC."""

    root: Path | ObjectRoot
    columns: tuple[str, ...] | None = None
    include_body: bool = True
    with_raw: bool = False
    verify: Verify = Verify.STRUCTURE
    corrupt: Corrupt = Corrupt.FAIL
    starting_offset: int = 0
    ending_offset: int = OFFSET_MAX
    starting_time_millis: int | None = None
    ending_time_millis: int | None = None
    split_bytes: int = SPLIT_BYTES
    batch_rows: int = BATCH_ROWS
    fail_on_data_loss: bool = True
    with_pushdown: bool = False
    topics: tuple[str, ...] | None = None
    queue_ids: tuple[int, ...] | None = None
    boundary_cache: Path | ObjectRoot | None = None
    delay_levels_millis: tuple[int, ...] = DELAY_LEVELS_MILLIS


def parse_options(options: Mapping[str, str]) -> ScanOptions:
    """The options that Spark hands over, checked.

    Raises:
        OptionError: a name is unknown, `path` is missing, or a value is unusable.
    """
    given = {name.lower(): value for name, value in options.items()}
    fields: dict[str, Any] = {}
    for name, (field, parse) in _PARSERS.items():
        text = given.pop(name.lower(), None)
        if text is not None:
            try:
                fields[field] = parse(text)
            except ValueError as error:
                raise OptionError(f"Option {name}={text!r}: {error}.") from None
    others = sorted(given.keys() & ROCKETMQ_OPTIONS)
    if others:
        raise OptionError(
            f"Option {others[0]!r} belongs to format('rocketmq'); format('commitlog') reads the files of option path."
        )
    if given:
        known = ", ".join(_PARSERS)
        raise OptionError(f"format('commitlog') has no option {sorted(given)[0]!r}: use one of {known}.")
    if "root" not in fields:
        raise OptionError("format('commitlog') needs a path: .load('STORE'), the directory that contains commitlog/.")
    fields.setdefault("boundary_cache", default_cache_directory())
    result = ScanOptions(**fields)
    if result.starting_offset > result.ending_offset:
        raise OptionError(
            f"Option startingPhysicalOffset={result.starting_offset} lies behind "
            f"endingPhysicalOffset={result.ending_offset}: give a start at or before the end."
        )
    return result


def default_cache_directory() -> Path:
    """Where the pipeline keeps boundaries of log files: in the user's cache, never in the store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "reput" / "boundaries"


def _path(text: str, option: str = "path") -> Path | ObjectRoot:
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ValueError("give a local path that every executor sees")
        text = unquote(parts.path)
    elif is_uri(text):
        try:
            check_uri(text, option)
        except InvalidArgumentError as error:
            raise ValueError(error.message.rstrip(".")) from error
        return ObjectRoot(text, option)
    if not text:
        raise ValueError("it is empty")
    return Path(text).absolute()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("it names no column")
    return names


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise ValueError("it names no topic")
    return topics


def _queue_ids(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\s*-?[0-9]{1,10}\s*(,\s*-?[0-9]{1,10}\s*)*", text):
        raise ValueError("give numbers separated by commas")
    return tuple(map(int, text.split(",")))


def _bool(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.strip().lower() == "true"


def _word(words: type[_Word]) -> Callable[[str], _Word]:
    def parse(text: str) -> _Word:
        try:
            return words(text.strip().lower())
        except ValueError:
            raise ValueError(f"use one of {', '.join(words)}") from None

    return parse


def _offset(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text.strip()) or int(text) > OFFSET_MAX:
        raise ValueError("give a commit-log offset in bytes, 0 or more")
    return int(text)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 UTC, from a number or from ISO 8601 (without a zone: UTC); ValueError for other texts."""
    if re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
        return int(text)
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("give milliseconds since 1970 UTC or an ISO time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    # A bound between two milliseconds is rounded up: the same records are at or after it.
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return -(-(delta.days * 86_400_000_000 + delta.seconds * 1_000_000 + delta.microseconds) // 1000)


def parse_size(text: str) -> int:
    """Bytes: `1048576`, `64m`, `1g`; ValueError for other texts."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("give a size in bytes, such as 64m")
    return int(match[1]) << _SHIFTS[match[2].lower()]


def _split_bytes(text: str) -> int:
    size = parse_size(text)
    if size < SPLIT_BYTES_MIN:
        raise ValueError(f"give at least {SPLIT_BYTES_MIN} bytes")
    return size


def _rows(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not 1 <= int(text) <= BATCH_ROWS_MAX:
        raise ValueError(f"give a number from 1 to {BATCH_ROWS_MAX}")
    return int(text)


def _delay_levels(text: str) -> tuple[int, ...]:
    try:
        return parse_delay_levels(text)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from error


def _cache(text: str) -> Path | ObjectRoot | None:
    if text.strip().lower() == "off":
        return None
    return _path(text, "boundaryCache") if is_uri(text) else Path(text).expanduser().absolute()


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("root", _path),
    "columns": ("columns", _names),
    "includeBody": ("include_body", _bool),
    "raw": ("with_raw", _bool),
    "verify": ("verify", _word(Verify)),
    "corrupt": ("corrupt", _word(Corrupt)),
    "topics": ("topics", _topics),
    "queueIds": ("queue_ids", _queue_ids),
    "startingPhysicalOffset": ("starting_offset", _offset),
    "endingPhysicalOffset": ("ending_offset", _offset),
    "startingTimestamp": ("starting_time_millis", parse_time),
    "endingTimestamp": ("ending_time_millis", parse_time),
    "splitBytes": ("split_bytes", _split_bytes),
    "batchRows": ("batch_rows", _rows),
    "failOnDataLoss": ("fail_on_data_loss", _bool),
    "pushdown": ("with_pushdown", _bool),
    "boundaryCache": ("boundary_cache", _cache),
    "delayLevels": ("delay_levels_millis", _delay_levels),
}
