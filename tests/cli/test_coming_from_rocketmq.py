"""docs/coming-from-rocketmq.md: every verb of mqadmin and every name of a broker.conf has its line, and each line is true."""

import re
from pathlib import Path

from cli.main import GROUPS, VERBS
from cli.mqadmin.command_line import NO_EFFECT
from services.settings.broker_conf import ALIASES
from services.settings.setting_names import SETTINGS
from tests.cli.mqadmin import facts

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coming-from-rocketmq.md").read_text(encoding="utf-8")
# `commandName()` of every command that MQAdminStartup of RocketMQ 5.3.3 starts.
MQADMIN = """
    addBroker addWritePerm allocateMQ brokerStatus checkMsgSendRT checkRocksdbCqWriteProgress cleanBrokerMetadata
    cleanExpiredCQ cleanUnusedTopic cloneGroupOffset clusterList clusterRT consumeMessage consumerConnection
    consumerProgress consumerStatus copyAcl copyUser createAcl createUser deleteAcl deleteExpiredCommitLog deleteKvConfig
    deleteSubGroup deleteTopic deleteUser dumpCompactionLog electMaster exportConfigs exportMetadata
    exportMetadataInRocksDB exportMetrics exportPopRecord getAcl getBrokerConfig getBrokerEpoch getColdDataFlowCtrInfo
    getConsumerConfig getControllerConfig getControllerMetaData getNamesrvConfig getSyncStateSet getUser haStatus listAcl
    listUser printMsg printMsgByQueue producer producerConnection queryCq queryMsgById queryMsgByKey queryMsgByOffset
    queryMsgByUniqueKey queryMsgTraceById remappingStaticTopic removeBroker removeColdDataFlowCtrGroupConfig
    resetMasterFlushOffset resetOffsetByTime rocksDBConfigToJson sendMessage sendMsgStatus setCommitLogReadAheadMode
    setConsumeMode skipAccumulatedMessage startMonitoring statsAll topicClusterList topicList topicRoute topicStatus
    updateAcl updateBrokerConfig updateColdDataFlowCtrGroupConfig updateControllerConfig updateKvConfig
    updateNamesrvConfig updateOrderConf updateStaticTopic updateSubGroup updateSubGroupList updateTopic updateTopicList
    updateTopicPerm updateUser wipeWritePerm
"""

# Names of the flags of each verb of the first table, by mqadmin's help.
HELP_NAMES = {
    verb: {name for flag in facts.all_flags() if flag.verb == verb for name in flag.names} for verb in facts.VERBS
}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}


def test_every_verb_of_mqadmin_has_its_line() -> None:
    assert set(MQADMIN.split()) - first_cells(section("mqadmin")) == set()


def test_the_first_table_names_the_verbs_that_take_mqadmins_flags_and_those_without_effect() -> None:
    table = section("mqadmin").split("\n\n| mqadmin")[1]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    named = {verb.strip(" `"): set(re.findall(r"`(-\S+)`", flags)) for verb, flags in rows}

    assert named == {
        verb: {min(each.names, key=len) for each in flags if set(each.names) & HELP_NAMES[verb]}
        for verb, flags in NO_EFFECT.items()
    }
    assert set(named) == set(HELP_NAMES) <= set(VERBS)


def test_every_command_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`reput ([a-zA-Z-]+)(?: ([a-z-]+))?", PAGE))
    assert len(named) > 20
    for verb, second in named:
        assert verb in VERBS or verb in GROUPS, verb
        if verb in GROUPS and second:
            assert second in GROUPS[verb][1], (verb, second)


def test_the_table_of_broker_conf_is_what_is_read_from_one() -> None:
    names = {(setting.component, setting.name): setting.environment_name for setting in SETTINGS}
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", section("broker.conf"), re.MULTILINE))
    assert rows == {name: names[ours] for name, ours in ALIASES.items()}
