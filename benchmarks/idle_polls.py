"""Holds idle long polls at a gateway, as many consumers do: `python -m benchmarks.idle_polls ENDPOINT TOPIC POLLS CONNECTIONS`.

Prints a line when all polls were sent, and holds them until stdin ends.
"""

import asyncio
import sys

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2

RECEIVE = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
POLL_SECONDS = 20
# Polls that begin together; the gateway answers what it cannot take with TOO_MANY_REQUESTS.
STARTED_TOGETHER = 200


async def hold(endpoint: str, topic: str, poll_count: int, connection_count: int) -> None:
    """Polls, until stdin ends."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(endpoint, options=options) for _ in range(connection_count)]
    calls = []
    for number in range(poll_count):
        request = v2.ReceiveMessageRequest(
            group=v2.Resource(name=f"idle-{number % 100}"),
            message_queue=v2.MessageQueue(topic=v2.Resource(name=topic), id=-1),
            batch_size=32,
            auto_renew=True,
            long_polling_timeout={"seconds": POLL_SECONDS},
        )
        receive = channels[number % connection_count].unary_stream(
            RECEIVE, request_serializer=v2.ReceiveMessageRequest.SerializeToString
        )
        metadata = (("x-mq-client-id", f"idle-{number}"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.2.0"))
        calls.append(receive(request, metadata=metadata))
        if number % STARTED_TOGETHER == STARTED_TOGETHER - 1:
            await asyncio.sleep(0.05)  # paced, so that none is refused
    print("sent", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for call in calls:
        call.cancel()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
