"""Answers: a service without a wire, called as services/calling/client.py calls one.

A class has a method for each RPC that it answers, as a servicer has: `GetStatus(request)`.
"""

from typing import Any

from services.rpcs import Answer, Request, Rpc


class Answers:
    """See the top of this file."""

    def call(self, rpc: Rpc[Request, Answer], request: Request, timeout_seconds: float = 0) -> Answer:
        """The answer of the RPC's method."""
        answer: Any = getattr(self, rpc.name)(request)
        return answer

    call_once = call
