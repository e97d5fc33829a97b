"""Metrics for Prometheus: off unless `metrics_address` is set; then a page of plain text at `http://ADDRESS/metrics`.

Theory of operation: nothing is counted twice. When the page is asked for, the service is asked for its own status, as
`GetStatus` tells it to everybody, and the server for its lanes; the numbers on the page are the ones of that moment.

- Names are `reput_<component>_<what>_<unit>`; `reput_builder_...` for what both builders have, with label `builder`.
- A status that fails leaves its numbers out and counts in `reput_status_failures`: a page that says 0 would lie.
- The page has no authentication: it belongs on loopback or on a network of its own, and holds no names of topics or keys.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.index.v1 import index_service_pb2 as index_pb
from services.lanes import Lanes
from store.errors import InvalidSettingError

_log = structlog.get_logger("reput.metrics")


class LaneCollector(Collector):
    """How full the lanes of a server are."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def collect(self) -> Iterator[Metric]:
        """Samples of this moment."""
        calls = GaugeMetricFamily("reput_rpc_calls", "Calls worked on and waiting now.", labels=["lane"])
        refused = CounterMetricFamily(
            "reput_rpc_refused", "Calls refused because their lane was full.", labels=["lane"]
        )
        stalled = CounterMetricFamily(
            "reput_rpc_stalled", "Calls ended because their caller took no answer or sent no request.", labels=["lane"]
        )
        for lane in self._lanes.all():
            calls.add_metric([lane.name], lane.call_count)
            refused.add_metric([lane.name], lane.refused_count)
            stalled.add_metric([lane.name], self._lanes.watch.ended_count.get(lane.name, 0))
        yield from (calls, refused, stalled)
        yield GaugeMetricFamily("reput_reput_streams", "Reput streams served now.", self._lanes.tails.call_count)


class StatusCollector(Collector):
    """The numbers of a service's own status.

    Args:
        ask: the status; may fail.
        to_metrics: its numbers.
    """

    def __init__(self, ask: Callable[[], Any], to_metrics: Callable[[Any], Iterable[Metric]]) -> None:
        self._ask = ask
        self._to_metrics = to_metrics
        self._failure_count = 0
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Samples of this moment."""
        metrics: list[Metric] = []
        try:
            metrics.extend(self._to_metrics(self._ask()))
        except Exception as error:
            _log.warning("metrics.status_failed", error=str(error))
            metrics.clear()
            with self._lock:
                self._failure_count += 1
        yield from metrics
        yield CounterMetricFamily(
            "reput_status_failures", "Times that the status could not be read.", self._failure_count
        )

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not ask a service that is not ready."""
        return []


def commitlog_metrics(status: commitlog_pb.GetStatusResponse) -> Iterator[Metric]:
    """What a commitlog's status says in numbers."""
    yield _gauge("commitlog_ready", "1 once the log is recovered.", not status.HasField("recovery"))
    yield _gauge(
        "commitlog_fenced", "1 after a failed flush: no append is taken until a restart.", status.state == "fenced"
    )
    yield _gauge("commitlog_problem", "1 while the status has a problem to tell.", bool(status.problem))
    if status.HasField("recovery"):
        recovery = status.recovery
        yield _gauge("commitlog_recovery_begin_offset_bytes", "Where the recovery began.", recovery.begin_offset)
        yield _gauge("commitlog_recovery_next_offset_bytes", "Everything before it is checked.", recovery.next_offset)
        yield _gauge("commitlog_recovery_end_offset_bytes", "Where the log's files end.", recovery.end_offset)
    else:
        yield _gauge("commitlog_first_offset_bytes", "The log's first byte.", status.log_first_offset)
        yield _gauge("commitlog_end_offset_bytes", "The byte behind the last record written.", status.log_end_offset)
        yield _gauge(
            "commitlog_flushed_offset_bytes", "Everything before it is on the disk.", status.log_flushed_offset
        )
        yield _gauge("commitlog_files", "Log files.", status.file_count)
    if status.HasField("disk"):
        yield _gauge("disk_total_bytes", "Size of the disk under the log.", status.disk.total_bytes)
        yield _gauge("disk_free_bytes", "What may still be written to it.", status.disk.free_bytes)
        yield _gauge("disk_full", "1 while writes are refused for lack of space.", status.disk.level == "full")
    reported = GaugeMetricFamily(
        "reput_commitlog_builder_next_offset_bytes", "What a builder has reported as applied.", labels=["builder"]
    )
    for builder, next_offset in sorted(status.builder_next_offsets.items()):
        reported.add_metric([builder], next_offset)
    yield reported


def builder_metrics(builder: str) -> Callable[[Any], Iterator[Metric]]:
    """What a builder's status says in numbers."""

    def to_metrics(status: queue_pb.GetStatusResponse | index_pb.GetStatusResponse) -> Iterator[Metric]:
        lag_bytes = max(0, status.log_end_offset - status.next_offset)
        for name, text, value in (
            ("next_offset_bytes", "The log before it is built.", status.next_offset),
            ("lag_bytes", "Flushed log that is not built yet.", lag_bytes),
            ("failures", "Failures since the last success.", status.failure_count),
            ("catching_up", "1 while answers may lack what is stored.", int(status.catching_up)),
        ):
            metric = GaugeMetricFamily(f"reput_builder_{name}", text, labels=["builder"])
            metric.add_metric([builder], value)
            yield metric

    return to_metrics


# By full service name: who is asked with what, and what the answer says. The gateway's status would ask all the others.
STATUS_BY_SERVICE: dict[str, tuple[type[Any], Callable[[Any], Iterable[Metric]]]] = {
    "reput.commitlog.v1.CommitLogService": (commitlog_pb.GetStatusRequest, commitlog_metrics),
    "reput.consumequeue.v1.ConsumeQueueService": (queue_pb.GetStatusRequest, builder_metrics("consumequeue")),
    "reput.index.v1.IndexService": (index_pb.GetStatusRequest, builder_metrics("index")),
}


class Metrics:
    """One server's page.

    Args:
        lanes: the server's.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LaneCollector(lanes))
        self._http: Any = None

    def add_service(self, service_name: str, servicer: Any) -> None:
        """Show what the status of a servicer says, if it is of a kind that is known."""
        if service_name in STATUS_BY_SERVICE and hasattr(servicer, "GetStatus"):
            request, to_metrics = STATUS_BY_SERVICE[service_name]
            self.registry.register(StatusCollector(lambda: servicer.GetStatus(request(), None), to_metrics))

    def serve(self, address: str) -> str:
        """Serve the page at `HOST:PORT` (port 0: a free one) in a thread; the bound address.

        Raises:
            InvalidSettingError: the address is no such thing, or cannot be bound.
        """
        ProcessCollector(registry=self.registry)
        host, _, port = address.rpartition(":")
        try:
            self._http, _ = start_http_server(int(port), host.strip("[]") or "127.0.0.1", self.registry)
        except (ValueError, OSError, OverflowError) as error:
            raise InvalidSettingError(
                f"metrics_address is {address!r}, which cannot be listened at ({error}): HOST:PORT is needed, "
                "an address of its own for each service",
                name="metrics_address",
                source=address,
            ) from error
        bound = f"{host or '127.0.0.1'}:{self._http.server_port}"
        _log.info("metrics.listening", address=bound)
        return bound

    def close(self) -> None:
        """Serve no more."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"reput_{name}", text, float(value))
