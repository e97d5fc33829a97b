"""The console with sign-in: its calls pass the same guard as the gateway's RPCs."""

from collections.abc import Callable
from typing import Any, Protocol

import grpc

from console.gateway_port import GatewayPort
from services.serving.call_guard import CallGuard

# The method in the audit log for a page before its first call. The URL's path is not used, because it may name a message.
PAGE_METHOD = "console"
SIGN_IN_METHOD = "console/sign-in"


class GuardedGateway:
    """A GatewayPort whose methods pass the guard: rights, topics, audit log.

    Args:
        gateway: answers.
        guard: guards each method by its full name.
        prefix: of the full names.
    """

    def __init__(self, gateway: GatewayPort, guard: CallGuard, prefix: str) -> None:
        def guarded(name: str, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            handler: Any = grpc.unary_unary_rpc_method_handler(method)
            behaviour: Callable[[Any, Any], Any] = guard.guard(prefix + name, handler).unary_unary
            return behaviour

        self.QueryMessageByKey = guarded("QueryMessageByKey", gateway.QueryMessageByKey)
        self.QueryMessageById = guarded("QueryMessageById", gateway.QueryMessageById)
        self.QueryMessageByUniqueKey = guarded("QueryMessageByUniqueKey", gateway.QueryMessageByUniqueKey)
        self.QueryMessageByOffset = guarded("QueryMessageByOffset", gateway.QueryMessageByOffset)
        self.FindMessage = guarded("FindMessage", gateway.FindMessage)
        self.ExplainQuery = guarded("ExplainQuery", gateway.ExplainQuery)
        self.SearchMessages = guarded("SearchMessages", gateway.SearchMessages)
        body: Any = grpc.unary_stream_rpc_method_handler(gateway.DownloadBody)
        self.DownloadBody = guard.guard(prefix + "DownloadBody", body).unary_stream
        self.SearchOffset = guarded("SearchOffset", gateway.SearchOffset)
        self.ListTopics = guarded("ListTopics", gateway.ListTopics)
        self.ListConsumerGroups = guarded("ListConsumerGroups", gateway.ListConsumerGroups)
        self.GetConsumerGroup = guarded("GetConsumerGroup", gateway.GetConsumerGroup)
        self.ResendDeadLetters = guarded("ResendDeadLetters", gateway.ResendDeadLetters)
        self.TrackMessage = guarded("TrackMessage", gateway.TrackMessage)
        self.ListScheduledMessages = guarded("ListScheduledMessages", gateway.ListScheduledMessages)
        self.ListPendingTransactions = guarded("ListPendingTransactions", gateway.ListPendingTransactions)
        self.GetStatus = guarded("GetStatus", gateway.GetStatus)


class Access(Protocol):
    """The rights of a caller."""

    @property
    def name(self) -> str:
        """The caller's name in the audit log."""

    @property
    def is_admin(self) -> bool:
        """Whether the caller may see the state of the store."""


class AccessGuard(CallGuard, Protocol):
    """A guard that also finds a caller's rights without a call; gateway/auth/guard.py is one."""

    def access_by(self, credential: str, peer: str, method: str) -> Access:
        """The rights of the caller with this credential; UnauthenticatedError, which the audit log records."""


class GuardedSignIn:
    """A SignIn by the gateway's guard.

    Args:
        guard: the gateway's.
    """

    is_on = True

    def __init__(self, guard: AccessGuard) -> None:
        self._guard = guard

    def name_of(self, token: str, peer: str) -> str:
        """See SignIn."""
        return self._guard.access_by(token, peer, SIGN_IN_METHOD).name

    def sees_store(self, token: str, peer: str) -> bool:
        """See SignIn."""
        return self._guard.access_by(token, peer, PAGE_METHOD).is_admin
