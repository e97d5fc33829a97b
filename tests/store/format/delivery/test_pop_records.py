"""Records of a revive topic; the bodies were written by RocketMQ 5.3.3."""

import json
from dataclasses import replace

import pytest

from store.errors import StoreCorruptedError
from store.format.delivery.pop_records import CheckPoint, decode_ack, decode_check_point, encode_check_point

POINT = (
    b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,2,3,4],"it":600000,"n":5,"pt":1795433848694,"q":1,"reviveTime":1795434448694,'
    b'"ro":0,"so":0,"t":"T"}'
)
ACK = b'{"ao":1,"bn":"broker-a","c":"G","pt":1795433848694,"q":1,"so":0,"t":"T"}'


def test_a_checkpoint_of_the_broker_is_read() -> None:
    assert decode_check_point(POINT) == CheckPoint("G", "T", 1, 0, 1795433848694, 600000, [0, 1, 2, 3, 4])


def test_an_acknowledgement_names_its_checkpoint() -> None:
    point, ack = decode_check_point(POINT), decode_ack(ACK)
    assert point is not None
    assert ack is not None
    assert (ack.key, list(ack.queue_offsets)) == (point.key, [1])


def test_a_batch_of_acknowledgements_has_all_positions() -> None:
    # BatchAckMsg with the names of its fields as JSONField and alternateNames have them
    for body in (
        ACK.replace(b'"ao":1', b'"ao":0,"aol":[1,3]'),
        ACK.replace(b'"ao":1', b'"ackOffset":0,"ackOffsetList":[1,3]'),
    ):
        ack = decode_ack(body)
        assert ack is not None
        assert list(ack.queue_offsets) == [1, 3]


def test_gaps_bits_and_old_checkpoints_count_as_in_pop_check_point() -> None:
    fields = json.loads(POINT) | {"so": 10, "d": [0, 2, 5], "n": 3, "bm": 0b010}
    point = decode_check_point(json.dumps(fields).encode())
    assert point is not None
    assert list(point.queue_offsets) == [10, 15]
    del fields["d"]
    old = decode_check_point(json.dumps(fields).encode())
    assert old is not None
    assert list(old.queue_offsets) == [10, 12]


def test_a_checkpoint_without_topic_or_group_is_skipped() -> None:
    assert decode_check_point(b'{"so":1}') is None
    assert decode_ack(b"{}") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"t":"T","c":"G","so":"x"}', b'{"t":"T","c":"G","d":[null]}'])
def test_a_damaged_record_is_refused(body: bytes) -> None:
    with pytest.raises(StoreCorruptedError):
        decode_check_point(body)


@pytest.mark.parametrize(
    "fields",
    [
        b'"pt":1e999', b'"pt":-Infinity', b'"q":9223372036854775808', b'"so":9223372036854775807,"d":[1]', b'"d":[1e999]',
        b'"n":99999999999', b'"n":100000000000000000000000', b'"n":128', b'"d":"123"', b'"d":{"1":2}', b'"n":NaN',
    ],
)  # fmt: skip
def test_a_checkpoint_with_a_number_that_is_none_ended_the_consumer_service(fields: bytes) -> None:
    """Found by fuzzing: an infinite number was an OverflowError, and a count took all memory."""
    with pytest.raises(StoreCorruptedError, match="cannot be read"):
        decode_check_point(b'{"t":"T","c":"G",%b}' % fields)


@pytest.mark.parametrize("fields", [b'"ao":1e999', b'"aol":[1e999]', b'"aol":[9223372036854775808]', b'"pt":1e999'])
def test_an_acknowledgement_with_a_number_that_is_none_is_refused(fields: bytes) -> None:
    with pytest.raises(StoreCorruptedError, match="cannot be read"):
        decode_ack(b'{"t":"T","c":"G",%b}' % fields)


def test_what_is_written_has_the_broker_s_fields() -> None:
    point = decode_check_point(POINT)
    assert point is not None
    ours = json.loads(encode_check_point(point, "broker-a"))
    theirs = json.loads(POINT)
    del theirs["reviveTime"]  # a getter's; no field of the class
    assert ours == theirs


def test_a_checkpoint_says_since_rocketmq_5_5_that_its_delivery_is_no_attempt() -> None:
    point = CheckPoint("G", "T", 1, 5, 1_700_000_000_000, 1_000, [5, 7], is_suspended=True)
    body = encode_check_point(point, "b")
    assert b'"sp":true' in body
    assert decode_check_point(body) == point
    assert b"sp" not in encode_check_point(replace(point, is_suspended=False), "b"), "older brokers get what they know"
