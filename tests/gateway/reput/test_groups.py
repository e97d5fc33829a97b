"""Pages of groups and tracks: they hold each group once, whatever the shards have, and say nothing of hidden groups."""

import random
from itertools import chain
from types import SimpleNamespace

import pytest

from gateway.auth.access import Access, Role
from gateway.auth.caller_shards import VisibleGroups, VisibleTopics
from gateway.groups.administration import list_groups
from gateway.ports.delivery import GroupSettings
from gateway.ports.groups import GroupChoice, GroupPage, Track, TrackState
from gateway.ports.shards import Shards
from gateway.queries.limits import PAGE_BYTES_MAX
from gateway.queries.page_token import PageTokens
from gateway.reput.groups import _fitting
from gateway.shards.remote_groups import RemoteGroups
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import InvalidArgumentError, InvalidPageTokenError
from tests.gateway.groups.memory_groups import MemoryGroups
from tests.support.calls import Answers

TOKENS = PageTokens("secret")


def keeper(names) -> MemoryGroups:
    groups = MemoryGroups()
    groups.groups = {name: GroupSettings(name) for name in names}
    return groups


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
        found = pages(shards, GroupChoice(size, contains=contains), deadline)
        assert list(chain.from_iterable(found)) == wanted, f"seed {seed}"
        assert all(len(page) == size for page in found[:-1]), f"seed {seed}"


def test_a_request_without_page_size_gets_64_groups_and_where_to_go_on(fan_out, deadline):
    shards = Shards([keeper(f"g{number:03}" for number in range(100)).shard("s")], fan_out)
    assert [len(page) for page in pages(shards, GroupChoice(0), deadline)] == [64, 36]


def test_a_token_of_groups_continues_only_the_same_list(fan_out, deadline):
    shards = Shards([keeper("abc").shard("s")], fan_out)
    token = list_groups(shards, TOKENS, GroupChoice(1), "", deadline).next_page_token
    with pytest.raises(InvalidPageTokenError):
        list_groups(shards, TOKENS, GroupChoice(1, contains="b"), token, deadline)
    with pytest.raises(InvalidArgumentError):
        list_groups(shards, TOKENS, GroupChoice(-1), "", deadline)


def seen(groups, *patterns) -> VisibleGroups:
    return VisibleGroups(groups, VisibleTopics(Access("a", {Role.READ: ["*"]}, patterns), frozenset({Role.READ})))


def test_a_page_of_groups_is_full_and_says_nothing_of_groups_that_the_caller_may_not_see(deadline):
    names = [f"hidden-{number:04}" for number in range(3_000)] + ["own-1", "own-2"]
    groups = keeper(sorted([*names, "zz-hidden"]))
    assert [each.consumer_group for each in seen(groups, "own-*").settings(GroupChoice(1), deadline).items] == ["own-1"]
    assert seen(groups, "own-*").settings(GroupChoice(1), deadline).has_more
    last = seen(groups, "own-*").settings(GroupChoice(1, after="own-1"), deadline)
    assert [each.consumer_group for each in last.items] == ["own-2"]
    assert not last.has_more, "only a hidden group follows"
    assert seen(groups, "none").settings(GroupChoice(1), deadline) == GroupPage([])


def test_tracks_of_groups_that_the_caller_may_not_see_make_no_page_shorter(deadline):
    groups = MemoryGroups()
    groups.tracks = {5: [Track(f"{name}-{n}", TrackState.CONSUMED) for name in ("a", "own") for n in range(1_500)]}
    message = SimpleNamespace(commit_log_offset=5)
    page = seen(groups, "own-*").track(message, GroupChoice(100), deadline)
    assert (len(page.items), page.has_more) == (100, True)
    assert all(each.consumer_group.startswith("own-") for each in page.items)


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
    groups = RemoteGroups(OlderService())
    choice = GroupChoice(2, after="a")
    assert [each.consumer_group for each in groups.settings(choice, deadline).items] == ["b", "c"]
    assert groups.settings(choice, deadline).has_more
    page = groups.track(StoredMessage(), choice, deadline)
    assert ([each.consumer_group for each in page.items], page.has_more) == (["b", "c"], True)
