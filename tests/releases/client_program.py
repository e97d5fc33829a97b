"""A program with the client library: it sends, finds, consumes and reads, and prints what it got.

    python client_program.py GATEWAY TOPIC

It has only names that every release of `reput_client` has, so it runs with each of them.
"""

import sys
import time

from reput_client import AppendClient, Consumer, NewMessage, PullConsumer, QueryClient, TransactionProducer

COUNT = 20
SECONDS_MAX = 60.0


def main(gateway: str, topic: str) -> None:
    """The command of this file."""
    names = [f"{topic}-{number}" for number in range(COUNT)]
    with AppendClient(gateway) as client:
        for name in names:
            client.append([NewMessage(topic, name.encode(), unique_key=name, keys=[name], tags="red")])
        client.append([NewMessage(topic, b"late", unique_key="late", delay_level=1)])
    with TransactionProducer(gateway) as producer:
        producer.send_half(NewMessage(topic, b"half", unique_key="half")).commit()
        producer.send_half(NewMessage(topic, b"never", unique_key="never")).rollback()
    expected = sorted([*names, "late", "half"])
    with QueryClient(gateway) as client:
        found = [message.body.decode() for name in names for message in client.by_key(topic, name)]
        assert found == names, found
        first = next(iter(client.by_key(topic, names[0])))
        assert client.by_id(first.offset_msg_id).body.decode() == names[0]
    print("consumed", consumed(gateway, topic, len(expected)) == expected)
    print("pulled", pulled(gateway, topic, len(expected)) == expected)


def consumed(gateway: str, topic: str, count: int) -> list[str]:
    """What a group that acknowledges gets."""
    got: list[str] = []
    deadline = time.monotonic() + SECONDS_MAX
    with Consumer(gateway, f"{topic}-pops", {topic: "*"}) as consumer:
        while len(got) < count and time.monotonic() < deadline:
            delivery = consumer.take(timeout_seconds=1)
            if delivery is not None:
                got.append(delivery.message.body.decode())
                delivery.ack()
    return sorted(got)


def pulled(gateway: str, topic: str, count: int) -> list[str]:
    """What a group that reads queues by position gets."""
    got: list[str] = []
    deadline = time.monotonic() + SECONDS_MAX
    with PullConsumer(gateway, f"{topic}-pulls", {topic: "*"}) as consumer:
        while len(got) < count and time.monotonic() < deadline:
            got += [message.body.decode() for message in consumer.poll(timeout_seconds=1)]
        consumer.commit()
    return sorted(got)


if __name__ == "__main__":
    main(*sys.argv[1:])
