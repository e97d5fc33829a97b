"""What waits, over several shards, page by page."""

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shards import FanOut, Shards
from gateway.ports.waiting import LIST_TRANSACTIONS
from gateway.queries.page import PAGE_BYTES_MAX, PageTokens
from gateway.waiting.listing import Listing
from reput.message.v1 import message_pb2
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import (
    BrokerNotFoundError,
    InvalidArgumentError,
    InvalidPageTokenError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.waiting.memory_waiting import MemoryScheduling, half

TOKENS = PageTokens("secret")
ITEM_BYTES = 100


@pytest.fixture
def installation():
    """Three shards: with five, no and two half messages."""
    fan_out = FanOut(2)
    services = [
        MemoryScheduling("broker-a", [half(f"a{n}") for n in range(5)]),
        MemoryScheduling("broker-b"),
        MemoryScheduling("broker-c", [half("c0", "Bills"), half("c1")]),
    ]
    memory = MemoryShard([])
    memory.topics["Orders"] = 1
    shards = [each.in_shard(memory.shard(each.broker_name)) for each in services]
    yield Shards(shards, fan_out), services
    fan_out.close()


def listing(size_bytes: int = ITEM_BYTES) -> Listing:
    return Listing(
        "Test",
        LIST_TRANSACTIONS,
        pb.ListPendingTransactionsRequest,
        lambda page: page.transactions,
        lambda _: size_bytes,
    )


def run(shards: Shards, count: int, topic: str = "", size_bytes: int = ITEM_BYTES):
    """All pages."""
    pages, token = [], ""
    while not pages or token:
        page = listing(size_bytes).page(shards, TOKENS, topic, count, token, Deadline.after(60))
        pages.append(page)
        token = page.next_page_token
    return pages


def keys(pages) -> list[list[str]]:
    return [[item.unique_key for _, item in page.items] for page in pages]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 64])
def test_all_pages_together_have_every_item_once_in_the_order_of_the_shards(installation, count: int) -> None:
    shards, _ = installation
    pages = run(shards, count)
    assert [key for page in keys(pages) for key in page] == ["a0", "a1", "a2", "a3", "a4", "c0", "c1"]
    assert all(len(page.items) <= count for page in pages)
    assert pages[-1].completeness == message_pb2.COMPLETENESS_COMPLETE
    assert {name for page in pages for name, _ in page.items} == {"broker-a", "broker-c"}


def test_a_topic_narrows_the_list_and_an_unknown_one_is_an_error(installation) -> None:
    shards, _ = installation
    assert [key for page in keys(run(shards, 2, "Orders")) for key in page] == ["a0", "a1", "a2", "a3", "a4", "c1"]
    with pytest.raises(TopicNotFoundError):
        run(shards, 2, "Unheard")


def test_a_shard_that_is_down_makes_the_list_partial_and_all_of_them_an_error(installation) -> None:
    shards, services = installation
    services[0].is_down = True
    (page,) = run(shards, 64)
    assert keys([page]) == [["c0", "c1"]]
    assert page.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [outcome.error is not None for outcome in page.outcomes] == [True, False, False]
    services[1].is_down = services[2].is_down = True
    with pytest.raises(ServiceUnavailableError):
        run(shards, 64)


def test_a_page_ends_where_the_bytes_of_an_answer_end_but_has_one_item_at_least(installation) -> None:
    shards, _ = installation
    assert [len(page.items) for page in run(shards, 64, size_bytes=PAGE_BYTES_MAX // 2)] == [2, 2, 2, 1]
    assert [len(page.items) for page in run(shards, 64, size_bytes=PAGE_BYTES_MAX * 2)] == [1] * 7


def test_the_number_of_all_that_waits_comes_with_the_page(installation) -> None:
    shards, _ = installation
    assert [page.pending_count for page in run(shards, 64)] == [7]


def test_a_token_of_another_question_and_a_negative_size_are_refused(installation) -> None:
    shards, _ = installation
    token = run(shards, 2)[0].next_page_token
    with pytest.raises(InvalidPageTokenError):
        listing().page(shards, TOKENS, "Orders", 2, token, Deadline.after(60))
    with pytest.raises(InvalidArgumentError):
        listing().page(shards, TOKENS, "", -1, "", Deadline.after(60))


@pytest.mark.parametrize(("gone", "rest"), [("broker-a", ["c0", "c1", "c2"]), ("broker-c", [])])
def test_a_token_of_a_shard_that_is_not_known_makes_the_list_partial(installation, gone: str, rest: list[str]) -> None:
    """Such a page was empty, COMPLETE and the last one: a gateway that was started while a shard was down lost the rest."""
    shards, services = installation
    services[2].halves.append(half("c2"))
    token = run(shards, 2 if gone == "broker-a" else 6)[0].next_page_token
    left = Shards([shard for shard in shards if shard.broker_name != gone], shards.fan_out)
    page = listing().page(left, TOKENS, "", 64, token, Deadline.after(60))
    assert [item.unique_key for _, item in page.items] == rest
    assert page.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [outcome.broker_name for outcome in page.outcomes if outcome.error is not None] == [gone]
    assert isinstance(page.outcomes[-1].error, BrokerNotFoundError)


def test_the_error_of_a_shard_is_raised_when_only_the_unknown_one_of_the_token_is_left_beside_it(installation) -> None:
    shards, services = installation
    token = run(shards, 2)[0].next_page_token
    services[1].is_down = services[2].is_down = True
    left = Shards([shard for shard in shards if shard.broker_name != "broker-a"], shards.fan_out)
    with pytest.raises(ServiceUnavailableError):
        listing().page(left, TOKENS, "", 64, token, Deadline.after(60))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_gateways_to_which_shards_joined_in_another_order_go_on_with_each_others_tokens(
    installation, count: int
) -> None:
    """A gateway went on with the shards that had joined it later: those before were missing, or came twice."""
    shards, _ = installation
    gateways = [shards, Shards(list(shards)[::-1], shards.fan_out)]
    found, token, number = [], "", 0
    while token or not number:
        page = listing().page(gateways[number % 2], TOKENS, "", count, token, Deadline.after(60))
        found += [item.unique_key for _, item in page.items]
        token, number = page.next_page_token, number + 1
    assert found == ["a0", "a1", "a2", "a3", "a4", "c0", "c1"]


def test_a_shard_without_a_schedule_service_is_named_as_missing(installation) -> None:
    shards, _ = installation
    _, *others = list(shards)
    bare = MemoryShard([]).shard("broker-a")
    page = run(Shards([bare, *others], shards.fan_out), 64)[0]
    assert page.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert "schedule service" in str(page.outcomes[0].error)


class EndsEarly(MemoryScheduling):
    """A schedule service that has looked at enough after each message, as one with many of other topics has."""

    def transactions(self, request, deadline):
        question = pb.ListPendingTransactionsRequest(page_size=1, page_token=request.page_token)
        page = super().transactions(question, deadline)
        wanted = [each for each in page.transactions if request.topic in ("", each.topic)]
        return pb.ListPendingTransactionsResponse(transactions=wanted, next_page_token=page.next_page_token)


def test_a_shard_that_ends_its_pages_early_did_not_show_by_empty_pages_what_else_waits(installation) -> None:
    shards, _ = installation
    halves = [half(f"b{n}", "Bills") for n in range(20)] + [half("mine")] + [half(f"c{n}", "Bills") for n in range(20)]
    (first, *_rest) = shards
    one = Shards([EndsEarly("broker-a", halves).in_shard(first)], shards.fan_out)
    assert keys(run(one, 1, "Orders")) == [["mine"], []]
    assert keys(run(one, 2, "Orders")) == [["mine"]]


def test_a_shard_that_fails_behind_its_first_page_ends_the_page_of_the_answer(installation) -> None:
    shards, _ = installation

    class FailsOnce(EndsEarly):
        def transactions(self, request, deadline):
            if len(self.asked) == 1:
                self.asked.append(request)
                raise ServiceUnavailableError("down", service="schedule")
            return super().transactions(request, deadline)

    (first, *_rest) = shards
    one = Shards([FailsOnce("broker-a", [half("a"), half("b")]).in_shard(first)], shards.fan_out)
    assert keys(run(one, 64)) == [["a"], ["b"]]
