"""The walk of the log with the kernel against the same walk without: one end, the same queues, for every input."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.compiled import loading
from store.derive.queue_placement import BURNT_POSITION_COUNT_MAX
from store.files.file_system import RealFileSystem
from store.files.mapped_files import MappedFileQueue
from store.format.record import decode_record
from store.walk import record_runs
from store.walk.checks import FullCheck
from store.walk.cursor import PIECE_BYTES, RecordCursor
from store.walk.record_runs import RecordRun, RunCheck, note_batch_topics, note_light_places, note_next_offsets
from tests.store.walk import logs
from tests.store.walk.logs import ODD, closed, frames_of, message, mixed_log, mutated, open_files
from tests.support.kernels import FORMS

MUTATION_COUNTS = {"compiled": 4000, "uncompiled": 500}  # others in each run


@pytest.fixture(scope="module", autouse=True, params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the module with the kernel compiled, and with its source as plain Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loading._kernels, record_runs.KERNEL, FORMS[request.param](record_runs.KERNEL))
        yield request.param


class Walk:
    """One walk's outcome."""

    def __init__(self, files: MappedFileQueue, mode: str, begin: int = 0, piece_bytes: int = PIECE_BYTES) -> None:
        self.queue_offsets: dict[tuple[str, int], int] = {}
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.batch_topics: dict[str, int] = {}
        self.light_places: list[tuple[str, int, int]] = []
        self.seen_count = 0
        self.pulses: list[tuple[int, dict[tuple[str, int], int]]] = []
        before = loading.switch(mode)
        self.full = FullCheck(files)
        self.cursor = RecordCursor(files, begin, RunCheck(self.full), on_piece=self._pulse, piece_bytes=piece_bytes)
        try:
            for taken in self.cursor:
                note_next_offsets(taken, self.next_offsets)
                note_batch_topics(taken, self.batch_topics)
                note_light_places(taken, lambda *place: self.light_places.append(place))
                if isinstance(taken, RecordRun):
                    self.queue_offsets.update(taken.queue_offsets)
                    continue
                self.seen_count += 1
                if taken.sys_flag & 0xC not in (0x4, 0xC):  # prepared and rolled back
                    self.queue_offsets[taken.topic, taken.queue_id] = taken.queue_offset
        finally:
            loading.switch(before)

    def _pulse(self, offset: int) -> None:
        self.pulses.append((offset, dict(self.queue_offsets)))

    @property
    def outcome(self) -> dict[str, Any]:
        full, why = self.full, self.cursor.why
        return {
            "end_offset": self.cursor.offset,
            "why": (type(why), str(why)),
            "record_count": full.record_count,
            "last_record": full.last_record,
            "last_store_time_millis": full.last_store_time_millis,
            "is_guarded": full.is_guarded,
            "queues": self.queue_offsets,
            "next_offsets": self.next_offsets,
            "batch_topics": self.batch_topics,
            "light_places": self.light_places,
        }


def assert_walks_agree(*contents: bytes, piece_bytes: int = PIECE_BYTES) -> Walk:
    files = open_files(*contents)
    fast, plain = (Walk(files, mode, piece_bytes=piece_bytes) for mode in (loading.EAGER, loading.OFF))
    assert fast.outcome == plain.outcome
    return fast


@pytest.mark.parametrize("number", range(len(ODD)))
def test_an_odd_record_between_ordinary_ones(number: int) -> None:
    messages = [message("payments"), message(), ODD[number], message(), message("payments")]
    fast = assert_walks_agree(b"".join(frames_of(messages, base=0)) + bytes(300))
    assert fast.seen_count < 5, "the kernel took nothing"


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("number", range(len(ODD)))
def test_an_odd_record_at_the_end(number: int, guarded: bool) -> None:
    data = b"".join(frames_of([message(guarded=guarded)] * 3 + [ODD[number]], base=0))
    assert_walks_agree(data)
    assert_walks_agree(data + bytes(1000))
    assert_walks_agree(data + b"no record" + bytes(1000))


@pytest.mark.parametrize("guarded", [True, False])
def test_ordinary_records_need_no_python(guarded: bool) -> None:
    data = b"".join(frames_of([message(queue_id=number % 3, guarded=guarded) for number in range(500)], base=0))
    fast = assert_walks_agree(data)
    assert fast.seen_count == 0
    assert fast.full.record_count == 500


@pytest.mark.parametrize("transaction", [0x0, 0x4, 0x8, 0xC])
def test_topics_of_inner_batches_are_noted_and_halves_of_transactions_are_none(transaction: int) -> None:
    batch = message("bcq", sys_flag=0x80 | transaction)
    frames = frames_of([*[message("bcq")] * 9, batch, *[message()] * 9, batch, message("bcq")], base=0)
    fast = assert_walks_agree(b"".join(frames))
    assert fast.seen_count == 0, "the kernel takes them"
    last_at = sum(map(len, frames[:-2]))
    assert fast.batch_topics == ({} if transaction in (0x4, 0xC) else {"bcq": last_at})


@pytest.mark.parametrize("every", [1, 3, 50])
def test_places_in_light_queues_are_noted_and_those_of_copies_and_halves_are_none(every: int) -> None:
    light = "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x01{0},7\x02"
    messages = [message(properties=light.format(n)) if n % every == 0 else message() for n in range(200)]
    messages[7] = message("%RETRY%g", light.format(7))
    messages[9] = message(properties=light.format(9), sys_flag=0x4)
    messages[11] = message(body=b"INNER_MULTI_QUEUE_OFFSET\x01")
    frames = frames_of(messages, base=0)
    fast = assert_walks_agree(b"".join(frames))
    assert fast.seen_count == 0, "the kernel takes them"
    expected = []
    for n in range(0, 200, every):
        if n not in (7, 9, 11):
            at = sum(map(len, frames[:n]))
            expected += [("%LMQ%a", n + 1, at), ("%LMQ%b", 8, at)]
    assert fast.light_places == expected


@pytest.mark.parametrize("piece_bytes", [300, 1000, 4096])
def test_records_across_pieces_and_files(piece_bytes: int) -> None:
    size_bytes = 20_000
    contents, total = [], 0
    for number in range(4):
        messages = [message(queue_id=at % 5, body=bytes(at % 1500)) for at in range(0, 2500, 97)]
        frames = frames_of(messages, base=number * size_bytes)
        kept: list[bytes] = []
        while frames and sum(map(len, kept)) + len(frames[0]) + 8 <= size_bytes:
            kept.append(frames.pop(0))
        total += len(kept)
        contents.append(closed(*kept, size_bytes=size_bytes))
    fast = assert_walks_agree(*contents, piece_bytes=piece_bytes)
    assert (fast.full.record_count, fast.cursor.offset) == (total, 4 * size_bytes)
    whole = b"".join(contents)
    for offset, queue_offsets in fast.pulses:
        until_then = whole[:offset].ljust(len(whole), b"\0")
        files = open_files(*[until_then[at : at + size_bytes] for at in range(0, len(whole), size_bytes)])
        assert queue_offsets == Walk(files, loading.OFF).queue_offsets, "a checkpoint would lie"


def test_more_queues_than_the_table_holds() -> None:
    messages = [message(f"topic-{number % 60}", queue_id=number % 101, body=b"") for number in range(7000)]
    assert len(assert_walks_agree(b"".join(frames_of(messages, base=0))).queue_offsets) == 6060


@pytest.mark.parametrize("store", ["broker_store", "engine_store", "engine_crc_store", "crashed_store"])
def test_the_walks_agree_on_rocketmqs_own_logs(store: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(store)
    files = MappedFileQueue(RealFileSystem(), root / "commitlog", 1, writable=False)
    files.load()
    fast, plain = Walk(files, loading.EAGER, files.first_offset), Walk(files, loading.OFF, files.first_offset)
    files.close()
    assert fast.outcome == plain.outcome
    assert fast.next_offsets == {queue: last + 1 for queue, last in plain.queue_offsets.items()}
    assert fast.full.record_count > fast.seen_count


def test_every_bit_of_a_guarded_log_is_checked() -> None:
    data = b"".join(frames_of([message(queue_id=number) for number in range(3)], base=0))
    whole = assert_walks_agree(data).outcome
    for bit in range(0, 8 * len(data), 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert assert_walks_agree(bytes(damaged)).outcome != whole


def test_a_log_cut_at_every_byte() -> None:
    data = b"".join(frames_of([message(), message(guarded=False), message(guarded=False, topic="t")], base=0))
    for size in range(1, len(data)):
        assert_walks_agree(data[:size])
        assert_walks_agree(data[:size] + bytes(len(data) - size))


@given(messages=logs.messages.filter(bool), tail=st.sampled_from([b"", bytes(500), b"x" * 50]))
def test_the_walks_agree_on_any_messages(messages: list[Any], tail: bytes) -> None:
    assert_walks_agree(b"".join(frames_of(messages, base=0)) + tail)


def test_thousands_of_damaged_logs(form: str) -> None:
    chance = random.Random(random.getrandbits(64))
    count = 0
    for _ in range(MUTATION_COUNTS[form] // 20):
        data = mixed_log(chance, chance.randrange(1, 9), base=0, odd_share=chance.choice((0, 0, 0.2)))
        for _ in range(20):
            walk = assert_walks_agree(mutated(chance, data))
            count += walk.full.record_count - walk.seen_count
    assert count > MUTATION_COUNTS[form] // 2, "the kernel took hardly anything"


def test_a_log_of_odd_records_asks_the_kernel_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = loading._kernels[record_runs.KERNEL]
    calls: list[int] = []
    real = kernel.check_run

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return real(*arguments)

    monkeypatch.setattr(kernel, "check_run", counted)
    assert_walks_agree(b"".join(frames_of([message(topic="订单")] * 3000, base=0)))
    assert len(calls) < 50


def test_a_position_in_a_light_queue_that_the_log_has_no_room_for_is_not_noted() -> None:
    positions = (0, BURNT_POSITION_COUNT_MAX, 1 + BURNT_POSITION_COUNT_MAX, 10**17)
    noted: list[int] = []
    for position in positions:
        text = f"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x01{position}\x02"
        record = decode_record(frames_of([message(properties=text)], base=0)[0], commit_log_offset=0)
        note_light_places(record, lambda _queue, next_offset, _offset: noted.append(next_offset))
    assert noted == [1, 1 + BURNT_POSITION_COUNT_MAX]
