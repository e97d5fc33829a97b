"""JSON over HTTP to one of several endpoints, with a time limit; nothing is sent twice."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.errors import CoordinatorUnavailableError

# Several times a record with what Kubernetes puts around it.
ANSWER_BYTES_MAX = 2 << 20
ERROR_CHARACTERS_MAX = 300
CONNECT_SHARE = 2  # one endpoint that swallows packets leaves half of the time for the next


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and JSON object of an answer; an empty object where the body is none."""

    status: int
    body: Mapping[str, Any]

    def text(self) -> str:
        """For errors."""
        said = self.body.get("message") or self.body.get("error") or self.body
        return f"{self.status} {said}"[:ERROR_CHARACTERS_MAX]


class HttpCalls:
    """Thread-safe: one connection a call, begun with the endpoint that answered last.

    Args:
        coordinator: for errors.
        endpoints: host and port.
        tls: makes the context of a connection; None: no TLS.
    """

    def __init__(
        self,
        coordinator: str,
        endpoints: Sequence[tuple[str, int]],
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._coordinator = coordinator
        self._endpoints = tuple(endpoints)
        self._tls = tls
        self._first = 0

    def call(self, method: str, path: str, body: object, headers: Mapping[str, str], timeout_seconds: float) -> Answer:
        """One request. Another endpoint is tried only where no connection was made.

        Raises:
            CoordinatorUnavailableError: nobody answered in time.
        """
        until = time.monotonic() + timeout_seconds
        failures = []
        first = self._first
        for number in range(len(self._endpoints)):
            place = (first + number) % len(self._endpoints)
            host, port = self._endpoints[place]
            left = until - time.monotonic()
            is_last = number == len(self._endpoints) - 1
            if left <= 0:
                break
            try:
                connection = self._connected(host, port, left if is_last else left / CONNECT_SHARE)
            except (OSError, ValueError) as error:
                failures.append(f"{host}:{port}: {error}")
                continue
            try:
                answer = self._exchange(connection, method, path, body, headers, until)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._first = (place + 1) % len(self._endpoints)
                raise self.unavailable(f"{host}:{port}: {error!r}") from error
            finally:
                connection.close()
            self._first = place
            return answer
        raise self.unavailable("; ".join(failures) or "the time was over")

    def unavailable(self, why: str) -> CoordinatorUnavailableError:
        """The error that says so."""
        return CoordinatorUnavailableError(
            f"the coordinator {self._coordinator} cannot be asked: {why}"[: ERROR_CHARACTERS_MAX * 2],
            coordinator=self._coordinator,
        )

    def _connected(self, host: str, port: int, timeout_seconds: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=self._tls())
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _exchange(
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str],
        until: float,
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        assert connection.sock is not None
        connection.sock.settimeout(max(0.001, until - time.monotonic()))
        connection.request(method, path, data, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        parts = []
        size_bytes = 0
        while part := response.read1(1 << 16):
            parts.append(part)
            size_bytes += len(part)
            if size_bytes > ANSWER_BYTES_MAX or time.monotonic() > until:
                raise ValueError(f"its answer is longer than {ANSWER_BYTES_MAX} bytes, or slow")
        try:
            decoded = json.loads(b"".join(parts) or b"{}")
        except (ValueError, RecursionError):
            decoded = {"message": b"".join(parts)[:ERROR_CHARACTERS_MAX].decode(errors="replace")}
        return Answer(response.status, decoded if isinstance(decoded, dict) else {})
