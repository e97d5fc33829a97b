"""The choice of replicas goes into every request that can have one, and into no other."""

import datetime

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import ReadChoice, ReadFrom
from reput_client.querying.answers import shards_of
from reput_client.querying.read_choice import choose

STALE = datetime.timedelta(seconds=2, milliseconds=500)


@pytest.mark.parametrize(
    "request_class",
    [pb.QueryMessageByKeyRequest, pb.QueryMessageByIdRequest, pb.PullMessagesRequest, pb.DownloadBodyRequest],
)
def test_a_choice_becomes_the_field_of_the_request(request_class: type) -> None:
    request = request_class()
    choose(request, ReadChoice())
    assert request == request_class()
    choose(request, ReadChoice(ReadFrom.REPLICA, STALE))
    assert (request.read.read_from, request.read.max_staleness.ToTimedelta()) == (pb.READ_FROM_REPLICA, STALE)


def test_a_request_without_the_field_stays_as_it_is() -> None:
    request = pb.GetStatusRequest()
    choose(request, ReadChoice(ReadFrom.ANY))
    assert request == pb.GetStatusRequest()


def test_names_of_the_client_are_those_of_the_contract() -> None:
    assert {f"READ_FROM_{each.name}": each.value for each in ReadFrom if each is not ReadFrom.DEFAULT} == {
        name: number for name, number in pb.ReadFrom.items() if number
    }


def test_a_shard_says_which_replicas_answered_and_how_stale_they_may_be() -> None:
    row = pb.ShardOutcome(broker_name="a", replicas=["r2"], known_lag_bytes=7)
    (outcome,) = shards_of([row])
    assert (outcome.replicas, outcome.staleness, outcome.known_lag_bytes) == (("r2",), None, 7)
    row.staleness.FromTimedelta(STALE)
    (outcome,) = shards_of([row])
    assert outcome.staleness == STALE
