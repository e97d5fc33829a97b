"""The gateway's settings."""

from pathlib import Path
from typing import ClassVar, Literal, Self

import pydantic

from gateway.queries.page_token import KNOWN_TO_ALL
from gateway.shards.targets import ShardTargets, of_ordinals, parse_shards, parse_template
from services.object_uri import is_uri, named
from services.settings.service_settings import ServiceSettings, TlsFiles

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
    """Settings of the gateway.

    Attributes:
        broker_name: the name of the shard, when `shards` is empty.
        commitlog_target: the address of its commitlog service.
        consumequeue_target: the address of its consumequeue service.
        index_target: the address of its index service.
        consumer_target: the address of its consumer service.
        schedule_target: the address of its schedule service.
        shards: `NAME=commitlog=ADDRESS,consumequeue=ADDRESS,index=ADDRESS,consumer=ADDRESS,schedule=ADDRESS;...`, for
            several shards (or one). A shard without `consumer` delivers nothing; without `schedule` no message that waits.
            Replicas of a shard: an entry `NAME@REPLICA=...` for each (gateway/shards/leaders.py).
        shards_file: a file of such shards, read again when it changes. New shards join, known ones may move, and none
            is removed.
        shard_template: the same for shard `{i}` and each of its replicas, when shards are numbered from 0.
        shard_count: ordinals of the template that exist for certain: one that does not answer makes answers PARTIAL.
        shard_count_max: ordinals from `shard_count` on, below this, join once their commitlog answers.
        shards_poll_seconds: how often the file or the next ordinals are checked.
        builder_wait_millis: how long a query without freshness tokens waits at most for the queues or the index to have
            what the log had when it arrived. Then it is answered PARTIAL. 0: it does not wait.
        read_from: which replicas of a shard answer a request that does not choose: `leader`, `any` or `replica`
            (docs/replicas.md).
        page_token_secret: encrypts page tokens. The default is public and protects against mistakes only; a gateway whose
            clients sign in replaces it by a random one at each start, so its tokens are good for it alone. All gateways of
            the same clients need the same value.
        receive_invisible_millis_min: shortest invisible time that a consumer of RocketMQ's contract may ask for.
        poll_millis_min: shortest time that its polls wait; a deadline that is nearer is refused.
        delivery_delay_seconds_max: how far ahead the delivery time of a message may lie that comes by RocketMQ's contract;
            that of other messages is limited by the commitlog service.
        cluster_name: RocketMQ's name of the installation; replies to requests go to the topic `<cluster_name>_REPLY_TOPIC`. All
            gateways of an installation need the same value.
        archive: the directory that `reput pipeline archive` has written for these shards; None: no archive. Records
            that the log has dropped are read from it.
        cold: the place in an object store to which `reput pipeline ship-cold` ships these shards, `s3://BUCKET/PREFIX`; empty:
            none. Records that the log has dropped are read from it.
        cold_cache: the directory for what was read from there; of this gateway alone.
        cold_cache_bytes: the limit of that directory.
        console: `on` or `off`.
        console_address: where the console listens, `HOST:PORT` (port 0 = a free one).
        console_address_file: gets the bound address, before the gateway listens.
        console_host_names: host names that browsers may use for the console, separated by commas; `*`: any. IP
            addresses and localhost are always allowed. Other names are refused, because a page of another site could
            use a name that points to this address to read messages (DNS rebinding).
        console_reports: the directory of the pipeline's reports that the console shows; None: none.
        console_schemas: the directory of the schemas by which the console shows bodies; None: none.
        public_tls: whether clients use TLS when there is a certificate.
        public_tls_certificate: the PEM certificate chain for clients; None: `tls_certificate`.
        public_tls_key: its private key.
        client_ca: clients must show a certificate of this authority; None: no certificate is needed.
        auth: `on`: clients sign in, and everything that the access file does not allow is denied (docs/security.md).
        access_file: the rights of each client.
        jwt_keys_file: JWKS with the public keys of the issuer of JWTs; None: JWTs are refused.
        jwt_issuer: the `iss` that a JWT must have.
        jwt_audience: the `aud` that a JWT must have.
    """

    connection_poll_count: ClassVar[int] = CONNECTION_POLL_COUNT

    address: str = "127.0.0.1:8081"
    broker_name: str = pydantic.Field("broker-a", min_length=1)
    commitlog_target: str = "127.0.0.1:8082"
    consumequeue_target: str = "127.0.0.1:8083"
    index_target: str = "127.0.0.1:8084"
    consumer_target: str = "127.0.0.1:8085"
    schedule_target: str = "127.0.0.1:8086"
    shards: str = ""
    shards_file: Path | None = None
    shard_template: str = ""
    shard_count: int = pydantic.Field(1, ge=1, le=SHARD_COUNT_MAX)
    shard_count_max: int = pydantic.Field(SHARD_COUNT_MAX, ge=1, le=SHARD_COUNT_MAX)
    shards_poll_seconds: float = pydantic.Field(5.0, gt=0, le=3_600)
    builder_wait_millis: int = pydantic.Field(50, ge=0, le=BUILDER_WAIT_MILLIS_MAX)
    read_from: Literal["leader", "any", "replica"] = "leader"
    page_token_secret: str = pydantic.Field(KNOWN_TO_ALL, min_length=1)
    receive_invisible_millis_min: int = pydantic.Field(10_000, ge=0, le=43_200_000)
    poll_millis_min: int = pydantic.Field(5_000, ge=0, le=20_000)
    delivery_delay_seconds_max: int = pydantic.Field(86_400, ge=1, le=DELIVERY_DELAY_SECONDS_MAX)
    cluster_name: str = pydantic.Field("DefaultCluster", pattern="[a-zA-Z0-9_-]{1,100}")
    archive: Path | None = None
    cold: str = ""
    cold_cache: Path | None = None
    cold_cache_bytes: int = pydantic.Field(1 << 30, ge=0)
    public_tls: bool = True
    public_tls_certificate: Path | None = None
    public_tls_key: Path | None = None
    client_ca: Path | None = None
    auth: Literal["on", "off"] = "off"
    access_file: Path | None = None
    jwt_keys_file: Path | None = None
    jwt_issuer: str = ""
    jwt_audience: str = ""
    console: Literal["on", "off"] = "on"
    console_address: str = "127.0.0.1:8080"
    console_address_file: Path | None = None
    console_host_names: str = ""
    console_reports: Path | None = None
    console_schemas: Path | None = None

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
        if self.auth == "on" and self.access_file is None:
            raise ValueError("auth = on needs an access_file, which grants the rights")
        if self.jwt_keys_file is not None and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError(
                "jwt_keys_file needs jwt_issuer and jwt_audience: a JWT for another audience must be refused"
            )
        return self

    @property
    def server_tls_files(self) -> TlsFiles | None:
        """The certificate files for clients; clients show a certificate only if `client_ca` is set."""
        certificate = self.public_tls_certificate or self.tls_certificate
        key = self.public_tls_key or self.tls_key
        if not self.public_tls or certificate is None or key is None:
            return None
        return TlsFiles(certificate, key, self.client_ca)

    @property
    def checks_identities(self) -> bool:
        """False: the gateway checks its callers by `auth`, not by the identities of services."""
        return False

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
