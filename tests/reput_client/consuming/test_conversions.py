"""Between RocketMQ's contract and this library: addresses, filters, settings, statuses, bodies."""

import gzip

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.status import CODE_BY_ERROR
from reput_client import errors
from reput_client.consuming.received_message import received_message_of
from reput_client.consuming.refusals import error_of
from reput_client.consuming.settings import agreed_settings_of
from reput_client.consuming.subscription import (
    Sql,
    endpoints_of,
    expression_of,
    message_filter_of,
    target_of,
)


@pytest.mark.parametrize(
    ("target", "scheme", "host", "port"),
    [
        ("127.0.0.1:8081", v2.IPv4, "127.0.0.1", 8081),
        ("gateway:9000", v2.DOMAIN_NAME, "gateway", 9000),
        ("[::1]:8081", v2.IPv6, "::1", 8081),
        ("dns:///gateway.reput:8081", v2.DOMAIN_NAME, "gateway.reput", 8081),
        ("unix:/run/gateway", v2.DOMAIN_NAME, "localhost", 8081),
    ],
)
def test_an_address_is_told_in_the_form_of_the_contract(target: str, scheme: int, host: str, port: int) -> None:
    endpoints = endpoints_of(target)
    assert (endpoints.scheme, endpoints.addresses[0].host, endpoints.addresses[0].port) == (scheme, host, port)
    if "://" not in target and not target.startswith("unix"):
        assert target_of(endpoints) == target


def test_filters_are_the_same_in_both_contracts() -> None:
    for wanted, kind, text in (("a || b", v2.TAG, "a || b"), ("", v2.TAG, "*"), (Sql("a > 1"), v2.SQL, "a > 1")):
        expression, other = expression_of(wanted), message_filter_of(wanted)
        assert (expression.type, expression.expression) == (kind, text)
        assert (other.sql if kind == v2.SQL else other.tags) == text


def test_pauses_of_both_forms_are_understood_and_the_last_one_goes_on() -> None:
    customized, exponential = v2.Settings(), v2.Settings()
    customized.backoff_policy.customized_backoff.next.extend([Duration(seconds=1), Duration(nanos=500_000_000)])
    backoff = exponential.backoff_policy.exponential_backoff
    backoff.initial.nanos, backoff.max.seconds, backoff.multiplier = 500_000_000, 3, 2.0
    assert [agreed_settings_of(customized).pause_seconds(n) for n in (0, 1, 2, 9)] == [1, 1, 0.5, 0.5]
    assert [agreed_settings_of(exponential).pause_seconds(n) for n in (1, 2, 3, 4, 9)] == [0.5, 1, 2, 3, 3]
    assert agreed_settings_of(exponential, (7.0,)).pause_seconds(3) == 7
    assert agreed_settings_of(v2.Settings()).pause_seconds(1) > 0
    assert (agreed_settings_of(v2.Settings()).batch_count, agreed_settings_of(v2.Settings()).poll_seconds) == (32, 20)


def test_every_failure_that_passes_is_told_from_those_that_do_not() -> None:
    """The codes in which the gateway says its errors, and what this library knows of the same errors."""
    passing = (errors.UnavailableError, errors.BusyError)
    for error_class, code in CODE_BY_ERROR.items():
        error = error_of(v2.Status(code=code, message="what happened"))
        assert error is not None
        assert error.message == "what happened"
        assert error.reason == v2.Code.Name(code)
        known = errors.ERROR_BY_REASON.get(error_class.reason())
        if (
            known is errors.TransactionNotFoundError
        ):  # RocketMQ's proxy answers INTERNAL_SERVER_ERROR, and so does the gateway
            continue
        if known is not None and known is not errors.InternalError and code != v2.PRECONDITION_FAILED:
            assert errors.is_worth_retrying(error) == issubclass(known, passing), (error_class, error)


@pytest.mark.parametrize("code", [v2.OK, v2.MULTIPLE_RESULTS])
def test_success_is_no_error(code: "v2.Code") -> None:
    assert error_of(v2.Status(code=code)) is None


def test_codes_of_a_newer_server_are_judged_by_their_range() -> None:
    newer = v2.Status.FromString(b"\x08" + _varint(59_999)), v2.Status.FromString(b"\x08" + _varint(49_999))
    assert [errors.is_worth_retrying(error_of(status) or AssertionError()) for status in newer] == [True, False]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    ("body", "encoding", "expected"),
    [
        (b"plain", v2.IDENTITY, b"plain"),
        (gzip.compress(b"packed", mtime=0), v2.GZIP, b"packed"),
        (b"marked, not packed", v2.GZIP, b"marked, not packed"),
        (gzip.compress(b"cut short", mtime=0)[:-9], v2.GZIP, gzip.compress(b"cut short", mtime=0)[:-9]),
        (gzip.compress(b"identity", mtime=0), v2.IDENTITY, gzip.compress(b"identity", mtime=0)),
    ],
)
def test_bodies_are_unpacked_as_they_are_marked(body: bytes, encoding: "v2.Encoding", expected: bytes) -> None:
    message = v2.Message(body=body, system_properties=v2.SystemProperties(body_encoding=encoding))
    assert received_message_of(message, "broker-a").body == expected


def test_a_lite_topic_is_told() -> None:
    of_lite_topic, plain = v2.Message(), v2.Message()
    of_lite_topic.system_properties.lite_topic = "chat-1"
    assert received_message_of(of_lite_topic, "broker-a").lite_topic == "chat-1"
    assert received_message_of(plain, "broker-a").lite_topic == ""


def test_a_priority_of_0_is_told_from_none() -> None:
    urgent, plain = v2.Message(), v2.Message()
    urgent.system_properties.priority = 0
    assert received_message_of(urgent, "broker-a").priority == 0
    assert received_message_of(plain, "broker-a").priority is None
