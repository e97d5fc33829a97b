"""Appends that are refused inside an answer: their call goes on, or ends with OK, so no status of a call tells of them.

    AppendMessageStream   the answer has `error`, the stream takes the next request
    SendMessage           RocketMQ's contract has its status in the answer, whatever happened

Their codes are counted here under the names of gRPC's, so that one alert asks for both kinds. Every code that a refusal may
have is there from the start, with 0: Prometheus sees no increase in a series that begins with its first refusal.
"""

from collections.abc import Callable

import grpc

from services.meters import CounterFamily
from services.status import CODE_BY_ERROR

# Shown by a process that adds it to its meters.
APPEND_REFUSED = CounterFamily(
    "append_refused", "Appends refused inside an answer whose call goes on or ends with OK.", ("method", "code")
)


def refusal_counter(method: str) -> Callable[[int], None]:
    """Counts a refusal by the number of its gRPC code; one that no error of the store has is UNKNOWN.

    Args:
        method: as the metrics of calls name it: `CommitLogService/AppendMessageStream`.
    """
    unknown = APPEND_REFUSED.of(method, grpc.StatusCode.UNKNOWN.name)
    counters = {code.value[0]: APPEND_REFUSED.of(method, code.name) for code in CODE_BY_ERROR.values()}

    def count(code: int) -> None:
        counters.get(code, unknown).add()

    return count
