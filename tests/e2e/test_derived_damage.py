"""Queues and indexes damaged under running services: no answer is COMPLETE and wrong, and they heal by themselves."""

import json
import pathlib
import re
import shutil

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

SETTINGS = {
    "REPUT_INDEX_HASH_SLOT_COUNT": "50",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "101",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400",
}
COUNT = 500
COMPLETE = message_pb2.COMPLETENESS_COMPLETE


def by_key(stack: Stack) -> tuple[int, int]:
    request = pb.QueryMessageByKeyRequest(topic="orders", key="all", page_size=1000)
    answer = stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
    return len(answer.messages), answer.completeness


def by_offset(stack: Stack) -> tuple[int, int]:
    request = pb.QueryMessageByOffsetRequest(topic="orders", queue_id=0, max_messages=1000)
    answer = stack.gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX)
    return len(answer.messages), answer.completeness


def fill(stack: Stack) -> None:
    for begin in range(0, COUNT, 50):
        messages = [new_message("orders", b"body", keys=["all", f"k{begin + n}"], queue_id=0) for n in range(50)]
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()


def zero_slots(root: pathlib.Path) -> None:
    for path in sorted((root / "index").iterdir())[:-1]:
        with open(path, "r+b") as file:
            file.seek(40)
            file.write(bytes(200))


def zero_queue_file(root: pathlib.Path) -> None:
    (root / "consumequeue" / "orders" / "0" / f"{400:020d}").write_bytes(bytes(400))


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_blanked_slots_are_never_complete_and_heal_by_themselves(tmp_path: pathlib.Path, stopped: bool) -> None:
    store = tmp_path / "store"
    stack = Stack(store, settings=SETTINGS)
    try:
        fill(stack)
        wait_until(lambda: sealed_count(store) >= 8, "the checksums are saved")
        if stopped:
            assert stack.stop() == 0
            zero_slots(store)
            stack = Stack(store, settings=SETTINGS)
            stack.wait_until_built()
        else:
            zero_slots(store)
            # The promise of docs/durability.md: within two seconds.
            wait_until(lambda: by_key(stack)[1] != COMPLETE or healed(stack), "the damage is noticed")
        answers = []

        def is_healed() -> bool:
            answers.append(by_key(stack))
            return answers[-1] == (COUNT, COMPLETE) and healed(stack)

        wait_until(is_healed, "the index is built again")
        log = stack.log()
    finally:
        stack.stop()
    assert all(count == COUNT for count, completeness in answers if completeness == COMPLETE), answers
    assert len(re.findall("file.built_again", log)) >= 8


def healed(stack: Stack) -> bool:
    return stack.log().count("file.built_again") >= 8


def sealed_count(store: pathlib.Path, kind: str = "index") -> int:
    path = store / "reput" / kind / "checksums.json"
    return len(json.loads(path.read_text())["files"]) if path.exists() else 0


def test_a_zeroed_queue_file_heals_by_itself(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with running_stack(store, settings=SETTINGS) as stack:
        fill(stack)
        wait_until(lambda: sealed_count(store, "consumequeue") >= 24, "the checksums are saved")
        zero_queue_file(store)
        wait_until(lambda: "file.built_again" in stack.log(), "the file is built again")
        wait_until(lambda: by_offset(stack) == (COUNT, COMPLETE), "the answer is whole")


def test_planted_names_stop_no_service_and_no_start(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "store"
    with running_stack(store, settings=SETTINGS) as stack:
        fill(stack)
    (store / "index" / "20300101000000000").mkdir()
    (store / "index" / "stray").write_bytes(b"x")
    (store / "consumequeue" / "orders" / "0" / f"{COUNT * 20:020d}").mkdir()  # where the next file is made
    (store / "consumequeue" / "orders" / ("9" * 200)).mkdir()
    (store / "consumequeue" / "stray").write_bytes(b"x")
    (store / "consumequeue" / "other").write_bytes(b"x")
    pathlib.Path(str(store / "consumequeue" / "bad") + "\udcff").mkdir()
    (store / "commitlog" / ("9" * 20)).mkdir()
    shutil.rmtree(store / "abort", ignore_errors=True)
    (store / "abort").mkdir()

    with running_stack(store, settings=SETTINGS) as stack:
        stack.wait_until_built()
        stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=[new_message("orders", b"1", queue_id=0), new_message("other", b"1")]),
            timeout=WAIT_SECONDS_MAX,
        )
        stack.wait_until_built()
        listed = stack.gateway.ListTopics(pb.ListTopicsRequest(), timeout=WAIT_SECONDS_MAX).topics
        found = by_key(stack), by_offset(stack)
        log = stack.log()

    assert {row.topic for row in listed} >= {"orders", "other"}
    assert found == ((COUNT, COMPLETE), (COUNT + 1, COMPLETE))
    assert "store.strangers_skipped" in log
    assert "Traceback" not in log
