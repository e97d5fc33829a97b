"""`reput export` from a running gateway and `reput import` into one: nothing lost, nothing twice."""

import json
import pathlib

import pytest

import cli.main
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.fixture_stores import walk_frames
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = pytest.mark.life

SIZES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(16 << 20), "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_INDEX_HASH_SLOT_COUNT": "500", "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
}  # fmt: skip
COUNT = 300


class Command:
    """`reput` in this process, which has loaded gRPC already.

    Attributes:
        out, err: what the last call printed.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.out = self.err = ""
        self._capsys = capsys

    def __call__(self, *arguments: object, address: str = "") -> int:
        words = [*map(str, arguments), *(["--gateway", address] if address else [])]
        code = cli.main.main(words)
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def reput(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name, value in SIZES.items():
        monkeypatch.setenv(name, value)
    return Command(capsys)


def append_all_kinds(stack: HostedStack) -> None:
    """Two topics, keys, tags, properties, bytes that are no text, and a body that fits no page."""
    messages = [
        new_message(
            f"Out{number % 2}", b"\xff\x00 %d" % number if number % 3 else f"正文 {number}".encode(),
            keys=[f"key-{number}", "all"], tags=f"Tag{number % 4}", properties={"b": "2", "a": f"één {number}"},
            flag=-number,
        )
        for number in range(COUNT)
    ]  # fmt: skip
    messages.append(new_message("Out0", b"\x80" * (4 << 20), keys=["large"]))
    for begin in range(0, len(messages), 50):
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages[begin : begin + 50]), timeout=60)
    stack.wait_until_built()


def kept(row: dict[str, object]) -> dict[str, object]:
    """What an append through a gateway keeps of a message."""
    names = ("topic", "queue_id", "body", "body_format", "keys", "tags", "unique_key", "flag", "born_time")
    properties = row["properties"]
    assert isinstance(properties, dict)
    return {name: row[name] for name in names} | {
        "properties": {name: value for name, value in properties.items() if name != "__CRC32#"}
    }


def rows_of(path: pathlib.Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_what_a_gateway_exports_is_what_the_store_holds_and_can_be_imported_again(
    tmp_path: pathlib.Path, reput: Command
) -> None:
    with hosted_stack(tmp_path / "a", settings=SIZES) as stack:
        append_all_kinds(stack)
        address = stack.addresses["gateway"]
        assert reput("export", "--store", tmp_path / "a") == 2
        assert "STORE_LOCKED" in reput.err
        for out, *flags in (
            ("online.jsonl",), ("online", "--format", "store"), ("key.jsonl", "-t", "Out1", "-k", "all", "-e", "now"),
            ("queue.jsonl", "-t", "Out0", "-i", 0, "--fromOffset", 2, "--toOffset", 9, "--begin", "-2h"),
        ):  # fmt: skip
            assert reput("export", "--out", tmp_path / out, *flags, address=address) == 0, reput.err
        assert reput("export", "-t", "Nowhere", address=address) == 1

    assert reput("export", "--store", tmp_path / "a", "--out", tmp_path / "offline.jsonl") == 0, reput.err
    offline = rows_of(tmp_path / "offline.jsonl")
    online = rows_of(tmp_path / "online.jsonl")
    assert {row.pop("broker_name") for row in online} == {"broker-a"}
    assert online == offline
    assert len(offline) == COUNT + 1
    expected = [row for row in offline if row["topic"] == "Out1"]
    assert [row["unique_key"] for row in rows_of(tmp_path / "key.jsonl")] == [row["unique_key"] for row in expected]
    queue = [row for row in offline if (row["topic"], row["queue_id"]) == ("Out0", 0)]
    assert [row["queue_offset"] for row in rows_of(tmp_path / "queue.jsonl")] == list(range(2, 9)) != []
    assert len(queue) > 9
    assert list(walk_frames(tmp_path / "online")) == list(walk_frames(tmp_path / "a")), "the same log byte for byte"

    with hosted_stack(tmp_path / "online", read_only=True, settings=SIZES) as stack:
        found = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="Out0", key="key-8"), timeout=WAIT_SECONDS_MAX
        )
        assert [message.body for message in found.messages] == [b"\xff\x00 8"]
        assert found.completeness == message_pb2.COMPLETENESS_COMPLETE

    with hosted_stack(tmp_path / "b", settings=SIZES) as stack:
        address = stack.addresses["gateway"]
        for deduplicated in (0, COUNT + 1):
            assert reput("import", tmp_path / "offline.jsonl", "--deduplicate", "--sync", address=address) == 0, (
                reput.err
            )
            assert json.loads(reput.out) == {
                "message_count": COUNT + 1, "deduplicated_count": deduplicated, "dropped_properties": {},
            }  # fmt: skip
        bad = tmp_path / "bad.jsonl"
        bad.write_text((tmp_path / "offline.jsonl").read_text().splitlines()[0] + '\n{"topic": "Out0"}\n')
        assert reput("import", bad, address=address) == 2
        assert "line 2: no field 'body'" in reput.err
        lines = (tmp_path / "offline.jsonl").read_text().splitlines()[:260]
        lines.append(json.dumps({**json.loads(lines[0]), "topic": "SCHEDULE_TOPIC_XXXX"}))
        bad.write_text("\n".join(lines))
        assert reput("import", bad, "--deduplicate", address=address) == 2
        assert "line 261: topic SCHEDULE_TOPIC_XXXX belongs to the broker" in reput.err
        bad.write_text(json.dumps({**json.loads(lines[0]), "queue_id": 99}))
        assert reput("import", bad, "--deduplicate", address=address) == 2
        assert "line 1: topic Out0 has the queues 0 to " in reput.err
        stack.wait_until_built()
        assert reput("export", "--out", tmp_path / "imported.jsonl", address=address) == 0, reput.err
    assert list(map(kept, rows_of(tmp_path / "imported.jsonl"))) == list(map(kept, offline))
