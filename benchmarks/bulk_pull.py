"""Reads a whole topic with PullMessages, a stream for each queue; prints one JSON line.

python -m benchmarks.bulk_pull ENDPOINT TOPIC QUEUES BATCH
"""

import json
import sys
import threading
import time

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc

BATCH_BYTES = 1 << 20
ANSWER_BYTES_MAX = 16 << 20


def main() -> None:
    """Reads all queues to their ends."""
    endpoint, topic, queue_count, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    counts = [0] * queue_count
    options = [("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]
    with grpc.insecure_channel(endpoint, options=options) as channel:
        stub = pb_grpc.GatewayServiceStub(channel)

        def pull(queue_id: int) -> None:
            request = pb.PullMessagesRequest(topic=topic, queue_id=queue_id, max_messages=batch, max_bytes=BATCH_BYTES)
            for answer in stub.PullMessages(request):
                counts[queue_id] += sum(1 for message in answer.messages if message.body)

        begin = time.monotonic()
        threads = [threading.Thread(target=pull, args=(queue_id,)) for queue_id in range(queue_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps({"rate": sum(counts) / (time.monotonic() - begin), "count": sum(counts)}))


if __name__ == "__main__":
    main()
