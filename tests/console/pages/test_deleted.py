"""A message that was deleted with its topic says so on its page, in lists and in JSON."""

import pytest

from gateway.ports.shard import STORE_FACTS
from gateway.ports.store_facts import StoreFacts
from gateway.shards.store_facts import with_facts
from store.format.message_id import encode_offset_msg_id
from tests.console.asking import Browser, console_over
from tests.gateway.memory_shard import MemoryShard

TOPIC = "b_order"


class ShardAfterDeletion(MemoryShard):
    """A shard in which TOPIC was deleted at `deleted_at`, and made again."""

    deleted_at = 0

    def shard(self, broker_name="broker-a"):
        facts = StoreFacts(deleted_before={TOPIC: self.deleted_at})
        return with_facts(super().shard(broker_name).serving(STORE_FACTS, lambda request, deadline: facts))


@pytest.fixture
def keyed(records):
    return [record for record in records if record.topic == TOPIC and record.keys]


@pytest.fixture
def browser(records, keyed, fan_out):
    shard = ShardAfterDeletion(records)
    shard.deleted_at = keyed[-1].commit_log_offset
    app = console_over([shard], fan_out)
    yield Browser(app)
    app.close()


def test_the_page_of_a_message_did_not_say_that_it_was_deleted_with_its_topic(browser, keyed):
    for record, is_deleted in ((keyed[0], True), (keyed[-1], False)):
        url = f"/messages/{encode_offset_msg_id(record.store_host, record.commit_log_offset)}"
        html = browser.get(url).text
        assert ("The topic was deleted after this message was stored" in html) == is_deleted
        assert (">topic deleted</span></h1>" in html) == is_deleted
        answer = browser.get_json(url).json
        assert (
            answer["message"].get("deletedWithTopic", answer["message"].get("deleted_with_topic", False)) == is_deleted
        )


def test_a_list_of_messages_marks_those_that_were_deleted_with_their_topic(browser, keyed):
    key = keyed[0].keys[0]
    assert ">topic deleted<" in browser.get(f"/?q={key}").text
