"""An answer that is made of several pages.

The choice of replicas goes into every request that can have one, and into no other.
"""

import datetime

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from reput_client import ReadChoice, ReadFrom
from reput_client.querying import groups
from reput_client.querying.answers import shards_of
from reput_client.querying.question import choose


def page(*names: str, token: str = "") -> pb.TrackMessageResponse:
    message = StoredMessage(topic="T", keys=["order-1"], properties={"KEYS": "order-1"})
    tracks = [pb.TrackMessageResponse.Track(consumer_group=name, state=pb.TRACK_STATE_CONSUMED) for name in names]
    return pb.TrackMessageResponse(message=message, state=pb.MESSAGE_STATE_STORED, tracks=tracks, next_page_token=token)


def test_a_message_tracked_over_several_pages_had_its_keys_several_times() -> None:
    question = groups.track("id")

    response, has_more = question.join(None, page("a", token="next"))
    assert (has_more, question.request.page_token) == (True, "next")
    response, has_more = question.join(response, page("b"))

    answer = question.take(response, require_complete=False)
    assert not has_more
    assert answer.message.keys == ("order-1",)
    assert ([each.consumer_group for each in answer.tracks], answer.has_more) == (["a", "b"], False)


def test_the_outcomes_of_shards_are_those_of_all_pages() -> None:
    question = groups.consumer_groups()
    failed = pb.ShardOutcome(broker_name="far")
    failed.error.code = 14
    first = pb.ListConsumerGroupsResponse(outcomes=[pb.ShardOutcome(broker_name="far")], next_page_token="next")

    response, _ = question.join(None, first)
    response, _ = question.join(response, pb.ListConsumerGroupsResponse(outcomes=[failed]))

    (outcome,) = question.take(response, require_complete=False).shards
    assert outcome.error is not None


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
