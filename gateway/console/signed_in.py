"""The console where callers must sign in: its calls go through the very guard of the gateway's RPCs."""

from collections.abc import Callable
from typing import Any

import grpc

from gateway.auth.access import ADMIN
from gateway.auth.guard import GatewayGuard
from services.call_guard import CallGuard

# What the audit log calls a page that was not asked for any call yet; no path, which may name a message.
PAGE_METHOD = "console"
SIGN_IN_METHOD = "console/sign-in"


class GuardedAnswers:
    """The servicer's methods behind the guard: rules, topics, audit log.

    Args:
        servicer: answers.
        guard: guards each method by its name.
        prefix: of the methods' full names.
    """

    def __init__(self, servicer: object, guard: CallGuard, prefix: str) -> None:
        self._servicer = servicer
        self._guard = guard
        self._prefix = prefix
        self._guarded: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        guarded = self._guarded.get(name)
        if guarded is None:
            handler: Any = grpc.unary_unary_rpc_method_handler(getattr(self._servicer, name))
            guarded = self._guarded[name] = self._guard.guard(self._prefix + name, handler).unary_unary
        return guarded


class SignInGate:
    """Who may come in, as for gRPC; the audit log has who may not.

    Args:
        guard: the gateway's.
    """

    is_on = True

    def __init__(self, guard: GatewayGuard) -> None:
        self._guard = guard

    def name_of(self, token: str, peer: str) -> str:
        """See Gate."""
        return self._guard.access_by(token, peer, SIGN_IN_METHOD).name

    def sees_store(self, token: str, peer: str) -> bool:
        """See Gate."""
        return self._guard.access_by(token, peer, PAGE_METHOD).has(ADMIN)
