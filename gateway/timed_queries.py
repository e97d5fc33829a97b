"""The time that queries take, by mode (services/methods.py) and by the completeness of their answers.

completeness   complete | truncated | partial   as in the answer; an answer without the field is complete
               refused                          the caller's mistake, or nothing was found: no reason for an alert
               failed                           a failure of the services: the codes below
"""

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from reput.message.v1 import message_pb2
from services.methods import GATEWAY_SERVICE, METHODS
from services.observing.meters import SECONDS_BOUNDS, HistogramFamily
from services.status import to_status
from store.errors import StoreError

# Shown by each process that adds it to its meters.
QUERY_SECONDS = HistogramFamily(
    "gateway_query_seconds", "Time of a query in the gateway.", ("mode", "completeness"), SECONDS_BOUNDS
)
WORDS = {
    message_pb2.COMPLETENESS_UNSPECIFIED: "complete",
    message_pb2.COMPLETENESS_COMPLETE: "complete",
    message_pb2.COMPLETENESS_TRUNCATED: "truncated",
    message_pb2.COMPLETENESS_PARTIAL: "partial",
}
# google.rpc.Code: UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
FAILURE_CODES = frozenset({2, 4, 8, 13, 14, 15})
REFUSED, FAILED = "refused", "failed"

Answer = TypeVar("Answer")
Query = Callable[[Any, Any, Any], Answer]


def timed_query(
    method: Query[Answer], family: HistogramFamily = QUERY_SECONDS, clock: Callable[[], float] = time.perf_counter
) -> Query[Answer]:
    """Decorates a query method of the gateway's servicer: its calls are timed under its query mode."""
    mode = METHODS[GATEWAY_SERVICE + method.__name__].query_mode
    assert mode, f"{method.__name__} has no query mode in services/methods.py"

    @functools.wraps(method)
    def timed(servicer: Any, request: Any, context: Any) -> Answer:
        began = clock()
        word = FAILED
        try:
            answer = method(servicer, request, context)
            word = WORDS[getattr(answer, "completeness", message_pb2.COMPLETENESS_COMPLETE)]
            return answer
        except StoreError as error:
            if to_status(error).code not in FAILURE_CODES:
                word = REFUSED
            raise
        finally:
            family.of(mode, word).observe(clock() - began)

    return timed
