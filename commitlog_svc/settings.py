"""The commit log's settings."""

from collections.abc import Collection
from pathlib import Path
from typing import Literal, Self

import pydantic

from commitlog_svc.replication.limits import FETCH_COUNT_MAX, ReplicaLimits
from commitlog_svc.reput.followers import parse_names
from commitlog_svc.retention.disk_space import DiskLimits
from commitlog_svc.retention.retention import RetentionLimits
from commitlog_svc.retention.retention_times import parse_delete_hours
from services.coordination.access import CoordinatorAccess
from services.rocketmq.address import parse_address, parse_addresses
from services.settings.service_settings import StoreSettings, as_value_error
from store.files.locks import LOCK_WAIT_SECONDS
from store.format.delivery.timer_files import BLANK_SIZE_BYTES, FILE_SIZE_BYTES_DEFAULT, UNIT_SIZE_BYTES
from store.format.host import Host

REPLICA_NAME_PATTERN = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"  # a DNS label, as the name of a pod
FILE_SIZE_BYTES_MIN = 4096
# A record's size is a signed 32-bit number, and so is a blank's.
FILE_SIZE_BYTES_MAX = (1 << 31) - 1
TIMER_MAX_DELAY_SECONDS_MAX = 100 * 366 * 86_400  # a hundred years; a time must stay one that a Timestamp holds
FILE_RESERVED_SECONDS_MAX = 100 * 366 * 86_400  # a hundred years, practically without end


class CommitLogSettings(StoreSettings):
    """Settings of the commitlog service; sizes are bytes, times milliseconds.

    Attributes:
        file_size_bytes: size of a new store's log files; an existing store keeps its size.
        lock_wait_seconds: how long a start waits for the process that has the store, which may still be ending.
        timer_log_file_size_bytes: size of the files in timerlog/; files of a broker keep theirs.
        flush_mode: whether an append waits for the disk, or for the in-sync replicas, when its request does not say.
        flush_interval_millis: the greatest age of an unflushed record for which no request waits.
        unflushed_bytes_max: the most unflushed bytes; at this limit appends wait for the disk.
        message_size_bytes_max: the largest body.
        properties_crc: close each record with RocketMQ's `__CRC32#`, which guards all of it.
        auto_create_topic: the first message of a topic creates it.
        default_topic_queue_count: number of queues of a topic that is created so.
        timer_max_delay_seconds: how far ahead the time may be at which a message is delivered.
        file_reserved_seconds: time after which a log file expires, from the moment it was first seen complete.
        delete_when_hours: hours of the day, local time, at which expired files are removed; `04` or `04;16`.
        disk_clean_ratio_percent, disk_clean_free_bytes: disk use and free bytes at which expired files
            are removed at any hour.
        disk_clean_forcibly_ratio_percent, disk_clean_forcibly_free_bytes: likewise: files are removed before they expire.
        disk_full_ratio_percent, disk_full_free_bytes: likewise: appends are refused.
        clean_file_forcibly_enabled: whether files may be removed before they expire.
        delete_files_interval_millis: least time between the removals of two files.
        delete_file_batch_count_max: most files removed in each clean_resource_interval_millis.
        clean_resource_interval_millis: see above.
        followers: names of the followers that retention waits for from the start, with commas between them. Others join
            with their first report (docs/adr/0037-followers-and-the-confirm-offset.md).
        rocketmq_ha_address: `host:port` where slaves of RocketMQ copy this log; empty: nowhere.
        rocketmq_slaves: `host:port,...`, the slaves' own ports: they are told where their master is.
        coordinator: where the replicas of the shard agree on who leads; empty: the shard has one copy, and nothing of the
            settings below counts (docs/adr/0061-the-log-is-copied-byte-for-byte.md).
        coordinator_creates_shard: this replica makes the record of a shard that has none, if its own log has no epoch yet. One
            replica is enough; where a store with messages gets replicas, only the one with the messages may.
        coordinator_ca, coordinator_certificate, coordinator_key, coordinator_user, coordinator_password_file: see
            CoordinatorAccess.
        replica_name: of this replica.
        replica_address: where other replicas find this one; empty: the bound address.
        min_in_sync: replicas that a `replicated` append needs, the leader among them.
        lease_seconds: how long a leader may go on without the coordinator.
        renew_seconds: between two renewals.
        lag_seconds_max: a replica that lags more leaves the in-sync set.
        replication_bytes_per_second_max: of the log to one replica; 0: no limit.
        access_message_in_memory_max_ratio: percent of the machine's memory that is expected to hold the end of the log; older
            records are cold, and replicas may read them (RocketMQ's accessMessageInMemoryMaxRatio).
        replication_fetch_count: whole log files that this replica fetches at the same time while it is far behind.
    """

    address: str = "127.0.0.1:8082"
    file_size_bytes: int = pydantic.Field(1 << 30, ge=FILE_SIZE_BYTES_MIN, le=FILE_SIZE_BYTES_MAX)
    lock_wait_seconds: float = pydantic.Field(LOCK_WAIT_SECONDS, ge=0.0, le=3600.0)
    timer_log_file_size_bytes: int = pydantic.Field(
        FILE_SIZE_BYTES_DEFAULT, ge=UNIT_SIZE_BYTES + BLANK_SIZE_BYTES, le=FILE_SIZE_BYTES_MAX
    )
    flush_mode: Literal["async", "sync", "replicated"] = "async"
    flush_interval_millis: int = pydantic.Field(10, ge=1, le=60_000)
    unflushed_bytes_max: int = pydantic.Field(32 << 20, ge=1 << 20, le=1 << 30)
    message_size_bytes_max: int = pydantic.Field(4 << 20, ge=1, le=1 << 30)
    properties_crc: bool = True
    auto_create_topic: bool = True
    default_topic_queue_count: int = pydantic.Field(8, ge=1, le=65_536)
    timer_max_delay_seconds: int = pydantic.Field(259_200, ge=1, le=TIMER_MAX_DELAY_SECONDS_MAX)
    file_reserved_seconds: int = pydantic.Field(259_200, ge=1, le=FILE_RESERVED_SECONDS_MAX)
    delete_when_hours: str = "04"
    disk_clean_ratio_percent: int = pydantic.Field(75, ge=1, le=100)
    disk_clean_forcibly_ratio_percent: int = pydantic.Field(85, ge=1, le=100)
    disk_full_ratio_percent: int = pydantic.Field(90, ge=1, le=100)
    disk_clean_free_bytes: int = pydantic.Field(10 << 30, ge=0)
    disk_clean_forcibly_free_bytes: int = pydantic.Field(3 << 30, ge=0)
    disk_full_free_bytes: int = pydantic.Field(1 << 30, ge=0)
    clean_file_forcibly_enabled: bool = True
    delete_files_interval_millis: int = pydantic.Field(100, ge=0, le=60_000)
    delete_file_batch_count_max: int = pydantic.Field(10, ge=1, le=50)
    clean_resource_interval_millis: int = pydantic.Field(10_000, ge=0, le=3_600_000)
    followers: str = "consumequeue,index"
    rocketmq_ha_address: str = ""
    rocketmq_slaves: str = ""
    coordinator: str = ""
    coordinator_creates_shard: bool = True
    coordinator_ca: Path | None = None
    coordinator_certificate: Path | None = None
    coordinator_key: Path | None = None
    coordinator_user: str = ""
    coordinator_password_file: Path | None = None
    replica_name: str = pydantic.Field("", pattern=REPLICA_NAME_PATTERN)
    replica_address: str = ""
    min_in_sync: int = pydantic.Field(2, ge=1, le=15)
    lease_seconds: float = pydantic.Field(4.0, ge=0.5, le=600.0)
    renew_seconds: float = pydantic.Field(1.0, ge=0.05, le=100.0)
    lag_seconds_max: float = pydantic.Field(5.0, ge=0.5, le=3600.0)
    replication_bytes_per_second_max: int = pydantic.Field(0, ge=0)
    access_message_in_memory_max_ratio: int = pydantic.Field(40, ge=0, le=100)
    replication_fetch_count: int = pydantic.Field(3, ge=1, le=FETCH_COUNT_MAX)

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
