"""The append engine alone: parse protobuf, check, encode, CRC, write; one thread, no network.

python -m benchmarks.engine [--batch 32] [--count 100000]
"""

import argparse
import pathlib
import sys
import tempfile
import time

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.format.host import Host

ROUNDS = 5


def main() -> int:
    """Append to a fresh log, several rounds; print the best and the median rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="messages a request")
    parser.add_argument("--count", type=int, default=100_000, help="messages a round")
    options = parser.parse_args()
    messages = [
        message_pb2.NewMessage(topic="Bench", body=b"x" * 1024, keys=[f"key-{i}"], tags="TagA")
        for i in range(options.batch)
    ]
    payload = pb.AppendMessagesRequest(messages=messages).SerializeToString()
    host = Host("127.0.0.1", 1)
    with tempfile.TemporaryDirectory(prefix="reput-bench-") as scratch:
        log = CommitLog(pathlib.Path(scratch) / "store", CommitLogSettings(store=pathlib.Path(scratch) / "store"))
        log.recover()
        rates = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(options.count // options.batch):
                request = pb.AppendMessagesRequest.FromString(payload)
                log.append_messages(request.messages, sync=False, born_host=host)
            rates.append(options.count / (time.perf_counter() - start))
        log.close()
    best, median = max(rates), sorted(rates)[ROUNDS // 2]
    print(f"engine, batch of {options.batch}, 1 KiB: best {best:,.0f} messages/s, median {median:,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
