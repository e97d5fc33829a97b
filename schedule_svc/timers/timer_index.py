"""TimerIndex: all timers that wait, in the order in which they are due, with little memory.

Theory of operation: new entries are collected in memory. MEMORY_COUNT_MAX of them are written as a file, sorted (a run). Files
of about one size are merged, up to FILE_COUNT_MAX entries, so there are few of them. What is due is taken from the front of all
runs. The table of the files is `RunFiles`. It also says up to which position of the timer topic the files have everything.

One thread adds (`load`, `add`, `settle`, `drop`), another takes (`take`, `put_back`). The taker confirms what it took when the
log says that it is done. Runs are replaced only when everything that was taken is confirmed: an entry that is in no file must
be done, or a crash would lose it. While a new run is made, entries are taken from the old ones. What was taken of them then is
the first part of the new run, because the least entry is always taken first.

What was appended can still be lost, by a power cut or with the lead of the log, until Reput has shown it. So new files count
only from then on (`mark_changes`); until then the old ones do, which have every entry that the log may say waits.
"""

import itertools
import threading
from collections.abc import Callable, Sequence

import numpy as np

from schedule_svc.state.schedule_state import Passed, TimersState
from schedule_svc.timers.runs import Entries, Int64s, Mask, NewRuns, Run, RunFiles, SavedRuns
from store.errors import ServiceUnavailableError

# Entries in memory: 36 bytes each. As many are read again from the topic after a kill, in less than a second.
MEMORY_COUNT_MAX = 16_384
# Entries that are sorted with each new page.
FRESH_COUNT_MAX = 1_024
# Entries of a file that is merged no more (36 MiB): merging takes less than a second.
FILE_COUNT_MAX = 1 << 20
# A file of which less than this part is left is merged again.
WORN_PART = 0.25
# Requests to the log that are under way take less.
CONFIRM_SECONDS_MAX = 15.0
# Entries in memory while new files wait for Reput: 9 MiB. That takes less than a second, unless the log confirms nothing; then
# nothing that is delivered is seen either, and what is not read yet can wait.
WAIT_COUNT_MAX = 1 << 18


class TimerIndex:
    """See the top of this file; thread-safe.

    Args:
        files: keeps the runs that are files; None: all is in memory, as on a store that is only read.
        mark_changes: called now, and what it returns later: that says whether Reput has shown every change that was submitted
            before the first call. It may ask the log, and raise StoreError.

    Attributes:
        passed: everything before this place was taken, but for what was added since.
        next_queue_offset: positions before this are in the index, or were.
        last_log_offset: where the record of the last of them is (bytes).
    """

    def __init__(self, files: RunFiles | None, mark_changes: Callable[[], Callable[[], bool]]) -> None:
        self.passed = Passed()
        self.next_queue_offset = 0
        self._files = files
        self._mark_changes = mark_changes
        self._new_files: NewRuns | None = None
        self._changed = threading.Condition(threading.RLock())
        self._all_runs: list[Run] = []
        self.last_log_offset = -1
        self._flushed_offset = 0
        self._unconfirmed_count = 0
        self._is_pausing = False

    # -- the thread that adds

    def load(self, saved: SavedRuns | None, state: TimersState, min_offset: int) -> None:
        """Begin with files, and with what the log says is done.

        Args:
            saved: the files; None: there are none.
            state: as the log has it.
            min_offset: first position of the timer topic.

        Raises:
            OSError, DiskFullError, FlushFailedError: a file has to be written, and cannot be.
        """
        self.passed = state.passed
        if saved is not None:
            self.next_queue_offset, self.last_log_offset = saved.next_queue_offset, saved.last_log_offset
        else:
            self.next_queue_offset, self.last_log_offset = min_offset, -1
        self._all_runs = []
        self._flushed_offset = self.next_queue_offset
        pending = np.array(sorted(state.pending), dtype=np.int64)
        for run in saved.runs if saved is not None else ():
            run.cursor = run.entries.place(*state.passed)
            before = run.entries.pick(slice(0, run.cursor))
            waits = (before.queue_offsets >= state.next_queue_offset) | _is_in(before.queue_offsets, pending)
            if waits.any():
                assert self._files is not None
                run = self._files.write(Entries.joined([before.pick(waits), run.rest()]))  # noqa: PLW2901
            run.forget_pages()
            self._all_runs.append(run)

    def add(self, entries: Entries, next_queue_offset: int, last_log_offset: int) -> None:
        """Add entries; everything before a position is added now, whose last record is at an offset of the log (bytes)."""
        with self._changed:
            small = [run for run in self._all_runs if run.path is None and len(run) <= FRESH_COUNT_MAX]
            self._replace(small, Run(Entries.joined([entries, *(run.rest() for run in small)])))
            self.next_queue_offset, self.last_log_offset = next_queue_offset, last_log_offset

    def settle(self, *, even_little: bool = False) -> bool:
        """Move what is in memory to a file, if it is much or `even_little`, and merge files.

        Returns:
            Whether everything that was written counts; False: call it again later.

        Raises:
            ServiceUnavailableError: what was taken is not confirmed.
            StoreError: the log does not say whether new files can count.
            OSError, DiskFullError, FlushFailedError: the files cannot be written; what is in memory stays there.
        """
        if self._files is None:
            self.merge_in_memory()
            return True
        if not self._keep_new_files(self._files):
            return False
        is_much = even_little or self._memory_count() >= MEMORY_COUNT_MAX
        if self.next_queue_offset == self._flushed_offset or not is_much:
            return True
        self._write_files()
        return self._keep_new_files(self._files)

    @property
    def is_waiting(self) -> bool:
        """Whether files that were written do not count yet; by the thread that adds."""
        return self._new_files is not None

    @property
    def is_full(self) -> bool:
        """Whether nothing is to be added until new files count; by the thread that adds."""
        return self.is_waiting and self._memory_count() >= WAIT_COUNT_MAX

    def merge_in_memory(self) -> None:
        """Merge what is in memory, so that there are few runs. ServiceUnavailableError: what was taken is not confirmed."""
        while merged := self._to_merge(in_memory=True):
            self._rewrite(merged, in_memory=True)

    def drop(self, queue_offsets: Int64s) -> int:
        """Take out entries, wherever they are; how many there were. `queue_offsets`: sorted. Errors as `settle`.

        The files count after a later `settle`. Not while others do not count yet (`is_waiting`).
        """
        assert not self.is_waiting
        count = 0
        for run in self._runs():
            found = int(np.count_nonzero(_is_in(run.rest().queue_offsets, queue_offsets)))
            if found:
                count += found
                self._rewrite([run], queue_offsets)
        if count and self._files is not None:
            self._write_files()
        return count

    def _in_memory(self) -> list[Run]:
        with self._changed:
            return [run for run in self._all_runs if run.path is None]

    def _memory_count(self) -> int:
        return sum(map(len, self._in_memory()))

    def _keep_new_files(self, files: RunFiles) -> bool:
        """Have new files count if they can; whether all do that were written. After an error they are written anew."""
        new = self._new_files
        if new is None:
            return True
        if not new.can_count():
            return False
        self._new_files = None
        files.keep(new.saved.runs, new.saved.next_queue_offset, new.saved.last_log_offset)
        self._flushed_offset = new.saved.next_queue_offset
        return True

    def _write_files(self) -> None:
        """Write everything to files, which do not count yet.

        Memory comes last: an entry that was put back is in no other file when that from which it was taken is written anew.
        """
        self._rewrite(self._in_memory())
        while merged := self._to_merge():
            self._rewrite(merged)
            self._rewrite(self._in_memory())
        with self._changed:
            runs = [run for run in self._all_runs if run.path is not None]
        # What the runs lack was confirmed before they were made, so its change is submitted.
        saved = SavedRuns(runs, self.next_queue_offset, self.last_log_offset)
        self._new_files = NewRuns(saved, self._mark_changes())

    def _to_merge(self, *, in_memory: bool = False) -> list[Run]:
        """Two files, or runs in memory, of about one size, or those that are nearly taken and another."""
        with self._changed:
            files = [run for run in self._all_runs if (run.path is None) == in_memory]
            worn = [run for run in files if len(run) < WORN_PART * len(run.entries)]
            if worn:
                return worn + [run for run in files if run not in worn and len(run) <= FILE_COUNT_MAX // 2][-1:]
            files.sort(key=len)
            for one, other in itertools.pairwise(files):
                if len(other) <= 2 * len(one) and len(one) + len(other) <= FILE_COUNT_MAX:
                    return [one, other]
        return []

    def _rewrite(self, runs: Sequence[Run], dropped: Int64s | None = None, *, in_memory: bool = False) -> None:
        """Replace runs by one, without those that are dropped; by a file, unless they are dropped from memory."""
        with self._changed:
            self._is_pausing = True
            try:
                is_confirmed = self._changed.wait_for(lambda: not self._unconfirmed_count, CONFIRM_SECONDS_MAX)
            finally:
                self._is_pausing = False
            if not is_confirmed:
                raise ServiceUnavailableError("timers that were appended are not confirmed yet: their files wait")
            begins = [run.cursor for run in runs]
            entries = Entries.joined([run.rest() for run in runs])
        if dropped is not None:
            entries = entries.pick(~_is_in(entries.queue_offsets, dropped))
        if in_memory or not len(entries) or (dropped is not None and runs[0].path is None):
            new = Run(entries)
        else:
            assert self._files is not None
            new = self._files.write(entries)
        with self._changed:
            for run, begin in zip(runs, begins, strict=True):
                gone = run.entries.queue_offsets[begin : run.cursor]
                new.cursor += len(gone) if dropped is None else int(np.count_nonzero(~_is_in(gone, dropped)))
            self._replace(runs, new)

    def _replace(self, runs: Sequence[Run], new: Run) -> None:
        self._all_runs = [run for run in self._all_runs if run not in runs]
        if len(new):
            self._all_runs.append(new)

    # -- the thread that takes

    def take(self, until_millis: int, count: int) -> Entries:
        """Take the first entries that are due at a time or before, at most so many; each is confirmed or put back."""
        with self._changed:
            if self._is_pausing:
                return Entries.of(())
            runs = [run for run in self._runs() if run.first_due_millis() <= until_millis]
            parts: list[Entries] = []
            for run in runs:
                part = run.entries.pick(slice(run.cursor, run.cursor + count))
                parts.append(part.pick(slice(0, int(np.searchsorted(part.dues_millis, until_millis, side="right")))))
            numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            if parts:
                dues = np.concatenate([part.dues_millis for part in parts])
                order = np.lexsort((np.concatenate([part.queue_offsets for part in parts]), dues))[:count]
                for number, taken_count in enumerate(np.bincount(numbers[order], minlength=len(parts)).tolist()):
                    runs[number].cursor += taken_count
                    parts[number] = parts[number].pick(slice(0, taken_count))
            taken = Entries.joined(parts)
            if len(taken) == count:
                place = Passed(int(taken.dues_millis[-1]), int(taken.queue_offsets[-1]) + 1)
            else:
                place = Passed(until_millis + 1, 0)
            self.passed = max(self.passed, place)
            self._unconfirmed_count += len(taken)
            return taken

    def confirm(self, count: int) -> None:
        """So many of the entries that were taken are done, and the log says so."""
        with self._changed:
            self._unconfirmed_count -= count
            self._changed.notify_all()

    def put_back(self, entries: Entries) -> None:
        """Entries that were taken wait again."""
        with self._changed:
            self._all_runs.append(Run(entries))
            self.confirm(len(entries))

    def forget_pages(self) -> None:
        """Give the memory of files back."""
        with self._changed:
            for run in self._all_runs:
                run.forget_pages()

    # -- all threads

    def first_due_millis(self) -> int | None:
        """When the first entry is due; None when there is none."""
        with self._changed:
            return min((run.first_due_millis() for run in self._runs()), default=None)

    def summary(self) -> tuple[int, Passed, list[int]]:
        """`next_queue_offset`, `passed`, and the positions of the entries before that, sorted: they came later."""
        with self._changed:
            late: list[int] = []
            for run in self._runs():
                rest = run.rest()
                late += rest.queue_offsets[: rest.place(*self.passed)].tolist()
            return self.next_queue_offset, self.passed, sorted(late)

    def find(self, after_millis: int, until_millis: int, key: int) -> Entries:
        """The entries with a key that are due after a time, and at another one or before."""
        with self._changed:
            found: list[Entries] = []
            for run in self._runs():
                rest = run.rest()
                window = rest.pick(slice(rest.place(after_millis + 1), rest.place(until_millis + 1)))
                found.append(window.pick(window.keys == key))
            return Entries.joined(found)

    def has(self, due_millis: int, queue_offset: int) -> bool:
        """Whether an entry is here."""
        with self._changed:
            for run in self._runs():
                rest = run.rest()
                at = rest.place(due_millis, queue_offset)
                if at < len(rest) and rest.queue_offsets[at] == queue_offset and rest.dues_millis[at] == due_millis:
                    return True
            return False

    def page(self, place: Passed, count: int) -> Entries:
        """The first entries from a place on, at most so many; they stay."""
        with self._changed:
            parts: list[Entries] = []
            for run in self._runs():
                rest = run.rest()
                begin = rest.place(*place)
                parts.append(rest.pick(slice(begin, begin + count)))
            return Entries.joined(parts).pick(slice(0, count))

    def stored_before(self, commit_log_offset: int, count: int) -> Entries:
        """Entries whose records are before an offset of the log (bytes), at most so many."""
        with self._changed:
            found: list[Entries] = []
            for run in self._runs():
                if run.oldest_offset() < commit_log_offset and count > 0:
                    rest = run.rest()
                    at = np.flatnonzero(rest.commit_log_offsets < commit_log_offset)[:count]
                    found.append(rest.pick(at))
                    count -= len(at)
            return Entries.joined(found)

    def oldest_offset(self) -> int | None:
        """The least commit log offset of all (bytes); None when there is none."""
        with self._changed:
            return min((run.oldest_offset() for run in self._runs()), default=None)

    def count(self) -> int:
        """How many there are."""
        with self._changed:
            return sum(map(len, self._runs()))

    def count_in(self, queue_offsets: Int64s) -> int:
        """How many of some positions are here. `queue_offsets`: sorted."""
        with self._changed:
            return sum(int(np.count_nonzero(_is_in(run.rest().queue_offsets, queue_offsets))) for run in self._runs())

    def _runs(self) -> list[Run]:
        """Those with entries."""
        with self._changed:
            return [run for run in self._all_runs if len(run)]


def _is_in(values: Int64s, wanted: Int64s) -> Mask:
    """Whether each value is among some sorted ones."""
    if not len(wanted):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: Mask = wanted[at] == values
    return found
