"""Messages as bytes, from log files: each is the one of the plain path, and what is not ordinary is left to it."""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_LIVE, StoredMessage
from services.convert import stored_message
from services.local import encoded_records
from services.local.encoded_records import EncodedRun, MessageForm, RecordEncoder
from services.local.log_files import LogFiles
from services.local.messages_kernel import FIRST_READ_BYTES, PROPERTY_COUNT_MAX
from store.errors import RecordCorruptedError
from store.format.host import Host
from store.format.record import PreparedMessage, decode_record, patch_record, prepare_record
from tests.store.walk.logs import BASE, ODD, V4, V6, message
from tests.support.fixture_stores import unpack_store, walk_frames
from tests.support.kernels import FORMS, kernel_form

__all__ = ["kernel_form"]

pytestmark = [
    pytest.mark.usefixtures("kernel_form"), pytest.mark.parametrize("kernel_form", FORMS, indirect=True),
]  # fmt: skip

BROKER = "broker-ü"
TOPIC, QUEUE_ID, FIRST = "orders", 3, 40
ALL_BYTES = 1 << 40


class OneFile:
    """LogFiles with one file; a part of it ends where it is told to."""

    def __init__(self, path: Path, file_offset: int, size_bytes: int) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.file_offset = file_offset
        self.end_offset = file_offset + size_bytes
        self.is_removed = False
        self.broker_name = BROKER

    def part(self, commit_log_offset: int, _seconds: float, *, end_offset: int = 0) -> "OneFile | None":
        return self if self.file_offset <= commit_log_offset < self.end_offset else None

    def has_name(self) -> bool:
        return not self.is_removed


class Log:
    """Records of one queue in a file, with bytes between some of them that no unit names."""

    def __init__(self, path: Path, messages: Sequence[PreparedMessage], chance: random.Random) -> None:
        self.frames: list[bytes] = []
        self.offsets: list[int] = []
        data = b""
        for number, prepared in enumerate(messages):
            data += chance.randbytes(chance.choice((0, 0, 0, 50)))
            frame = prepare_record(prepared)
            patch_record(frame, FIRST + number, BASE + len(data), 1_700_000_000_100 + number)
            self.offsets.append(BASE + len(data))
            self.frames.append(bytes(frame))
            data += frame
        self.data = bytearray(data)
        self.path = path
        self.sizes = [len(frame) for frame in self.frames]

    def encode(
        self, row: int = 0, *, left: int = ALL_BYTES, is_first: bool = True, as_records: bool = False
    ) -> EncodedRun:
        self.path.write_bytes(self.data)
        files = OneFile(self.path, BASE, len(self.data))
        try:
            return encode(
                files, self.offsets[row:], self.sizes[row:], FIRST + row,
                left=left, is_first=is_first, as_records=as_records,
            )  # fmt: skip
        finally:
            os.close(files.fd)


def encode(
    files: Any,
    offsets: Sequence[int],
    sizes: Sequence[int],
    queue_offset: int,
    *,
    topic: str = TOPIC,
    queue_id: int = QUEUE_ID,
    left: int = ALL_BYTES,
    is_first: bool = True,
    as_records: bool = False,
) -> EncodedRun:
    run = RecordEncoder(cast(LogFiles, files)).encode(
        MessageForm(topic, queue_id, BROKER, as_records),
        queue_offset,
        np.array(offsets, dtype=np.int64),
        np.array(sizes, dtype=np.int32),
        body_bytes_left=left,
        is_first=is_first,
        timeout_seconds=1,
    )
    assert run is not None
    return run


def messages_of(run: EncodedRun) -> list[StoredMessage]:
    messages = list(pb.PullMessagesResponse.FromString(b"".join(run.data)).messages)
    assert len(messages) == run.count
    return messages


def message_at(files: OneFile, commit_log_offset: int) -> StoredMessage | None:
    """The message of a single record; None where the plain path has to read it."""
    return RecordEncoder(cast(LogFiles, files)).message(commit_log_offset, 1.0)


def plain(frame: bytes, commit_log_offset: int) -> StoredMessage | None:
    """The message of the plain path; None for a record that is damaged."""
    try:
        record = decode_record(frame, commit_log_offset=commit_log_offset)
    except RecordCorruptedError:
        return None
    shown = stored_message(record, BROKER)
    shown.source = MESSAGE_SOURCE_LIVE
    return shown


def is_ordinary(frame: bytes, shown: StoredMessage) -> bool:
    """Whether the kernel has to take the record."""
    properties = decode_record(frame).properties_bytes
    try:
        entries = properties.decode().split("\x02")
    except UnicodeDecodeError:
        return False
    names = [entry.partition("\x01")[0] for entry in entries if all(entry.partition("\x01")[::2])]
    return len(set(names)) == len(names) <= PROPERTY_COUNT_MAX and is_plain_frame(frame, shown)


def is_plain_frame(frame: bytes, shown: StoredMessage) -> bool:
    """Whether the kernel has to take the record whatever its properties are, if its times are of the years 1970 to 9999."""
    properties = decode_record(frame).properties_bytes
    own_guard = properties[-20:] if b"__CRC32#\x01" in properties[-20:] else b""
    return "[" not in shown.born_host + shown.store_host and b"__CR" not in properties.removesuffix(own_guard)


def has_plain_times(shown: StoredMessage) -> bool:
    return all(0 <= time.seconds < 253_402_300_799 for time in (shown.born_time, shown.store_time))


TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
PROPERTIES = st.one_of(
    st.dictionaries(st.one_of(TEXTS, st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY"])), TEXTS, max_size=8).map(
        lambda properties: "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    ),
    st.sampled_from([prepared.properties_bytes for prepared in ODD]),
    st.binary(max_size=40),
)
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.one_of(
    st.just(V4), st.builds(Host, st.ip_addresses(v=4).map(str), INT32), st.sampled_from([V4, V4, V6]),
)  # fmt: skip
MESSAGES = st.builds(
    PreparedMessage,
    st.just(TOPIC), st.just(QUEUE_ID), st.binary(max_size=300), PROPERTIES,
    st.one_of(st.integers(0, 1 << 42), INT64), HOSTS, HOSTS, INT32, INT32, INT32, INT64, st.booleans(),
)  # fmt: skip


CHANCE = st.randoms(use_true_random=False)


def log_and_room(
    path: Path, messages: Sequence[PreparedMessage], chance: random.Random, *, damage: bool
) -> tuple[Log, int]:
    """A log, with a bit flipped if it shall have damage, and how many bytes of bodies are wanted."""
    log = Log(path, messages, chance)
    if damage:
        log.data[chance.randrange(len(log.data))] ^= 1 << chance.randrange(8)
    return log, chance.choice((ALL_BYTES, 0, 100, 500))


@given(messages=st.lists(MESSAGES, min_size=1, max_size=12), chance=CHANCE, damage=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_is_what_the_plain_path_makes_of_its_records(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[PreparedMessage],
    chance: random.Random,
    damage: bool,
) -> None:
    log, left = log_and_room(tmp_path_factory.mktemp("log") / "file", messages, chance, damage=damage)
    row, is_first = 0, True
    while row < len(messages):
        run = log.encode(row, left=left, is_first=is_first)
        for shown in messages_of(run):
            begin = log.offsets[row] - BASE
            frame = bytes(log.data[begin : begin + log.sizes[row]])
            assert shown == plain(frame, log.offsets[row])
            assert is_first or len(shown.body) <= left
            left, is_first, row = left - len(shown.body), False, row + 1
        assert run.body_bytes_left == left
        if row == len(messages):
            return
        begin = log.offsets[row] - BASE
        frame = bytes(log.data[begin : begin + log.sizes[row]])
        expected = plain(frame, log.offsets[row])
        if run.is_full:
            assert expected is not None
            assert not is_first
            assert len(expected.body) > left
            return
        assert (
            expected is None
            or (expected.topic, expected.queue_id, expected.queue_offset) != (TOPIC, QUEUE_ID, FIRST + row)
            or not has_plain_times(expected)
            or not is_ordinary(frame, expected)
        )
        row += 1  # the plain path takes it
        left, is_first = left - (len(expected.body) if expected else 0), is_first and expected is None


@given(messages=st.lists(MESSAGES, min_size=1, max_size=12), chance=CHANCE, damage=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_are_those_of_the_log_up_to_one_that_the_plain_path_has_to_judge(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[PreparedMessage],
    chance: random.Random,
    damage: bool,
) -> None:
    log, left = log_and_room(tmp_path_factory.mktemp("log") / "file", messages, chance, damage=damage)
    run = log.encode(left=left, as_records=True)
    answer = pb.PullMessagesResponse.FromString(b"".join(run.data))
    assert not answer.messages
    frames = [bytes(log.data[at - BASE : at - BASE + size]) for at, size in zip(log.offsets, log.sizes, strict=True)]
    assert list(answer.records) == frames[: run.count]
    shown = [plain(frame, at) for frame, at in zip(frames, log.offsets, strict=True)]
    for row, (frame, each) in enumerate(zip(frames, shown, strict=True)):
        is_good = each is not None and (each.topic, each.queue_id, each.queue_offset) == (TOPIC, QUEUE_ID, FIRST + row)
        if row < run.count:
            assert is_good
        elif run.is_full:
            assert each is not None
            assert len(each.body) > run.body_bytes_left
            break
        else:
            assert not (is_good and has_plain_times(each) and is_plain_frame(frame, each))
            break


@given(
    messages=st.lists(st.one_of(MESSAGES, st.builds(message, topic=TEXTS, queue_id=INT32)), min_size=1, max_size=6),
    chance=CHANCE, damage=st.booleans(),
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_single_message_is_what_the_plain_path_makes_of_the_record_at_its_offset(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[PreparedMessage],
    chance: random.Random,
    damage: bool,
) -> None:
    log, _ = log_and_room(tmp_path_factory.mktemp("log") / "file", messages, chance, damage=damage)
    log.path.write_bytes(log.data)
    files = OneFile(log.path, BASE, len(log.data))
    for offset, size_bytes in zip(log.offsets, log.sizes, strict=True):
        frame = bytes(log.data[offset - BASE :])
        expected = plain(frame, offset)
        found = message_at(files, offset)
        if expected is not None and has_plain_times(expected) and is_ordinary(frame[:size_bytes], expected):
            assert found is not None
        if found is not None:
            assert expected is not None
            expected.ClearField("source")
            assert found == expected
    os.close(files.fd)


@pytest.mark.parametrize("body_size_bytes", [FIRST_READ_BYTES - 200, FIRST_READ_BYTES, 100_000])
def test_a_single_message_larger_than_the_first_read_is_whole(tmp_path: Path, body_size_bytes: int) -> None:
    log = Log(tmp_path / "file", [message(body=random.Random(1).randbytes(body_size_bytes))] * 2, random.Random(1))
    log.path.write_bytes(log.data)
    files = OneFile(log.path, BASE, len(log.data))
    for offset, frame in zip(log.offsets, log.frames, strict=True):
        expected = plain(frame, offset)
        assert expected is not None
        expected.ClearField("source")
        assert message_at(files, offset) == expected
    files.end_offset -= 1
    assert message_at(files, log.offsets[0]) is not None
    assert message_at(files, log.offsets[1]) is None
    os.close(files.fd)


def test_a_single_message_is_of_its_own_offset_in_a_file_with_a_name(tmp_path: Path) -> None:
    log = Log(tmp_path / "file", [message()] * 2, random.Random(1))
    log.path.write_bytes(log.data)
    files = OneFile(log.path, BASE, len(log.data))
    assert message_at(files, log.offsets[0]) is not None
    assert message_at(files, log.offsets[0] + 1) is None
    assert message_at(files, BASE + len(log.data) - 10) is None
    assert message_at(files, BASE + len(log.data)) is None
    files.is_removed = True
    assert message_at(files, log.offsets[0]) is None
    os.close(files.fd)


@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc"])
def test_messages_of_the_real_rocketmq_are_those_of_the_plain_path(tmp_path: Path, name: str) -> None:
    root = unpack_store(name, tmp_path / name)
    files = {int(path.name): path for path in sorted((root / "commitlog").iterdir())}
    taken = left_out = 0
    for offset, frame in walk_frames(root):
        shown = plain(frame, offset)
        assert shown is not None
        first = max(begin for begin in files if begin <= offset)
        one = OneFile(files[first], first, files[first].stat().st_size)
        run = encode(one, [offset], [len(frame)], shown.queue_offset, topic=shown.topic, queue_id=shown.queue_id)
        single = message_at(one, offset)
        os.close(one.fd)
        if run.count:
            assert messages_of(run) == [shown]
            taken += 1
        else:
            assert not is_ordinary(frame, shown)
            left_out += 1
        shown.ClearField("source")
        assert single == (shown if run.count else None)
    assert taken > 200
    assert taken > left_out / 2  # the engine's stores have many IPv6 hosts


def test_records_that_are_not_those_of_their_positions_are_not_taken(tmp_path: Path) -> None:
    log = Log(tmp_path / "file", [message()] * 3, random.Random(1))
    assert log.encode().count == 3
    log.path.write_bytes(log.data)
    files = OneFile(log.path, BASE, len(log.data))
    assert encode(files, log.offsets, log.sizes, FIRST + 1).count == 0
    assert encode(files, log.offsets, log.sizes, FIRST, queue_id=QUEUE_ID + 1).count == 0
    assert encode(files, log.offsets, log.sizes, FIRST, topic="order").count == 0
    assert encode(files, log.offsets, [log.sizes[0], log.sizes[1] + 1, log.sizes[2]], FIRST).count == 1
    assert encode(files, [log.offsets[0] + 1], [log.sizes[0]], FIRST).count == 0
    assert encode(files, [(1 << 63) - 1, -(1 << 63)], [log.sizes[0], 1], FIRST).count == 0


def test_nothing_behind_the_end_or_of_a_file_without_a_name_is_taken(tmp_path: Path) -> None:
    log = Log(tmp_path / "file", [message()] * 3, random.Random(1))
    log.path.write_bytes(log.data)
    files = OneFile(log.path, BASE, len(log.data))
    files.end_offset -= 1
    assert encode(files, log.offsets, log.sizes, FIRST).count == 2
    files.is_removed = True
    assert encode(files, log.offsets, log.sizes, FIRST) == EncodedRun([], 0, ALL_BYTES, is_full=False)


def test_a_run_that_is_larger_than_the_buffers_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [bytes([number]) * 50_000 for number in range(40)]
    log = Log(tmp_path / "file", [message(body=body) for body in bodies], random.Random(1))
    run = log.encode()
    assert len(run.data) > 1
    assert [each.body for each in messages_of(run)] == bodies
    monkeypatch.setattr(encoded_records, "RECORDS_SIZE_BYTES", 50_000)
    assert log.encode().count == 0  # no record fits: the plain path takes them
    files = OneFile(log.path, BASE, len(log.data))
    assert message_at(files, log.offsets[0]) is None
    os.close(files.fd)
