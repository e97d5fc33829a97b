"""The append engine alone, from a request's bytes to its response's: parse, check, encode, CRC, write; one thread, no network.

python -m benchmarks.sides.engine [--batch 32] [--body 1024] [--count 50000] [--deduplicate] [--plain]
"""

import argparse
import pathlib
import sys
import tempfile
import time

from commitlog_svc.append.append_path import KERNELS
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.compiled import loading
from store.format.host import Host

ROUNDS = 5


def make_requests(batch: int, body_size_bytes: int, count: int, deduplicate: bool, first: int) -> list[bytes]:
    """The bytes of requests for `count` messages; all equal, unless each message needs a unique key."""
    messages = [
        message_pb2.NewMessage(topic="Bench", body=b"x" * body_size_bytes, keys=[f"key-{i}"], tags="TagA")
        for i in range(batch)
    ]
    requests = []
    for number in range(first, first + count // batch):
        if number == first or deduplicate:
            for place, message in enumerate(messages):
                if deduplicate:
                    message.unique_key = f"{number * batch + place:032X}"
            request = pb.AppendMessagesRequest(
                messages=messages, flush=message_pb2.FLUSH_MODE_ASYNC, deduplicate=deduplicate
            )
            payload = request.SerializeToString()
        requests.append(payload)
    return requests


def main() -> int:
    """Appends to a fresh log, several rounds; prints the best and the median rate, by the clock and by CPU time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="messages a request")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--count", type=int, default=50_000, help="messages a round")
    parser.add_argument("--deduplicate", action="store_true", help="ask for it, with keys never seen before")
    parser.add_argument("--plain", action="store_true", help="without compiled kernels")
    options = parser.parse_args()
    if options.plain:
        loading.switch(loading.OFF)
    elif any(loading.load(name) is None for name in KERNELS):
        parser.error("the kernels cannot be loaded: --plain does without")
    host = Host("127.0.0.1", 1)
    with tempfile.TemporaryDirectory(prefix="reput-bench-") as scratch:
        log = CommitLog(pathlib.Path(scratch) / "store", CommitLogSettings(store=pathlib.Path(scratch) / "store"))
        log.recover()
        servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:8082")
        rates, cpu_rates = [], []
        for number in range(-1, ROUNDS):  # round -1 makes the topic and warms up
            first = (number + 1) * options.count
            requests = make_requests(options.batch, options.body, options.count, options.deduplicate, first)
            start, cpu_start = time.perf_counter(), time.thread_time()
            for request in requests:
                servicer.append_bytes(request, host)
            count = len(requests) * options.batch
            if number >= 0:
                rates.append(count / (time.perf_counter() - start))
                cpu_rates.append(count / (time.thread_time() - cpu_start))
        log.close()
    print(
        f"engine, batch of {options.batch}, {options.body} B: best {max(rates):,.0f} messages/s, "
        f"median {sorted(rates)[ROUNDS // 2]:,.0f}; by CPU time best {max(cpu_rates):,.0f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
