"""GetStatus: the state of every service of every shard."""

from collections.abc import Sequence

from gateway.ports.deadline import Deadline
from gateway.ports.shard import STATUSES, Shard, StatusRow
from gateway.ports.shards import Shards
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.status import to_status
from store.errors import StoreError


def status_of(shards: Shards, deadline: Deadline) -> pb.GetStatusResponse:
    """The answer; all shards are asked at once."""

    def ask(shard: Shard) -> Sequence[StatusRow]:
        return shard.call(STATUSES, None, deadline)

    response = pb.GetStatusResponse(version=_version(), sees_everything=not shards.is_limited)
    for shard, rows in zip(shards, shards.fan_out.ask(shards, ask), strict=True):
        if isinstance(rows, StoreError):
            raise rows
        response.services.extend(service_status_of(shard.broker_name, row) for row in rows)
    return response


def service_status_of(broker_name: str, row: StatusRow) -> pb.GetStatusResponse.ServiceStatus:
    """The row of a shard's service, as the answer has it."""
    row.status.broker_name = broker_name
    if row.error is not None:
        row.status.error.CopyFrom(to_status(row.error))
    return row.status


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 2 MiB that an idle service does not need

    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
