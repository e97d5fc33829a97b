"""`reput export` and `reput import` without any service: what goes out comes back, byte for byte.

What retention takes while a gateway is exported is counted, told, and makes the export a partial one.
"""

import io
import json
import pathlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import pytest

import cli.main
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from store.format.record import decode_record
from tests.cli.transfer.conftest import Serve
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


TOPIC, END = "Orders", 100
TIME_SECONDS = 1_700_000_000


class Gateway(gateway_grpc.GatewayServiceServicer):
    """One queue of messages a second apart; it drops its oldest before the page that is named.

    Attributes:
        first: its first place.
        drops: by how many pages were asked for before, the first place from then on.
        bodies: what DownloadBody says for each place whose body no page has.
    """

    def __init__(self) -> None:
        self.first = 0
        self.drops: dict[int, int] = {}
        self.bodies: dict[int, bytes | grpc.StatusCode] = {}
        self._asked_count = 0

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        queue = pb.ListTopicsResponse.Queue(broker_name="a", queue_id=0, min_offset=self.first, max_offset=END)
        topic = pb.ListTopicsResponse.Topic(topic=TOPIC, queues=[queue])
        return pb.ListTopicsResponse(topics=[topic], completeness=message_pb2.COMPLETENESS_COMPLETE)

    def SearchMessages(
        self, request: pb.SearchMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SearchMessagesResponse:
        self.first = self.drops.get(self._asked_count, self.first)
        self._asked_count += 1
        begin = max(int(request.page_token or 0), self.first, request.begin_queue_offset)
        places = [
            place
            for place in range(begin, request.end_queue_offset)
            if not request.HasField("begin_time") or TIME_SECONDS + place >= request.begin_time.seconds
            if not request.HasField("end_time") or TIME_SECONDS + place <= request.end_time.seconds
        ]
        page = places[:10]
        token = str(page[-1] + 1) if len(places) > len(page) else ""
        return pb.SearchMessagesResponse(
            messages=map(self._message, page),
            next_page_token=token,
            completeness=message_pb2.COMPLETENESS_TRUNCATED if token else message_pb2.COMPLETENESS_COMPLETE,
            stop=pb.SEARCH_STOP_PAGE if token else pb.SEARCH_STOP_END,
        )

    def DownloadBody(
        self, request: pb.DownloadBodyRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.DownloadBodyResponse]:
        body = self.bodies[int(request.offset_msg_id)]
        if isinstance(body, grpc.StatusCode):
            context.abort(body, "it has gone")
        yield pb.DownloadBodyResponse(chunk=body)

    def _message(self, place: int) -> message_pb2.StoredMessage:
        message = message_pb2.StoredMessage(
            topic=TOPIC, queue_offset=place, commit_log_offset=place * 1000, body=b"x", broker_name="a",
            born_host="10.0.0.1:1", store_host="10.0.0.1:2", offset_msg_id=str(place), body_omitted=place in self.bodies,
        )  # fmt: skip
        message.store_time.seconds = message.born_time.seconds = TIME_SECONDS + place
        return message


@pytest.fixture
def server(serve: Serve) -> Gateway:
    gateway = Gateway()
    serve(gateway)
    return gateway


class Export:
    """Runs `reput export` to a file.

    Attributes:
        count: how many messages the file has.
        err: what was told.
    """

    def __init__(self, out: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.count = 0
        self.err = ""
        self._out = out
        self._capsys = capsys

    def __call__(self, *flags: object) -> int:
        code = cli.main.main(["export", "--out", str(self._out), *map(str, flags)])
        self.count = self._out.read_bytes().count(b"\n") if self._out.exists() else 0
        self.err = self._capsys.readouterr().err
        return code


@pytest.fixture
def export(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Export:
    return Export(tmp_path / "out.jsonl", capsys)


WINDOW = ("--begin", (TIME_SECONDS + 40) * 1000)
UNTIL = ("--end", (TIME_SECONDS + 59) * 1000)


@pytest.mark.parametrize("window", [(), ("--begin", 1)])
@pytest.mark.parametrize(
    ("drops", "flags", "lost_count"),
    [
        ({0: 7}, (), 7),  # between the list and the first page
        ({3: 42}, (), 12),  # the scan stood at 30
        ({0: 3, 2: 55, 4: END}, (), 60),  # given: 3 to 22 and 55 to 74
        ({0: END}, (), 100),
        ({0: 7}, ("-t", TOPIC, "-i", 0, "--fromOffset", 5, "--toOffset", 20), 2),
        ({3: 7}, (), 0),  # what had been exported already
    ],
)
def test_what_retention_took_meanwhile_was_missing_without_a_word(
    drops: dict[int, int],
    flags: tuple[object, ...],
    lost_count: int,
    window: tuple[object, ...],
    server: Gateway,
    export: Export,
) -> None:
    server.drops = drops
    code = export(*flags, *window)

    assert export.count == (15 if flags else END) - lost_count
    assert code == (3 if lost_count else 0)
    assert (f"{lost_count} messages went by retention" in export.err) == bool(lost_count)


@pytest.mark.parametrize(
    ("flags", "drops", "told_count"),
    [
        ((*WINDOW,), {0: 30}, 0),  # what is left before the window shows that the window is whole
        ((*WINDOW,), {0: 50}, 50),  # 40 to 49 were in it, of the others nobody can tell
        ((*WINDOW,), {2: 70}, 50),  # the two pages read were 40 to 59
        ((*WINDOW,), {0: END}, 100),
        ((*WINDOW, *UNTIL), {0: 80}, 80),
        ((*WINDOW, *UNTIL), {2: 80}, 0),
        (("--begin", (TIME_SECONDS + END) * 1000), {0: 50}, 0),
    ],
)
def test_in_a_window_of_times_what_may_be_missing_is_told(
    flags: tuple[object, ...], drops: dict[int, int], told_count: int, server: Gateway, export: Export
) -> None:
    server.drops = drops
    code = export(*flags)

    if told_count:
        assert (code, f"up to {told_count} messages went by retention" in export.err) == (3, True), export.err
    else:
        assert code in (0, 1)
        assert "retention" not in export.err


def test_the_oldest_so_many_are_not_said_to_lack_the_rest(server: Gateway, export: Export) -> None:
    assert (export("-m", 25), export.count, export.err) == (0, 25, "")


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE])
def test_a_body_that_went_meanwhile_ended_the_export(code: grpc.StatusCode, server: Gateway, export: Export) -> None:
    server.bodies = {3: b"whole", 4: code, 70: code}

    assert (export(), export.count) == (3, END - 2)
    assert "2 messages went by retention" in export.err
