"""What waits in our store is delivered by the real broker: it opens the store before the messages are due."""

import pathlib

import pytest

from benchmarks.sides import remoting
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.rocketmq.codes import RequestCode
from tests.rocketmq import real_broker
from tests.rocketmq.broker_calls import stored
from tests.rocketmq.test_interop import FILE_SIZES, INDEX_SIZES, OUR_SIZES
from tests.support.stack import hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

LEVEL, DELAY_SECONDS = 4, 30  # longer than our services run
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


def half_max_offset(broker: real_broker.RealRocketMQ) -> int:
    """The next queue offset of half messages."""
    asked = {"topic": HALF_TOPIC, "queueId": "0"}
    return int(remoting.exchange(broker.broker_port, RequestCode.GET_MAX_OFFSET, asked)[0]["offset"])


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_a_real_broker_delivers_what_waits_in_our_store(tmp_path: pathlib.Path, version: str) -> None:
    store = tmp_path / "store"
    broker = real_broker.RealRocketMQ(
        store,
        tmp_path / "rocketmq",
        version=version,
        **FILE_SIZES,
        **INDEX_SIZES,
        transactionCheckInterval=8_000,
    )
    settings = {**OUR_SIZES, "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}"}
    with hosted_stack(store, settings=settings) as stack:
        messages = [
            new_message("Orders", b"by level", unique_key="LEVEL1", delay_level=LEVEL),
            new_message("Orders", b"by time", unique_key="TIMED1", properties={"TIMER_DELAY_SEC": str(DELAY_SECONDS)}),
            new_message("Orders", b"half", unique_key="HALF1", properties={"TRAN_MSG": "true", "PGROUP": "g"}),
        ]
        results = stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX
        ).results
        stack.wait_until_built()
    assert [False, True, False] == [bool(result.recall_handle) for result in results]

    def find(unique_key: str) -> str:
        return broker.mqadmin("queryMsgByUniqueKey", "-t", "Orders", "-i", unique_key)

    broker.start()
    try:
        # A question to mqadmin is a JVM: what the log has is read until it is there.
        wait_until(
            lambda: {"by level", "by time"} <= {one.body for one in stored(store, "Orders")},
            lambda: f"both come, not only {stored(store, 'Orders')}",
            poll_seconds=0.2,
        )
        for unique_key in ("LEVEL1", "TIMED1"):
            wait_until(
                lambda key=unique_key: "Message Body Path" in find(key), f"{unique_key} is found", poll_seconds=1
            )
        assert "Message Body Path" not in find("HALF1")
        wait_until(
            lambda: len(stored(store, HALF_TOPIC)) > 1,
            "it asks for the verdict and stores it again",
            poll_seconds=0.2,
        )
        wait_until(lambda: half_max_offset(broker) > 1, "its queue has it", poll_seconds=0.2)
    finally:
        broker.stop()
