"""Options of the sink: where rows go, and when they count as stored."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.rocketmq.options import RETRY_SECONDS_DEFAULT, endpoints_of, given_options, seconds
from pipeline.rocketmq.security import NO_SECURITY, SECURITY_OPTIONS, SecurityOptions, security_options
from pipeline.scan.options import OptionError
from reput_client import FlushMode

# Spark adds these options when a stream is started.
OF_SPARK = ("checkpointLocation", "queryName", "path")
SINK_OPTIONS = ("endpoint", "topic", "flushMode", "retrySeconds", *SECURITY_OPTIONS)
FLUSH_MODES = {"sync": FlushMode.SYNC, "async": FlushMode.ASYNC, "default": FlushMode.SERVER_DEFAULT}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a sink.

    Attributes:
        endpoints: the gateways, each with one shard; a partition always uses the same one.
        topic: the topic of all rows; empty: column topic of each row.
        flush_mode: when a row counts as stored: a key of FLUSH_MODES.
        retry_seconds: how long a row is tried, in seconds.
        security: TLS and credentials.
    """

    endpoints: tuple[str, ...]
    topic: str
    flush_mode: str
    retry_seconds: float
    security: SecurityOptions = NO_SECURITY


def sink_options(options: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    """The options of a sink, checked.

    Args:
        options: as the user gave them.
        overwrite: the mode is not append.

    Raises:
        OptionError: names the wrong option.
    """
    if overwrite:
        raise OptionError("A topic cannot be overwritten, only appended to: use mode append.")
    given = given_options(
        {name: value for name, value in options.items() if name.lower() not in {other.lower() for other in OF_SPARK}},
        SINK_OPTIONS,
    )
    flush_mode = given.get("flushMode", "sync").strip().lower()
    if flush_mode not in FLUSH_MODES:
        raise OptionError(f"Option flushMode is {given['flushMode']!r}: give one of {', '.join(FLUSH_MODES)}.")
    return SinkOptions(
        endpoints=endpoints_of(given),
        topic=given.get("topic", "").strip(),
        flush_mode=flush_mode,
        retry_seconds=seconds(given, "retrySeconds", RETRY_SECONDS_DEFAULT),
        security=security_options(given),
    )
