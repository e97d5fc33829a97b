"""How long queries took, by mode and by how whole their answers were.

completeness   complete | truncated | partial   as the answer says (an answer without the field is a whole one)
               refused                          the caller's fault, or nothing is there: nothing to be woken for
               failed                           ours: the codes below
"""

import time
from collections.abc import Callable
from typing import Any

from reput.message.v1 import message_pb2
from services.meters import HistogramFamily, Meters
from services.status import to_status
from store.errors import StoreError

# Method of the gateway by query mode.
METHOD_BY_MODE = {
    "by-key": "QueryMessageByKey",
    "by-id": "QueryMessageById",
    "by-unique-key": "QueryMessageByUniqueKey",
    "by-offset": "QueryMessageByOffset",
    "find": "FindMessage",
    "search": "SearchMessages",
    "search-offset": "SearchOffset",
    "list-topics": "ListTopics",
}
WORDS = {
    message_pb2.COMPLETENESS_UNSPECIFIED: "complete",
    message_pb2.COMPLETENESS_COMPLETE: "complete",
    message_pb2.COMPLETENESS_TRUNCATED: "truncated",
    message_pb2.COMPLETENESS_PARTIAL: "partial",
}
# google.rpc.Code: UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
FAILURE_CODES = frozenset({2, 4, 8, 13, 14, 15})
REFUSED, FAILED = "refused", "failed"


def time_queries(servicer: Any, meters: Meters, clock: Callable[[], float] = time.perf_counter) -> None:
    """Has a servicer's queries timed from now on; to be called before it is added to a server."""
    family = meters.histogram("gateway_query_seconds", "Time of a query in the gateway.", ("mode", "completeness"))
    for mode, method in METHOD_BY_MODE.items():
        setattr(servicer, method, _timed(getattr(servicer, method), mode, family, clock))


def _timed(
    method: Callable[[Any, Any], Any], mode: str, family: HistogramFamily, clock: Callable[[], float]
) -> Callable[[Any, Any], Any]:
    def timed(request: Any, context: Any) -> Any:
        began = clock()
        word = FAILED
        try:
            answer = method(request, context)
            word = WORDS[getattr(answer, "completeness", message_pb2.COMPLETENESS_COMPLETE)]
            return answer
        except StoreError as error:
            if to_status(error).code not in FAILURE_CODES:
                word = REFUSED
            raise
        finally:
            family.of(mode, word).observe(clock() - began)

    return timed
