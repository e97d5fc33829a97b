"""Row 8: queues and index rebuilt from the log."""

import hashlib
import pathlib
import time
from collections.abc import Mapping

from benchmarks import stores
from benchmarks.figures import OURS, THEIRS, Metric, RowResult, faster_than_theirs
from benchmarks.row import QUIET, Context, Row
from benchmarks.sides import rocketmq_side
from benchmarks.sides.our_side import BUILT_SECONDS_MAX, running_stack
from benchmarks.sizes import Sizes

REBUILD = "from the first process to all built"
READ_BYTES = 1 << 20


class Rebuild(Row):
    """Row 8."""

    number = 8
    title = "Rebuild of ConsumeQueue and IndexFile"
    cause = (
        "The CRC and the walk of each record are kernels at the speed of memory; start of Python and the writes "
        "of both sides are the rest (ADR 0014)."
    )
    what = (
        "The same log of 1 KiB messages without anything derived from it and with the marker of a crash, so that both "
        "sides check every CRC; ours: `reput serve` until all is built, theirs: DefaultMessageStore alone, without a "
        "broker. Start of Python or the JVM is part of it; the log is in the page cache."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = faster_than_theirs(2, stretch=4)
        self.metrics = (Metric(REBUILD, "s", lower_is_better=True, target=target),)
        self._kept: stores.KeptStore | None = None
        self._made: dict[str, dict[str, str]] = {}

    def prepare(self, context: Context) -> None:
        """The log."""
        self._kept = stores.log_store(context.stores, self.sizes, self.sizes.log_bytes, context.say)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        assert self._kept is not None
        kept = self._kept
        with context.directory() as path:
            root = stores.log_only_root(kept, path / "store", is_ours=side == OURS)
            stores.warm(root)
            if side == OURS:
                seconds = self._ours(root, kept)
            else:
                index = (self.sizes.index_slot_count, self.sizes.index_entry_count)
                answer = rocketmq_side.run_driver(path / "work", "StoreRebuild", root, kept.log_file_bytes, *index)
                if answer["log_end_offset"] != kept.log_end_offset:
                    raise RuntimeError(f"RocketMQ recovered {answer['log_end_offset']} of {kept.log_end_offset} bytes")
                seconds = answer["wall_seconds"]
            self._made[side] = digests(root)
        return {REBUILD: seconds}

    def finish(self, context: Context, result: RowResult) -> None:
        """Compares the files that the two sides have made."""
        assert self._kept is not None
        result.notes.append(f"The log has {self._kept.log_end_offset:,} bytes, {self._kept.message_count:,} messages.")
        if {OURS, THEIRS} <= self._made.keys():
            result.notes.append(difference(self._made[OURS], self._made[THEIRS]))

    def _ours(self, root: pathlib.Path, kept: stores.KeptStore) -> float:
        start = time.perf_counter()
        settings = QUIET | stores.settings(self.sizes, kept.log_file_bytes) | {"REPUT_INDEX_TAGS": "on"}  # as 5.5.0
        with running_stack(root, settings, single_process=self.sizes.single_process) as stack:
            stack.wait_until_built(BUILT_SECONDS_MAX)
            return time.perf_counter() - start


def digests(root: pathlib.Path) -> dict[str, str]:
    """SHA-256 of each queue and index file; index files by their order, since their names are times."""
    found = {}
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        found[str(path.relative_to(root))] = _digest(path)
    for number, path in enumerate(sorted((root / "index").iterdir())):
        found[f"index file {number}"] = _digest(path)
    return found


def difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """A sentence that states whether both sides made the same files."""
    names = sorted(ours.keys() | theirs.keys())
    different = [name for name in names if ours.get(name) != theirs.get(name)]
    if not different:
        return f"All {len(names)} files are equal, byte for byte."
    return f"{len(different)} of {len(names)} files differ: {', '.join(different[:5])}."


def _digest(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
