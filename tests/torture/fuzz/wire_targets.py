"""Targets: what arrives on a connection."""

import contextlib
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import DecodeError, Message

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from commitlog_svc.replication.leading.record import ShardRecord
from gateway.appends.coalescer import read_small_append
from gateway.auth.users import new_user, with_policies
from gateway.groups.asked_members import Told
from gateway.remoting.assignments import set_message_request_mode
from gateway.remoting.door import Ask, RefusedError
from gateway.remoting.groups import update_and_create_group, update_and_create_group_list
from gateway.remoting.members import Members, client_bytes_of, client_of, facts_of
from gateway.remoting.pops import _batch_handles
from gateway.remoting.repeated_headers import cut, is_proven, text_of
from gateway.remoting.topics import document_of, update_and_create_topic_list
from gateway.remoting.users import _said_of_user
from gateway.reput.running_info import info_of
from gateway.rocketmq.messages import to_message, to_pulled
from gateway.rocketmq.sending import _append_request, _only_topic, _parse
from gateway.rocketmq.status import RefusedError as RefusedV2Error
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.message.v1.message_pb2 import NewMessage
from schedule_svc.due_record import level_due, timer_due
from schedule_svc.timers.timer_record import due_of
from schedule_svc.timers.timer_record import facts_of as facts_of_timer
from schedule_svc.transactions.half_messages import ended_by, half_of
from services.convert import stored_message
from services.local.wire import ANSWER, LOOKUPS, WireError, pieces_of
from services.local.wire import FrameReader as LocalReader
from services.reput_columns import columns_from_proto, columns_to_proto
from services.rocketmq.command import Command, FrameError, FrameReader, decode, encode
from services.rocketmq.fastjson import dump_bytes, loads
from services.rocketmq.ha_frames import REPORT, TRANSFER_HEADER, ReportDecoder, TransferDecoder
from services.rocketmq.proxy_header import SIGNATURE, parse_header
from services.rocketmq.registration import decode_registration, encode_registration
from services.rocketmq.signature import parse_authorization, seconds_off, signed_bytes
from services.status import StatusError, from_status
from store.derive.dispatch_walk import walk_columns_plainly
from store.errors import (
    IllegalFilterError,
    InvalidArgumentError,
    InvalidMessageError,
    RecordCorruptedError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
)
from store.format.client_batch import BatchEntry, decode_client_batch, encode_client_batch
from store.format.record import decode_record, encode_record
from store.format.topic import DataVersion, TopicConfig
from tests.torture.fuzz.file_targets import JSON_TOKENS
from tests.torture.fuzz.fixture_seeds import FRAME_TOKENS, frames
from tests.torture.fuzz.target import Target
from tests.torture.log_zoo import FILE_BYTES, make_zoo


def _command(data: bytes) -> None:
    """A frame without its length, and the bytes of a connection."""
    reader = FrameReader(1 << 16)
    for begin in range(0, len(data), 1000):
        reader.add(data[begin : begin + 1000])
    try:
        while reader.next() is not None:
            pass
    except FrameError:
        pass
    command = decode(data)
    for text in (command.remark, command.language, *command.fields, *command.fields.values()):
        text.encode()  # no protobuf takes another, and no answer either
    again = decode(encode(command)[4:])
    assert (again.fields, again.body, again.opaque) == (command.fields, command.body, command.opaque)
    signed_bytes(command)


def _repeated_header(data: bytes) -> None:
    """A header of a send that is taken without decoding says what the decoder says."""
    parts = cut(data)
    if parts is None:
        return
    command = decode(len(data).to_bytes(4, "big") + data)
    if not is_proven(parts, command):
        return
    born, properties = (command.fields[name] for name in parts.fields)
    assert (int(parts.born), int(parts.opaque)) == (int(born), command.opaque)
    assert text_of(parts.properties) in (None, properties)


def _small_append(data: bytes) -> None:
    """A request that is joined with others has as many messages as protobuf reads, if it reads it."""
    small = read_small_append(data)
    if small is not None:
        whole = commitlog_pb.AppendMessagesRequest.FromString(data)
        assert (len(whole.messages), whole.flush) == (small.message_count, small.flush)


def _v2_send(data: bytes) -> None:
    """A SendMessageRequest of a client over gRPC."""
    messages = _parse(data)
    _only_topic(messages)
    for message_type in range(5):
        with contextlib.suppress(RefusedV2Error):
            _append_request(messages, message_type, 86_400).SerializeToString()


def _stored_message(data: bytes) -> None:
    """A record of a store, as each reader of it sees the message: clients over gRPC, and what waits."""
    stored = stored_message(decode_record(data, commit_log_offset=0), "broker")
    for shown in (to_message(stored), to_pulled(stored)):
        shown.SerializeToString()
    half_of(stored)
    ended_by(stored)
    facts_of_timer(stored)
    due_of(stored)
    for due in (level_due(stored), timer_due(stored, 1, 2)):
        if due is not None:
            due.SerializeToString()


def _shard_record(data: bytes) -> None:
    record = ShardRecord.from_bytes(data)
    assert ShardRecord.from_bytes(record.to_bytes()) == record


def _fastjson(data: bytes) -> None:
    value = loads(data)
    with contextlib.suppress(RecursionError):  # as its callers
        # By its words: NaN equals nothing.
        assert repr(loads(dump_bytes(value))) == repr(loads(dump_bytes(loads(dump_bytes(value)))))


RIGHTS = SimpleNamespace(access=None)


def _heartbeat(data: bytes) -> None:
    """A whole frame, whose body is a heartbeat."""
    command = decode(data)
    connection = SimpleNamespace(peer=("10.0.0.1", 5))
    ask = cast(Ask, SimpleNamespace(command=command, connection=connection, rights=RIGHTS, caller_name="caller"))
    client, _ = client_of(ask, document_of(command.body), None)
    facts = facts_of(client)
    for each in facts:
        each.SerializeToString()
    assert client_bytes_of(client, facts) >= 0


class _Willing:
    """Rights that allow everything, and a shard that answers nothing."""

    cluster_name, broker_name, new_topic_queue_count = "cluster", "broker", 8

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> "_Willing":
        return self

    def __call__(self, *arguments: object, **named: object) -> Any:
        if not self._answers:
            raise ServiceUnavailableError("nothing answers", service="none")
        return None

    def __len__(self) -> int:
        raise ServiceUnavailableError("nothing answers", service="none")

    def __iter__(self) -> Iterator[Any]:
        raise ServiceUnavailableError("nothing answers", service="none")

    def call(self, _method: object, request: Message, *_more: object) -> Any:
        """A call of the shard: what it would send must be a message."""
        request.SerializeToString()
        raise ServiceUnavailableError("nothing answers", service="none")


def _request_body(data: bytes) -> None:
    """The body of each request of RocketMQ's tools and clients that has one, as JSON of fastjson."""
    command = Command(0, {"username": "u", "subject": "User:u"}, data)
    connection = SimpleNamespace(peer=("10.0.0.1", 5))
    rights = _Willing(answers=True)
    ask = cast(Ask, SimpleNamespace(command=command, connection=connection, rights=rights, caller_name="c", caller="c"))
    shard = cast(Any, _Willing(answers=False))
    members = cast(Any, SimpleNamespace(_shard=shard, _lock_some=shard))
    for handle in (
        lambda: update_and_create_group(shard, ask),
        lambda: update_and_create_group_list(shard, ask),
        lambda: update_and_create_topic_list(shard, ask),
        lambda: set_message_request_mode(shard, ask),
        lambda: Members.lock(members, ask, unlock=False),
        lambda: Members.check_client_config(members, ask),
        lambda: list(_batch_handles(ask)),
        lambda: _said_of_user(ask),
        lambda: with_policies(new_user("u", "secret-1"), document_of(data)),
    ):
        with contextlib.suppress(RefusedError, StoreError):
            handle()


def _running_info(data: bytes) -> None:
    info_of(Told(data)).SerializeToString()


def _registration(data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    fields = dict(part.partition("=")[::2] for part in head.decode("utf-8", "replace").split("&"))
    registration = decode_registration(fields, body)
    for name in (registration.name, registration.address, *registration.topics):
        name.encode()


def _ha(data: bytes) -> None:
    """What a master and a slave send, in pieces of several sizes."""
    outcomes = []
    for size in (1, 5, len(data) + 1):
        transfers, reports, taken, is_refused = TransferDecoder(), ReportDecoder(), bytearray(), False
        last: int | None = None
        for begin in range(0, len(data), size):
            part = memoryview(data)[begin : begin + size]
            reported = reports.feed(bytes(part))
            last = last if reported is None else reported
            try:
                for piece in () if is_refused else transfers.feed(part):
                    taken += piece.data
            except RecordCorruptedError:
                is_refused = True
        outcomes.append((bytes(taken), is_refused, last))
    assert outcomes.count(outcomes[0]) == len(outcomes)


def _proxy_header(data: bytes) -> None:
    found = parse_header(data)
    if found is not None:
        assert found.size_bytes <= len(data)
        assert parse_header(data[: found.size_bytes]) == found
        assert parse_header(data[: found.size_bytes - 1]) is None


def _local_frames(data: bytes) -> None:
    reader, left = LocalReader(LOOKUPS.request_bytes_max), data

    def receive(size: int, _has_begun: bool) -> bytes:
        nonlocal left
        taken, left = left[: min(size, 700)], left[min(size, 700) :]
        return taken

    while True:
        frame = reader.read(receive)
        if frame is None:
            return
        assert len(frame[1]) <= len(data)


def _status(data: bytes) -> None:
    error = from_status(StatusError.from_bytes(data).status)
    assert error.reason()


def _columns(data: bytes) -> None:
    columns = columns_from_proto(commitlog_pb.ReputColumns.FromString(data))
    columns_to_proto(columns)


def _client_batch(data: bytes) -> None:
    entries = decode_client_batch(data, 64)
    assert encode_client_batch(entries)[20:] or not entries


def _authorization(data: bytes) -> None:
    text = data.decode("latin-1")
    header, _, date = text.partition("\n")
    found = parse_authorization(header, date)
    if found is not None:
        seconds_off(found.date, 1.8e9)


COMMAND = Command(105, {"topic": "t", "queueId": "3"}, b"body", 7, remark="a remark", version=479)
BEAT: dict[str, Any] = {
    "clientID": "10.0.0.1@5",
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {"topic": "t", "subString": "a || b", "expressionType": "TAG", "subVersion": 5},
                {"topic": "u", "subString": "a > 3 AND b IN ('x')", "expressionType": "SQL92"},
            ],
        }
    ],
    "producerDataSet": [{"groupName": "p"}],
}
REQUEST_BODY: dict[str, Any] = {
    "groupName": "g",
    "retryMaxTimes": 3,
    "attributes": {"+priority.factor": "50", "+lite.bind.topic": "t"},
    "groupConfigList": [{"groupName": "g", "consumeEnable": True}],
    "topicConfigList": [
        {"topicName": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "attributes": {"+message.type": "FIFO"}}
    ],
    "topic": "t",
    "consumerGroup": "g",
    "mode": "POP",
    "popShareQueueNum": 0,
    "clientId": "c",
    "mqSet": [{"topic": "t", "brokerName": "b", "queueId": 0}],
    "subscriptionData": {"topic": "t", "subString": "a > 1", "expressionType": "SQL92"},
    "brokerName": "b",
    "acks": [
        {"c": "g", "t": "t", "r": "0", "so": 5, "q": 0, "rq": 0, "pt": 1700000000000, "it": 60000, "b": "AQ=="},
    ],
    "password": "secret-1",
    "userType": "Normal",
    "policies": [
        {"policyType": "Custom", "entries": [{"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow"}]},
    ],
}
RUNNING = (
    b'{"jstack":"stack","properties":{"PROP_CONSUMEORDERLY":"false","n":"1"},"subscriptionSet":[{"topic":"t","subString":"*",'
    b'"expressionType":"TAG"}],"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"commitOffset":5,"locked":true,'
    b'"lastPullTimestamp":1700000000000}},"statusTable":{"t":{"pullRT":1.5,"consumeFailedTPS":0.0,"consumeOKMsgs":7}}}'
)


def _waiting_frames() -> list[bytes]:
    waiting = {"REAL_TOPIC": "t", "REAL_QID": "3", "UNIQ_KEY": "U", "TIMER_OUT_MS": "1700000000000", "PGROUP": "p"}
    found = []
    for more in (
        {},
        {"TIMER_DELIVER_MS": "5"},
        {"DELAY": "3"},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "-5"},
        {"__SHARDINGKEY": "g"},
    ):
        properties = "".join(f"{name}\x01{value}\x02" for name, value in (waiting | more).items()).encode()
        for topic in ("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
            record = replace(make_zoo().records[0], topic=topic, properties_bytes=properties, commit_log_offset=0)
            found.append(encode_record(record))
    return found


def _send_headers() -> list[bytes]:
    fields = {"a": "pg", "b": "T", "e": "3", "g": "1700000000000", "i": "KEYS\x01k\x02TAGS\x01t\x02", "m": "false"}
    short = Command(310, fields, opaque=7)
    long = Command(10, {"topic": "T", "bornTimestamp": "1700000000000", "properties": "KEYS\x01k\x02"}, opaque=8)
    made = [encode(command)[8:] for command in (short, long)]
    java = b'{"code":310,"extFields":{"g":"170","i":"a\\u0001b\\u0002"},"flag":0,"opaque":7,"version":479}'
    return [*made, java, java.replace(b'"flag":0,"opaque":7,', b"").replace(b'{"code"', b'{"opaque":7,"code"')]


def _v2_requests() -> list[bytes]:
    system = v2.SystemProperties(message_id="01ABC", message_type=v2.NORMAL, tag="t", keys=["k"])
    plain = v2.Message(topic=v2.Resource(name="t"), body=b"b", user_properties={"a": "b"}, system_properties=system)
    late = v2.Message()
    late.CopyFrom(plain)
    late.system_properties.message_type = v2.DELAY
    late.system_properties.delivery_timestamp.FromSeconds(1_900_000_000)
    ordered = v2.Message()
    ordered.CopyFrom(plain)
    ordered.system_properties.message_group = "group"
    return _serialized(*(v2.SendMessageRequest(messages=[each]) for each in (plain, late, ordered)))


def _beats() -> list[bytes]:
    body = json.dumps(BEAT).encode()
    return [encode(Command(34, {}, body, is_binary=is_binary, language="GO"))[4:] for is_binary in (False, True)]


def _registrations() -> list[bytes]:
    fields = {"clusterName": "c", "brokerName": "b", "brokerId": "0", "brokerAddr": "a:1", "haServerAddr": "a:2"}
    topics = [TopicConfig("t", 4, 4), TopicConfig("u", 1, 2)]
    found = []
    named, body = encode_registration(fields, DataVersion(1, 2, 3), topics)
    for more, data in (
        (named | {"bodyCrc32": "0"}, body),
        (named | {"bodyCrc32": "0", "compressed": "true"}, _deflated()),
    ):
        found.append("&".join(f"{name}={value}" for name, value in more.items()).encode() + b"\n" + data)
    return found


def _deflated() -> bytes:
    def sized(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    version = sized(b'{"counter":1,"stateVersion":0,"timestamp":5}')
    return zlib.compress(version + struct.pack(">i", 1) + sized(b"t 4 4 6 SINGLE_TAG {}") + sized(b"[]") + bytes(4), 0)


def _serialized(*messages: Message) -> list[bytes]:
    return [message.SerializeToString() for message in messages]


def _column_seeds() -> list[bytes]:
    walked = walk_columns_plainly(make_zoo().data[:FILE_BYTES], 0, 0, 99)
    return _serialized(columns_to_proto(walked.columns))


TARGETS: dict[str, Target] = {
    "command": Target(
        _command,
        lambda: [encode(command)[begin:] for command in (COMMAND, Command(105, dict(COMMAND.fields), b"x", is_binary=True))
                 for begin in (0, 4)],
        (*JSON_TOKENS, b"\x7f\xff\xff\xff", b"\xff\xff", b'"extFields":null', b'"language":"\\ud800"', b"\x00" * 4),
        (FrameError,),
    ),
    "repeated_header": Target(
        _repeated_header, _send_headers,
        (b'"opaque":', b'"g":"1"', b'"i":"', b"\\u0001", b"\\", b"\\\\u0001", b'","', b"\\u0022", b"0", b"\x7f", b"\xc3\xa9"),
        (FrameError,),
    ),
    "small_append": Target(
        _small_append,
        lambda: _serialized(
            commitlog_pb.AppendMessagesRequest(messages=[NewMessage(topic="t", body=b"b")] * 3, flush=1),
            commitlog_pb.AppendMessagesRequest(messages=[NewMessage(topic="t")]),
        ),
        (b"\x0a\x00", b"\x10\x01", b"\x80" * 4 + b"\x01"), (DecodeError,),
    ),
    "v2_send": Target(_v2_send, _v2_requests, (b"\xff" * 9 + b"\x01", b"%RETRY%"), (StoreError, RefusedV2Error)),
    "stored_message": Target(
        _stored_message, lambda: [*frames(), *_waiting_frames()], FRAME_TOKENS, (RecordCorruptedError,)
    ),
    "shard_record": Target(
        _shard_record, lambda: [ShardRecord(3, "a", frozenset({"a", "b"}), addresses={"a": {}}).to_bytes()],
        JSON_TOKENS, (StoreCorruptedError,),
    ),
    "fastjson": Target(
        _fastjson, lambda: [RUNNING, b'{0:"a",{"b":1}:{"c":[1,2]}}'], (*JSON_TOKENS, b"{0:", b"{{", b"}:"), (ValueError,)
    ),
    "heartbeat": Target(
        _heartbeat, _beats, (*JSON_TOKENS, b'"withoutSub":true', b"\\ud800"), (FrameError, RefusedError, IllegalFilterError)
    ),
    "request_body": Target(
        _request_body,
        lambda: [json.dumps(REQUEST_BODY).encode(), b'{"groupName":"g","attributes":{{"a":1}:"x"}}'],
        (*JSON_TOKENS, b"{{", b'":', b"1e400", b'"c":', b"\\ud800"),
    ),
    "running_info": Target(_running_info, lambda: [RUNNING], (*JSON_TOKENS, b"1e400", b"{{"), (ServiceUnavailableError,)),
    "registration": Target(
        _registration, _registrations, (*JSON_TOKENS, b"\xff\xff\xff\xff", b"{0:"), (InvalidArgumentError,)
    ),
    "ha_frames": Target(
        _ha, lambda: [TRANSFER_HEADER.pack(100, 20) + bytes(20) + TRANSFER_HEADER.pack(120, 0), REPORT.pack(5)],
        (b"\xff" * 8, bytes(12)),
    ),
    "proxy_header": Target(
        _proxy_header,
        lambda: [b"PROXY TCP4 10.0.0.7 10.1.0.1 51234 10911\r\n", b"PROXY UNKNOWN\r\n",
                 SIGNATURE + b"\x21\x11\x00\x0c" + bytes(12), SIGNATURE + b"\x21\x21\x00\x24" + bytes(36)],
        (b"::ffff:10.0.0.7", b"%eth0", b"\r\n", b"\xff\xff"), (FrameError,),
    ),
    "local_frames": Target(
        _local_frames,
        lambda: [b"".join(map(bytes, pieces_of(ANSWER, b"payload", traceparent))) * 2 for traceparent in ("", "0" * 55)],
        (b"\xff\xff\xff\xff",), (WireError,),
    ),
    "status": Target(_status, lambda: [b"\x08\x05\x12\x03why"], (b"\x1a\x00",), (DecodeError,)),
    "columns": Target(_columns, _column_seeds, (b"\xff\xff\xff\xff", bytes(8)), (ServiceUnavailableError, DecodeError)),
    "client_batch": Target(
        _client_batch, lambda: [encode_client_batch([BatchEntry(at, b"b" * at, b"a\x01b\x02") for at in range(4)])],
        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(22)), (InvalidMessageError,),
    ),
    "authorization": Target(
        _authorization,
        lambda: [b"MQv2-HMAC-SHA1 Credential=key/r/Rocketmq, SignedHeaders=x-mq-date-time, Signature=0AFF\n20240501T120000Z"],
        (b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59Z", b"+23:59", b"\n", b"Credential="), (ValueError,),
    ),
}  # fmt: skip
