"""Queries at the edges of what can be asked: every range and count is answered right or refused, in bounded time and bytes."""

import random
from pathlib import Path

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import GET_RECORDS, SEARCH_KEY
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_key
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.page import PAGE_BYTES_MAX, PAGE_SIZE_MAX
from store.errors import InvalidArgumentError
from store.format.derived.index_layout import key_hash
from store.readers.index_reader import IndexLayout
from tests.commitlog_svc.support import BORN_HOST, new_message
from tests.torture.amount import amount
from tests.torture.answers import FAN_OUT, TOKENS, ask
from tests.torture.local_shard import LocalShard
from tests.torture.memory_files import MemoryFileSystem
from tests.torture.seeds import pick_seed

I64_MAX = (1 << 63) - 1
I32_MAX = (1 << 31) - 1


class CountingShard:
    """Ports that count what a query asks of a shard."""

    def __init__(self, local: LocalShard) -> None:
        self.shard = local.shard()
        self.records_asked = self.candidates_asked = 0
        call = self.shard.call

        def count_records(request, deadline):
            self.records_asked += len(request.commit_log_offsets)
            return call(GET_RECORDS, request, deadline)

        def count_candidates(request, deadline):
            found = call(SEARCH_KEY, request, deadline)
            self.candidates_asked += len(found.answer.commit_log_offsets)
            return found

        self.shard = self.shard.serving(SEARCH_KEY, count_candidates).serving(GET_RECORDS, count_records)


def _fill(shard: LocalShard, count: int, key: str, *, body_bytes: int = 4) -> None:
    for begin in range(0, count, 1000):
        batch = [
            new_message(b"x" * body_bytes, queue_id=0, keys=[key], unique_key=f"u{number}")
            for number in range(begin, min(begin + 1000, count))
        ]
        shard.log.opened.appends.append_messages(batch, sync=True, born_host=BORN_HOST)


@pytest.mark.parametrize("count", [10_000, *([1_000_000] if amount(sample=0, change=0, full=1) else [])])
def test_ten_thousand_equal_keys_take_as_much_work_as_a_page(tmp_path: Path, count: int) -> None:
    """10^6 for a release. The first page, a page in the middle, and the last cost the same."""
    fs = MemoryFileSystem()
    fs.mkdirs(tmp_path)
    shard = LocalShard(
        tmp_path, fs, file_size_bytes=16 << 20, index_layout=IndexLayout(1000, 4000), queue_file_size_bytes=200_000
    )
    try:
        _fill(shard, count, "same")
        shard.catch_up()
        newest = list(range(count - 1, -1, -1))
        token, at = "", 0
        for size in (1, 64, PAGE_SIZE_MAX, 0, I32_MAX):
            counting = CountingShard(shard)
            page = query_by_key(
                Shards([counting.shard], FAN_OUT), TOKENS, "orders", "same", TimeWindow(),
                page_size_asked=size, page_token=token, deadline=Deadline.after(120),
            )  # fmt: skip
            wanted = min(size or 64, PAGE_SIZE_MAX)
            found = [entry.record.queue_offset for entry in page.entries]
            assert newest[at : at + len(found)] == found
            assert len(found) == wanted
            # Bounded by the page, not by how many there are.
            assert counting.records_asked <= 2 * wanted + 128
            assert counting.candidates_asked <= 4 * wanted + 256
            token, at = page.next_page_token, at + len(found)
    finally:
        shard.close()


def test_large_bodies_end_a_page_before_the_default_limit_of_grpc(tmp_path: Path) -> None:
    fs = MemoryFileSystem()
    fs.mkdirs(tmp_path)
    shard = LocalShard(tmp_path, fs, file_size_bytes=16 << 20, index_layout=IndexLayout(100, 400))
    try:
        for _ in range(12):
            _fill(shard, 1, "large", body_bytes=1 << 20)
        shard.catch_up()
        shards = Shards([shard.shard()], FAN_OUT)
        token, total = "", 0
        while True:
            page = query_by_key(
                shards, TOKENS, "orders", "large", TimeWindow(),
                page_size_asked=I32_MAX, page_token=token, deadline=Deadline.after(120),
            )  # fmt: skip
            assert sum(len(entry.record.body) for entry in page.entries) <= PAGE_BYTES_MAX
            total += len(page.entries)
            token = page.next_page_token
            if not token:
                break
            assert page.entries
        assert total == 12
    finally:
        shard.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("ranges")
    fs = MemoryFileSystem()
    fs.mkdirs(root)
    times = [1_750_000_000_000 + step for step in (0, 0, 1, 998, 999, 1000, 1001, 1999, 2000, 61_000, 61_999)]
    now = [times[0]]
    shard = LocalShard(root, fs, clock_millis=lambda: now[0])
    for time in times:
        now[0] = time
        shard.log.opened.appends.append_messages([new_message(queue_id=0, keys=["k"])], sync=True, born_host=BORN_HOST)
    shard.catch_up()
    yield shard, times
    shard.close()


@pytest.mark.parametrize("count", [-(1 << 31), -1])
def test_negative_counts_are_refused(small, count: int) -> None:
    shards = Shards([small[0].shard()], FAN_OUT)
    with pytest.raises(InvalidArgumentError):
        query_by_key(
            shards, TOKENS, "orders", "k", TimeWindow(), page_size_asked=count, page_token="",
            deadline=Deadline.after(60),
        )  # fmt: skip
    with pytest.raises(InvalidArgumentError):
        query_by_queue_offset(
            shards, "orders", 0, 0, broker_name="", page_size_asked=count, deadline=Deadline.after(60)
        )


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 1 << 31, I64_MAX])
@pytest.mark.parametrize("begin", [0, 1, 10, 11, 12, 1 << 31, I64_MAX])
def test_any_position_and_count_of_a_queue_is_answered_as_far_as_there_is_something(
    small, begin: int, count: int
) -> None:
    shards = Shards([small[0].shard()], FAN_OUT)
    answer = query_by_queue_offset(
        shards, "orders", 0, begin, broker_name="", page_size_asked=count, deadline=Deadline.after(60)
    )
    wanted = range(begin, min(11, begin + min(count or 64, 1000))) if begin < 11 else []
    assert list(wanted) == [entry.record.queue_offset for entry in answer.entries]
    assert (0, 11) == (answer.min_offset, answer.max_offset)


@pytest.mark.parametrize("position", [-1, -(1 << 63)])
def test_negative_positions_are_refused(small, position: int) -> None:
    with pytest.raises(InvalidArgumentError):
        query_by_queue_offset(
            Shards([small[0].shard()], FAN_OUT), "orders", 0, position, broker_name="", page_size_asked=1,
            deadline=Deadline.after(60),
        )  # fmt: skip


def test_rmq_5174_a_window_to_the_millisecond_never_misses_a_message_inside_it(small) -> None:
    """The index knows seconds, cut off: RocketMQ loses up to 999 ms of the end of a window."""
    shard, times = small
    shards = Shards([shard.shard()], FAN_OUT)
    edges = sorted({time + step for time in times for step in (-1000, -999, -1, 0, 1, 999, 1000)})
    random_ = random.Random(pick_seed("windows"))
    pairs = [(begin, end) for begin in edges for end in edges if begin <= end]
    for begin, end in random_.sample(pairs, min(len(pairs), amount(sample=400, change=len(pairs), full=len(pairs)))):
        answer = ask(shards, ("key", "orders", "k"), window=TimeWindow(begin, end))
        expected = [number for number, time in enumerate(times) if begin <= time <= end]
        assert expected[::-1] == [record.queue_offset for record in answer.records], (begin, end)


def test_rmq_10656_a_window_is_right_again_after_a_restart(small, tmp_path: Path) -> None:
    """The bounds of the index are read back, not guessed, and the second file's first entry counts from the first's end."""
    shard, times = small
    fs = MemoryFileSystem()
    copied = shard.fs.copy()
    for path in copied.paths():
        fs.put(tmp_path / path.relative_to(shard.root), copied.bytes_of(path))
    again = LocalShard(tmp_path, fs)
    try:
        again.catch_up()
        shards = Shards([again.shard()], FAN_OUT)
        for begin, end in ((times[0], times[0]), (times[3], times[6]), (times[-1], times[-1]), (0, times[-1] - 1)):
            answer = ask(shards, ("key", "orders", "k"), window=TimeWindow(begin, end))
            expected = [number for number, time in enumerate(times) if begin <= time <= end]
            assert expected[::-1] == [record.queue_offset for record in answer.records]
    finally:
        again.close()


@pytest.mark.parametrize("window", [(I64_MAX, I64_MAX), (0, I64_MAX), (0, 0), (-(1 << 63), I64_MAX), (-5, -1)])
def test_windows_at_the_ends_of_time_are_answered(small, window: tuple[int, int]) -> None:
    shard, times = small
    answer = ask(Shards([shard.shard()], FAN_OUT), ("key", "orders", "k"), window=TimeWindow(*window))
    assert answer.error is None
    assert len(answer.records) == sum(window[0] <= time <= window[1] for time in times)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        TimeWindow(2, 1)


def test_colliding_keys_take_no_place_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """`Aa` and `BB` have one Java hash: 2,000 of the one, newer than one of the other."""
    assert key_hash("orders#Aa") == key_hash("orders#BB")
    fs = MemoryFileSystem()
    fs.mkdirs(tmp_path)
    shard = LocalShard(tmp_path, fs, file_size_bytes=4 << 20, index_layout=IndexLayout(100, 4000))
    try:
        _fill(shard, 1, "Aa")
        _fill(shard, 2000, "BB")
        shard.catch_up()
        answer = ask(Shards([shard.shard()], FAN_OUT), ("key", "orders", "Aa"), page_size=10)
        assert [0] == [record.queue_offset for record in answer.records]
    finally:
        shard.close()
