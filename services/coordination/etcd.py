"""A record in etcd, over the JSON gateway of its v3 API: one key a shard.

    POST /v3/kv/range  {key}                                      linearizable: a majority answers
    POST /v3/kv/txn    {compare: [...], success: [put]}           compare and swap

A version is the key's `mod_revision` and its value. The revision alone is not enough: an etcd whose data was lost counts from 1
again. All 64-bit numbers are strings in JSON, bytes are base64.
"""

import base64
import functools
import threading
from typing import Any

from services.coordination.access import CoordinatorAccess, EtcdAddress
from services.coordination.http_calls import Answer, HttpCalls
from services.coordination.port import StoredRecord, checked_text
from services.settings.certificates import client_context
from store.errors import RecordConflictError

UNAUTHENTICATED = 16  # gRPC's code: a token that is not known any more; nothing was done
OK = 200


class EtcdRecordStore:
    """Thread-safe.

    Args:
        address: endpoints and prefix.
        shard: its name ends the key.
        access: credentials.
    """

    def __init__(self, address: EtcdAddress, shard: str, access: CoordinatorAccess) -> None:
        name = ",".join(f"{host}:{port}" for host, port in address.endpoints)
        tls = functools.partial(client_context, access.ca, access.certificate, access.key) if address.with_tls else None
        self._calls = HttpCalls(f"etcd at {name}", address.endpoints, tls)
        self._key = _base64(address.key(shard).encode())
        self._key_text = address.key(shard)
        self._access = access
        self._token = ""
        self._lock = threading.Lock()

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        """See RecordStore."""
        answer = self._post("/v3/kv/range", {"key": self._key}, timeout_seconds)
        found = answer.body.get("kvs") or []
        if not found:
            return None
        value = found[0].get("value", "")
        return StoredRecord(base64.b64decode(value), f"{found[0]['mod_revision']}/{value}")

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        """See RecordStore."""
        checked_text(data)
        value = _base64(data)
        if version is None:
            compare = [{"key": self._key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}]
        else:
            revision, _, known = version.partition("/")
            compare = [
                {"key": self._key, "target": "MOD", "result": "EQUAL", "mod_revision": revision},
                {"key": self._key, "target": "VALUE", "result": "EQUAL", "value": known},
            ]
        put = {"request_put": {"key": self._key, "value": value}}
        answer = self._post("/v3/kv/txn", {"compare": compare, "success": [put]}, timeout_seconds)
        if not answer.body.get("succeeded", False):
            raise RecordConflictError(
                f"{self._key_text} in etcd has another version: read it again", key=self._key_text
            )
        return f"{answer.body['header']['revision']}/{value}"

    def _post(self, path: str, body: dict[str, Any], timeout_seconds: float) -> Answer:
        token = self._known_token(timeout_seconds)
        answer = self._calls.call("POST", path, body, _headers(token), timeout_seconds)
        if token and answer.body.get("code") == UNAUTHENTICATED:
            self._forget(token)
            token = self._known_token(timeout_seconds)
            answer = self._calls.call("POST", path, body, _headers(token), timeout_seconds)
        if answer.status != OK or "header" not in answer.body:
            raise self._calls.unavailable(answer.text())
        return answer

    def _known_token(self, timeout_seconds: float) -> str:
        if not self._access.user:
            return ""
        with self._lock:
            if not self._token:
                self._token = self._authenticate(timeout_seconds)
            return self._token

    def _authenticate(self, timeout_seconds: float) -> str:
        try:
            path = self._access.password_file
            password = path.read_text().removesuffix("\n") if path is not None else ""
        except OSError as error:
            raise self._calls.unavailable(f"its password cannot be read: {error}") from error
        asked = {"name": self._access.user, "password": password}
        answer = self._calls.call("POST", "/v3/auth/authenticate", asked, {}, timeout_seconds)
        token = answer.body.get("token")
        if answer.status != OK or not isinstance(token, str):
            raise self._calls.unavailable(f"user {self._access.user}: {answer.text()}")
        return token

    def _forget(self, token: str) -> None:
        with self._lock:
            if self._token == token:
                self._token = ""


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": token} if token else {}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
