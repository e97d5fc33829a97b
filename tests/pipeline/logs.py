"""Store roots for tests of the pipeline: closed log files one behind the other, made of records that tests choose."""

import random
from collections.abc import Sequence
from pathlib import Path

from store.format.record import encode_blank
from tests.store.walk.logs import frames_of, message

FILE_BYTES = 4096


def write_log(root: Path, frames: Sequence[bytes], *, file_bytes: int, base: int = 0) -> Path:
    """A store root with one log file that holds these frames, which were made for offset `base` on."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    (directory / f"{base:020d}").write_bytes(b"".join(frames).ljust(file_bytes, b"\0"))
    return root


def write_files(root: Path, *, file_count: int = 4, file_bytes: int = FILE_BYTES, seed: int = 7) -> list[bytes]:
    """A log of that many files, all but the last closed by a blank, and one that was made ahead; its frames in order."""
    (root / "commitlog").mkdir(parents=True)
    chance = random.Random(seed)
    frames: list[bytes] = []
    for number in range(file_count):
        base, data = number * file_bytes, b""
        while True:
            body = chance.randbytes(chance.randrange(300))
            topic = chance.choice(("orders", "payments"))
            one = message(topic, body=body, queue_id=chance.randrange(3))
            (frame,) = frames_of([one], base=base + len(data))
            if len(data) + len(frame) + 8 > file_bytes or (number == file_count - 1 and len(data) > file_bytes // 3):
                break
            frames.append(frame)
            data += frame
        if number < file_count - 1:
            data += encode_blank(file_bytes - len(data))
        (root / "commitlog" / f"{base:020d}").write_bytes(data.ljust(file_bytes, b"\0"))
    ahead = root / "commitlog" / f"{file_count * file_bytes:020d}"
    ahead.write_bytes(bytes(file_bytes))
    return frames


def log_file(root: Path, number: int = 0, file_bytes: int = FILE_BYTES) -> Path:
    """One file of the log."""
    return root / "commitlog" / f"{number * file_bytes:020d}"


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Puts other bytes into a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
