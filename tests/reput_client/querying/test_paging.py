"""Runs over pages: limits, tokens to go on from, what a page says beside its items, messages that leave the process."""

import copy
import pickle
from datetime import UTC, datetime

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import Completeness, Message, MessageSource, QueueRange
from reput_client.querying.message import message_of
from tests.reput_client.querying.conftest import Ask

COMPLETE, TRUNCATED = message_pb2.COMPLETENESS_COMPLETE, message_pb2.COMPLETENESS_TRUNCATED


def page(bodies: list[bytes], token: str = "") -> pb.QueryMessageByKeyResponse:
    messages = [message_pb2.StoredMessage(topic="T", body=body) for body in bodies]
    completeness = TRUNCATED if token else COMPLETE
    return pb.QueryMessageByKeyResponse(messages=messages, completeness=completeness, next_page_token=token)


def test_a_limit_ends_the_run_and_the_last_page_asks_for_no_more_than_is_left(ask: Ask) -> None:
    script = [page([b"a", b"b"], "more"), page([b"c"], "still more")]
    fake, bodies = ask(script, lambda client: client.by_key("T", "k", page_size=2, max_messages=3).pages())

    assert [message.body for each in bodies for message in each.items] == [b"a", b"b", b"c"]
    requests = [pb.QueryMessageByKeyRequest.FromString(each) for each in fake.requests]
    assert [(request.page_size, request.page_token) for request in requests] == [(2, ""), (1, "more")]


def test_a_run_that_its_limit_has_ended_is_truncated(ask: Ask) -> None:
    pages = []

    def first_page_only(client):
        pages.append(client.by_unique_key("T", "u", max_messages=1))
        return pages[0].pages()

    ask([page([b"a"], "more")], first_page_only)
    assert pages[0].completeness is Completeness.TRUNCATED


def test_a_limit_of_none_left_asks_nothing(ask: Ask) -> None:
    fake, found = ask([], lambda client: client.by_key("T", "k", max_messages=0).pages())

    assert (fake.requests, found) == ([], [])


def test_a_negative_limit_is_refused(ask: Ask) -> None:
    for question in (
        lambda client: client.by_key("T", "k", max_messages=-1),
        lambda client: client.by_offset("T", 0, max_messages=-1),
        lambda client: client.find("k", max_matches=-1),
    ):
        with pytest.raises(ValueError, match="-1"):
            ask([], question)


def test_a_query_goes_on_from_the_token_that_a_page_gave(ask: Ask) -> None:
    _, (first,) = ask([page([b"a"], "more")], lambda client: client.by_key("T", "k", max_messages=1).pages())
    fake, (second,) = ask(
        [page([b"b"])], lambda client: client.by_key("T", "k", page_token=first.next_page_token).pages()
    )

    assert pb.QueryMessageByKeyRequest.FromString(fake.requests[0]).page_token == "more"
    assert second.next_page_token == ""


def test_a_page_of_a_queue_says_what_the_queue_holds(ask: Ask) -> None:
    answer = pb.QueryMessageByOffsetResponse(min_offset=3, max_offset=9, next_queue_offset=9, completeness=COMPLETE)
    _, (only,) = ask([answer], lambda client: client.by_offset("T", 0, 9).pages())

    assert (only.items, only.queue_range) == ((), QueueRange(3, 9))


@pytest.mark.parametrize("has_tokens", [True, False])
def test_a_queue_is_read_to_its_end_by_tokens_and_by_position_from_a_gateway_without_them(
    ask: Ask, has_tokens: bool
) -> None:
    """An older gateway knows neither `page_size` nor tokens, and says COMPLETE for every page."""
    answers = []
    for end in (4, 7):
        answer = pb.QueryMessageByOffsetResponse(max_offset=7, next_queue_offset=end, completeness=COMPLETE)
        answer.messages.add(topic="T", body=b"%d" % end)
        if has_tokens and end < 7:
            answer.completeness, answer.next_page_token = TRUNCATED, "more"
        answers.append(answer)
    fake, pages = ask(answers, lambda client: client.by_offset("T", 0, 1, page_size=3).pages())

    first, second = map(pb.QueryMessageByOffsetRequest.FromString, fake.requests)
    assert (first.queue_offset, first.page_token) == (1, "")
    assert (second.queue_offset, second.page_token) == (4, "more" if has_tokens else "")
    assert {(request.page_size, request.max_messages) for request in (first, second)} == {(3, 3)}
    assert [page.completeness for page in pages] == [Completeness.TRUNCATED, Completeness.COMPLETE]
    assert [message.body for page in pages for message in page.items] == [b"4", b"7"]


def test_behind_a_token_an_older_gateway_gave_the_first_page_once_more(ask: Ask) -> None:
    """A service name may lead to gateways of two releases; the older one overlooks the token and reads the position."""
    answer = pb.QueryMessageByOffsetResponse(max_offset=7, next_queue_offset=4, completeness=TRUNCATED)
    answer.next_page_token = "more"
    older = pb.QueryMessageByOffsetResponse(max_offset=7, next_queue_offset=7, completeness=COMPLETE)
    fake, _ = ask([answer, older], lambda client: client.by_offset("T", 0, 1, page_size=3).pages())

    asked = [pb.QueryMessageByOffsetRequest.FromString(request).queue_offset for request in fake.requests]
    assert asked == [1, 4]


def test_the_installation_has_the_version_and_where_a_recovery_is(ask: Ask) -> None:
    row = pb.GetStatusResponse.ServiceStatus(
        service="commitlog", recovery_begin_offset=10, recovery_next_offset=20, recovery_end_offset=30
    )
    _, installed = ask([pb.GetStatusResponse(version="9.9", services=[row])], lambda client: client.installation())

    assert installed.version == "9.9"
    (service,) = installed.services
    assert (service.recovery_begin_offset, service.recovery_next_offset, service.recovery_end_offset) == (10, 20, 30)


def test_a_schedule_service_has_what_waits_and_since_when_a_message_is_overdue(ask: Ask) -> None:
    row = pb.GetStatusResponse.ServiceStatus(service="schedule", scheduled_count=1 << 33, transaction_count=7)
    row.oldest_due_time.seconds = 1_700_000_000
    rows = [row, pb.GetStatusResponse.ServiceStatus(service="schedule")]
    _, found = ask([pb.GetStatusResponse(services=rows)], lambda client: client.status())

    late, idle = found
    assert (late.scheduled_count, late.transaction_count) == (1 << 33, 7)
    assert late.oldest_due_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (idle.scheduled_count, idle.transaction_count, idle.oldest_due_time) == (0, 0, None)


def stored() -> Message:
    message = message_pb2.StoredMessage(topic="T", body=b"x", keys=["k"], source=message_pb2.MESSAGE_SOURCE_ARCHIVE)
    message.properties["KEYS"] = "k"
    message.store_time.seconds = 1_700_000_000
    return message_of(message)


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
def test_a_message_can_be_pickled_and_copied(copied) -> None:
    again = copied(stored())

    assert again == stored()
    assert again.store_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    with pytest.raises(TypeError):
        again.properties["KEYS"] = "other"


def test_a_message_says_where_it_was_found_if_the_gateway_does() -> None:
    assert stored().source is MessageSource.ARCHIVE
    assert message_of(message_pb2.StoredMessage()).source is None


def groups_page(names: str, token: str = "") -> pb.ListConsumerGroupsResponse:
    return pb.ListConsumerGroupsResponse(
        groups=[pb.ConsumerGroupSettings(consumer_group=name) for name in names],
        outcomes=[pb.ShardOutcome(broker_name="a")],
        next_page_token=token,
    )


def test_groups_of_all_pages_are_one_answer(ask: Ask) -> None:
    script = [groups_page("ab", "more"), groups_page("cd", "still"), groups_page("e")]
    fake, answer = ask(script, lambda client: client.consumer_groups(name_contains="x"))

    requests = [pb.ListConsumerGroupsRequest.FromString(each) for each in fake.requests]
    assert [(request.page_token, request.name_contains) for request in requests] == [
        ("", "x"),
        ("more", "x"),
        ("still", "x"),
    ]
    assert [each.consumer_group for each in answer.groups] == list("abcde")
    assert ([each.broker_name for each in answer.shards], answer.has_more) == (["a"], False)


def test_a_limit_of_groups_ends_the_pages_and_says_that_there_are_more(ask: Ask) -> None:
    script = [groups_page("ab", "more"), groups_page("c", "still")]
    fake, answer = ask(script, lambda client: client.consumer_groups(limit=3))

    requests = [pb.ListConsumerGroupsRequest.FromString(each) for each in fake.requests]
    assert [request.page_size for request in requests] == [3, 1]
    assert ([each.consumer_group for each in answer.groups], answer.has_more) == (["a", "b", "c"], True)


def test_tracks_of_all_pages_are_one_answer(ask: Ask) -> None:
    message = message_pb2.StoredMessage(topic="T", properties={"k": "v"})

    def tracks(name: str, token: str = "") -> pb.TrackMessageResponse:
        row = pb.TrackMessageResponse.Track(consumer_group=name, state=pb.TRACK_STATE_CONSUMED)
        return pb.TrackMessageResponse(
            message=message, state=pb.MESSAGE_STATE_STORED, tracks=[row], next_page_token=token
        )

    _, answer = ask([tracks("a", "more"), tracks("b")], lambda client: client.track("id"))
    assert [each.consumer_group for each in answer.tracks] == ["a", "b"]
    assert (answer.message.properties, answer.has_more) == ({"k": "v"}, False)
