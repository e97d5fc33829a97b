"""A retention with all that it looks at in the test's hands: clocks, disk, builders, snapshot; real, small files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from commitlog_svc.retention.disk_space import LOOK_SECONDS, DiskLimits, DiskSpace
from commitlog_svc.retention.retention import Retention, RetentionLimits
from commitlog_svc.retention.retention_state import AgeClock
from store.files.file_system import PathLike
from store.files.mapped_files import MappedFileQueue
from tests.support.faulty_file_system import FaultyFileSystem

FILE_SIZE_BYTES = 100
NOON_MILLIS = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 12 * 3_600_000
HOUR_MILLIS = 3_600_000
EVERY_HOUR = frozenset(range(24))
LEVEL_FREE_BYTES = {"ok": 60, "clean": 20, "clean-forcibly": 12, "full": 5}  # of 100


class SizedFileSystem(FaultyFileSystem):
    """Real files on a disk of 100 bytes that is as full as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.free_bytes = LEVEL_FREE_BYTES["ok"]

    def disk_usage(self, path: PathLike) -> tuple[int, int]:
        return 100, self.free_bytes


class Machine:
    """What outlives a process: the disk and the clocks; milliseconds."""

    def __init__(self) -> None:
        self.fs = SizedFileSystem()
        self.boot_id = "boot-1"
        self.boot_millis = 5_000_000
        self.wall_millis = NOON_MILLIS

    def pass_time(self, millis: int) -> None:
        """Time that really passes."""
        self.boot_millis += millis
        self.wall_millis += millis

    def reboot(self, wall_difference_millis: int) -> None:
        """Off and on again; all that is known is what the wall clock says afterwards."""
        self.boot_id += "+"
        self.boot_millis = 1000
        self.wall_millis += wall_difference_millis

    def set_level(self, level: str) -> None:
        """How full the disk is."""
        self.fs.free_bytes = LEVEL_FREE_BYTES[level]


class Bench:
    """One life of a retention.

    Attributes:
        all: those whose files are open.
        needed: from where on builders need the log; nobody needs anything by default.
        safe_offset: behind it nothing may go; None: the middle of the last file.
    """

    all: ClassVar[list["Bench"]] = []

    def __init__(
        self,
        root: Path,
        machine: Machine | None = None,
        *,
        log_end_offset: int = 1 << 40,
        held_by: Callable[[], Sequence[str]] = lambda: (),
        **limits: object,
    ) -> None:
        self.machine = machine if machine is not None else Machine()
        self.root = root
        self.needed: dict[str, int] = {}
        self.safe_offset: int | None = None
        fs = self.machine.fs
        self.files = MappedFileQueue(fs, root / "commitlog", FILE_SIZE_BYTES)
        self.all.append(self)
        self.files.load()

        def monotonic() -> float:
            return self.machine.boot_millis / 1000

        given = {"file_reserved_millis": 72 * HOUR_MILLIS, "delete_hours": EVERY_HOUR} | limits
        self.disk = DiskSpace(fs, root, DiskLimits(75, 85, 90, 100, 100, 100), monotonic)
        self.retention = Retention(
            fs,
            root / "state",
            self.files,
            RetentionLimits(**given),  # type: ignore[arg-type]
            self.disk,
            lambda: dict(self.needed),
            lambda: self.files.last_offset - 50 if self.safe_offset is None else self.safe_offset,
            lambda: self.machine.wall_millis,
            age_clock=AgeClock(
                lambda: self.machine.wall_millis, lambda: self.machine.boot_millis, self.machine.boot_id
            ),
            clock=monotonic,
            held_by=held_by,
        )
        self.retention.load(log_end_offset)

    def add_files(self, count: int, first_offset: int = 0) -> None:
        """New files behind the last; all but the very last are complete."""
        for _ in range(count):
            self.files.add_next(first_offset)

    def turn(self, millis: int = 0) -> None:
        """Lets time pass, and the chore come around once."""
        self.machine.pass_time(millis)
        self.retention.turn()

    def settle(self, seconds: float = 60.0, step_millis: int = 100) -> None:
        """Many turns."""
        for _ in range(int(seconds * 1000 / step_millis)):
            self.turn(step_millis)

    def press(self, level: str) -> None:
        """The disk fills or empties, and everybody has seen it."""
        self.machine.set_level(level)
        self.turn(int(LOOK_SECONDS * 1000))

    def again(self, **options: object) -> "Bench":
        """The next process on the same root; nothing was closed, as after a kill."""
        return Bench(self.root, self.machine, **options)  # type: ignore[arg-type]

    @property
    def offsets(self) -> list[int]:
        """First offsets of the files that are there, by the directory."""
        return sorted(int(path.name) for path in (self.root / "commitlog").iterdir())

    @property
    def told(self) -> list[tuple[int, int, int, str]]:
        """The events, shortly: begin, end, files, reason."""
        return [(e.begin_offset, e.end_offset, e.file_count, e.reason) for e in self.retention.events]
