"""Calls from one component to another as steps: each has a time, and a span where tracing is on.

A class that implements a port over a client marks its methods with `port_call`. Names are `<service>.<verb>`.
"""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from services.observing import tracing
from services.observing.meters import SECONDS_BOUNDS, HistogramFamily

# By port call, in the gateway: where the time of a query goes. A process that adds it to its meters shows it.
PORT_SECONDS = HistogramFamily(
    "gateway_port_seconds", "Time of a gateway's call to a service, also by socket or file.", ("call",), SECONDS_BOUNDS
)

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


def port_call(name: str) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """A decorator for the methods of a port."""
    observe = PORT_SECONDS.of(name).observe

    def decorate(method: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
        @functools.wraps(method)
        def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            began = time.perf_counter()
            try:
                if not tracing.is_on():  # a block costs a small call as much as its lookup
                    return method(*args, **kwargs)
                with tracing.step(name):
                    return method(*args, **kwargs)
            finally:
                observe(time.perf_counter() - began)

        return called

    return decorate
