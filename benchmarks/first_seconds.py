"""A client that appends to the gateway from the moment it is told; prints one JSON line.

    python -m benchmarks.first_seconds BATCH BODY_BYTES SECONDS

It makes its requests and prints `ready`; then it waits for a line with the gateway's address and the time at which the
services were SERVING (seconds since the epoch). It prints the acknowledged messages of each BIN_SECONDS from that time on.
"""

import itertools
import json
import os
import queue
import sys
import time
from collections.abc import Iterator

import grpc

from benchmarks.load import STREAM_WINDOW, TOPIC
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

METHOD = "/reput.gateway.v1.GatewayService/AppendMessageStream"
REQUEST_COUNT = 64  # made ahead and sent in turn: while it is measured, the client only sends and counts
BIN_SECONDS = 0.1


def main() -> None:
    """Sends for SECONDS after the services were SERVING."""
    batch, body_bytes, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    body = os.urandom(body_bytes)
    requests = [
        pb.AppendMessageStreamRequest(
            messages=[
                message_pb2.NewMessage(topic=TOPIC, body=body, keys=[f"key-{number * batch + i}"], tags="TagA")
                for i in range(batch)
            ],
            flush=message_pb2.FLUSH_MODE_ASYNC,
        ).SerializeToString()
        for number in range(REQUEST_COUNT)
    ]
    print("ready", flush=True)
    address, serving_time = sys.stdin.readline().split()
    print(json.dumps(_send(address, requests, float(serving_time), seconds)))


def _send(address: str, requests: list[bytes], serving_time: float, seconds: float) -> list[int]:
    counts = [0] * round(seconds / BIN_SECONDS)
    window: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(STREAM_WINDOW):
        window.put(None)

    def sending() -> Iterator[bytes]:
        for request in itertools.cycle(requests):
            window.get()
            if time.time() > serving_time + seconds:
                return
            yield request

    with grpc.insecure_channel(address) as channel:
        stream = channel.stream_stream(METHOD, response_deserializer=pb.AppendMessageStreamResponse.FromString)
        for response in stream(sending(), wait_for_ready=True):
            window.put(None)
            if response.HasField("error"):
                raise RuntimeError(response.error.message)
            place = int((time.time() - serving_time) / BIN_SECONDS)
            if place < len(counts):
                counts[place] += len(response.results)
    return counts


if __name__ == "__main__":
    main()
