"""A thousand keys with one hash around the one that is asked for."""

import itertools
import pathlib

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format.derived.index_layout import index_key, key_hash
from tests.support.stack import hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

TOPIC = "Collisions"
CALLS_MAX = 3


def java_string_hash(text: str) -> int:
    """String.hashCode, by its definition."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value


def test_the_one_true_message_among_a_thousand_colliding_comes_alone_and_in_few_calls(tmp_path: pathlib.Path) -> None:
    """ "Aa" and "BB" have one hash, and so has every string made of as many of them."""
    keys = ["".join(parts) for parts in itertools.product(("Aa", "BB"), repeat=10)][:1001]
    true_key = keys.pop(500)
    assert len({java_string_hash(f"{TOPIC}#{key}") for key in [true_key, *keys]}) == 1
    assert len({key_hash(index_key(TOPIC, key)) for key in [true_key, *keys]}) == 1
    messages = [new_message(TOPIC, key.encode(), keys=[key]) for key in [*keys[:500], true_key, *keys[500:]]]
    with hosted_stack(tmp_path / "store") as stack:
        for begin in range(0, len(messages), 500):
            request = pb.AppendMessagesRequest(messages=messages[begin : begin + 500])
            stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
        found: list[bytes] = []
        request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=true_key, page_size=1)
        calls = 0
        while not calls or request.page_token:
            calls += 1
            answer = stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
            found += [message.body for message in answer.messages]
            assert answer.completeness != message_pb2.COMPLETENESS_PARTIAL
            request.page_token = answer.next_page_token
        assert found == [true_key.encode()]
        assert calls <= CALLS_MAX

        any_topic = stack.gateway.FindMessage(pb.FindMessageRequest(text=true_key), timeout=WAIT_SECONDS_MAX)
        assert [match.message.body for match in any_topic.matches] == [true_key.encode()]
