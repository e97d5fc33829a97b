"""Signatures as `AclClientRPCHook` of RocketMQ's own classes made them; the frames were written by those classes, too.

4.9.8 and 5.5.0, versions 409 and 513: a send in both forms of the header, a heartbeat, a query with `_UNIQUE_KEY_QUERY`,
a token and keys that are no ASCII, and the end of a client with an empty token.
"""

import base64
from dataclasses import replace

import pytest

from services.rocketmq.command import Command, decode
from services.rocketmq.signature import SIGNATURE, V4_9_3, signature_of, signed_bytes

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
