"""An answer that is made of several pages."""

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from reput_client.querying import groups


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
