"""Traces: spans of calls and of the steps behind them, for an OpenTelemetry collector; off unless an endpoint is set.

Theory of operation: without an endpoint (`otlp_endpoint`, or OpenTelemetry's own `OTEL_EXPORTER_OTLP_ENDPOINT` and
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`), `_tracer` is None: every function here returns at once, and OpenTelemetry's SDK (15 MiB)
is not imported. With an endpoint, each call begins a span below the one that its caller names in the metadata `traceparent`
(W3C Trace Context). The steps of a query are spans below that, and calls to other services carry the `traceparent` of the step:

    caller ─ traceparent ─▶ gateway: span of the call
                               └─ span of a step ─ traceparent ─▶ index or commitlog: span of the call

- gRPC calls carry it in their metadata (`traced_channel`), lookups of this machine in their frame (services/local/wire.py).
- Appends have a span in the gateway and one in the commitlog, not joined: the gateway sends the appends of many callers as one.
- Spans hold words of this code, counts and error reasons; never a topic, a key, a body or an id.
- The sampler (`OTEL_TRACES_SAMPLER`) decides what is recorded; by default the caller's decision, else everything.
- A span that ended waits in a queue of SPAN_COUNT_MAX for the exporter's thread. When that is full, or the collector does not
  answer, spans are dropped and counted: no call ever waits for a collector.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from services.observing.meters import CounterFamily
from store.errors import InvalidSettingError, StoreError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEALTH_PREFIX = "/grpc."
# Codes of a failed service, as opposed to a mistake of the caller.
FAILURE_CODE_NAMES = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
# Spans by outcome, for the metrics page.
SPANS = CounterFamily("trace_spans", "Spans that have ended, by what became of them.", ("outcome",))


def _do_nothing() -> None:
    """Closes a tracer or ends a span when there is none."""


_tracer: "Tracer | None" = None
_close: Callable[[], object] = _do_nothing


def switch_on(component: str, endpoint: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Trace this process from now on, if there is an endpoint; whether there is one. Once, before channels are opened.

    Args:
        component: `gateway`, ...; the service's name is `reput-<component>` unless OTEL_SERVICE_NAME says otherwise.
        endpoint: `http://HOST:PORT` or `https://...` of an OTLP/gRPC receiver; empty: what the environment says.
        environ: has OpenTelemetry's own variables.

    Raises:
        InvalidSettingError: there is an endpoint, but no SDK installed, or a protocol is asked for that is not gRPC.
    """
    global _tracer, _close  # tracing is a property of the process
    named = endpoint or next(filter(None, (environ.get(name, "") for name in ENDPOINT_VARIABLES)), "")
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if not named or is_off:
        return False
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"
    if protocol != "grpc":
        raise InvalidSettingError(
            f"traces are sent by OTLP over grpc, not {protocol!r}: unset OTEL_EXPORTER_OTLP_PROTOCOL and give the "
            "collector's gRPC port (4317)",
            name="OTEL_EXPORTER_OTLP_PROTOCOL",
            source=protocol,
        )
    try:
        from services.observing.span_export import open_tracer  # the SDK
    except ModuleNotFoundError as error:
        raise InvalidSettingError(
            f"otlp_endpoint is {named!r}, but {error.name}, which comes with reput, is not installed: "
            "pip install --force-reinstall reput",
            name="otlp_endpoint",
            source=named,
        ) from error
    _tracer, _close = open_tracer(component, endpoint, environ, SPANS)
    return True


def switch_off() -> None:
    """Send the waiting spans, for a moment at most, and stop tracing."""
    global _tracer, _close
    close, _tracer, _close = _close, None, _do_nothing
    close()


def is_on() -> bool:
    """Whether this process is traced."""
    return _tracer is not None


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


def call(method: str, context: Any) -> contextlib.AbstractContextManager[Any]:
    """The span of a call that is being served, current in the block; its end is the call's status."""
    if _tracer is None or method.startswith(HEALTH_PREFIX):
        return contextlib.nullcontext()
    return _call(_tracer, method, context.invocation_metadata() or ())


@contextlib.contextmanager
def _call(tracer: "Tracer", method: str, metadata: Any) -> Iterator[Any]:
    from opentelemetry import trace

    with tracer.start_as_current_span(
        method.strip("/"),
        context=_parent(metadata),
        kind=trace.SpanKind.SERVER,
        attributes=_rpc_attributes(method),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            _fail(span, error)
            raise


def begin_call(method: str, waiting: Any) -> Callable[[], None]:
    """Begin the span of a call that is answered later, by `waiting.answer` or `.fail`; returns a function that ends it."""
    if _tracer is None:
        return _do_nothing
    from opentelemetry import trace

    span = _tracer.start_span(
        method.strip("/"),
        context=_parent(waiting.invocation_metadata() or ()),
        kind=trace.SpanKind.SERVER,
        attributes=_rpc_attributes(method),
    )

    def end() -> None:
        code = waiting.status_code
        span.set_attribute("rpc.grpc.status_code", code)
        if _is_failure(code):
            span.set_status(trace.StatusCode.ERROR)
        span.end()

    return end


def local_call(method: str, traceparent: str) -> contextlib.AbstractContextManager[Any]:
    """As `call`, for one that came over a socket of this machine with that `traceparent`."""
    if _tracer is None:
        return contextlib.nullcontext()
    return _call(_tracer, method, ((TRACEPARENT, traceparent),))


def step(name: str, **attributes: str | int | bool) -> contextlib.AbstractContextManager[Any]:
    """A span below the current one, current in the block. Attributes: words of this code and counts."""
    if _tracer is None:
        return contextlib.nullcontext()
    return _step(_tracer, name, attributes)


@contextlib.contextmanager
def _step(tracer: "Tracer", name: str, attributes: Mapping[str, str | int | bool]) -> Iterator[Any]:
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            _fail(span, error)
            raise


def current_traceparent() -> str:
    """The current span's `traceparent`; empty when there is none, or it is not recorded."""
    if _tracer is None:
        return ""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def current_ids() -> tuple[str, str] | None:
    """The current trace's and span's ids, for log lines."""
    traceparent = current_traceparent()
    if not traceparent:
        return None
    _, trace_id, span_id, _ = traceparent.split("-")
    return trace_id, span_id


def traced_channel(channel: grpc.Channel) -> grpc.Channel:
    """The channel; where this process is traced, its calls carry the current `traceparent`."""
    return channel if _tracer is None else grpc.intercept_channel(channel, _CarryOn())


class _CallDetails(grpc.ClientCallDetails):
    """A call's details with other metadata."""

    def __init__(self, details: Any, metadata: Any) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = metadata
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


class _CarryOn(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds the current `traceparent` to calls."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """See grpc."""
        return continuation(_with_traceparent(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """See grpc."""
        return continuation(_with_traceparent(details), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        """See grpc."""
        return continuation(_with_traceparent(details), requests)


def _with_traceparent(details: Any) -> Any:
    traceparent = current_traceparent()
    if not traceparent:
        return details
    return _CallDetails(details, [*(details.metadata or ()), (TRACEPARENT, traceparent)])


def _parent(metadata: Any) -> Any:
    """The caller's span as a context; an empty one, which makes a new trace, when there is none that can be read."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name: value for name, value in metadata if name in (TRACEPARENT, TRACESTATE) and isinstance(value, str)}
    return TraceContextTextMapPropagator().extract(carrier, context=Context())


def _rpc_attributes(method: str) -> dict[str, str]:
    service, _, name = method.strip("/").rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


def _fail(span: Any, error: Exception) -> None:
    """Record the reason and not the text, which may name topics or keys."""
    from opentelemetry import trace

    from services.status import to_status  # it needs none of this

    if isinstance(error, StoreError):
        span.set_attribute("error.type", error.reason())
        if not _is_failure(to_status(error).code):
            return
    else:
        span.set_attribute("error.type", type(error).__name__)
    span.set_status(trace.StatusCode.ERROR)


def _is_failure(code: int) -> bool:
    return any(code == known.value[0] and known.name in FAILURE_CODE_NAMES for known in grpc.StatusCode)
