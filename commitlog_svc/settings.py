"""The commit log's settings."""

from collections.abc import Collection
from pathlib import Path
from typing import Literal, Self

import pydantic

from commitlog_svc.nameservers import parse_nameservers
from commitlog_svc.replication.replicated_log import FETCH_COUNT_MAX, ReplicaLimits
from commitlog_svc.reput.followers import parse_names
from commitlog_svc.retention.disk_space import DiskLimits
from commitlog_svc.retention.retention import RetentionLimits, parse_delete_hours
from services.coordination.access import CoordinatorAccess
from services.rocketmq.address import Address, parse_address, parse_addresses, parse_named_addresses
from services.settings.service_settings import (
    TARGETS,
    StoreSettings,
    as_value_error,
    authority_of_nameservers,
    listens_at,
    setting,
)
from store.files.locks import LOCK_WAIT_SECONDS
from store.format.delivery.timer_files import BLANK_SIZE_BYTES, FILE_SIZE_BYTES_DEFAULT, UNIT_SIZE_BYTES
from store.format.host import Host
from store.format.topic import LIGHT_QUEUE_COUNT_MAX

REPLICA_NAME_PATTERN = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"  # a DNS label, as the name of a pod
FILE_SIZE_BYTES_MIN = 4096
# A record's size is a signed 32-bit number, and so is a blank's.
FILE_SIZE_BYTES_MAX = (1 << 31) - 1
TIMER_MAX_DELAY_SECONDS_MAX = 100 * 366 * 86_400  # a hundred years; a time must stay one that a Timestamp holds
FILE_RESERVED_SECONDS_MAX = 100 * 366 * 86_400  # a hundred years, practically without end


class CommitLogSettings(StoreSettings):
    """Settings of the commitlog service; sizes are bytes, times milliseconds."""

    address: str = listens_at(TARGETS["commitlog"])
    file_size_bytes: int = setting(
        1 << 30,
        "Size of a log file; an existing log decides itself.",
        unit="bytes",
        ge=FILE_SIZE_BYTES_MIN,
        le=FILE_SIZE_BYTES_MAX,
    )
    lock_wait_seconds: float = setting(
        LOCK_WAIT_SECONDS, "How long a start waits for a process that has the store.", unit="seconds", ge=0.0, le=3600.0
    )
    timer_log_file_size_bytes: int = setting(
        FILE_SIZE_BYTES_DEFAULT,
        "Size of a file in timerlog/, for a broker that takes the store over; existing files decide themselves.",
        unit="bytes",
        ge=UNIT_SIZE_BYTES + BLANK_SIZE_BYTES,
        le=FILE_SIZE_BYTES_MAX,
    )
    # Whether it waits for the disk, or for the in-sync replicas.
    flush_mode: Literal["async", "sync", "replicated"] = setting(
        "async", "When an append is answered, unless the append itself states it."
    )
    # Of a record for which no request waits.
    flush_interval_millis: int = setting(
        10, "Maximum age of an unflushed record.", unit="milliseconds", ge=1, le=60_000
    )
    unflushed_bytes_max: int = setting(
        32 << 20, "Maximum of unflushed bytes; further appends wait for the disk.", unit="bytes", ge=1 << 20, le=1 << 30
    )
    message_size_bytes_max: int = setting(4 << 20, "Largest body of a message.", unit="bytes", ge=1, le=1 << 30)
    # It closes the record and guards all of it.
    properties_crc: bool = setting(True, "Write RocketMQ's __CRC32# property.")
    auto_create_topic: bool = setting(True, "The first message of a topic creates it.")
    # RocketMQ's enableLmq and enableMultiDispatch. A client that may send to one topic may then send to every light queue.
    enable_lmq: bool = setting(
        False, "Messages go to the light queues (LMQ) that INNER_MULTI_DISPATCH names; lite topics do not need it."
    )
    light_queue_count_max: int = setting(
        LIGHT_QUEUE_COUNT_MAX,
        "Light queues and lite topics of the shard; one more is refused.",
        unit="queues",
        ge=1,
        le=1 << 26,
    )
    default_topic_queue_count: int = setting(
        8, "Queues of a topic made by its first message.", unit="queues", ge=1, le=65_536
    )
    timer_max_delay_seconds: int = setting(
        259_200,
        "How far ahead the delivery time of a message may be.",
        unit="seconds",
        ge=1,
        le=TIMER_MAX_DELAY_SECONDS_MAX,
    )
    # From the moment when the file was first seen complete.
    file_reserved_seconds: int = setting(
        259_200, "Log files expire so long after their last record.", unit="seconds", ge=1, le=FILE_RESERVED_SECONDS_MAX
    )
    delete_when_hours: str = setting(
        "04", "Hours, local time, at which expired log files are removed.", unit="HH;HH..."
    )
    disk_clean_ratio_percent: int = setting(
        75, "Disk in use: expired log files are removed at any hour.", unit="percent", ge=1, le=100
    )
    disk_clean_forcibly_ratio_percent: int = setting(
        85, "Disk in use: log files are removed before they expire.", unit="percent", ge=1, le=100
    )
    disk_full_ratio_percent: int = setting(90, "Disk in use: appends are refused.", unit="percent", ge=1, le=100)
    disk_clean_free_bytes: int = setting(10 << 30, "Only if no more is free does that ratio count.", unit="bytes", ge=0)
    disk_clean_forcibly_free_bytes: int = setting(
        3 << 30, "Only if no more is free does that ratio count.", unit="bytes", ge=0
    )
    disk_full_free_bytes: int = setting(1 << 30, "Only if no more is free does that ratio count.", unit="bytes", ge=0)
    clean_file_forcibly_enabled: bool = setting(True, "Log files may be removed before they expire.")
    delete_files_interval_millis: int = setting(
        100, "Minimum time between two removals of files.", unit="milliseconds", ge=0, le=60_000
    )
    delete_file_batch_count_max: int = setting(
        10, "Maximum of removals in each interval below.", unit="files", ge=1, le=50
    )
    clean_resource_interval_millis: int = setting(
        10_000, "The interval of that maximum.", unit="milliseconds", ge=0, le=3_600_000
    )
    # Others join with their first report (docs/adr/0037-followers-and-the-confirm-offset.md).
    followers: str = setting("consumequeue,index", "Followers that retention always waits for.", unit="name,...")
    # ADR 0127, 0134.
    nameservers: str = setting(
        "",
        "Name servers of RocketMQ at which the shard registers with its store host; off, empty: none.",
        unit="host:port;tls://host:port;...|off",
        shared=True,
    )
    nameservers_ca: Path | None = authority_of_nameservers()
    # ADR 0136.
    broker_address: str = setting(
        "",
        "Where clients reach the remoting door: told to name servers, and its IP is the store host; empty: store_host.",
        unit="host:port|NAME=host:port,...",
    )
    cluster_name: str = setting(
        "DefaultCluster", "RocketMQ's brokerClusterName, for name servers.", pattern="[a-zA-Z0-9_-]{1,100}"
    )
    rocketmq_ha_address: str = setting(
        "",
        "Where slaves of RocketMQ copy this log, without TLS and for everybody who reaches it; empty: nowhere.",
        unit="host:port",
    )
    rocketmq_slaves: str = setting(
        "", "Those slaves' own ports (listenPort): they are told where their master is.", unit="host:port,..."
    )
    # Without one, the settings of replicas below have no effect (docs/adr/0061-the-log-is-copied-byte-for-byte.md).
    coordinator: str = setting(
        "",
        "Where the replicas of the shard agree on who leads; empty: the shard has one copy.",
        unit="etcd://HOST:PORT[,...]/PREFIX or kubernetes://NAMESPACE/LEASE_PREFIX",
    )
    # Only if its own log has no epoch yet. One replica is enough; where a store with messages gets replicas, only the one
    # with the messages may.
    coordinator_creates_shard: bool = setting(
        True,
        "Make the coordinator's record of the shard if it has none; false on replicas that join a store with messages.",
    )
    coordinator_ca: Path | None = setting(
        None, "PEM file, the authority of the coordinator; empty: the system's, or the pod's."
    )
    coordinator_certificate: Path | None = setting(None, "PEM chain that etcd is shown.")
    coordinator_key: Path | None = setting(None, "PEM file of its private key.")
    coordinator_user: str = setting("", "User of etcd; empty: none.")
    coordinator_password_file: Path | None = setting(None, "File with that user's password.")
    replica_name: str = setting(
        "", "Name of this replica among those of its shard; with a coordinator.", pattern=REPLICA_NAME_PATTERN
    )
    replica_address: str = setting(
        "", "Where other replicas find this one; empty: the bound address.", unit="host:port"
    )
    min_in_sync: int = setting(
        2,
        "Appends with FLUSH_MODE_REPLICATED need so many in-sync replicas, the leader among them.",
        unit="replicas",
        ge=1,
        le=15,
    )
    lease_seconds: float = setting(
        4.0, "How long a leader may go on without the coordinator.", unit="seconds", ge=0.5, le=600.0
    )
    renew_seconds: float = setting(
        1.0, "Time between two renewals of the leader's lease.", unit="seconds", ge=0.05, le=100.0
    )
    lag_seconds_max: float = setting(
        5.0, "A replica that lags more leaves the in-sync set until it is back.", unit="seconds", ge=0.5, le=3600.0
    )
    replication_bytes_per_second_max: int = setting(
        0, "Most bytes of the log a second that a leader sends to one replica; 0: no limit.", unit="bytes", ge=0
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Of the machine's memory, expected to hold the end of the log; replicas may read older records.",
        unit="percent",
        ge=0,
        le=100,
    )
    replication_fetch_count: int = setting(
        3,
        "Whole log files that this replica fetches at the same time while it is far behind.",
        unit="1 to 8",
        ge=1,
        le=FETCH_COUNT_MAX,
    )

    @pydantic.field_validator("store_host")
    @classmethod
    def _is_host(cls, value: str) -> str:
        with as_value_error():
            host = Host.parse(value)
        return str(host)

    @pydantic.field_validator("delete_when_hours")
    @classmethod
    def _are_hours(cls, value: str) -> str:
        with as_value_error():
            parse_delete_hours(value)
        return value

    @pydantic.field_validator("followers")
    @classmethod
    def _are_followers(cls, value: str) -> str:
        with as_value_error():
            parse_names(value)
        return value

    @pydantic.field_validator("nameservers")
    @classmethod
    def _are_nameservers(cls, value: str) -> str:
        with as_value_error():
            return "" if value == "off" else str(value) if parse_nameservers(value) else ""

    @pydantic.field_validator("rocketmq_slaves")
    @classmethod
    def _are_slaves(cls, value: str) -> str:
        with as_value_error():
            parse_addresses(value)
        return value

    @pydantic.field_validator("rocketmq_ha_address")
    @classmethod
    def _is_listen_address(cls, value: str) -> str:
        with as_value_error():
            if value:
                parse_address(value, port_min=0)
        return value

    @pydantic.model_validator(mode="after")
    def _broker_address_is_one(self) -> Self:
        with as_value_error():
            self.door()
        return self

    @pydantic.model_validator(mode="after")
    def _replica_is_named(self) -> Self:
        if self.coordinator and not self.replica_name:
            raise ValueError(
                "coordinator is set and replica_name is not: each replica of a shard needs a name of its own"
            )
        if self.coordinator and self.read_only:
            raise ValueError("coordinator and read_only are both set: a replica writes its log")
        if self.coordinator and self.mirror:
            raise ValueError("coordinator and mirror are both set: a mirror has one copy")
        if self.flush_mode == "replicated" and not self.coordinator:
            raise ValueError(
                "flush_mode is replicated and coordinator is not set: a shard with one copy has sync at most"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _lease_is_renewed_in_time(self) -> Self:
        if self.renew_seconds > self.lease_seconds / 2:
            raise ValueError("renew_seconds is more than half of lease_seconds: one slow renewal would end the lease")
        if (self.coordinator_certificate is None) != (self.coordinator_key is None):
            raise ValueError("coordinator_certificate and coordinator_key are set together or not at all")
        return self

    def door(self) -> Address | None:
        """Where clients reach the shard's remoting door, as `broker_address` says; None: it says nothing of this shard."""
        return parse_named_addresses(self.broker_address, [self.broker_name], "broker_address").get(self.broker_name)

    @property
    def coordinator_access(self) -> CoordinatorAccess:
        """How the coordinator is reached."""
        return CoordinatorAccess(
            self.coordinator_ca,
            self.coordinator_certificate,
            self.coordinator_key,
            self.coordinator_user,
            self.coordinator_password_file,
        )

    @property
    def replica_limits(self) -> ReplicaLimits:
        """See ReplicaLimits."""
        return ReplicaLimits(
            self.min_in_sync,
            self.lag_seconds_max,
            self.replication_bytes_per_second_max,
            self.replication_fetch_count,
        )

    @property
    def follower_names(self) -> Collection[str]:
        """The followers that are expected."""
        return parse_names(self.followers)

    @property
    def retention_limits(self) -> RetentionLimits:
        """When log files are removed."""
        return RetentionLimits(
            self.file_reserved_seconds * 1000,
            parse_delete_hours(self.delete_when_hours),
            self.delete_files_interval_millis,
            self.delete_file_batch_count_max,
            self.clean_resource_interval_millis,
            self.clean_file_forcibly_enabled,
        )

    @property
    def disk_limits(self) -> DiskLimits:
        """The levels of the disk; see retention/disk_space.py."""
        return DiskLimits(
            self.disk_clean_ratio_percent,
            self.disk_clean_forcibly_ratio_percent,
            self.disk_full_ratio_percent,
            self.disk_clean_free_bytes,
            self.disk_clean_forcibly_free_bytes,
            self.disk_full_free_bytes,
        )
