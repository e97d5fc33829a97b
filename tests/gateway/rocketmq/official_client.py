"""Sends messages by the official RocketMQ client for Python, in a process of its own: its generated code and ours claim the
same names in protobuf's pool.

    python official_client.py GATEWAY TOPIC COUNT       prints a JSON list of the receipts
"""

import json
import sys

from rocketmq import ClientConfiguration, Credentials, Message, Producer


def main(gateway: str, topic: str, count: int) -> None:
    producer = Producer(ClientConfiguration(gateway, Credentials(), request_timeout=60), (topic,))
    producer.startup()
    receipts = []
    try:
        for number in range(count):
            message = Message()
            message.topic = topic
            message.body = f"body {number} \u4f60\u597d".encode()
            message.tag = "TagA"
            message.keys = f"key-{number}"  # adds one
            message.keys = "all"
            message.add_property("colour", "red")
            if number % 2:
                message.message_group = f"group-{number % 3}"
            receipt = producer.send(message)
            receipts.append({"message_id": receipt.message_id, "offset": receipt.offset})
    finally:
        producer.shutdown()
    print(json.dumps(receipts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
