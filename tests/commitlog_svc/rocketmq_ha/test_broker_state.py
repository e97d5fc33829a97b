"""BrokerState: what is asked of the broker stands in the files that a broker reads; what fails is said and changes nothing."""

import json
from pathlib import Path

from commitlog_svc.log_status import MirrorState
from commitlog_svc.rocketmq_ha.broker_state import BrokerState
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode
from services.rocketmq.remoting import Broker
from store.errors import ServiceUnavailableError
from store.format.delivery.consumer_files import decode_groups, decode_offsets
from tests.commitlog_svc.support import open_log
from tests.support.waiting import wait_until

TOPIC = {"topicName": "orders", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
# As fastjson writes them: numbers that are keys have no quotes.
ANSWERS = {
    RequestCode.GET_BROKER_RUNTIME_INFO: '{"table":{"commitLogMaxOffset":"4000","commitLogMinOffset":"0"}}',
    RequestCode.GET_ALL_TOPIC_CONFIG: json.dumps(
        {"dataVersion": {"counter": 7}, "mappingDataVersion": {}, "topicConfigTable": {"orders": TOPIC}}
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        '{"subscriptionGroupTable":{"readers":{"retryMaxTimes":4}},"forbiddenTable":{}}'
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: '{"offsetTable":{"orders@readers":{0:12,1:7}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: '{"offsetTable":{1:10}}',
}


class ScriptedBroker(Broker):
    """A broker with the answers above."""

    def __init__(self) -> None:
        super().__init__(Address("127.0.0.1", 1))
        self.refused: set[int] = set()
        self.fault: Exception | None = None

    def call(self, code: int, **fields: str) -> bytes:
        """See Broker."""
        if code in self.refused:
            raise ServiceUnavailableError(f"the broker refused request {code}: no permission", service="rocketmq")
        if self.fault is not None:
            raise self.fault
        return ANSWERS[code].encode()


def test_topics_groups_positions_and_the_lag_are_those_of_the_broker(tmp_path: Path) -> None:
    broker, state = ScriptedBroker(), MirrorState("broker:10912")
    with open_log(tmp_path, mirror="rocketmq://broker:10912") as log:
        config_files = log.opened.config_files
        looks = BrokerState(broker, log.topics, config_files, state, look_seconds=0.01)
        looks.start()
        try:
            wait_until(lambda: config_files.read("delayOffset.json").content)
            assert [(config.topic, config.read_queue_count) for config in log.topics.all()] == [("orders", 3)]
            assert (
                decode_groups(config_files.read("subscriptionGroup.json").content or b"")["readers"].retry_count_max
                == 4
            )
            assert decode_offsets(config_files.read("consumerOffset.json").content or b"") == {
                ("readers", "orders"): {0: 12, 1: 7}
            }
            assert state.lag_bytes(1000) == 3000
            assert json.loads((tmp_path / "config" / "topics.json").read_text())["dataVersion"] == {"counter": 7}

            broker.refused = {RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO}
            wait_until(lambda: "no permission" in state.broker_problem)
            assert state.source_end_offset is None
            assert log.topics.find("orders") is not None
            broker.refused = set()
            wait_until(lambda: not state.broker_problem)

            for fault in OSError("no route"), AttributeError("list has no items"):
                broker.fault = fault
                wait_until(lambda: str(broker.fault) in state.broker_problem)
            broker.fault = None
            wait_until(lambda: not state.broker_problem)  # the thread has not ended by them
        finally:
            looks.close()
