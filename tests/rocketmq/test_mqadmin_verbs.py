"""mqadmin 5.5.0, unmodified, prints at Reput what it prints at RocketMQ 5.5.0, verb by verb, or differs as written here."""

import pathlib
from collections.abc import Mapping, Sequence

import pytest

from tests.rocketmq import mqadmin_verbs, real_broker
from tests.rocketmq.mqadmin_verbs import VERBS
from tests.support.stack import hosted_stack

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

# By verb: what Reput prints, where it is not what RocketMQ prints; docs/coming-from-rocketmq.md says why.
DIFFERS: Mapping[str, str] = {
    "brokerStatus -b {broker}": "brokerVersion : 513",
    "topicList": "rmq_sys_REPUT_CONSUMER_STATE",
    "topicList -c": "DefaultCluster rmq_sys_REPUT_CONSUMER_STATE",
    # A record is 20 bytes longer by the property __CRC32#, which a broker has where it is switched on.
    "queryMsgById -i {id0} -t Verbs": "OffsetID: ID0",
    "queryMsgById -i {unique0} -t Verbs": "OffsetID: ID0",
    "queryMsgByKey -t Verbs -k key1": "@key1@UNIQUE1@280",
    "queryMsgByKey -t Verbs -k key1 -m 1": "@key1@UNIQUE1@280",
    "queryMsgByUniqueKey -t Verbs -i {unique1}": "CommitLog Offset: 280",
    "queryMsgByOffset -t Verbs -b broker-a -i 1 -o 0": "CommitLog Offset: 280",
    "printMsg -t Verbs": "MSGID: UNIQUE7 MessageExt [brokerName=broker-a, queueId=3, storeSize=280, queueOffset=1",
    "printMsgByQueue -t Verbs -a broker-a -i 1 -p true -d true": "queueId=1, storeSize=280, queueOffset=1",
    "consumeMessage -t Verbs": "MSGID: UNIQUE7 MessageExt [brokerName=broker-a, queueId=3, storeSize=280, queueOffset=1",
    "queryCq -t Verbs -q 1 -i 0 -c 3 -b {broker}": "physicOffset=280, physicSize=280",
    "queryCq -t Verbs -q 1 -i 0 -c 3 -b {broker} -g members": "physicOffset=280, physicSize=280",
    "updateTopic -c DefaultCluster -t Compacted -a +cleanup.policy=COMPACTION": "cleanup.policy is not supported here",
    "getConsumerConfig -g fresh": "consumeBroadcastEnable = true",
    "getConsumerConfig -g fresh2": "retryQueueNums = 1",
    "queryMsgTraceById -i {unique0}": "CODE: 208",
    "statsAll -t Verbs": "Verbs members ",
    "updateBrokerConfig -b {broker} -k waitTimeMillsInSendQueue -v 500": "set REPUT_",
    "updateNamesrvConfig -k clusterTest -v true": "set REPUT_NAMESERVER_",
    "wipeWritePerm -b broker-a": "OK, ",
    "addWritePerm -b broker-a": "OK, ",
    "cloneGroupOffset -s members -d cloned -t Verbs": "clone group offset success",
    "haStatus -b {broker}": "#MasterCommitLogMaxOffset",
    "setCommitLogReadAheadMode -b {broker} -m 1": "read-ahead modes of the log",
    "getColdDataFlowCtrInfo -b {broker}": "limits of cold data",
    "updateColdDataFlowCtrGroupConfig -b {broker} -g members -v 100": "limits of cold data",
    "removeColdDataFlowCtrGroupConfig -b {broker} -g members": "limits of cold data",
    "addBroker -c {broker} -b /tmp/none": "broker containers",
    "removeBroker -c {broker} -b DefaultCluster:broker-a:0": "broker containers",
    "resetMasterFlushOffset -b {broker} -o 0": "copies of a broker",
    "getBrokerEpoch -b broker-a": "a controller",
    "library getUserSubscriptionGroup {broker}": '"members"',  # without fresh2, which was deleted
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[str]]:
    """What each verb prints at Reput."""
    directory: pathlib.Path = tmp_path_factory.mktemp("verbs")
    with hosted_stack(directory / "store", nameserver_port=0, remoting_port=0) as stack:
        names, broker = stack.addresses["nameserver"], stack.addresses["remoting"]
        return mqadmin_verbs.run(names, broker, directory / "work")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in DIFFERS])
def test_a_verb_prints_what_it_prints_at_rocketmq(printed: Mapping[str, Sequence[str]], verb: str) -> None:
    assert printed[verb] == mqadmin_verbs.recorded()[verb]


@pytest.mark.parametrize("verb", DIFFERS)
def test_a_verb_that_differs_prints_what_the_page_says(printed: Mapping[str, Sequence[str]], verb: str) -> None:
    assert any(DIFFERS[verb] in line for line in printed[verb]), printed[verb]


def test_a_difference_that_is_written_down_is_one(printed: Mapping[str, Sequence[str]]) -> None:
    assert [verb for verb in DIFFERS if printed[verb] == mqadmin_verbs.recorded()[verb]] == []
