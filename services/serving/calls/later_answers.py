"""Answers of a two-way stream that wait for a disk: the stream's next requests begin meanwhile.

    requests   1  2  3  4  ─▶ begin (one after the other) ─▶ [2 3 4] ─▶ wait for 1 ─▶ answers, in the order of the requests

A stream that answered each request before it began the next one would flush once for each. So one flush, and one way to the
replicas and back, serves all requests that are begun.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

# Begun and unanswered requests of one stream; more in one flush bring little, and a stream's flush modes may be mixed.
BEGUN_COUNT_MAX = 16


@dataclass(frozen=True, slots=True)
class LaterAnswer:
    """The answer to a request that is done, but not yet durable.

    Attributes:
        wait: returns the answer's bytes when it may be sent; it must not raise.
    """

    wait: Callable[[], bytes]


Begin = Callable[[bytes], bytes | LaterAnswer]


class AnswersInOrder:
    """The answers to a stream's requests; an iterator, for one thread.

    Requests begin in the thread that iterates, until one has to wait. From then on a thread of the stream begins them.

    Args:
        requests: of the stream.
        begin: does what a request asks for; it is never called twice at once.
        context: of the call; its end ends the thread.
    """

    def __init__(self, requests: Iterator[bytes], begin: Begin, context: grpc.ServicerContext) -> None:
        self._requests = requests
        self._begin = begin
        self._context = context
        self._free = threading.Semaphore(BEGUN_COUNT_MAX)
        self._begun: queue.SimpleQueue[bytes | LaterAnswer | BaseException | None] = queue.SimpleQueue()
        self._is_threaded = False
        self._is_ended = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._is_threaded:
            answer = self._begin(next(self._requests))
            if isinstance(answer, bytes):
                return answer
            self._is_threaded = True
            if not self._context.add_callback(self._end):
                self._end()
            threading.Thread(target=self._begin_all, name="begun-requests", daemon=True).start()
            return answer.wait()
        begun = self._begun.get()
        if begun is None:
            self._begun.put(None)
            raise StopIteration
        if isinstance(begun, BaseException):
            raise begun
        self._free.release()
        return begun if isinstance(begun, bytes) else begun.wait()

    def _begin_all(self) -> None:
        try:
            while self._free.acquire() and not self._is_ended:
                # No name for the request: it is not kept until the next one comes.
                self._begun.put(self._begin(next(self._requests)))
        except StopIteration:
            pass
        except BaseException as error:
            if not self._is_ended:  # otherwise it is gRPC's plain Exception for a call that has gone
                self._begun.put(error)
        finally:
            self._begun.put(None)

    def _end(self) -> None:
        self._is_ended = True
        self._free.release()
