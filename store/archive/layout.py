"""Paths inside an archive; strings only.

    archive.json                                                what this directory is
    segments/BROKER/FIRST.json                                  manifest of one log file, valid once it is here
    segments/BROKER/topics.json                                 the store's topic table (`topic_table.py`)
    segments/BROKER/run.json                                    only in an object store: the last run that wrote here
    messages/topic=TOPIC/date=YYYY-MM-DD/BROKER-FIRST-END.parquet   its messages, of one topic and day of storing (UTC)
    keys/BROKER/FIRST-END.idx                                   places of its records and their keys
    tails/BROKER/FIRST-END.bin                                  its bytes behind the last record, if they are many

FIRST and END are the log file's commit-log offsets, 20 digits; END is where its records end, so a log file that
is archived while it grows and again later has two names. Partition folders are named as in Hive; all engines read these.
"""

import hashlib
import posixpath
import re
from datetime import datetime, timedelta

FORMAT_NAME = "reput-archive"
FORMAT_VERSION = 1

# Names of folders have at most 255 bytes on Linux; this leaves room for `topic=` and the digest of a shortened name.
NAME_BYTES_MAX = 240
_SEGMENT_NAME = re.compile(r"[0-9]{20}\.json")
# The characters that Hive and Spark escape in the name of a partition; others beyond ASCII stay.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(32)))
_EPOCH = datetime(1970, 1, 1)
_DAY_MILLIS = 86_400_000
# First and last day of the years 1 to 9999; a record may have any time.
_DAY_MIN, _DAY_MAX = -719_162, 2_932_896


def archive_file(root: str) -> str:
    """The file that says what the directory is."""
    return posixpath.join(root, "archive.json")


def segments_dir(root: str, broker_name: str = "") -> str:
    """Folder of a shard's manifests, or of all shards' folders."""
    return posixpath.join(root, "segments", escape(broker_name)) if broker_name else posixpath.join(root, "segments")


def segment_file(root: str, broker_name: str, first_offset: int) -> str:
    """The manifest of the log file that begins there."""
    return posixpath.join(segments_dir(root, broker_name), f"{first_offset:020d}.json")


def topics_file(root: str, broker_name: str) -> str:
    """The archived topic table of a shard."""
    return posixpath.join(segments_dir(root, broker_name), "topics.json")


def run_file(root: str, broker_name: str) -> str:
    """In an object store: the run that writes this shard's part of the archive; not part of the archive."""
    return posixpath.join(segments_dir(root, broker_name), "run.json")


def parse_segment_name(name: str) -> int | None:
    """The first offset in the name of a manifest; None for other names."""
    return int(name[:20]) if _SEGMENT_NAME.fullmatch(name) else None


def span_name(first_offset: int, end_offset: int) -> str:
    """FIRST-END."""
    return f"{first_offset:020d}-{end_offset:020d}"


def messages_dir(root: str) -> str:
    """Folder of all Parquet files."""
    return posixpath.join(root, "messages")


def messages_path(broker_name: str, first_offset: int, end_offset: int, topic: str, date: str) -> str:
    """The Parquet file of one topic and day, relative to the archive."""
    name = f"{escape(broker_name)}-{span_name(first_offset, end_offset)}.parquet"
    return posixpath.join("messages", f"topic={topic_folder(topic)}", f"date={date}", name)


def keys_path(broker_name: str, first_offset: int, end_offset: int) -> str:
    """The segment's index, relative to the archive."""
    return posixpath.join("keys", escape(broker_name), f"{span_name(first_offset, end_offset)}.idx")


def tail_path(broker_name: str, first_offset: int, end_offset: int) -> str:
    """The bytes behind the last record, relative to the archive."""
    return posixpath.join("tails", escape(broker_name), f"{span_name(first_offset, end_offset)}.bin")


def escape(text: str) -> str:
    """A name escaped for use as one folder, as in Hive: `%2F` for a slash; a lone surrogate becomes `%3F`."""
    text = text.encode("utf-8", "replace").decode()
    escaped = "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)
    if escaped.startswith("."):
        escaped = f"%2E{escaped[1:]}"  # so that the folder is not hidden, and `..` cannot leave the archive
    return escaped or "__HIVE_DEFAULT_PARTITION__"


def is_shortened(topic: str) -> bool:
    """Whether the folder's name cannot hold the whole topic: the topic is too long, empty, or has no UTF-8."""
    return (
        not topic or len(escape(topic).encode()) > NAME_BYTES_MAX or topic != topic.encode("utf-8", "replace").decode()
    )


def topic_folder(topic: str) -> str:
    """The folder's name behind `topic=`; for a shortened name its begin and a digest."""
    escaped = escape(topic)
    if not is_shortened(topic):
        return escaped
    begin = escaped.encode()[: NAME_BYTES_MAX - 20].decode("utf-8", "ignore")
    return f"{begin}~{hashlib.sha256(topic.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def date_of(time_millis: int) -> str:
    """The day of a time since 1970 UTC, `YYYY-MM-DD`; the nearest of the years 1 to 9999 for a time outside."""
    day = min(max(time_millis // _DAY_MILLIS, _DAY_MIN), _DAY_MAX)
    return (_EPOCH + timedelta(days=day)).strftime("%Y-%m-%d").rjust(10, "0")
