"""The gateway's settings."""

from datetime import tzinfo
from pathlib import Path
from typing import ClassVar, Literal, Self
from zoneinfo import ZoneInfo

import pydantic

from gateway.queries.page import KNOWN_TO_ALL, check_topic
from gateway.shards.targets import ShardTargets, of_ordinals, parse_shards, parse_template
from services.object_uri import is_uri, named
from services.rocketmq.address import Address, parse_named_addresses
from services.rocketmq.proxy_header import parse_networks
from services.settings.service_settings import (
    ServiceSettings,
    TlsFiles,
    as_value_error,
    authority_of_nameservers,
    listens_at,
    setting,
    target,
)
from store.format.topic import TRACE_TOPIC

# The largest number that docs/scale.md models. Without a limit, a DNS name that answers for every ordinal would make
# an endless number of shards.
SHARD_COUNT_MAX = 1_000
# A hundred years: more is a mistake in the unit.
DELIVERY_DELAY_SECONDS_MAX = 100 * 366 * 86_400
# A builder that is so far behind is catching up, and a waiting query holds a thread.
BUILDER_WAIT_MILLIS_MAX = 10_000


# A poll for each topic and shard of a consumer, or for each queue if its group is ordered; several libraries share
# one connection among the consumers of a process. Its calls fit into the lane of calls (services/serving/lanes.py).
CONNECTION_POLL_COUNT = 512


class GatewaySettings(ServiceSettings):
    """Settings of the gateway."""

    connection_poll_count: ClassVar[int] = CONNECTION_POLL_COUNT

    address: str = listens_at("127.0.0.1:8081")
    broker_name: str = setting("broker-a", "The shard's name.", shared=True, min_length=1)
    commitlog_target: str = target("commitlog")
    consumequeue_target: str = target("consumequeue")
    index_target: str = target("index")
    consumer_target: str = target("consumer")
    schedule_target: str = target("schedule")
    # A shard without `consumer` delivers nothing; without `schedule` no message waits. Replicas of a shard: an entry
    # `NAME@REPLICA=...` for each (gateway/shards/leaders.py).
    shards: str = setting(
        "",
        "The shards; empty: the one of the targets.",
        unit="NAME=commitlog=ADDRESS,consumequeue=ADDRESS,index=ADDRESS,consumer=ADDRESS,schedule=ADDRESS;...",
    )
    # New shards join, known ones may move, and none is removed.
    shards_file: Path | None = setting(None, "File of shards, one a line as in shards; read again when it changes.")
    shard_template: str = setting(
        "",
        "Shards by ordinal {i}, from 0 on; with replicas `NAME-{i}@REPLICA=...;` for each.",
        unit="NAME-{i}=commitlog=ADDRESS-{i},consumequeue=ADDRESS-{i},index=ADDRESS-{i},consumer=ADDRESS-{i},schedule=ADDRESS-{i}",
    )
    # One that does not answer makes answers PARTIAL.
    shard_count: int = setting(
        1, "Ordinals of the template that always exist.", unit="shards", ge=1, le=SHARD_COUNT_MAX
    )
    shard_count_max: int = setting(
        SHARD_COUNT_MAX,
        "Ordinals below this join when their commitlog answers.",
        unit="shards",
        ge=1,
        le=SHARD_COUNT_MAX,
    )
    shards_poll_seconds: float = setting(
        5.0, "Interval between checks of the file or the next ordinals.", unit="seconds", gt=0, le=3_600
    )
    # For queries without freshness tokens; when it is over, the answer is PARTIAL.
    builder_wait_millis: int = setting(
        50,
        "Longest wait of a query for what the log had when it arrived; 0: none.",
        unit="milliseconds",
        ge=0,
        le=BUILDER_WAIT_MILLIS_MAX,
    )
    read_from: Literal["leader", "any", "replica"] = setting(
        "leader",
        "Which replicas answer a request that does not choose: leader, any (old records, and while none leads) or replica.",
    )
    # The default is public and protects against mistakes only; a gateway whose clients sign in replaces it by a random one
    # at each start, so its tokens are good for it alone.
    page_token_secret: str = setting(
        KNOWN_TO_ALL, "Encrypts page tokens; the same on every gateway of the same clients.", secret=True, min_length=1
    )
    receive_invisible_millis_min: int = setting(
        10_000,
        "Shortest invisible time of ReceiveMessage (RocketMQ's minInvisibleTimeMillsForRecv).",
        unit="milliseconds",
        ge=0,
        le=43_200_000,
    )
    # A deadline that is nearer is refused.
    poll_millis_min: int = setting(
        5_000,
        "Shortest wait of ReceiveMessage (RocketMQ's grpcClientConsumerMinLongPollingTimeoutMillis).",
        unit="milliseconds",
        ge=0,
        le=20_000,
    )
    # That of other messages is limited by the commitlog service.
    delivery_delay_seconds_max: int = setting(
        86_400,
        "How far ahead official clients may set the delivery of a message.",
        unit="seconds",
        ge=1,
        le=DELIVERY_DELAY_SECONDS_MAX,
    )
    # RocketMQ's name of the installation.
    cluster_name: str = setting(
        "DefaultCluster",
        "Replies to requests go to the topic <cluster_name>_REPLY_TOPIC; the same on every gateway.",
        pattern="[a-zA-Z0-9_-]{1,100}",
    )
    # Written by `reput pipeline archive`; records that the log has dropped are read from it.
    archive: Path | None = setting(None, "Archive of the shards, a directory; empty: none. Needs pyarrow.")
    # Written by `reput pipeline ship-cold`; likewise.
    cold: str = setting("", "Cold tier of the shards; empty: none. Needs pyarrow.", unit="s3://BUCKET/PREFIX")
    cold_cache: Path | None = setting(None, "Directory for what was read from the cold tier; of one gateway.")
    cold_cache_bytes: int = setting(1 << 30, "Limit of that directory.", unit="bytes", ge=0)
    public_tls: bool = setting(True, "Whether clients use TLS where there is a certificate.")
    public_tls_certificate: Path | None = setting(None, "PEM chain shown to clients; empty: tls_certificate.")
    public_tls_key: Path | None = setting(None, "PEM file of its private key.")
    client_ca: Path | None = setting(None, "PEM file: clients must show a certificate signed by it; empty: none.")
    # `on`: everything that the access file does not allow is denied (docs/security.md).
    auth: Literal["on", "off"] = setting("off", "Whether clients must sign in; on: access must be granted.")
    access_file: Path | None = setting(None, "TOML file of the rights of clients (docs/security.md).")
    tenants_file: Path | None = setting(None, "TOML file of the quotas of namespaces (docs/tenants.md); empty: none.")
    jwt_keys_file: Path | None = setting(None, "JWKS file of the issuers of accepted JWTs; empty: no JWTs.")
    jwt_issuer: str = setting("", "The `iss` that a JWT must have.")
    jwt_audience: str = setting("", "The `aud` that a JWT must have.")
    # RocketMQ's clients over gRPC sign a date only: within this time a signature that was read on its way can be used again.
    signature_window_seconds: float = setting(
        300, "How far the date of a call that is signed with an access key may be off.", unit="s", gt=0, le=86_400
    )
    # Java's, Python's, Go's and C#'s clients write the local time of their machine as if it was UTC.
    signature_time_zones: str = setting(
        "", "Time zones besides UTC whose local time such dates may be in.", unit="Asia/Shanghai,..."
    )
    # Each shard has a port of its own, because requests of old clients name no broker (ADR 0127).
    remoting_address: str = setting(
        "",
        "Where clients of RocketMQ's remoting protocol find the shards; port 0: a free one; off, or empty: nowhere.",
        unit="host:port|NAME=host:port,...",
    )
    remoting_vip_channel: Literal["on", "off"] = setting(
        "on", "Whether the port two below a fixed one serves the same, RocketMQ's fast port, where it is free."
    )
    nameservers_ca: Path | None = authority_of_nameservers()
    # Such a header names the client, for limits, logs and born hosts: no other address may send one.
    remoting_proxies: str = setting(
        "",
        "Proxies whose connections to remoting doors begin with a PROXY header (v1, v2); empty: none.",
        unit="10.0.0.7,10.1.0.0/28,...",
    )
    # RocketMQ's `tls.server.mode`. Its brokers are permissive; a port for both is no protection for who forgets TLS.
    remoting_tls: Literal["enforcing", "permissive"] = setting(
        "enforcing", "Whether remoting doors with a certificate close connections without TLS."
    )
    remoting_address_file: Path | None = setting(None, "File that gets the bound remoting addresses.")
    # Of TrackMessage, and so of `reput track` and the console.
    trace_topic: str = setting(
        TRACE_TOPIC, "Where clients with tracing on send traces, for a request that names no topic (docs/delivery.md)."
    )
    console: Literal["on", "off"] = setting("on", "Whether there is a console (docs/console.md).")
    console_address: str = setting("127.0.0.1:8080", "Where the console listens; port 0: a free one.", unit="host:port")
    console_address_file: Path | None = setting(None, "File that gets the console's bound address.")
    # Others are refused, because a page of another site could use a name that points to this address to read messages (DNS
    # rebinding).
    console_host_names: str = setting(
        "", "Host names that browsers may use; IPs and localhost: always.", unit="name,...|*"
    )
    console_reports: Path | None = setting(None, "Directory of the pipeline's reports that it shows; empty: none.")
    console_actions: Literal["on", "off"] = setting(
        "on", "Whether the console may change something, for those that may; off: it only shows."
    )
    console_schemas: Path | None = setting(None, "Directory of the schemas of message bodies; empty: none.")
    console_trace_url: str = setting(
        "",
        "Where a tracing tool shows a trace: a URL with {trace_id}, and {span_id} if it wants; empty: no links.",
        unit="url",
    )

    @pydantic.field_validator("trace_topic")
    @classmethod
    def _is_a_topic(cls, value: str) -> str:
        with as_value_error():
            check_topic(value, "trace_topic")
        return value

    @pydantic.field_validator("console_trace_url")
    @classmethod
    def _has_a_place_for_the_trace(cls, value: str) -> str:
        if value and not (value.startswith(("https://", "http://")) and "{trace_id}" in value):
            raise ValueError("must begin with https:// or http:// and hold {trace_id}")
        return value

    @pydantic.field_validator("remoting_address")
    @classmethod
    def _is_nowhere_if_off(cls, value: str) -> str:
        return "" if value == "off" else value

    @pydantic.field_validator("remoting_proxies")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        parse_networks(value)
        return value

    @pydantic.field_validator("signature_time_zones")
    @classmethod
    def _are_time_zones(cls, value: str) -> str:
        _time_zones(value)
        return value

    @pydantic.field_validator("shards")
    @classmethod
    def _are_shards(cls, value: str) -> str:
        parse_shards(value)
        return value

    @pydantic.field_validator("shard_template")
    @classmethod
    def _is_template(cls, value: str) -> str:
        if value:
            parse_template(value)
        return value

    @pydantic.model_validator(mode="after")
    def _has_doors_for_known_shards(self) -> Self:
        if self.remoting_address:
            with as_value_error():
                self.doors()
        return self

    @pydantic.model_validator(mode="after")
    def _come_from_one_place(self) -> Self:
        if sum(map(bool, (self.shards, self.shards_file, self.shard_template))) > 1:
            raise ValueError("give one of shards, shards_file and shard_template")
        return self

    @pydantic.model_validator(mode="after")
    def _reads_dropped_records_from_one_place(self) -> Self:
        # A gateway reads an archive as files; single messages of an object store are what
        # the cold tier is for.
        if self.archive is not None and is_uri(named(self.archive)):
            raise ValueError(
                "archive is a URI, and a gateway reads an archive from a directory only: ship the log to an object store with "
                "`reput pipeline ship-cold` and give cold, or mount the archive"
            )
        if self.cold and self.archive is not None:
            raise ValueError("give one of archive and cold: each has all that the log has dropped")
        if self.cold and self.cold_cache is None:
            raise ValueError("cold needs cold_cache, a directory of this gateway alone")
        return self

    @pydantic.model_validator(mode="after")
    def _is_secure_as_a_whole(self) -> Self:
        if (self.public_tls_certificate is None) != (self.public_tls_key is None):
            raise ValueError("public_tls_certificate and public_tls_key are set together or not at all")
        if self.client_ca is not None and self.server_tls_files is None:
            raise ValueError("client_ca needs TLS for clients: a certificate, and public_tls")
        if self.client_ca is not None and self.remoting_tls == "permissive":
            raise ValueError(
                "client_ca with remoting_tls = permissive lets clients in that show no certificate: set one of them"
            )
        if self.auth == "on" and self.access_file is None:
            raise ValueError("auth = on needs an access_file, which grants the rights")
        if self.jwt_keys_file is not None and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError(
                "jwt_keys_file needs jwt_issuer and jwt_audience: a JWT for another audience must be refused"
            )
        return self

    @property
    def time_zones(self) -> tuple[tzinfo, ...]:
        """Those of signature_time_zones."""
        return _time_zones(self.signature_time_zones)

    @property
    def server_tls_files(self) -> TlsFiles | None:
        """The certificate files for clients; clients show a certificate only if `client_ca` is set."""
        certificate = self.public_tls_certificate or self.tls_certificate
        key = self.public_tls_key or self.tls_key
        if not self.public_tls or certificate is None or key is None:
            return None
        return TlsFiles(certificate, key, self.client_ca)

    @property
    def are_doors_tls_only(self) -> bool:
        """Whether remoting doors close connections without TLS: where there is a certificate, unless they are permissive."""
        return self.server_tls_files is not None and self.remoting_tls == "enforcing"

    @property
    def checks_identities(self) -> bool:
        """False: the gateway checks its callers by `auth`, not by the identities of services."""
        return False

    def doors(self) -> dict[str, Address]:
        """Where the remoting door of each shard listens, by the shard's name; InvalidArgumentError."""
        names = list(dict.fromkeys(one.broker_name for one in self.shard_targets()))
        return parse_named_addresses(self.remoting_address, names, "remoting_address", port_min=0)

    def shard_targets(self) -> tuple[ShardTargets, ...]:
        """The shards that are known without discovery, at least one; without those of `shards_file`."""
        if self.shard_template:
            return of_ordinals(parse_template(self.shard_template), range(self.shard_count))
        one = ShardTargets(
            broker_name=self.broker_name,
            commitlog=self.commitlog_target,
            consumequeue=self.consumequeue_target,
            index=self.index_target,
            consumer=self.consumer_target,
            schedule=self.schedule_target,
        )
        return parse_shards(self.shards) or (one,)


def _time_zones(value: str) -> tuple[tzinfo, ...]:
    zones = []
    for name in filter(None, map(str.strip, value.split(","))):
        try:
            zones.append(ZoneInfo(name))
        except (OSError, ValueError, LookupError) as error:
            raise ValueError(f"{name!r} is no time zone that this machine knows, as Europe/Berlin is one") from error
    return tuple(zones)
