"""The table of RPCs: a row for each RPC that any service has, and rows that agree with the descriptors."""

import re

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from apache.rocketmq.v2 import rocketmq_pb2
from reput.commitlog.v1 import commitlog_service_pb2
from reput.consumequeue.v1 import consumequeue_service_pb2
from reput.consumer.v1 import consumer_service_pb2
from reput.gateway.v1 import gateway_service_pb2
from reput.index.v1 import index_service_pb2
from reput.nameserver.v1 import nameserver_service_pb2
from reput.schedule.v1 import schedule_service_pb2
from services.methods import (
    ANY_CLIENT,
    LANE_BY_KIND,
    METHODS,
    REFLECTION_SERVICES,
    Kind,
    LaneName,
    Method,
    Retry,
    short_name,
)
from services.settings.certificates import ROLES

INNER = (
    commitlog_service_pb2,
    consumequeue_service_pb2,
    index_service_pb2,
    consumer_service_pb2,
    schedule_service_pb2,
    nameserver_service_pb2,
)
OUTER = (gateway_service_pb2, rocketmq_pb2)
SHAPES = {
    Kind.UNARY: (False, False),
    Kind.SERVER_STREAM: (False, True),
    Kind.POLL: (False, True),
    Kind.PULL: (False, True),
    Kind.TAIL: (False, True),
    Kind.TWO_WAY: (True, True),
    Kind.SESSION: (True, True),
}


def rpcs(*modules):
    """Descriptor by path, of every RPC of the modules' services."""
    return {
        f"/{service.full_name}/{method.name}": method
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def all_rpcs():
    stock = rpcs(health_pb2, reflection_pb2)
    v1 = {path.replace(".v1alpha.", ".v1."): method for path, method in stock.items()}
    return rpcs(*INNER, *OUTER) | stock | v1


def test_every_rpc_has_a_row_and_every_row_an_rpc():
    assert set(METHODS) == set(all_rpcs())


def test_the_kind_of_each_row_has_the_shape_of_its_rpc():
    shapes = {path: SHAPES[METHODS[path].kind] for path in METHODS}

    assert {path: (rpc.client_streaming, rpc.server_streaming) for path, rpc in all_rpcs().items()} == shapes


def test_the_roles_of_inner_services_are_services_and_those_of_the_gateway_are_clients():
    assert all(METHODS[path].roles and METHODS[path].roles <= ROLES for path in rpcs(*INNER))
    assert all(METHODS[path].roles and METHODS[path].roles <= ANY_CLIENT for path in rpcs(*OUTER))


def test_what_writes_messages_ends_their_wait_or_hands_them_out_may_not_be_sent_again():
    # The consumer service remembers what was sent back.
    writes = r"/(Append|Send(?!Back)|Pop|Receive|Resend|EndTransaction|Recall)\w*$"
    once = {path for path in METHODS if re.search(writes, path)}

    assert {path for path, method in METHODS.items() if method.retry is Retry.NEVER} == once


def test_calls_with_one_answer_have_a_default_deadline_and_endless_ones_have_none():
    assert all(method.seconds for method in METHODS.values() if method.kind is Kind.UNARY)
    endless = (Kind.TAIL, Kind.TWO_WAY, Kind.SESSION)
    assert not any(method.seconds for method in METHODS.values() if method.kind in endless)


def test_every_query_mode_is_a_read_of_the_gateway_and_stands_once():
    modes = {method.query_mode: path for path, method in METHODS.items() if method.query_mode}

    assert set(modes.values()) <= set(rpcs(gateway_service_pb2))
    assert len(modes) == sum(bool(method.query_mode) for method in METHODS.values())


def test_health_and_reflection_have_lanes_of_their_own_and_no_other_rpc_shares_them():
    def expected(method: Method) -> tuple[LaneName, bool]:
        if method.path.startswith("/grpc.health."):
            return LaneName.HEALTH, False
        if method.path.startswith(REFLECTION_SERVICES):
            return LaneName.REFLECTION, False
        if method.path.endswith("GatewayService/PullMessages"):  # its streams wait for messages, downloads do not
            return LaneName.PULLS, True
        if method.path.endswith("CommitLogService/FetchLog"):  # a whole log file, beside its session
            return LaneName.SESSIONS, True
        return LANE_BY_KIND[method.kind], True

    lanes = {method.path: (method.lane, method.is_ours) for method in METHODS.values()}
    assert lanes == {method.path: expected(method) for method in METHODS.values()}


def test_labels_are_short_and_say_which_contract():
    assert short_name("/reput.gateway.v1.GatewayService/GetStatus") == "GatewayService/GetStatus"
    assert short_name("/apache.rocketmq.v2.Admin/QueryMessage") == "v2.Admin/QueryMessage"
