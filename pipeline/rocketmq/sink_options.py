"""Options of the sink: where rows go, and when they count as stored."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.rocketmq.options import RETRY_SECONDS_DEFAULT, endpoints_of, given_options, seconds
from pipeline.rocketmq.security import NO_SECURITY, SECURITY_OPTIONS, SecurityOptions, security_options
from pipeline.scan.options import OptionError
from reput_client import FlushMode

# Spark adds these options when a stream is started.
OF_SPARK = ("checkpointLocation", "queryName", "path")
SINK_OPTIONS = ("endpoint", "topic", "flushMode", "retrySeconds", "writeId", *SECURITY_OPTIONS)
FLUSH_MODES = {"sync": FlushMode.SYNC, "async": FlushMode.ASYNC, "default": FlushMode.SERVER_DEFAULT}
# A name given by hand is shorter; it stands in plans.
WRITE_ID_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a sink.

    Attributes:
        endpoints: the gateways, each with one shard; a partition always uses the same one.
        topic: the topic of all rows; empty: column topic of each row.
        flush_mode: when a row counts as stored: a key of FLUSH_MODES.
        retry_seconds: how long a row is tried, in seconds.
        security: TLS and credentials.
        write_id: tells several writes of one micro-batch apart; empty: there is one.
    """

    endpoints: tuple[str, ...]
    topic: str
    flush_mode: str
    retry_seconds: float
    security: SecurityOptions = NO_SECURITY
    write_id: str = ""


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
    write_id = given.get("writeId", "").strip()
    if len(write_id) > WRITE_ID_LENGTH_MAX:
        raise OptionError(
            f"Option writeId has {len(write_id)} characters: give at most {WRITE_ID_LENGTH_MAX}, such as the name of the write."
        )
    return SinkOptions(
        endpoints=endpoints_of(given),
        topic=given.get("topic", "").strip(),
        flush_mode=flush_mode,
        retry_seconds=seconds(given, "retrySeconds", RETRY_SECONDS_DEFAULT),
        security=security_options(given),
        write_id=write_id,
    )
