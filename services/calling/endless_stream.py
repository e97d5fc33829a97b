"""A stream of answers that ends only when somebody ends it: WatchArrivals, WatchChecks."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from services import status
from store.errors import ServiceUnavailableError

Answer = TypeVar("Answer", bound=Message)


class EndlessStream(Generic[Answer]):
    """A running call: iterate over its answers; `cancel` ends it from any thread.

    Args:
        call: the call of gRPC.
        service: for errors: the service that is called.
        what: for errors: what it streams.
    """

    def __init__(self, call: Any, service: str, what: str) -> None:
        self._call = call
        self._service = service
        self._what = what

    def __iter__(self) -> Iterator[Answer]:
        """Answers, without end.

        Raises:
            StoreError: the typed error with which the stream ended; ServiceUnavailableError also after `cancel`, and
                when the server ended it normally, as it does while stopping.
        """
        try:
            yield from self._call
        except grpc.RpcError as rpc_error:
            raise status.from_rpc_error(rpc_error, self._service) from rpc_error
        raise ServiceUnavailableError(f"{self._service} ended the stream of {self._what}", service=self._service)

    def cancel(self) -> None:
        """End the call; a waiting iteration raises ServiceUnavailableError."""
        self._call.cancel()
