"""Signatures as `AclClientRPCHook` of RocketMQ's own classes made them; the frames were written by those classes, too.

4.9.8 and 5.5.0, versions 409 and 513: a send in both forms of the header, a heartbeat, a query with `_UNIQUE_KEY_QUERY`,
a token and keys that are no ASCII, and the end of a client with an empty token.
"""

import base64
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from services.rocketmq.command import Command, decode
from services.rocketmq.signature import (
    SIGNATURE,
    V4_9_3,
    parse_authorization,
    seconds_off,
    signature_of,
    signed_bytes,
)

SECRETS = {"orders-key": "orders-secret", "\u7b80orders-key": "ge\u00a3heim\u00df"}
FRAMES = {
    "5.5.0 send_json": (
        "AAABdgAAAW17ImNvZGUiOjMxMCwiZXh0RmllbGRzIjp7IkFjY2Vzc0tleSI6Im9yZGVycy1rZXkiLCJhIjoibWFrZXJzIiwiYiI6Ik9yZGVycy"
        "IsImMiOiJUQlcxMDIiLCJkIjoiNCIsImUiOiIxIiwiZiI6IjAiLCJnIjoiMTc2NDAwMDAwMDAwMCIsImgiOiIwIiwiaSI6IktFWVNcdTAwMDFr"
        "XHUwMDAyVU5JUV9LRVlcdTAwMDE3RjAwMDAwMTBBXHUwMDAyIiwiaiI6IjAiLCJrIjoiZmFsc2UiLCJsIjoiMTYiLCJtIjoiZmFsc2UiLCJTaW"
        "duYXR1cmUiOiJPNDB2MlNGc1pjby91ZGZCT0VFOWJoakNRMUE9In0sImZsYWciOjAsImxhbmd1YWdlIjoiSkFWQSIsIm9wYXF1ZSI6Nywic2Vy"
        "aWFsaXplVHlwZUN1cnJlbnRSUEMiOiJKU09OIiwidmVyc2lvbiI6NTEzfWhlbGxv"
    ),
    "5.5.0 send_rocketmq": (
        "AAABCAEAAP8BNgACAQAAAAcAAAAAAAAAAAAAAOoACUFjY2Vzc0tleQAAAApvcmRlcnMta2V5AAFhAAAABm1ha2VycwABYgAAAAZPcmRlcnMAAW"
        "MAAAAGVEJXMTAyAAFkAAAAATQAAWUAAAABMQABZgAAAAEwAAFnAAAADTE3NjQwMDAwMDAwMDAAAWgAAAABMAABaQAAABtLRVlTAWsCVU5JUV9L"
        "RVkBN0YwMDAwMDEwQQIAAWoAAAABMAABawAAAAVmYWxzZQABbAAAAAIxNgABbQAAAAVmYWxzZQAJU2lnbmF0dXJlAAAAHE80MHYyU0ZzWmNvL3"
        "VkZkJPRUU5YmhqQ1ExQT1oZWxsbw=="
    ),
    "5.5.0 heartbeat": (
        "AAABBgAAALJ7ImNvZGUiOjM0LCJleHRGaWVsZHMiOnsiQWNjZXNzS2V5Ijoib3JkZXJzLWtleSIsIlNpZ25hdHVyZSI6IlJnc2J5eUhORnZpbG"
        "gyaFdxdTdMQXpuUXJqZz0ifSwiZmxhZyI6MCwibGFuZ3VhZ2UiOiJKQVZBIiwib3BhcXVlIjo3LCJzZXJpYWxpemVUeXBlQ3VycmVudFJQQyI6"
        "IkpTT04iLCJ2ZXJzaW9uIjo1MTN9eyJjbGllbnRJRCI6ImMiLCJjb25zdW1lckRhdGFTZXQiOltdLCJwcm9kdWNlckRhdGFTZXQiOlt7Imdyb3"
        "VwTmFtZSI6Im1ha2VycyJ9XX0="
    ),
    "5.5.0 query": (
        "AAABVAAAAVB7ImNvZGUiOjEyLCJleHRGaWVsZHMiOnsibWF4TnVtIjoiMzIiLCJiZWdpblRpbWVzdGFtcCI6IjAiLCJBY2Nlc3NLZXkiOiLnro"
        "BvcmRlcnMta2V5Iiwia2V5Ijoia8OpeSIsIlNlY3VyaXR5VG9rZW4iOiJ0b2tlbi0xIiwiX1VOSVFVRV9LRVlfUVVFUlkiOiJ0cnVlIiwidG9w"
        "aWMiOiJPcmRlcnMiLCJlbmRUaW1lc3RhbXAiOiI5MjIzMzcyMDM2ODU0Nzc1ODA3IiwiU2lnbmF0dXJlIjoiUGh4cVgxYmJSVWN1NDZHRzN3a0"
        "RQUlVwYlFFPSJ9LCJmbGFnIjowLCJsYW5ndWFnZSI6IkpBVkEiLCJvcGFxdWUiOjcsInNlcmlhbGl6ZVR5cGVDdXJyZW50UlBDIjoiSlNPTiIs"
        "InZlcnNpb24iOjUxM30="
    ),
    "5.5.0 unregister": (
        "AAAA8gAAAO57ImNvZGUiOjM1LCJleHRGaWVsZHMiOnsiY2xpZW50SUQiOiJjIiwiQWNjZXNzS2V5Ijoib3JkZXJzLWtleSIsIlNlY3VyaXR5VG"
        "9rZW4iOiIiLCJjb25zdW1lckdyb3VwIjoicmVhZGVycyIsIlNpZ25hdHVyZSI6IjEyNit1ZlVOQ3hNU05IVHByZGpKWTZGYS9PTT0ifSwiZmxh"
        "ZyI6MCwibGFuZ3VhZ2UiOiJKQVZBIiwib3BhcXVlIjo3LCJzZXJpYWxpemVUeXBlQ3VycmVudFJQQyI6IkpTT04iLCJ2ZXJzaW9uIjo1MTN9"
    ),
    "4.9.8 send_json": (
        "AAABdgAAAW17ImNvZGUiOjMxMCwiZXh0RmllbGRzIjp7ImEiOiJtYWtlcnMiLCJiIjoiT3JkZXJzIiwiYyI6IlRCVzEwMiIsImQiOiI0IiwiZS"
        "I6IjEiLCJmIjoiMCIsImciOiIxNzY0MDAwMDAwMDAwIiwiaCI6IjAiLCJpIjoiS0VZU1x1MDAwMWtcdTAwMDJVTklRX0tFWVx1MDAwMTdGMDAw"
        "MDAxMEFcdTAwMDIiLCJqIjoiMCIsImsiOiJmYWxzZSIsImwiOiIxNiIsIm0iOiJmYWxzZSIsIlNpZ25hdHVyZSI6Ik80MHYyU0ZzWmNvL3VkZk"
        "JPRUU5YmhqQ1ExQT0iLCJBY2Nlc3NLZXkiOiJvcmRlcnMta2V5In0sImZsYWciOjAsImxhbmd1YWdlIjoiSkFWQSIsIm9wYXF1ZSI6Nywic2Vy"
        "aWFsaXplVHlwZUN1cnJlbnRSUEMiOiJKU09OIiwidmVyc2lvbiI6NDA5fWhlbGxv"
    ),
    "4.9.8 send_rocketmq": (
        "AAABCAEAAP8BNgABmQAAAAcAAAAAAAAAAAAAAOoAAWEAAAAGbWFrZXJzAAFiAAAABk9yZGVycwABYwAAAAZUQlcxMDIAAWQAAAABNAABZQAAAA"
        "ExAAFmAAAAATAAAWcAAAANMTc2NDAwMDAwMDAwMAABaAAAAAEwAAFpAAAAG0tFWVMBawJVTklRX0tFWQE3RjAwMDAwMTBBAgABagAAAAEwAAFr"
        "AAAABWZhbHNlAAFsAAAAAjE2AAFtAAAABWZhbHNlAAlTaWduYXR1cmUAAAAcTzQwdjJTRnNaY28vdWRmQk9FRTliaGpDUTFBPQAJQWNjZXNzS2"
        "V5AAAACm9yZGVycy1rZXloZWxsbw=="
    ),
    "4.9.8 heartbeat": (
        "AAABBgAAALJ7ImNvZGUiOjM0LCJleHRGaWVsZHMiOnsiU2lnbmF0dXJlIjoiUmdzYnl5SE5GdmlsaDJoV3F1N0xBem5RcmpnPSIsIkFjY2Vzc0"
        "tleSI6Im9yZGVycy1rZXkifSwiZmxhZyI6MCwibGFuZ3VhZ2UiOiJKQVZBIiwib3BhcXVlIjo3LCJzZXJpYWxpemVUeXBlQ3VycmVudFJQQyI6"
        "IkpTT04iLCJ2ZXJzaW9uIjo0MDl9eyJjbGllbnRJRCI6ImMiLCJjb25zdW1lckRhdGFTZXQiOltdLCJwcm9kdWNlckRhdGFTZXQiOlt7Imdyb3"
        "VwTmFtZSI6Im1ha2VycyJ9XX0="
    ),
    "4.9.8 query": (
        "AAABVAAAAVB7ImNvZGUiOjEyLCJleHRGaWVsZHMiOnsiU2VjdXJpdHlUb2tlbiI6InRva2VuLTEiLCJfVU5JUVVFX0tFWV9RVUVSWSI6InRydW"
        "UiLCJiZWdpblRpbWVzdGFtcCI6IjAiLCJTaWduYXR1cmUiOiJQaHhxWDFiYlJVY3U0NkdHM3drRFBSVXBiUUU9IiwidG9waWMiOiJPcmRlcnMi"
        "LCJBY2Nlc3NLZXkiOiLnroBvcmRlcnMta2V5IiwibWF4TnVtIjoiMzIiLCJlbmRUaW1lc3RhbXAiOiI5MjIzMzcyMDM2ODU0Nzc1ODA3Iiwia2"
        "V5Ijoia8OpeSJ9LCJmbGFnIjowLCJsYW5ndWFnZSI6IkpBVkEiLCJvcGFxdWUiOjcsInNlcmlhbGl6ZVR5cGVDdXJyZW50UlBDIjoiSlNPTiIs"
        "InZlcnNpb24iOjQwOX0="
    ),
    "4.9.8 unregister": (
        "AAAA8gAAAO57ImNvZGUiOjM1LCJleHRGaWVsZHMiOnsiU2VjdXJpdHlUb2tlbiI6IiIsImNsaWVudElEIjoiYyIsIlNpZ25hdHVyZSI6IjEyNi"
        "t1ZlVOQ3hNU05IVHByZGpKWTZGYS9PTT0iLCJBY2Nlc3NLZXkiOiJvcmRlcnMta2V5IiwiY29uc3VtZXJHcm91cCI6InJlYWRlcnMifSwiZmxh"
        "ZyI6MCwibGFuZ3VhZ2UiOiJKQVZBIiwib3BhcXVlIjo3LCJzZXJpYWxpemVUeXBlQ3VycmVudFJQQyI6IkpTT04iLCJ2ZXJzaW9uIjo0MDl9"
    ),
}


def command_of(name: str) -> Command:
    return decode(base64.b64decode(FRAMES[name])[4:])


@pytest.mark.parametrize("name", FRAMES)
def test_a_signature_is_the_one_that_rocketmqs_own_classes_make(name: str) -> None:
    command = command_of(name)
    secret = SECRETS[command.fields["AccessKey"]].encode()
    assert signature_of(signed_bytes(command), secret) == command.fields[SIGNATURE]


@pytest.mark.parametrize("name", FRAMES)
def test_every_value_and_the_body_are_part_of_a_signature(name: str) -> None:
    command = command_of(name)
    right = signed_bytes(command)
    assert signed_bytes(replace(command, body=command.body + b"x")) != right
    for field in command.fields.keys() - {SIGNATURE}:
        assert signed_bytes(replace(command, fields={**command.fields, field: command.fields[field] + "x"})) != right


def test_a_field_that_old_clients_add_behind_their_signature_is_no_part_of_it() -> None:
    command = command_of("5.5.0 query")
    without = {name: value for name, value in command.fields.items() if name != "_UNIQUE_KEY_QUERY"}
    old = replace(command, version=V4_9_3)
    assert signed_bytes(old) == signed_bytes(replace(old, fields=without))


# What the official clients sent with this key: Java 5.2.0, Go 5.1.4, Python and Node 1.0.8, on a machine in Shanghai. Those of
# C#, C++ and Rust are written as their sources say.
CALLS = {
    "java": (
        "MQv2-HMAC-SHA1 Credential=shop-key, SignedHeaders=x-mq-date-time, "
        "Signature=AACB561D7DB197FE5B42273B938E9AB5926A4715",
        "20261130T025639Z",
    ),
    "go": (
        "MQv2-HMAC-SHA1 Credential=shop-key//Rocketmq, SignedHeaders=x-mq-date-time, "
        "Signature=ab96653628750a7e6090d6eb7cf80ccf0de18dc8",
        "20261130T025632Z",
    ),
    "python": (
        "MQv2-HMAC-SHA1 Credential=shop-key, SignedHeaders=x-mq-date-time, "
        "Signature=35b555e957bb6333bc5be091f1d348ec3c987e73",
        "20261130T024546Z",
    ),
    "node": (
        "MQv2-HMAC-SHA1 Credential=shop-key, SignedHeaders=x-mq-date-time, "
        "Signature=DB0E322E5B374E812778129784447821D41DDC6B",
        "20261129T185635Z",
    ),
    "csharp": (
        "MQv2-HMAC-SHA1 Credential=shop-key, SignedHeaders=x-mq-date-time, "
        "Signature=888E1F70E634BAA2FBC3AB08BD240ACB7B2D9D78",
        "20261129T185639Z",
    ),
    "cpp": (
        "MQv2-HMAC-SHA1 Credential=shop-key/cn-hangzhou/RocketMQ, SignedHeaders=x-mq-date-time, "
        "Signature=888E1F70E634BAA2FBC3AB08BD240ACB7B2D9D78",
        "20261129T185639Z",
    ),
    "rust": (
        "MQv2-HMAC-SHA1 Credential=shop-key, SignedHeaders=x-mq-date-time, "
        "Signature=815493b58c4225d715b86f4bbae18a9ac7c1f4d5",
        "2026-11-30T02:56:39.123456789+08:00",
    ),
}
CALL_KEY, CALL_SECRET = "shop-key", b"its-secret"


@pytest.mark.parametrize("language", CALLS)
def test_the_signature_of_a_call_is_the_one_that_each_official_client_makes(language: str) -> None:
    authorization, date = CALLS[language]
    signed = parse_authorization(authorization, date)
    assert signed is not None
    assert signed == (CALL_KEY, signature_of(date.encode(), CALL_SECRET), date)
    assert signed.signature != signature_of(date.encode(), b"another-secret")


@pytest.mark.parametrize("credential", ["Credential=", "Credential=//Rocketmq"])
def test_a_call_whose_key_is_empty_is_not_signed(credential: str) -> None:
    authorization = f"MQv2-HMAC-SHA1 {credential}, SignedHeaders=x-mq-date-time, Signature=00"
    assert parse_authorization(authorization, "20261129T183948Z") is None


@pytest.mark.parametrize(
    ("authorization", "date", "why"),
    [
        ("MQv2-HMAC-SHA1 Credential=shop-key, Signature=xyz", "20261129T183948Z", "hex digits"),
        ("MQv2-HMAC-SHA1 Credential=shop-key, Signature=00", "", "no x-mq-date-time"),
        ("MQv2-HMAC-SHA1 credential=shop-key, Signature=00", "20261129T183948Z", "names no Credential"),
        ("MQv2-HMAC-SHA1 Credential shop-key", "20261129T183948Z", "names no Credential"),
        ("MQv2-HMAC-SHA1 ", "20261129T183948Z", "names no Credential"),
    ],
)
def test_a_signature_of_a_call_that_cannot_be_read_says_what_is_wrong_without_it(
    authorization: str, date: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_authorization(authorization, date)
    assert "shop-key" not in str(refused.value)
    assert "xyz" not in str(refused.value)


NOW_SECONDS = datetime.fromisoformat("2026-11-29T18:39:48+00:00").timestamp()
SHANGHAI, BERLIN = ZoneInfo("Asia/Shanghai"), ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("date", "zones", "off_seconds"),
    [
        ("20261129T183948Z", (), 0),
        ("20261129T183958Z", (), 10),
        ("2026-11-29T19:39:48.999999999+01:00", (), 0.999999),  # Rust's
        ("2026-11-29T18:39:38Z", (), -10),
        ("20261130T023948Z", (), 8 * 3600),  # Java's in Shanghai
        ("20261130T023948Z", (SHANGHAI,), 0),
        ("20261129T193950Z", (SHANGHAI, BERLIN), 2),
        ("20261129T183948Z", (SHANGHAI, BERLIN), 0),
        ("2026-11-30T02:39:48+00:00", (SHANGHAI,), 8 * 3600),  # it says that it is UTC, and not by a Z
    ],
)
def test_a_date_is_read_as_utc_or_as_local_time_of_a_named_zone(
    date: str, zones: tuple[ZoneInfo, ...], off_seconds: float
) -> None:
    assert seconds_off(date, NOW_SECONDS, zones) == pytest.approx(off_seconds, abs=1e-5)


@pytest.mark.parametrize("utc", ["2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"])
def test_an_hour_that_a_clock_has_twice_is_read_both_ways(utc: str) -> None:
    assert seconds_off("20261025T023000Z", datetime.fromisoformat(utc).timestamp(), (BERLIN,)) == 0


@pytest.mark.parametrize("date", ["", "now", "20261399T183948Z", "x" * 10_000, "20261129T183948ZZ"])
def test_what_is_no_date_is_refused_as_none(date: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|month must be"):
        seconds_off(date, NOW_SECONDS, (SHANGHAI,))
