"""The port of consumers: calls to gateways, time, and the lock. Threads and asyncio each have an implementation of it.

Everything that decides is written once, above this port, and is told what happened by callbacks.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from reput_client.errors import ReputClientError

V2_SERVICE = "/apache.rocketmq.v2.MessagingService/"
# A server expects the behaviour of RocketMQ's own clients of this version.
CONTRACT_VERSION = "5.1.0"

Metadata = tuple[tuple[str, str], ...]
# The result of a unary call.
Done = Callable[[Any | ReputClientError], None]
# The responses of a stream until its end, and the error that ended it.
StreamDone = Callable[[Sequence[Any], ReputClientError | None], None]


class Cancellable(Protocol):
    """A call under way."""

    def cancel(self) -> None:
        """End it; its callback is called, unless it was already."""


class TelemetryStream(Cancellable, Protocol):
    """An open Telemetry stream."""

    def send(self, command: Any) -> None:
        """Send a command to the gateway."""


class Transport(Protocol):
    """Calls to gateways. Callbacks never run inside the call that they belong to."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while state changes; callbacks are called without it."""

    def now(self) -> float:
        """Seconds, rising."""

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function in so many seconds; not after `close`."""

    def call(self, target: str, method: str, request: Any, seconds: float, done: Done) -> None:
        """Make a unary call of `apache.rocketmq.v2.MessagingService`."""

    def stream(self, target: str, method: str, request: Any, seconds: float, done: StreamDone) -> Cancellable:
        """Make a call that is answered with a stream."""

    def telemetry(
        self, target: str, taken: Callable[[Any], None], ended: Callable[[ReputClientError | None], None]
    ) -> TelemetryStream:
        """Open a Telemetry stream; its commands are given to `taken`."""

    def future(self) -> Any:
        """A new future for a caller."""

    def wake(self) -> None:
        """Wake the callers that wait for a message, or for the end. The lock is held."""


def metadata_of(client_id: str) -> Metadata:
    """The metadata of a client's calls of `apache.rocketmq.v2.MessagingService`."""
    return (
        ("x-mq-client-id", client_id),
        ("x-mq-language", "PYTHON"),
        ("x-mq-client-version", CONTRACT_VERSION),
        ("x-mq-protocol", "GRPC_V2"),
    )
