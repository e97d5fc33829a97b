"""Logs that RocketMQ wrote: each record decodes to what RocketMQ says it is, and encodes to the same bytes."""

import hashlib
import zlib
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from store.derive.record_dispatch import decode_dispatch
from store.format.host import Host
from store.format.message_id import decode_offset_msg_id, decode_unique_key, encode_offset_msg_id
from store.format.record import (
    PreparedMessage,
    Record,
    decode_header,
    decode_record,
    encode_blank,
    encode_record,
    patch_record,
    prepare_record,
)
from store.format.sys_flag import COMPRESSED, is_compressed
from tests.support.fixture_stores import read_rows, walk_frames

LOG_SIZES = {"broker": 2784, "engine": 500, "engine_crc": 500}


@pytest.fixture(params=LOG_SIZES)
def named_store(request: pytest.FixtureRequest) -> tuple[str, Path]:
    return request.param, request.getfixturevalue(f"{request.param}_store")


def java_address(text: str) -> Host:
    """The host that Java prints as `/1.2.3.4:5` or `/[2001:db8:0:0:0:0:0:2]:5`."""
    return Host.parse(text.removeprefix("/"))


def as_row(record: Record) -> dict[str, Any]:
    """A record in the words of the fixtures; a client shows bodies inflated."""
    body = zlib.decompress(record.body) if is_compressed(record.sys_flag) else record.body
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.commit_log_offset,
        "store_size": record.store_size_bytes,
        "store_timestamp": record.store_time_millis,
        "born_timestamp": record.born_time_millis,
        "born_host": record.born_host,
        "store_host": record.store_host,
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "body_crc": record.body_crc,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_sha256": hashlib.sha256(body).hexdigest(),
        "body_len": len(body),
        "properties": dict(record.properties),
    }


def expected_row(row: dict[str, Any]) -> dict[str, Any]:
    """A fixture's row without what is no part of the record."""
    expected = {name: value for name, value in row.items() if name not in ("i", "msg_id", "offset_msg_id")}
    expected["born_host"] = java_address(row["born_host"])
    expected["store_host"] = java_address(row["store_host"])
    # The pull client adds the queue's range to what it shows.
    expected["properties"] = {
        name: value for name, value in row["properties"].items() if name not in ("MIN_OFFSET", "MAX_OFFSET")
    }
    return expected


def test_every_record_encodes_to_the_same_bytes(named_store: tuple[str, Path]) -> None:
    name, root = named_store
    count = 0
    for offset, frame in walk_frames(root):
        assert frame == encode_record(decode_record(frame, commit_log_offset=offset))
        count += 1
    assert LOG_SIZES[name] == count


def test_whole_log_files_are_made_again_from_decoded_records(named_store: tuple[str, Path]) -> None:
    """Walked by our own headers: records, blanks and the zeros behind are all there is."""
    _, root = named_store
    for path in sorted((root / "commitlog").iterdir()):
        data, rebuilt = path.read_bytes(), b""
        while len(rebuilt) + 4 <= len(data) and data[len(rebuilt) : len(rebuilt) + 4] != bytes(4):
            at = len(rebuilt)
            header = decode_header(data, at)
            if header.is_blank:
                assert len(data) - at == header.size_bytes
                rebuilt += encode_blank(header.size_bytes)
                break
            rebuilt += encode_record(decode_record(data, at=at, commit_log_offset=int(path.name) + at))
        assert data == rebuilt.ljust(len(data), b"\0")


def test_append_path_makes_the_same_bytes(named_store: tuple[str, Path]) -> None:
    """Same messages, times and hosts in: same bytes out, with `__CRC32#` and without."""
    name, root = named_store
    has_crc = name == "engine_crc"
    for _, frame in walk_frames(root):
        record = decode_record(frame)
        rebuilt = prepare_record(
            PreparedMessage(
                topic=record.topic,
                queue_id=record.queue_id,
                body=record.body,
                properties_bytes=record.properties_bytes[:-20] if has_crc else record.properties_bytes,
                born_time_millis=record.born_time_millis,
                born_host=record.born_host,
                store_host=record.store_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
                properties_crc=has_crc,
            )
        )
        patch_record(rebuilt, record.queue_offset, record.commit_log_offset, record.store_time_millis)

        assert frame == bytes(rebuilt)


def test_dispatch_agrees_with_every_record(named_store: tuple[str, Path]) -> None:
    _, root = named_store
    for offset, frame in walk_frames(root):
        record, request = decode_record(frame), decode_dispatch(frame, 0, offset)

        assert (record.topic, record.queue_id, record.queue_offset, offset, len(frame)) == request[:5]
        assert (record.store_time_millis, record.keys, record.unique_key, record.sys_flag) == request[6:10]


@pytest.mark.parametrize("name", ["engine", "engine_crc"])
def test_engine_records_are_what_rocketmq_decoded(name: str, request: pytest.FixtureRequest) -> None:
    frames = dict(walk_frames(request.getfixturevalue(f"{name}_store")))
    rows = read_rows(f"{name}.messages.jsonl")

    assert LOG_SIZES[name] == len(rows) == len(frames)
    for row in rows:
        assert expected_row(row) == as_row(decode_record(frames[row["physical_offset"]]))


@pytest.mark.parametrize("name", ["engine", "engine_crc"])
def test_offset_msg_ids_are_rocketmq_s(name: str) -> None:
    """IPv4 and IPv6 store hosts, both ways."""
    rows = read_rows(f"{name}.messages.jsonl")

    assert {32, 56} == {len(row["offset_msg_id"]) for row in rows}
    for row in rows:
        host, offset = java_address(row["store_host"]), row["physical_offset"]
        assert row["offset_msg_id"] == encode_offset_msg_id(host, offset)
        assert (host, offset) == decode_offset_msg_id(row["offset_msg_id"])


def test_broker_records_are_what_its_clients_saw(broker_store: Path) -> None:
    """Every message in any answer of the admin and pull clients."""
    frames = dict(walk_frames(broker_store))
    rows = [row for query in read_rows("broker.queries.jsonl") for row in query.get("messages", ())]

    assert len(rows) > 1000
    for row in rows:
        record = decode_record(frames[row["physical_offset"]])
        expected, seen = expected_row(row), as_row(record)
        # A client that inflated a body clears the bit that says so.
        expected["sys_flag"] |= record.sys_flag & COMPRESSED
        assert expected == seen
        assert row["msg_id"] == record.unique_key


def test_sent_ids_lead_to_the_sent_messages(broker_store: Path) -> None:
    """A producer's two ids and the queue place name the same record; a batch lists the ids of all its messages.

    The broker closes each message of a batch with the batch's properties, among them the batch's own UNIQ_KEY. The
    later of two wins in RocketMQ's parser, so that the message's own unique key is stored but finds nothing.
    """
    frames = dict(walk_frames(broker_store))
    count = 0
    for row in read_rows("broker.sends.jsonl"):
        if row["kind"].startswith("tx_"):
            continue  # the place of a half message, in another topic
        unique_keys, ids = row["msg_id"].split(","), row["offset_msg_id"].split(",")
        assert len(unique_keys) == len(ids)
        for position, (unique_key, offset_msg_id) in enumerate(zip(unique_keys, ids, strict=True)):
            host, offset = decode_offset_msg_id(offset_msg_id)
            record = decode_record(frames[offset])
            assert host == record.store_host
            if row["kind"] == "batch":
                assert f"UNIQ_KEY\x01{unique_key}\x02".encode() in record.properties_bytes
                assert record.properties_bytes.count(b"UNIQ_KEY\x01") == 2
            else:
                assert unique_key == record.unique_key
            assert offset_msg_id == encode_offset_msg_id(record.store_host, offset)
            if row["kind"] != "delay":  # stored in SCHEDULE_TOPIC_XXXX first
                place = (row["topic"], row["queue_id"], row["queue_offset"] + position)
                assert place == (record.topic, record.queue_id, record.queue_offset)
            count += 1
    assert count > 2600


def test_unique_keys_tell_producer_and_time(broker_store: Path) -> None:
    """A producer makes the key just before it notes the born time; its time zone was UTC."""
    checked = 0
    for _, frame in walk_frames(broker_store):
        record = decode_record(frame)
        if record.topic not in ("b_order", "b_payment", "b_log"):
            continue
        key = decode_unique_key(record.unique_key, now_millis=record.store_time_millis + 1000, time_zone=UTC)
        assert key is not None
        assert key.ip == "fd00::2"
        assert key.pid == 0x48C6
        assert key.time_millis <= record.store_time_millis
        checked += 1
    assert checked > 2000
