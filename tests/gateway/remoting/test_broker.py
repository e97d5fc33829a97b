"""The broker as tools see it over the door; the names are those that RocketMQ 5.5.0 was recorded with."""

from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads


def test_the_state_has_the_names_that_cluster_list_reads(stack, client):
    stack.append("state")
    table = loads(client.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert int(table["commitLogMaxOffset"]) > int(table["commitLogMinOffset"]) == 0
    assert int(table["earliestMessageTimeStamp"]) > 1_700_000_000_000
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    for name in ("putTps", "getTransferredTps"):
        assert [float(rate) for rate in table[name].split(" ")] == [0.0, 0.0, 0.0]
    for name in ("sendThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills"):
        assert table[name] == "0"


def test_the_configuration_is_read_and_not_changed(stack, client):
    text = client.call(RequestCode.GET_BROKER_CONFIG).body.decode()
    names = dict(line.split("=", 1) for line in text.splitlines())
    assert names["brokerName"] == "broker-a"
    assert names["brokerClusterName"] == "DefaultCluster"
    assert names["autoCreateTopicEnable"] == "true"
    refused = client.call(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4\n")
    assert refused.code == ResponseCode.SYSTEM_ERROR


def test_what_has_no_counts_producers_or_copies_is_told_as_rocketmq_tells_it(client):
    stats = client.call(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="zz")
    assert (stats.code, stats.remark) == (1, "The stats <TOPIC_PUT_NUMS> <zz> not exist")
    producers = client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="nope")
    assert (producers.code, producers.remark) == (1, "the producer group[nope] not exist")
    assert loads(client.call(RequestCode.GET_BROKER_HA_STATUS).body)["haConnectionInfo"] == []


def test_cleaning_is_done_by_the_store_itself(client):
    for code in (306, 316, 329):
        assert client.call(code).code == 0
