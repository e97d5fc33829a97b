"""A fresh run of the real Apache RocketMQ, rebuilt to the same bytes."""

import pathlib

import pytest

from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.rocketmq import real_broker

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_what_a_real_broker_wrote_is_rebuilt_to_the_same_bytes(tmp_path: pathlib.Path, version: str) -> None:
    store = tmp_path / "store"
    broker = real_broker.RealRocketMQ(
        store,
        tmp_path / "rocketmq",
        version=version,
        mappedFileSizeCommitLog=1 << 20,
        mappedFileSizeConsumeQueue=4000,
        maxHashSlotNum=500,
        maxIndexNum=1000,
    )
    broker.start()
    try:
        for topic in ("Orders", "Payments"):
            assert len(broker.send(topic, f"{topic}-", 1200)) == 1200
    finally:
        broker.stop()

    report = rebuild_here(store, tmp_path / "out", split_bytes=100_000)

    assert report.counts["record_count"] >= 2400
    assert report.counts["index_file_count"] > 2, "the test wants an index that rolls over"
    assert_same_store(tmp_path / "out", store)
