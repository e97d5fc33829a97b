"""A record in Kubernetes: a Lease of coordination.k8s.io/v1 for each shard, the document in its annotation `reput.io/shard`.

    GET  /apis/coordination.k8s.io/v1/namespaces/NAMESPACE/leases/NAME
    POST .../leases                                     409: there is one already
    PUT  .../leases/NAME  with uid and resourceVersion  409: another version is stored

A version is the Lease's uid and its resourceVersion: a Lease that was removed and made again has another uid. The fields of its
spec are a courtesy for `kubectl get leases`; nothing here reads them. A service account needs `get`, `create` and `update` of
leases in its namespace (docs/kubernetes.md).
"""

import functools
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

from services.coordination.access import SERVICE_ACCOUNT, CoordinatorAccess, KubernetesAddress
from services.coordination.http_calls import Answer, HttpCalls
from services.coordination.port import StoredRecord, checked_text
from services.settings.certificates import client_context
from store.errors import InvalidSettingError, RecordConflictError

ANNOTATION = "reput.io/shard"
API = "/apis/coordination.k8s.io/v1/namespaces"
HTTPS_PORT = 443
OK, CREATED, NOT_FOUND, CONFLICT = 200, 201, 404, 409
LEASE_SECONDS_MAX = (1 << 31) - 1


class KubernetesLeaseStore:
    """Thread-safe.

    Args:
        address: namespace and prefix of the Lease's name.
        shard: its name ends the Lease's name.
        access: credentials; what is missing is taken from the pod's service account.

    Raises:
        InvalidSettingError: there is no API server, or the Lease's name is not allowed.
    """

    def __init__(self, address: KubernetesAddress, shard: str, access: CoordinatorAccess) -> None:
        self._name = address.lease_name(shard)
        self._namespace = address.namespace
        self._leases = f"{API}/{quote(address.namespace, safe='')}/leases"
        self._token_file = access.token_file or SERVICE_ACCOUNT / "token"
        if access.ca is None:
            access = replace(access, ca=SERVICE_ACCOUNT / "ca.crt")
        host, port = _server(address.server)
        self._calls = HttpCalls(
            f"Kubernetes at {host}:{port}",
            [(host, port)],
            functools.partial(client_context, access.ca, access.certificate, access.key),
        )

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        """See RecordStore."""
        answer = self._call("GET", f"/{self._name}", None, timeout_seconds)
        if answer.status == NOT_FOUND and answer.body.get("reason") == "NotFound":
            return None
        if answer.status != OK:
            raise self._calls.unavailable(answer.text())
        metadata = answer.body["metadata"]
        data = (metadata.get("annotations") or {}).get(ANNOTATION, "")
        return StoredRecord(data.encode(), _version(metadata))

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        """See RecordStore."""
        text = checked_text(data)
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "annotations": {ANNOTATION: text}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": _courtesy(text)}
        if version is None:
            answer = self._call("POST", "", lease, timeout_seconds)
        else:
            metadata["uid"], _, metadata["resourceVersion"] = version.partition("/")
            answer = self._call("PUT", f"/{self._name}", lease, timeout_seconds)
        is_gone = answer.status == NOT_FOUND and version is not None and answer.body.get("reason") == "NotFound"
        if is_gone or (answer.status == CONFLICT and answer.body.get("reason") in ("Conflict", "AlreadyExists")):
            raise RecordConflictError(f"the Lease {self._name} has another version: read it again", lease=self._name)
        if answer.status not in (OK, CREATED):
            raise self._calls.unavailable(answer.text())
        return _version(answer.body["metadata"])

    def _call(self, method: str, path: str, body: object, timeout_seconds: float) -> Answer:
        try:
            token = self._token_file.read_text().strip()
        except OSError as error:
            raise self._calls.unavailable(f"the token cannot be read: {error}") from error
        headers = {"Authorization": f"Bearer {token}"}
        return self._calls.call(method, self._leases + path, body, headers, timeout_seconds)


def _version(metadata: Mapping[str, Any]) -> str:
    return f"{metadata['uid']}/{metadata['resourceVersion']}"


def _server(url: str) -> tuple[str, int]:
    if url:
        parts = urlsplit(url)
        if parts.hostname:
            return parts.hostname, parts.port or HTTPS_PORT
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdecimal():
        raise InvalidSettingError(
            "this process runs in no pod, so it knows no API server: use kubernetes://NAMESPACE/PREFIX?server=https://HOST:PORT",
            name="coordinator",
            source=url,
        )
    return host, int(port)


def _courtesy(text: str) -> dict[str, Any]:
    """The Lease's own fields, from a shard's record; those that cannot be told are left out."""
    now = time.time()
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
    try:
        record = json.loads(text)
        fields = {
            "leaseTransitions": record["epoch"],
            "leaseDurationSeconds": min(max(1, record["lease_millis"] // 1000), LEASE_SECONDS_MAX),
            "renewTime": renewed,
        }
        # Kubernetes refuses an empty name.
        return {"holderIdentity": record["leader"], **fields} if record["leader"] else fields
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"renewTime": renewed}
