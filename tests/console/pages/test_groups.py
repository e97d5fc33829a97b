"""The pages of groups and dead letters: what they show, and what they refuse."""

from unittest.mock import Mock
from urllib.parse import quote

import pytest

from gateway.groups.asked_members import Told
from reput.consumer.v1.consumer_service_pb2 import Client
from reput.gateway.v1.gateway_service_pb2 import MessageFilter, TopicSubscription
from services.rocketmq.fastjson import Key, dump_bytes
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.groups.memory_groups import MemoryGroups, group_settings
from tests.gateway.memory_shard import MemoryShard

PATH = "/groups/b_cg/dead-letters"


def test_the_page_shows_every_dead_letter_of_the_group_and_no_other(browser: Browser, records) -> None:
    wanted = {record.queue_offset for record in records if record.topic == "%DLQ%b_cg"}
    answer = browser.get_json(PATH).json["answer"]

    assert {int(each.get("queueOffset", 0)) for each in answer["messages"]} == wanted
    assert {each["topic"] for each in answer["messages"]} == {"%DLQ%b_cg"}


def test_a_group_without_dead_letters_says_so_and_has_no_form(browser: Browser) -> None:
    page = browser.get("/groups/g/dead-letters").text

    assert "The group has no dead letter." in page
    assert "/actions/resend-dead-letters" not in page
    assert "/actions/resend-dead-letters" in browser.get(PATH).text


def test_a_get_of_dead_letters_takes_no_command_from_its_url(browser: Browser) -> None:
    assert browser.get(f"{PATH}?confirmed=1").status == 400


def test_the_list_of_groups_has_their_lag_members_and_dead_letters(browser: Browser) -> None:
    page = browser.get("/groups?whole=1")
    lags = {each["consumerGroup"]: int(each["lagCount"]) for each in browser.get_json("/groups?whole=1").json["lags"]}
    queues = browser.get_json("/groups/g").json["answer"]["queues"]

    assert lags["g"] == sum(int(queue.get("lagCount", 0)) for queue in queues) > 0
    assert f"{lags['g']:,}" in Tags(page.text).text
    assert 'href="/groups/g"' in page.text


@pytest.mark.parametrize("letter", ["g", "主", "&"])
def test_a_list_of_many_groups_with_long_names_is_small_and_says_that_there_are_more(
    records, fan_out, letter: str
) -> None:
    names = [f"{letter * 80}{number:03d}" for number in range(300)]

    class ManyGroups(MemoryShard):
        def shard(self, broker_name="broker-a"):
            groups = MemoryGroups()
            groups.groups = {name: group_settings(name) for name in names}
            return groups.in_shard(super().shard(broker_name))

    app = console_over([ManyGroups(records[:1])], fan_out)
    page = Browser(app).get("/groups?whole=1")
    app.close()

    shown = page.text.count("<tr>") - 1
    assert len(page.body) < 100 * 1024
    assert 0 < shown < 300
    assert "There are more groups: filter by name." in page.text


@pytest.mark.parametrize("letter", ["g", "主", "&", "\u202e"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_page_of_many_members_with_long_names_passed_100_kib(records, fan_out, letter: str, *, asked: bool) -> None:
    long = letter * 80
    wanted = [TopicSubscription(topic=f"{number}{long}", filter=MessageFilter(tags=long)) for number in range(8)]
    clients = [
        Client(client_id=f"{number}{long}", consumer_group="many", address=long, kind=long[:32], subscriptions=wanted)
        for number in range(150)
    ]

    class ManyMembers(MemoryShard):
        def shard(self, broker_name="broker-a"):
            groups = MemoryGroups()
            groups.groups = {"many": group_settings("many")}
            groups.members = {"many": clients}
            return groups.in_shard(super().shard(broker_name))

    def ask(consumer_group, client_id, told, *, with_stack_trace):
        queues = {Key.of(topic=long, queueId=number, brokerName=long): {} for number in range(300)}
        document = {
            "properties": {f"{number}{long}": long * 3 for number in range(200)},
            "mqTable": queues,
            "statusTable": {f"{number}{long}": {} for number in range(300)},
        }
        told(Told(dump_bytes(document)))
        return True

    app = console_over([ManyMembers(records[:1])], fan_out, ways=[Mock(ask=ask)])
    page = Browser(app).get(f"/groups/many/members?member={quote('7' + long)}" if asked else "/groups/many/members")
    app.close()

    assert page.status == 200
    assert len(page.body) < 100 * 1024
    assert "more members." in page.text
    assert ("more queues." in page.text) is asked


@pytest.mark.parametrize("letter", ["g", "主", "&"])
def test_the_page_of_a_group_with_many_queues_of_long_names_passed_100_kib(records, fan_out, letter: str) -> None:
    names = [f"{letter * 100}{number}" for number in range(300)]

    class ManyQueues(MemoryShard):
        def shard(self, broker_name="broker-a"):
            groups = MemoryGroups()
            groups.groups = {"many": group_settings("many")}
            groups.held = {("many", name, 0): 1 for name in names}
            self.topics |= dict.fromkeys(names, 1)
            return groups.in_shard(super().shard(broker_name))

    app = console_over([ManyQueues(records[:1])], fan_out)
    page = Browser(app).get("/groups/many", accept_language="zh")
    app.close()

    assert page.status == 200
    assert len(page.body) < 100 * 1024
    assert "还有" in page.text
    assert page.text.count("<tr>") > 30


def test_the_pages_of_a_group_are_linked_and_the_open_one_is_marked(browser: Browser) -> None:
    for path in ("/groups/g", "/groups/g/members", "/groups/g/dead-letters"):
        tags = Tags(browser.get(path).text).tags
        marked = [a["href"] for tag, a in tags if tag == "a" and a.get("aria-current") == "page"]
        assert marked == ["/groups", path]
        links = {a.get("href") for tag, a in tags if tag == "a"}
        assert {"/groups/g", "/groups/g/members", "/groups/g/dead-letters"} <= links
