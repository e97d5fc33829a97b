"""DispatchColumns: the dispatch requests of several records, as a column for each field.

A builder that gets columns runs no Python code for each record: it makes queue units and index entries for all records at
once. The first and the last record come as whole dispatch requests, too: a builder compares them with the record that it
applied last (`dispatch.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from store.derive.dispatch import DispatchRequest
from store.derive.index_keys import NO_TAGS, index_hashes, tags_hash
from store.derive.queue_placement import LightUnit, place_light_units

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DispatchColumns:
    """Records in log order. All record columns have one length, both key columns have another.

    Attributes:
        topics: the topics that occur, each once.
        topic_numbers: index of each record's topic in `topics`.
        queue_ids: see DispatchRequest, as the columns below.
        queue_offsets: in units.
        commit_log_offsets: in bytes, rising.
        record_sizes_bytes: of whole records.
        tags_codes: what the queue units carry.
        store_times_millis: since 1970 UTC.
        sys_flags: see `format/sys_flag.py`.
        tags_hashes: hash of the index entry of each record's tags (`index_keys.py`); NO_TAGS for a record without one.
        key_records: for each index entry, in entry order (`index_keys.py`), the index of its record. Entries of tags are
            not among them; `with_tags` adds them.
        key_hashes: the key hash of each index entry.
        first: the first record; None if there is none, or if records before it were cut off.
        last: the last record; None if there is none.
        light_units: units in light queues, in log order.
    """

    topics: tuple[str, ...]
    topic_numbers: Int32s
    queue_ids: Int32s
    queue_offsets: Int64s
    commit_log_offsets: Int64s
    record_sizes_bytes: Int32s
    tags_codes: Int64s
    store_times_millis: Int64s
    sys_flags: Int32s
    tags_hashes: Int32s
    key_records: Int32s
    key_hashes: Int32s
    first: DispatchRequest | None
    last: DispatchRequest | None
    light_units: tuple[LightUnit, ...] = ()

    def __len__(self) -> int:
        return len(self.commit_log_offsets)

    @classmethod
    def of(cls, requests: Sequence[DispatchRequest]) -> "DispatchColumns":
        """The same records as columns, made one by one: for a few records."""
        numbers: dict[str, int] = {}
        key_records: list[int] = []
        key_hashes: list[int] = []
        for place, request in enumerate(requests):
            numbers.setdefault(request.topic, len(numbers))
            hashes = index_hashes(request)
            key_records += [place] * len(hashes)
            key_hashes += hashes

        def int32s(values: Sequence[int]) -> Int32s:
            return np.array(values, dtype=np.int32)

        def int64s(values: Sequence[int]) -> Int64s:
            return np.array(values, dtype=np.int64)

        return cls(
            topics=tuple(numbers),
            topic_numbers=int32s([numbers[request.topic] for request in requests]),
            queue_ids=int32s([request.queue_id for request in requests]),
            queue_offsets=int64s([request.queue_offset for request in requests]),
            commit_log_offsets=int64s([request.commit_log_offset for request in requests]),
            record_sizes_bytes=int32s([request.record_size_bytes for request in requests]),
            tags_codes=int64s([request.tags_code for request in requests]),
            store_times_millis=int64s([request.store_time_millis for request in requests]),
            sys_flags=int32s([request.sys_flag for request in requests]),
            tags_hashes=int32s([tags_hash(request) for request in requests]),
            key_records=int32s(key_records),
            key_hashes=int32s(key_hashes),
            first=requests[0] if requests else None,
            last=requests[-1] if requests else None,
            light_units=tuple([unit for request in requests for unit in place_light_units(request)]),
        )

    @classmethod
    def joined(cls, parts: Sequence["DispatchColumns"]) -> "DispatchColumns":
        """Several columns, in log order, as one."""
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of(())
        numbers: dict[str, int] = {}
        topic_numbers: list[Int32s] = []
        key_records: list[Int32s] = []
        record_count = 0
        for part in parts:
            places = [numbers.setdefault(topic, len(numbers)) for topic in part.topics]
            topic_numbers.append(np.array(places, dtype=np.int32)[part.topic_numbers])
            key_records.append(part.key_records + np.int32(record_count))
            record_count += len(part)
        return cls(
            tuple(numbers),
            np.concatenate(topic_numbers),
            np.concatenate([part.queue_ids for part in parts]),
            np.concatenate([part.queue_offsets for part in parts]),
            np.concatenate([part.commit_log_offsets for part in parts]),
            np.concatenate([part.record_sizes_bytes for part in parts]),
            np.concatenate([part.tags_codes for part in parts]),
            np.concatenate([part.store_times_millis for part in parts]),
            np.concatenate([part.sys_flags for part in parts]),
            np.concatenate([part.tags_hashes for part in parts]),
            np.concatenate(key_records),
            np.concatenate([part.key_hashes for part in parts]),
            parts[0].first,
            parts[-1].last,
            tuple([unit for part in parts for unit in part.light_units]),
        )

    def behind(self, commit_log_offset: int) -> "DispatchColumns":
        """The records that start at this offset or behind it."""
        begin = int(np.searchsorted(self.commit_log_offsets, commit_log_offset))
        if begin == 0:
            return self
        key_begin = int(np.searchsorted(self.key_records, begin))
        return DispatchColumns(
            self.topics,
            self.topic_numbers[begin:],
            self.queue_ids[begin:],
            self.queue_offsets[begin:],
            self.commit_log_offsets[begin:],
            self.record_sizes_bytes[begin:],
            self.tags_codes[begin:],
            self.store_times_millis[begin:],
            self.sys_flags[begin:],
            self.tags_hashes[begin:],
            self.key_records[key_begin:] - np.int32(begin),
            self.key_hashes[key_begin:],
            None,
            self.last if begin < len(self) else None,
            tuple([unit for unit in self.light_units if unit.commit_log_offset >= commit_log_offset]),
        )

    def with_tags(self, begin_offset: int = 0) -> "DispatchColumns":
        """The same records, with the entries of tags among the keys: each behind the keys of its record.

        Args:
            begin_offset: records before it (bytes) get none.
        """
        rows = np.flatnonzero((self.tags_hashes != NO_TAGS) & (self.commit_log_offsets >= begin_offset))
        if not len(rows):
            return self
        places = np.searchsorted(self.key_records, rows, side="right")
        return replace(
            self,
            key_records=np.insert(self.key_records, places, rows.astype(np.int32)),
            key_hashes=np.insert(self.key_hashes, places, self.tags_hashes[rows]),
        )
