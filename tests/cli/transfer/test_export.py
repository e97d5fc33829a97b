"""`reput export` and `reput import` without any service: what goes out comes back, byte for byte."""

import io
import json
import pathlib
import sys
from collections import Counter
from collections.abc import Callable

import pytest

import cli.main
from store.format.record import decode_record
from tests.support.fixture_stores import walk_frames

SIZES = {
    "broker": {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576", "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
        "REPUT_INDEX_HASH_SLOT_COUNT": "500", "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
    },
    "engine": {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": "262144", "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "1280",
        "REPUT_INDEX_HASH_SLOT_COUNT": "97", "REPUT_INDEX_ENTRY_COUNT_MAX": "200",
    },
}  # fmt: skip
SIZES["engine_crc"] = SIZES["engine"]
CRC_DIGITS = slice(-11, -1)


@pytest.fixture
def broker_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_sizes(monkeypatch, "broker")


def _use_sizes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for setting, value in SIZES[name].items():
        monkeypatch.setenv(setting, value)


def reput(*arguments: object) -> int:
    return cli.main.main([str(argument) for argument in arguments])


def files_of(root: pathlib.Path) -> dict[str, bytes]:
    """Log and queue files by their names, index files by their order: their names are times."""
    named = {
        str(path.relative_to(root)): path.read_bytes()
        for part in ("commitlog", "consumequeue")
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    index = sorted((root / "index").iterdir())
    return named | {f"index {number}": path.read_bytes() for number, path in enumerate(index)}


def frames_of(root: pathlib.Path) -> list[bytes]:
    return [frame for _, frame in walk_frames(root)]


def without_offsets(frame: bytes) -> bytes:
    """All that a copy keeps: not the two offsets, and not the digits of the CRC over them."""
    masked = bytearray(frame)
    masked[20:36] = bytes(16)
    if frame[-20:].startswith(b"__CRC32#"):
        masked[CRC_DIGITS] = bytes(10)
    return bytes(masked)


@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc"])
def test_a_whole_store_exported_is_the_store_that_rocketmq_wrote(
    name: str, request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same log from its first message: the same offsets, so log, queues and index are RocketMQ's own bytes."""
    _use_sizes(monkeypatch, name)
    original: pathlib.Path = request.getfixturevalue(f"{name}_store")
    assert reput("export", "--store", original, "--format", "store", "--out", tmp_path / "copy") == 0

    expected, found = files_of(original), files_of(tmp_path / "copy")
    assert found.keys() == expected.keys()
    assert [file for file in expected if found[file] != expected[file]] == []


@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc"])
def test_json_lines_hold_the_whole_message(
    name: str, request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use_sizes(monkeypatch, name)
    original: pathlib.Path = request.getfixturevalue(f"{name}_store")
    assert reput("export", "--store", original, "--out", tmp_path / "lines.jsonl") == 0
    assert reput("import", tmp_path / "lines.jsonl", "--store", tmp_path / "again") == 0

    assert files_of(tmp_path / "again") == files_of(original)


def chosen_by_hand(root: pathlib.Path, takes: Callable[[object], bool]) -> list[bytes]:
    return [frame for frame in frames_of(root) if takes(decode_record(frame))]


def test_a_choice_is_what_brute_force_chooses(
    broker_store: pathlib.Path, tmp_path: pathlib.Path, broker_sizes: None
) -> None:
    records = [decode_record(frame) for frame in frames_of(broker_store)]
    times = sorted(record.store_time_millis for record in records)
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    (busy_topic, key), _ = Counter((r.topic, key) for r in records for key in r.keys).most_common(1)[0]
    choices: list[tuple[list[object], Callable[[object], bool]]] = [
        (["-t", "b_order"], lambda r: r.topic == "b_order"),
        (["--begin", begin, "--end", end], lambda r: begin <= r.store_time_millis <= end),
        (["-t", busy_topic, "-k", key], lambda r: r.topic == busy_topic and key in r.keys),
        (
            ["-t", "b_order", "-i", 1, "--fromOffset", 3, "--toOffset", 40],
            lambda r: (r.topic, r.queue_id) == ("b_order", 1) and 3 <= r.queue_offset < 40,
        ),
    ]
    for number, (flags, takes) in enumerate(choices):
        out = tmp_path / str(number)
        assert reput("export", "--store", broker_store, *flags, "--format", "store", "--out", out) == 0
        expected = chosen_by_hand(broker_store, takes)
        found = frames_of(out)
        assert len(expected) > 1
        assert list(map(without_offsets, found)) == list(map(without_offsets, expected))
        next_offsets: dict[tuple[str, int], int] = {}
        for offset, frame in walk_frames(out):
            record = decode_record(frame, commit_log_offset=offset)
            if record.sys_flag & 0xC in (0x0, 0x8):
                assert record.queue_offset == next_offsets.get((record.topic, record.queue_id), 0)
                next_offsets[record.topic, record.queue_id] = record.queue_offset + 1


def test_with_kernels_and_without_the_same_is_chosen(engine_crc_store: pathlib.Path, tmp_path: pathlib.Path) -> None:
    from store.compiled import loading

    copies = []
    for mode in (loading.OFF, loading.EAGER):
        before = loading.switch(mode)
        try:
            assert reput("export", "--store", engine_crc_store, "-t", "extra_a", "--out", tmp_path / mode) == 0
        finally:
            loading.switch(before)
        copies.append((tmp_path / mode).read_bytes())
    assert copies[0] == copies[1]
    assert copies[0].count(b"\n") == sum(decode_record(f).topic == "extra_a" for f in frames_of(engine_crc_store)) > 0


def test_the_oldest_so_many_and_relative_times(broker_store: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reput("export", "--store", broker_store, "-m", 3) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["commit_log_offset"] for row in rows] == [offset for offset, _ in walk_frames(broker_store)][:3]
    assert reput("export", "--store", broker_store, "--end", "-9000w") == 1, "nothing is that old"
    assert capsys.readouterr().out == ""


def left_in(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("form", ["jsonl", "store"])
def test_damage_in_the_log_ends_an_export_and_leaves_nothing(
    form: str,
    copy_of_broker_store: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    broker_sizes: None,
) -> None:
    offset = [offset for offset, _ in walk_frames(copy_of_broker_store)][700]
    path = copy_of_broker_store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[offset + 4] ^= 1
    path.write_bytes(data)
    (tmp_path / "place").mkdir()

    assert reput("export", "--store", copy_of_broker_store, "--format", form, "--out", tmp_path / "place" / "out") == 2
    assert f"damaged at commit-log offset {offset}" in capsys.readouterr().err
    assert left_in(tmp_path / "place") == []


def test_a_torn_end_is_told_and_the_rest_exported(
    copy_of_broker_store: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = list(walk_frames(copy_of_broker_store))
    offset, frame = frames[-1]
    first = offset - offset % 1048576
    path = copy_of_broker_store / "commitlog" / f"{first:020d}"
    data = bytearray(path.read_bytes())
    data[offset - first + 60 : offset - first + len(frame)] = bytes(len(frame) - 60)
    path.write_bytes(data)

    assert reput("export", "--store", copy_of_broker_store, "--out", tmp_path / "out") == 0
    assert f"ends torn at {offset}" in capsys.readouterr().err
    assert (tmp_path / "out").read_bytes().count(b"\n") == len(frames) - 1


def test_what_is_there_is_never_written_over(
    broker_store: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    assert reput("export", "--store", broker_store, "--out", tmp_path / "out") == 2
    assert reput("export", "--store", broker_store, "--format", "store", "--out", tmp_path / "full") == 2
    assert reput("import", tmp_path / "out", "--store", tmp_path / "full") == 2
    assert (left_in(tmp_path), (tmp_path / "out").read_text()) == (["full", "out"], "mine")


def test_a_choice_of_nothing_makes_nothing(
    broker_store: pathlib.Path, tmp_path: pathlib.Path, broker_sizes: None
) -> None:
    for form in ("jsonl", "store"):
        out = tmp_path / form
        assert reput("export", "--store", broker_store, "-t", "none", "--format", form, "--out", out) == 1
    assert left_in(tmp_path) == []


@pytest.fixture
def line(broker_store: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert reput("export", "--store", broker_store, "-m", 1) == 0
    row: dict[str, object] = json.loads(capsys.readouterr().out)
    return row


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": ""}, "Topic"),
        ({"body_format": "rot13"}, "rot13"),
        ({"body": "x", "body_format": "base64"}, ""),
        ({"queue_id": 1 << 31}, "queue_id"),
        ({"queue_id": True}, "queue_id"),
        ({"queue_id": -1}, "negative"),
        ({"topic": "../../up"}, "folder"),
        ({"body": "another"}, "CRC"),
        ({"store_host": "nowhere"}, "nowhere"),
        ({"store_time": "soon"}, "soon"),
        ({"properties": {"a\x01b": "c"}}, "read back with another"),
        ({"properties": {"a": 1}}, "not an object of texts"),
        ({"properties": {"a": "b" * 40_000}}, "Properties"),
    ],
)
def test_a_line_that_is_no_message_is_named_and_leaves_nothing(
    change: dict[str, object],
    reason: str,
    line: dict[str, object],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(json.dumps(line) + "\n\n" + json.dumps(line | change) + "\n")

    assert reput("import", file, "--store", tmp_path / "out") == 2
    told = capsys.readouterr().err
    assert "line 3: " in told
    assert reason in told
    assert left_in(tmp_path) == ["lines.jsonl"]


def test_a_line_without_its_time_is_no_message_of_a_store(line: dict[str, object], tmp_path: pathlib.Path) -> None:
    del line["store_time"]
    (tmp_path / "lines.jsonl").write_text(json.dumps(line))

    assert reput("import", tmp_path / "lines.jsonl", "--store", tmp_path / "out") == 2


def test_a_terminal_of_another_encoding_got_json_that_is_none(
    broker_store: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    assert reput("export", "--store", broker_store, "--out", tmp_path / "out") == 0
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="iso-8859-1"))
    assert reput("export", "--store", broker_store) == 0

    lines = pipe.getvalue()
    assert not lines.isascii()
    assert lines == (tmp_path / "out").read_bytes()
