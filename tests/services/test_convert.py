"""Store values to protos and back: every field, and times that no Timestamp can hold."""

import dataclasses

import pytest
from google.protobuf import json_format, timestamp_pb2

from reput.commitlog.v1 import commitlog_service_pb2
from reput.gateway.v1 import gateway_service_pb2
from services import convert
from store.derive.dispatch import DispatchRequest
from store.errors import InvalidArgumentError
from store.format.host import Host
from store.format.record import Record

RECORD = Record(
    topic="订单",
    queue_id=3,
    queue_offset=41,
    commit_log_offset=4096,
    store_size_bytes=222,
    flag=-7,
    sys_flag=1,
    born_time_millis=1_700_000_000_123,
    born_host=Host("10.0.0.9", 50_000),
    store_time_millis=1_700_000_000_999,
    store_host=Host("127.0.0.1", 10_911),
    reconsume_times=2,
    prepared_transaction_offset=17,
    body_crc=0x7FFFFFFF,
    body=b"\x00\xff body",
    properties_bytes="KEYS\x01k1 k2\x02TAGS\x01red\x02UNIQ_KEY\x01U1\x02颜色\x01红\x02".encode(),
)


def test_a_stored_message_shows_every_field_of_the_record():
    message = convert.stored_message(RECORD, "broker-b")

    assert json_format.MessageToDict(message, preserving_proto_field_name=True) == {
        "topic": "订单",
        "queue_id": 3,
        "queue_offset": "41",
        "commit_log_offset": "4096",
        "store_size_bytes": 222,
        "flag": -7,
        "sys_flag": 1,
        "born_time": "2023-11-14T22:13:20.123Z",
        "born_host": "10.0.0.9:50000",
        "store_time": "2023-11-14T22:13:20.999Z",
        "store_host": "127.0.0.1:10911",
        "reconsume_times": 2,
        "prepared_transaction_offset": "17",
        "body_crc": 0x7FFFFFFF,
        "body": "AP8gYm9keQ==",
        "properties": {"KEYS": "k1 k2", "TAGS": "red", "UNIQ_KEY": "U1", "颜色": "红"},
        "tags": "red",
        "keys": ["k1", "k2"],
        "unique_key": "U1",
        "offset_msg_id": "7F00000100002A9F0000000000001000",
        "broker_name": "broker-b",
    }


def test_an_omitted_body_is_said_to_be_omitted_and_an_empty_one_is_not():
    omitted = convert.stored_message(RECORD, "b", omit_body=True)
    empty = convert.stored_message(dataclasses.replace(RECORD, body=b""), "b", omit_body=True)

    assert (omitted.body, omitted.body_omitted) == (b"", True)
    assert (empty.body, empty.body_omitted) == (b"", False)


def test_a_record_without_tags_keys_and_unique_key_has_them_empty():
    message = convert.stored_message(dataclasses.replace(RECORD, properties_bytes=b""), "b")

    assert (message.tags, list(message.keys), message.unique_key) == ("", [], "")


def test_a_dispatch_request_crosses_the_wire_unchanged():
    request = DispatchRequest(
        topic="orders",
        queue_id=1,
        queue_offset=2,
        commit_log_offset=1 << 40,
        record_size_bytes=300,
        tags_code=-5,
        store_time_millis=1_700_000_000_123,
        keys=("a", "b"),
        unique_key="U",
        sys_flag=8,
        prepared_transaction_offset=4,
    )

    assert convert.dispatch_from_proto(convert.dispatch_to_proto(request)) == request


@pytest.mark.parametrize("millis", [0, 1, 999, 1_700_000_000_123, -1, -1_000, -1_001, 253_402_300_799_999])
def test_times_are_exact_to_the_millisecond(millis):
    timestamp = convert.millis_to_timestamp(millis)

    assert timestamp.ToMilliseconds() == millis
    assert convert.timestamp_to_millis(timestamp, "time") == millis


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (253_402_300_800_000, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
        (-(2**63), "0001-01-01T00:00:00Z"),
    ],
)
def test_a_stored_time_that_no_tool_could_print_becomes_the_nearest_one(millis, text):
    assert convert.millis_to_timestamp(millis).ToJsonString() == text


@pytest.mark.parametrize(("seconds", "nanos"), [(253_402_300_800, 0), (-62_135_596_801, 0), (0, -1), (0, 10**9)])
def test_an_impossible_timestamp_is_refused_by_field(seconds, nanos):
    with pytest.raises(InvalidArgumentError) as caught:
        convert.timestamp_to_millis(timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos), "begin_time")

    assert caught.value.metadata["field"] == "begin_time"


def test_an_absent_time_is_none_and_1970_is_not():
    request = gateway_service_pb2.QueryMessageByKeyRequest()
    assert convert.optional_time_millis(request, "begin_time") is None

    request.begin_time.SetInParent()
    assert convert.optional_time_millis(request, "begin_time") == 0


def test_an_older_server_that_knows_no_confirm_offset_shows_what_is_flushed():
    status = commitlog_service_pb2.GetStatusResponse(log_flushed_offset=900)
    assert convert.confirm_offset(status) == 900

    status.confirm_offset = 0

    assert convert.confirm_offset(status) == 0
