"""Sends over RocketMQ's remoting protocol: their records are those that the real broker wrote for the same requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reput.message.v1.message_pb2 import NewMessage
from store.errors import InvalidMessageError
from store.format.client_batch import decode_client_batch
from store.format.client_properties import BrokerProperties
from store.format.record import PreparedMessage, decode_record, patch_record, prepare_record
from store.format.sys_flag import PRODUCER_MASK
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import TIME_MILLIS, Twins, open_twins, request_of
from tests.support.fixture_stores import read_rows
from tests.support.kernels import FORMS

BOTH_FORMS = pytest.mark.parametrize("kernel_form", FORMS, indirect=True)
BROKER = BrokerProperties("DefaultCluster")
LETTERS = {
    **{"b": "topic", "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties"},
    "j": "reconsumeTimes",
}
# Sends of which the broker stores what no store should have: with another bit, or another record's CRC.
REFUSED = {b"stated as prepared": "sys_flag", b"compression 5": "sys_flag", b"inner": "wire_properties"}
LEFT_OUT = {b"ours": "__REPUT_MOVED_FROM__", b"a crc of another record": "__CRC32#"}
WITH_A_WISH = {
    b"a client sends a copy back",
    b"level",
    b"top level",
    b"timer",
    b"half",
    b"past",
    b"half sent back",
    *LEFT_OUT,
}


def rows_of(*, crc: bool) -> list[dict[str, Any]]:
    return [row for row in read_rows("remoting.sends.jsonl") if row["crc"] == crc]


def messages_of(row: dict[str, Any]) -> list[NewMessage]:
    """A request of a client as the door turns it into messages: docs of NewMessage."""
    fields = {LETTERS.get(name, name): value for name, value in row["fields"].items()}
    body, properties = bytes.fromhex(row["body"]), fields["properties"].encode()

    def message(body: bytes, flag: int, properties: bytes) -> NewMessage:
        made = NewMessage(
            topic=fields["topic"],
            queue_id=int(fields["queueId"]),
            body=body,
            flag=flag,
            reconsume_times=int(fields["reconsumeTimes"]),
            sys_flag=int(fields["sysFlag"]) & (PRODUCER_MASK if b"half" == body else -1),
            born_host=row["born_host"],
            wire_properties=properties,
        )
        made.born_time.FromMilliseconds(int(fields["bornTimestamp"]))
        return made

    if row["code"] == 320:
        return [message(entry.body, entry.flag, entry.properties) for entry in decode_client_batch(body)]
    # The broker's own key where it had to make one.
    stored = [decode_record(bytes.fromhex(record)).unique_key for record in row["records"]]
    return [message(body, int(fields["flag"]), BROKER.of_send(properties, lambda: stored[0]))]


def expected_of(frame: bytes, mine: bytes) -> bytes:
    """The broker's record at the places that ours has."""
    record, ours = decode_record(frame, check_properties_crc=False), decode_record(mine)
    expected = bytearray(frame)
    if record.properties_bytes.find(b"t__CRC32#") >= 0:
        # The broker leaves no separator before the CRC of a batched message whose last property has none.
        prepared = PreparedMessage(
            record.topic, record.queue_id, record.body, record.properties_bytes[:-20], record.born_time_millis,
            record.born_host, record.store_host, record.flag, record.sys_flag,
        )  # fmt: skip
        expected = prepare_record(prepared)
    patch_record(expected, ours.queue_offset, ours.commit_log_offset, ours.store_time_millis)
    return bytes(expected)


@pytest.fixture
def twins(tmp_path: Path) -> Iterator[Twins]:
    with open_twins(tmp_path) as twins:
        twins.append(request_of(new_message()))
        yield twins


@BOTH_FORMS
@pytest.mark.parametrize("crc", [True, False], ids=["with CRC", "without CRC"])
def test_the_records_of_sends_are_those_of_rocketmqs_broker(tmp_path: Path, kernel_form: str, crc: bool) -> None:
    rows = rows_of(crc=crc)
    with open_twins(tmp_path, store_host="127.0.0.1:10911", properties_crc=crc) as twins:
        twins.append(request_of(new_message(topic="wire")))
        for row in rows:
            body = bytes.fromhex(row["body"])
            messages = messages_of(row) if row["answer"] == 0 else []
            if body in REFUSED:
                message = messages[0] if messages else new_message(wire_properties=row["fields"]["i"].encode())
                error, _, metadata = twins.append(request_of(message))
                assert (InvalidMessageError, REFUSED[body]) == (error, metadata["field"])
                continue
            frames = [bytes.fromhex(record) for record in row["records"]]
            twins.now_millis = decode_record(frames[0], check_properties_crc=False).store_time_millis
            count = twins.fast_count
            results = twins.append(request_of(*messages)).results
            assert (body not in WITH_A_WISH) == (twins.fast_count > count), body
            for message, result, frame in zip(messages, results, frames, strict=True):
                record = twins.fast.opened.reads.get(result.commit_log_offset)
                mine = twins.fast._files.read(record.commit_log_offset, record.store_size_bytes)
                assert result.unique_key == record.unique_key
                if body in LEFT_OUT and LEFT_OUT[body] in decode_record(frame, check_properties_crc=False).properties:
                    stored = decode_record(frame, check_properties_crc=False).properties
                    left = {name: value for name, value in stored.items() if name not in (LEFT_OUT[body], "__CRC32#")}
                    assert left == {name: value for name, value in record.properties.items() if name != "__CRC32#"}
                    continue
                assert expected_of(frame, bytes(mine)) == bytes(mine), message
    assert len(rows) > 20


def test_a_key_that_wire_properties_do_not_have_is_not_made(twins: Twins) -> None:
    result = twins.append(request_of(new_message(wire_properties=b"a\x01b\x02"))).results[0]
    assert "" == result.unique_key
    assert {"a", "__CRC32#"} == set(twins.fast.opened.reads.get(result.commit_log_offset).properties)


def test_a_key_in_wire_properties_is_sent_again_once(twins: Twins) -> None:
    message = new_message(wire_properties=b"UNIQ_KEY\x01an earlier one\x02UNIQ_KEY\x01once\x02")
    first, again = (twins.append(request_of(message, deduplicate=True)).results[0] for _ in range(2))
    assert (False, True, "once") == (first.deduplicated, again.deduplicated, again.unique_key)
    assert first.commit_log_offset == again.commit_log_offset
    assert (
        again.deduplicated
        == twins.append(request_of(new_message(unique_key="once"), deduplicate=True)).results[0].deduplicated
    )
    error, _, metadata = twins.append(request_of(new_message(wire_properties=b"a\x01b\x02"), deduplicate=True))
    assert (InvalidMessageError, "unique_key") == (error, metadata["field"])


def test_a_timer_on_the_wire_has_a_handle_to_take_it_back(twins: Twins) -> None:
    later = TIME_MILLIS + 60_000
    message = new_message(wire_properties=f"UNIQ_KEY\x01u\x02TIMER_DELIVER_MS\x01{later}\x02".encode(), sys_flag=0x301)
    result = twins.append(request_of(message)).results[0]
    record = twins.fast.opened.reads.get(result.commit_log_offset)
    assert (result.recall_handle != "", "rmq_sys_wheel_timer", 0x301) == (True, record.topic, record.sys_flag)


def test_a_copy_of_a_message_that_has_waited_does_not_wait_again(twins: Twins) -> None:
    """Its properties still ask for the time: `HookUtils.checkIfTimerMessage` looks for TIMER_OUT_MS, too."""
    later = TIME_MILLIS + 60_000
    asked = f"UNIQ_KEY\x01u\x02TIMER_DELIVER_MS\x01{later}\x02TIMER_OUT_MS\x01{later - 1000}\x02".encode()
    result = twins.append(request_of(new_message(wire_properties=asked))).results[0]
    record = twins.fast.opened.reads.get(result.commit_log_offset)
    assert ("orders", asked) == (record.topic, record.properties_bytes[:-20])
