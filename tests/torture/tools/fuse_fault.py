"""A file system that passes everything on to a directory, except for the faults that it is told of while it runs.

    with FaultyMount(directory, mount_point) as disk:
        fault = disk.add(Fault("write", errno.EIO, contains=b"marker", count=1))
        ...
        assert disk.hits(fault) == 1
        disk.clear()

An image file on it, under a loop device with direct I/O, makes a disk with a bad block: see loop_disk.py. With `record` it
also writes a block log: see block_log.py. The file system is served by a process of its own, which dies with this one.
"""

import dataclasses
import errno
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.torture.tools import die_with_parent, leave_to_namespace, namespace_before, unmount_lazily

ROOT = Path(__file__).parents[3]
ANSWER_SECONDS_MAX = 60.0
MAX_WRITE_BYTES = 128 << 10
ENTRY = struct.Struct("=BQI")  # kind, position, size_bytes; the bytes follow
WRITE, FLUSH = 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and when.

    Attributes:
        op: `write`, `read` or `fsync`.
        errno: of the error; ignored by other kinds.
        kind: `errno`; `flip` changes the lowest bit of the byte at `flip_at` of the data; `torn` keeps the first half of
            what is written and says that all of it was; `slow` takes `millis`, or until faults are cleared, and then works.
        contains: only data with these bytes in it (never for fsync).
        path_end: only files whose path ends so.
        skip: so many matches go through first.
        count: so many matches fail then; -1 for all.
        flip_at: see `kind`; counted from where `contains` is found.
        millis: see `kind`.
    """

    op: str
    errno: int = errno.EIO
    kind: str = "errno"
    contains: bytes = b""
    path_end: str = ""
    skip: int = 0
    count: int = -1
    flip_at: int = 0
    millis: int = 0


class FaultyMount:
    """The mounted file system.

    Args:
        directory: what it shows.
        mount_point: where; made if missing.
        record: a file that gets a block log of every file on it; None for no log.
        direct_io: no page cache above it (files on it cannot be mapped shared then).
    """

    def __init__(
        self, directory: Path, mount_point: Path, *, record: Path | None = None, direct_io: bool = True
    ) -> None:
        self.directory = directory
        self.mount_point = mount_point
        self.log_path = mount_point.with_name(mount_point.name + ".log")
        mount_point.mkdir(parents=True, exist_ok=True)
        outside = namespace_before()
        command = [sys.executable, "-P", "-m", __name__, str(directory), str(mount_point)]
        command += [str(record or ""), "direct" if direct_io else "cached", str(outside)]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
        with open(self.log_path, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                pass_fds=[outside],
            )
        try:
            self._read_answer()
        except BaseException:
            self.close()
            raise

    def add(self, fault: Fault) -> int:
        """From now on it happens; its number."""
        fields = dataclasses.asdict(fault) | {"contains": fault.contains.hex()}
        return int(self._ask({"add": fields})["number"])

    def clear(self) -> None:
        """No more faults."""
        self._ask({"clear": True})

    def hits(self, number: int) -> int:
        """How often a fault has struck."""
        return int(self._ask({})["hits"][number])

    def struck_nanoseconds(self) -> int:
        """When a fault struck last, by `time.monotonic_ns`; 0 when none did."""
        return int(self._ask({})["struck_nanoseconds"])

    def write_count(self) -> int:
        """How many writes it has seen."""
        return int(self._ask({})["write_count"])

    def close(self) -> None:
        """Unmounts it and ends its process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        unmount_lazily(self.mount_point)

    def __enter__(self) -> "FaultyMount":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._read_answer()

    def _read_answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS_MAX)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise RuntimeError(f"the FUSE process does not answer:\n{self.log_path.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Faults:
    """Who fails next; shared by the thread that serves and the one that listens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, list[int]]] = []  # the fault, [matches, hits]
        self._active: list[int] = []
        self._cleared = threading.Event()
        self.write_count = 0
        self._struck_nanoseconds = 0  # when a fault struck last, of the clock that never jumps

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if "add" in request:
                fields = request["add"] | {"contains": bytes.fromhex(request["add"]["contains"])}
                self._faults.append((Fault(**fields), [0, 0]))
                self._active.append(len(self._faults) - 1)
                self._cleared.clear()
            if "clear" in request:
                self._active.clear()
                self._cleared.set()
            hits = [counts[1] for _, counts in self._faults]
            return {
                "number": len(self._faults) - 1,
                "hits": hits,
                "write_count": self.write_count,
                "struck_nanoseconds": self._struck_nanoseconds,
            }

    def delay(self, fault: Fault) -> None:
        """As a slow disk, which serves one call after the other."""
        self._cleared.wait(fault.millis / 1000)

    def strike(self, op: str, path: str, data: bytes = b"") -> Fault | None:
        if op == "write":
            self.write_count += 1
        if not self._active:
            return None
        with self._lock:
            for number in self._active:
                fault, counts = self._faults[number]
                if fault.op != op or not path.endswith(fault.path_end) or fault.contains not in data:
                    continue
                counts[0] += 1
                if counts[0] <= fault.skip or counts[1] == fault.count:
                    continue
                counts[1] += 1
                self._struck_nanoseconds = time.monotonic_ns()
                return fault
        return None


def _flipped(data: bytes, fault: Fault) -> bytes:
    changed = bytearray(data)
    at = data.find(fault.contains) + fault.flip_at
    if at < len(changed):
        changed[at] ^= 1
    return bytes(changed)


def _serve(shown: str, mount_point: str, record: str, cache: str, outside: str) -> None:
    from fuse import FUSE, FuseOSError, Operations  # type: ignore[import-untyped]

    faults = _Faults()
    # Outside of the namespace the directory has no path, but what is open stays open.
    directory = f"/proc/self/fd/{os.open(shown, os.O_PATH | os.O_DIRECTORY)}"
    log = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if record else -1

    def listen() -> None:
        for line in sys.stdin.buffer:
            _say(faults.answer(json.loads(line)))
        os._exit(0)  # the parent closed or died

    def fail_if_told(op: str, path: str, data: bytes = b"") -> Fault | None:
        fault = faults.strike(op, path, data)
        if fault is not None and fault.kind == "errno":
            raise FuseOSError(fault.errno)
        if fault is not None and fault.kind == "slow":
            faults.delay(fault)
            return None
        return fault

    class PassThrough(Operations):  # type: ignore[misc]
        """Every call goes to the directory."""

        def init(self, path: str) -> None:
            leave_to_namespace(int(outside))
            threading.Thread(target=listen, daemon=True).start()
            _say({})

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            try:
                found = os.lstat(directory + path)
            except OSError as error:
                raise FuseOSError(error.errno) from None
            names = ("atime", "ctime", "gid", "mode", "mtime", "nlink", "size", "uid")
            return {f"st_{name}": getattr(found, f"st_{name}") for name in names}

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(directory + path)]

        def open(self, path: str, flags: int) -> int:
            return os.open(directory + path, flags & ~(os.O_APPEND | os.O_DIRECT | os.O_CREAT | os.O_EXCL))

        def create(self, path: str, mode: int, fi: object = None) -> int:
            return os.open(directory + path, os.O_RDWR | os.O_CREAT, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            data = os.pread(fh, size, offset)
            fault = fail_if_told("read", path, data)
            return _flipped(data, fault) if fault is not None else data

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            fault = fail_if_told("write", path, data)
            kept = data
            if fault is not None:
                kept = _flipped(data, fault) if fault.kind == "flip" else data[: len(data) // 2]
            if log >= 0:
                os.write(log, ENTRY.pack(WRITE, offset, len(kept)) + kept)
            os.pwrite(fh, kept, offset)
            return len(data)

        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            os.truncate(directory + path, length)

        def flush(self, path: str, fh: int) -> int:
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            fail_if_told("fsync", path)
            if log >= 0:
                os.write(log, ENTRY.pack(FLUSH, 0, 0))
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            fail_if_told("fsync", path)
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(directory + path, mode)

        def rmdir(self, path: str) -> None:
            os.rmdir(directory + path)

        def unlink(self, path: str) -> None:
            os.unlink(directory + path)

        def rename(self, old: str, new: str) -> None:
            os.rename(directory + old, directory + new)

        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(directory + path)
            names = ("bavail", "bfree", "blocks", "bsize", "frsize", "namemax", "files", "ffree", "favail")
            return {f"f_{name}": getattr(found, f"f_{name}") for name in names}

    options: dict[str, Any] = {"direct_io": True} if cache == "direct" else {}
    options |= {"foreground": True, "nothreads": True, "big_writes": True, "max_write": MAX_WRITE_BYTES}
    FUSE(PassThrough(), mount_point, fsname="reput-torture", **options)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent()
    _serve(*sys.argv[1:6])
