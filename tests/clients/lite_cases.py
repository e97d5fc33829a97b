"""What official clients must see of lite topics, since RocketMQ 5.5; see cases.py."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.clients.cases import case
from tests.clients.programs import PUSH_LANGUAGES, Program
from tests.clients.stage import (
    Stage,
    acknowledge,
    ids,
    message,
    receive_until,
    received_again,
    send,
    subscribe,
    tell,
    wait_for_ids,
)
from tests.support.waiting import wait_until

# These say where a subscription begins.
CHOOSING_LANGUAGES = ("java", "node")
# These tell what they subscribe to, and forget what they hear that they have lost; Node's 1.0.8 does not know the notice.
TELLING_LANGUAGES = ("java",)
# Node's 1.0.8 gives a failed message of a lite topic up at once.
RETRYING_LANGUAGES = ("java", "go", "python")
# These look at their quota themselves, as the broker does not.
COUNTING_LANGUAGES = ("java", "node", "python")


def send_to(producer: Program, lite_topic: str, bodies: Sequence[object], **fields: object) -> list[str]:
    """The ids of messages of a lite topic."""
    return send(producer, *(message(f"{body}", lite_topic=lite_topic, **fields) for body in bodies))


def by_lite_topic(*consumers: Program) -> dict[str, list[str]]:
    """The bodies that came, in their order."""
    bodies = defaultdict(list)
    for consumer in consumers:
        for said in consumer.received:
            bodies[said["lite_topic"]].append(said["body"])
    return dict(bodies)


@case(*PUSH_LANGUAGES)
def a_wildcard_group_gets_all_lite_topics(stage: Stage) -> None:
    """Python's client says what it wants 30 s after its start."""
    topic = stage.topic("LITE")
    group = stage.group(bind_topic=topic, sub_wildcard="true")
    consumer = stage.lite(topic, group)
    producer = stage.producer(topic)
    sent = send_to(producer, "a", range(3)) + send_to(producer, "b", range(3))
    wait_for_ids(sent, consumer)
    sent += send_to(producer, "new", range(3))
    wait_for_ids(sent, consumer)
    assert ids([consumer]) == Counter(sent)
    assert {said["topic"] for said in consumer.received} == {topic}


@case(*PUSH_LANGUAGES)
def lite_topics_that_a_client_subscribes_to_come_in_order(stage: Stage) -> None:
    topic = stage.topic("LITE")
    consumer = stage.lite(topic, stage.group(ordered=True, bind_topic=topic), "a", "b")
    producer = stage.producer(topic)
    sent, others = [], []
    for number in range(12):
        sent += send_to(producer, "ab"[number % 2], [number])
        others += send_to(producer, "c", [number])
    wait_for_ids(sent, consumer)
    assert by_lite_topic(consumer) == {
        "a": [str(number) for number in range(0, 12, 2)],
        "b": [str(number) for number in range(1, 12, 2)],
    }
    assert {said["attempt"] for said in consumer.received} == {1}
    subscribe(consumer, "c")
    wait_for_ids(sent + others, consumer)
    tell(consumer, do="unsubscribe", lite_topic="a")
    send_to(producer, "a", ["unwanted"])
    last = send_to(producer, "b", ["wanted"])
    wait_for_ids(last, consumer)
    assert ids([consumer]) == Counter(sent + others + last)


@case(*PUSH_LANGUAGES)
def two_consumers_share_a_lite_topic(stage: Stage) -> None:
    topic = stage.topic("LITE")
    group = stage.group(bind_topic=topic)
    consumers = [stage.lite(topic, group, "a") for _ in range(2)]
    producer = stage.producer(topic)
    sent: list[str] = []
    while not all(consumer.received for consumer in consumers):
        assert len(sent) < 500, [len(consumer.received) for consumer in consumers]
        sent += send_to(producer, "a", range(5))
        wait_for_ids(sent, *consumers)
    consumers[0].stop()
    sent += send_to(producer, "a", range(5))
    wait_for_ids(sent, *reversed(consumers))
    assert ids(consumers) == Counter(sent)


@case(*PUSH_LANGUAGES)
def the_newest_subscriber_owns_an_exclusive_lite_topic(stage: Stage) -> None:
    topic = stage.topic("LITE")
    group = stage.group(bind_topic=topic, sub_model="Exclusive")
    first = stage.lite(topic, group, "a", "b")
    producer = stage.producer(topic)
    of_first = send_to(producer, "a", range(3))
    wait_for_ids(of_first, first)
    second = stage.lite(topic, group, "a")
    if stage.language in TELLING_LANGUAGES:
        first.wait(lambda: tell(first, do="tell")["lite_topics"] == ["b"], "it hears that it has lost a")
    of_second = send_to(producer, "a", range(3, 6))
    wait_for_ids(of_second, second)
    still = send_to(producer, "b", range(3))
    wait_for_ids(of_first + still, first)
    assert ids([first]) == Counter(of_first + still)
    assert ids([second]) == Counter(of_second)


@case(*CHOOSING_LANGUAGES)
def a_subscription_begins_where_its_client_says(stage: Stage) -> None:
    topic = stage.topic("LITE")
    producer = stage.producer(topic)
    sent = send_to(producer, "a", range(5))
    consumers = {}
    for option, count in ({"from": "min"}, 5), ({"from": "offset", "number": 3}, 2), ({"from": "max"}, 0):
        consumer = stage.lite(topic, stage.group(bind_topic=topic))
        subscribe(consumer, "a", **option)
        consumers[consumer] = count
    later = send_to(producer, "a", ["later"])
    for consumer, count in consumers.items():
        wait_for_ids(later, consumer)
        assert ids([consumer]) == Counter(sent[len(sent) - count :] + later)
    one = next(iter(consumers))
    tell(one, do="unsubscribe", lite_topic="a")
    subscribe(one, "a", **{"from": "tail", "number": 2})
    received_again(one, sent[-1], 2)
    received_again(one, later[0], 2)
    assert ids([one]) == Counter(sent + later + sent[-1:] + later)


@case(*RETRYING_LANGUAGES)
def a_failed_message_of_a_lite_topic_comes_again(stage: Stage) -> None:
    topic = stage.topic("LITE")
    consumer = stage.lite(topic, stage.group(bind_topic=topic), "a")
    producer = stage.producer(topic)
    bad = send_to(producer, "a", ["bad"], properties={"fails": "1"})
    assert [said["attempt"] for said in received_again(consumer, bad[0], 2)] == [1, 2]
    good = send_to(producer, "a", range(3))
    wait_for_ids(bad + good, consumer)
    assert ids([consumer]) == Counter(bad + bad + good)
    assert {said["lite_topic"] for said in consumer.received} == {"a"}


@case(*COUNTING_LANGUAGES)
def a_client_has_as_many_lite_topics_as_its_group_allows(stage: Stage) -> None:
    topic = stage.topic("LITE")
    consumer = stage.lite(topic, stage.group(bind_topic=topic, sub_client_quota="2"), "a", "b")
    assert tell(consumer, do="subscribe", lite_topic="c")["event"] == "failed"
    tell(consumer, do="unsubscribe", lite_topic="a")
    subscribe(consumer, "c")
    producer = stage.producer(topic)
    wanted = send_to(producer, "c", range(3))
    wait_for_ids(wanted, consumer)
    assert ids([consumer]) == Counter(wanted)


def a_lite_simple_consumer_asks_for_its_lite_topics(stage: Stage) -> None:
    """Not a case: RocketMQ 5.5.0 does not know this kind of client, which Python's library has."""
    topic = stage.topic("LITE")
    consumer = stage.simple(topic, stage.group(bind_topic=topic), is_lite=True)
    # It starts without the settings, and refuses all until it has them.
    wait_until(lambda: consumer.ask(do="subscribe", lite_topic="a")["event"] == "subscribed", "it subscribes")
    producer = stage.producer(topic)
    wanted = send_to(producer, "a", range(3))
    send_to(producer, "b", ["unwanted"])
    got = receive_until(consumer, lambda messages: len(messages) >= len(wanted))
    assert [(said["message_id"], said["lite_topic"]) for said in got] == [(each, "a") for each in wanted]
    acknowledge(consumer, *got)
    last = send_to(producer, "a", ["last"])
    assert [said["message_id"] for said in receive_until(consumer, bool)] == last
