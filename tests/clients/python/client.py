"""The official Python client behind the line protocol of tests/clients/programs.py.

In a process of its own: its generated code and ours claim the same names in protobuf's pool.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

Order = dict[str, Any]
saying = threading.Lock()


def say(event: str, **said: object) -> None:
    with saying:
        print(json.dumps({"event": event, **said}), flush=True)


def lines() -> Iterator[Order]:
    """The lines of standard input, until it ends."""
    for line in sys.stdin:
        yield json.loads(line)


def configuration(order: Order) -> ClientConfiguration:
    credentials = Credentials(order.get("access_key", ""), order.get("secret", ""))
    # Seconds, for a hang; its own 3 s are short for a busy machine. A push consumer waits for its open polls at its end.
    return ClientConfiguration(order["endpoint"], credentials, request_timeout=3 if order["role"] == "push" else 60)


def subscription(order: Order) -> dict[str, FilterExpression]:
    if "sql" in order:
        return {order["topic"]: FilterExpression(order["sql"], FilterType.SQL)}
    return {order["topic"]: FilterExpression(order.get("tag", "*"), FilterType.TAG)}


def described(message: Message) -> dict[str, object]:
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "body": message.body.decode(),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": message.properties,
        "message_group": message.message_group,
        "priority": message.priority,
        "lite_topic": message.lite_topic,
        "attempt": message.delivery_attempt,
    }


class Checker(TransactionChecker):
    """Gives the verdict of the order."""

    def __init__(self, verdict: str) -> None:
        self.verdict = getattr(TransactionResolution, verdict, TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)

    def check(self, message: Message) -> TransactionResolution:
        say("checked", **described(message))
        return self.verdict


def recall(producer: Producer, order: Order, line: Order) -> None:
    try:
        say("recalled", message_id=producer.recall_message(order["topic"], line["recall_handle"]))
    except Exception as error:  # pytest judges it
        say("failed", error=repr(error))


def send(order: Order) -> None:
    checker = Checker(order["checker"]) if "checker" in order else None
    producer = Producer(configuration(order), (order["topic"],), checker)
    producer.startup()
    say("started")
    for line in lines():
        if line.get("do") == "recall":
            recall(producer, order, line)
            continue
        message = Message()
        message.topic = order["topic"]
        message.body = line["body"].encode()
        if "tag" in line:
            message.tag = line["tag"]
        for key in line.get("keys", ()):
            message.keys = key  # adds one
        for name, value in line.get("properties", {}).items():
            message.add_property(name, value)
        if "message_group" in line:
            message.message_group = line["message_group"]
        if "priority" in line:
            message.priority = line["priority"]
        if "lite_topic" in line:
            message.lite_topic = line["lite_topic"]
        if "deliver_at_seconds" in line:
            message.delivery_timestamp = line["deliver_at_seconds"]
        if "transaction" in line:
            transaction = producer.begin_transaction()
            receipt = producer.send(message, transaction)
            if line["transaction"] == "commit":
                transaction.commit()
            elif line["transaction"] == "rollback":
                transaction.rollback()
        else:
            receipt = producer.send(message)
        say("sent", message_id=receipt.message_id, recall_handle=receipt.recall_handle)
    producer.shutdown()


class Listener(MessageListener):
    """Says what comes; fails when the message asks for it, holds when the order does."""

    def __init__(self, order: Order) -> None:
        self.holds = order.get("hold", False)
        self.calls: Counter[str] = Counter()

    def consume(self, message: Message) -> ConsumeResult:
        self.calls[message.message_id] += 1
        fails = self.calls[message.message_id] <= int(message.properties.get("fails", "0"))
        outcome = "held" if self.holds else "failure" if fails else "success"
        say("received", **described(message), outcome=outcome)
        if self.holds:
            threading.Event().wait()
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def push(order: Order) -> None:
    consumer = PushConsumer(configuration(order), order["group"], Listener(order), subscription(order))
    consumer.startup()
    say("started")
    for _ in lines():
        pass
    consumer.shutdown()


def subscribe(consumer: LitePushConsumer | LiteSimpleConsumer, line: Order) -> None:
    if line["do"] == "subscribe":
        consumer.subscribe_lite(line["lite_topic"])
    else:
        consumer.unsubscribe_lite(line["lite_topic"])
    say("subscribed")


def lite(order: Order) -> None:
    consumer = LitePushConsumer(configuration(order), order["group"], order["topic"], Listener(order))
    consumer.startup()
    say("started")
    for line in lines():
        try:
            subscribe(consumer, line)
        except Exception as error:  # pytest judges it
            say("failed", error=repr(error))
    consumer.shutdown()


def simple(order: Order) -> None:
    if order.get("is_lite"):
        consumer = LiteSimpleConsumer(order["topic"], configuration(order), order["group"], order["await_seconds"])
    else:
        consumer = SimpleConsumer(configuration(order), order["group"], subscription(order), order["await_seconds"])
    consumer.startup()
    say("started")
    held: dict[str, Message] = {}
    for line in lines():
        try:
            if "lite_topic" in line:
                subscribe(consumer, line)
            elif line["do"] == "receive":
                messages = consumer.receive(line["batch"], line["invisible_seconds"])
                held.update((message.message_id, message) for message in messages)
                say("batch", messages=[described(message) for message in messages])
            elif line["do"] == "ack":
                consumer.ack(held[line["message_id"]])
                say("acked")
            else:
                consumer.change_invisible_duration(held[line["message_id"]], line["invisible_seconds"])
                say("changed")
        except Exception as error:  # pytest judges it
            say("failed", error=repr(error))
    consumer.shutdown()


def main(order: Order) -> None:
    roles: dict[str, Callable[[Order], None]] = {"send": send, "push": push, "lite": lite, "simple": simple}
    roles[order["role"]](order)
    say("stopped")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
