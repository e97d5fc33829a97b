"""Chain lengths of index files that RocketMQ wrote, against walking every chain link by link."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from pipeline.analytics.index import chain_length_at, index_files, index_tables, load_of, walked_per_lookup
from store.errors import StoreCorruptedError

# Of tests/fixtures/README.md: hash slots and entries (one more than fit) of an index file.
LAYOUTS = {"broker": (500, 1000), "engine": (97, 200), "engine_crc": (97, 200)}


@pytest.fixture(params=sorted(LAYOUTS))
def store(request: pytest.FixtureRequest) -> tuple[Path, int, int]:
    root: Path = request.getfixturevalue(f"{request.param}_store")
    return root, *LAYOUTS[request.param]


def _chains(path: Path, slot_count: int) -> list[list[int]]:
    """Numbers of the entries of each chain, newest first, by following the links."""
    data = path.read_bytes()
    found = []
    for slot in range(slot_count):
        (number,) = struct.unpack_from(">i", data, 40 + slot * 4)
        chain = []
        while number:
            chain.append(number)
            (number,) = struct.unpack_from(">i", data, 40 + slot_count * 4 + number * 20 + 16)
        if chain:
            found.append(chain)
    return found


def test_chains_are_as_long_as_their_links_say(store: tuple[Path, int, int]) -> None:
    root, slot_count, entry_count_max = store
    paths, layout = index_files(root)
    assert [path.name for path in paths] == sorted(path.name for path in (root / "index").iterdir())
    assert layout is not None
    assert (layout.slot_count, layout.entry_count_max) == (slot_count, entry_count_max)
    for path in paths:
        chains = _chains(path, slot_count)
        lengths = sorted(len(chain) for chain in chains)
        load = load_of(path, layout)
        assert dict(zip(load.chain_lengths, load.chain_counts, strict=True)) == Counter(lengths)
        assert load.entry_count == sum(lengths)
        assert load.entry_capacity == entry_count_max - 1
        assert load.used_slot_count == len(chains)
        for part in (0.5, 0.99, 1.0):
            shorter = [length for length in set(lengths) if sum(x <= length for x in lengths) >= part * len(lengths)]
            assert chain_length_at(load, part) == min(shorter)
        # An entry is found in the chain of its slot; the whole chain is walked, for a page may want every match.
        walked = sum(len(chain) for chain in chains for _ in chain) / sum(lengths)
        assert walked_per_lookup(load) == pytest.approx(walked)


def test_tables_have_a_row_for_each_file_and_length(broker_store: Path) -> None:
    paths, layout = index_files(broker_store)
    assert layout is not None
    tables = index_tables([load_of(path, layout) for path in reversed(paths)])
    files = tables["index_files"].to_pylist()
    assert [row["file"] for row in files] == [path.name for path in paths]
    for row, path in zip(files, paths, strict=True):
        begin, end = struct.unpack_from(">qq", path.read_bytes())
        assert round(row["begin_time"].timestamp() * 1000) == begin
        assert round(row["end_time"].timestamp() * 1000) == end
        chains = [chain for chain in tables["index_chains"].to_pylist() if chain["file"] == row["file"]]
        assert sum(chain["chain_length"] * chain["slot_count"] for chain in chains) == row["entry_count"]
        assert max(chain["chain_length"] for chain in chains) == row["chain_max_count"]


def test_a_file_that_is_cut_short_is_named(copy_of_broker_store: Path) -> None:
    paths, layout = index_files(copy_of_broker_store)
    assert layout is not None
    paths[0].write_bytes(paths[0].read_bytes()[:3000])
    with pytest.raises(StoreCorruptedError, match="ends at byte 3000") as caught:
        load_of(paths[0], layout)
    assert paths[0].name in caught.value.message


def test_a_store_without_an_index_has_none(tmp_path: Path) -> None:
    assert index_files(tmp_path) == ([], None)
    tables = index_tables([])
    assert [table.num_rows for table in tables.values()] == [0, 0]
