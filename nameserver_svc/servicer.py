"""Serves reput.nameserver.v1: the tables of a name server as people look at them and change them."""

import time
from collections.abc import Callable

import grpc

from nameserver_svc.kv_config import KvConfig
from nameserver_svc.route_table import Broker, RouteTable
from reput.nameserver.v1 import nameserver_service_pb2 as pb
from reput.nameserver.v1 import nameserver_service_pb2_grpc as pb_grpc
from services.convert import millis_to_timestamp
from store.errors import BrokerNotFoundError, InvalidArgumentError, TopicNotFoundError

PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1000
# Of the values of a page; one has 256 KiB at most.
PAGE_BYTES_MAX = 1 << 20


class NameServerServicer(pb_grpc.NameServerServiceServicer):
    """The service.

    Args:
        table: of routes.
        kv_config: of operators.
        clock: of the table, in seconds.
        time_millis: ms since 1970.
    """

    def __init__(
        self,
        table: RouteTable,
        kv_config: KvConfig,
        clock: Callable[[], float] = time.monotonic,
        time_millis: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._clock = clock
        self._time_millis = time_millis

    def ListBrokers(self, request: pb.ListBrokersRequest, context: grpc.ServicerContext) -> pb.ListBrokersResponse:
        """See the proto."""
        count = _page_size(request.page_size)
        behind = [each for each in self._table.brokers() if each.name > request.page_token]
        more = behind[count - 1].name if len(behind) > count else ""
        return pb.ListBrokersResponse(brokers=self._shown(behind[:count]), next_page_token=more)

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """See the proto."""
        count = _page_size(request.page_size)
        cluster = request.cluster_name
        names = self._table.topics_of_cluster(cluster) if cluster else self._table.topics()
        names = [name for name in names if name > request.page_token][: count + 1]
        more = names[count - 1] if len(names) > count else ""
        return pb.ListTopicsResponse(topics=names[:count], next_page_token=more)

    def GetRoute(self, request: pb.GetRouteRequest, context: grpc.ServicerContext) -> pb.GetRouteResponse:
        """See the proto."""
        route = self._table.route(request.topic)
        if route is None:
            raise _unknown_topic(request.topic)
        queues = [
            pb.BrokerQueues(
                broker_name=name,
                read_queue_count=each.read_queue_count,
                write_queue_count=each.write_queue_count,
                perm=each.perm,
            )
            for name, each in sorted(route.queues.items())
        ]
        return pb.GetRouteResponse(queues=queues, brokers=self._shown(route.brokers))

    def SetWritePerm(self, request: pb.SetWritePermRequest, context: grpc.ServicerContext) -> pb.SetWritePermResponse:
        """See the proto."""
        if self._table.broker(request.broker_name) is None:
            raise BrokerNotFoundError(
                f"no broker {request.broker_name!r} is registered here: ListBrokers tells those that are",
                brokerName=request.broker_name,
            )
        count = self._table.set_write_perm(request.broker_name, writable=request.writable)
        return pb.SetWritePermResponse(topic_count=count)

    def DeleteTopic(self, request: pb.DeleteTopicRequest, context: grpc.ServicerContext) -> pb.DeleteTopicResponse:
        """See the proto."""
        if self._table.route(request.topic) is None:
            raise _unknown_topic(request.topic)
        self._table.delete_topic(request.topic, request.cluster_name)
        return pb.DeleteTopicResponse()

    def ListKvConfig(self, request: pb.ListKvConfigRequest, context: grpc.ServicerContext) -> pb.ListKvConfigResponse:
        """See the proto."""
        count = _page_size(request.page_size)
        answer = pb.ListKvConfigResponse()
        size_bytes = 0
        for namespace, values in sorted(self._kv_config.namespaces().items()):
            if request.namespace not in ("", namespace):
                continue
            for key, value in sorted(values.items()):
                if _place_of(namespace, key) <= request.page_token:
                    continue
                one = pb.KvConfig(namespace=namespace, key=key, value=value)
                size_bytes += one.ByteSize()
                if len(answer.values) >= count or (answer.values and size_bytes > PAGE_BYTES_MAX):
                    last = answer.values[-1]
                    answer.next_page_token = _place_of(last.namespace, last.key)
                    return answer
                answer.values.append(one)
        return answer

    def PutKvConfig(self, request: pb.PutKvConfigRequest, context: grpc.ServicerContext) -> pb.PutKvConfigResponse:
        """See the proto."""
        value = request.value
        if not value.namespace or not value.key:
            raise InvalidArgumentError("a value needs a namespace and a key", field="value")
        self._kv_config.put(value.namespace, value.key, value.value)
        return pb.PutKvConfigResponse()

    def DeleteKvConfig(
        self, request: pb.DeleteKvConfigRequest, context: grpc.ServicerContext
    ) -> pb.DeleteKvConfigResponse:
        """See the proto."""
        self._kv_config.delete(request.namespace, request.key)
        return pb.DeleteKvConfigResponse()

    def _shown(self, brokers: "list[Broker] | tuple[Broker, ...]") -> list[pb.Broker]:
        live = self._table.live()
        now, now_millis = self._clock(), self._time_millis()

        def address(broker_id: int, text: str) -> pb.BrokerAddress:
            shown = pb.BrokerAddress(broker_id=broker_id, address=text)
            if text in live:
                shown.seen_time.CopyFrom(millis_to_timestamp(now_millis - int((now - live[text].seen_at) * 1000)))
            return shown

        return [
            pb.Broker(
                broker_name=broker.name,
                cluster_name=broker.cluster,
                addresses=[address(*each) for each in broker.addresses.items()],
            )
            for broker in brokers
        ]


def _page_size(asked: int) -> int:
    count = asked or PAGE_SIZE_DEFAULT
    if not 1 <= count <= PAGE_SIZE_MAX:
        raise InvalidArgumentError(f"page_size is {count}: 1 to {PAGE_SIZE_MAX}", field="page_size")
    return count


def _place_of(namespace: str, key: str) -> str:
    """A value's place in the order of namespaces and keys."""
    return f"{namespace}\0{key}"


def _unknown_topic(topic: str) -> TopicNotFoundError:
    return TopicNotFoundError(f"no broker has registered a topic {topic!r} here", topic=topic)
