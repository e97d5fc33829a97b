"""Sign-in of a browser by a token, if the gateway requires it.

The token is an API key or a JWT. The browser keeps it, until it is closed, in a cookie that scripts cannot read and that
requests from other sites do not carry (HttpOnly, SameSite=Strict; Secure if the console has TLS). The gateway checks the
token with each page, so a revoked token ends the session. The console stores no sessions.

With sign-in, the calls of the console pass the same guard as the gateway's RPCs, actions included.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import grpc

from console.calls import Metadata
from console.gateway_port import GatewayPort
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.serving.call_guard import CallGuard
from services.serving.calls.blocked_caller import Offer, ask_now
from services.serving.calls.unary_call import AnsweredLater

COOKIE = "reput_session"
TOKEN_CHARACTERS_MAX = 3_800  # a browser keeps 4,096 bytes a cookie, its name and attributes included


class SignIn(Protocol):
    """Checks the token of a browser; `is_on` says whether one is needed."""

    is_on: bool

    def name_of(self, token: str, peer: str) -> str:
        """The name of the client with this token; UnauthenticatedError when the token is not valid.

        `peer` is the browser's address.
        """

    def sees_store(self, token: str, peer: str) -> bool:
        """Whether that client may ask for the state of the services; UnauthenticatedError."""

    def may(self, token: str, peer: str, method: str, request: Any) -> bool:
        """Whether that client may send the request to a method of the gateway; UnauthenticatedError."""


class NoSignIn:
    """No token is needed, and every browser may see everything."""

    is_on = False

    def name_of(self, token: str, peer: str) -> str:
        """Empty: there are no names."""
        return ""

    def sees_store(self, token: str, peer: str) -> bool:
        """Always."""
        return True

    def may(self, token: str, peer: str, method: str, request: Any) -> bool:
        """Always."""
        return True


def metadata_of(token: str) -> Metadata:
    """The metadata that a gRPC client with this token would send."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def is_token(text: str) -> bool:
    """Whether a cookie and a header can hold the text."""
    return (
        0 < len(text) <= TOKEN_CHARACTERS_MAX
        and text.isascii()
        and text.isprintable()
        and not set(text) & set(' ";,\\')
    )


# The method in the audit log for a page before its first call. The URL's path is not used, because it may name a message.
PAGE_METHOD = "console"
SIGN_IN_METHOD = "console/sign-in"


class ConsoleGateway:
    """A GatewayPort over the gateway's servicer; with a guard, each method passes it: rights, topics, audit log.

    Args:
        gateway: answers.
        offers: the methods that answer later, by name: AppendMessages, RecallMessage and EndTransaction.
        guard: guards each method by its full name; None: no sign-in is needed.
        prefix: of the full names.
    """

    def __init__(
        self, gateway: GatewayPort, offers: Mapping[str, Offer], guard: CallGuard | None = None, prefix: str = ""
    ) -> None:
        def guarded(name: str, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            if guard is None:
                return method
            handler: Any = grpc.unary_unary_rpc_method_handler(method)
            behaviour: Callable[[Any, Any], Any] = guard.guard(prefix + name, handler).unary_unary
            return behaviour

        def answered_later(name: str, response: Any) -> Callable[[Any, Any], Any]:
            later = guarded(name, AnsweredLater(offers[name]))
            assert isinstance(later, AnsweredLater)
            return partial(_ask_now, later.offer, response)

        self.AppendMessages = answered_later("AppendMessages", pb.AppendMessagesResponse)
        self.RecallMessage = answered_later("RecallMessage", pb.RecallMessageResponse)
        self.EndTransaction = answered_later("EndTransaction", pb.EndTransactionResponse)
        self.QueryMessageByKey = guarded("QueryMessageByKey", gateway.QueryMessageByKey)
        self.QueryMessageById = guarded("QueryMessageById", gateway.QueryMessageById)
        self.QueryMessageByUniqueKey = guarded("QueryMessageByUniqueKey", gateway.QueryMessageByUniqueKey)
        self.QueryMessageByOffset = guarded("QueryMessageByOffset", gateway.QueryMessageByOffset)
        self.FindMessage = guarded("FindMessage", gateway.FindMessage)
        self.ExplainQuery = guarded("ExplainQuery", gateway.ExplainQuery)
        self.SearchMessages = guarded("SearchMessages", gateway.SearchMessages)
        self.DownloadBody = gateway.DownloadBody
        if guard is not None:
            body: Any = grpc.unary_stream_rpc_method_handler(gateway.DownloadBody)
            self.DownloadBody = guard.guard(prefix + "DownloadBody", body).unary_stream
        self.SearchOffset = guarded("SearchOffset", gateway.SearchOffset)
        self.ListTopics = guarded("ListTopics", gateway.ListTopics)
        self.CreateTopic = guarded("CreateTopic", gateway.CreateTopic)
        self.UpdateTopic = guarded("UpdateTopic", gateway.UpdateTopic)
        self.DeleteTopic = guarded("DeleteTopic", gateway.DeleteTopic)
        self.ListConsumerGroups = guarded("ListConsumerGroups", gateway.ListConsumerGroups)
        self.ListLiteTopics = guarded("ListLiteTopics", gateway.ListLiteTopics)
        self.ListTenants = guarded("ListTenants", gateway.ListTenants)
        self.GetConsumerGroup = guarded("GetConsumerGroup", gateway.GetConsumerGroup)
        self.GetConsumerRunningInfo = guarded("GetConsumerRunningInfo", gateway.GetConsumerRunningInfo)
        self.UpdateConsumerGroup = guarded("UpdateConsumerGroup", gateway.UpdateConsumerGroup)
        self.ResetOffsets = guarded("ResetOffsets", gateway.ResetOffsets)
        self.SendBackMessages = guarded("SendBackMessages", gateway.SendBackMessages)
        self.ResendDeadLetters = guarded("ResendDeadLetters", gateway.ResendDeadLetters)
        self.TrackMessage = guarded("TrackMessage", gateway.TrackMessage)
        self.ListScheduledMessages = guarded("ListScheduledMessages", gateway.ListScheduledMessages)
        self.ListPendingTransactions = guarded("ListPendingTransactions", gateway.ListPendingTransactions)
        self.GetStatus = guarded("GetStatus", gateway.GetStatus)


def _ask_now(offer: Offer, response: Any, request: Any, context: Any) -> Any:
    return ask_now(offer, request, response, context)


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

    def may_call(self, credential: str, peer: str, method: str, request: Any) -> bool:
        """Whether the caller with this credential may send the request; a no is not in the audit log. Errors as `access_by`."""


class GuardedSignIn:
    """A SignIn by the gateway's guard.

    Args:
        guard: the gateway's.
        prefix: of the full names of methods.
    """

    is_on = True

    def __init__(self, guard: AccessGuard, prefix: str = "") -> None:
        self._guard = guard
        self._prefix = prefix

    def name_of(self, token: str, peer: str) -> str:
        """See SignIn."""
        return self._guard.access_by(token, peer, SIGN_IN_METHOD).name

    def sees_store(self, token: str, peer: str) -> bool:
        """See SignIn."""
        return self._guard.access_by(token, peer, PAGE_METHOD).is_admin

    def may(self, token: str, peer: str, method: str, request: Any) -> bool:
        """See SignIn."""
        return self._guard.may_call(token, peer, self._prefix + method, request)
