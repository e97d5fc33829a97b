"""Starting another program from a process in which gRPC runs, as PySpark starts Java."""

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).parents[2]
PROGRAM = """
import subprocess, threading
import pipeline.spark_session
import grpc
from concurrent import futures
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

server = grpc.server(futures.ThreadPoolExecutor(4))
health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
enough = threading.Event()

def call():
    while not enough.is_set():
        stub.Check(health_pb2.HealthCheckRequest())

callers = [threading.Thread(target=call) for _ in range(2)]
for caller in callers:
    caller.start()
# A function to run before exec makes Python fork, and PySpark gives one.
started = [subprocess.run(["true"], preexec_fn=lambda: None, stderr=subprocess.PIPE) for _ in range(60)]
enough.set()
for caller in callers:
    caller.join()
print(sum(bool(one.returncode or one.stderr) for one in started))
server.stop(None).wait()
"""


def test_a_process_with_grpc_can_start_java(monkeypatch) -> None:
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)

    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=True
    )

    assert "0" == told.stdout.strip()
