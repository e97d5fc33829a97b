"""GatewayService: one method for each query and each command; those about groups and about what waits are inherited.

Appends have handlers of their own (appends/forwarder.py).
"""

from collections.abc import Iterator
from functools import partial

import grpc

from gateway.appends.forwarder import AppendForwarder
from gateway.groups.asked_members import AskedMembers
from gateway.ports.shards import ShardsSource
from gateway.queries.freshness import FreshnessWaits
from gateway.queries.page import PageTokens
from gateway.reput import groups, queries, tenants, topics
from gateway.reput.explain import explain_query, explained_of
from gateway.reput.groups import GroupDelivery, GroupMethods
from gateway.reput.queries import Call
from gateway.reput.query_methods import by_choice, reading_by, timed_query
from gateway.reput.search import Searches
from gateway.reput.status import status_of
from gateway.reput.waiting import WaitingCalls, WaitingMethods
from gateway.reput.wire import deadline_of
from gateway.search.cel_sandbox import CelSandbox
from gateway.shards.replica_choice import ReadFrom
from gateway.shards.replica_reads import ReplicaReads
from gateway.tenants.tenants import Tenants
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from services.serving.calls.at_once import AtOnce
from services.serving.calls.raw_handlers import add_with_raw


class GatewayServicer(GroupMethods, WaitingMethods, pb_grpc.GatewayServiceServicer):
    """Serves the queries over all shards.

    Args:
        shards: gives the current shards.
        tokens: seals and opens page tokens.
        sandbox: evaluates the expressions of searches; its own one when absent.
        waits: makes queries with freshness tokens wait; its own one when absent.
        delivery: pulls and resends messages; None: those methods fail.
        reads: the shards as callers choose to read them, `shards` itself or below it; None: always their leaders.
        read_from: what a request means that does not choose.
        answers_at_once: whether queries by id are tried at once (services/serving/calls/at_once.py): their one shard is on this
            machine and has no archive.

    Attributes:
        tenants: the namespaces with quotas; None: there are none.
    """

    def __init__(
        self,
        shards: ShardsSource,
        tokens: PageTokens,
        sandbox: CelSandbox | None = None,
        waits: FreshnessWaits | None = None,
        delivery: GroupDelivery | None = None,
        reads: ReplicaReads | None = None,
        read_from: ReadFrom = ReadFrom.LEADER,
        *,
        answers_at_once: bool = False,
    ) -> None:
        self._source = shards
        self._tokens = tokens
        self._waits = waits or FreshnessWaits()
        self._searches = Searches(sandbox or CelSandbox())
        self.delivery = delivery
        self.asked_members = AskedMembers()
        self.tenants: Tenants | None = None
        self.reads = reads
        self.read_from = read_from
        if answers_at_once:
            setattr(self, "QueryMessageById", AtOnce(self.QueryMessageById))  # noqa: B010 - mypy knows it as a method

    def close(self) -> None:
        """End the threads of searches; later searches fail."""
        self._searches.close()

    def _call(self, context: grpc.ServicerContext) -> Call:
        """The current shards and the caller's deadline, for one call."""
        return Call(self._source.now(), self._tokens, self._waits, deadline_of(context))

    @timed_query
    @by_choice
    def QueryMessageByKey(
        self, request: pb.QueryMessageByKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByKeyResponse:
        """The messages of a topic that have a key, newest first."""
        return queries.by_key(self._call(context), request)

    @timed_query
    @by_choice
    def QueryMessageById(
        self, request: pb.QueryMessageByIdRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByIdResponse:
        """The message that an offsetMsgId names."""
        return queries.by_id(self._call(context), request)

    @timed_query
    @by_choice
    def QueryMessageByUniqueKey(
        self, request: pb.QueryMessageByUniqueKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByUniqueKeyResponse:
        """All copies of a message that its producer named by a unique key, newest first."""
        return queries.by_unique_key(self._call(context), request)

    @timed_query
    @by_choice
    def QueryMessageByOffset(
        self, request: pb.QueryMessageByOffsetRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByOffsetResponse:
        """The messages of a queue from a position on."""
        return queries.by_offset(self._call(context), request)

    @timed_query
    @by_choice
    def FindMessage(self, request: pb.FindMessageRequest, context: grpc.ServicerContext) -> pb.FindMessageResponse:
        """The messages whose id, unique key or key is the given text."""
        call = self._call(context)
        answer = queries.find(call, request)
        if request.with_tracks:
            groups.add_tracks(call, answer)
        return answer

    def ExplainQuery(self, request: pb.ExplainQueryRequest, context: grpc.ServicerContext) -> pb.ExplainQueryResponse:
        """The calls that a query made to each shard, without the messages."""
        with reading_by(self, explained_of(request)) as reading:
            return explain_query(self._call(context), request, reading)

    @timed_query
    @by_choice
    def SearchMessages(
        self, request: pb.SearchMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SearchMessagesResponse:
        """The messages of a topic that meet conditions, by a scan."""
        return self._searches.answer(self._call(context), request, context)

    @by_choice
    def DownloadBody(
        self, request: pb.DownloadBodyRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.DownloadBodyResponse]:
        """The body of a message in chunks."""
        return queries.body_chunks(self._call(context), request)

    @timed_query
    @by_choice
    def SearchOffset(self, request: pb.SearchOffsetRequest, context: grpc.ServicerContext) -> pb.SearchOffsetResponse:
        """The position of a queue at a store time."""
        return queries.offset_at_time(self._call(context), request)

    @timed_query
    @partial(by_choice, lists=True)
    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """The topics and their queues, by name."""
        return queries.topics(self._call(context), request)

    def CreateTopic(self, request: pb.CreateTopicRequest, context: grpc.ServicerContext) -> pb.CreateTopicResponse:
        """Creates a topic on every shard, or on one."""
        return topics.create_topic(self._call(context), request)

    def UpdateTopic(self, request: pb.UpdateTopicRequest, context: grpc.ServicerContext) -> pb.UpdateTopicResponse:
        """Changes a topic on every shard that has it, or on one."""
        return topics.update_topic(self._call(context), request)

    def DeleteTopic(self, request: pb.DeleteTopicRequest, context: grpc.ServicerContext) -> pb.DeleteTopicResponse:
        """Takes a topic out of the configuration of every shard, or of one."""
        return topics.delete_topic(self._call(context), request)

    def ListTenants(self, request: pb.ListTenantsRequest, context: grpc.ServicerContext) -> pb.ListTenantsResponse:
        """What namespaces use, and their quotas."""
        return tenants.list_tenants(self._call(context), request, self.tenants)

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """The state of every service; the row of a service that does not answer has its error."""
        call = self._call(context)
        return status_of(call.shards, call.deadline)


def add_to_server(
    servicer: GatewayServicer, server: grpc.Server, forwarder: AppendForwarder, waiting: WaitingCalls | None = None
) -> None:
    """Add the generated handlers for queries, the forwarder's handlers for appends, that of pulls, and those of `waiting`.

    Their generated handlers are left out: gRPC would choose them first, and they decode every message.
    """
    handlers = forwarder.handlers() | servicer.raw_handlers() | ({} if waiting is None else waiting.handlers())
    add_with_raw(pb_grpc.add_GatewayServiceServicer_to_server, servicer, handlers, server)
