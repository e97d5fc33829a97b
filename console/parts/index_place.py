"""The position of a message in the index: hash, slot, chain and file, from the explanation of one lookup.

hash 1 830 231  ──▶  slot 1 830 231 of 5 000 000  ──▶  ● ── ● ── ● ── ◉   the chain in the file, newest entry first
"""

from dataclasses import dataclass
from typing import Any

# Entries of a chain that are drawn; a longer chain is cut in the middle and labelled with the number of hidden entries.
DRAWN_ENTRY_COUNT_MAX = 7
ENTRY_WIDTH, ENTRY_GAP = 26, 22
CHAIN_LEFT = 300


@dataclass(frozen=True, slots=True)
class DrawnEntry:
    """An entry of the chain; one with `same_hash` is drawn as a hit."""

    x: int
    same_hash: bool
    label: str


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """The position of a message in the index.

    Attributes:
        key: the key of the lookup.
        file_name: the index file that gave the candidate; empty when none did.
        chain_entry_count: entries of its chain that were read.
        same_hash_count: those with the key's hash.
        passed_over_count: files that were not read.
        visited_count: files that were read.
    """

    key: str
    key_hash: int
    slot: int
    slot_count: int
    file_name: str
    chain_entry_count: int
    same_hash_count: int
    visited_count: int
    passed_over_count: int
    entries: tuple[DrawnEntry, ...]


def index_place(explanation: Any, broker_name: str) -> IndexPlace | None:
    """The place in a shard's index, from the explanation of a lookup for one message; None when the shard was not asked."""
    for shard in explanation.shards:
        if shard.broker_name == broker_name:
            for lookup in shard.lookups:
                if lookup.slot_count:
                    return _place(lookup)
    return None


def _place(lookup: Any) -> IndexPlace:
    looked = [visit for visit in lookup.visits if not visit.passed_over]
    hit = next((visit for visit in looked if visit.candidate_count), None)
    chain_entry_count = hit.chain_entry_count if hit is not None else 0
    same_hash_count = hit.same_hash_count if hit is not None else 0
    return IndexPlace(
        key=lookup.key,
        key_hash=lookup.key_hash,
        slot=lookup.slot,
        slot_count=lookup.slot_count,
        file_name=hit.name if hit is not None else "",
        chain_entry_count=chain_entry_count,
        same_hash_count=same_hash_count,
        visited_count=len(looked),
        passed_over_count=len(lookup.visits) - len(looked),
        entries=tuple(_entries(chain_entry_count, same_hash_count)),
    )


def _entries(chain_entry_count: int, same_hash_count: int) -> list[DrawnEntry]:
    """The chain. The walk ends at the entry that it looked for, so the last one is a hit; which others are is not known."""
    count = min(chain_entry_count, DRAWN_ENTRY_COUNT_MAX)
    drawn = []
    for number in range(count):
        is_cut = chain_entry_count > count and number == count // 2
        is_hit = chain_entry_count == same_hash_count or number == count - 1
        label = f"+{chain_entry_count - count + 1}" if is_cut else ""
        drawn.append(DrawnEntry(CHAIN_LEFT + number * (ENTRY_WIDTH + ENTRY_GAP), is_hit and not is_cut, label))
    return drawn
