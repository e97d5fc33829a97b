"""The stored bytes of wanted messages, by the log alone, with the kernel and without."""

from pathlib import Path
from typing import Any

import pytest

from store.errors import RecordCorruptedError
from store.files.file_system import RealFileSystem
from store.walk.frame_walk import FrameFilter, WalkedLog, walk_frames
from tests.store.walk.logs import closed, frames_of, message

FILE_BYTES = 4000
MESSAGES = [
    message("orders" if number % 2 else "payments", f"KEYS\x01k{number} all\x02", queue_id=number % 3)
    for number in range(12)
]
FRAMES = frames_of(MESSAGES, base=0)
TIMES = [int.from_bytes(frame[56:64], "big") for frame in FRAMES]


def write(root: Path, *contents: bytes) -> Path:
    """A log of these files."""
    (root / "commitlog").mkdir()
    for number, content in enumerate(contents):
        path = root / "commitlog" / f"{number * FILE_BYTES:020d}"
        path.write_bytes(content.ljust(FILE_BYTES, b"\0"))
    return root


def walk(root: Path, wanted: FrameFilter, **named: Any) -> tuple[list[tuple[str, bytes]], WalkedLog]:
    seen: list[tuple[str, bytes]] = []
    return seen, walk_frames(RealFileSystem(), root, wanted, lambda topic, frame: seen.append((topic, frame)), **named)


WANTED = [
    (FrameFilter(), range(12)),
    (FrameFilter(topic="orders"), range(1, 12, 2)),
    (FrameFilter(queue_id=2), range(2, 12, 3)),
    (FrameFilter(topic="orders", queue_id=0), (3, 9)),
    (FrameFilter(begin_queue_offset=43, end_queue_offset=45), (3, 4)),
    (FrameFilter(key="k7"), (7,)),
    (FrameFilter(key="all"), range(12)),
    (FrameFilter(key="k"), ()),
    (FrameFilter(begin_millis=max(TIMES)), [n for n in range(12) if TIMES[n] == max(TIMES)]),
    (FrameFilter(end_millis=min(TIMES)), [n for n in range(12) if TIMES[n] == min(TIMES)]),
]


@pytest.mark.parametrize(("wanted", "numbers"), WANTED)
def test_wanted_messages_and_no_others(tmp_path: Path, wanted: FrameFilter, numbers: Any, kernel_mode: str) -> None:
    seen, walked = walk(write(tmp_path, b"".join(FRAMES)), wanted)
    assert seen == [(MESSAGES[number].topic, FRAMES[number]) for number in numbers]
    assert walked == WalkedLog(0, sum(map(len, FRAMES)), 12, None)


def test_a_walk_goes_through_all_files_and_tells_its_progress(tmp_path: Path, kernel_mode: str) -> None:
    second = frames_of(MESSAGES, base=FILE_BYTES)
    root = write(tmp_path, closed(*FRAMES, size_bytes=FILE_BYTES), b"".join(second))
    told: list[tuple[int, int]] = []
    seen, walked = walk(root, FrameFilter(), on_progress=lambda done, total: told.append((done, total)))
    assert [frame for _, frame in seen] == [*FRAMES, *second]
    assert walked.end_offset == FILE_BYTES + sum(map(len, second))
    assert told[0] == (0, 2 * FILE_BYTES)
    assert told[-1] == (2 * FILE_BYTES, 2 * FILE_BYTES)


@pytest.mark.parametrize(("tail", "torn"), [(bytes(50), False), (FRAMES[0][:50], True)])
def test_a_tail_that_a_crash_left_ends_the_log(tmp_path: Path, tail: bytes, torn: bool, kernel_mode: str) -> None:
    seen, walked = walk(write(tmp_path, b"".join(FRAMES) + tail), FrameFilter())
    assert len(seen) == 12
    assert (walked.torn_tail is not None) == torn


@pytest.mark.parametrize("hole", [bytes(len(FRAMES[3])), b"?" * 20])
def test_damage_with_records_behind_it_is_refused(tmp_path: Path, hole: bytes, kernel_mode: str) -> None:
    at = sum(map(len, FRAMES[:3]))
    log = bytearray(b"".join(FRAMES))
    log[at : at + len(hole)] = hole
    with pytest.raises(RecordCorruptedError) as caught:
        walk(write(tmp_path, bytes(log)), FrameFilter())
    assert caught.value.metadata["commitLogOffset"] == str(at)
    assert f"goes on at {at + len(FRAMES[3])}" in caught.value.message
