"""A store against a model of a hundred lines: appends, batches, every query, kills, power cuts, torn tails, expiry, lost
files, builders that stop and come back, in any order; after every step the two agree.

Invariants after each step: what the builders applied is flushed, what is flushed is written; min <= max in every queue
(RocketMQ #10417); no hole in a queue; every unit points to the record of that topic, queue and position (#495).
"""

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.ports.deadline import Deadline
from gateway.ports.shard import store_millis
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_queue_offset import query_by_queue_offset
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import QueueNotFoundError, RecordNotFoundError, TopicNotFoundError
from store.format.record import Record
from tests.commitlog_svc.support import BORN_HOST, new_message
from tests.torture.amount import amount, level
from tests.torture.answers import FAN_OUT, Answer, ask
from tests.torture.local_shard import LocalShard
from tests.torture.memory_files import MemoryFileSystem
from tests.torture.seeds import pick_seed
from tests.torture.store_model import ModelMessage, StoreModel

FILE_BYTES = 4096
TOPICS = ("orders", "payments", "t" * 100)
KEYS = ("Aa", "BB", "k1", "k2", "键")  # the first two have one Java hash
UNIQUE_KEYS = ("u1", "u2", "")

messages = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(0, 1),
        st.integers(0, 300),
        st.lists(st.sampled_from(KEYS), max_size=3),
        st.sampled_from(UNIQUE_KEYS),
    ),
    min_size=1,
    max_size=5,
)

# Near the time of one of the newest messages. What is drawn never depends on the store, so that a run can be repeated.
edges = st.tuples(st.integers(0, 19), st.sampled_from((-1000, -999, -1, 0, 1, 999, 1000)))


class Clock:
    """Milliseconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_750_000_000_123

    def __call__(self) -> int:
        return self.now


class StoreMachine(RuleBasedStateMachine):
    """Everything that can happen to a store, to a real one and to its model."""

    base: Path  # where lock files may be; all else is in memory

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=self.base))
        self.fs = MemoryFileSystem()
        self.fs.mkdirs(self.root)
        self.clock = Clock()
        self.model = StoreModel()
        self.numbers = itertools.count()
        self.shard = self._open()

    def _open(self) -> LocalShard:
        return LocalShard(
            self.root, self.fs, clock_millis=self.clock, file_size_bytes=FILE_BYTES, flush_interval_millis=60_000
        )

    def teardown(self) -> None:
        try:
            self.shard.close()
        finally:
            shutil.rmtree(self.root)

    # -- what clients do

    @rule(batch=messages, is_sync=st.booleans(), ticks=st.integers(0, 2500))
    def append(self, batch: list[tuple[str, int, int, list[str], str]], is_sync: bool, ticks: int) -> None:
        self.clock.now += ticks
        sent = []
        for topic, queue_id, size, keys, unique_key in batch:
            body = b"%d:" % next(self.numbers) + b"x" * size
            fields: dict[str, Any] = {"queue_id": queue_id, "keys": sorted(set(keys))}
            if unique_key:
                fields["unique_key"] = unique_key
            sent.append(new_message(body, topic, **fields))
        receipts = self.shard.log.opened.appends.append_messages(sent, sync=is_sync, born_host=BORN_HOST)
        acknowledged = []
        burnt: dict[tuple[str, int], int] = {}
        for message, receipt in zip(sent, receipts, strict=True):
            queue = (message.topic, message.queue_id)
            expected = self.model.next_queue_offset(*queue) + burnt.get(queue, 0)
            burnt[queue] = burnt.get(queue, 0) + 1
            assert expected == receipt.queue_offset, "a hole, or a position twice"
            acknowledged.append(
                ModelMessage(
                    message.topic,
                    message.queue_id,
                    receipt.queue_offset,
                    message.body,
                    tuple(message.keys),
                    receipt.unique_key,
                    receipt.store_time_millis,
                    receipt.commit_log_offset,
                    receipt.commit_log_offset + receipt.store_size_bytes,
                )
            )
        times = [m.store_time_millis for m in [*self.model.messages[-1:], *acknowledged]]
        assert times == sorted(times)
        self.model.append(acknowledged, is_durable=is_sync)

    @rule(millis=st.integers(-5000, 5000))
    def jump_clock(self, millis: int) -> None:
        self.clock.now += millis

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 1), begin=st.integers(0, 30), count=st.integers(1, 9))
    def query_by_offset(self, topic: str, queue_id: int, begin: int, count: int) -> None:
        expected = self.model.by_queue(topic, queue_id, begin, count)
        try:
            found = query_by_queue_offset(
                self._shards(), topic, queue_id, begin, broker_name="", page_size_asked=count,
                deadline=Deadline.after(60),
            )  # fmt: skip
        except (TopicNotFoundError, QueueNotFoundError):
            assert expected == []
            return
        assert found.min_offset <= found.max_offset
        self._compare(expected, [entry.record for entry in found.entries])

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS), page_size=st.integers(1, 5), begin=edges, end=edges)
    def query_by_key(self, topic: str, key: str, page_size: int, begin: tuple[int, int], end: tuple[int, int]) -> None:
        times = [m.store_time_millis for m in self.model.messages[-20:]] or [self.clock.now]
        begin_millis, end_millis = sorted(times[number % len(times)] + step for number, step in (begin, end))
        answer = ask(
            self._shards(), ("key", topic, key), window=TimeWindow(begin_millis, end_millis), page_size=page_size
        )
        self._judge(self.model.by_key(topic, key, begin_millis, end_millis), answer)

    @rule(topic=st.sampled_from(TOPICS), unique_key=st.sampled_from(UNIQUE_KEYS[:2]))
    def query_by_unique_key(self, topic: str, unique_key: str) -> None:
        self._judge(self.model.by_unique_key(topic, unique_key), ask(self._shards(), ("unique key", topic, unique_key)))

    @rule(number=st.integers(0, 10_000), beside=st.sampled_from((0, 0, 0, 1, -1, 50)))
    def query_by_id(self, number: int, beside: int) -> None:
        offset = 0
        if self.model.messages:
            offset = max(0, self.model.messages[number % len(self.model.messages)].offset + beside)
        expected, answer = self.model.at(offset), ask(self._shards(), ("offset", str(offset)))
        if expected is None:
            assert isinstance(answer.error, RecordNotFoundError), answer
        else:
            self._compare([expected], list(answer.records))

    # -- what machines and people do

    @rule(batch_bytes=st.sampled_from((0, 200, 1000)))
    def builders_catch_up(self, batch_bytes: int) -> None:
        self.shard.catch_up(batch_bytes)
        self._note_built()

    @rule()
    def builders_save(self) -> None:
        self.shard.save()
        self._note_built()

    @rule(is_clean=st.booleans())
    def builders_restart(self, is_clean: bool) -> None:
        """They go on from their checkpoints; until they have caught up again, answers may be short of what they were."""
        self.shard.restart_builders(is_clean=is_clean)
        self.shard.catch_up()
        self._note_built()

    @rule()
    def restart(self) -> None:
        self.shard.close()
        self.model.flush()
        self.shard = self._open()
        self._after_start(len(self.model.messages))

    @rule()
    def kill(self) -> None:
        """The kernel still writes what the process wrote: nothing is lost."""
        found = self.fs.copy()
        self._replace_disk(found)
        self._after_start(len(self.model.messages))

    @rule(number=st.integers(0, 1 << 32))
    def cut_power(self, number: int) -> None:
        """Of what was not flushed any mixture is left: at least what was promised, and a prefix."""
        self._replace_disk(self.fs.power_cut(number, self.root))
        offsets = [m.offset for m in self.model.messages]
        kept = sum(offset < self.shard.log.status.end_offset for offset in offsets)
        self._after_start(kept)

    @rule(number=st.integers(0, 1 << 32), noise=st.sampled_from((b"\0", b"\xff", b"ab\x01\x02")))
    def tear_tail(self, number: int, noise: bytes) -> None:
        """A kill, and the end of the log torn at any byte that nobody was promised."""
        if len(self.model.messages) == self.model.durable_count:
            return
        found = self.fs.copy()
        begin = self.model.messages[self.model.durable_count].offset
        cut = begin + number % (self.model.end - begin)
        file_begin = cut // FILE_BYTES * FILE_BYTES
        path = self.root / "commitlog" / f"{file_begin:020d}"
        data = found.bytes_of(path)
        size = min(self.model.end - file_begin, FILE_BYTES) - (cut - file_begin)
        if noise.strip(b"\0\xff"):
            # Goes on behind the log, as old bytes do: text that is valid and ends just there is a record without a guard
            # (docs/durability.md, what cannot be promised).
            size += len(noise)
        torn = data[: cut - file_begin] + (noise * size)[:size]
        found.put(path, torn[: len(data)].ljust(len(data), b"\0"))
        for later in [p for p in found.paths() if p.parent == path.parent and p.name > path.name]:
            found.unlink(later)
        self._replace_disk(found)
        kept = sum(m.end <= self.shard.log.status.end_offset for m in self.model.messages)
        # A byte that was torn away may be what the noise is.
        assert kept >= sum(m.end <= cut for m in self.model.messages)
        self._after_start(kept)

    @rule(files=st.integers(1, 3))
    def expire(self, files: int) -> None:
        """The oldest files go, as retention does it: never what a builder still needs, nor a queue's last message."""
        log = self.shard.log
        built = min(self.model.queue_applied, self.model.index_applied)
        first = (log.status.first_offset // FILE_BYTES + files) * FILE_BYTES
        queues = {(m.topic, m.queue_id) for m in self.model.messages}
        kept = {(m.topic, m.queue_id) for m in self.model.messages if m.offset >= first}
        if first > built or first > log.status.flushed_offset or queues != kept:
            return
        log._files.retire(first)
        self.model.expire(log.status.first_offset)

    @rule(is_clean=st.booleans())
    def lose_queues(self, is_clean: bool) -> None:
        self._lose("consumequeue", is_clean)

    @rule(is_clean=st.booleans())
    def lose_index(self, is_clean: bool) -> None:
        self._lose("index", is_clean)

    @rule(component=st.sampled_from(("commitlog", "consumequeue", "index")))
    def lose_own_state(self, component: str) -> None:
        """What a service remembers of itself is a shortcut."""
        self.shard.close()
        self.model.flush()
        for path in self.fs.paths():
            if path.parent == self.root / "reput" / component:
                self.fs.unlink(path)
        self.shard = self._open()
        self._after_start(len(self.model.messages))

    def _lose(self, folder: str, is_clean: bool) -> None:
        if is_clean:
            self.shard.close()
            self.model.flush()
        else:
            found = self.fs.copy()
            self.shard.close()
            self.fs = found
        for path in self.fs.paths():
            if (self.root / folder) in path.parents:
                self.fs.unlink(path)
        self.shard = self._open()
        self._after_start(len(self.model.messages))

    # -- how the two are compared

    @invariant()
    def bounds_are_in_order(self) -> None:
        log = self.shard.log
        assert log.status.first_offset <= log.status.flushed_offset <= log.status.end_offset
        for builder in (self.shard.queues, self.shard.index):
            assert builder.progress.next_offset <= log.status.flushed_offset
        assert self.model.end <= log.status.end_offset

    @invariant()
    def queues_have_no_hole(self) -> None:
        """Every unit points to its message; RocketMQ #10417, #495."""
        first = self.shard.log.status.first_offset
        for (topic, queue_id), queue in self.shard.table.items():
            units = queue.units
            assert units.min_offset(first) <= units.end
            expected = [m for m in self.model.queue(topic, queue_id) if m.offset < self.model.queue_applied]
            found = units.units(units.min_offset(first), 10_000, first)
            assert [(m.queue_offset, m.offset, m.end - m.offset) for m in expected] == [
                (number, unit.commit_log_offset, unit.record_size_bytes) for number, unit in found
            ], (topic, queue_id)

    def _replace_disk(self, found: MemoryFileSystem) -> None:
        self.shard.close()  # of the process that is gone, on the disk that is gone
        self.fs = found
        self.shard = self._open()

    def _after_start(self, kept_count: int) -> None:
        self.model.crash(kept_count)
        assert self.shard.log.status.end_offset >= self.model.end
        # What was recovered is on the disk, whatever it was before.
        self.model.flush()
        self.shard.catch_up()
        self._note_built()
        for message in self.model.messages:
            self._compare([message], [self.shard.log.opened.reads.get(message.offset)])
        for topic, key in itertools.product(TOPICS, KEYS):
            answer = ask(self._shards(), ("key", topic, key))
            self._judge(self.model.by_key(topic, key, 0, 1 << 60), answer)

    def _note_built(self) -> None:
        self.model.queue_applied = self.shard.queues.progress.next_offset
        self.model.index_applied = self.shard.index.progress.next_offset
        flushed = self.shard.log.status.flushed_offset
        assert min(self.model.queue_applied, self.model.index_applied) >= min(flushed, self.model.end)

    def _judge(self, expected: list[ModelMessage], answer: Answer) -> None:
        if answer.error is not None:
            assert expected == [], answer.error
            assert isinstance(answer.error, TopicNotFoundError), answer.error
            return
        self._compare(expected, list(answer.records))

    def _compare(self, expected: list[ModelMessage], found: list[Record | StoredMessage]) -> None:
        assert [
            (m.topic, m.queue_id, m.queue_offset, m.body, m.keys, m.unique_key, m.store_time_millis, m.offset)
            for m in expected
        ] == [
            (
                r.topic,
                r.queue_id,
                r.queue_offset,
                r.body,
                tuple(r.keys),
                r.unique_key,
                store_millis(r) if isinstance(r, StoredMessage) else r.store_time_millis,
                r.commit_log_offset,
            )
            for r in found
        ]

    def _shards(self) -> Shards:
        return Shards([self.shard.shard()], FAN_OUT)


def test_a_store_behaves_like_its_model(tmp_path: Path) -> None:
    """10 x 30 steps; 60 x 50 for a change; 20,000 x 100 for a release."""
    machine = seed(pick_seed("model"))(StoreMachine)
    machine.base = tmp_path
    examples = amount(sample=10, change=60, full=20_000)
    steps = {"sample": 30, "change": 50, "full": 100}[level()]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=False,
            print_blob=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{examples} x {steps} steps")


def test_a_power_cut_that_takes_the_first_durable_mark_never_keeps_the_store_from_starting(tmp_path: Path) -> None:
    """Nothing was acknowledged as durable: a later sector that made it while an earlier one did not is a torn tail."""
    fs = MemoryFileSystem()
    fs.mkdirs(tmp_path)
    shard = LocalShard(tmp_path, fs, file_size_bytes=FILE_BYTES, flush_interval_millis=60_000)
    sent = [new_message(b"x" * 700, queue_id=0) for _ in range(4)]
    receipts = [
        shard.log.opened.appends.append_messages([message], sync=False, born_host=BORN_HOST)[0] for message in sent
    ]
    found = fs.copy()
    shard.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(found.bytes_of(path))
    lost = receipts[1]
    data[lost.commit_log_offset : lost.commit_log_offset + lost.store_size_bytes] = bytes(lost.store_size_bytes)
    found.put(path, bytes(data))
    if found.exists(tmp_path / "reput" / "commitlog" / "durable"):
        # As on a disk: the name was never flushed with its directory, or the file is as long as it was then.
        durable = fs.durable_bytes_of(tmp_path / "reput" / "commitlog" / "durable")
        if durable is None:
            found.unlink(tmp_path / "reput" / "commitlog" / "durable")
        else:
            found.put(tmp_path / "reput" / "commitlog" / "durable", durable)

    shard = LocalShard(tmp_path, found, file_size_bytes=FILE_BYTES)
    try:
        assert lost.commit_log_offset == shard.log.status.end_offset
    finally:
        shard.close()
