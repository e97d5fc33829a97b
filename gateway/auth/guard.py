"""The gateway's CallGuard: finds the caller, checks the rules, writes the audit log.

    handler                               what is checked                             then
    one request                           signed in, role, the topics it names        runs with the shards of its caller
    bytes, answered later (appends)       the same, after parsing                     gets the bytes received
    append stream                         the same, for each request                  gets the bytes received; a refused request
                                                                                      is answered with its `error`
    long poll, acknowledgement            the same, and the group it names            gets the bytes received
    session (Telemetry), reflection       signed in, at the begin; groups and topics  runs
                                          of a producer, for each
    what a client says of itself          also whose its client id is (client_ids.py)

An append is parsed here only to read its topics; the handler gets its bytes. A refused request of a stream is answered in its
place (gateway/appends/checked_stream.py). The same holds when the caller's rights end during a stream (an expired JWT, a key
removed from the file). A stream of answers ends then before its next answer.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from gateway.appends.checked_stream import CheckedPump, StreamChecks
from gateway.auth.access import ADMIN, READ, WRITE, Access
from gateway.auth.access_file import LOOK_SECONDS
from gateway.auth.audit import Audit
from gateway.auth.caller_shards import VisibleTopics, work_for
from gateway.auth.client_ids import ClientIds
from gateway.auth.rules import Rule, rule_of
from gateway.auth.sign_in import SignIn
from gateway.queries.page import check_topic_size
from gateway.rocketmq.caller import caller_of
from services.methods import MESSAGING_SERVICE, METHODS
from services.serving.calls.append_pump import Pumped, StreamPump
from services.serving.calls.streamed_later import StreamedLater
from services.serving.calls.unary_call import AnsweredLater
from services.serving.interceptors import check_field_count
from services.status import code_of
from store.errors import InvalidArgumentError, PermissionDeniedError, StoreError, UnauthenticatedError

UNKNOWN = "UNKNOWN"
NO_CLIENT = ""
TERMINATION = MESSAGING_SERVICE + "NotifyClientTermination"
# What changes what a gateway knows of a client. Other calls say for which group or topic they are, and do that only.
OF_ITSELF = frozenset(
    MESSAGING_SERVICE + name for name in ("Telemetry", "Heartbeat", "SyncLiteSubscription", "NotifyClientTermination")
)
GROUP_CHARACTERS_SHOWN = 128


class GatewayGuard:
    """Guards the handlers of the gateway.

    Args:
        sign_in: finds a caller's rights.
        audit: writes the audit log.
        client_ids: whose each client id is; None: a table of its own.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        sign_in: SignIn,
        audit: Audit,
        client_ids: ClientIds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sign_in = sign_in
        self._audit = audit
        self._clock = clock
        self._client_ids = client_ids or ClientIds()

    def access_by(self, credential: str, peer: str, method: str) -> Access:
        """The rights for a credential without a call; UnauthenticatedError, which the audit log records."""
        try:
            return self._sign_in.access_by(credential)
        except UnauthenticatedError as error:
            self._audit.denied(NO_CLIENT, peer, method, "", code_of(error).name)
            raise

    def may_call(self, credential: str, peer: str, method: str, request: Any) -> bool:
        """Whether the guard would let this call pass; a no is not in the audit log. Errors as `access_by`.

        A request that names no topic or group yet may pass when its caller has the role for any.
        """
        access = self.access_by(credential, peer, method)
        rule = rule_of(method)
        if rule is None or not access.has(rule.roles):
            return False
        topics = rule.topics(request) if rule.topics is not None else ()
        groups = rule.groups(request) if rule.groups is not None else ()
        return all(access.allows(rule.roles, topic) for topic in topics) and all(map(access.allows_group, groups))

    def client_of(self, method: str, context: Any) -> str:
        """See CallGuard: the name in the access file."""
        row = METHODS.get(method)
        if row is None or row.roles is None:
            return ""
        try:
            return self._sign_in.access_of(context).name
        except UnauthenticatedError as error:
            error.metadata.setdefault("method", method)
            self._audit.denied(error.metadata.get("client", NO_CLIENT), context.peer(), method, "", code_of(error).name)
            raise

    def guard(self, method: str, handler: Any) -> Any:
        """See CallGuard."""
        row = METHODS.get(method)
        if row is not None and row.roles is None:
            return handler
        rule = rule_of(method)
        names_clients = rule is not None and rule.client_ids is not None
        client_ids = self._client_ids if method in OF_ITSELF or names_clients else None
        guard = _MethodGuard(method, rule, self._sign_in, self._audit, client_ids, self._clock)
        if handler.request_streaming:
            inner = handler.stream_stream
            if rule is not None and rule.topics is not None:
                return handler._replace(stream_stream=_append_stream(guard, inner))
            return handler._replace(stream_stream=_session(guard, inner))
        if isinstance(handler.unary_stream, StreamedLater):
            return handler._replace(unary_stream=_streamed_later(guard, handler.unary_stream))
        if handler.response_streaming:
            return handler._replace(unary_stream=_server_stream(guard, handler.unary_stream))
        if isinstance(handler.unary_unary, AnsweredLater):
            return handler._replace(unary_unary=_answered_later(guard, handler.unary_unary))
        return handler._replace(unary_unary=_unary(guard, handler.unary_unary))


class _MethodGuard:
    """Checks the calls of one method."""

    def __init__(
        self,
        method: str,
        rule: Rule | None,
        sign_in: SignIn,
        audit: Audit,
        client_ids: ClientIds | None,
        clock: Callable[[], float],
    ) -> None:
        self.method = method
        self._clock = clock
        self._rule = rule
        self._sign_in = sign_in
        self._audit = audit
        self._client_ids = client_ids

    def check(self, context: Any, request: Any) -> VisibleTopics:
        """What the caller may see.

        Raises:
            UnauthenticatedError, PermissionDeniedError: the call is refused; the audit log records it.
        """
        visible: VisibleTopics = self.noting(context, lambda: self._enter(context, request))
        return visible

    def check_bytes(self, context: Any, request: bytes, *, has_begun: bool = False) -> "_Append | None":
        """The same for a request of bytes; InvalidArgumentError when it cannot be read.

        What an append does is recorded. `has_begun`: its stream was checked when it began.
        """

        def enter() -> _Append | None:
            assert self._rule is not None
            assert self._rule.topics is not None
            assert self._rule.parse is not None
            visible = self._signed_in(context, has_begun)
            try:
                check_field_count(request, self.method)
                parsed = self._rule.parse(request)
                topics = list(self._rule.topics(parsed))
            except DecodeError as error:
                raise InvalidArgumentError(
                    f"the request of {self.method} cannot be parsed: {error}", field="request"
                ) from error
            counted = Counter(topics)
            for topic in counted:
                try:
                    check_topic_size(topic)
                except InvalidArgumentError as error:
                    error.metadata["index"] = str(topics.index(topic))
                    raise
                if not visible.holds(topic):
                    raise visible.refusal(f"topic {topic!r}", topic=topic, index=topics.index(topic))
            self._check_groups(visible, parsed)
            if self._rule.claims is not None:
                self._rule.claims(parsed)
            self._claim_client_id(visible, context)
            if self._rule.outcome is None:
                return None
            return _Append(self._audit, visible.access.name, self.method, counted, self._rule.outcome)

        append: _Append | None = self.noting(context, enter)
        return append

    def noting(self, context: Any, work: Callable[[], Any]) -> Any:
        """The result of the work; the audit log records a refusal in it, also one because of an answer's topic."""
        try:
            return work()
        except (UnauthenticatedError, PermissionDeniedError) as error:
            error.metadata.setdefault("method", self.method)
            self._audit.denied(
                error.metadata.get("client", NO_CLIENT),
                context.peer(),
                self.method,
                error.metadata.get("topic", ""),
                code_of(error).name,
            )
            raise

    def _enter(self, context: Any, request: Any) -> VisibleTopics:
        visible = self._signed_in(context)
        rule = self._rule
        if rule is not None and rule.topics is not None and request is not None:
            for topic in rule.topics(request):
                check_topic_size(topic)
                visible.check(topic)
        if request is not None:
            self._check_groups(visible, request)
        self._claim_client_id(visible, context)
        if self._client_ids is not None and rule is not None and rule.client_ids is not None and request is not None:
            for client_id in rule.client_ids(request):
                self._client_ids.claim(client_id, visible.access.name)
        if rule is not None and rule.roles == ADMIN:
            topics = rule.topics(request) if rule.topics is not None and request is not None else ()
            groups = rule.groups(request) if rule.groups is not None and request is not None else ()
            named = next(iter(topics), ""), next(iter(groups), "")
            self._audit.admin(visible.access.name, context.peer(), self.method, *named)
        return visible

    def check_said(self, context: Any, request: Any) -> Any:
        """The request of a session, if its client may consume for the groups and write to the topics that it names."""

        def check() -> None:
            visible = self._signed_in(context, has_begun=True)
            self._check_groups(visible, request)
            rule = self._rule
            for topics, roles in ((rule.written, WRITE), (rule.consumed, READ)) if rule is not None else ():
                limited = replace(visible, roles=roles)
                for topic in topics(request) if topics is not None else ():
                    check_topic_size(topic)
                    limited.check(topic)
            self._claim_client_id(visible, context)

        self.noting(context, check)
        return request

    def checking_again(self, context: Any) -> Callable[[], None]:
        """Checks, before an answer of a stream, that its caller still has a credential and a role for it.

        It does so once in LOOK_SECONDS, as often as the access file is looked at.
        """
        checked_seconds = self._clock()

        def check() -> None:
            nonlocal checked_seconds
            if (now_seconds := self._clock()) - checked_seconds >= LOOK_SECONDS:
                checked_seconds = now_seconds
                self.noting(context, lambda: self._signed_in(context, has_begun=True))

        return check

    def _claim_client_id(self, visible: VisibleTopics, context: Any) -> None:
        """PermissionDeniedError when the client id of the call is another identity's."""
        if self._client_ids is None:
            return
        client_id = caller_of(context).client_id
        if client_id:
            self._client_ids.claim(client_id, visible.access.name)
            if self.method == TERMINATION:
                self._client_ids.release(client_id, visible.access.name)

    def _check_groups(self, visible: VisibleTopics, request: Any) -> None:
        if self._rule is None or self._rule.groups is None or visible.access.groups is None:
            return
        for group in self._rule.groups(request):
            if not visible.access.allows_group(group):
                raise visible.refusal(f"for consumer group {group[:GROUP_CHARACTERS_SHOWN]!r}", group=group)

    def _signed_in(self, context: Any, has_begun: bool = False) -> VisibleTopics:
        access: Access = self._sign_in.access_of(context, has_begun=has_begun)
        if self._rule is None:
            raise PermissionDeniedError(
                f"no client may call {self.method}: it has no roles in services/methods.py", client=access.name
            )
        visible = VisibleTopics(
            access, self._rule.roles, lambda: self._audit.hidden(access.name, context.peer(), self.method)
        )
        if not access.has(self._rule.roles):
            raise visible.refusal("any topic")
        return visible


class _Append:
    """An allowed append; records its end in the audit log."""

    def __init__(
        self, audit: Audit, client: str, method: str, topics: Counter[str], outcome: Callable[[bytes], str]
    ) -> None:
        self._audit = audit
        self._client = client
        self._method = method
        self._topics = topics
        self._outcome = outcome

    def answered(self, answer: bytes) -> None:
        """It ended with this response."""
        self.ended(self._outcome(answer))

    def ended(self, outcome: str) -> None:
        """It ended with this outcome."""
        self._audit.appended(self._client, self._method, self._topics, outcome)


class _AuditedCall:
    """The caller of an append; records the end in the audit log."""

    def __init__(self, call: Any, append: _Append) -> None:
        self._call = call
        self._append = append
        self.is_active = call.is_active
        self.time_remaining = call.time_remaining
        self.client = getattr(call, "client", None)

    def answer(self, response: bytes) -> None:
        self._call.answer(response)
        self._append.answered(response)

    def fail(self, status: Any) -> None:
        self._call.fail(status)
        self._append.ended(_CODE_NAMES.get(status.code, UNKNOWN))


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def _unary(guard: _MethodGuard, inner: Callable[..., Any]) -> Callable[..., Any]:
    def handle(request: Any, context: Any) -> Any:
        with work_for(guard.check(context, request)):
            return guard.noting(context, lambda: inner(request, context))

    return handle


def _server_stream(guard: _MethodGuard, inner: Callable[..., Any]) -> Callable[..., Any]:
    def handle(request: Any, context: Any) -> Iterator[Any]:
        with work_for(guard.check(context, request)):
            answers = iter(guard.noting(context, lambda: inner(request, context)))
            check = guard.checking_again(context)
            # `yield from` would keep an answer alive while a slow reader takes it.
            while (answer := guard.noting(context, lambda: next(answers, None))) is not None:
                check()
                yield answer
                del answer

    return handle


def _session(guard: _MethodGuard, inner: Callable[..., Any]) -> Callable[..., Any]:
    def handle(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        guard.check(context, None)
        check = guard.checking_again(context)
        for answer in inner(map(partial(guard.check_said, context), requests), context):
            check()
            yield answer

    return handle


def _answered_later(guard: _MethodGuard, inner: AnsweredLater) -> AnsweredLater:
    def offer(request: bytes, call: Any) -> None:
        append = guard.check_bytes(call.context, request)
        if append is None:
            inner.offer(request, call)
            return
        try:
            inner.offer(request, _AuditedCall(call, append))
        except Exception as error:
            append.ended(code_of(error).name if isinstance(error, StoreError) else UNKNOWN)
            raise

    return AnsweredLater(offer)


def _streamed_later(guard: _MethodGuard, inner: StreamedLater) -> StreamedLater:
    def offer(request: bytes, call: Any) -> None:
        guard.check_bytes(call.context, request)
        inner.offer(request, call)

    return StreamedLater(offer, inner.refused)


def _stream_checks(guard: _MethodGuard, context: Any) -> StreamChecks:
    """Of an append stream; a caller without any right to append is refused at the begin."""
    guard.check(context, None)
    return StreamChecks(lambda request: guard.check_bytes(context, request, has_begun=True), context)


def _append_stream(guard: _MethodGuard, inner: Any) -> Any:
    def by_thread(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        checks = _stream_checks(guard, context)
        # A generator would keep each request and response alive while a slow reader takes it.
        return map(checks.answer, inner(map(checks.request, requests), context))

    if not isinstance(inner, Pumped):
        return by_thread

    def pump(stream_pump: StreamPump, context: Any) -> bool:
        checked = CheckedPump(stream_pump, _stream_checks(guard, context))
        is_done: bool = inner.pump(checked, context)  # type: ignore[arg-type]  # as good as one
        return is_done

    return Pumped(by_thread, pump)
