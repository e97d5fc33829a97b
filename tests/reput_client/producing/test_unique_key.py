"""Unique keys: RocketMQ's layout, read by the store's own decoder; never two alike."""

import concurrent.futures
import os
import threading
import time

import pytest

from reput_client.producing.unique_key import UniqueKeyGenerator, local_ip
from store.format.message_id import decode_unique_key


@pytest.mark.parametrize("ip", ["10.1.2.3", "2001:db8::7"])
def test_a_key_says_who_made_it_and_when(ip: str) -> None:
    millis = time.time_ns() // 1_000_000
    key = UniqueKeyGenerator(
        ip, 70_001, loader_hash=b"\x01\x02\x03\x04", clock_nanos=lambda: millis * 1_000_000
    ).create()
    assert len(key) == (32 if ":" not in ip else 56)
    assert key == key.upper()
    parts = decode_unique_key(key)
    assert parts is not None
    assert (parts.ip, parts.pid, parts.class_loader_hash) == (ip, 70_001 & 0xFFFF, 0x01020304)
    assert parts.time_millis == millis


def test_a_clock_that_stands_or_goes_back_does_not_repeat_keys() -> None:
    now = [1_700_000_000_000]
    generator = UniqueKeyGenerator("10.0.0.1", clock_nanos=lambda: now[0] * 1_000_000)
    keys = [generator.create() for _ in range(70_000)]  # more than the counter holds
    now[0] -= 60_000
    keys += [generator.create() for _ in range(1000)]
    now[0] -= 40 * 86_400_000
    keys += [generator.create() for _ in range(1000)]
    assert len(set(keys)) == len(keys)
    assert keys == sorted(keys)


def test_keys_that_are_made_together_go_on_behind_the_counters_end() -> None:
    generator = UniqueKeyGenerator("10.0.0.1", clock_nanos=lambda: 1_700_000_000_000 * 1_000_000)
    assert generator.create_many(0) == []
    keys = [generator.create_ascii(), *generator.create_many(70_000), generator.create_ascii()]
    assert len(set(keys)) == len(keys) == 70_002
    assert keys == sorted(keys)


def test_the_time_in_a_key_begins_anew_with_a_month() -> None:
    begin = int(time.mktime((2026, 12, 31, 23, 59, 59, 0, 0, -1))) * 1000
    now = [begin]
    generator = UniqueKeyGenerator("10.0.0.1", 1, clock_nanos=lambda: now[0] * 1_000_000)
    before = generator.create()
    now[0] += 1000
    after = generator.create()
    assert int(before[-12:-4], 16) == 31 * 86_400_000 - 1000
    assert int(after[-12:-4], 16) == 0


def test_two_generators_of_one_process_make_different_keys() -> None:
    made = [UniqueKeyGenerator("10.0.0.1", 1, clock_nanos=lambda: 0) for _ in range(50)]
    assert len({generator.create() for generator in made}) == 50


def test_many_threads_make_different_keys() -> None:
    generator = UniqueKeyGenerator("10.0.0.1")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: [generator.create() for _ in range(2000)], range(8)))
    assert len({key for part in parts for key in part}) == 16_000


def test_by_default_a_key_names_this_process() -> None:
    parts = decode_unique_key(UniqueKeyGenerator().create())
    assert parts is not None
    assert parts.pid == os.getpid() & 0xFFFF
    assert parts.ip == local_ip()


def test_two_threads_that_see_the_millisecond_end_do_not_begin_it_twice() -> None:
    generator = UniqueKeyGenerator("10.0.0.1", clock_nanos=lambda: 1_700_000_000_000_000_000)
    keys = []

    class TakenByAnotherFirst:
        def __enter__(self) -> None:
            generator._lock = threading.Lock()
            keys.append(generator.create())

        def __exit__(self, *_: object) -> None:
            pass

    generator._lock = TakenByAnotherFirst()  # type: ignore[assignment]
    keys.append(generator.create())
    assert len(set(keys)) == 2
