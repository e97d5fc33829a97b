"""The signature of a remoting request, as `AclClientRPCHook` of RocketMQ's clients makes it with an access key and its secret.

    extFields   AccessKey       names the secret
                SecurityToken   signed, and not looked at
                Signature       Base64(HMAC-SHA1(secret, values of all other fields in the order of their names, then the body))

The values are joined without anything between them. Neither the code of the request nor a time is signed: a program that
reads a signed request on its way can send it again. TLS prevents that. Up to V4_9_3 the field `_UNIQUE_KEY_QUERY` is added
after the signature.

Sources: `AclUtils.combineRequestContent`, `AclSigner`, `DefaultAuthenticationContextBuilder` of RocketMQ 5.5.0.
"""

import base64
import hmac

from services.rocketmq.command import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
OF_SIGN_IN = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN))
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
V4_9_3 = 399


def signed_bytes(command: Command) -> bytes:
    """What the signature of a request is of."""
    left_out = {SIGNATURE} if command.version > V4_9_3 else {SIGNATURE, UNIQUE_KEY_QUERY}
    values = [value for name, value in sorted(command.fields.items()) if name not in left_out]
    return "".join(values).encode("utf-8", "replace") + command.body


def signature_of(data: bytes, secret: bytes) -> str:
    """The signature of bytes."""
    return base64.b64encode(hmac.digest(secret, data, "sha1")).decode()
