"""Pages of groups and tracks: they hold each group once, whatever the shards have, and say nothing of hidden groups."""

import random
from itertools import chain
from typing import Any

import pytest

from gateway.auth.access import Access, Role
from gateway.auth.caller_shards import SignIn, VisibleTopics
from gateway.groups.administration import list_groups
from gateway.ports.chain import Concern, MethodTable
from gateway.ports.groups import LIST_GROUPS, TRACK
from gateway.ports.shards import Shards
from gateway.queries.page import PAGE_BYTES_MAX, PageTokens
from gateway.reput.groups import _fitting
from gateway.shards.remote import serve_consumer
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.message_copy import new_message
from store.errors import InvalidArgumentError, InvalidPageTokenError
from store.format.properties import PRIORITY, RETRY_TOPIC
from tests.gateway.groups.memory_groups import MemoryGroups, group_settings
from tests.support.calls import Answers

TOKENS = PageTokens("secret")


def keeper(names) -> MemoryGroups:
    groups = MemoryGroups()
    groups.groups = {name: group_settings(name) for name in names}
    return groups


def asking(page_size: int, **choice: str) -> consumer_pb.ListGroupsRequest:
    return consumer_pb.ListGroupsRequest(page_size=page_size, **choice)


def pages(shards, choice, deadline) -> list[list[str]]:
    found, token = [], ""
    while True:
        page = list_groups(shards, TOKENS, choice, token, deadline)
        found.append([each.consumer_group for each in page.groups])
        token = page.next_page_token
        if not token:
            return found


def test_pages_over_random_shards_hold_each_group_once_and_in_order(fan_out, deadline):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(30):
        names = [f"{chance.choice('aAbB')}{number}" for number in range(chance.randrange(40))]
        held = [{name for name in names if chance.random() < 0.5} for _ in range(3)]
        shards = Shards([keeper(each).shard(f"s{at}") for at, each in enumerate(held)], fan_out)
        size, contains = chance.randrange(1, 9), chance.choice(["", "a", "b1"])
        wanted = sorted(name for name in set().union(*held) if contains in name.lower())
        found = pages(shards, asking(size, name_contains=contains), deadline)
        assert list(chain.from_iterable(found)) == wanted, f"seed {seed}"
        assert all(len(page) == size for page in found[:-1]), f"seed {seed}"


def test_a_request_without_page_size_gets_64_groups_and_where_to_go_on(fan_out, deadline):
    shards = Shards([keeper(f"g{number:03}" for number in range(100)).shard("s")], fan_out)
    assert [len(page) for page in pages(shards, asking(0), deadline)] == [64, 36]


def test_a_token_of_groups_continues_only_the_same_list(fan_out, deadline):
    shards = Shards([keeper("abc").shard("s")], fan_out)
    token = list_groups(shards, TOKENS, asking(1), "", deadline).next_page_token
    with pytest.raises(InvalidPageTokenError):
        list_groups(shards, TOKENS, asking(1, name_contains="b"), token, deadline)
    with pytest.raises(InvalidArgumentError):
        list_groups(shards, TOKENS, asking(-1), "", deadline)


def seen(groups, *patterns):
    visible = VisibleTopics(Access("a", {Role.READ: ["*"]}, patterns), frozenset({Role.READ}))
    return groups.shard("s").with_link(Concern.SIGN_IN, SignIn(visible)).call


def test_a_page_of_groups_is_full_and_says_nothing_of_groups_that_the_caller_may_not_see(deadline):
    names = [f"hidden-{number:04}" for number in range(3_000)] + ["own-1", "own-2"]
    groups = keeper(sorted([*names, "zz-hidden"]))
    first = seen(groups, "own-*")(LIST_GROUPS, asking(1), deadline)
    assert ([each.consumer_group for each in first.groups], first.has_more) == (["own-1"], True)
    last = seen(groups, "own-*")(LIST_GROUPS, asking(1, after="own-1"), deadline)
    assert [each.consumer_group for each in last.groups] == ["own-2"]
    assert not last.has_more, "only a hidden group follows"
    assert seen(groups, "none")(LIST_GROUPS, asking(1), deadline) == consumer_pb.ListGroupsResponse()


def consumed(group: str) -> consumer_pb.TrackMessageResponse.Track:
    return consumer_pb.TrackMessageResponse.Track(consumer_group=group, state=pb.TRACK_STATE_CONSUMED)


def test_tracks_of_groups_that_the_caller_may_not_see_make_no_page_shorter(deadline):
    groups = MemoryGroups()
    groups.tracks = {5: [consumed(f"{name}-{n}") for name in ("a", "own") for n in range(1_500)]}
    asked = consumer_pb.TrackMessageRequest(page_size=100)
    asked.message.commit_log_offset = 5
    page = seen(groups, "own-*")(TRACK, asked, deadline)
    assert (len(page.tracks), page.has_more) == (100, True)
    assert all(each.consumer_group.startswith("own-") for each in page.tracks)


def test_a_page_of_tracks_fits_into_an_answer_that_every_client_takes():
    row = pb.TrackMessageResponse.Track(consumer_group="g" * 255, client_id="c" * 1_024, reason="r" * 4_096)
    fitting = _fitting([row] * 1_000, PAGE_BYTES_MAX)
    answer = pb.TrackMessageResponse(tracks=fitting)
    assert 600 < len(fitting) < 1_000
    assert answer.ByteSize() <= PAGE_BYTES_MAX < 4 << 20
    assert len(_fitting([row], 0)) == 1


class OlderService(Answers):
    """Answers all groups, whatever page is asked for."""

    def ListGroups(self, _request):
        names = ["a", "b", "c", "d"]
        return consumer_pb.ListGroupsResponse(groups=[consumer_pb.GroupSettings(consumer_group=name) for name in names])

    def TrackMessage(self, _request):
        rows = [consumer_pb.TrackMessageResponse.Track(consumer_group=name) for name in "abcd"]
        return consumer_pb.TrackMessageResponse(tracks=rows)


def test_pages_of_a_service_that_knows_none_are_cut_by_the_gateway(deadline):
    client: Any = OlderService()
    table = MethodTable()
    serve_consumer(table, client)
    groups = table(LIST_GROUPS, asking(2, after="a"), deadline)
    assert ([each.consumer_group for each in groups.groups], groups.has_more) == (["b", "c"], True)
    tracks = table(TRACK, consumer_pb.TrackMessageRequest(page_size=2, after="a"), deadline)
    assert ([each.consumer_group for each in tracks.tracks], tracks.has_more) == (["b", "c"], True)


@pytest.mark.parametrize(("said", "kept"), [("-1", None), ("high", None), ("", None), ("2147483648", None), ("7", "7")])
def test_one_dead_letter_whose_priority_is_no_number_ended_the_resending_of_all_behind_it(said, kept):
    """RocketMQ's brokers keep what a producer wrote; the log refuses it as a property of a new message."""
    letter = StoredMessage(topic="%DLQ%g", body=b"x", properties={PRIORITY: said, RETRY_TOPIC: "Orders"})
    assert new_message(letter, "Orders").properties.get(PRIORITY) == kept
