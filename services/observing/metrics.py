"""Metrics for Prometheus: off unless `metrics_address` is set; then a page of plain text at `http://ADDRESS/metrics`.

Theory of operation: nothing is counted twice. A request of the page reads the status of the service, as `GetStatus` returns it
(services/observing/status_metrics.py), the lanes of the server, and the meters (services/observing/meters.py). The page shows
the numbers of that moment. docs/metrics.md lists them.

- Names are `reput_<component>_<what>_<unit>`; `reput_builder_...` for numbers that all followers have, with label `builder`.
- There are some hundred series at most, for any number of topics: labels are words of this code. Only consumer_svc's
  `group_metrics`, off by default, adds names of groups and topics, for an autoscaler.
- A failed status leaves its numbers out and counts in `reput_status_failures`; zeros would be wrong.
- The page has no authentication. Serve it on loopback or a separate network. It holds no names of topics or keys.

PageServer: the HTTP server of the metrics page: a thread for each connection, with limits against callers that send nothing.

prometheus_client's own server gives each connection a thread for as long as its caller likes.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.observing.meters import Counter, HistogramFamily, Meters
from services.observing.status_metrics import builder_metrics, commitlog_metrics, consumer_metrics, schedule_metrics
from store.errors import InvalidSettingError

# Scrapers make one connection each, and few of them scrape a service. The oldest connection gives way to a new one.
CONNECTION_COUNT_MAX = 16
# A scraper sends its request at once and reads the page as it comes.
QUIET_SECONDS_MAX = 10.0


class PageServer(ThreadingMixIn, WSGIServer):
    """Serves one application until `close`.

    Args:
        host: where to listen; of a name with several addresses, the first of IPv4, or else the first.
        port: 0 takes a free one.
        application: WSGI.
        resolve: finds the addresses of a name.

    Raises:
        OSError: the address cannot be bound.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        application: Callable[..., Any],
        resolve: Callable[..., list[Any]] = socket.getaddrinfo,
    ) -> None:
        found = resolve(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Scrapers are often told 127.0.0.1, while `localhost` is ::1 first on many machines.
        family, _, _, _, address = next((each for each in found if each[0] == socket.AF_INET), found[0])
        self.address_family = family
        self._connections: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), _QuietHandler)
        self.set_app(application)
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread; the oldest one ends when there are too many."""
        with self._lock:
            if len(self._connections) >= CONNECTION_COUNT_MAX:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                _end(oldest)
            self._connections[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection has ended."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a caller that left, or that had to."""

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()


class _QuietHandler(WSGIRequestHandler):
    timeout = QUIET_SECONDS_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _end(connection: socket.socket) -> None:
    """Wake the thread that reads from it; that thread closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # its caller has left


_log = structlog.get_logger("reput.metrics")


class LaneCounts(Protocol):
    """The numbers of a lane for the metrics page (services/serving/lanes.py).

    Attributes:
        name: stands in labels.
        refused_count: calls refused so far.
    """

    name: str
    refused_count: int

    @property
    def call_count(self) -> int:
        """Calls that run or wait now."""


class StallCounts(Protocol):
    """The numbers of a stall watch for the metrics page (services/serving/stall_watch.py).

    Attributes:
        ended_count: calls ended so far, by lane.
    """

    ended_count: dict[str, int]


class AllLanes(Protocol):
    """The numbers of all lanes of a server, for the metrics page."""

    @property
    def watch(self) -> StallCounts:
        """The stall watch of all lanes."""

    @property
    def tails(self) -> LaneCounts:
        """The lane of Reput streams."""

    def all(self) -> Sequence[LaneCounts]:
        """Every lane."""


class LaneCollector(Collector):
    """The calls in the lanes of a server."""

    def __init__(self, lanes: AllLanes) -> None:
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
        ask: reads the status; may fail.
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
        """Nothing, so that registering does not call a service that is not ready."""
        return []


class MeterCollector(Collector):
    """The meters of the service.

    Args:
        meters: its own.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._failures = Counter()

    def collect(self) -> Iterator[Metric]:
        """Samples of this moment."""
        for family in self._meters.histograms:
            yield _histogram_metric(family)
        for counters in self._meters.counters:
            counted = CounterMetricFamily(f"reput_{counters.name}", counters.text, labels=counters.label_names)
            for labels, counter in counters.items():
                counted.add_metric(labels, counter.read())
            yield counted
        for gauge in self._meters.gauges:
            kind = CounterMetricFamily if gauge.is_total else GaugeMetricFamily
            metric = kind(gauge.name, gauge.text, labels=gauge.label_names)
            try:
                for labels, value in sorted(gauge.read().items()):
                    metric.add_metric(labels, value)
            except Exception as error:  # left out and counted, as a failed status
                _log.warning("metrics.gauge_failed", gauge=gauge.name, error=str(error))
                self._failures.add()
                continue
            yield metric
        yield CounterMetricFamily(
            "reput_gauge_failures", "Times that a number of this page could not be read.", self._failures.read()
        )


def _histogram_metric(family: HistogramFamily) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(f"reput_{family.name}", family.text, labels=family.label_names)
    bounds = [*map(floatToGoString, family.bounds), "+Inf"]
    for labels, histogram in family.items():
        counts, total = histogram.read()
        metric.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return metric


# By full service name: the status request and the numbers of its answer. The gateway's status would call all other services.
STATUS_BY_SERVICE: dict[str, tuple[type[Any], Callable[[Any], Iterable[Metric]]]] = {
    "reput.commitlog.v1.CommitLogService": (commitlog_pb.GetStatusRequest, commitlog_metrics),
    "reput.consumequeue.v1.ConsumeQueueService": (queue_pb.GetStatusRequest, builder_metrics("consumequeue")),
    "reput.index.v1.IndexService": (index_pb.GetStatusRequest, builder_metrics("index")),
    "reput.consumer.v1.ConsumerService": (consumer_pb.GetStatusRequest, consumer_metrics),
    "reput.schedule.v1.ScheduleService": (schedule_pb.GetStatusRequest, schedule_metrics),
}


class Metrics:
    """One server's page.

    Args:
        lanes: the server's.
        meters: the server's.
    """

    def __init__(self, lanes: AllLanes, meters: Meters | None = None) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LaneCollector(lanes))
        if meters is not None:
            self.registry.register(MeterCollector(meters))
        self._page: PageServer | None = None

    def add_service(self, service_name: str, servicer: Any) -> None:
        """Show the status of a servicer, if its service is known."""
        if service_name in STATUS_BY_SERVICE and hasattr(servicer, "GetStatus"):
            request, to_metrics = STATUS_BY_SERVICE[service_name]
            self.registry.register(StatusCollector(lambda: servicer.GetStatus(request(), None), to_metrics))

    def serve(self, address: str) -> str:
        """Serve the page at `HOST:PORT` (port 0: a free one) in a thread; the bound address.

        Raises:
            InvalidSettingError: the address has another form, or cannot be bound.
        """
        ProcessCollector(registry=self.registry)
        host, _, port = address.rpartition(":")
        try:
            self._page = PageServer(host.strip("[]") or "127.0.0.1", int(port), make_wsgi_app(self.registry))
        except (ValueError, OSError, OverflowError) as error:
            raise InvalidSettingError(
                f"metrics_address is {address!r}, which cannot be bound ({error}): give each service "
                "a HOST:PORT of its own",
                name="metrics_address",
                source=address,
            ) from error
        bound = f"{host or '127.0.0.1'}:{self._page.server_port}"
        _log.info("metrics.listening", address=bound)
        return bound

    def close(self) -> None:
        """Stop serving the page."""
        if self._page is not None:
            self._page.close()
            self._page = None
