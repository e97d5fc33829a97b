"""The cases of messages that wait: for their time, or for the verdict of their transaction; see cases.py."""

import time

from tests.clients.cases import CLOCK_SECONDS, case, fields, rich
from tests.clients.programs import LANGUAGES, PUSH_LANGUAGES
from tests.clients.stage import Stage, acknowledge, receipt_of, receive_until, send

# Long enough to send and to recall before, on a busy machine.
DELAY_SECONDS = 8


@case(*LANGUAGES)
def an_orphaned_transaction_is_asked_about_after_its_producers_death(stage: Stage) -> None:
    topic = stage.topic("TRANSACTION")
    dead = stage.producer(topic, checker="UNKNOWN")
    sent = rich(0)
    orphan = send(dead, {**sent, "transaction": "hang"})[0]
    dead.kill()
    heir = stage.producer(topic, checker="COMMIT")
    consumer = stage.simple(topic, stage.group())
    (received,) = receive_until(consumer, len)
    acknowledge(consumer, received)
    assert received["message_id"] == orphan
    assert received["body"] == sent["body"]
    checked = [said for said in heir.events("checked") if said["message_id"] == orphan]
    assert checked
    assert checked[0]["body"] == sent["body"]
    heir.stop()


@case(*LANGUAGES)
def a_transaction_is_seen_when_it_is_committed_and_never_after_a_rollback(stage: Stage) -> None:
    topic = stage.topic("TRANSACTION")
    producer = stage.producer(topic, checker="UNKNOWN")
    consumer = stage.simple(topic, stage.group())
    verdicts = ("rollback", "commit", "rollback", "commit")
    sent = send(producer, *({**rich(number), "transaction": verdict} for number, verdict in enumerate(verdicts)))
    received = receive_until(consumer, lambda messages: len(messages) >= 2)
    acknowledge(consumer, *received)
    assert {each["message_id"]: each["body"] for each in received} == {
        sent[number]: rich(number)["body"] for number in (1, 3)
    }
    for each in received:
        # RocketMQ's proxy gives away two of its own properties beside them.
        assert each["properties"].items() >= rich(0)["properties"].items()
    producer.stop()


@case(*LANGUAGES)
def a_delayed_message_comes_at_its_time(stage: Stage) -> None:
    """Python's and Rust's clients send whole seconds."""
    topic = stage.topic("DELAY")
    producer = stage.producer(topic)
    consumer = stage.simple(topic, stage.group())
    due = int(time.time()) + DELAY_SECONDS
    past = int(time.time()) - DELAY_SECONDS
    late, early = send(producer, {**rich(0), "deliver_at_seconds": due}, {**rich(1), "deliver_at_seconds": past})
    (first,) = receive_until(consumer, len)
    acknowledge(consumer, first)
    assert first["message_id"] == early
    (second,) = receive_until(consumer, len)
    acknowledge(consumer, second)
    assert second["message_id"] == late
    assert due <= time.time() + CLOCK_SECONDS
    assert fields(second) == {**fields({**second, **rich(0)}), "topic": topic}
    producer.stop()


# Rust's client cannot recall.
@case(*PUSH_LANGUAGES)
def a_recalled_message_never_comes(stage: Stage) -> None:
    topic = stage.topic("DELAY")
    producer = stage.producer(topic)
    consumer = stage.simple(topic, stage.group())
    due = int(time.time()) + 2 * DELAY_SECONDS
    gone = receipt_of(producer, {**rich(0), "deliver_at_seconds": due})
    kept = receipt_of(producer, {**rich(1), "deliver_at_seconds": due + 1})
    recalled = producer.ask(do="recall", recall_handle=gone["recall_handle"])
    assert recalled == {"event": "recalled", "message_id": gone["message_id"]}
    (received,) = receive_until(consumer, len)
    acknowledge(consumer, received)
    assert received["message_id"] == kept["message_id"]
    broken = producer.ask(do="recall", recall_handle="made up")
    assert broken["event"] == "failed"
    producer.stop()
