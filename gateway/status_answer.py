"""GetStatus: the state of every service of every shard."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from gateway.ports.deadline import Deadline
from gateway.ports.shard import ServiceStatus, Shard
from gateway.ports.shards import Shards
from gateway.wire import timestamp_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.status import to_status
from store.errors import StoreError


def status_of(shards: Shards[object], deadline: Deadline) -> pb.GetStatusResponse:
    """The answer; all shards are asked at once."""

    def ask(shard: Shard[object]) -> Sequence[ServiceStatus]:
        return shard.services.statuses(deadline)

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
    )


def _version() -> str:
    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
