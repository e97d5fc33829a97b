"""The state of a shard's services, over gRPC."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeAlias

from gateway.ports.deadline import Deadline
from gateway.ports.shard import StatusRow
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.calling.client import ServiceClient
from services.calling.port_calls import port_call
from services.convert import confirm_offset, timestamp_to_millis
from services.rpcs import commitlog, consumequeue, consumer, index, schedule
from store.errors import StoreError

ServiceStatus: TypeAlias = gateway_pb.GetStatusResponse.ServiceStatus
_BuilderAnswer = queue_pb.GetStatusResponse | index_pb.GetStatusResponse
_FollowerAnswer = _BuilderAnswer | consumer_pb.GetStatusResponse | schedule_pb.GetStatusResponse


class RemoteServices:
    """The state of the services; a shard without a consumer or schedule service has no row of it."""

    def __init__(
        self,
        commitlog: ServiceClient,
        consumequeue: ServiceClient,
        index: ServiceClient,
        consumer: ServiceClient | None = None,
        schedule: ServiceClient | None = None,
    ) -> None:
        self._commitlog = commitlog
        self._consumequeue = consumequeue
        self._index = index
        self._consumer = consumer
        self._schedule = schedule

    def statuses(self, request: None, deadline: Deadline) -> Sequence[StatusRow]:
        """STATUSES. All are asked at once, so one that hangs does not hide the others."""
        asks: list[tuple[str, str, Callable[[float], ServiceStatus]]] = [
            ("commitlog", self._commitlog.target, self._commitlog_status),
            ("consumequeue", self._consumequeue.target, self._consumequeue_status),
            ("index", self._index.target, self._index_status),
        ]
        if self._consumer is not None:
            asks.append(("consumer", self._consumer.target, partial(_consumer_status, self._consumer)))
        if self._schedule is not None:
            asks.append(("schedule", self._schedule.target, partial(_schedule_status, self._schedule)))
        # Half of the caller's time, so that the answer can still report a service that hangs.
        seconds = deadline.remaining_seconds() / 2

        @port_call("status")
        def ask(row: tuple[str, str, Callable[[float], ServiceStatus]]) -> StatusRow:
            service, address, call = row
            try:
                return StatusRow(call(seconds))
            except StoreError as error:
                return StatusRow(ServiceStatus(service=service, address=address), error)

        with ThreadPoolExecutor(len(asks)) as pool:
            contexts = [copy_context() for _ in asks]
            return list(pool.map(lambda context, row: context.run(ask, row), contexts, asks))

    def _commitlog_status(self, seconds: float) -> ServiceStatus:
        answer = self._commitlog.call(commitlog.GET_STATUS, commitlog_pb.GetStatusRequest(), seconds)
        return ServiceStatus(
            service="commitlog",
            address=self._commitlog.target,
            log_first_offset=answer.log_first_offset,
            log_end_offset=answer.log_end_offset,
            next_offset=confirm_offset(answer),
            catching_up=answer.state == "recovering",
            state=answer.state,
            problem=answer.problem,
            recovery_begin_offset=answer.recovery.begin_offset,
            recovery_next_offset=answer.recovery.next_offset,
            recovery_end_offset=answer.recovery.end_offset,
            file_count=answer.file_count,
            file_size_bytes=answer.file_size_bytes,
            disk_total_bytes=answer.disk.total_bytes,
            disk_free_bytes=answer.disk.free_bytes,
            disk_level=answer.disk.level,
            newest_store_time=answer.last_store_time if answer.HasField("last_store_time") else None,
            replica=answer.replica,
            coordinator=answer.coordinator,
            role=answer.role,
            epoch=answer.epoch,
            features=[feature.text for feature in answer.features if feature.verdict != "supported"],
            replicas=[
                gateway_pb.GetStatusResponse.ReplicaStatus(
                    replica=one.name,
                    in_sync=one.in_sync,
                    connected=one.connected,
                    lag_bytes=one.lag_bytes,
                    lag_millis=one.lag_millis,
                    fetched_bytes=one.catch_up.fetched_bytes,
                    fetch_total_bytes=one.catch_up.total_bytes,
                    fetched_bytes_per_second=one.catch_up.bytes_per_second,
                )
                for one in answer.replicas
            ],
            followed_lag_bytes=answer.followed.lag_bytes if answer.followed.HasField("lag_bytes") else None,
            followed_lag_age=answer.followed.lag_age if answer.HasField("followed") else None,
            nameservers=answer.nameservers,
            broker_address=answer.broker_address,
        )

    def _consumequeue_status(self, seconds: float) -> ServiceStatus:
        answer = self._consumequeue.call(consumequeue.GET_STATUS, queue_pb.GetStatusRequest(), seconds)
        return _builder_status("consumequeue", self._consumequeue.target, answer)

    def _index_status(self, seconds: float) -> ServiceStatus:
        answer = self._index.call(index.GET_STATUS, index_pb.GetStatusRequest(), seconds)
        return _builder_status("index", self._index.target, answer)


def _builder_status(service: str, address: str, answer: _BuilderAnswer) -> ServiceStatus:
    status = _follower_status(service, address, answer)
    status.problem = answer.last_error or answer.problem
    if isinstance(answer, index_pb.GetStatusResponse):
        status.file_count, status.key_count = answer.file_count, answer.key_count
    if answer.HasField("built_up_to_time"):
        status.newest_store_time.CopyFrom(answer.built_up_to_time)
    return status


def _consumer_status(client: ServiceClient, seconds: float) -> ServiceStatus:
    answer = client.call(consumer.GET_STATUS, consumer_pb.GetStatusRequest(), seconds)
    status = _follower_status("consumer", client.target, answer)
    status.group_count, status.client_count = answer.group_count, answer.client_count
    status.in_flight_count = answer.in_flight_count
    return status


def _schedule_status(client: ServiceClient, seconds: float) -> ServiceStatus:
    answer = client.call(schedule.GET_STATUS, schedule_pb.GetStatusRequest(), seconds)
    status = _follower_status("schedule", client.target, answer)
    status.scheduled_count = answer.delayed_count + answer.timer_count
    status.timer_count = answer.timer_count
    status.delay_levels.extend(answer.delay_levels)
    status.transaction_count = answer.transaction_count
    if answer.HasField("oldest_due_time"):
        status.oldest_due_time.CopyFrom(answer.oldest_due_time)
    return status


def _follower_status(service: str, address: str, answer: _FollowerAnswer) -> ServiceStatus:
    """What every follower of the log says."""
    return ServiceStatus(
        service=service,
        address=address,
        log_end_offset=answer.log_end_offset,
        next_offset=answer.next_offset,
        catching_up=answer.catching_up,
        state=answer.state or ("catching-up" if answer.catching_up else "serving"),
        problem=answer.last_error,
    )


def optional_millis(answer: Any, field: str) -> int | None:
    """A time of a service's answer in milliseconds since 1970; None when it is absent."""
    return timestamp_to_millis(getattr(answer, field), field) if answer.HasField(field) else None
