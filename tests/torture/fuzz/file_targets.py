"""Targets: files that a broker, an operator or another release wrote, beside those of `targets.py`."""

import contextlib
import json
import struct
import zlib
from pathlib import Path

from gateway.auth.access_file import parse_access_file
from gateway.auth.jwt_tokens import parse_jwks
from gateway.auth.plain_acl import read_plain_acl
from gateway.tenants.tenants_file import parse_tenants_file
from nameserver_svc.kv_config import KvConfig
from services.settings.broker_conf import read_broker_conf
from store.archive.manifest import decode_segment
from store.cold.manifest import decode_manifest, encode_manifest
from store.errors import InvalidSettingError, StoreCorruptedError
from store.files.config_file import read_config_file, replace_config_file
from store.files.open_files import OpenFiles
from store.format.config_json import TABLES, is_own, load_document, salvage_document
from store.format.delivery.config_rows import unreadable_rows, with_rows_of
from store.format.delivery.consumer_files import (
    decode_groups,
    decode_modes,
    decode_offsets,
    encode_offsets,
)
from store.format.delivery.delay_offset_file import (
    TransactionOffsets,
    decode_delay_offsets,
    decode_transaction_offsets,
    encode_delay_offsets,
)
from store.format.delivery.pop_records import CheckPoint, decode_ack, decode_check_point, encode_check_point
from store.format.delivery.timer_files import (
    UNIT_DTYPE,
    TimerCheckpoint,
    UnitChain,
    check_timer_page,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
    is_own_timer_checkpoint,
)
from store.format.derived.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE_BYTES
from store.format.derived.index_layout import IndexHeader
from store.format.derived.index_summary import (
    SummaryHeader,
    decode_summary_header,
    encode_summary,
    index_header_crc,
    page_is_sound,
)
from store.format.derived.light_unit import (
    ENTRY_SIZE_BYTES,
    LightEntry,
    decode_light_entry,
    decode_light_names,
    encode_light_entry,
    encode_light_name,
)
from store.format.derived.queue_ext import (
    QueueExtUnit,
    decode_queue_ext_unit,
    encode_queue_ext_unit,
    ext_address,
)
from store.format.derived.queue_unit import QueueUnit
from store.format.message_trace import decode_trace_body, join_traces
from store.readers.batch_queue_reader import read_batch_range
from store.readers.queue_reader import QueueExtUnits
from tests.torture.fuzz.fixture_seeds import config_files, trace_bodies
from tests.torture.fuzz.target import Target, scratch
from tests.torture.memory_files import MemoryFileSystem

ROOT = Path("/store")
JSON_TOKENS = (b"[" * 2000, b'{"a":' * 2000, b"1" * 5000, b"NaN", b"null", b"\\ud800", b"-1e999", b"true", b"{}", b"[]")
TOML_TOKENS = (
    b"a=" + b"[" * 2000,
    b"[[clients]]\n",
    b"1" * 5000,
    b"1e999",
    b"inf",
    b"'''",
    b'"\\uD800"',
    b"9999-99-99",
)
YAML_TOKENS = (
    b"[" * 2000,
    b'"\\UFFFFFFFF"',
    b"&a",
    b"*a",
    b"!!binary ",
    b"<<: ",
    b"? ",
    b"- ",
    b"%YAML 9.9\n",
    b"---\n",
)
KEY = "7F0000010A7B18B4AAC22EF1D0580000"


def _config(data: bytes) -> None:
    """Any file of `config/` under each of the names that one may have."""
    for name in TABLES:
        with contextlib.suppress(StoreCorruptedError):
            assert isinstance(load_document(data, name), dict)
            with_rows_of(name, data, data, unreadable_rows(name, data))
    for salvage in (is_own, salvage_document):
        with contextlib.suppress(StoreCorruptedError):
            salvage(data)


def _config_file(data: bytes) -> None:
    """A file of `config/`, its `.bak` behind a byte 0xFF, as a start reads and replaces them."""
    first, _, backup = data.partition(b"\xff")
    fs, path = MemoryFileSystem(), ROOT / "config" / "consumerOffset.json"
    fs.put(path, first)
    if backup:
        fs.put(path.with_name(path.name + ".bak"), backup)
    found = read_config_file(fs, path)
    if found.content is not None:
        load_document(found.content, path.name)
    new = b'{"offsetTable":{}}'
    replace_config_file(fs, path, new)
    assert read_config_file(fs, path).content == new


def _consumer_offsets(data: bytes) -> None:
    offsets = decode_offsets(data, with_light=True)
    written = encode_offsets(offsets, data, time_millis=1, with_light=True)
    assert decode_offsets(written, with_light=True) == offsets
    plain = decode_offsets(data)
    assert decode_offsets(encode_offsets(plain, data, time_millis=1)) == plain


def _groups(data: bytes) -> None:
    for name, config in decode_groups(data).items():
        name.encode()
        assert 0 <= config.retry_count_max < 1 << 31
        assert 0 <= config.priority_factor <= 100


def _delay_offsets(data: bytes) -> None:
    offsets = decode_delay_offsets(data)
    transactions = decode_transaction_offsets(data) or TransactionOffsets()
    written = encode_delay_offsets(offsets, transactions, data, time_millis=1)
    assert decode_delay_offsets(written) == offsets
    assert decode_transaction_offsets(written) == transactions


def _timer_files(data: bytes) -> None:
    check_timer_page(data)
    page = decode_timer_checkpoint(data)
    is_own_timer_checkpoint(data)
    assert decode_timer_checkpoint(encode_timer_checkpoint(page)) == page


def _timer_log(data: bytes) -> None:
    chain = UnitChain(1 << 20)
    units = chain.link(data)
    assert units.dtype == UNIT_DTYPE
    positions = units["previous_position"]
    assert ((positions >= -1) & (positions < max(len(data), 1))).all()


def _queue_ext(data: bytes) -> None:
    unit = decode_queue_ext_unit(data)
    if unit is not None:
        assert encode_queue_ext_unit(unit) == data[: unit.size_bytes]
    fs = MemoryFileSystem()
    fs.put(ROOT / "consumequeue_ext" / "orders" / "0" / f"{0:020d}", data)
    files = OpenFiles(fs)
    ext = QueueExtUnits(files, ROOT / "consumequeue" / "orders" / "0")
    offsets = (
        0,
        20,
        len(data),
        1 << 62,
        (1 << 63) - 1,
        *(int.from_bytes(data[at : at + 8], "big") >> 1 for at in (0, 8)),
    )
    units = [QueueUnit(0, 100, ext_address(offset)) for offset in offsets]
    assert len(list(ext.resolved(units))) == len(units)
    assert ext.unit(ext_address(0)) == unit
    files.close()


def _light_queues(data: bytes) -> None:
    entry = decode_light_entry(data[:ENTRY_SIZE_BYTES])
    if entry is not None:
        assert encode_light_entry(entry) == data[:ENTRY_SIZE_BYTES]
    names = list(decode_light_names(data))
    encoded = b"".join(encode_light_name(number, name) for number, name in names)
    assert data.startswith(encoded)


def _batch_queue(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.put(ROOT / "batchconsumequeue" / "orders" / "0" / f"{0:020d}", data)
    for first, end in ((0, 1 << 62), (300, 500), (1 << 40, 1 << 41)):
        found = read_batch_range(fs, ROOT, "orders", 0, first, end)
        assert found is None or found.last.next_offset <= end


def _index_summary(data: bytes) -> None:
    header = decode_summary_header(data[:4096])
    if header is not None:
        assert header.size_bytes >= 8192
    for number in range(2):
        page_is_sound(data[number * 4096 : (number + 1) * 4096], number)


def _pop_records(data: bytes) -> None:
    for decode in (decode_check_point, decode_ack):
        try:
            found = decode(data)
        except StoreCorruptedError:
            continue
        if found is None:
            continue
        numbers = [*found.queue_offsets, *found.key[2:]]
        assert all(-(1 << 63) <= number < 1 << 63 for number in numbers), numbers


def _trace(data: bytes) -> None:
    fields = [field.decode("utf-8", "replace") for field in data.split(b"\x01", 6)]
    for key in {KEY, fields[0], *fields[5:6]}:
        found = decode_trace_body(data, key, "10.0.0.1:1", 100)
        assert len(found.entries) + found.damaged_count <= 100
        join_traces(found.entries)


def _manifests(data: bytes) -> None:
    for decode in (lambda: decode_manifest(data, "cold"), lambda: decode_segment(data, ROOT / "segment")):
        try:
            decode()
        except StoreCorruptedError:
            continue


def _kv_config(data: bytes) -> None:
    path = scratch() / "kvConfig.json"
    path.write_bytes(data)
    KvConfig(path).namespaces()


def _broker_conf(data: bytes) -> None:
    read_broker_conf(data.decode("utf-8", "replace"), "broker.conf")


ACCESS = b"""[[clients]]
name = "orders-service"
api_key_sha256 = ["%s"]
jwt_subjects = ["orders@example.com"]
access_keys = {orders-key = "a secret"}
read = ["orders-*"]
write = ["orders-*"]
groups = ["orders-*"]
""" % (b"9f" * 32)
TENANTS = b"""gateway_count = 2
[namespaces.team-a]
sent_bytes_per_second = 1_000_000
topics = 5
"""
ACCOUNTS = b"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: "RocketMQ"
  secretKey: "12345678"
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  - groupA=SUB
- {accessKey: rocketmq2, secretKey: 12345678, admin: true}
"""
# The generator of P-256.
POINT_X, POINT_Y = "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"
JWKS = json.dumps(
    {"keys": [{"kty": "RSA", "kid": "a", "alg": "RS256", "n": "AQAB" * 90, "e": "AQAB"},
              {"kty": "EC", "crv": "P-256", "x": POINT_X, "y": POINT_Y}]}
).encode()  # fmt: skip
POINT = CheckPoint("g", "orders", 3, 10, 1_700_000_000_000, 60_000, (10, 11, 13))
ACKS = (
    b'{"ao":11,"so":10,"pt":1700000000000,"q":3,"t":"orders","c":"g","bn":"b"}',
    b'{"aol":[11,12],"so":10,"pt":1700000000000,"q":3,"t":"orders","c":"g","bn":"b"}',
    b'{"so":10,"n":3,"bm":5,"pt":1700000000000,"it":60000,"q":3,"t":"orders","c":"g","rp":"1"}',
)


def _units() -> bytes:
    unit = struct.Struct(">iqiqiqiiq")
    return b"".join(unit.pack(52, 0, 1, 1_700_000_000_000, 5_000 * at, at * 200, 200, 7, 0) for at in range(8))


def _summary() -> bytes:
    crc = index_header_crc(IndexHeader(1, 2, 0, 1400, 1, 16))
    return encode_summary(SummaryHeader(crc, 1, 2, 0, 1400, 15, 1), bytes(32))


def _cold() -> list[bytes]:
    fields = {"version": 1, "segments": [], "rising": {}}
    compact = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    made = json.dumps({"crc32": zlib.crc32(compact), "cold": fields}).encode()
    return [encode_manifest([]), made, b'{"crc32": 1, "segment": {"files": []}}']


TARGETS: dict[str, Target] = {
    "config": Target(
        _config, lambda: [each for name in TABLES for each in config_files(name)[:1]], (*JSON_TOKENS, b"{0:", b"\xef\xbb\xbf")
    ),
    "config_file": Target(
        _config_file,
        lambda: [b"\xff".join(config_files("consumerOffset.json")[:2]), b'{"offsetTable":{0:1}}more\xff{"offsetTable":{}}'],
        (*JSON_TOKENS, b"\xff", b"{0:", b'{"x":' + b"[" * 985 + b"]" * 985 + b"}x"),
    ),
    "consumer_offsets": Target(
        _consumer_offsets,
        lambda: config_files("consumerOffset.json") + config_files("lmqConsumerOffset.json"),
        (*JSON_TOKENS, b"%LMQ%", b"@", b'"lmqOffsetTable":'),
        (StoreCorruptedError,),
    ),
    "groups": Target(
        _groups, lambda: config_files("subscriptionGroup.json"), (*JSON_TOKENS, b"lite.bind.topic"), (StoreCorruptedError,)
    ),
    "request_modes": Target(
        decode_modes,
        lambda: [b'{"messageRequestModeMap":{"t":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":0,"topic":"t"}}}}'],
        JSON_TOKENS,
        (StoreCorruptedError,),
    ),
    "delay_offsets": Target(
        _delay_offsets, lambda: config_files("delayOffset.json"), (*JSON_TOKENS, b'"reput":{'), (StoreCorruptedError,)
    ),
    "timer_checkpoint": Target(
        _timer_files,
        lambda: [encode_timer_checkpoint(TimerCheckpoint(1_700_000_000_000, 5, 6, 7, 8, 9, 10)), *config_files("timercheck")],
        (b"\xff" * 8, bytes(8)),
        (StoreCorruptedError,),
    ),
    "timer_log": Target(_timer_log, lambda: [_units()], (b"\x00\x00\x004", b"\x7f" + b"\xff" * 7), (StoreCorruptedError,)),
    "queue_ext": Target(
        _queue_ext,
        lambda: [b"".join(encode_queue_ext_unit(QueueExtUnit(at, at, bytes(at * 8))) for at in range(5)) + b"\xff\xff"],
        (b"\xff\xff", b"\x7f\xff", bytes(20)),
    ),
    "light_queues": Target(
        _light_queues,
        lambda: [encode_light_entry(LightEntry(1, 2, 3, 4, -1, 0, 7)), encode_light_name(7, "%LMQ%a")],
        (b"\xff\xff", b"\xed\xa0\x80"),
    ),
    "batch_queue": Target(
        _batch_queue, lambda: [b"".join(BATCH_UNIT.pack(at * 100, 100, 0, 5, at * 3, 3, -1, 0) for at in range(8))],
        (bytes(BATCH_UNIT_SIZE_BYTES), b"\xff" * 8), (StoreCorruptedError,),
    ),
    "index_summary": Target(_index_summary, lambda: [_summary()], (b"RPIS", bytes(4096))),
    "pop_records": Target(
        _pop_records, lambda: [encode_check_point(POINT, "b"), *ACKS], (*JSON_TOKENS, b'"n":99999999', b"Infinity", b"1e999")
    ),
    "trace": Target(_trace, trace_bodies, (b"\x01", b"\x02", b"null", b"\xed\xa0\x80", b"Pub", b"SubAfter")),
    "manifests": Target(_manifests, _cold, JSON_TOKENS),
    "access_file": Target(parse_access_file, lambda: [ACCESS], TOML_TOKENS, (ValueError,)),
    "tenants_file": Target(parse_tenants_file, lambda: [TENANTS], TOML_TOKENS, (ValueError,)),
    "plain_acl": Target(read_plain_acl, lambda: [ACCOUNTS], YAML_TOKENS, (ValueError,)),
    # `WatchedFile` makes a ValueError of whatever a parser says.
    "jwks": Target(parse_jwks, lambda: [JWKS], (*JSON_TOKENS, b'"n":"', b'"e":"AA"'), (ValueError, TypeError, RecursionError)),
    "kv_config": Target(
        _kv_config, lambda: [b'{"configTable":{"ns":{"key":"value"}}}'], JSON_TOKENS, (InvalidSettingError,)
    ),
    "broker_conf": Target(
        _broker_conf,
        lambda: [b"brokerName=a\nflushDiskType = SYNC_FLUSH\nfileReservedTime=48\nmappedFileSizeConsumeQueue=6000000\n"
                 b"brokerIP1=10.0.0.1\nlistenPort=10911\n"],
        (b"\\u0041", b"\\", b"1" * 5000, b"\n", b"="),
        (InvalidSettingError,),
    ),
}  # fmt: skip
