"""Options of the sink: where rows go, and what their columns may be."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.options import OptionError
from pipeline.sources.rocketmq_options import RETRY_SECONDS_DEFAULT, endpoints_of, given_options, seconds
from reput_client import FlushMode

# Spark puts these beside ours when a stream is started.
OF_SPARK = ("checkpointLocation", "queryName", "path")
SINK_OPTIONS = ("endpoint", "topic", "flushMode", "retrySeconds")
FLUSH_MODES = {"sync": FlushMode.SYNC, "async": FlushMode.ASYNC, "default": FlushMode.SERVER_DEFAULT}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows go, checked.

    Attributes:
        endpoints: the gateways, each of one shard; a task takes one of them, always the same.
        topic: of all rows; empty: each row has its own.
        flush_mode: when a row counts as stored.
        retry_seconds: how long a row is tried.
    """

    endpoints: tuple[str, ...]
    topic: str
    flush_mode: str
    retry_seconds: float


def sink_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """Checked options of a sink.

    Args:
        options: as the user gave them.
        overwrite: the mode asked for is not append.

    Raises:
        OptionError: with the option's name.
    """
    if overwrite:
        raise OptionError("A topic cannot be overwritten, only appended to: use mode append.")
    given = given_options(
        {name: value for name, value in options.items() if name.lower() not in {other.lower() for other in OF_SPARK}},
        SINK_OPTIONS,
    )
    flush_mode = given.get("flushMode", "sync").strip().lower()
    if flush_mode not in FLUSH_MODES:
        raise OptionError(f"Option flushMode is {given['flushMode']!r}: {', '.join(FLUSH_MODES)} are possible.")
    return SinkOptions(
        endpoints=endpoints_of(given),
        topic=given.get("topic", "").strip(),
        flush_mode=flush_mode,
        retry_seconds=seconds(given, "retrySeconds", RETRY_SECONDS_DEFAULT),
    )
