"""Backpressure for streams that are forwarded: who does not take his answers gets no further request in."""

import threading
from collections.abc import Iterator

# Requests of one stream on their way: a commitlog takes one after the other, so a few keep it busy.
UNANSWERED_COUNT_MAX = 8


class AnswerGate:
    """The requests of a stream, held back while too many were not answered.

    A caller who goes away ends them like one who is done (the call itself is cancelled then).

    Args:
        requests: as they come from the caller.
        unanswered_count_max: requests taken whose response the caller has not taken yet.
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
        except Exception as error:  # what grpc raises here has no class of its own
            raise StopIteration from error

    def answered(self) -> None:
        """The caller took a response."""
        with self._changed:
            self._unanswered_count -= 1
            self._changed.notify()

    def close(self) -> None:
        """No request is wanted any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
