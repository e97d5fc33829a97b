"""The signatures that RocketMQ's clients make with an access key and its secret.

A remoting request, signed by `AclClientRPCHook`:

    extFields   AccessKey       names the secret
                SecurityToken   signed, and not looked at
                Signature       Base64(HMAC-SHA1(secret, values of all other fields in the order of their names, then the body))

The values are joined without anything between them. Neither the code of the request nor a time is signed: a program that
reads a signed request on its way can send it again. TLS prevents that. Up to V4_9_3 the field `_UNIQUE_KEY_QUERY` is added
after the signature.

A gRPC call, signed by the official clients in its metadata:

    authorization       MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=Hex(HMAC-SHA1(secret, date))
    x-mq-date-time      20261129T183948Z; 2026-11-29T18:39:48.123456789+08:00 of Rust's

Go and C++ write `Credential=KEY/REGION/SERVICE`; the region is empty in Go. The hex digits are upper or lower case. The date
alone is signed: neither the method nor the message. A call with an empty key is not signed: Python's and Go's clients write
one where the program has no credentials. The clients of Java, Python, Go and C# write the local time of their machine with a
`Z` behind it, so a date with `Z` may be one of another time zone (`seconds_off`). RocketMQ checks no date.

Sources: `AclUtils.combineRequestContent`, `AclSigner`, `DefaultAuthenticationContextBuilder` of RocketMQ 5.5.0; of the clients
`Signature` (Java, C#, C++, Python), `client.go`, `BaseClient.ts`, `session.rs`.
"""

import base64
import hmac
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from services.rocketmq.command import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
OF_SIGN_IN = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN))
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
V4_9_3 = 399
ALGORITHM, DATE_TIME = "mqv2-hmac-sha1 ", "x-mq-date-time"


def signed_bytes(command: Command) -> bytes:
    """What the signature of a request is of."""
    left_out = {SIGNATURE} if command.version > V4_9_3 else {SIGNATURE, UNIQUE_KEY_QUERY}
    values = [value for name, value in sorted(command.fields.items()) if name not in left_out]
    return "".join(values).encode("utf-8", "replace") + command.body


def signature_of(data: bytes, secret: bytes) -> str:
    """The signature of bytes."""
    return base64.b64encode(hmac.digest(secret, data, "sha1")).decode()


class CallSignature(NamedTuple):
    """The signature of a gRPC call.

    Attributes:
        access_key: names the secret.
        signature: as `signature_of` makes it.
        date: what is signed.
    """

    access_key: str
    signature: str
    date: str


def parse_authorization(authorization: str, date: str) -> CallSignature | None:
    """The signature in the metadata of a call; None: it has an empty key.

    Raises:
        ValueError: it cannot be read; the text contains no part of it.
    """
    fields = dict(field.strip().partition("=")[::2] for field in authorization[len(ALGORITHM) :].split(","))
    if "Credential" not in fields:
        raise ValueError("the signature of the call names no Credential")
    access_key = fields["Credential"].partition("/")[0]
    if not access_key:
        return None
    try:
        digest = bytes.fromhex(fields.get("Signature", ""))
    except ValueError as error:
        raise ValueError("the signature of the call has other characters than hex digits") from error
    if not date:
        raise ValueError(f"the call has a signature and no {DATE_TIME}, which is what is signed")
    return CallSignature(access_key, base64.b64encode(digest).decode(), date)


def seconds_off(date: str, now_seconds: float, zones: Iterable[tzinfo] = ()) -> float:
    """How far the date of a call is ahead of a time, in seconds since 1970; negative: behind it.

    Args:
        date: of a call.
        now_seconds: the time.
        zones: where clients write their local time with a `Z`; the reading that is nearest to the time counts. UTC is one.

    Raises:
        ValueError: it is no date.
    """
    read = datetime.fromisoformat(date)
    if read.tzinfo is None:
        read = read.replace(tzinfo=UTC)
    readings = [read]
    if date.endswith(("Z", "z")):
        # An hour that a clock has twice is read both ways.
        readings += [read.replace(tzinfo=zone, fold=fold) for zone in zones for fold in (0, 1)]
    return min((reading.timestamp() - now_seconds for reading in readings), key=abs)


def sign(command: Command, access_key: str, secret: bytes) -> Command:
    """A request with its signature, as `AclClientRPCHook` leaves it."""
    keyed = replace(command, fields={**command.fields, ACCESS_KEY: access_key})
    return replace(keyed, fields={**keyed.fields, SIGNATURE: signature_of(signed_bytes(keyed), secret)})
