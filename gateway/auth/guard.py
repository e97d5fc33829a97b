"""The gateway's CallGuard: who calls, whether the rules let them, and a line in the audit log.

    handler                               what is checked                             then
    one request                           signed in, role, the topics it names        runs, seeing what the caller may see
    bytes, answered later (appends)       the same, by protobuf's own parser          goes on as the bytes that came
    append stream                         the same, for each request                  goes on as the bytes that came; a refused
                                                                                      one is answered with its `error`
    session (Telemetry), reflection       signed in, at the begin                     runs

An append is parsed here only to read its topics; what goes on are its bytes, which the commitlog reads as protobuf does. On a
stream answers come in the order of requests, and that order is known only behind us. So for a refused request an empty one goes
on, which nobody stores, and what is said of it is replaced by the refusal. Who is signed out in the middle of a stream (an
expired JWT, a key taken out of the file) is refused so, too.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from gateway.auth.access import ADMIN, ANY, Access
from gateway.auth.audit import Audit
from gateway.auth.caller_shards import Sight, work_for
from gateway.auth.rules import RULES, Rule
from gateway.auth.sign_in import SignIn
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.append_pump import Pumped, StreamPump
from services.call_guard import HEALTH_PREFIX
from services.status import code_of, to_status
from services.unary_call import AnsweredLater
from store.errors import InvalidArgumentError, PermissionDeniedError, StoreError, UnauthenticatedError

REFLECTION_PREFIX = "/grpc.reflection."
REFLECTION_RULE = Rule(ANY)
UNKNOWN = "UNKNOWN"
# The call ended before the answer: its client does not know either whether the messages are stored.
UNANSWERED = "UNANSWERED"
NOBODY = ""
EMPTY_REQUEST = b""


class GatewayGuard:
    """Guards the handlers of the gateway.

    Args:
        sign_in: finds a caller's rights.
        audit: where calls are noted.
    """

    def __init__(self, sign_in: SignIn, audit: Audit) -> None:
        self._sign_in = sign_in
        self._audit = audit

    def access_by(self, credential: str, peer: str, method: str) -> Access:
        """The rights of whoever shows this in another way than with a call; UnauthenticatedError, which is noted."""
        try:
            return self._sign_in.access_by(credential)
        except UnauthenticatedError as error:
            self._audit.denied(NOBODY, peer, method, "", code_of(error).name)
            raise

    def guard(self, method: str, handler: Any) -> Any:
        """See CallGuard."""
        if method.startswith(HEALTH_PREFIX):
            return handler
        rule = REFLECTION_RULE if method.startswith(REFLECTION_PREFIX) else RULES.get(method)
        gate = _Gate(method, rule, self._sign_in, self._audit)
        if handler.request_streaming:
            inner = handler.stream_stream
            if rule is not None and rule.topics is not None:
                return handler._replace(stream_stream=_append_stream(gate, inner))
            return handler._replace(stream_stream=_session(gate, inner))
        if handler.response_streaming:
            return handler._replace(unary_stream=_server_stream(gate, handler.unary_stream))
        if isinstance(handler.unary_unary, AnsweredLater):
            return handler._replace(unary_unary=_answered_later(gate, handler.unary_unary))
        return handler._replace(unary_unary=_unary(gate, handler.unary_unary))


class _Gate:
    """Lets callers of one method in."""

    def __init__(self, method: str, rule: Rule | None, sign_in: SignIn, audit: Audit) -> None:
        self.method = method
        self._rule = rule
        self._sign_in = sign_in
        self._audit = audit

    def let_in(self, context: Any, request: Any) -> Sight:
        """What the caller may see.

        Raises:
            UnauthenticatedError, PermissionDeniedError: it may not come in; the audit log has it.
        """
        sight: Sight = self.noting(context, lambda: self._enter(context, request))
        return sight

    def let_in_bytes(self, context: Any, request: bytes) -> "_Append":
        """The same for a request of bytes; InvalidArgumentError when it cannot be read."""

        def enter() -> _Append:
            assert self._rule is not None
            assert self._rule.topics is not None
            assert self._rule.parse is not None
            sight = self._signed_in(context)
            try:
                topics = list(self._rule.topics(self._rule.parse(request)))
            except DecodeError as error:
                raise InvalidArgumentError(
                    f"the request is no message of {self.method}'s kind: {error}", field="request"
                ) from error
            counted = Counter(topics)
            for topic in counted:
                if not sight.holds(topic):
                    raise sight.refusal(f"topic {topic!r}", topic=topic, index=topics.index(topic))
            return _Append(self._audit, sight.access.name, self.method, counted, self._rule.outcome)

        append: _Append = self.noting(context, enter)
        return append

    def noting(self, context: Any, work: Callable[[], Any]) -> Any:
        """What the work gives; a refusal in it is noted, also one that the answer's topic is the reason of."""
        try:
            return work()
        except (UnauthenticatedError, PermissionDeniedError) as error:
            error.metadata.setdefault("method", self.method)
            self._audit.denied(
                error.metadata.get("client", NOBODY),
                context.peer(),
                self.method,
                error.metadata.get("topic", ""),
                code_of(error).name,
            )
            raise

    def _enter(self, context: Any, request: Any) -> Sight:
        sight = self._signed_in(context)
        rule = self._rule
        if rule is not None and rule.topics is not None and request is not None:
            for topic in rule.topics(request):
                sight.check(topic)
        if rule is not None and rule.roles == ADMIN:
            self._audit.admin(sight.access.name, context.peer(), self.method)
        return sight

    def _signed_in(self, context: Any) -> Sight:
        access: Access = self._sign_in.access_of(context)
        if self._rule is None:
            raise PermissionDeniedError(
                f"nobody may call {self.method}: it has no rule (gateway/auth/rules.py)", client=access.name
            )
        sight = Sight(access, self._rule.roles)
        if not access.has(self._rule.roles):
            raise sight.refusal("any topic")
        return sight


class _Append:
    """An append that was let in; the audit log is told how it ends."""

    def __init__(
        self, audit: Audit, client: str, method: str, topics: Counter[str], outcome: Callable[[bytes], str]
    ) -> None:
        self._audit = audit
        self._client = client
        self._method = method
        self._topics = topics
        self._outcome = outcome

    def answered(self, answer: bytes) -> None:
        """It ended as its answer says."""
        self.ended(self._outcome(answer))

    def ended(self, outcome: str) -> None:
        """It ended so."""
        self._audit.appended(self._client, self._method, self._topics, outcome)


class _HeardCall:
    """Stands before the caller of an append and hears how it ends."""

    def __init__(self, call: Any, append: _Append) -> None:
        self._call = call
        self._append = append
        self.is_active = call.is_active
        self.time_remaining = call.time_remaining
        self.context = call.context

    def answer(self, response: bytes) -> None:
        self._call.answer(response)
        self._append.answered(response)

    def fail(self, status: Any) -> None:
        self._call.fail(status)
        self._append.ended(_CODE_NAMES.get(status.code, UNKNOWN))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def _unary(gate: _Gate, inner: Callable[..., Any]) -> Callable[..., Any]:
    def handle(request: Any, context: Any) -> Any:
        with work_for(gate.let_in(context, request)):
            return gate.noting(context, lambda: inner(request, context))

    return handle


def _server_stream(gate: _Gate, inner: Callable[..., Any]) -> Callable[..., Any]:
    def handle(request: Any, context: Any) -> Iterator[Any]:
        with work_for(gate.let_in(context, request)):
            answers = iter(gate.noting(context, lambda: inner(request, context)))
            # Not `yield from`: an answer is not kept here while its reader sleeps.
            while (answer := gate.noting(context, lambda: next(answers, None))) is not None:
                yield answer
                del answer

    return handle


def _session(gate: _Gate, inner: Callable[..., Any]) -> Callable[..., Any]:
    def handle(requests: Iterator[Any], context: Any) -> Any:
        gate.let_in(context, None)
        return inner(requests, context)

    return handle


def _answered_later(gate: _Gate, inner: AnsweredLater) -> AnsweredLater:
    def offer(request: bytes, call: Any) -> None:
        append = gate.let_in_bytes(call.context, request)
        try:
            inner.offer(request, _HeardCall(call, append))
        except Exception as error:
            append.ended(code_of(error).name if isinstance(error, StoreError) else UNKNOWN)
            raise

    return AnsweredLater(offer)


def _append_stream(gate: _Gate, inner: Any) -> Any:
    def by_thread(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        checks = _StreamChecks(gate, context)
        # No generators: one would keep each request and answer while its reader sleeps.
        return map(checks.answer, inner(map(checks.request, requests), context))

    if not isinstance(inner, Pumped):
        return by_thread

    def pump(stream_pump: StreamPump, context: Any) -> bool:
        checked = _CheckedPump(stream_pump, _StreamChecks(gate, context))
        is_done: bool = inner.pump(checked, context)  # type: ignore[arg-type]  # as good as one
        return is_done

    return Pumped(by_thread, pump)


class _StreamChecks:
    """The requests and answers of one append stream; a caller who may append nothing is refused before the first.

    Args:
        gate: lets requests in.
        context: the call's.
    """

    def __init__(self, gate: _Gate, context: Any) -> None:
        self._gate = gate
        self._context = context
        self._unanswered: deque[_Append | StoreError] = deque()
        gate.let_in(context, None)
        if not context.add_callback(self.end):
            self.end()

    def request(self, request: bytes) -> bytes:
        """What is to go on for a request."""
        try:
            self._unanswered.append(self._gate.let_in_bytes(self._context, request))
        except StoreError as refusal:
            self._unanswered.append(refusal)
            return EMPTY_REQUEST
        return request

    def answer(self, answer: bytes) -> bytes:
        """What is to be told for the answer to the oldest request."""
        try:
            asked = self._unanswered.popleft()
        except IndexError:  # the call has ended, and with it the requests
            return answer
        if isinstance(asked, _Append):
            asked.answered(answer)
            return answer
        return pb.AppendMessageStreamResponse(error=to_status(asked)).SerializeToString()

    def end(self) -> None:
        """The call has ended: no answer is told any more."""
        while self._unanswered:
            with contextlib.suppress(IndexError):  # an answer took it
                asked = self._unanswered.popleft()
                if isinstance(asked, _Append):
                    asked.ended(UNANSWERED)


class _CheckedPump:
    """A StreamPump between which and its user the checks stand."""

    def __init__(self, pump: StreamPump, checks: _StreamChecks) -> None:
        self._pump = pump
        self._checks = checks

    def start(self, take: Callable[[bytes | None], None], unanswered_count_max: int) -> None:
        """See StreamPump."""
        self._pump.start(
            lambda request: take(None if request is None else self._checks.request(request)), unanswered_count_max
        )

    def send(self, answer: bytes) -> None:
        """See StreamPump."""
        self._pump.send(self._checks.answer(answer))

    def wait_until_sent(self) -> None:
        """See StreamPump."""
        self._pump.wait_until_sent()
