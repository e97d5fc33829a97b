r"""What a broker makes of the property string of a client; the records of `remoting.sends.jsonl` are compared in
`tests/commitlog_svc/append/test_wire_properties.py`, too.
"""

from typing import Any

import pytest

from store.format.client_properties import BrokerProperties, encode_like_java, without_left_out
from store.format.java_text import java_string_hash
from store.format.properties import parse_properties
from store.format.record import decode_record
from tests.support.fixture_stores import read_rows

BROKER = BrokerProperties("DefaultCluster")
# The broker changes these properties after that: as the message waits, or as it has a CRC.
CHANGED = (b"level", b"top level", b"timer", b"half", b"half sent back", b"a crc of another record")
SINGLE = [
    row
    for row in read_rows("remoting.sends.jsonl")
    if row["code"] != 320 and row["answer"] == 0 and bytes.fromhex(row["body"]) not in CHANGED
]


@pytest.mark.parametrize("row", SINGLE, ids=[f"{bytes.fromhex(row['body'])[:20]!r} {row['crc']}" for row in SINGLE])
def test_properties_of_a_send_are_those_that_rocketmq_stored(row: dict[str, Any]) -> None:
    record = decode_record(bytes.fromhex(row["records"][0]))
    sent = row["fields"]["properties" if row["code"] == 10 else "i"].encode()
    stored = record.properties_bytes[: -20 if row["crc"] else None]
    assert stored == BROKER.of_send(sent, lambda: record.unique_key)


def test_a_key_is_made_only_where_the_client_gave_none() -> None:
    def refuse() -> str:
        raise AssertionError

    assert b"UNIQ_KEY\x01mine\x02" in BROKER.of_send(b"UNIQ_KEY\x01mine\x02", refuse)
    for without in (b"", b"UNIQ_KEY\x01\x02", b"UNIQ_KEY\x02", b"A\x01UNIQ_KEY"):
        assert b"UNIQ_KEY\x01made\x02" in BROKER.of_send(without, lambda: "made")


def test_settings_of_the_broker_stand_in_each_message() -> None:
    broker = BrokerProperties("c", "here", trace_on=False)
    properties = parse_properties(broker.of_send(b"CLUSTER\x01theirs\x02TRACE_ON\x01true\x02", lambda: "k"))
    assert {"CLUSTER": "c", "MSG_REGION": "here", "TRACE_ON": "false", "UNIQ_KEY": "k"} == properties


def test_more_names_than_three_quarters_of_the_buckets_double_them() -> None:
    for count, bucket_count in ((96, 128), (97, 256), (192, 256), (193, 512)):
        names = [f"name-{number}" for number in range(count)]
        order = list(parse_properties(encode_like_java(dict.fromkeys(names, "v"))))
        hashes = [java_string_hash(name) & 0xFFFFFFFF for name in order]
        buckets = [(value ^ value >> 16) % bucket_count for value in hashes]
        assert buckets == sorted(buckets)
        assert set(order) == set(names)


@pytest.mark.parametrize("name", [b"__CRC32#", b"__REPUT_REQUEST__", b"__REPUT_MOVED_FROM__"])
def test_properties_that_the_store_writes_are_left_out_and_the_rest_stays_as_it_is(name: bytes) -> None:
    other = b"a\x01b\x02\x02no\x02x" + name + b"\x01v\x02"
    assert other == without_left_out(name + b"\x01v\x01w\x02" + other)
    assert other + b"z\x01y" == without_left_out(other + name + b"\x01v\x02z\x01y")
