"""Which shards need not be asked for a key, by what their indexes have told of themselves.

    window's end   earlier than every record that the shard may still take?   no: ask
    newest file    all its records outside the window?                        no: ask
    sealed files   each outside the window, or without the key's hash?        no: ask
                                                                              else the shard holds no match

What a shard holds comes along with the answer to a query that had to ask, so knowing it never costs a call. Most of it
stays true: sealed files do not change, and a log of this project's takes no record that is stored earlier than one before
it. What can make it untrue is another log in the shard's place, or one that something else wrote to while the shard was
down; so nothing older than HELD_SECONDS_MAX counts. Whatever is not known means: ask.

A query without an end in the past always asks every shard. That is the price of never missing a message.

Key filters are large (1.25 bytes a key) and stay with the shards, up to FILTER_BYTES_MAX of them excepted: one that would
have spared calls again and again is fetched, page by page, on a thread of its own, and the least recently used make room.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.deadline import Deadline
from gateway.ports import BuildProgress, Candidates
from gateway.sharding.key_facts import HeldKeys, KeyExplanation, PassedOver, SealedKeys, overlaps
from gateway.time_window import TimeWindow
from store.errors import StoreError
from store.format.index_layout import index_key, key_hash
from store.format.index_summary import (
    BLOCK_SIZE,
    PAGE_BLOCK_COUNT,
    PAGE_SIZE,
    KeyBits,
    block_holds,
    block_of,
    block_place,
    key_bits,
)

# A shard may be given another log within some seconds; a restart of its services takes as long.
HELD_SECONDS_MAX = 30.0
# All filters of a gateway together: those of two and a half full index files, or of hundreds of small ones.
FILTER_BYTES_MAX = 64 << 20
# A filter is worth the bytes of many calls: it is fetched once so many queries would have needed it.
FILTER_WANTED_COUNT = 16
# Files that queries have wanted and that are not fetched: counted for so many.
WANTED_FILE_COUNT_MAX = 10_000
FETCH_SECONDS_MAX = 60.0

_log = logging.getLogger("reput.gateway")

# Shard, index file and its header's CRC-32.
FilterKey = tuple[str, str, int]


class SummarizingKeys(Protocol):
    """An index that can say what it holds; see KeyLocator for the rest."""

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
        explain: bool = False,
        summarize: bool = False,
    ) -> Candidates:
        """See KeyLocator; `summarize` also asks what times and keys the index holds."""

    def filter_pages(self, name: str, header_crc: int, first_page: int, deadline: Deadline) -> bytes:
        """Sound pages of the key filter of a sealed index file from a number on, some at a time; none behind the last.

        RecordNotFoundError when that file is gone or has no filter now.
        """

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See KeyLocator."""


class FilterCache:
    """Key filters of sealed index files, of all shards; thread-safe.

    Args:
        bytes_max: of all together.
        wanted_count: a filter is fetched when it was wanted so often.
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
        """Whether an index file may hold a key; None when its filter is not here."""
        with self._lock:
            pages = self._filters.get(key)
            if pages is None:
                return None
            self._filters.move_to_end(key)
        number, place = block_place(block_of(wanted.bits, block_count))
        begin = (number - 1) * PAGE_SIZE + place
        return block_holds(pages[begin : begin + BLOCK_SIZE], wanted)

    def want(self, key: FilterKey, block_count: int, read: Callable[[int], bytes]) -> "Future[None] | None":
        """Notes that a filter would have helped; the fetch that this began, if it did.

        Args:
            key: the file.
            block_count: of its filter.
            read: pages from a number on, on the fetching thread; none behind the last.
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
        """Fetches no more."""
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
    held: HeldKeys
    progress: BuildProgress
    at_seconds: float


class SummarizedKeys:
    """KeyLocator that asks its shard's index only when that may hold a match.

    Args:
        broker_name: the shard's.
        keys: its index.
        filters: of all shards.
        clock: seconds, rising.
    """

    def __init__(
        self,
        broker_name: str,
        keys: SummarizingKeys,
        filters: FilterCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker_name = broker_name
        self._keys = keys
        self._filters = filters
        self._clock = clock
        self._known: _Known | None = None

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
        explain: bool = False,
    ) -> Candidates:
        """See the port."""
        known = self._fresh() if window.end_millis is not None else None
        if known is not None:
            hash_ = key_hash(index_key(topic, key))
            passed = self._passed_over(known.held, hash_, window)
            if passed is not PassedOver.NOT:
                explanation = KeyExplanation(hash_, passed_over=passed) if explain else None
                return Candidates((), False, known.progress, explanation=explanation)
        # What is asked for here costs the shard some microseconds, and a call is due in any case.
        wants_held = window.end_millis is not None and known is None
        found = self._keys.search(
            topic,
            key,
            window,
            below_offset=below_offset,
            count_max=count_max,
            deadline=deadline,
            explain=explain,
            summarize=wants_held,
        )
        if found.held is not None:
            # What is searched for before `later_times_millis` lies before `next_offset`, so it is all there.
            at = found.held.next_offset
            progress = replace(found.progress, next_offset=at, log_end_offset=at, catching_up=False)
            self._known = _Known(found.held, progress, self._clock())
        return found

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port."""
        return self._keys.progress(past_offset, wait_seconds, deadline)

    def _fresh(self) -> _Known | None:
        known = self._known
        return known if known is not None and self._clock() - known.at_seconds < HELD_SECONDS_MAX else None

    def _passed_over(self, held: HeldKeys, hash_: int, window: TimeWindow) -> PassedOver:
        """Why the shard has no match; NOT when it may have one."""
        end = window.end_millis
        begin = window.begin_millis if window.begin_millis is not None else 0
        if end is None or held.later_times_millis is None or end >= held.later_times_millis:
            return PassedOver.NOT
        if held.has_newest and overlaps(held.newest_begin_millis, held.newest_end_millis, begin, end):
            return PassedOver.NOT
        inside = [sealed for sealed in held.sealed if sealed.overlaps(begin, end)]
        if not inside:
            return PassedOver.TIME
        wanted = key_bits(hash_)
        answers = [self._may_hold(sealed, wanted) for sealed in inside]
        return PassedOver.NOT if any(answers) else PassedOver.FILTER

    def _may_hold(self, sealed: SealedKeys, wanted: KeyBits) -> bool:
        if not sealed.name or not sealed.block_count:
            return True
        key = (self._broker_name, sealed.name, sealed.header_crc)
        answer = self._filters.may_hold(key, wanted, sealed.block_count)
        if answer is None:
            self._filters.want(key, sealed.block_count, lambda page: self._read(sealed, page))
            return True
        return answer

    def _read(self, sealed: SealedKeys, first_page: int) -> bytes:
        return self._keys.filter_pages(sealed.name, sealed.header_crc, first_page, Deadline.after(FETCH_SECONDS_MAX))
