"""The export of spans to the collector: a bounded queue and one thread; imported only where traces are switched on.

OpenTelemetry's own BatchSpanProcessor does the same, but drops without counting. Here each span that has ended is counted once:
`exported`, `dropped` (the queue was full) or `failed` (the collector did not take it).
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from services.observing.meters import CounterFamily

# As in OpenTelemetry's own: about 4 MiB.
SPAN_COUNT_MAX = 2_048
BATCH_SPAN_COUNT_MAX = 512
# A batch is sent when it is full, or this long after its first span.
BATCH_SECONDS = 1.0
# A collector that does not answer holds the exporter's thread, and no other, for so long.
EXPORT_SECONDS_MAX = 5.0
# The time to send the remaining spans at the end of the process: less than a service's own grace.
CLOSE_SECONDS_MAX = 2.0


class SpanQueue(SpanProcessor):
    """Exports spans from a thread of its own; ending a span never waits.

    Args:
        exporter: sends the spans.
        spans: counts them by outcome.
        span_count_max: spans that may wait.
        batch_seconds: the time that the first span of a batch waits for others.
        clock: seconds, rising.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        spans: CounterFamily,
        span_count_max: int = SPAN_COUNT_MAX,
        batch_seconds: float = BATCH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exporter = exporter
        self._exported, self._dropped, self._failed = (spans.of(word) for word in ("exported", "dropped", "failed"))
        self._batch_seconds = batch_seconds
        self._clock = clock
        self._queue: queue.Queue[ReadableSpan | None] = queue.Queue(span_count_max)
        self._thread = threading.Thread(target=self._run, name="span-export", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See SpanProcessor."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span, or drop it."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            self._dropped.add()

    def shutdown(self) -> None:
        """Send the waiting spans, for CLOSE_SECONDS_MAX at most."""
        try:
            self._queue.put(None, timeout=CLOSE_SECONDS_MAX)
        except queue.Full:
            return  # the collector hangs; the process must end
        self._thread.join(CLOSE_SECONDS_MAX)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Does nothing: the thread sends all spans within BATCH_SECONDS."""
        return True

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            deadline = self._clock() + self._batch_seconds
            while batch[-1] is not None and len(batch) < BATCH_SPAN_COUNT_MAX:
                try:
                    batch.append(self._queue.get(timeout=max(0.0, deadline - self._clock())))
                except queue.Empty:
                    break
            is_open = batch[-1] is not None
            self._export([span for span in batch if span is not None])
        self._exporter.shutdown()

    def _export(self, spans: list[ReadableSpan]) -> None:
        if not spans:
            return
        try:
            is_sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # an exporter's bug is counted like a collector's silence: it must not end the thread
            is_sent = False
        (self._exported if is_sent else self._failed).add(len(spans))


def open_tracer(
    component: str, endpoint: str, environ: Mapping[str, str], spans: CounterFamily
) -> tuple[Tracer, Callable[[], object]]:
    """A tracer whose spans go to an OTLP/gRPC receiver, and what ends it; for the arguments see tracing.py."""
    exporter = OTLPSpanExporter(endpoint=endpoint or None, timeout=EXPORT_SECONDS_MAX)
    name = environ.get("OTEL_SERVICE_NAME") or f"reput-{component}"
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}), shutdown_on_exit=False)
    provider.add_span_processor(SpanQueue(exporter, spans))
    return provider.get_tracer("reput"), provider.shutdown
