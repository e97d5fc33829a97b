"""What each official client must see on a server, by case; a case raises AssertionError.

Bodies carry Chinese and every message has all fields where a case does not need others, so that encodings are exercised. Cases
that wait long stand first, since they are begun in this order.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable

from tests.clients.programs import LANGUAGES, PUSH_LANGUAGES, Said
from tests.clients.servers import wait_until_routed
from tests.clients.stage import (
    INVISIBLE_SECONDS,
    Stage,
    acknowledge,
    ids,
    message,
    receive_until,
    received_again,
    send,
    wait_for_ids,
)

CASES: dict[str, tuple[Callable[[Stage], None], tuple[str, ...]]] = {}
FIELDS = ("body", "tag", "keys", "properties", "message_group", "topic")
# A client's clock and a server's are read at different moments.
CLOCK_SECONDS = 1.0


def case(*languages: str) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Make a function a case of these languages."""

    def register(function: Callable[[Stage], None]) -> Callable[[Stage], None]:
        CASES[function.__name__] = (function, languages)
        return function

    return register


def rich(number: int) -> Said:
    """A message with a value in each field."""
    return message(
        f"body {number} 你好",
        tag="TagA",
        keys=[f"key-{number}", "shared"],
        properties={"colour": "red", "name": "值"},
    )


def fields(said: Said) -> Said:
    """The fields that the sender chose."""
    return {name: sorted(said[name]) if name == "keys" else said[name] for name in FIELDS}


def check_dead_letter(stage: Stage, group: str, message_id: str, sent: Said) -> None:
    """A simple consumer of the group's dead letters receives this one, as it was sent."""
    dead = f"%DLQ%{group}"
    wait_until_routed(stage.server, dead)
    undertaker = stage.simple(dead, stage.group())
    (letter,) = receive_until(undertaker, bool)
    assert letter["message_id"] == message_id
    leaked = {name for name in letter["properties"] if name.startswith("__")}  # RocketMQ's __SHARDINGKEY
    letter["properties"] = {name: letter["properties"][name] for name in letter["properties"].keys() - leaked}
    assert {name: letter[name] for name in sent} == sent
    acknowledge(undertaker, letter)


@case(*PUSH_LANGUAGES)
def what_a_killed_consumer_held_is_taken_over(stage: Stage) -> None:
    topic, group = stage.topic(), stage.group()
    consumer = stage.push(topic, group, hold=True)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    sent = send(producer, *map(rich, range(6)))
    # Node's and Go's hold a batch and call for each of it; Java's and Python's have more threads than this.
    wait_for_ids(sent, consumer)
    consumer.kill()
    heir = stage.push(topic, group).wait_until_started()
    wait_for_ids(sent, heir)
    assert ids([heir]) == Counter(sent)
    assert {said["attempt"] for said in heir.received} == {2}


@case(*PUSH_LANGUAGES)
def a_restart_of_the_consumer_loses_nothing(stage: Stage) -> None:
    topic, group = stage.topic(), stage.group()
    consumer = stage.push(topic, group)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    before = send(producer, *map(rich, range(5)))
    wait_for_ids(before, consumer)
    consumer.stop()
    meanwhile = send(producer, *map(rich, range(5, 10)))
    again = stage.push(topic, group).wait_until_started()
    wait_for_ids(meanwhile, again)
    after = send(producer, *map(rich, range(10, 15)))
    wait_for_ids(after, again)
    assert ids([consumer, again]) == Counter(before + meanwhile + after)


@case(*PUSH_LANGUAGES)
def after_the_last_attempt_a_message_is_a_dead_letter(stage: Stage) -> None:
    topic, group = stage.topic(), stage.group(delivery_attempts_max=2)
    consumer = stage.push(topic, group)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    sent = message("bad 你好", tag="TagA", keys=["k"], properties={"fails": "9"})
    (bad,) = send(producer, sent)
    assert [said["attempt"] for said in received_again(consumer, bad, 2)] == [1, 2]
    check_dead_letter(stage, group, bad, sent)
    assert ids([consumer]) == {bad: 2}


@case(*PUSH_LANGUAGES)
def a_message_group_goes_on_behind_a_dead_letter(stage: Stage) -> None:
    topic, group = stage.topic("FIFO"), stage.group(ordered=True, delivery_attempts_max=2)
    consumer = stage.push(topic, group)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    sent = message("0", message_group="one", properties={"fails": "9"})
    rest = [message(str(number), message_group="one") for number in (1, 2)]
    bad, *good = send(producer, sent, *rest)
    wait_for_ids([bad, *good], consumer)
    # Clients repeat the call themselves; Node's knows no such back-off and gives up at once (1.0.8).
    calls = 1 if stage.language == "node" else 2
    if stage.language in ("java", "python"):  # the others go on with what they hold
        assert [said["body"] for said in consumer.received] == ["0"] * calls + ["1", "2"]
    check_dead_letter(stage, group, bad, sent)
    assert ids([consumer]) == {bad: calls, **dict.fromkeys(good, 1)}


@case(*LANGUAGES)
def a_simple_consumer_decides_when_a_message_comes_again(stage: Stage) -> None:
    """0 is acknowledged, 1 and 3 get another invisible time, 2 is left alone. Rust's client cannot change the time."""
    changes = stage.language != "rust"
    topic, group = stage.topic(), stage.group()
    producer = stage.producer(topic)
    consumer = stage.simple(topic, group)
    sent = send(producer, *map(rich, range(4)))
    first = time.monotonic()
    got = {said["message_id"]: said for said in receive_until(consumer, lambda messages: len(messages) >= len(sent))}
    assert set(got) == set(sent)
    assert {said["attempt"] for said in got.values()} == {1}
    assert fields(got[sent[1]]) == {**rich(1), "keys": ["key-1", "shared"], "topic": topic, "message_group": None}
    acknowledge(consumer, got[sent[0]])
    invisible = dict.fromkeys(sent[1:], float(INVISIBLE_SECONDS))
    if changes:
        for message_id, seconds in ((sent[1], 1), (sent[3], 2 * INVISIBLE_SECONDS)):
            said = consumer.ask(do="change", message_id=message_id, invisible_seconds=seconds)
            assert said["event"] == "changed", said
            invisible[message_id] = float(seconds)
    came: dict[str, float] = {}

    def are_all_there(messages: list[Said]) -> bool:
        for said in messages:
            if said["message_id"] not in came:
                came[said["message_id"]] = time.monotonic() - first
                assert said["attempt"] == 2, consumer.said
                acknowledge(consumer, said)
        return len(came) >= len(invisible)

    receive_until(consumer, are_all_there)
    assert set(came) == set(invisible), "what was acknowledged does not come again"
    for message_id, after in came.items():
        assert after > invisible[message_id] - CLOCK_SECONDS, (message_id, came, invisible)
    if changes:
        assert came[sent[1]] < INVISIBLE_SECONDS < came[sent[3]]
        assert list(came) == sent[1:]


@case(*PUSH_LANGUAGES)
def the_highest_priority_comes_first(stage: Stage) -> None:
    """Python's and Node's clients take 0 for none."""
    topic, group = stage.topic("PRIORITY"), stage.group()
    producer = stage.producer(topic)
    priorities = [1, 3, 2, 1_000] * 3
    sent = send(producer, *(message(f"{priority}", priority=priority) for priority in priorities))
    consumer = stage.simple(topic, group)
    got = receive_until(consumer, lambda messages: len(messages) >= len(sent), 6 * INVISIBLE_SECONDS)
    # The topic has queues 0 to 3, so 1,000 counts as 3; those of one queue keep their order.
    by_queue = sorted(zip(sent, priorities, strict=True), key=lambda each: -min(each[1], 3))
    assert [said["message_id"] for said in got] == [message_id for message_id, _ in by_queue]
    if stage.language != "go":  # its view has no priority
        assert [said["priority"] for said in got] == [priority for _, priority in by_queue]
    assert {said["attempt"] for said in got} == {1}


@case(*PUSH_LANGUAGES)
def a_failed_message_comes_again_with_the_next_attempt(stage: Stage) -> None:
    topic, group = stage.topic(), stage.group()
    consumer = stage.push(topic, group)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    (bad,) = send(producer, message("bad", tag="TagA", keys=["k"], properties={"fails": "1"}))
    good = send(producer, *map(rich, range(4)))
    wait_for_ids(good, consumer)
    first, second = received_again(consumer, bad, 2)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert (first["outcome"], second["outcome"]) == ("failure", "success")
    assert fields(first) == fields(second)
    assert ids([consumer]) == Counter({bad: 2, **dict.fromkeys(good, 1)})


@case(*PUSH_LANGUAGES)
def every_message_arrives_once_with_all_its_fields(stage: Stage) -> None:
    topic, group = stage.topic(), stage.group()
    consumer = stage.push(topic, group)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    expected = {}
    for number in range(12):
        sent = rich(number)
        (message_id,) = send(producer, sent)
        expected[message_id] = {**sent, "keys": sorted(sent["keys"]), "topic": topic, "message_group": None}
    wait_for_ids(list(expected), consumer)
    last = send(producer, message("the last"))
    wait_for_ids(last, consumer)
    assert set(ids([consumer]).values()) == {1}
    assert {
        said["message_id"]: fields(said) for said in consumer.received if said["message_id"] in expected
    } == expected
    assert {said["attempt"] for said in consumer.received} == {1}


@case(*PUSH_LANGUAGES)
def two_groups_both_get_everything(stage: Stage) -> None:
    topic = stage.topic()
    consumers = [stage.push(topic, stage.group()) for _ in range(2)]
    producer = stage.producer(topic)
    for consumer in consumers:
        consumer.wait_until_started()
    sent = send(producer, *map(rich, range(10)))
    for consumer in consumers:
        wait_for_ids(sent, consumer)
        assert ids([consumer]) == Counter(sent)


@case(*PUSH_LANGUAGES)
def tags_choose_what_a_group_gets(stage: Stage) -> None:
    """`Aa` and `BB` have the same hash in the queue."""
    topic = stage.topic(queue_count=1)
    consumer = stage.push(topic, stage.group(), tag="TagA || Aa")
    producer = stage.producer(topic)
    consumer.wait_until_started()
    tags = ["TagA", "TagB", "BB", "Aa", None, "TagA"]
    sent = send(producer, *(message(f"{tag}", **({"tag": tag} if tag else {})) for tag in tags))
    chosen = [message_id for message_id, tag in zip(sent, tags, strict=True) if tag in ("TagA", "Aa")]
    wait_for_ids(chosen, consumer)  # the last of the one queue is among them
    assert ids([consumer]) == Counter(chosen)


@case(*PUSH_LANGUAGES)
def sql_chooses_what_a_group_gets(stage: Stage) -> None:
    topic = stage.topic(queue_count=1)
    sql = "price > 10 AND region IN ('eu', 'us') AND TAGS IS NOT NULL"
    consumer = stage.push(topic, stage.group(), sql=sql)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    rows = [
        ("11", "eu", "TagA", True),
        ("9", "eu", "TagA", False),
        ("11", "cn", "TagA", False),
        ("200", "us", "TagB", True),
        ("200", "us", None, False),
        ("10.5", "eu", "TagA", False),  # RocketMQ compares whole numbers with nothing else
        ("11", "us", "TagC", True),
    ]
    sent = [
        send(producer, message("row", properties={"price": price, "region": region}, **({"tag": tag} if tag else {})))[
            0
        ]
        for price, region, tag, _ in rows
    ]
    chosen = [message_id for message_id, row in zip(sent, rows, strict=True) if row[-1]]
    wait_for_ids(chosen, consumer)
    assert ids([consumer]) == Counter(chosen)


@case(*PUSH_LANGUAGES)
def message_groups_keep_their_order(stage: Stage) -> None:
    topic, group = stage.topic("FIFO"), stage.group(ordered=True)
    consumer = stage.push(topic, group)
    producer = stage.producer(topic)
    consumer.wait_until_started()
    messages = [message(f"{number}", message_group=f"group-{number % 3}") for number in range(24)]
    wait_for_ids(send(producer, *messages), consumer)
    bodies = defaultdict(list)
    for said in consumer.received:
        bodies[said["message_group"]].append(int(said["body"]))
    assert bodies == {f"group-{rest}": list(range(rest, 24, 3)) for rest in range(3)}


@case(*PUSH_LANGUAGES)
def two_consumers_of_a_group_share(stage: Stage) -> None:
    topic, group = stage.topic(queue_count=8), stage.group()
    consumers = [stage.push(topic, group) for _ in range(2)]
    producer = stage.producer(topic)
    for consumer in consumers:
        consumer.wait_until_started()
    sent: list[str] = []
    # How many it takes until both had some is up to the server.
    while not all(consumer.received for consumer in consumers):
        assert len(sent) < 2000, [len(consumer.received) for consumer in consumers]
        sent += send(producer, *map(rich, range(10)))
        wait_for_ids(sent, *consumers)
    assert ids(consumers) == Counter(sent)


@case("every")
def clients_of_all_languages_share_one_group(stage: Stage) -> None:
    topic, group = stage.topic(queue_count=8), stage.group()
    consumers = [stage.push(topic, group, language) for language in PUSH_LANGUAGES]
    producers = [stage.producer(topic, language) for language in LANGUAGES]
    for consumer in consumers:
        consumer.wait_until_started()
    expected: dict[str, Said] = {}
    while not all(consumer.received for consumer in consumers):
        assert len(expected) < 2000, [len(consumer.received) for consumer in consumers]
        for producer in producers:
            for number in range(4):
                sent = rich(number)
                (message_id,) = send(producer, sent)
                expected[message_id] = {**sent, "keys": sorted(sent["keys"]), "topic": topic, "message_group": None}
        wait_for_ids(list(expected), *consumers)
    assert ids(consumers) == Counter(expected.keys())
    received = [said for consumer in consumers for said in consumer.received]
    assert {said["message_id"]: fields(said) for said in received} == expected
