"""ConsumeQueueExt and its bit maps beside RocketMQ: its own classes, and a store of a real broker that had them on."""

import json
import os
import pathlib
import random

import pytest

from consumer_svc.filters.bloom import BloomFilter
from consumer_svc.filters.message_filter import filter_of_sql
from store.audit.store_audit import audit_store
from store.files.file_system import RealFileSystem
from store.files.open_files import OpenFiles
from store.format.derived.queue_ext import is_ext_address, lay_out
from store.format.java_text import java_string_hash
from store.format.paths import queue_dir
from store.format.record import decode_record
from store.readers.queue_reader import QueueExtUnits, QueueUnits, list_queue_ids
from tests.rocketmq import queue_ext_probe, real_broker

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

EXT_FILE_SIZE_BYTES = 4096
GROUPS = {"threes": "KEYS ENDSWITH '3'", "all": "TAGS = 'TagJ'", "none": "TAGS = 'other'", "broken": "KEYS > 3 OR TRUE"}


def test_rocketmq_reads_what_we_write_and_writes_the_same(tmp_path: pathlib.Path) -> None:
    seed = int(os.environ.get("TORTURE_SEED") or random.SystemRandom().randrange(2**32))
    units = queue_ext_probe.random_units(random.Random(seed), 500, 200)
    addresses = queue_ext_probe.put_units(tmp_path / "theirs", EXT_FILE_SIZE_BYTES, units)

    log, our_addresses = lay_out(units, 0, EXT_FILE_SIZE_BYTES)
    log += bytes(-len(log) % EXT_FILE_SIZE_BYTES)
    assert our_addresses == addresses, f"seed {seed}"
    theirs = sorted((tmp_path / "theirs/t/0").iterdir())
    assert b"".join(path.read_bytes() for path in theirs) == log, f"seed {seed}"

    ours = tmp_path / "ours/t/0"
    ours.mkdir(parents=True)
    for number, path in enumerate(theirs):
        (ours / path.name).write_bytes(log[number * EXT_FILE_SIZE_BYTES : (number + 1) * EXT_FILE_SIZE_BYTES])
    assert queue_ext_probe.get_units(tmp_path / "ours", EXT_FILE_SIZE_BYTES, addresses) == units, f"seed {seed}"


@pytest.mark.parametrize(
    ("false_hit_percent", "group_count"), [(20, 32), (20, 64), (1, 1), (10, 128), (50, 7), (99, 1000)]
)
def test_bits_of_groups_are_those_of_rocketmq(false_hit_percent: int, group_count: int) -> None:
    names = [(f"{'g' * (number % 40)}{number}", "订单" * (number % 3) + "t") for number in range(100)]
    lines = [f"{group}#{topic}" for group, topic in names]
    said = queue_ext_probe.ask_probe("bloom", str(false_hit_percent), str(group_count), lines=lines)
    bloom = BloomFilter.of(false_hit_percent, group_count)
    assert bloom.bit_count == int(said[0])
    for (group, topic), line in zip(names, said[1:], strict=True):
        bit_map, *positions = line.split(" ")
        assert bloom.bit_positions(group, topic) == tuple(map(int, positions))
        assert bloom.bit_map([bloom.bit_positions(group, topic)]).hex() == bit_map


def write_consumer_filters(store: pathlib.Path, topic: str, bloom: BloomFilter) -> None:
    """As a broker keeps the SQL subscriptions of its groups."""
    data = {
        group: {
            "consumerGroup": group,
            "topic": topic,
            "expression": expression,
            "expressionType": "SQL92",
            "bornTime": 1,
            "deadTime": 0,
            "bloomFilterData": {"bitPos": bloom.bit_positions(group, topic), "bitNum": bloom.bit_count},
            "clientVersion": 1,
        }
        for group, expression in GROUPS.items()
    }
    config = store / "config"
    config.mkdir(parents=True)
    content = {"filterDataByTopic": {topic: {"topic": topic, "groupFilterData": data}}}
    (config / "consumerFilter.json").write_text(json.dumps(content))


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_the_store_of_a_broker_with_ext_and_bit_maps_is_read_and_found_sound(
    tmp_path: pathlib.Path, version: str
) -> None:
    store, bloom = tmp_path / "store", BloomFilter.of()
    write_consumer_filters(store, "Orders", bloom)
    settings = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": EXT_FILE_SIZE_BYTES}
    switches = {"enableCalcFilterBitMap": "true", "enablePropertyFilter": "true"}
    sizes = {"mappedFileSizeCommitLog": 1048576, "mappedFileSizeConsumeQueue": 40000}
    with real_broker.real_rocketmq(
        store, tmp_path / "rocketmq", version=version, **settings, **switches, **sizes
    ) as broker:
        broker.send("Orders", "order-", 600)

    fs = RealFileSystem()
    log = (store / "commitlog" / f"{0:020d}").read_bytes()
    seen = 0
    for topic, queue_id in list_queue_ids(fs, store):
        directory = pathlib.Path(queue_dir(str(store), topic, queue_id))
        queue, ext = QueueUnits(OpenFiles(fs), directory, 40000), QueueExtUnits(OpenFiles(fs), directory)
        queue.load()
        units = [unit for _, unit in queue.units(0, 10_000)]
        for unit, resolved in zip(units, ext.resolved(units), strict=True):
            assert is_ext_address(unit.tags_code)
            found = ext.unit(unit.tags_code)
            record = decode_record(log[unit.commit_log_offset :][: unit.record_size_bytes])
            assert found is not None
            assert (found.tags_code, found.store_time_millis) == (resolved.tags_code, record.store_time_millis)
            if topic != "Orders":
                continue
            seen += 1
            assert resolved.tags_code == java_string_hash("TagJ")
            matched = {
                group: bloom.bit_positions(group, topic)
                for group, expression in GROUPS.items()
                if filter_of_sql(expression).matches(record.tags, record.properties)
            }
            assert found.bit_map == bloom.bit_map(list(matched.values()))
            for group, positions in matched.items():
                assert bloom.may_match(found.bit_map, positions), group
    assert seen == 600
    audit = audit_store(fs, store)
    assert audit.unit_count >= 600
    assert audit.wrong_queues == frozenset()
