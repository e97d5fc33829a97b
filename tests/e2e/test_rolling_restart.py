"""A shard and its gateways, restarted one after the other, again and again, under 5,000 messages and 200 queries a second.

Real processes, ended by SIGTERM as an upgrade ends them. Clients know the gateways by a name (`dns://`) whose addresses change
as the gateways go from 1 to 3 and back to 1. Then the shard comes back at other addresses, and old ids still name their
messages.

What has to hold: no read fails or misses what was acknowledged, no append fails for another reason than UNAVAILABLE, which the
client library tries again by itself, and in the end the log has each acknowledged message once. LIFE_SECONDS sets how long the
load lasts (30; 600 for a release).
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reput_client import Completeness, Producer, QueryClient, RetryPolicy, SendReceipt
from reput_client.channel import CHANNEL_OPTIONS
from tests.support.dns import NameServer
from tests.support.ports import free_port
from tests.support.service import ROOT, Service
from tests.support.waiting import WAIT_SECONDS_MAX

SECONDS = float(os.environ.get("LIFE_SECONDS", "30"))
# A little over 5,000 and 200, so that these are held with the time that the last answers take.
MESSAGES_PER_SECOND = 5_100
QUERIES_PER_SECOND = 204
TICK_SECONDS = 0.02
ASKER_COUNT = 16
# A shard has one index: while that starts anew, a question waits.
PATIENT = RetryPolicy(attempt_count_max=100)
BODY = b"x" * 256
TOPIC = "Life"
GATEWAYS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SHARD = ("index", "consumequeue", "commitlog")
# Of three, each gets a third of the queries; less than half of that is no balance.
LEAST_SHARE = 1 / 6

pytestmark = [pytest.mark.life, pytest.mark.timeout(SECONDS + 300)]


class Installation:
    """The processes, each at an address that it keeps over restarts."""

    def __init__(self, store: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self.store = store
        self._stack = stack
        self._gateway_port = free_port()
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in SHARD}
        self.pages = {host: f"127.0.0.1:{free_port()}" for host in GATEWAYS}
        self.running: dict[str, Service] = {}
        self.restart_seconds: dict[str, list[float]] = {}
        for name in reversed(SHARD):
            self.start(name)

    @property
    def gateway_port(self) -> int:
        return self._gateway_port

    def start(self, name: str) -> None:
        """A service of the shard, or the gateway at a host."""
        settings = {f"REPUT_{other.upper()}_TARGET": address for other, address in self.addresses.items()}
        if name in SHARD:
            component = name
            settings[f"REPUT_{name.upper()}_ADDRESS"] = self.addresses[name]
        else:
            component = "gateway"
            settings["REPUT_GATEWAY_ADDRESS"] = f"{name}:{self._gateway_port}"
            settings["REPUT_GATEWAY_METRICS_ADDRESS"] = self.pages[name]
            settings["REPUT_CONNECTION_AGE_SECONDS"] = "2"
        self.running[name] = self._stack.enter_context(Service(component, self.store, settings))

    def stop(self, name: str) -> None:
        assert self.running.pop(name).stop() == 0, f"{name} did not end cleanly"

    def restart(self, name: str) -> None:
        began = time.monotonic()
        self.stop(name)
        self.start(name)
        self.restart_seconds.setdefault(name if name in SHARD else "gateway", []).append(time.monotonic() - began)

    @property
    def restart_count(self) -> int:
        return sum(map(len, self.restart_seconds.values()))

    def restart_growth(self) -> dict[str, tuple[float, float]]:
        """Of each service, how long a restart took at first and in the end (seconds, means)."""
        growth = {}
        for name, seconds in self.restart_seconds.items():
            count = max(1, len(seconds) // 5)
            growth[name] = (round(sum(seconds[:count]) / count, 2), round(sum(seconds[-count:]) / count, 2))
        return growth

    def query_count(self, host: str) -> float:
        with urllib.request.urlopen(f"http://{self.pages[host]}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "reput_gateway_query_seconds_count"
        )


class Load:
    """Sends and asks at its pace until stopped; what it missed of it, it makes up for."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self.producer = Producer(channel=self._channel)
        self.client = QueryClient(channel=self._channel, retry=PATIENT)
        self._stopping = threading.Event()
        self.sent_count = self.acked_count = self.partial_count = 0
        self.failures: list[str] = []
        self.query_seconds: list[float] = []
        self.ack_seconds: list[float] = []
        self.receipts: list[tuple[str, SendReceipt]] = []  # some of what was acknowledged, by key
        self._lock = threading.Lock()
        self.began = time.monotonic()
        self._threads = [threading.Thread(target=self._send, daemon=True)]
        self._threads += [
            threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(ASKER_COUNT)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> float:
        """Every message is answered, every asker done; the seconds that it lasted."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive()
        self.producer.flush()
        self.producer.close()
        return time.monotonic() - self.began

    def close(self) -> None:
        self.client.close()
        self._channel.close()

    def _send(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            due = int((time.monotonic() - self.began) * MESSAGES_PER_SECOND)
            for number in range(self.sent_count, due):
                future = self.producer.send(TOPIC, BODY, keys=[f"k{number}"])
                future.add_done_callback(partial(self._answered, number, time.monotonic()))
            self.sent_count = max(self.sent_count, due)

    def _answered(self, number: int, sent_at: float, future: Future[SendReceipt]) -> None:
        error = future.exception()
        if error is not None:
            self.failures.append(f"append: {error}")
            return
        self.acked_count += 1
        if number % 50 == 0:
            self.ack_seconds.append(time.monotonic() - sent_at)
            self.receipts.append((f"k{number}", future.result()))

    def _ask(self, asker: int) -> None:
        asked_count = 0
        while not self._stopping.wait(TICK_SECONDS):
            due = int((time.monotonic() - self.began) * QUERIES_PER_SECOND / ASKER_COUNT)
            while asked_count < due and self.receipts and not self._stopping.is_set():
                asked_count += 1
                key, receipt = self.receipts[(asked_count * 7919 + asker) % len(self.receipts)]
                began = time.monotonic()
                try:
                    self._ask_one(key, receipt, by_id=asked_count % 2 == 0)
                except Exception as error:
                    self.failures.append(f"query: {type(error).__name__} {error}")
                self.query_seconds.append(time.monotonic() - began)

    def _ask_one(self, key: str, receipt: SendReceipt, *, by_id: bool) -> None:
        if by_id:
            found = [self.client.by_id(receipt.offset_msg_id)]
        else:
            pages = self.client.by_key(TOPIC, key, after=[receipt])
            found = list(pages)
            if pages.completeness is Completeness.PARTIAL:
                self.partial_count += 1
                if not found:
                    return  # it said that something may be missing
        if [message.offset_msg_id for message in found] != [receipt.offset_msg_id]:
            self.failures.append(f"{key}: {len(found)} found, {'by id' if by_id else 'by key'}")


def share(counts: list[float]) -> list[float]:
    return [count / max(1.0, sum(counts)) for count in counts]


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] if seconds else 0.0


@pytest.fixture
def installation(tmp_path: pathlib.Path) -> Iterator[Installation]:
    with contextlib.ExitStack() as stack:
        yield Installation(tmp_path / "store", stack)


def test_everything_is_restarted_under_load_and_nobody_notices(installation: Installation, capsys) -> None:
    first, *others = GATEWAYS
    installation.start(first)
    with NameServer([first]) as names, contextlib.ExitStack() as closing:
        load = Load(f"dns://127.0.0.1:{names.port}/gateway.test:{installation.gateway_port}")
        closing.callback(load.close)
        for host in others:
            installation.start(host)
        names.addresses = list(GATEWAYS)

        # All three are found, and each gets its share.
        deadline = time.monotonic() + 60
        shares = [0.0]
        while min(shares) < LEAST_SHARE:
            assert time.monotonic() < deadline, f"no balance: {shares}"
            before = [installation.query_count(host) for host in GATEWAYS]
            time.sleep(2)  # for so long queries are counted
            after = [installation.query_count(host) for host in GATEWAYS]
            shares = share([b - a for a, b in zip(before, after, strict=True)])

        while time.monotonic() - load.began < SECONDS * 0.8:
            for name in (*GATEWAYS, *SHARD):
                installation.restart(name)
                time.sleep(0.5)  # a rolling upgrade pauses between two processes

        names.addresses = [first]
        for host in others:
            installation.stop(host)
        time.sleep(max(0.0, load.began + SECONDS - time.monotonic()))  # the load lasts so long
        seconds = load.stop()

        with capsys.disabled():
            print(
                f"\n{load.acked_count} appends ({load.acked_count / seconds:.0f}/s, p99 {p99(load.ack_seconds):.3f} s), "
                f"{len(load.query_seconds)} queries ({len(load.query_seconds) / seconds:.0f}/s, "
                f"p99 {p99(load.query_seconds):.3f} s), {installation.restart_count} restarts, "
                f"{load.partial_count} partial, shares {[round(part, 2) for part in shares]}, "
                f"seconds of a restart, first and last fifth: {installation.restart_growth()}"
            )
        assert not load.failures, (len(load.failures), Counter(text[:80] for text in load.failures).most_common(5))
        assert load.acked_count == load.sent_count
        assert installation.restart_count >= len(GATEWAYS) + len(SHARD)

        # The shard comes back elsewhere: ids name offsets, not addresses.
        for name in (first, *SHARD):
            installation.stop(name)
        installation.addresses = {name: f"127.0.0.1:{free_port()}" for name in SHARD}
        for name in (*reversed(SHARD), first):
            installation.start(name)
        for key, receipt in load.receipts[:: max(1, len(load.receipts) // 50)]:
            message = load.client.by_id(receipt.offset_msg_id)
            assert (list(message.keys), message.body) == ([key], BODY)
        for name in (first, *SHARD):
            installation.stop(name)

    # Every acknowledged message is there, once; queues and index are what the log says.
    command = [sys.executable, "-m", "cli.main", "fsck", str(installation.store), "-o", "json"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["clean"], report["findings"][:5]
    assert report["log"]["record_count"] == load.sent_count, report["log"]
    assert "LOG_UNIQUE_KEY_REPEATED" not in {finding["code"] for finding in report["findings"]}
