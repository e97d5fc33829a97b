"""Every query is timed once, under its mode and what became of it; every mode's method is one of the gateway's."""

import contextlib
import types

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.meters import Meters
from services.timed_queries import METHOD_BY_MODE, time_queries
from store.errors import InvalidArgumentError, RecordCorruptedError, ServiceUnavailableError, TopicNotFoundError


def outcomes(act) -> dict[tuple[str, ...], int]:
    meters = Meters()
    servicer = types.SimpleNamespace(**dict.fromkeys(METHOD_BY_MODE.values(), act))
    ticks = iter(range(1_000))
    time_queries(servicer, meters, clock=lambda: float(next(ticks)))
    with contextlib.suppress(Exception):
        servicer.QueryMessageByKey(None, None)
    return {labels: sum(histogram.read()[0]) for labels, histogram in meters.histograms[0].items()}


def raising(error: Exception):
    def act(_request, _context):
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda *_: pb.QueryMessageByKeyResponse(completeness=message_pb2.COMPLETENESS_COMPLETE), "complete"),
        (lambda *_: pb.QueryMessageByKeyResponse(completeness=message_pb2.COMPLETENESS_TRUNCATED), "truncated"),
        (lambda *_: pb.QueryMessageByKeyResponse(completeness=message_pb2.COMPLETENESS_PARTIAL), "partial"),
        (lambda *_: pb.QueryMessageByIdResponse(), "complete"),
        (raising(InvalidArgumentError("bad", field="key")), "refused"),
        (raising(TopicNotFoundError("none", topic="t")), "refused"),
        (raising(ServiceUnavailableError("gone")), "failed"),
        (raising(RecordCorruptedError("rot")), "failed"),
        (raising(ZeroDivisionError()), "failed"),
    ],
)
def test_each_end_has_its_word(act, word):
    assert outcomes(act) == {("by-key", word): 1}


def test_every_mode_is_a_method_of_the_contract():
    methods = set(pb.DESCRIPTOR.services_by_name["GatewayService"].methods_by_name)

    assert set(METHOD_BY_MODE.values()) <= methods
