"""The job `ship-cold`: sealed log files into an object store, each once, with the pages that answer point queries there.

It puts the bytes of a log file, then its index, then the manifest that names both. A killed run leaves objects that no
manifest names; the next run writes the same names with the same bytes, because a sealed log file never changes. It reads the
store and removes nothing, here or there.
"""

import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.archive.segment import damaged_records, log_path, map_file, walk_log_file
from pipeline.job import JobReport, Progress, silent
from pipeline.object_root import ObjectRoot
from pipeline.scan.log_files import readable_log
from store.cold.manifest import ColdQueue, ColdSegment, decode_manifest, encode_manifest
from store.cold.objects import index_name, log_name, manifest_name
from store.cold.pages import KEY, POSITION, UNIT, encode_index
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import NO_UNIT_BITS
from store.errors import InvalidArgumentError, StoreCorruptedError, UnsupportedStoreError
from store.files.file_system import RealFileSystem

HEAD_BYTES = 4096


def run(
    store: Path | str,
    out: str,
    *,
    broker_name: str = "broker-a",
    dry_run: bool = False,
    progress: Progress = silent,
) -> JobReport:
    """Ships the sealed files of a log that are not there yet.

    Args:
        store: the store root; services may write to it meanwhile: see `readable_log`.
        out: the tier, `s3://BUCKET/PREFIX` or another URI of pyarrow's; several shards may share it.
        broker_name: the name of the shard whose log this is.
        dry_run: check and report what would be shipped, write nothing.
        progress: called with the count of log files done.

    Returns:
        Counts, and a finding for each log file that cannot be shipped and for each record that was damaged before.

    Raises:
        UnsupportedStoreError: `store` has no commitlog/, or the tier has another log under this name.
        StoreCorruptedError: the manifest in the tier is damaged.
        InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
        OSError: the disk cannot be read.
    """
    root = ObjectRoot.of(out)
    if not isinstance(root, ObjectRoot):
        raise InvalidArgumentError(f"{out} is a path: name s3://BUCKET/PREFIX, or file:///DIRECTORY", field="out")
    report = JobReport.begin("ship-cold", is_dry_run=dry_run)
    store = Path(store)
    log = readable_log(RealFileSystem(), store)
    report.notes += log.notes()
    offsets = log.first_offsets
    known = _shipped(root, broker_name)
    _refuse_other_log(store, root, broker_name, offsets, known)
    todo = [offset for offset in offsets if offset not in known]
    counts = {"log_file_count": len(offsets), "known_file_count": len(offsets) - len(todo)}
    counts |= {"shipped_file_count": 0, "record_count": 0, "log_bytes": 0, "index_bytes": 0}
    progress("ship-cold", 0, len(todo))
    for done, offset in enumerate(todo, 1):
        path = log_path(store, offset)
        try:
            log_file = map_file(path)
            columns, end, is_sealed = walk_log_file(log_file, offset, path, log.end_offset)
        except FileNotFoundError:
            report.findings.append(_not_shipped(offset, f"{path} does not exist any more: retention removed it"))
            continue
        except StoreCorruptedError as error:
            report.findings.append(_not_shipped(offset, error.message))
            continue
        if not is_sealed or not len(columns):
            report.notes.append(f"{path} is still written to")
            continue
        segment, index = make_segment(log_file, columns, offset, end)
        for damaged in damaged_records(log_file[:end], offset):
            what = "a CRC of the record does not match; it is shipped unchanged"
            report.findings.append({"kind": "record_damaged", "commit_log_offset": damaged, "what": what})
        if not dry_run:
            # Not from the path: retention may have removed the file since it was mapped.
            root.put_bytes(log_name(broker_name, offset), log_file)
            root.put_bytes(index_name(broker_name, offset), index)
            # Read again: another run may have shipped meanwhile.
            named = {**_shipped(root, broker_name), offset: segment}
            root.put_bytes(manifest_name(broker_name), encode_manifest([named[at] for at in sorted(named)]))
        counts["shipped_file_count"] += 1
        counts["record_count"] += len(columns)
        counts["log_bytes"] += len(log_file)
        counts["index_bytes"] += len(index)
        progress("ship-cold", done, len(todo))
    report.counts |= counts
    _note_holes(report, _shipped(root, broker_name))
    report.outputs["cold"] = str(root)
    return report.end()


def make_segment(
    log_file: memoryview, columns: DispatchColumns, first_offset: int, end: int
) -> tuple[ColdSegment, bytes]:
    """The row of the manifest for a sealed log file, and its index object.

    Args:
        log_file: its bytes.
        columns: its records.
        first_offset: its first commit-log offset (bytes).
        end: where its records end (bytes).
    """
    places = np.empty(len(columns), dtype=POSITION)
    places["position"] = columns.commit_log_offsets - first_offset
    places["size_bytes"] = columns.record_sizes_bytes
    places["crc32"] = [
        zlib.crc32(log_file[position : position + size])
        for position, size in zip(places["position"].tolist(), places["size_bytes"].tolist(), strict=True)
    ]
    units, queues = _units(columns, places)
    keys = np.empty(len(columns.key_hashes), dtype=KEY)
    keys["hash"] = columns.key_hashes
    for field in ("position", "size_bytes", "crc32"):
        keys[field] = places[field][columns.key_records]
    keys = keys[np.lexsort((keys["position"], keys["hash"]))]
    index, fences_at = encode_index(units, keys, places)
    segment = ColdSegment(
        first_offset=first_offset,
        records_end_offset=first_offset + end,
        end_offset=first_offset + len(log_file),
        record_count=len(places),
        unit_count=len(units),
        key_count=len(keys),
        begin_time_millis=int(columns.store_times_millis.min()),
        end_time_millis=int(columns.store_times_millis.max()),
        head_crc32=zlib.crc32(log_file[:HEAD_BYTES]),
        fences_position=fences_at,
        fences_size_bytes=len(index) - fences_at,
        fences_crc32=zlib.crc32(index[fences_at:]),
        topics=tuple(columns.topics),
        queues=queues,
    )
    return segment, index


def _units(columns: DispatchColumns, places: np.ndarray) -> tuple[np.ndarray, tuple[ColdQueue, ...]]:
    """The rows of all queues, and which rows are whose."""
    queued = np.flatnonzero(columns.sys_flags & NO_UNIT_BITS == 0)
    numbers, ids = columns.topic_numbers[queued], columns.queue_ids[queued]
    order = np.lexsort((queued, columns.queue_offsets[queued], ids, numbers))
    queued, numbers, ids = queued[order], numbers[order], ids[order]
    units = np.empty(len(queued), dtype=UNIT)
    units["queue_offset"] = columns.queue_offsets[queued]
    units["store_time_millis"] = columns.store_times_millis[queued]
    for field in ("position", "size_bytes", "crc32"):
        units[field] = places[field][queued]
    if not len(queued):
        return units, ()
    changes = np.flatnonzero((numbers[1:] != numbers[:-1]) | (ids[1:] != ids[:-1])) + 1
    times = units["store_time_millis"]
    queues = [
        ColdQueue(
            topic=columns.topics[int(numbers[begin])],
            queue_id=int(ids[begin]),
            first_row=begin,
            row_count=end - begin,
            first_queue_offset=int(units["queue_offset"][begin]),
            last_queue_offset=int(units["queue_offset"][end - 1]),
            begin_time_millis=int(times[begin]),
            end_time_millis=int(times[end - 1]),
            times_rise=bool(np.all(times[begin + 1 : end] >= times[begin : end - 1])),
        )
        for begin, end in pairwise([0, *changes.tolist(), len(queued)])
    ]
    return units, tuple(queues)


def _shipped(root: ObjectRoot, broker_name: str) -> dict[int, ColdSegment]:
    data = root.read(manifest_name(broker_name))
    segments = [] if data is None else decode_manifest(data, manifest_name(broker_name))
    return {segment.first_offset: segment for segment in segments}


def _refuse_other_log(
    store: Path, root: ObjectRoot, broker_name: str, offsets: list[int], known: dict[int, ColdSegment]
) -> None:
    """UnsupportedStoreError if the newest file that is in both begins with other bytes."""
    both = [offset for offset in offsets if offset in known]
    if not both:
        return
    try:
        head = map_file(log_path(store, both[-1]))[:HEAD_BYTES]
    except FileNotFoundError:
        return
    if zlib.crc32(head) != known[both[-1]].head_crc32:
        raise UnsupportedStoreError(
            f"{root} holds another log under the name {broker_name!r}: the files at commit-log offset {both[-1]} differ. "
            "Name the shard with --broker-name, or name another place",
            directory=str(root),
            brokerName=broker_name,
        )


def _not_shipped(offset: int, what: str) -> dict[str, object]:
    return {"kind": "log_file_not_shipped", "commit_log_offset": offset, "what": what}


def _note_holes(report: JobReport, shipped: dict[int, ColdSegment]) -> None:
    for before, after in pairwise(shipped[offset] for offset in sorted(shipped)):
        if before.end_offset < after.first_offset:
            report.notes.append(
                f"The log from {before.end_offset} to {after.first_offset} is not in the cold tier: ship more often than "
                "retention removes files"
            )
