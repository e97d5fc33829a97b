"""A broker.conf as a settings file: Java's own properties rules, RocketMQ's names, and nothing hidden."""

import pytest

from services.settings.broker_conf import parse_java_properties, read_broker_conf
from store.errors import InvalidSettingError


# Expected values are what java.util.Properties.load documents.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("# c\n  ! c\n\n a=1", {"a": "1"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\=b=c=d", {"a=b": "c=d"}),
        ("a=\\u4e2d\\t!", {"a": "中\t!"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=C:\\\\store", {"a": "C:\\store"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, expected):
    assert parse_java_properties(text) == expected


def test_rocketmq_names_become_ours_and_the_rest_is_listed():
    conf = read_broker_conf(
        """
brokerClusterName = DefaultCluster
brokerName = broker-b
brokerId = 0
fileReservedTime = 48
messageDelayLevel = 2s 1h
timerMaxDelaySec = 31536000
deleteWhen=04;16
diskMaxUsedSpaceRatio=88
diskSpaceCleanForciblyRatio=89
diskSpaceWarningLevelRatio=91
cleanFileForciblyEnable=false
deleteCommitLogFilesInterval=200
deleteFileBatchMax=5
cleanResourceInterval=20000
listenAddress=x
storePathRootDir=/data/store
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=6001
enableConsumeQueueExt=true
mappedFileSizeConsumeQueueExt=4096
maxHashSlotNum=1000
maxIndexNum=4000
messageIndexEnable=false
flushDiskType=SYNC_FLUSH
flushIntervalCommitLog=500
maxMessageSize=65536
enabledAppendPropCRC=true
autoCreateTopicEnable=false
defaultTopicQueueNums=4
transactionTimeOut=6500
transactionCheckInterval=60000
transactionCheckMax=7
brokerIP1=10.0.0.7
listenPort=10921
""",
        "broker.conf",
    )

    assert {key: value for key, (value, _) in conf.values.items()} == {
        ("", "broker_name"): "broker-b",
        ("commitlog", "cluster_name"): "DefaultCluster",
        ("consumer", "cluster_name"): "DefaultCluster",
        ("gateway", "cluster_name"): "DefaultCluster",
        ("", "store"): "/data/store",
        ("", "store_host"): "10.0.0.7:10921",
        ("commitlog", "file_size_bytes"): "1048576",
        ("commitlog", "flush_mode"): "sync",
        ("commitlog", "flush_interval_millis"): "500",
        ("commitlog", "message_size_bytes_max"): "65536",
        ("commitlog", "properties_crc"): "true",
        ("commitlog", "auto_create_topic"): "false",
        ("commitlog", "default_topic_queue_count"): "4",
        ("commitlog", "file_reserved_seconds"): "172800",
        ("", "delay_levels"): "2s 1h",
        ("commitlog", "timer_max_delay_seconds"): "31536000",
        ("commitlog", "delete_when_hours"): "04;16",
        ("commitlog", "disk_clean_ratio_percent"): "88",
        ("commitlog", "disk_clean_forcibly_ratio_percent"): "89",
        ("commitlog", "disk_full_ratio_percent"): "91",
        ("commitlog", "clean_file_forcibly_enabled"): "false",
        ("commitlog", "delete_files_interval_millis"): "200",
        ("commitlog", "delete_file_batch_count_max"): "5",
        ("commitlog", "clean_resource_interval_millis"): "20000",
        ("schedule", "transaction_timeout_seconds"): "6.5",
        ("schedule", "transaction_check_interval_seconds"): "60.0",
        ("schedule", "transaction_check_count_max"): "7",
        ("consumequeue", "file_size_bytes"): "6020",  # RocketMQ rounds up to whole units of 20 bytes
        ("consumequeue", "ext"): "true",
        ("consumequeue", "ext_file_size_bytes"): "4096",
        ("index", "hash_slot_count"): "1000",
        ("index", "entry_count_max"): "4000",
        ("index", "enabled"): "false",
    }
    assert conf.ignored_names == ("brokerId", "listenAddress")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("brokerIP1=10.0.0.7", "10.0.0.7:10911"),
        ("listenPort=10921", "127.0.0.1:10921"),
        ("brokerIP1=fd00::7\nlistenPort=1", "[fd00::7]:1"),
    ],
)
def test_the_store_host_is_made_of_ip_and_port(text, host):
    assert read_broker_conf(text, "broker.conf").values["", "store_host"][0] == host


@pytest.mark.parametrize("name", ["fileReservedTime", "mappedFileSizeConsumeQueue", "transactionTimeOut"])
@pytest.mark.parametrize("digit_count", [20, 400, 5000])
def test_a_number_that_is_too_long_to_be_one_stopped_the_start_with_a_traceback(name, digit_count):
    """Found by fuzzing. The setting itself says that it cannot be used."""
    value = "9" * digit_count
    assert (value, name) in read_broker_conf(f"{name}={value}", "broker.conf").values.values()


def test_a_flush_type_that_rocketmq_does_not_know_is_refused():
    with pytest.raises(InvalidSettingError, match="flushDiskType"):
        read_broker_conf("flushDiskType=MAYBE", "broker.conf")
