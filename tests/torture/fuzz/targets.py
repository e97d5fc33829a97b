"""What is fuzzed: each decoder of stored or received bytes as a function that may only raise what it declares.

A target returns normally for good bytes, and raises one of its `refusals` for bytes that it refuses; anything else (another
exception, a broken assertion here, too much work) is a find. `seeds` are good inputs to mutate; inputs that once found
something lie in `tests/torture/corpus/<target>/`. The table is at the end; parts of it lie beside this file.
"""

import base64
import json
from pathlib import Path

from commitlog_svc.recovery.safe_point import read_durable_mark, read_snapshot
from gateway.queries.page import PageTokens, shard_cursors
from store.derive.record_dispatch import decode_dispatch
from store.errors import (
    InvalidMessageError,
    InvalidMessageIdError,
    InvalidPageTokenError,
    RecordCorruptedError,
    StoreCorruptedError,
)
from store.files.json_state import read_json_state
from store.files.mapped_files import MappedFileQueue
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint
from store.format.derived.index_layout import IndexEntry, IndexHeader, encode_index_entry, encode_index_header, key_hash
from store.format.derived.queue_unit import QueueUnit, encode_queue_unit
from store.format.host import Host
from store.format.message_id import decode_offset_msg_id, decode_unique_key, encode_offset_msg_id
from store.format.properties import encode_properties, parse_properties, split_keys
from store.format.record import decode_record, encode_record
from store.format.topic import decode_topic_table, encode_topic_table
from store.readers.index_reader import IndexLayout, detect_index_layout
from store.walk.checks import FullCheck
from store.walk.cursor import RecordCursor
from store.walk.log_reader import LogReader
from store.walk.record_search import find_record_behind
from tests.support.readers import IndexReader, QueueReader
from tests.torture.fuzz import file_targets, kernel_targets, text_targets, wire_targets
from tests.torture.fuzz.file_targets import JSON_TOKENS
from tests.torture.fuzz.fixture_seeds import config_files, frames
from tests.torture.fuzz.target import Target
from tests.torture.log_zoo import FILE_BYTES, make_zoo
from tests.torture.memory_files import MemoryFileSystem

ROOT = Path("/store")
OWN = ROOT / "reput" / "commitlog"
LAYOUT = IndexLayout(7, 16)
SECRET = "a secret"
TOKENS = PageTokens(SECRET)
QUERY: dict[str, str | int | None] = {"topic": "orders", "key": "k1"}


def _record(data: bytes) -> None:
    try:
        record = decode_record(data, commit_log_offset=0)
    except RecordCorruptedError:
        return
    assert len(data) >= record.store_size_bytes
    if "\ufffd" not in record.topic:
        assert encode_record(record) == data[: record.store_size_bytes]
    assert all(name and value for name, value in record.properties.items())
    assert isinstance(record.keys, tuple)


def _dispatch(data: bytes) -> None:
    try:
        request = decode_dispatch(data, 0, 0)
    except RecordCorruptedError:
        # What the fast codec refuses the careful one refuses too.
        try:
            decode_record(data, commit_log_offset=0)
        except RecordCorruptedError:
            return
        raise AssertionError("decode_dispatch refused a record that decode_record takes") from None
    record = decode_record(data, commit_log_offset=0, check_body_crc=False, check_properties_crc=False)
    assert (request.topic, request.queue_id, request.queue_offset) == (
        record.topic, record.queue_id, record.queue_offset,
    )  # fmt: skip
    assert (request.keys, request.unique_key) == (record.keys, record.unique_key)
    assert (request.record_size_bytes, request.sys_flag) == (record.store_size_bytes, record.sys_flag)


def _properties(data: bytes) -> None:
    properties = parse_properties(data)
    for value in properties.values():
        assert all(split_keys(value))
    try:
        encoded = encode_properties(properties)
    except InvalidMessageError:
        return
    assert parse_properties(encoded) == properties


def _log(data: bytes) -> None:
    """A batch of frames as a file of a log: walked, searched behind, and read for the builders."""
    data = data[:FILE_BYTES]
    fs = MemoryFileSystem()
    fs.put(ROOT / "commitlog" / f"{0:020d}", data.ljust(FILE_BYTES, b"\0"))
    files = MappedFileQueue(fs, ROOT / "commitlog", FILE_BYTES, writable=False)
    files.load()
    cursor = RecordCursor(files, 0, FullCheck(files))
    seen = [record.commit_log_offset for record in cursor]
    assert seen == sorted(set(seen))
    assert 0 <= cursor.offset <= FILE_BYTES
    behind = find_record_behind(files, cursor.offset)
    assert behind is None or behind > cursor.offset
    files.close()
    offsets = [request.commit_log_offset for request in LogReader(ROOT, fs).dispatch_requests()]
    assert offsets[: len(seen)] == seen


def _queue_file(data: bytes) -> None:
    fs = MemoryFileSystem()
    path = ROOT / "consumequeue" / "orders" / "0" / f"{0:020d}"
    fs.put(path, data)
    units = QueueReader(ROOT, fs).queue("orders", 0)
    assert 0 <= units.begin <= units.end <= max(len(data) // 20, 1)
    for log_first_offset in (0, 1000, 1 << 62):
        assert units.begin <= units.min_offset(log_first_offset) <= units.end
        try:
            found = units.units(0, 1000, log_first_offset)
        except StoreCorruptedError:
            continue
        assert [number for number, _ in found] == sorted({number for number, _ in found})
    units.next_log_offset()
    assert units.end_before(500) <= units.end


def _index_file(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.put(ROOT / "index" / "20260101000000000", data)
    reader = IndexReader(ROOT, LAYOUT, fs)
    try:
        found = reader.search("orders", "k1", count=1000)
    except StoreCorruptedError:
        return
    assert found == sorted(set(found), reverse=True)
    assert len(found) <= len(data) // 20 + 1
    detect_index_layout(fs, ROOT, LAYOUT)


def _checkpoint(data: bytes) -> None:
    try:
        checkpoint = decode_checkpoint(data)
    except StoreCorruptedError:
        assert len(data) < 40
        return
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def _page_token(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        cursors = TOKENS.open(text, "QueryMessageByKey", QUERY)
    except InvalidPageTokenError:
        return
    if text:
        # Sealed again with its own nonce, a token is the same: it has one spelling.
        nonce = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[1:17]
        assert PageTokens(SECRET, lambda _: nonce).seal("QueryMessageByKey", QUERY, cursors) == text
    shard_cursors(cursors)


def _topics(data: bytes) -> None:
    try:
        topics = decode_topic_table(data)
    except StoreCorruptedError:
        return
    encoded = encode_topic_table(topics, None, time_millis=1)
    assert encode_topic_table(decode_topic_table(encoded), None, time_millis=1) == encoded


def _own_state(data: bytes) -> None:
    """Our JSON state and the durable mark: damaged state reads as absent, whatever it is."""
    fs = MemoryFileSystem()
    fs.put(OWN / "snapshot.json", data)
    fs.put(OWN / "durable", data)
    state = read_json_state(fs, OWN / "snapshot.json")
    assert state is None or isinstance(state, dict)
    fs.put(ROOT / "commitlog" / f"{0:020d}", make_zoo().data[:FILE_BYTES])
    files = MappedFileQueue(fs, ROOT / "commitlog", FILE_BYTES, writable=False)
    files.load()
    snapshot = read_snapshot(fs, OWN, files)
    assert snapshot is None or 0 < snapshot.commit_log_offset <= FILE_BYTES
    files.close()
    mark = read_durable_mark(fs, OWN)
    assert mark is None or isinstance(mark, int)


def _message_ids(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        host, offset = decode_offset_msg_id(text)
    except InvalidMessageIdError:
        pass
    else:
        assert encode_offset_msg_id(host, offset) == text.upper()
        assert offset >= 0
    key = decode_unique_key(text, now_millis=1_800_000_000_000)
    assert key is None or key.time_millis <= 1_800_000_000_000
    key_hash(text)


def _log_seeds() -> list[bytes]:
    return [make_zoo(with_crc=with_crc).data[:FILE_BYTES] for with_crc in (True, False)]


def _frames() -> list[bytes]:
    from dataclasses import replace

    return [
        encode_record(replace(record, commit_log_offset=0))
        for with_crc in (True, False)
        for record in make_zoo(with_crc=with_crc).records
    ]


def _index_seed() -> bytes:
    hash_ = key_hash("orders#k1")
    header = encode_index_header(IndexHeader(1, 2, 0, 1400, 1, 16))
    slots = b"".join((15 if slot == hash_ % 7 else 0).to_bytes(4, "big") for slot in range(7))
    entries = b"".join(encode_index_entry(IndexEntry(hash_, number * 100, 0, number - 1)) for number in range(1, 16))
    return header + slots + bytes(20) + entries


TOPICS_SEED = json.dumps(
    {
        "dataVersion": {"counter": 7, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": {
            "orders": {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": 4,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "orders",
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        },
    }
).encode()
STATE_SEED = json.dumps(
    {
        "commit_log_offset": 149,
        "first_offset": 0,
        "last_record": [0, 149],
        "last_record_crc": 1,
        "last_store_time_millis": 5,
        "queue_offsets": {"orders": {"0": 1}},
    }
).encode()
TARGETS: dict[str, Target] = {
    "record": Target(
        _record,
        lambda: [*_frames(), *frames()],
        (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"__CRC32#\x01", b"\x00\x00\x00\x00"),
    ),
    "dispatch": Target(
        _dispatch,
        lambda: [*_frames(), *frames()],
        (b"\xff\xff", b"\x01", b"\x02KEYS\x01", b"DELAY\x01-9", b"\x7f\xff\xff\xff"),
    ),
    "properties": Target(
        _properties,
        lambda: [record.properties_bytes for record in make_zoo().records],
        (b"\x01", b"\x02", b"\x01\x01", b"KEYS", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\x00"),
    ),
    "log": Target(_log, _log_seeds, (b"\xcb\xd4\x31\x94", b"\xda\xa3\x20\xa7", b"\x7f\xff\xff\xff", bytes(8))),
    "queue_file": Target(
        _queue_file,
        lambda: [
            b"".join(encode_queue_unit(QueueUnit(number * 100, 100, number)) for number in range(20)),
            (encode_queue_unit(QueueUnit(0, 0x7FFFFFFF, 0)) * 5).ljust(400, b"\0"),
        ],
        (bytes(20), b"\x7f\xff\xff\xff", b"\xff" * 8),
    ),
    "index_file": Target(_index_file, lambda: [_index_seed()], (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4))),
    "checkpoint": Target(
        _checkpoint, lambda: [encode_checkpoint(StoreCheckpoint(1, 2, 3, 4, 5, b"more"))], (bytes(40),)
    ),
    "page_token": Target(
        _page_token,
        lambda: [TOKENS.seal("QueryMessageByKey", QUERY, {"broker-a": 12345}).encode(), b""],
        (b"=", b"A" * 70_000, b"\xc3\xa9", b"\n"),
    ),
    "topics": Target(_topics, lambda: [TOPICS_SEED, *config_files("topics.json")], JSON_TOKENS),
    "own_state": Target(_own_state, lambda: [STATE_SEED, bytes(12)], JSON_TOKENS),
    "message_ids": Target(
        _message_ids,
        lambda: [
            encode_offset_msg_id(Host("10.0.0.1", 10911), 12345).encode(),
            encode_offset_msg_id(Host("2001:db8::1", 10911), 12345).encode(),
            b"7F0000010A7B18B4AAC22EF1D0580000",
        ],
        (b"F" * 16, b"\xd9\xa1", b"\n", b"0" * 56),
    ),
    **file_targets.TARGETS,
    **wire_targets.TARGETS,
    **text_targets.TARGETS,
    **kernel_targets.TARGETS,
}


def _self_test(data: bytes) -> None:
    assert not data.startswith(b"FU")


# Not of the product: shows that a find is found, kept and told.
SELF_TEST = {"self_test": Target(_self_test, lambda: [b"F", b"U"], (b"FU",))}
