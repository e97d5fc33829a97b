"""What a broker says when it registers: both forms of the body, and everything that is none."""

import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rocketmq import registration
from services.rocketmq.registration import QueueData, decode_registration, encode_registration, encode_version
from store.errors import InvalidArgumentError
from store.format.topic import DataVersion, TopicConfig
from tests.nameserver_svc.scenario import TWO, body, broker, compressed, topic

FIELDS = broker("a", "10.0.0.1:10911")


def test_a_plain_body_is_read_with_all_that_it_says() -> None:
    found = decode_registration(
        {**FIELDS, "heartbeatTimeoutMillis": "3000", "enableActingMaster": "true"},
        body(topic("t", 8, 4, 6, 1), counter=7, state=2, filters=("10.9.9.9:1",)),
    )
    assert (found.cluster, found.name, found.broker_id, found.address) == ("c", "a", 0, "10.0.0.1:10911")
    assert (found.ha_address, found.timeout_millis, found.acts_for_master) == ("10.0.0.1:10912", 3000, True)
    assert found.version == DataVersion(2, 1000, 7)
    assert found.topics == {"t": QueueData(8, 4, 6, 1)}
    assert found.filter_servers == ("10.9.9.9:1",)


def test_numbers_that_are_keys_and_tables_that_are_null_are_read() -> None:
    text = (
        b'{"filterServerList":null,"topicConfigSerializeWrapper":{"dataVersion":{"counter":1},"topicConfigTable":null,'
        b'"topicQueueMappingInfoMap":{"t":{"currIdMap":{0:1,1:2}}}}}'
    )
    found = decode_registration(FIELDS, text)
    assert (found.topics, found.version, found.filter_servers) == ({}, DataVersion(0, 0, 1), None)


def test_a_compressed_body_says_the_same_as_a_plain_one() -> None:
    packed = decode_registration(
        {**FIELDS, "compressed": "true"}, compressed("t 8 8 6 SINGLE_TAG {}", "u 4 2 4 SINGLE_TAG")
    )
    assert packed.topics == decode_registration(FIELDS, TWO).topics
    assert packed.version == DataVersion(0, 1000, 9)


def test_what_a_topic_does_not_say_is_what_rocketmq_takes() -> None:
    text = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{},"\\ud800":{"perm":4}}}}'
    assert decode_registration(FIELDS, text).topics == {"t": QueueData(16, 16, 6, 0), "?": QueueData(16, 16, 4, 0)}


@pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
def test_a_field_that_is_missing_is_named(missing: str) -> None:
    with pytest.raises(InvalidArgumentError, match=missing):
        decode_registration({name: value for name, value in FIELDS.items() if name != missing}, TWO)


def packed(*parts: bytes) -> bytes:
    return zlib.compress(b"".join(struct.pack(">i", len(part)) + part for part in parts))


@pytest.mark.parametrize(
    ("fields", "data", "why"),
    [
        ({"brokerId": "x"}, TWO, "brokerId is no number"),
        ({"brokerId": "-1"}, TWO, "brokerId is out of range"),
        ({"brokerId": str(1 << 63)}, TWO, "brokerId is out of range"),
        ({"heartbeatTimeoutMillis": "1" + "0" * 400}, TWO, "heartbeatTimeoutMillis is out of range"),
        ({"brokerAddr": "x" * 256}, TWO, "256 characters"),
        ({}, body(topic("x" * 256)), "256 characters"),
        ({}, body(topic("t", read=1 << 31)), "out of range"),
        ({}, body(topic("t", perm=-1)), "out of range"),
        ({"compressed": "true"}, compressed("t 8 99999999999 6"), "out of range"),
        ({}, body(topic("t"), filters=("10.9.9.9:1",) * 65), "65 filter servers"),
        ({"bodyCrc32": "5"}, TWO, "crc32 not match"),
        ({}, b"{", "cannot be read"),
        ({}, b"[]", "no table of topics"),
        ({}, b'{"topicConfigSerializeWrapper":[]}', "no table of topics"),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}', "no table of topics"),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":[]}}}', "a topic is no JSON object"),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":"6"}}}}', "perm is no number"),
        ({}, b'{"topicConfigSerializeWrapper":{"dataVersion":[1]}}', "dataVersion is no JSON object"),
        (
            {},
            b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}',
            "counter is no number",
        ),
        ({}, b"\xff", "cannot be read"),
        ({"compressed": "true"}, b"no zlib", "cannot be inflated"),
        ({"compressed": "true"}, compressed("t 8 8 6")[:-8], "it is cut"),
        ({"compressed": "true"}, compressed("t 8"), "a topic cannot be read"),
        ({"compressed": "true"}, compressed("t 8 8 x"), "a topic cannot be read"),
        ({"compressed": "true"}, zlib.compress(b"\0\0"), "it is cut"),
        ({"compressed": "true"}, zlib.compress(struct.pack(">i", -5)), "it is cut"),
        ({"compressed": "true"}, packed(b"\xff"), "no UTF-8"),
        ({"compressed": "true"}, zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", -1)), "-1 topics"),
    ],
)
def test_what_is_no_registration_is_refused_with_its_reason(fields: dict[str, str], data: bytes, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        decode_registration({**FIELDS, **fields}, data)


def test_a_body_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "BODY_BYTES_MAX", 1 << 20)
    with pytest.raises(InvalidArgumentError, match="longer than 1048576"):
        decode_registration({**FIELDS, "compressed": "true"}, zlib.compress(bytes(1 << 21)))


@given(st.data())
def test_damaged_bodies_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    is_packed = data.draw(st.booleans())
    whole = bytearray(zlib.decompress(compressed("t 8 8 6 SINGLE_TAG {}", "u 4 2 4")) if is_packed else TWO)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        whole[at] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    fields = {**FIELDS, "compressed": "true"} if is_packed else FIELDS
    try:
        found = decode_registration(fields, zlib.compress(damaged) if is_packed else damaged)
    except InvalidArgumentError:
        return
    assert all(isinstance(queues, QueueData) for queues in found.topics.values())


def test_a_version_is_written_as_rocketmq_writes_it() -> None:
    assert json.loads(encode_version(DataVersion(2, 1000, 7))) == {"counter": 7, "stateVersion": 2, "timestamp": 1000}


@pytest.mark.parametrize("plain_bytes_max", [registration.PLAIN_BYTES_MAX, 0])
def test_what_a_shard_registers_is_read_back_plain_and_deflated(
    plain_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PLAIN_BYTES_MAX", plain_bytes_max)
    topics = [
        TopicConfig("t", 8, 4, 6, attributes={"message.type": "FIFO"}, topic_sys_flag=0),
        TopicConfig("%RETRY%g", 1, 1, 7, order=True),
    ]
    fields, data = encode_registration(FIELDS, DataVersion(2, 1000, 7), topics)
    assert fields["compressed"] == ("false" if plain_bytes_max else "true")
    found = decode_registration(fields, data)
    assert found.topics == {"t": QueueData(8, 4, 6, 0), "%RETRY%g": QueueData(1, 1, 7, 0)}
    assert (found.version, found.name, found.filter_servers) == (DataVersion(2, 1000, 7), "a", ())
    with pytest.raises(InvalidArgumentError, match="crc32"):
        decode_registration(fields, data[:-1] + b"x")
