"""The broker as tools see it over the door; the names are those that RocketMQ 5.5.0 was recorded with."""

from types import SimpleNamespace

from gateway.ports.shard import StatusRow
from gateway.remoting.broker import get_broker_config
from gateway.remoting.door_shard import DoorShard, LogStatus
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from tests.gateway.remoting.requests import UNIQUE, properties, pull_fields, records, send_fields
from tests.support.waiting import wait_until


def test_the_state_has_the_names_that_cluster_list_reads(stack, client):
    stack.append("state")
    table = loads(client.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert int(table["commitLogMaxOffset"]) > int(table["commitLogMinOffset"]) == 0
    assert int(table["earliestMessageTimeStamp"]) > 1_700_000_000_000
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    for name in ("putTps", "getTransferredTps", "getMissTps"):
        assert len([float(rate) for rate in table[name].split(" ")]) == 3
    for name in ("sendThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills"):
        assert table[name] == "0"


def test_the_state_has_all_that_rocketmq_exporter_reads_or_it_reads_nothing(client):
    """`BrokerRuntimeStats` of rocketmq-exporter 0.0.3 fails as a whole for a name that is absent or no number."""
    table = loads(client.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    numbers = (
        *("msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning"),
        *("msgPutTotalTodayMorning", "msgGetTotalTodayMorning", "queryThreadPoolQueueSize", "pullThreadPoolQueueSize"),
        *("sendThreadPoolQueueSize", "queryThreadPoolQueueCapacity", "sendThreadPoolQueueCapacity", "bootTimestamp"),
        *("pullThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills", "commitLogMinOffset", "brokerVersion"),
        *("queryThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "dispatchMaxBuffer"),
        *("pageCacheLockTimeMills", "commitLogMaxOffset", "getMessageEntireTimeMax", "putMessageTimesTotal"),
        *("startAcceptSendRequestTimeStamp", "putMessageEntireTimeMax", "earliestMessageTimeStamp"),
        *("remainTransientStoreBufferNumbs", "dispatchBehindBytes", "putMessageSizeTotal"),
    )
    assert all(int(table[name]) >= -1 for name in numbers)
    assert all(
        float(table[name]) >= 0 for name in ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize")
    )
    for name in ("putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps"):
        assert len([float(rate) for rate in table[name].split(" ")]) == 3
    assert float(table["remainHowManyDataToFlush"].split(" ")[0]) == 0
    assert all(int(each.split(":")[1]) == 0 for each in table["putMessageDistributeTime"].split(" "))
    total, free = table["commitLogDirCapacity"].split(", ")
    assert float(total.split(" ")[2]) >= float(free.split(" ")[2]) > 0


def test_the_state_hid_how_far_the_delay_levels_are_delivered(stack, client):
    """`scheduleMessageOffset_LEVEL` is "next,end" of the level's queue, as of ScheduleMessageService.buildRunningStats."""
    for name, value in (("DELAY", "18"), ("DELAY", "18"), ("TIMER_DELAY_SEC", "3600")):
        said = properties(UNIQ_KEY=UNIQUE, **{name: value})
        assert client.call(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields("Late", properties=said)).code == 0

    def table():
        return loads(client.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]

    wait_until(lambda: table()["timerCongestNum"] == "1", table)
    wait_until(lambda: table().get("scheduleMessageOffset_18") == "0,2", table)


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


def test_counts_of_a_topic_a_group_and_the_broker_are_what_came_and_went(stack, client):
    (receipt, *_) = stack.append("counted", 3, keys=["k"])
    pulled = client.call(RequestCode.PULL_MESSAGE, **pull_fields("counted", 0, consumerGroup="counters", maxMsgNums=32))
    assert len(records(pulled.body)) == 3
    size_bytes = len(pulled.body)

    def statistic(name, key):
        answer = client.call(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        return loads(answer.body)["statsMinute"] if answer.code == 0 else answer.remark

    put, got = statistic("TOPIC_PUT_NUMS", "counted"), statistic("GROUP_GET_NUMS", "counted@counters")
    assert put["sum"] == got["sum"] == 3
    assert 0 < put["tps"] <= 0.3
    assert got["avgpt"] == 3.0
    assert statistic("TOPIC_PUT_SIZE", "counted")["sum"] == size_bytes
    # Fields of an answer have some bytes besides their records.
    assert size_bytes <= statistic("GROUP_GET_SIZE", "counted@counters")["sum"] <= size_bytes + 4 * 3
    for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
        assert statistic(name, "DefaultCluster")["sum"] >= 3
        assert statistic(name, "another") == f"The stats <{name}> <another> not exist"
    assert (
        statistic("SNDBCK_PUT_NUMS", "counted@counters") == "The stats <SNDBCK_PUT_NUMS> <counted@counters> not exist"
    )
    assert statistic("GROUP_GET_LATENCY", "counted@counters").endswith("not exist")

    table = loads(client.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert float(table["putTps"].split(" ")[1]) > 0
    assert float(table["getTransferredTps"].split(" ")[1]) > 0
    assert int(table["msgPutTotalTodayNow"]) >= 3
    assert int(table["putMessageSizeTotal"]) >= size_bytes
    stats = loads(client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="counted").body)
    assert 0 < stats["topicPutTps"] <= 0.3
    offsets = {"consumerGroup": "counters", "topic": "counted", "queueId": 0, "commitOffset": 3}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **offsets).code == 0
    progress = loads(client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="counters").body)
    assert 0 < progress["consumeTps"] <= 0.3
    assert receipt.queue_offset == 0


def test_cleaning_is_done_by_the_store_itself(client):
    for code in (306, 316, 329):
        assert client.call(code).code == 0


def test_the_address_of_the_broker_is_the_one_that_clients_are_told_and_not_where_the_door_listens():
    """A door listens at 0.0.0.0 on Kubernetes, and at another port than its Service: a program that dials that fails."""

    def door(told: str) -> DoorShard:
        log = StatusRow(LogStatus(service="commitlog", file_size_bytes=4096, broker_address=told))
        others = [StatusRow(LogStatus(service=name)) for name in ("consumequeue", "index")]
        shard = SimpleNamespace(call=lambda method, request, deadline: [*others, log])
        source = SimpleNamespace(now=lambda: SimpleNamespace(named=lambda name: shard))
        rest = dict.fromkeys(
            ("deliverings", "endings", "producers", "forwarder", "room", "clients", "waits", "builder_waits")
        )
        topics = SimpleNamespace(new_topic_queue_count=8)
        return DoorShard("broker-a", "c", "0.0.0.0:10921", source=source, whole=source, topics=topics, **rest)

    def config(told: str) -> dict[str, str]:
        lines = get_broker_config(door(told), None).body.decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    of_service = config("reput-broker-1.messages.svc:10911")
    assert (of_service["brokerIP1"], of_service["listenPort"]) == ("reput-broker-1.messages.svc", "10911")
    assert (config("")["brokerIP1"], config("")["listenPort"]) == ("0.0.0.0", "10921")
    assert door("10.0.0.5:30911").address() == "10.0.0.5:30911"


def test_answers_about_groups_name_the_address_that_clients_are_told(stack, client):
    text = client.call(RequestCode.GET_BROKER_CONFIG).body.decode()
    names = dict(line.split("=", 1) for line in text.splitlines())
    told = f"{names['brokerIP1']}:{names['listenPort']}"
    assert loads(client.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g").body)["brokerAddr"] == told
    assert loads(client.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false").body)["brokerAddr"] == told
