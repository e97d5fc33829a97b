"""`reput fsck --release` names what an earlier release does not know of a store: from its files alone, served or stopped."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli.main
from cli import earlier_release
from cli.earlier_release import RELEASES, unknown_to
from cli.exits import Exit
from consumer_svc.state_topic import STATE_LEVEL, STATE_TOPIC
from reput.consumer.v1.state_pb2 import GroupSet, GroupState, StateRecord
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import AppendClient, NewMessage
from services.following.state_topic.state_writer import CHANGE, FULL, FULL_BEGIN, FULL_END
from store.files.file_system import RealFileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.properties import TAGS
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.support import open_log
from tests.support.dispatches import file_bytes
from tests.support.fixture_stores import FIXTURES
from tests.support.releases import COMMITS
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(1 << 20),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_INDEX_HASH_SLOT_COUNT": "50",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "100",
}
SETTINGS = {**SMALL_FILES, "REPUT_INDEX_TAGS": "on"}
# As a broker writes it: the service takes it over when it starts.
MODES = {"messageRequestModeMap": {"t": {"popping": {"consumerGroup": "popping", "mode": "POP", "topic": "t"}}}}
CALL: dict[str, Any] = {"timeout": WAIT_SECONDS_MAX}
Capture = pytest.CaptureFixture[str]
ALL = {
    "RELEASE_INDEX_TAGS": 1,
    "RELEASE_LIGHT_QUEUES": 2,
    "RELEASE_LITE_GROUPS": 1,
    "RELEASE_PRIORITY_FACTORS": 1,
    "RELEASE_REQUEST_MODES": 1,
    "RELEASE_TOPICS_MADE_AGAIN": 1,
    "RELEASE_TOPIC_TYPES": 2,
}


def ask(capsys: Capture, root: Path, release: str = "0.2.0") -> tuple[int, dict[str, Any]]:
    """The exit code and the document that is printed."""
    capsys.readouterr()
    code = cli.main.main(["fsck", str(root), "--release", release, "-o", "json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def texts_of(said: dict[str, Any]) -> dict[str, str]:
    """What is said of each code; of one that comes twice the last."""
    return {each["code"]: each["what"] for each in said["findings"]}


def fill(stack: HostedStack) -> None:
    """Something of all that 0.2.0 does not know."""
    for topic, kind in (("Lite", message_pb2.MESSAGE_TYPE_LITE), ("Prior", message_pb2.MESSAGE_TYPE_PRIORITY)):
        stack.gateway.CreateTopic(pb.CreateTopicRequest(topic=topic, queue_count=1, message_type=kind), **CALL)
    for fields in ({"lite_attributes": {"lite.bind.topic": "Lite"}}, {"priority_factor": 7}):
        name = "lite-group" if "lite_attributes" in fields else "factor-group"
        stack.gateway.UpdateConsumerGroup(pb.UpdateConsumerGroupRequest(consumer_group=name, **fields), **CALL)
    for _ in range(2):
        message = new_message("Again", b"x", tags="red")
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[message]), **CALL)
        stack.gateway.DeleteTopic(pb.DeleteTopicRequest(topic="Again"), **CALL)
    with AppendClient(stack.addresses["gateway"]) as client:
        for lite_topic in ("one", "two"):
            client.append([NewMessage("Lite", b"x", lite_topic=lite_topic)])
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[new_message("Again", b"y")]), **CALL)
    stack.wait_until_built()


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stopped store with something of all that 0.2.0 does not know."""
    root = tmp_path_factory.mktemp("full") / "store"
    write_json_state(RealFileSystem(), root / "config" / "messageRequestMode.json", MODES)
    with hosted_stack(root, settings=SETTINGS) as stack:
        fill(stack)
    yield root
    shutil.rmtree(root)


def test_every_kept_release_is_one_that_can_be_asked_about() -> None:
    assert RELEASES.keys() == COMMITS.keys()


@pytest.mark.parametrize("version", COMMITS)
def test_a_release_goes_on_with_the_store_that_it_left(version: str, tmp_path: Path, capsys: Capture) -> None:
    with tarfile.open(FIXTURES / f"reput-{version}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    before = file_bytes(tmp_path / "store")

    code, said = ask(capsys, tmp_path / "store", version)

    assert (code, said["clean"], said["findings"]) == (0, True, [])
    assert file_bytes(tmp_path / "store") == before


def test_all_that_a_release_does_not_know_is_named_with_what_to_do(full_store: Path, capsys: Capture) -> None:
    before = file_bytes(full_store)

    code, said = ask(capsys, full_store)

    assert (code, said["clean"], said["counts"]) == (1, False, ALL)
    texts = texts_of(said)
    assert texts["RELEASE_LITE_GROUPS"].startswith(
        "1 groups (lite-group) consume lite topics; the log has their state from"
    )
    assert texts["RELEASE_PRIORITY_FACTORS"].startswith("1 groups (factor-group)")
    assert texts["RELEASE_REQUEST_MODES"].startswith("1 groups (popping)")
    assert texts["RELEASE_TOPICS_MADE_AGAIN"].startswith("1 topics (Again)")
    assert all(each["what_to_do"] for each in said["findings"])
    assert file_bytes(full_store) == before


def test_what_is_found_is_told_to_people_too(full_store: Path, capsys: Capture) -> None:
    capsys.readouterr()

    assert cli.main.main(["fsck", str(full_store), "--release", "0.2.0"]) == 1

    out = capsys.readouterr().out
    assert "bind them again" in out
    assert "0.2.0 does not know all of it" in out


def test_a_store_that_is_served_may_be_asked(tmp_path: Path, capsys: Capture) -> None:
    with hosted_stack(tmp_path / "store", settings=SMALL_FILES) as stack:
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[new_message("Plain", b"x")]), **CALL)
        stack.gateway.UpdateConsumerGroup(pb.UpdateConsumerGroupRequest(consumer_group="plain"), **CALL)
        stack.wait_until_built()
        assert ask(capsys, tmp_path / "store")[0] == 0
        stack.gateway.UpdateConsumerGroup(
            pb.UpdateConsumerGroupRequest(consumer_group="factor", priority_factor=7), **CALL
        )
        stack.wait_until_built()
        code, said = ask(capsys, tmp_path / "store")
    assert (code, list(said["counts"])) == (1, ["RELEASE_PRIORITY_FACTORS"])


def test_a_log_whose_queues_lie_elsewhere_says_the_same(full_store: Path, tmp_path: Path, capsys: Capture) -> None:
    """As the volume of a commit log on Kubernetes. Without an index nobody knows of its entries of tags."""
    root = Path(shutil.copytree(full_store, tmp_path / "store"))
    for name in ("consumequeue", "index", "reput/consumequeue", "reput/index"):
        shutil.rmtree(root / name)

    code, said = ask(capsys, root)

    wanted = {name: count for name, count in ALL.items() if name != "RELEASE_INDEX_TAGS"}
    assert (code, said["counts"]) == (1, wanted)
    assert texts_of(said) == {
        name: text for name, text in texts_of(ask(capsys, full_store)[1]).items() if name in wanted
    }


def checkpoint_of(root: Path) -> tuple[Path, dict[str, Any]]:
    path = root / "reput" / "consumequeue" / "checkpoint.json"
    state = read_json_state(RealFileSystem(), path)
    assert state is not None
    return path, state


@pytest.mark.parametrize("lacks", ["queue", "units", "rebuilt", "light queues"])
def test_queues_that_are_behind_the_log_hid_what_it_has(
    full_store: Path, tmp_path: Path, capsys: Capture, lacks: str
) -> None:
    """Followers that were down, an older `consumequeue/` beside a log, a rebuild that was killed: all is in the log."""
    root = Path(shutil.copytree(full_store, tmp_path / "store"))
    path, state = checkpoint_of(root)
    queue = root / "consumequeue" / STATE_TOPIC / "0"
    if lacks == "queue":
        shutil.rmtree(queue)
    elif lacks == "units":
        state |= {"next_offset": 0}
        state["light"] |= {"end": state["light"]["begin"]}
        first, *others = sorted(queue.iterdir())
        for each in others:
            each.unlink()
        data = first.read_bytes()
        first.write_bytes(data[:UNIT_SIZE_BYTES].ljust(len(data), b"\x00"))
    elif lacks == "rebuilt":
        state |= {"replay": True}
        state["light"] |= {"end": state["light"]["begin"]}
    else:
        state["light"] |= {"end": state["light"]["begin"], "next_offset": 0}
    write_json_state(RealFileSystem(), path, state)

    assert ask(capsys, root)[1]["counts"] == ALL


@pytest.mark.parametrize("with_queues", [True, False])
def test_a_log_that_is_damaged_is_not_taken_for_one_that_ends_there(
    full_store: Path, tmp_path: Path, capsys: Capture, with_queues: bool
) -> None:
    root = Path(shutil.copytree(full_store, tmp_path / "store"))
    path, state = checkpoint_of(root)
    if with_queues:
        write_json_state(RealFileSystem(), path, state | {"next_offset": 0})
    else:
        path.unlink()
    (log,) = (root / "commitlog").iterdir()
    with open(log, "r+b") as file:
        file.seek(4)
        file.write(b"????")

    code, said = ask(capsys, root)

    assert code == 1
    assert "cannot be read behind byte 0" in texts_of(said)["RELEASE_NOT_READ"]


def test_damaged_topics_are_told(full_store: Path, tmp_path: Path, capsys: Capture) -> None:
    root = Path(shutil.copytree(full_store, tmp_path / "store"))
    for path in (root / "config").glob("topics.json*"):
        path.write_bytes(b"{")

    code, said = ask(capsys, root)

    assert code == 1
    assert "topics.json" in texts_of(said)["RELEASE_NOT_READ"]


def test_of_a_log_only_what_the_newest_full_state_of_this_release_needs_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it 0.2.0 wrote one of its own, without what it does not know: that one does not count."""
    group = GroupState(settings=GroupSet(consumer_group="lite-group", lite=pb.LiteSettings(bind_topic="P")))
    record = StateRecord(epoch=1, groups=[group], level=STATE_LEVEL)
    older = StateRecord(epoch=2)
    written = [(kind, record) for kind in (CHANGE, FULL_BEGIN, FULL, FULL_END)] * 3
    written += [(kind, older) for kind in (FULL_BEGIN, FULL, FULL_END)]
    with open_log(tmp_path) as log:
        for kind, body in written:
            append_internal(
                log, internal_record(body.SerializeToString(), STATE_TOPIC, properties={TAGS: kind}), sync=False
            )
    monkeypatch.setattr(earlier_release, "STATE_RECORD_COUNT_MAX", 7)

    findings = unknown_to(RealFileSystem(), tmp_path, "0.2.0")

    assert findings.counts == {"RELEASE_LITE_GROUPS": 1}


def test_a_log_with_too_many_records_of_state_is_refused_by_their_number(
    full_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = Path(shutil.copytree(full_store, tmp_path / "store"))
    shutil.rmtree(root / "reput" / "consumequeue")
    monkeypatch.setattr(earlier_release, "STATE_RECORD_COUNT_MAX", 2)

    assert cli.main.main(["fsck", str(root), "--release", "0.2.0"]) == Exit.USAGE

    assert "more than 2 records of state" in capsys.readouterr().err


def test_a_store_that_only_a_broker_served_has_nothing_that_a_release_does_not_know(
    broker_store: Path, capsys: Capture
) -> None:
    assert ask(capsys, broker_store) == (0, ask(capsys, broker_store)[1])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--release", "9.9.9"], "no earlier release"), (["--release", "0.2.0", "--repair"], "changes nothing")],
)
def test_a_release_that_nobody_knows_and_a_repair_are_wrong_usage(
    broker_store: Path, capsys: Capture, arguments: list[str], says: str
) -> None:
    assert cli.main.main(["fsck", str(broker_store), *arguments]) == Exit.USAGE
    assert says in capsys.readouterr().err
