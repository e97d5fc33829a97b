"""Meters: counts and times of a service; services/observing/metrics.py makes Prometheus' text of them.

Theory of operation: a status (offsets, files, lanes) is read when the page is requested. Events must be noted when they happen:
the time of each call, and how it ended. So there are two kinds of meters for events, and gauges for numbers that no status has:

    histogram   one list of counts; `observe` is a binary search and two additions under a lock: 0.5 microseconds
    counter     one number under a lock
    gauge       a function that is called when the page is made

Meters use no library. Counting is always on and costs an idle service nothing; only a service with a metrics page loads the
library of the page. Recording code gets a function (`Histogram.observe`), so that owners of files do not import this module.
Labels are words of this code, never names of topics, keys or callers. A family has at most SERIES_COUNT_MAX sets of labels, or
its own bound where a closed set is larger; further ones are counted together as `other`.

refusal_counter counts appends that are refused inside an answer. Their call goes on or ends with OK, so its status does not
show the refusal.

    AppendMessageStream   the answer has `error`, the stream takes the next request
    SendMessage           RocketMQ's contract has its status in the answer, whatever happened

Their codes are counted here under the names of gRPC's codes, so that one alert covers both kinds. Every code that a refusal can
have is there from the start, with 0, because Prometheus sees no increase in a series that begins with its first refusal.

show_moved_aside: the metric of what was moved aside (`store/files/aside.py`), one for each component.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from services.status import CODE_BY_ERROR
from store.errors import StoreError
from store.files.aside import builder_folder, kept_count
from store.files.file_system import FileSystem

# From a lookup in memory to the time that callers wait; each bound is at most 2.5 times the one before.
SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# For families with many series: half of the bounds, each at most five times the one before.
COARSE_SECONDS_BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
# Label values are words of the code. More than this are a bug, which must not fill Prometheus' memory.
SERIES_COUNT_MAX = 128
OTHER = "other"

Labels = tuple[str, ...]

# The labels of RocketMQ's own storage metrics, for metrics that are shown under RocketMQ's names.
ROCKETMQ_LABELS: Labels = ("node_type", "node_id", "storage_type", "storage_medium")


def rocketmq_labels(broker_name: str) -> Labels:
    """Values of ROCKETMQ_LABELS for a shard."""
    return "broker", broker_name, "local", "disk"


class Histogram:
    """Counts of times, by bucket; thread-safe.

    Args:
        bounds: upper bounds of the buckets, inclusive, rising; one more bucket holds the rest.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count one value."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += 1
            self._sum += value

    def read(self) -> tuple[list[int], float]:
        """The count of each bucket (not cumulated), and the sum of all values."""
        with self._lock:
            return list(self._counts), self._sum


class Counter:
    """A number that only grows; thread-safe."""

    __slots__ = ("_lock", "_value")

    def __init__(self) -> None:
        self._value = 0
        self._lock = threading.Lock()

    def add(self, count: int = 1) -> None:
        """Add a count."""
        with self._lock:
            self._value += count

    def read(self) -> int:
        """The number now."""
        return self._value


@dataclass(slots=True)
class HistogramFamily:
    """Histograms of one name, one for each set of labels.

    Attributes:
        name: without the prefix `reput_`; unit last.
        text: its meaning, one line.
        label_names: of every set of labels.
        bounds: of every histogram.
    """

    name: str
    text: str
    label_names: Labels
    bounds: Sequence[float]
    _by_labels: dict[Labels, Histogram] = field(default_factory=dict)

    def of(self, *labels: str) -> Histogram:
        """The histogram with these labels, the same each time."""
        found = self._by_labels.get(labels)
        return found if found is not None else self._by_labels.setdefault(self._bounded(labels), Histogram(self.bounds))

    def items(self) -> Iterator[tuple[Labels, Histogram]]:
        """All there are now, by labels."""
        return iter(sorted(self._by_labels.items()))

    def _bounded(self, labels: Labels) -> Labels:
        return labels if len(self._by_labels) < SERIES_COUNT_MAX - 1 else (OTHER,) * len(labels)


@dataclass(slots=True)
class CounterFamily:
    """Counters of one name, one for each set of labels.

    Attributes:
        name: without the prefix `reput_` and the ending `_total`.
        text: its meaning, one line.
        label_names: of every set of labels.
        series_count_max: counters at most, `other` among them.
    """

    name: str
    text: str
    label_names: Labels
    series_count_max: int = SERIES_COUNT_MAX
    _by_labels: dict[Labels, Counter] = field(default_factory=dict)

    def of(self, *labels: str) -> Counter:
        """The counter with these labels, the same each time."""
        found = self._by_labels.get(labels)
        return found if found is not None else self._by_labels.setdefault(self._bounded(labels), Counter())

    def items(self) -> Iterator[tuple[Labels, Counter]]:
        """All there are now, by labels."""
        return iter(sorted(self._by_labels.items()))

    def _bounded(self, labels: Labels) -> Labels:
        return labels if len(self._by_labels) < self.series_count_max - 1 else (OTHER,) * len(labels)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that is read when the page is requested.

    Attributes:
        name: the whole name with its prefix; some are RocketMQ's.
        text: its meaning, one line.
        read: the number by its labels; empty leaves it out. An error of it is counted.
        label_names: of every set of labels.
        is_total: whether it only grows.
    """

    name: str
    text: str
    read: Callable[[], Mapping[Labels, float]]
    label_names: Labels = ()
    is_total: bool = False


class Meters:
    """The meters of one process."""

    def __init__(self) -> None:
        self.histograms: list[HistogramFamily] = []
        self.counters: list[CounterFamily] = []
        self.gauges: list[Gauge] = []

    def histogram(
        self, name: str, text: str, label_names: Labels = (), bounds: Sequence[float] = SECONDS_BOUNDS
    ) -> HistogramFamily:
        """A new family of histograms, shown as `reput_<name>`."""
        family = HistogramFamily(name, text, label_names, bounds)
        self.histograms.append(family)
        return family

    def counter(
        self, name: str, text: str, label_names: Labels = (), series_count_max: int = SERIES_COUNT_MAX
    ) -> CounterFamily:
        """A new family of counters, shown as `reput_<name>_total`."""
        family = CounterFamily(name, text, label_names, series_count_max)
        self.counters.append(family)
        return family

    def gauge(
        self,
        name: str,
        text: str,
        read: Callable[[], Mapping[Labels, float]],
        label_names: Labels = (),
        *,
        is_total: bool = False,
    ) -> None:
        """A new gauge, shown under exactly this name."""
        self.gauges.append(Gauge(name, text, read, label_names, is_total))

    def number(self, name: str, text: str, read: Callable[[], float | None], *, is_total: bool = False) -> None:
        """A gauge without labels, left out while it is None."""

        def labelled() -> Mapping[Labels, float]:
            value = read()
            return {} if value is None else {(): value}

        self.gauge(name, text, labelled, is_total=is_total)


# A process that adds it to its meters shows it.
APPEND_REFUSED = CounterFamily(
    "append_refused", "Appends refused inside an answer whose call goes on or ends with OK.", ("method", "code")
)


def refusal_counter(method: str) -> Callable[[int], None]:
    """A function that counts a refusal by the number of its gRPC code; an unexpected code counts as UNKNOWN.

    Args:
        method: as the metrics of calls name it: `CommitLogService/AppendMessageStream`.
    """
    unknown = APPEND_REFUSED.of(method, grpc.StatusCode.UNKNOWN.name)
    counters = {code.value[0]: APPEND_REFUSED.of(method, code.name) for code in CODE_BY_ERROR.values()}

    def count(code: int) -> None:
        counters.get(code, unknown).add()

    return count


def show_moved_aside(meters: Meters, fs: FileSystem, root: Path, component: str) -> None:
    """Shows on the metrics page what a component keeps aside."""
    folder = builder_folder(root, component)

    def read() -> Mapping[tuple[str, ...], float]:
        try:
            return {(component,): float(kept_count(fs, folder))}
        except (OSError, StoreError):  # the page shows the rest, and the status says why
            return {}

    text = "Starts at which something was moved aside that the log does not explain, and that nobody has removed."
    meters.gauge("reput_store_moved_aside", text, read, ("follower",))
