"""What an audit of a cluster keeps from run to run, `state/audit.json`: earlier findings, hashes, and a run that is not over.

    findings    when each was first seen (milliseconds since 1970)
    hashes      SHA-256 of each whole log file, with the file's stamp and when it was read
    segments    the manifests of an archive that were verified, likewise
    run         of a run that was killed: what it was asked, the fixed ends of the logs, the stores that are audited

A state that is lost costs reading everything again, and all findings count as new.
"""

from pathlib import Path
from typing import Any

from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

VERSION = 1
# A killed run is continued for so long; later its stores may have changed too much to be one picture.
RESUME_MILLIS_MAX = 24 * 3_600_000


class AuditState:
    """The state of one output directory.

    Args:
        fs: the disk port.
        path: its file.
        asked: what the run is about; a killed run about something else is not continued.
        now_millis: milliseconds since 1970.
        reread_millis: a hash is trusted for so long.
    """

    def __init__(self, fs: FileSystem, path: Path, asked: list[str], now_millis: int, reread_millis: int) -> None:
        self._fs, self._path = fs, path
        self._now, self._reread = now_millis, reread_millis
        state = read_json_state(fs, path) or {}
        if state.get("version") != VERSION:
            state = {}
        self._findings: dict[str, int] = state.get("findings") or {}
        self._hashes: dict[str, list[Any]] = state.get("hashes") or {}
        self._used: set[str] = set()
        run = state.get("run")
        self.is_resumed = bool(
            run and run["asked"] == asked and 0 <= now_millis - run["begun_millis"] <= RESUME_MILLIS_MAX
        )
        self._run: dict[str, Any] = (
            run if run and self.is_resumed else {"asked": asked, "begun_millis": now_millis, "logs": {}, "stores": {}}
        )

    def known_hash(self, key: str, stamp: object) -> str | None:
        """The hash of a file that is as it was when it was read; None to read it."""
        self._used.add(key)
        known = self._hashes.get(key)
        if known is None or stamp is None or known[0] != list(stamp):  # type: ignore[call-overload]
            return None
        # What this very run has read is not read again, even with a full read.
        if known[2] < self._run["begun_millis"] and self._now - known[2] >= self._reread:
            return None
        return str(known[1])

    def keep_hash(self, key: str, stamp: tuple[int, ...], sha256: str) -> None:
        """Remembers the hash of a file."""
        self._used.add(key)
        self._hashes[key] = [list(stamp), sha256, self._now]

    def kept(self, part: str, key: str) -> Any:
        """What the killed run had of `part`, `logs` or `stores`, for a replica; None: nothing."""
        return self._run[part].get(key)

    def keep(self, part: str, key: str, value: Any) -> None:
        """Remembers it for the case that the run is killed."""
        self._run[part][key] = value

    def first_seen(self, finding: str) -> int | None:
        """When an earlier run first saw a finding (milliseconds since 1970); None: it is new."""
        return self._findings.get(finding)

    @property
    def begun_millis(self) -> int:
        """When the run began, or the killed one that it continues (milliseconds since 1970)."""
        return int(self._run["begun_millis"])

    @property
    def earlier_count(self) -> int:
        """Findings of the run before."""
        return len(self._findings)

    def save(self) -> None:
        """Writes the state, with the run in it."""
        self._write(self._findings, self._hashes, self._run)

    def finish(self, findings: dict[str, int]) -> None:
        """Writes the state of a run that is over: its findings with their first times, and only hashes that it used."""
        self._write(findings, {key: row for key, row in self._hashes.items() if key in self._used}, None)

    def _write(self, findings: dict[str, int], hashes: dict[str, list[Any]], run: dict[str, Any] | None) -> None:
        state = {"version": VERSION, "findings": findings, "hashes": hashes, "run": run}
        write_json_state(self._fs, self._path, state)
