"""Appends that are refused inside an answer. Their call goes on or ends with OK, so its status does not show the refusal.

    AppendMessageStream   the answer has `error`, the stream takes the next request
    SendMessage           RocketMQ's contract has its status in the answer, whatever happened

Their codes are counted here under the names of gRPC's codes, so that one alert covers both kinds. Every code that a refusal can
have is there from the start, with 0, because Prometheus sees no increase in a series that begins with its first refusal.
"""

from collections.abc import Callable

import grpc

from services.observing.meters import CounterFamily
from services.status import CODE_BY_ERROR

# A process that adds it to its meters shows it.
APPEND_REFUSED = CounterFamily(
    "append_refused", "Appends refused inside an answer whose call goes on or ends with OK.", ("method", "code")
)


def refusal_counter(method: str) -> Callable[[int], None]:
    """A function that counts a refusal by the number of its gRPC code; an unexpected code counts as UNKNOWN.

    Args:
        method: as the metrics of calls name it: `CommitLogService/AppendMessageStream`.
    """
    unknown = APPEND_REFUSED.of(method, grpc.StatusCode.UNKNOWN.name)
    counters = {code.value[0]: APPEND_REFUSED.of(method, code.name) for code in CODE_BY_ERROR.values()}

    def count(code: int) -> None:
        counters.get(code, unknown).add()

    return count
