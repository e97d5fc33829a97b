"""Options of `format("rocketmq")`: names, meanings, and combinations that are refused.

Names are those of Spark's Kafka source where it has the option; upper and lower case are equal, as in Spark. An unknown
option is refused, with the nearest known name: otherwise a misspelt `failOnDataLoss` would silently have its default.

Which queues: one of                  from where: at most one of       up to where (batch): at most one of
    subscribe         topic,topic         startingOffsets                  endingOffsets
    subscribePattern  regular expression  startingTimestamp                endingTimestamp
    assign            JSON

How gateways are reached: TLS and credentials, by the paths of files or by the environment.

Spark prints options in plans and keeps them in its event log. So no option takes a key or a token: `tokenFile` names a file
with an API key or a JWT, and `REPUT_API_KEY` may stand in the environment. Files and environment are read where a connection
is opened, on the driver and on each executor; nothing secret is pickled.
"""

import dataclasses
import difflib
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pipeline.rocketmq.bodies.formats import BODY_OPTIONS, NO_BODIES, BodyOptions, body_options
from pipeline.rocketmq.positions import EARLIEST, LATEST, Bound, assigned_queues, bound_of
from pipeline.scan.options import OptionError, parse_size
from reput_client.security import ClientSecurity

SECURITY_OPTIONS = ("tls", "tlsCaFile", "tlsCertificateFile", "tlsKeyFile", "tokenFile")
_BY_VALUE = ("apikey", "token", "password", "secret")

Calls = TypeVar("Calls")


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The options; empty: what the environment says.

    Attributes:
        tls: TLS also without the options below, with a certificate of a public authority.
        ca_file: PEM file, the authority of the gateway's certificate (`REPUT_CLIENT_CA`).
        certificate_file: PEM file, the client's certificate chain (`REPUT_CLIENT_CERTIFICATE`).
        key_file: PEM file, its private key (`REPUT_CLIENT_KEY`).
        token_file: file with an API key or a JWT (`REPUT_TOKEN_FILE`, or `REPUT_API_KEY` with the key itself).
    """

    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    token_file: str = ""

    def security(self, environ: Mapping[str, str] = os.environ) -> ClientSecurity | None:
        """The security of this process's clients; None when neither the options nor the environment set any.

        Raises:
            OptionError: they do not fit together.
        """
        given = dict(environ)
        if self.ca_file:
            given["REPUT_CLIENT_CA"] = self.ca_file
        if self.certificate_file or self.key_file:
            given |= {"REPUT_CLIENT_CERTIFICATE": self.certificate_file, "REPUT_CLIENT_KEY": self.key_file}
        if self.token_file:
            given |= {"REPUT_TOKEN_FILE": self.token_file, "REPUT_API_KEY": ""}
        try:
            found = ClientSecurity.from_environment(given)
        except ValueError as error:
            raise OptionError(f"TLS and credentials: {error}.") from error
        if self.tls and not found.uses_tls:
            found = dataclasses.replace(found, tls=True)
        return None if found == ClientSecurity() else found


NO_SECURITY = SecurityOptions()


def security_options(given: Mapping[str, str]) -> SecurityOptions:
    """The options under their canonical spelling, checked; OptionError names the wrong one."""
    files = {name: given.get(name, "").strip() for name in SECURITY_OPTIONS if name != "tls"}
    if bool(files["tlsCertificateFile"]) != bool(files["tlsKeyFile"]):
        raise OptionError("Only one of the options tlsCertificateFile and tlsKeyFile is given: give both or none.")
    tls = given.get("tls", "false").strip().lower()
    if tls not in ("true", "false"):
        raise OptionError(f"Option tls is {given['tls']!r}: give true or false.")
    if tls == "false" and "tls" in given and (files["tlsCaFile"] or files["tlsCertificateFile"]):
        raise OptionError("Option tls is false, but certificates are given: leave out one of them.")
    return SecurityOptions(
        tls == "true", files["tlsCaFile"], files["tlsCertificateFile"], files["tlsKeyFile"], files["tokenFile"]
    )


def refuse_secrets(names: Iterable[str]) -> None:
    """OptionError for an option that would hold a secret; its value is not repeated."""
    for name in names:
        if name.lower().replace("_", "").replace("-", "") in _BY_VALUE:
            raise OptionError(
                f"Option {name} would show its value in plans and logs: write it into a file and give option tokenFile, or "
                "set REPUT_API_KEY on the driver and the executors."
            )


def opened(endpoint: str, open_client: Callable[[ClientSecurity | None], Calls], options: SecurityOptions) -> Calls:
    """A client of the gateway, opened with what the options and the environment of this machine say.

    Raises:
        OptionError: a file cannot be read here, or a token would be sent to another machine without TLS.
    """
    try:
        return open_client(options.security())
    except OSError as error:
        raise OptionError(f"TLS and credentials for {endpoint}: {error} on this machine.") from error
    except ValueError as error:
        raise OptionError(f"TLS and credentials for {endpoint}: {error}.") from error


NATIVE = "native"
KAFKA = "kafka"
VIEWS = (NATIVE, KAFKA)
# A gateway that restarts is back within seconds; after a minute the query fails, so that the fault is noticed.
RETRY_SECONDS_DEFAULT = 60.0

READ_OPTIONS = (
    "endpoint",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "tags",
    "sql",
    "view",
    "includeHeaders",
    "includeBroker",
    "includeBody",
    "columns",
    "decompress",
    "readFrom",
    "consumerGroup",
    "retrySeconds",
    *BODY_OPTIONS,
    *SECURITY_OPTIONS,
)
READ_FROM = ("default", "leader", "any", "replica")
BATCH = "batch"
STREAM = "stream"
REFUSED_BY_MODE = {
    # Spark does not tell a source that a batch is done.
    BATCH: ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "consumerGroup"),
    STREAM: ("endingOffsets", "endingTimestamp"),
}
_CHOICES = (
    ("subscribe", "subscribePattern", "assign"),
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
    ("tags", "sql"),
    # Spark passes a source written in Python at most one limit.
    ("maxOffsetsPerTrigger", "maxBytesPerTrigger"),
)
# What RocketMQ takes off the ends of a tag, Java's `String.trim`: a tag has to be the same here and in the services.
_JAVA_BLANKS = "".join(map(chr, range(33)))
_BOOLEANS = {"true": True, "false": False}
_HINTS = {
    "path": "files are read by format commitlog; for this format give the gateway as option endpoint",
    "topic": "to read, give option subscribe",
    "topics": "to read, give option subscribe",
    "nameserver": "give the gateway as option endpoint",
    "namesrvaddr": "give the gateway as option endpoint",
    "kafka.bootstrap.servers": "give the gateway as option endpoint",
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which queues to read: one of the three is set.

    Attributes:
        topics: all queues of these topics.
        pattern: all queues of the topics whose whole name matches.
        assigned: queue ids by topic and broker name; the broker name "" means every shard.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of a query.

    Attributes:
        endpoints: the gateways; each has shards of its own.
        subscription: which queues.
        start: where to begin; a stream uses it only without a checkpoint.
        end: where a batch ends, exclusive.
        max_offsets_per_trigger: messages of a micro-batch, over all queues; None: no limit.
        max_bytes_per_trigger: estimated bytes of a micro-batch's records; None: no limit.
        min_partitions: least number of tasks, if there are as many messages.
        fail_on_data_loss: messages that retention removed are an error; otherwise they are skipped with a warning.
        tags: the tags of the messages to read; empty: all.
        sql: RocketMQ's SQL92 over the properties of the messages to read; empty: all.
        bodies: the native view has the bodies decoded, if a format is given.
        view: `native` or `kafka`.
        include_headers: the Kafka view has the properties, too.
        include_broker: the native view has the broker name of the message's shard.
        include_body: the native view has the bodies.
        columns: the columns to read; None: all.
        decompress: bodies as their producers sent them, not as they are stored.
        retry_seconds: how long a gateway that does not answer is tried, in seconds.
        security: TLS and credentials.
        read_from: which replicas of a shard messages are read from: a name in READ_FROM.
        consumer_group: the group whose positions are set after each micro-batch; empty: none.
    """

    endpoints: tuple[str, ...]
    subscription: Subscription
    start: Bound
    end: Bound
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    tags: frozenset[str]
    view: str
    include_headers: bool
    include_broker: bool
    include_body: bool
    columns: tuple[str, ...] | None
    decompress: bool
    retry_seconds: float
    security: SecurityOptions = NO_SECURITY
    read_from: str = READ_FROM[0]
    consumer_group: str = ""
    sql: str = ""
    bodies: BodyOptions = NO_BODIES


def read_options(options: Mapping[str, str], mode: str = "") -> ReadOptions:
    """The options of a query, checked.

    Args:
        options: as the user gave them.
        mode: BATCH or STREAM; options of the other mode are refused. Empty, when only the schema is asked for: both pass.

    Raises:
        OptionError: names the wrong option.
    """
    given = given_options(options, READ_OPTIONS)
    for choice in _CHOICES:
        chosen = [name for name in choice if name in given]
        if len(chosen) > 1:
            raise OptionError(f"Options {' and '.join(chosen)} are given: give only one of {', '.join(choice)}.")
    for name in REFUSED_BY_MODE.get(mode, ()):
        if name in given:
            raise OptionError(f"Option {name} has no meaning for a {mode}: leave it out.")
    view = _one_of(given, "view", VIEWS)
    for name, only_in in (
        ("includeHeaders", KAFKA),
        ("includeBroker", NATIVE),
        ("includeBody", NATIVE),
        ("bodyFormat", NATIVE),
    ):
        if name in given and view != only_in:
            raise OptionError(f"Option {name} belongs to view={only_in}, not to view={view}: leave it out.")
    columns = given.get("columns")
    return ReadOptions(
        endpoints=endpoints_of(given),
        subscription=_subscription(given),
        # As Spark's Kafka source: by default a batch reads all existing messages, a stream only new ones.
        start=bound_of(
            given,
            "startingOffsets",
            "startingTimestamp",
            default=LATEST if mode == STREAM else EARLIEST,
            refused=LATEST if mode == BATCH else None,
        ),
        end=bound_of(given, "endingOffsets", "endingTimestamp", default=LATEST, refused=EARLIEST),
        max_offsets_per_trigger=_whole(given, "maxOffsetsPerTrigger", int),
        max_bytes_per_trigger=_whole(given, "maxBytesPerTrigger", parse_size),
        min_partitions=_whole(given, "minPartitions", int) or 1,
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        tags=_tags(given),
        view=view,
        include_headers=boolean(given, "includeHeaders", default=False),
        include_broker=boolean(given, "includeBroker", default=False),
        include_body=boolean(given, "includeBody", default=True),
        columns=None if columns is None else tuple(columns.split(",")),
        # Readers of Kafka never see compressed values. sysFlag and bodyCRC of the native view describe the stored bytes.
        decompress=boolean(given, "decompress", default=view == KAFKA),
        retry_seconds=seconds(given, "retrySeconds", RETRY_SECONDS_DEFAULT),
        security=security_options(given),
        read_from=_one_of(given, "readFrom", READ_FROM),
        consumer_group=_text(given, "consumerGroup", "the name of a consumer group"),
        bodies=body_options(given),
        sql=_text(given, "sql", "an expression such as: amount > 100 AND TAGS IN ('a', 'b')"),
    )


def given_options(options: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """The options under their canonical spelling; OptionError for an unknown one."""
    refuse_secrets(options)
    spelling = {name.lower(): name for name in known}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() not in spelling:
            raise OptionError(_unknown(name, known))
        given[spelling[name.lower()]] = value
    return given


def _unknown(name: str, known: Collection[str]) -> str:
    if name.lower() in _HINTS and "subscribe" in known:
        return f"There is no option {name!r}: {_HINTS[name.lower()]}."
    by_lower = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)
    return f"There is no option {name!r}: did you mean {by_lower[near[0]]}? Known options: {', '.join(known)}."


def endpoints_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses of the gateways; OptionError without one, or for a wrong or repeated one."""
    endpoints = tuple(part.strip() for part in given.get("endpoint", "").split(",") if part.strip())
    if not endpoints:
        raise OptionError("Option endpoint is missing: give the gateway's HOST:PORT, or several, separated by commas.")
    if len(set(endpoints)) < len(endpoints):
        raise OptionError(f"Option endpoint names a gateway twice: {', '.join(endpoints)}. Name it once.")
    for endpoint in endpoints:
        host, colon, port = endpoint.rpartition(":")
        if not endpoint.startswith("unix:") and not (host and colon and port.isdecimal()):
            raise OptionError(f"Option endpoint: {endpoint!r} is not HOST:PORT. Give such an address, or unix:/path.")
    return endpoints


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """The option as true or false; OptionError for other values."""
    if name not in given:
        return default
    value = _BOOLEANS.get(given[name].strip().lower())
    if value is None:
        raise OptionError(f"Option {name} is {given[name]!r}: give true or false.")
    return value


def seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """The option as seconds above 0; OptionError for other values."""
    try:
        value = float(given.get(name, default))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise OptionError(f"Option {name} is {given[name]!r}: give a number of seconds above 0.")
    return value


def _whole(given: Mapping[str, str], name: str, parse: Callable[[str], int]) -> int | None:
    if name not in given:
        return None
    try:
        number = parse(given[name].strip())
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(f"Option {name} is {given[name]!r}: give a whole number of 1 or more.")
    return number


def _one_of(given: Mapping[str, str], name: str, values: Collection[str]) -> str:
    value = given.get(name, next(iter(values))).strip().lower()
    if value not in values:
        raise OptionError(f"Option {name} is {given[name]!r}: give {' or '.join(values)}.")
    return value


def _text(given: Mapping[str, str], name: str, what: str) -> str:
    if name in given and not given[name].strip():
        raise OptionError(f"Option {name} is empty: give {what}, or leave it out.")
    return given.get(name, "").strip()


def _tags(given: Mapping[str, str]) -> frozenset[str]:
    """The tags of a RocketMQ tag expression: `TagA || TagB`, or `*` for all."""
    text = given.get("tags", "*").strip()
    tags = frozenset(part.strip().strip(_JAVA_BLANKS) for part in text.split("||"))
    if not all(tags):
        raise OptionError(f"Option tags is {given['tags']!r}: give TagA || TagB, or * for all.")
    return frozenset() if "*" in tags else tags


def _subscription(given: Mapping[str, str]) -> Subscription:
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(part.strip() for part in given["subscribe"].split(",") if part.strip()))
        if not topics:
            raise OptionError("Option subscribe names no topic: give one or several, separated by commas.")
        return Subscription(topics=topics)
    if "subscribePattern" in given:
        try:
            re.compile(given["subscribePattern"])
        except re.error as error:
            raise OptionError(f"Option subscribePattern is not a regular expression of Python: {error}.") from error
        return Subscription(pattern=given["subscribePattern"])
    if "assign" in given:
        return Subscription(assigned=assigned_queues(given["assign"]))
    raise OptionError("The queues to read are not given: give one of subscribe, subscribePattern, assign.")
