"""Skips shards that cannot hold a key, by the summaries that their indexes have sent.

    window's end   earlier than every record that the shard may still take?   no: ask
    newest file    all its records outside the window?                        no: ask
    sealed files   each outside the window, or without the key's hash?        no: ask
                                                                              else the shard holds no match

A summary comes with the answer to a query that asked the index, so it never costs a call of its own. It stays valid,
because sealed files do not change, and later records of a log of Reput have later store times while no clock is set back. It
becomes wrong if one is (ADR 0103), if the shard gets another log, or if another program appended to the log while the shard
was down. So a summary is used for at most HELD_SECONDS_MAX. Without a valid summary the shard is asked.

A query without an end in the past always asks every shard; otherwise it could miss a new message.

Key filters are large (1.25 bytes a key) and stay at the shards. A filter that would have saved calls repeatedly is fetched,
page by page, on a separate thread. The gateway keeps up to FILTER_BYTES_MAX of them and drops the least recently used.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gateway.ports.chain import Answering, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import SEARCH_KEY, BuildProgress, Built, window_of
from gateway.ports.time_window import TimeWindow
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from store.errors import StoreError
from store.format.derived.index_layout import index_key, key_hash
from store.format.derived.index_summary import (
    BLOCK_SIZE,
    PAGE_BLOCK_COUNT,
    PAGE_SIZE,
    KeyBits,
    block_holds,
    block_of,
    block_place,
    key_bits,
)

# Replacing the log of a shard takes at least this long, because its services must restart.
HELD_SECONDS_MAX = 30.0
# All filters of a gateway together: as large as those of two and a half full index files, or of hundreds of small ones.
FILTER_BYTES_MAX = 64 << 20
# A filter costs as many bytes as many calls, so it is fetched only when this many queries would have used it.
FILTER_WANTED_COUNT = 16
# Files that are not fetched, for which the queries that would have used the filter are counted.
WANTED_FILE_COUNT_MAX = 10_000
FETCH_SECONDS_MAX = 60.0

_log = logging.getLogger("reput.gateway")

# Some verified pages of the key filter of a sealed index file, from `first_page` on; empty behind the last page.
# RecordNotFoundError: the file is gone or has no filter now.
FILTER_PAGES: ShardMethod[index_pb.GetFilterPagesRequest, bytes] = ShardMethod("index.filter-pages", "index")

# Shard, index file and its header's CRC-32.
FilterKey = tuple[str, str, int]


class FilterCache:
    """Key filters of sealed index files, of all shards; thread-safe.

    Args:
        bytes_max: limit of all filters together.
        wanted_count: a filter is fetched after this many calls of `want`.
    """

    def __init__(self, bytes_max: int = FILTER_BYTES_MAX, wanted_count: int = FILTER_WANTED_COUNT) -> None:
        self._bytes_max = bytes_max
        self._wanted_count = wanted_count
        self._lock = threading.Lock()
        self._filters: OrderedDict[FilterKey, bytes] = OrderedDict()
        self._size_bytes = 0
        self._wanted: OrderedDict[FilterKey, int] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="key-filters")

    def may_hold(self, key: FilterKey, wanted: KeyBits, block_count: int) -> bool | None:
        """Whether an index file may hold a key; None when its filter is not cached."""
        with self._lock:
            pages = self._filters.get(key)
            if pages is None:
                return None
            self._filters.move_to_end(key)
        number, place = block_place(block_of(wanted.bits, block_count))
        begin = (number - 1) * PAGE_SIZE + place
        return block_holds(pages[begin : begin + BLOCK_SIZE], wanted)

    def want(self, key: FilterKey, block_count: int, read: Callable[[int], bytes]) -> "Future[None] | None":
        """Count a query that would have used a filter; returns the fetch if this starts one.

        Args:
            key: the file.
            block_count: of its filter.
            read: reads pages from a number on, on the fetching thread; empty behind the last.
        """
        size_bytes = -(-block_count // PAGE_BLOCK_COUNT) * PAGE_SIZE
        if size_bytes > self._bytes_max:
            return None
        with self._lock:
            if key in self._filters:
                return None
            count = self._wanted.pop(key, 0) + 1
            self._wanted[key] = count
            if len(self._wanted) > WANTED_FILE_COUNT_MAX:
                self._wanted.popitem(last=False)
            if count != self._wanted_count:
                return None
        try:
            return self._thread.submit(self._fetch, key, size_bytes, read)
        except RuntimeError:  # closed
            return None

    def close(self) -> None:
        """Fetch no more filters."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, key: FilterKey, size_bytes: int, read: Callable[[int], bytes]) -> None:
        pages = bytearray()
        try:
            while len(pages) < size_bytes:
                part = read(1 + len(pages) // PAGE_SIZE)
                if not part or len(part) % PAGE_SIZE:
                    break
                pages += part
        except StoreError as error:
            _log.info("the key filter of %s of shard %s is not fetched: %s", key[1], key[0], error)
        with self._lock:
            self._wanted.pop(key, None)
            if len(pages) != size_bytes:
                return
            self._filters[key] = bytes(pages)
            self._size_bytes += size_bytes
            while self._size_bytes > self._bytes_max:
                self._size_bytes -= len(self._filters.popitem(last=False)[1])


@dataclass(frozen=True, slots=True)
class _Known:
    held: index_pb.IndexSummary
    progress: BuildProgress
    at_seconds: float


class Summaries:
    """The link of a shard's calls: its index is asked only when that may hold a match.

    Args:
        broker_name: the shard's name.
        filters: the filters of all shards.
        clock: seconds, rising.
    """

    def __init__(self, broker_name: str, filters: FilterCache, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker_name = broker_name
        self._filters = filters
        self._clock = clock
        self._known: _Known | None = None

    def __call__(self, method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        """See Link."""
        # Filters of an index without entries of tags would deny all of them.
        if method is not SEARCH_KEY or not request.HasField("end_time") or request.of_tags:
            return below(method, request, deadline)
        return self._search(request, deadline, below)

    def _search(
        self, request: index_pb.SearchKeyRequest, deadline: Deadline, below: Answering
    ) -> Built[index_pb.SearchKeyResponse]:
        known = self._fresh()
        if known is not None:
            hash_ = key_hash(index_key(request.topic, request.key))
            passed_over = self._passed_over(known.held, hash_, window_of(request), below)
            if passed_over:
                answer = index_pb.SearchKeyResponse()
                if request.explain:
                    answer.explanation.key_hash = hash_
                return Built(answer, known.progress, passed_over=passed_over)
        # The call is needed anyway, and a summary costs the shard only some microseconds.
        request.summarize = known is None
        found = below(SEARCH_KEY, request, deadline)
        if found.answer.HasField("summary"):
            held = found.answer.summary
            # Records stored before `later_times_millis` lie before `next_offset`, so the index has all of them.
            at = held.next_offset
            progress = replace(found.progress, next_offset=at, log_end_offset=at, catching_up=False, is_final=True)
            self._known = _Known(held, progress, self._clock())
        return found

    def _fresh(self) -> _Known | None:
        known = self._known
        return known if known is not None and self._clock() - known.at_seconds < HELD_SECONDS_MAX else None

    def _passed_over(
        self, held: index_pb.IndexSummary, hash_: int, window: TimeWindow, below: Answering
    ) -> "gateway_pb.PassedOver":
        """The reason why the shard has no match; unspecified when it may have one."""
        end = window.end_millis
        begin = window.begin_millis if window.begin_millis is not None else 0
        if end is None or not held.HasField("later_times_millis") or end >= held.later_times_millis:
            return gateway_pb.PASSED_OVER_UNSPECIFIED
        if held.has_newest and _overlaps(held, "newest_begin_time_millis", "newest_end_time_millis", begin, end):
            return gateway_pb.PASSED_OVER_UNSPECIFIED
        inside = [row for row in held.sealed if _overlaps(row, "begin_time_millis", "end_time_millis", begin, end)]
        if not inside:
            return gateway_pb.PASSED_OVER_TIME
        wanted = key_bits(hash_)
        answers = [self._may_hold(sealed, wanted, below) for sealed in inside]
        return gateway_pb.PASSED_OVER_UNSPECIFIED if any(answers) else gateway_pb.PASSED_OVER_FILTER

    def _may_hold(self, sealed: index_pb.IndexSummary.Sealed, wanted: KeyBits, below: Answering) -> bool:
        # Without a name it stands for several old files; without blocks it has no key filter.
        if not sealed.name or not sealed.block_count:
            return True
        key = (self._broker_name, sealed.name, sealed.header_crc)
        answer = self._filters.may_hold(key, wanted, sealed.block_count)
        if answer is None:
            pages = index_pb.GetFilterPagesRequest(name=sealed.name, header_crc=sealed.header_crc)
            self._filters.want(key, sealed.block_count, partial(_read, pages, below))
            return True
        return answer


def _read(request: index_pb.GetFilterPagesRequest, below: Answering, first_page: int) -> bytes:
    request.first_page = first_page
    return below(FILTER_PAGES, request, Deadline.after(FETCH_SECONDS_MAX))


def _overlaps(
    row: index_pb.IndexSummary | index_pb.IndexSummary.Sealed, begin: str, end: str, begin_millis: int, end_millis: int
) -> bool:
    """Whether the store times of a row, where an absent one is no limit, and [begin_millis, end_millis] have one in common."""
    begins_before = not row.HasField(begin) or getattr(row, begin) <= end_millis
    ends_behind = not row.HasField(end) or getattr(row, end) >= begin_millis
    return begins_before and ends_behind
