"""A fleet of unmodified Java programs that send and consume while brokers change, and the judge of what they saw.

`remoting/java/Fleet.java` says what the programs do.
"""

import pathlib
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.rocketmq import remoting_programs
from tests.support.failures import watch_log
from tests.support.processes import put_first
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPICS = ("Plain", "Ordered", "Late", "Sold")
KEY_COUNT = 16  # of Fleet.java
# Clients divide queues anew each 20 s; a test has no time for that.
REBALANCE_MILLIS = 1_000
POLL_MILLIS = 1_000
NICENESS = -5


@dataclass(frozen=True)
class Got:
    """What a consumer was handed."""

    body: str
    reconsume_times: int
    broker_name: str
    instance: str


@dataclass
class Seen:
    """What a fleet has said, in its order; by topic."""

    sent: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))  # body: broker
    got: dict[str, list[Got]] = field(default_factory=lambda: defaultdict(list))
    failed: list[tuple[str, str, str]] = field(default_factory=list)  # topic, body, problem

    def missing(self) -> dict[str, list[str]]:
        """What was stored and not consumed, by topic."""
        found = {}
        for topic, bodies in list(self.sent.items()):
            consumed = {each.body for each in list(self.got[topic])}
            lost = [f"{body} of {broker}" for body, broker in list(bodies.items()) if body not in consumed]
            if lost:
                found[topic] = lost
        return found

    def out_of_order(self) -> list[str]:
        """Messages of a key that were consumed for the first time behind a later one of that key."""
        newest: dict[str, int] = {}
        seen: set[str] = set()
        found: list[str] = []
        for each in self.got["Ordered"]:
            if each.body in seen:
                continue
            seen.add(each.body)
            name, _, number = each.body.rpartition("-")
            key = f"{name}-{int(number) % KEY_COUNT}"
            if newest.get(key, -1) > int(number):
                found.append(f"{each} behind {newest[key]}")
            newest[key] = max(newest.get(key, -1), int(number))
        return found

    def again(self) -> list[Got]:
        """What one consumer was handed a second time as the same attempt.

        Without messages whose send was repeated. Whoever sends a message back, or takes a queue over, may see it again.
        """
        repeated = {(topic, body) for topic, body, _ in self.failed}
        return [
            each
            for topic, rows in self.got.items()
            for each, count in Counter(rows).items()
            if count > 1 and (topic, each.body) not in repeated
        ]

    def brokers_of_sends(self) -> Counter[str]:
        return Counter(broker for bodies in list(self.sent.values()) for broker in list(bodies.values()))


class Fleet:
    """One process with producers and consumers of a version of RocketMQ's client.

    Args:
        version: of the client.
        nameserver: its HOST:PORT, all that the programs know.
        seen: takes what it says.
        work: a directory for what its clients write.
        pause_millis: between two messages of a producer.
        poll_millis: clients ask for routes so often.
        rebalance_millis: and divide their queues so often.
    """

    def __init__(
        self,
        version: str,
        nameserver: str,
        seen: Seen,
        work: pathlib.Path,
        *,
        pause_millis: int = 200,
        poll_millis: int = POLL_MILLIS,
        rebalance_millis: int = REBALANCE_MILLIS,
    ) -> None:
        work.mkdir(parents=True)
        self._seen = seen
        self._said: Counter[str] = Counter()
        program, *flags, _ = remoting_programs.built(f"java-{version}")
        intervals = [f"-Drocketmq.client.rebalance.{name}Interval={rebalance_millis}" for name in ("wait", "min")]
        name = f"v{version.replace('.', '')}"
        arguments = [nameserver, name, str(poll_millis), str(pause_millis)]
        watch_log(work / "stderr")
        with open(work / "stderr", "wb") as log:
            self._process = subprocess.Popen(
                [program, f"-Duser.home={work}", *intervals, *flags, "Fleet", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=work,
                text=True,
            )
        # A client whose heartbeats come late loses its queues for a moment, and is handed messages again.
        put_first([self._process.pid], NICENESS)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._note(line.rstrip("\n").split("\t"))

    def _note(self, words: Sequence[str]) -> None:
        match words:
            case ["SENT", topic, body, broker, "SEND_OK"]:
                self._seen.sent[topic][body] = broker
            case ["GOT", topic, body, times, broker, instance]:
                self._seen.got[topic].append(Got(body, int(times), broker, instance))
            case ["SENT" | "FAILED", topic, body, *problem]:
                self._seen.failed.append((topic, body, " ".join(problem)))
            case [("QUIET" | "ENDED") as word]:
                self._said[word] += 1

    def _tell(self, word: str, answer: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        wait_until(lambda: self._said[answer] > 0, lambda: f"{answer}: {self._seen.failed[-3:]}")

    def quiet(self) -> None:
        """No producer sends any more."""
        self._tell("quiet", "QUIET")

    def end(self) -> None:
        """Consumers store their positions, and all is over."""
        self._tell("end", "ENDED")
        self._process.wait(WAIT_SECONDS_MAX)

    def kill(self) -> None:
        """What a failed test leaves."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
