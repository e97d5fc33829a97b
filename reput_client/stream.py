"""One append stream of the threaded producer: what grpc takes requests from, and how it goes."""

from collections.abc import Callable, Iterator
from typing import Any

from reput_client.errors import ReputClientError


class Stream:
    """One append stream.

    Args:
        next_request: waits for the next request; None when this stream shall end.

    Attributes:
        call: what grpc gave for it; None until then.
        is_ending: no request is given any more.
        has_progress: an answer came.
        progress_at: when the last answer came, or a request was taken with none in flight; seconds.
        error: why it was given up from this side, or what was refused on it.
    """

    def __init__(self, next_request: "Callable[[Stream], bytes | None]") -> None:
        self._next_request = next_request
        self.call: Any = None
        self.is_ending = False
        self.has_progress = False
        self.progress_at = 0.0
        self.error: ReputClientError | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        request = self._next_request(self)
        if request is None:
            raise StopIteration
        return request
