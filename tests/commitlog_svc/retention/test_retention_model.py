"""Random lives of a retention: appends, clocks, disks, builders and crashes, checked after every step.

The model knows nothing of how files are chosen; it checks what must never happen, whatever is chosen:
the file written to or needed by the snapshot is gone; a needed file is gone without force or without an event; more went than
the rate allows; a file went too young, by the time that really passed; bytes are missing that no event tells of.
"""

import contextlib
import errno
import itertools
import random
from pathlib import Path

from commitlog_svc.retention.disk_space import LOOK_SECONDS
from commitlog_svc.retention.retention import BUILDER_GRACE_MILLIS, SPARED_MILLIS
from commitlog_svc.retention.retention_state import EVENT_COUNT_MAX, read_retention_state
from tests.commitlog_svc.retention_bench import FILE_SIZE_BYTES, HOUR_MILLIS, LEVEL_FREE_BYTES, Bench, Machine
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

RESERVED_MILLIS = 10 * HOUR_MILLIS
INTERVAL_MILLIS, BATCH_COUNT, WINDOW_MILLIS = 100, 3, 5000
STEP_COUNT = 120


class Killed(BaseException):
    """The process dies at a system call."""


class Life:
    """A retention, and what the model knows of it."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.rng = rng
        self.machine = Machine()
        self.root = root
        self.true_millis = 0  # what really passed since the beginning
        self.complete_since: dict[int, int] = {}
        self.end_offset = 0
        self.safe_offset = 0
        self.needed = {"consumequeue": 0, "index": 0}
        self.went: list[tuple[int, int]] = []  # monotonic millis in this life, file offset
        self.full_since: int | None = None
        self.relieved_since: int | None = None
        self.forced_count = self.lost_count = 0
        self.bench = self.start()
        self.present = [0]
        self.bench.add_files(2)

    def start(self) -> Bench:
        bench = Bench(
            self.root,
            self.machine,
            log_end_offset=self.end_offset,
            file_reserved_millis=RESERVED_MILLIS,
            delete_files_interval_millis=INTERVAL_MILLIS,
            delete_file_batch_count_max=BATCH_COUNT,
            clean_resource_interval_millis=WINDOW_MILLIS,
        )
        bench.needed = self.needed
        bench.safe_offset = max(0, self.safe_offset - 1)
        self.went = []
        self.full_since = None
        return bench

    # -- steps

    def append(self) -> None:
        if self.machine.fs.free_bytes == LEVEL_FREE_BYTES["full"]:
            return
        self.end_offset += self.rng.randrange(1, 180)
        while self.bench.files.last_offset < self.end_offset + 1:
            self.bench.files.add_next()
        if self.rng.random() < 0.8:  # the snapshot follows
            self.safe_offset = self.end_offset
            self.bench.safe_offset = self.safe_offset - 1

    def build(self) -> None:
        builder = self.rng.choice(list(self.needed) or ["index"])
        behind = self.rng.choice((0, 0, 150, 1000))
        self.needed[builder] = max(self.needed.get(builder, 0), self.end_offset - behind)

    def switch_off(self) -> None:
        if self.rng.random() < 0.1:
            self.needed.pop("index", None)

    def pass_time(self) -> None:
        self._turn_for(self.rng.choice((50, 200, 1000, 60_000, HOUR_MILLIS, 4 * HOUR_MILLIS)))

    def jump(self) -> None:
        if not self._is_clock_saved():
            return
        self.machine.wall_millis += self.rng.choice((-2, 1, 80_000, -80_000)) * HOUR_MILLIS

    def fill(self) -> None:
        level = self.rng.choice(("ok", "ok", "clean", "clean-forcibly", "full"))
        self.machine.set_level(level)

    def no_room_for_state(self) -> None:
        fault = self.machine.fs.fail("pwrite", errno.ENOSPC, path="retention.json", lasting=True)
        self._turn_for(300)
        fault.clear()

    def kill(self) -> None:
        self._restart()

    def kill_at_a_call(self) -> None:
        kind = self.rng.choice(("unlink", "rename", "fdatasync", "fsync_dir", "pwrite"))
        before = self.rng.random() < 0.5
        real = getattr(self.machine.fs, kind)

        def dying(*arguments: object) -> None:
            if not before:
                real(*arguments)
            raise Killed

        setattr(self.machine.fs, kind, dying)
        with contextlib.suppress(Killed):
            self._turn_for(600)
        delattr(self.machine.fs, kind)
        self._restart()

    def reboot(self) -> None:
        self._turn_for(100)
        if not self._is_clock_saved():
            return
        off_millis = self.rng.choice((1000, HOUR_MILLIS))
        self.true_millis += off_millis
        self.machine.reboot(self.rng.choice((off_millis, -2 * HOUR_MILLIS, 87_600 * HOUR_MILLIS)))
        self._restart()

    # -- inside

    def _is_clock_saved(self) -> bool:
        """Whether the state tells of this boot and of the newest jump: one between a boot and a save fools everybody."""
        saved, machine = read_retention_state(self.machine.fs, self.root / "state").clock, self.machine
        if saved is None or saved.boot_id != machine.boot_id:
            return False
        return saved.wall_millis - saved.boot_millis == machine.wall_millis - machine.boot_millis

    def _restart(self) -> None:
        self.bench.files.close()
        self.bench = self.start()
        assert self.bench.files.first_offset == self.bench.offsets[0]
        self.check()

    def _turn_for(self, millis: int) -> None:
        """The chore comes around ten times in that time, its files counted each time."""
        for _ in range(10):
            self.machine.pass_time(millis // 10)
            self.true_millis += millis // 10
            self._note_pressure()
            before = self.bench.offsets
            needed = dict(self.needed)
            self.see_complete()
            try:
                self.bench.retention.turn()
            finally:
                self._check_removals(before, needed)
            self.check()

    def see_complete(self) -> None:
        for file in self.bench.files.files:
            if file.last_offset <= self.safe_offset - 1:
                self.complete_since.setdefault(file.first_offset, self.true_millis)

    def _note_pressure(self) -> None:
        now = self.machine.boot_millis
        if self.machine.fs.free_bytes <= LEVEL_FREE_BYTES["clean-forcibly"]:
            self.relieved_since = None
            self.full_since = now if self.full_since is None else self.full_since
        else:
            self.relieved_since = now if self.relieved_since is None else self.relieved_since
            if now - self.relieved_since >= LOOK_SECONDS * 1000:  # a shorter spell may go unseen
                self.full_since = None

    def _check_removals(self, before: list[int], needed: dict[str, int]) -> None:
        gone = sorted(set(before) - set(self.bench.offsets))
        assert len(gone) <= 1
        assert gone == before[: len(gone)], "only from the front"
        for offset in gone:
            end = offset + FILE_SIZE_BYTES
            assert end <= self.safe_offset - 1, "active, or the snapshot's"
            free_bytes = self.machine.fs.free_bytes
            age_millis = self.true_millis - self.complete_since[offset]
            is_full = free_bytes == LEVEL_FREE_BYTES["full"]
            lost = {builder: need for builder, need in needed.items() if need < end}
            if lost:
                assert is_full
                assert self.full_since is not None
                assert self.machine.boot_millis - self.full_since >= BUILDER_GRACE_MILLIS
                self.lost_count += 1
            if age_millis < RESERVED_MILLIS:
                assert free_bytes <= LEVEL_FREE_BYTES["clean-forcibly"]
                assert is_full or age_millis >= SPARED_MILLIS
                self.forced_count += 1
            now = self.machine.boot_millis
            self.went.append((now, offset))
            assert all(b - a >= INTERVAL_MILLIS for (a, _), (b, _) in itertools.pairwise(self.went[-2:]))
            window = [at for at, _ in self.went if at > now - WINDOW_MILLIS]
            assert len(window) <= 2 * BATCH_COUNT, "two batches at most touch any stretch as long as a window"

    def check(self) -> None:
        offsets = self.bench.offsets
        files = [file.first_offset for file in self.bench.files.files]
        assert offsets == files == list(range(offsets[0], offsets[-1] + 1, FILE_SIZE_BYTES))
        events = self.bench.retention.events
        assert len(events) <= EVENT_COUNT_MAX
        end = 0
        for event in events:
            assert end == event.begin_offset < event.end_offset
            assert event.file_count * FILE_SIZE_BYTES == event.end_offset - event.begin_offset
            end = event.end_offset
        assert end == offsets[0] == self.bench.files.first_offset, "every missing byte is told of"


def live(root: Path, seed: int) -> Life:
    rng = random.Random(seed)
    life = Life(root, rng)
    steps = [life.append] * 8 + [life.build] * 3 + [life.pass_time] * 5 + [life.jump, life.fill, life.fill]
    steps += [life.switch_off, life.no_room_for_state, life.kill, life.kill_at_a_call, life.reboot]
    for _ in range(STEP_COUNT):
        rng.choice(steps)()
        life.check()
    life.bench.files.close()
    return life


def test_random_lives_never_lose_what_they_must_not(tmp_path: Path) -> None:
    seed = pick_seed("retention lives")
    removed = forced = lost = 0
    for i in range(amount(sample=8, change=150, full=3000)):
        life = live(tmp_path / str(i), seed + i)
        removed += life.bench.offsets[0] // FILE_SIZE_BYTES
        forced += life.forced_count
        lost += life.lost_count
    print(f"removed {removed} files, {forced} by force, {lost} from under a builder")

    assert removed
    assert forced


def test_a_seed_replays_the_same_life(tmp_path: Path) -> None:
    first, second = live(tmp_path / "a", 4711), live(tmp_path / "b", 4711)

    assert first.bench.told == second.bench.told
    assert first.bench.offsets == second.bench.offsets
