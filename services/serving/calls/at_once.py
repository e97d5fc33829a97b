"""A call that is tried at once, in the thread that polls for all calls, before a thread is taken for it.

Theory of operation: to hand a small call to a thread costs it a fifth of its time. The thread is woken, wants the interpreter
that its waker still holds, and finds its memory cold. So a handler that is `AtOnce` is called first with an AttemptContext,
whose caller has no time at all: it answers from what is at hand in this process, and makes no call that waits. What it raises
is dropped, and a thread makes the call. An attempt must never tell less than a call with time: it fits handlers whose answers
do not depend on the time that there is.

With traces nothing is tried, so that a call has one span.
"""

from collections.abc import Callable
from typing import Any


class AttemptContext:
    """gRPC's context of a call, for an attempt.

    Args:
        context: gRPC's.
    """

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def time_remaining(self) -> float:
        """None is left: see the top of this file."""
        return 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class AtOnce:
    """Takes the place of the function in a unary handler that is tried at once.

    Args:
        behaviour: the function.
    """

    def __init__(self, behaviour: Callable[[Any, Any], Any]) -> None:
        self._behaviour = behaviour

    def __call__(self, request: Any, context: Any) -> Any:
        """The answer, in a thread of the call's own."""
        return self._behaviour(request, context)

    def attempt(self, request: Any, context: Any) -> Any:
        """The answer from what is at hand; raises anything where there is none."""
        return self._behaviour(request, AttemptContext(context))
