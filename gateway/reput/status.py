"""GetStatus: the state of every service of every shard."""

from collections.abc import Sequence

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES, ServiceStatus, Shard
from gateway.ports.shards import Shards
from gateway.reput.wire import duration_of, timestamp_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.status import to_status
from store.errors import StoreError


def status_of(shards: Shards, deadline: Deadline) -> pb.GetStatusResponse:
    """The answer; all shards are asked at once."""

    def ask(shard: Shard) -> Sequence[ServiceStatus]:
        return shard.call(STATUSES, None, deadline)

    response = pb.GetStatusResponse(version=_version())
    for shard, statuses in zip(shards, shards.fan_out.ask(shards, ask), strict=True):
        if isinstance(statuses, StoreError):
            raise statuses
        response.services.extend(service_status_of(shard.broker_name, status) for status in statuses)
    return response


def service_status_of(broker_name: str, status: ServiceStatus) -> pb.GetStatusResponse.ServiceStatus:
    """A row of the answer."""
    return pb.GetStatusResponse.ServiceStatus(
        broker_name=broker_name,
        service=status.service,
        address=status.address,
        error=None if status.error is None else to_status(status.error),
        log_first_offset=status.log_first_offset,
        log_end_offset=status.log_end_offset,
        next_offset=status.next_offset,
        catching_up=status.catching_up,
        state=status.state,
        problem=status.problem,
        recovery_begin_offset=status.recovery_begin_offset,
        recovery_next_offset=status.recovery_next_offset,
        recovery_end_offset=status.recovery_end_offset,
        file_count=status.file_count,
        file_size_bytes=status.file_size_bytes,
        key_count=status.key_count,
        disk_total_bytes=status.disk_total_bytes,
        disk_free_bytes=status.disk_free_bytes,
        disk_level=status.disk_level,
        newest_store_time=timestamp_of(status.newest_store_time_millis),
        group_count=status.group_count,
        in_flight_count=status.in_flight_count,
        client_count=status.client_count,
        scheduled_count=status.scheduled_count,
        transaction_count=status.transaction_count,
        oldest_due_time=timestamp_of(status.oldest_due_time_millis),
        replica=status.replica,
        coordinator=status.coordinator,
        role=status.role,
        epoch=status.epoch,
        features=status.features,
        replicas=[
            pb.GetStatusResponse.ReplicaStatus(
                replica=one.replica,
                in_sync=one.in_sync,
                connected=one.connected,
                lag_bytes=one.lag_bytes,
                lag_millis=one.lag_millis,
                fetched_bytes=one.fetched_bytes,
                fetch_total_bytes=one.fetch_total_bytes,
                fetched_bytes_per_second=one.fetched_bytes_per_second,
            )
            for one in status.replicas
        ],
        followed_lag_bytes=status.followed_lag_bytes,
        followed_lag_age=None if status.followed_lag_millis is None else duration_of(status.followed_lag_millis),
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 2 MiB that an idle service does not need

    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
