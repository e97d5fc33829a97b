"""Facts that an index gives beside candidates: how it found them, and which times and keys it holds."""

from dataclasses import dataclass
from enum import Enum


class PassedOver(Enum):
    """Why an index file was passed over, or a shard was not asked."""

    NOT = ""
    CURSOR = "cursor"
    TIME = "time"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class FileVisit:
    """What a search did with one index file.

    Attributes:
        name: the file's.
        passed_over: why it was not searched.
        entry_count: entries that it holds.
        chain_entry_count: entries of the slot's chain that were read.
        same_hash_count: those of them with the key's hash.
        outside_count: those of these that their second proves to lie outside the window.
        candidate_count: candidates that came from it.
        is_damaged: the chain had to be left.
        read_bytes: read of the file and its summary.
    """

    name: str
    passed_over: PassedOver
    entry_count: int
    chain_entry_count: int
    same_hash_count: int
    outside_count: int
    candidate_count: int
    is_damaged: bool
    read_bytes: int


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """How candidates were found.

    Attributes:
        key_hash: hash of `topic#key`.
        slot: in every index file; 0 when the index was not asked.
        slot_count: slots of a file, likewise.
        visits: index files, newest first.
        elapsed_micros: inside the index service.
        passed_over: why the index was not asked at all.
    """

    key_hash: int
    slot: int = 0
    slot_count: int = 0
    visits: tuple[FileVisit, ...] = ()
    elapsed_micros: int = 0
    passed_over: PassedOver = PassedOver.NOT


@dataclass(frozen=True, slots=True)
class SealedKeys:
    """An index file that is not written any more; times in milliseconds, None where unknown.

    `name` is empty where one row stands for several old files; `block_count` is 0 where there is no key filter.
    """

    name: str
    header_crc: int
    begin_millis: int | None
    end_millis: int | None
    block_count: int

    def overlaps(self, begin_millis: int, end_millis: int) -> bool:
        """Whether a record of it may have a store time in [begin_millis, end_millis]."""
        return overlaps(self.begin_millis, self.end_millis, begin_millis, end_millis)


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """The times and keys of an index at one moment.

    Attributes:
        sealed: files that are not written any more, oldest first.
        next_offset: everything of the log before this is in the files (bytes).
        later_times_millis: no later record has an earlier store time than this; None when unknown.
        has_newest: the newest file has records.
        newest_begin_millis: earliest store time there; None when unknown.
        newest_end_millis: latest one, likewise.
    """

    sealed: tuple[SealedKeys, ...]
    next_offset: int
    later_times_millis: int | None
    has_newest: bool
    newest_begin_millis: int | None
    newest_end_millis: int | None


def overlaps(begin: int | None, end: int | None, begin_millis: int, end_millis: int) -> bool:
    """Whether [begin, end], where None is no limit, and [begin_millis, end_millis] have a time in common."""
    return (begin is None or begin <= end_millis) and (end is None or end >= begin_millis)
