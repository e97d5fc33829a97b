"""What runs beside a shard that is soaked: jobs of its operator, and the keeping of every file of its log for the judge.

The jobs ship the sealed files to a cold tier, take a backup and verify all backups, of the store of one replica after the
other. Retention removes files meanwhile. So each file of each replica gets a second name in `kept/REPLICA/` as soon as it is
there: the bytes stay, whatever is written to it or becomes of its first name.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from cli.backup.places import DirectoryPlace, read_backups
from cli.backup.restoring import Moment, restore_store
from cli.backup.taking import take_backup, verify_backups
from pipeline.archive import ship_cold
from store.errors import ServiceUnavailableError
from tests.cluster.shard import BROKER_NAME
from tests.support.background import Background

KEEP_SECONDS = 0.5  # far below the time for which a file stays


class Keeper(Background):
    """See the top of this file; it runs for the time of the block.

    Args:
        directory: for what is kept: `kept`, `backups`, `cold`.
        stores: of the replicas, by name.
        seconds_between: from one round of jobs to the next.
    """

    def __init__(self, directory: Path, stores: Mapping[str, Path], seconds_between: float) -> None:
        self.problems: list[str] = []
        self.backup_count = self.later_count = self.shipped_count = 0
        self.cold = f"file://{directory / 'cold'}"
        self.place = DirectoryPlace(directory / "backups" / BROKER_NAME)
        self._directory = directory
        self._stores = stores
        self._seconds_between = seconds_between
        for name in stores:
            (directory / "kept" / name).mkdir(parents=True)
        (directory / "cold").mkdir()
        super().__init__((self._run, self._keep))

    @property
    def kept_file_count(self) -> int:
        """Files that the log has had."""
        return len({path.name for path in self._directory.glob("kept/*/*")})

    def back_up(self, name: str) -> int | None:
        """Take a backup of a replica's store and verify all; where it ends, or None: this replica is behind the one before."""
        try:
            report = take_backup(self._stores[name], self.place, BROKER_NAME)
        except ServiceUnavailableError:
            self.later_count += 1
            return None
        self.backup_count += 1
        # A replica that was killed is no live store until it starts again; the backup ends where its log was known to be whole.
        found = [finding for finding in report.findings if finding["kind"] != "log_not_whole"]
        self.problems += [f"a backup of {name} found {finding}" for finding in found]
        self.problems += [f"a backup is damaged: {finding}" for finding in verify_backups(self.place).findings]
        return int(report.counts["end_offset"])

    def _run(self) -> None:
        rounds = 0
        while not self.stopping.wait(self._seconds_between):
            name = list(self._stores)[rounds % len(self._stores)]
            rounds += 1
            try:
                report = ship_cold.run(self._stores[name], self.cold, broker_name=BROKER_NAME)
                self.shipped_count += int(report.counts["shipped_file_count"])
                self.problems += [f"ship-cold of {name} found {finding}" for finding in report.findings]
                self.back_up(name)
            except Exception as error:  # it is a problem of the run
                self.problems.append(f"the jobs of {name} failed: {error!r}")

    def _keep(self) -> None:
        while not self.stopping.wait(KEEP_SECONDS):
            self.keep_files()

    def keep_files(self) -> None:
        """Give each file that a log has now its second name."""
        for name, store in self._stores.items():
            for path in (store / "commitlog").glob("[0-9]*"):
                kept = self._directory / "kept" / name / path.name
                with contextlib.suppress(FileNotFoundError):  # retention has just removed it
                    if path.name.isdecimal() and not (kept.exists() and kept.samefile(path)):
                        kept.unlink(missing_ok=True)  # a cut log goes on in a new file
                        os.link(path, kept)

    def whole_log(self, end: int) -> Path:
        """A store root with all of the log up to an offset, zeros behind it; differences of replicas become problems.

        Nobody may have the logs open.
        """
        self.keep_files()
        root = self._directory / "judged"
        log = root / "commitlog"
        log.mkdir(parents=True)
        for name in sorted({path.name for path in self._directory.glob("kept/*/*")}):
            size = end - int(name)
            if size <= 0:
                continue
            copies = sorted(self._directory.glob(f"kept/*/{name}"))
            contents = {path: path.read_bytes()[:size].rstrip(b"\0") for path in copies}
            if len(set(contents.values())) > 1:
                sizes = {path.parent.name: len(content) for path, content in contents.items()}
                self.problems.append(f"the files {name} of the replicas differ up to {end}; bytes by replica: {sizes}")
            longest = max(copies, key=lambda path: len(contents[path]))
            (log / name).write_bytes(contents[longest].ljust(longest.stat().st_size, b"\0"))
        return root

    def restore_problems(self, whole: Path) -> list[str]:
        """The last backup, and the first one that is still there, restored: each equals the log up to its end."""
        backups, damages = read_backups(self.place)
        problems = [damage.message for damage in damages]
        for number, backup in enumerate({each.end_offset: each for each in (backups[0], backups[-1])}.values()):
            out = self._directory / f"restored-{number}"
            report = restore_store(self.place, out, Moment(offset=backup.end_offset))
            problems += [f"the restored store has {finding}" for finding in report.findings]
            restored = {path.name: path.read_bytes() for path in (out / "commitlog").iterdir()}
            names = [path.name for path in (whole / "commitlog").iterdir()]
            first = min(map(int, restored), default=0)
            expected = {name for name in names if first <= int(name) < backup.end_offset}
            if restored.keys() != expected:
                problems.append(f"the restored store has the files {sorted(restored)}, not {sorted(expected)}")
            for name in expected & restored.keys():
                size = backup.end_offset - int(name)
                content = (whole / "commitlog" / name).read_bytes()
                if restored[name] != content[:size].ljust(len(content), b"\0"):
                    problems.append(f"the log file {name} of the backup up to {backup.end_offset} differs from the log")
        return problems


def disk_bytes(directory: Path) -> int:
    """Blocks of all files below a directory; one with two names counts once."""
    found: dict[int, int] = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds))
