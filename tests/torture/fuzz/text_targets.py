"""Targets: what clients, readers and operators write by hand or give back: filters, handles, forms, schemas, bodies."""

import contextlib
import json

from cli.exits import CliError
from cli.transfer.message_lines import frame_of, line_of, read_line, record_of_line
from console.bodies.body import Body, View, preview, show, show_by
from console.bodies.schemas import parse_schema
from console.question import parse_tags, parse_time
from console.web.posted import read_posted
from consumer_svc.delivering.receipt_handle import ReceiptHandle, ReceiptHandles
from consumer_svc.filters.message_filter import _new_sql_filter, _new_tag_filter
from consumer_svc.state.queue_state import QueueRef
from gateway.search.cel_program import CelFaultError, CelProgram, example
from gateway.search.filter import hex_needle
from schedule_svc.listing import Places
from store.errors import (
    IllegalFilterError,
    InvalidArgumentError,
    InvalidFreshnessTokenError,
    InvalidPageTokenError,
    InvalidReceiptHandleError,
    StoreError,
)
from store.format.delivery.receipt_handle import (
    decode_payload,
    encode_part,
    parse_extra_info,
    split_handle,
)
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, decode_handle, encode_handle
from store.format.freshness_token import decode_freshness_token, encode_freshness_token
from store.format.java_text import java_string_hash
from tests.torture.fuzz.file_targets import JSON_TOKENS
from tests.torture.fuzz.target import Target
from tests.torture.log_zoo import make_zoo

PROPERTIES = (
    {},
    {"a": "5", "b": "x", "TAGS": "t", "c": "true"},
    {"a": "nan", "b": "", "c": "1e400"},
    {"a": "-9223372036854775809", "b": "٣", "c": " 1 "},
)
HANDLES = ReceiptHandles("broker-a", b"a secret")
QUEUE = QueueRef("g", "orders", 3)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _sql(data: bytes) -> None:
    wanted = _new_sql_filter(_text(data))
    for properties in PROPERTIES:
        assert isinstance(wanted.matches("", properties), bool)


def _tags(data: bytes) -> None:
    text = _text(data)
    wanted = _new_tag_filter(text)
    assert wanted.matches_unit(1 << 40)
    for tag in text.split("||"):
        if wanted.matches(tag, {}):
            assert wanted.matches_unit(java_string_hash(tag))


def _cel(data: bytes) -> None:
    program = CelProgram(_text(data))
    fields = example() | {
        "topic": "orders",
        "keys": ["a", "b"],
        "properties": {"a": "b"},
        "store_time_millis": 1_700_000_000_000,
    }
    program.value_of(fields, b"body")


def _receipt_handle(data: bytes) -> None:
    text = _text(data)
    for group in ("g", None):
        try:
            found = HANDLES.read(text, group)
        except InvalidReceiptHandleError:
            continue
        assert found.queue.topic
        # Base64 may spell it in another way, which names the same delivery.
        assert found.mark is not None or HANDLES.read(HANDLES.make(found), group) == found
    with contextlib.suppress(ValueError):
        decode_payload(split_handle(text).payload)  # as a gateway does, which cannot check the signature
    try:
        info = parse_extra_info(text)
    except ValueError:
        return
    assert info.text() == text or any(part != str(int(part)) for part in text.split(" ") if part.isdigit())


def _waiting_handle(data: bytes) -> None:
    for kind in (RECALL, TRANSACTION):
        try:
            handle = decode_handle(kind, _text(data), "handle")
        except InvalidArgumentError:
            continue
        assert decode_handle(kind, encode_handle(kind, handle), "handle") == handle


def _freshness_token(data: bytes) -> None:
    text = _text(data)
    found = decode_freshness_token(text)
    assert encode_freshness_token(found.broker_name, found.commit_log_offset) == text


def _places(data: bytes) -> None:
    found = Places.of(_text(data))
    assert Places.of(found.token()) == found
    for number in (*found.timers, *found.levels, *found.levels.values()):
        assert -(1 << 63) <= number < 1 << 63


def _posted(data: bytes) -> None:
    for content_type in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=xyz"):
        try:
            posted = read_posted(content_type, data)
        except InvalidArgumentError:
            continue
        assert all(posted.fields.values())


def _question(data: bytes) -> None:
    text = _text(data)
    for parse in (parse_time, parse_tags, lambda value, _: hex_needle(value)):
        try:
            parse(text, "field")
        except InvalidArgumentError:
            continue
    for is_end in (False, True):
        try:
            parse_time(text, "field", is_end=is_end)
        except InvalidArgumentError:
            continue


def _body(data: bytes) -> None:
    """A byte that says how the body is compressed, and the body."""
    sys_flag = (0, 0x1, 0x101, 0x201, 0x301, 0x701)[data[0] % 6] if data else 0
    stored = data[1:]
    body = Body.of(stored, sys_flag)
    for view in View:
        for begin in (0, 7, 1 << 40):
            shown = show(body, view, begin)
            shown.text.encode("utf-8", "surrogatepass" if view is View.TEXT else "strict")
            assert shown.shown_size_bytes <= max(shown.size_bytes, 1)
    preview(stored, sys_flag).encode()


def _shown_by(name: str, data: bytes) -> None:
    size = int.from_bytes(data[:2], "big")
    schema = parse_schema(name, data[2 : 2 + size])
    body = Body.of(data[2 + size :], 0)
    for type_name in [*schema.types][:4]:
        type_name.encode()
        show_by(schema, type_name, body).text.encode()


def _descriptors(data: bytes) -> None:
    """The size of a descriptor set, the set, and a body."""
    _shown_by("x.binpb", data)


def _avro(data: bytes) -> None:
    """Likewise."""
    _shown_by("x.avsc", data)


def _import_line(data: bytes) -> None:
    record = record_of_line(read_line(_text(data)))
    frame_of(record)


RECURSIVE = b'{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]},{"name":"v","type":"long"}]}'
ORDER = (
    b'{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"lines","type":{"type":"array","items":'
    b'{"type":"record","name":"Line","fields":[{"name":"n","type":"int"}]}}},{"name":"m","type":{"type":"map","values":"bytes"}},'
    b'{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},'
    b'{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},'
    b'{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}}]}'
)


def _with_body(schema: bytes, body: bytes) -> bytes:
    return len(schema).to_bytes(2, "big") + schema + body


def _descriptor_seeds() -> list[bytes]:
    from google.protobuf import descriptor_pb2

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop.v1", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(
        name="next", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".shop.v1.Order"
    )
    message.field.add(name="n", number=3, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    other = descriptor_pb2.FileDescriptorProto(
        name="b.proto", package="shop.v1", dependency=["a.proto"], syntax="proto2"
    )
    other.message_type.add(name="Line").field.add(
        name="order", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".shop.v1.Order"
    )
    made = descriptor_pb2.FileDescriptorSet(file=[other, file]).SerializeToString()
    return [_with_body(made, b"\x0a\x01a\x12\x03\x0a\x01b\x1a\x02\x01\x02"), _with_body(made, b"\x0a\x01a")]


def _lines() -> list[bytes]:
    return [json.dumps(line_of(record, "b")).encode() for record in make_zoo().records[:6]]


def _handle_seeds() -> list[bytes]:
    handle = ReceiptHandle(QUEUE, 12, 1, 1_700_000_060_000, 7)
    huge = (
        encode_part(b"broker-a")
        + "."
        + encode_part(b"g orders 3 99999999999999999999 1 5 6")
        + "."
        + encode_part(bytes(16))
    )
    return [
        HANDLES.make(handle).encode(),
        HANDLES.make_check_point(handle, 1_700_000_000_000, 10).encode(),
        huge.encode(),
    ]


BODIES = (
    b"\0plain text",
    b'\0{"a": [1, 2.5, "x", null, {"b": true}]}',
    b"\0\x08\x96\x01\x12\x04\x0a\x02hi\x1d\x00\x00\x80\x3f",
    b"\0" + "订单已支付".encode("gb18030") * 3,
    b"\1x\x9cKLJ\x06\x00\x02M\x01'",
    b"\3\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00abc",
    b"\0\xff\xfeh\x00i\x00",
)
SQL_TOKENS = (
    b"(a AND " * 400, b"(" * 2000, b"NOT ", b"a IS NOT NULL", b"BETWEEN 1 AND 2", b"NOT IN ('x','y')", b"CONTAINS 'x'",
    b"-9223372036854775808", b"1e400", b".5", b"/*", b"--", b"''", b"TRUE", b"NULL", b"<>", b">=", b"9" * 400,
)  # fmt: skip
CEL_TOKENS = (
    b"message.", b"message.properties[", b".exists(k, k == ", b"timestamp(", b"duration(", b".matches(", b"size(", b"(" * 200,
    b"9223372036854775807", b"1e400", b'"\\ud800"', b"r'''", b"{", b"? :", b" in ", b"&&", b"!", b"-", b"%", b"/0",
)  # fmt: skip

TARGETS: dict[str, Target] = {
    "sql": Target(
        _sql,
        lambda: [b"a > 3 AND b IN ('x','y') OR NOT (c = TRUE)", b"a BETWEEN 1 AND 5.5 AND b IS NOT NULL", b"a STARTSWITH 'x'",
                 b"-a <= 7L /* c */ OR (b <> 'it''s' AND c NOT CONTAINS 'z')"],
        SQL_TOKENS, (IllegalFilterError,),
    ),
    "tags": Target(_tags, lambda: [b"a || b", b"*", b" a||b || "], (b"|", b"||", b"\xc3\xa9", b"\x00"), (IllegalFilterError,)),
    "cel": Target(
        _cel,
        lambda: [b"message.topic == 'orders' && message.keys.exists(k, k == 'a')",
                 b"message.store_time > timestamp('2024-01-01T00:00:00Z')",
                 b"message.body_text.contains('x') || size(message.body) > 3", b"message.properties['a'] in ['b', 'c']"],
        CEL_TOKENS, (CelFaultError,), input_bytes_max=512,  # deep nesting ends the sandbox's process, which is a refusal there
    ),
    "receipt_handle": Target(_receipt_handle, _handle_seeds, (b".", b" ", b"9" * 20, b"-1", b"\xd9\xa1", b"=")),
    "waiting_handle": Target(
        _waiting_handle,
        lambda: [encode_handle(kind, WaitingHandle("t", "b", 5, "KEY")).encode() for kind in (RECALL, TRANSACTION)],
        (b"=", b"_", b"-", b"\n", b"4pmj"),
    ),
    "freshness_token": Target(
        _freshness_token, lambda: [encode_freshness_token("broker-a", 12345).encode()], (b"\xc3\xa9", b"F" * 16),
        (InvalidFreshnessTokenError,),
    ),
    "list_token": Target(
        _places, lambda: [Places(levels={1: 5, 2: 7}).token().encode(), b""], (b"=", b"W10", b"MWUx"), (InvalidPageTokenError,)
    ),
    "posted": Target(
        _posted,
        lambda: [b"a=1&b=%20x&a=2", b'--xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
                 b'--xyz\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\nbytes\r\n--xyz--\r\n'],
        (b"\r\n--xyz", b"--xyz--", b"%", b"&" * 2000, b"=", b"\r\n\r\n"),
    ),
    "question": Target(
        _question, lambda: [b"2024-05-01T12:30:00.000", b"2024-05-01", b"a || b", b"0A FF"],
        (b"0000", b"9999-12-31", b"\xd9\xa1", b"||", b":60"),
    ),
    "body": Target(_body, lambda: [*BODIES], (*JSON_TOKENS, b"\xed\xa0\x80", b"\x0b" * 60, b"\x0a\x80\x01", b"\x1f\x8b")),
    "descriptors": Target(_descriptors, _descriptor_seeds, (b"\xff\xfe", b"\x0a\x02", b"\x12" * 200), (InvalidArgumentError,)),
    "avro": Target(
        _avro, lambda: [_with_body(RECURSIVE, b"\x02\x00\x04\x06"),
                       _with_body(ORDER, b"\x02a\x02\x02\x00\x00\x00\x02\x02\x02\x05")],
        (b"\x02" * 3000, b"\xff" * 9 + b"\x01", b'"type":', b'"array","items":"null"', *JSON_TOKENS), (InvalidArgumentError,),
    ),
    "import_line": Target(
        _import_line, _lines, (*JSON_TOKENS, b'"properties_base64":"', b'":99999999999"', b'"[::1]:'),
        (KeyError, ValueError, TypeError, AttributeError, RecursionError, CliError, StoreError),
    ),
}  # fmt: skip
