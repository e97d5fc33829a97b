"""Backpressure for forwarded append streams: a caller that does not read responses can send no further requests."""

import threading
from collections.abc import Iterator

# Unanswered requests of one stream, of at most 4 MiB each. A few keep a commitlog busy, and share a flush.
UNANSWERED_COUNT_MAX = 8


class Backpressure:
    """An iterator over a stream's requests that blocks while too many of them are unanswered.

    It ends when the caller has sent the last request, and also when the call is cancelled.

    Args:
        requests: the caller's requests.
        unanswered_count_max: requests whose response the caller has not yet read.
    """

    def __init__(self, requests: Iterator[bytes], unanswered_count_max: int = UNANSWERED_COUNT_MAX) -> None:
        self._requests = requests
        self._unanswered_count_max = unanswered_count_max
        self._unanswered_count = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._unanswered_count < self._unanswered_count_max or self._is_closed)
            if self._is_closed:
                raise StopIteration
            self._unanswered_count += 1
        try:
            return next(self._requests)
        except StopIteration:
            raise
        except Exception as error:  # grpc raises a plain Exception here
            raise StopIteration from error

    def answered(self) -> None:
        """The caller has read a response."""
        with self._changed:
            self._unanswered_count -= 1
            self._changed.notify()

    def close(self) -> None:
        """End the iteration."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
