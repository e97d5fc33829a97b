"""The manifest of a shard in the cold tier: every log file that is there, whole.

    {"crc32": N, "cold": {"version": 1, "segments": [...], "rising": {...}}}

N is the CRC-32 of `cold` as compact JSON with sorted keys.
It is written after the objects that it names, so a log file is in the tier whole or not at all.
`rising` names, by the first offset of a log file, the places in its `queues` of those whose store times rise. It stands beside
the segments so that an earlier version reads the manifest; where it is missing, times may fall.
"""

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from store.cold.objects import damaged

VERSION = 1


@dataclass(frozen=True, slots=True)
class ColdQueue:
    """The messages of one queue in a log file: rows of its units, by queue offset.

    Attributes:
        begin_time_millis: store time of the first message; not the least where times fall.
        end_time_millis: of the last.
        times_rise: whether no message has a lower store time than one before it; False: not known.
    """

    topic: str
    queue_id: int
    first_row: int
    row_count: int
    first_queue_offset: int
    last_queue_offset: int
    begin_time_millis: int
    end_time_millis: int
    times_rise: bool = False

    @property
    def is_dense(self) -> bool:
        """Whether every queue offset between the first and the last has a row."""
        return self.last_queue_offset - self.first_queue_offset + 1 == self.row_count


@dataclass(frozen=True, slots=True)
class ColdSegment:
    """One log file in the tier. Offsets are commit-log offsets in bytes, times milliseconds since 1970 UTC.

    Attributes:
        first_offset: its first byte, and its name.
        records_end_offset: the first byte behind its last record.
        end_offset: the first byte behind the file.
        record_count: records, and so rows of its positions.
        unit_count: records that have a place in a queue.
        key_count: rows of its keys.
        begin_time_millis: the earliest store time.
        end_time_millis: the latest.
        head_crc32: CRC-32 of the file's first 4 KiB, which tells one log from another.
        fences_position: where they begin in the index object (bytes).
        fences_size_bytes: their size.
        fences_crc32: their CRC-32.
        topics: of its records.
        queues: by topic and queue id.
    """

    first_offset: int
    records_end_offset: int
    end_offset: int
    record_count: int
    unit_count: int
    key_count: int
    begin_time_millis: int
    end_time_millis: int
    head_crc32: int
    fences_position: int
    fences_size_bytes: int
    fences_crc32: int
    topics: tuple[str, ...]
    queues: tuple[ColdQueue, ...]

    def has_topic(self, topic: str) -> bool:
        """Whether a record has this topic."""
        return topic in self.topics


def encode_manifest(segments: list[ColdSegment]) -> bytes:
    """The object's bytes."""
    rows = [asdict(segment) for segment in segments]
    rising: dict[str, list[int]] = {}
    for row in rows:
        told = [queue.pop("times_rise") for queue in row["queues"]]
        rising[str(row["first_offset"])] = [at for at, rises in enumerate(told) if rises]
    fields = {"version": VERSION, "segments": rows, "rising": rising}
    return json.dumps({"crc32": zlib.crc32(_compact(fields)), "cold": fields}, ensure_ascii=False).encode()


def decode_manifest(data: bytes, name: str) -> list[ColdSegment]:
    """The log files, by offset; StoreCorruptedError when it is damaged or of a later version."""
    try:
        document = json.loads(data)
        fields = document["cold"]
        if zlib.crc32(_compact(fields)) != document["crc32"]:
            raise damaged(name, 0, "its CRC-32 does not match")
        if fields["version"] != VERSION:
            raise damaged(name, 0, f"its version is {fields['version']}, not {VERSION}")
        rising = fields.get("rising", {})
        return [
            ColdSegment(
                **{
                    **segment,
                    "topics": tuple(segment["topics"]),
                    "queues": tuple(
                        ColdQueue(**queue, times_rise=at in rising.get(str(segment["first_offset"]), ()))
                        for at, queue in enumerate(segment["queues"])
                    ),
                }
            )
            for segment in fields["segments"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(name, 0, f"it is no manifest ({error})") from error


def _compact(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
