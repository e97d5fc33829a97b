"""Every query is timed once, under its mode and how its answer was."""

import contextlib
import inspect

import pytest

from gateway.reput.query_methods import timed_query
from gateway.reput.servicer import GatewayServicer
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.methods import GATEWAY_SERVICE, METHODS
from services.observing.meters import HistogramFamily
from services.serving.calls.at_once import AttemptContext
from store.errors import InvalidArgumentError, RecordCorruptedError, ServiceUnavailableError, TopicNotFoundError


def outcomes(act, context=None) -> dict[tuple[str, ...], int]:
    family = HistogramFamily("seconds", "Time.", ("mode", "completeness"), (1.0,))
    ticks = iter(range(1_000))

    def QueryMessageByKey(servicer, request, context):
        return act(request, context)

    with contextlib.suppress(Exception):
        timed_query(QueryMessageByKey, family, clock=lambda: float(next(ticks)))(None, None, context)
    return {labels: sum(histogram.read()[0]) for labels, histogram in family.items()}


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


@pytest.mark.parametrize(
    ("act", "counted"),
    [
        (lambda *_: pb.QueryMessageByIdResponse(), {("by-key", "complete"): 1}),
        (raising(TopicNotFoundError("none", topic="t")), {}),
        (raising(ServiceUnavailableError("gone")), {}),
        (raising(ZeroDivisionError()), {}),
    ],
)
def test_an_attempt_counts_only_where_it_answers(act, counted):
    assert outcomes(act, AttemptContext(None)) == counted


def test_every_method_with_a_query_mode_is_timed_and_no_other():
    timing = GatewayServicer.QueryMessageByKey.__code__  # the wrapper's, which all of its methods share
    timed = {
        name for name, method in inspect.getmembers(GatewayServicer, inspect.isfunction) if method.__code__ is timing
    }

    assert timed == {path.removeprefix(GATEWAY_SERVICE) for path, row in METHODS.items() if row.query_mode}
