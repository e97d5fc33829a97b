"""Which shard takes which message: every message once, the same key always at the same shard, and shards in turn."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.appends.routes import LITE_TOPIC, SHARDING_KEY, AppendRoutes, Ring
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import BrokerNotFoundError

NAMES = ("a", "b", "c")
TOPICS = ("orders", "payments", "nowhere")
# `a` and `b` have their topics by hand, `c` makes what it does not have.
TOPICS_BY_SHARD = {"a": frozenset({"orders"}), "b": frozenset({"orders", "payments"}), "c": None}


def message(topic="orders", **fields):
    return message_pb2.NewMessage(topic=topic, **fields)


def request_of(*messages, **fields):
    return pb.AppendMessagesRequest(messages=messages, **fields)


def routes_of(names=NAMES, topics_by_shard=None, clock=lambda: 0.0):
    routes = AppendRoutes(clock)
    routes.keep(names)
    routes.tell(topics_by_shard or {})
    return routes


def homes(routes, request):
    """The shard of each message."""
    found = {index: part.broker_name for part in routes.parts(request) for index in part.indexes}
    return [found[index] for index in range(len(request.messages))]


messages = st.builds(
    lambda topic, key, queue_id: message(
        topic,
        **({"properties": {SHARDING_KEY: key}} if key is not None else {}),
        **({"queue_id": queue_id} if queue_id is not None else {}),
    ),
    st.sampled_from(TOPICS),
    st.none() | st.text(max_size=3),
    st.none() | st.integers(0, 3),
)


@given(st.lists(st.lists(messages, min_size=1, max_size=8), min_size=1, max_size=6), st.booleans())
def test_every_message_goes_to_one_shard_that_takes_its_topic_and_keys_stay_where_they_are(requests, knows_topics):
    routes = routes_of(topics_by_shard=TOPICS_BY_SHARD if knows_topics else None)
    shard_by_key = {}
    for batch in requests:
        parts = routes.parts(request_of(*batch))
        indexes = [index for part in parts for index in part.indexes]
        assert sorted(indexes) == list(range(len(batch)))
        assert len({part.broker_name for part in parts}) == len(parts)
        for part in parts:
            assert list(part.indexes) == sorted(part.indexes)
            for index in part.indexes:
                one = batch[index]
                takes = TOPICS_BY_SHARD[part.broker_name] if knows_topics else None
                assert takes is None or one.topic in takes
                kind = None
                if SHARDING_KEY in one.properties:
                    kind = (one.topic, "key", one.properties[SHARDING_KEY])
                elif one.HasField("queue_id"):
                    kind = (one.topic, "queue", one.queue_id)
                if kind is not None:
                    assert shard_by_key.setdefault(kind, part.broker_name) == part.broker_name
        is_free = all(SHARDING_KEY not in one.properties and not one.HasField("queue_id") for one in batch)
        if is_free and not knows_topics:
            assert len(parts) == 1


def test_a_lite_topic_stays_in_one_shard_whatever_queue_its_messages_name():
    routes = routes_of()
    by_lite_topic = {}
    for number in range(60):
        lite_topic = f"chat-{number % 20}"
        one = message(properties={LITE_TOPIC: lite_topic}, **({"queue_id": number % 3} if number % 2 else {}))
        (home,) = homes(routes, request_of(one))
        assert by_lite_topic.setdefault(lite_topic, home) == home
    assert set(by_lite_topic.values()) == set(NAMES)


def test_requests_take_turns_and_each_goes_whole():
    routes = routes_of()
    request = request_of(*[message() for _ in range(5)])

    assert [[part.broker_name for part in routes.parts(request)] for _ in range(6)] == [[name] for name in "abcabc"]
    assert routes.parts(request)[0].others == ("b", "c")


def test_a_topic_that_shards_have_by_hand_goes_to_those_only():
    routes = routes_of(topics_by_shard={"a": frozenset({"orders"}), "b": frozenset({"orders"}), "c": frozenset()})

    assert {homes(routes, request_of(message()))[0] for _ in range(9)} == {"a", "b"}
    # No shard has it: any of them says so.
    assert {homes(routes, request_of(message("nowhere")))[0] for _ in range(9)} == {"a", "b", "c"}


def test_a_shard_that_makes_topics_later_on_is_no_longer_passed_over():
    routes = routes_of(("a", "b"), {"a": None, "b": frozenset()})
    assert {homes(routes, request_of(message()))[0] for _ in range(4)} == {"a"}

    routes.tell({"b": None})

    assert {homes(routes, request_of(message()))[0] for _ in range(4)} == {"a", "b"}


def test_free_messages_go_with_a_message_that_has_its_place():
    routes = routes_of()
    bound = message(properties={SHARDING_KEY: "k"})

    assert len(routes.parts(request_of(message(), bound, message()))) == 1


def test_a_request_that_is_sent_again_comes_to_the_same_shard_whatever_came_between():
    routes = routes_of()
    requests = [request_of(message(unique_key=f"u{n}"), message(unique_key="x"), deduplicate=True) for n in range(60)]
    first = [homes(routes, request) for request in requests]
    for _ in range(7):
        routes.parts(request_of(message()))
    routes.rest("b")

    assert [homes(routes, request) for request in requests] == first
    assert {name for names in first for name in names} == set(NAMES)
    assert all(len(set(names)) == 1 for names in first)
    assert all(not part.others for request in requests for part in routes.parts(request))


def test_a_shard_can_be_named_and_a_name_that_nobody_has_is_refused():
    routes = routes_of()
    request = request_of(message(properties={SHARDING_KEY: "k"}), message(queue_id=1), broker_name="b")
    assert homes(routes, request) == ["b", "b"]

    request.broker_name = "d"
    with pytest.raises(BrokerNotFoundError) as refused:
        routes.parts(request)
    assert refused.value.metadata["brokerNames"] == "a, b, c"


def test_a_shard_that_could_not_be_reached_is_left_alone_for_a_moment():
    now = [0.0]
    routes = routes_of(clock=lambda: now[0])
    routes.rest("b")
    request = request_of(message())

    assert [routes.parts(request)[0].broker_name for _ in range(6)] == ["a", "c", "c", "a", "c", "c"]
    now[0] = 2.0
    assert [routes.parts(request)[0].broker_name for _ in range(3)] == ["a", "b", "c"]
    for name in NAMES:
        routes.rest(name)
    assert {routes.parts(request)[0].broker_name for _ in range(3)} == set(NAMES), "all rest: then none does"


@pytest.mark.parametrize(
    ("latency_seconds", "rest_seconds"),
    [(0.54, 0), (0.55, 2), (1.79, 2), (1.8, 5), (3, 6), (5, 10), (15, 30), (60, 30)],
)
def test_a_slow_shard_is_left_alone_as_long_as_rocketmq_s_producers_do(latency_seconds, rest_seconds):
    """The table of `MQFaultStrategy`: `latencyMax` and `notAvailableDuration`."""
    now = [0.0]
    routes = routes_of(clock=lambda: now[0])
    routes.note_latency("b", latency_seconds)
    request = request_of(message())

    def names() -> set[str]:
        return {routes.parts(request)[0].broker_name for _ in range(3)}

    now[0] = rest_seconds - 0.01 if rest_seconds else 0.0
    assert names() == (set(NAMES) - {"b"} if rest_seconds else set(NAMES))
    now[0] = rest_seconds
    assert names() == set(NAMES)


def test_a_fast_answer_does_not_end_the_rest_of_a_slow_shard():
    now = [0.0]
    routes = routes_of(clock=lambda: now[0])
    routes.note_latency("b", 20)
    routes.note_latency("b", 0.6)
    now[0] = 29.0
    assert "b" not in {routes.parts(request_of(message()))[0].broker_name for _ in range(3)}


@given(st.integers(1, 12), st.lists(st.text(max_size=6), max_size=40))
def test_a_shard_that_joins_takes_keys_and_moves_none_between_the_others(count, keys):
    names = [f"shard-{number}" for number in range(count)]
    before, after = Ring(names), Ring([*reversed(names), "new"])

    for key in keys:
        assert after.choose(key) in (before.choose(key), "new")


def test_shares_of_the_ring_are_alike():
    ring = Ring(NAMES)
    shares = Counter(ring.choose(f"key-{number}") for number in range(6_000))

    assert set(shares) == set(NAMES)
    assert max(shares.values()) < 2 * min(shares.values())


def test_replies_to_one_request_went_to_different_shards_and_so_had_no_first_one():
    routes = routes_of()

    def reply(request, **fields):
        properties = {"CORRELATION_ID": request, "REPLY_TO_CLIENT": "g", "MSG_TYPE": "reply"}
        return message("Home_REPLY_TOPIC", properties=properties, **fields)

    asked = [f"request-{number}" for number in range(30)]
    first = [homes(routes, request_of(reply(name))) for name in asked]

    assert first == [homes(routes, request_of(message(), reply(name, queue_id=0)))[1:] for name in asked]
    assert first == [homes(routes, request_of(reply(name), deduplicate=True)) for name in asked]
    assert {name for names in first for name in names} == set(NAMES)


def test_a_reply_waits_for_no_shard_that_is_away():
    routes = routes_of()
    reply = message("Home_REPLY_TOPIC", properties={"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "g", "MSG_TYPE": "reply"})

    (part,) = routes.parts(request_of(reply))

    assert sorted((part.broker_name, *part.others)) == list(NAMES)
