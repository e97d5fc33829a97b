"""What clients of a shard were told and shown, and whether the logs of all replicas agree with it.

Producers append through the gateway, one message after the other; some messages ask for no more than the leader's disk. Readers
follow each replica's log at its own address and note every record that is shown, by its place. The judge reads the files of
all replicas when no process has them open, without a line of the product (tests/torture/store_check.py).
"""

import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reput_client import AppendClient, FlushMode, NewMessage, ReputClientError
from services.calling.commitlog import CommitLogClient, ReputStream
from store.derive.dispatch_columns import DispatchColumns
from store.errors import StoreError
from tests.support.background import Background
from tests.support.waiting import wait_until
from tests.torture.store_check import Frame, read_frames

QUEUE_COUNT = 4
BODY_BYTES = 200
APPEND_SECONDS_MAX = 20.0
TRIES_MAX = 3  # then it is never known whether the message is stored
AGAIN_SECONDS = 0.1
PACE_SECONDS = 0.02  # after each message: what is tested are faults, on a machine that has other work
PROBLEM_COUNT_MAX = 8


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An append that was answered OK; times are of the monotonic clock."""

    key: str
    is_replicated: bool
    asked_at: float
    answered_at: float
    queue_id: int
    queue_offset: int
    commit_log_offset: int


class Producers(Background):
    """Appends until the end of the block.

    Args:
        gateway: its address.
        topic: of the messages.
        count: of producers.
        local_share: so many of the messages ask for a flush on the leader's disk only.
        seed: of their choices.
        body_bytes: most of a body.

    Attributes:
        acknowledged: in the order of their answers.
        attempted: every key.
        failures: appends that failed.
    """

    def __init__(
        self,
        gateway: str,
        topic: str,
        count: int = 4,
        local_share: float = 0.0,
        seed: int = 0,
        body_bytes: int = BODY_BYTES,
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.attempted: set[str] = set()
        self.failures: list[ReputClientError] = []
        self._gateway = gateway
        self._topic = topic
        self._local_share = local_share
        self._body_bytes = body_bytes
        super().__init__(partial(self._run, number, random.Random(f"{seed} {number}")) for number in range(count))

    def wait_for(self, count: int) -> None:
        """Return once so many more appends are acknowledged as replicated."""
        target = self._replicated_count() + count
        wait_until(lambda: self._replicated_count() >= target, lambda: f"{self.failures[-3:]}")

    def silences(self, since: float = 0.0) -> list[float]:
        """The times between two acknowledgements of replicated messages, over all producers (seconds)."""
        times = [one.answered_at for one in self.acknowledged if one.is_replicated and one.answered_at >= since]
        return [later - earlier for earlier, later in itertools.pairwise(sorted(times))]

    def longest_silence(self, since: float = 0.0) -> float:
        """The longest of them."""
        return max(self.silences(since), default=0.0)

    def _replicated_count(self) -> int:
        return sum(one.is_replicated for one in self.acknowledged)

    def _run(self, number: int, dice: random.Random) -> None:
        with AppendClient(self._gateway, timeout_seconds=APPEND_SECONDS_MAX) as client:
            for count in itertools.count():
                if self.stopping.is_set():
                    return
                self._append(client, f"{self._topic}-{number}-{count:06}", dice)
                self.stopping.wait(PACE_SECONDS)

    def _append(self, client: AppendClient, key: str, dice: random.Random) -> None:
        mode = FlushMode.SYNC if dice.random() < self._local_share else FlushMode.REPLICATED
        body = f"{key}|{'x' * dice.randrange(self._body_bytes)}".encode()
        message = NewMessage(self._topic, body, unique_key=key, queue_id=dice.randrange(QUEUE_COUNT))
        self.attempted.add(key)
        asked_at = time.monotonic()
        for _ in range(TRIES_MAX):
            try:
                (receipt,) = client.append([message], flush_mode=mode, deduplicate=True)
            except ReputClientError as error:
                self.failures.append(error)
                if self.stopping.wait(AGAIN_SECONDS):
                    return
                continue
            place = (receipt.queue_id, receipt.queue_offset, receipt.commit_log_offset)
            self.acknowledged.append(
                Acknowledged(key, mode is FlushMode.REPLICATED, asked_at, time.monotonic(), *place)
            )
            return


class Readers(Background):
    """Follow the log of each replica and note what it shows, until the end of the block; `shown` is by commit-log offset.

    Args:
        addresses: of the replicas' commit logs.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.shown: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        self.counts: Counter[str] = Counter()
        self._streams: dict[str, ReputStream] = {}
        super().__init__(partial(self._run, *each) for each in addresses.items())

    def __exit__(self, *details: object) -> None:
        self.stopping.set()
        for stream in list(self._streams.values()):
            stream.cancel()
        super().__exit__(*details)

    def _run(self, name: str, address: str) -> None:
        client = CommitLogClient(address)
        next_offset = -1
        while not self.stopping.is_set():
            self._streams[name] = stream = client.reput(next_offset)
            try:
                for batch in stream:
                    if self.stopping.is_set():
                        break
                    self._note(name, batch.columns)
                    next_offset = batch.next_offset
            except StoreError:
                self.stopping.wait(AGAIN_SECONDS)
            finally:
                stream.cancel()
        client.close()

    def _note(self, name: str, columns: DispatchColumns | None) -> None:
        if columns is None:
            return
        sizes, queue_ids, queue_offsets = columns.record_sizes_bytes, columns.queue_ids, columns.queue_offsets
        for number, offset in enumerate(columns.commit_log_offsets.tolist()):
            self.shown[offset].add((int(sizes[number]), int(queue_ids[number]), int(queue_offsets[number])))
        self.counts[name] += len(columns)


def problems_of(
    stores: Mapping[str, Path], topic: str, producers: Producers, readers: Readers | None = None
) -> list[str]:
    """What is wrong with the logs of all replicas, which nobody has open; empty when nothing is."""
    damages: list[str] = []
    logs = {name: read_frames(store, damages) for name, store in stores.items()}
    problems = damages + problems_of_logs(logs, topic, producers, readers)
    contents = {name: _log_bytes(store) for name, store in stores.items()}
    first_name, *other_names = contents
    problems += [
        f"the bytes of {first_name} and {name} differ" for name in other_names if contents[name] != contents[first_name]
    ]
    return problems[:PROBLEM_COUNT_MAX]


def problems_of_logs(
    logs: Mapping[str, Sequence[Frame]], topic: str, producers: Producers, readers: Readers | None = None
) -> list[str]:
    """The same for the records of logs, by replica."""
    problems = []
    first_name, *other_names = logs
    log = logs[first_name]
    for name in other_names:
        if logs[name] != log:
            problems.append(f"the logs of {first_name} and {name} differ: {len(log)} and {len(logs[name])} records")
    problems += _of_messages([frame for frame in log if frame.topic == topic], producers)
    problems += _of_queues(log)
    if readers is not None:
        by_offset = {frame.commit_log_offset: frame for frame in log}
        problems += [
            f"a record was shown at {offset} and is not there: {places}"
            for offset, places in list(readers.shown.items())
            if offset not in by_offset or places != {_place(by_offset[offset])}
        ]
    return problems


def _log_bytes(store: Path) -> bytes:
    """The log up to its end; files behind it may be allocated on one replica only."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def lost_and_doubled(store: Path, topic: str, producers: Producers) -> tuple[int, int]:
    """How many messages that were acknowledged as replicated are not in a log, and how many are there more than once."""
    counts = Counter(frame.message_id for frame in read_frames(store, []) if frame.topic == topic)
    lost = sum(one.key not in counts for one in producers.acknowledged if one.is_replicated)
    return lost, sum(count > 1 for count in counts.values())


def _place(frame: Frame) -> tuple[int, int, int]:
    return frame.size_bytes, frame.queue_id, frame.queue_offset


def _of_messages(log: Sequence[Frame], producers: Producers) -> list[str]:
    problems = []
    counts = Counter(frame.message_id for frame in log)
    problems += [f"{key} is stored {count} times" for key, count in counts.items() if count > 1]
    problems += [f"{key} was never sent" for key in counts.keys() - producers.attempted]
    at = {frame.commit_log_offset: frame for frame in log}
    replicated = [one for one in producers.acknowledged if one.is_replicated]
    for one in replicated:
        frame = at.get(one.commit_log_offset)
        if one.key not in counts:
            problems.append(f"{one.key} was acknowledged as replicated and is lost")
        elif frame is None or (frame.message_id, frame.queue_id, frame.queue_offset) != (
            one.key,
            one.queue_id,
            one.queue_offset,
        ):
            problems.append(f"{one.key} was acknowledged at {one.commit_log_offset} and lies elsewhere")
    return problems + _of_order(replicated)


def _of_order(replicated: Sequence[Acknowledged]) -> list[str]:
    """A message that was asked for after another one of its queue was acknowledged lies behind it."""
    problems = []
    queues: defaultdict[int, list[Acknowledged]] = defaultdict(list)
    for one in replicated:
        queues[one.queue_id].append(one)
    for queue in queues.values():
        first_answered: Acknowledged | None = None  # of those that lie behind
        for one in sorted(queue, key=lambda each: -each.queue_offset):
            if first_answered is not None and first_answered.answered_at < one.asked_at:
                problems.append(
                    f"{one.key} was asked for after {first_answered.key} was acknowledged, and lies before it"
                )
            if first_answered is None or one.answered_at < first_answered.answered_at:
                first_answered = one
    return problems


def _of_queues(log: Sequence[Frame]) -> list[str]:
    problems = []
    ends: dict[tuple[str, int], int] = {}
    for frame in log:
        queue = (frame.topic, frame.queue_id)
        if frame.queue_offset != ends.get(queue, 0):
            problems.append(f"{queue} has a hole or a double at {frame.queue_offset}")
        ends[queue] = frame.queue_offset + 1
    return problems
