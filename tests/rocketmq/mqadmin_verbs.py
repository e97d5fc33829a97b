"""Verbs of mqadmin 5.5.0, unmodified: what they print at RocketMQ 5.5.0, and at any other broker.

`python -m tests.rocketmq.mqadmin_verbs` runs them at a real RocketMQ and writes `mqadmin/rocketmq-5.5.0.txt`: a line `# VERB`,
and below it what it printed, without what no two runs have in common: times, ports, ids, rates, the order of lines. All verbs
run beside a producer and a consumer that live (java/Verbs.java).
"""

import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks.sides import remoting
from tests.rocketmq import real_broker

RECORDED = pathlib.Path(__file__).parent / "mqadmin" / f"rocketmq-{real_broker.VERSION}.txt"
MESSAGE_COUNT = 8
# In this order: later ones see what earlier ones did. {id1} and {unique1} are the ids of a message. Behind `library` stands
# what programs ask through the library of mqadmin (java/AdminLibrary.java).
VERBS = """\
clusterList
clusterList -m
brokerStatus -b {broker}
topicList
topicRoute -t Verbs
topicRoute -t Absent
topicRoute -l -t Verbs
topicStatus -t Verbs
topicStatus -t Absent
topicClusterList -t Verbs
updateTopic -c DefaultCluster -t Made -r 3 -w 3
updateTopic -b {broker} -t Made2 -r 3 -w 5 -p 4
updateTopic -c DefaultCluster -t Typed -a +message.type=FIFO
updateTopic -c DefaultCluster -t Compacted -a +cleanup.policy=COMPACTION
updateTopicPerm -c DefaultCluster -t Made -p 4
updateTopicPerm -b {broker} -t Made -p 4
updateTopicPerm -b {broker} -t Made -p 6
topicRoute -t Made
topicRoute -t Made2
deleteTopic -c DefaultCluster -t Made2
deleteTopic -c DefaultCluster -t Absent
updateSubGroup -c DefaultCluster -g fresh
updateSubGroup -b {broker} -g fresh2 -r 3 -q 2 -s false
getConsumerConfig -g fresh
getConsumerConfig -g fresh2
getConsumerConfig -g absent
deleteSubGroup -c DefaultCluster -g fresh2
consumerProgress -g members
consumerProgress -g members -t Verbs
consumerProgress -g members -s true
consumerProgress -g fresh
consumerProgress -g absent
consumerConnection -g members
consumerConnection -g members -b {broker}
consumerConnection -g absent
consumerStatus -g members
producerConnection -g makers -t Verbs
producerConnection -g absent -t Verbs
queryMsgById -i {id0} -t Verbs
queryMsgById -i {id1} -t Verbs -g members -d CLIENT
queryMsgById -i {unique0} -t Verbs
queryMsgByKey -t Verbs -k key1
queryMsgByKey -t Verbs -k key1 -m 1
queryMsgByKey -t Verbs -k absent
queryMsgByKey -t Absent -k key1
queryMsgByUniqueKey -t Verbs -i {unique1}
queryMsgByUniqueKey -t Verbs -i 0123456789ABCDEF0123456789ABCDEF
queryMsgByUniqueKey -t Verbs -i {unique1} -g members -d CLIENT
queryMsgByOffset -t Verbs -b broker-a -i 1 -o 0
queryMsgByOffset -t Verbs -b broker-a -i 1 -o 900
queryMsgTraceById -i {unique0}
printMsg -t Verbs
printMsgByQueue -t Verbs -a broker-a -i 1
printMsgByQueue -t Verbs -a broker-a -i 1 -p true -d true
consumeMessage -t Verbs
sendMessage -t Verbs -p hello -k k -c TagB -b broker-a -i 0
checkMsgSendRT -t Verbs -a 3 -s 16
sendMsgStatus -b broker-a -c 2
queryCq -t Verbs -q 1 -i 0 -c 3 -b {broker}
queryCq -t Verbs -q 1 -i 0 -c 3 -b {broker} -g members
statsAll -t Verbs
updateBrokerConfig -b {broker} -k waitTimeMillsInSendQueue -v 500
updateNamesrvConfig -k clusterTest -v true
updateKvConfig -s space -k one -v 1
deleteKvConfig -s space -k one
updateOrderConf -t Verbs -m put -v broker-a:4
updateOrderConf -t Verbs -m get
updateOrderConf -t Verbs -m delete
wipeWritePerm -b broker-a
addWritePerm -b broker-a
resetOffsetByTime -g members -t Verbs -s -1
resetOffsetByTime -g fresh -t Verbs -s 0
resetOffsetByTime -g fresh -t Verbs -s now -b {broker} -q 1 -o 2
resetOffsetByTimeOld -g members -t Verbs -s -1
skipAccumulatedMessage -g members -t Verbs
cloneGroupOffset -s members -d cloned -t Verbs
setConsumeMode -c DefaultCluster -t Verbs -g popmode -m POP -q 4
cleanExpiredCQ -c DefaultCluster
cleanUnusedTopic -c DefaultCluster
deleteExpiredCommitLog -c DefaultCluster
haStatus -b {broker}
setCommitLogReadAheadMode -b {broker} -m 1
getColdDataFlowCtrInfo -b {broker}
updateColdDataFlowCtrGroupConfig -b {broker} -g members -v 100
removeColdDataFlowCtrGroupConfig -b {broker} -g members
exportMetadata -c DefaultCluster -f {out}
exportConfigs -c DefaultCluster -f {out}
allocateMQ -t Verbs -i 1.1.1.1,2.2.2.2
addBroker -c {broker} -b /tmp/none
removeBroker -c {broker} -b DefaultCluster:broker-a:0
resetMasterFlushOffset -b {broker} -o 0
getBrokerEpoch -b broker-a
brokerConsumeStats -b {broker}
producer -b {broker}
topicList -c
library queryConsumeTimeSpan Verbs members
library queryTopicConsumeByWho Verbs
library getConsumeStatus Verbs members
library fetchTopicsByCLuster DefaultCluster Verbs
library earliestMsgStoreTime Verbs broker-a 1
library searchOffset Verbs broker-a 1 0
library minAndMaxOffset Verbs broker-a 1
library minAndMaxOffset Absent broker-a 1
library examineTopicConfig {broker} Verbs
library examineTopicConfig {broker} Absent
library getUserTopicConfig {broker} Verbs
library getUserSubscriptionGroup {broker}
library fetchConsumeStatsInBroker {broker}
library getAllProducerInfo {broker}
library viewBrokerStatsData {broker} TOPIC_PUT_NUMS Verbs
library viewBrokerStatsData {broker} TOPIC_PUT_NUMS Absent
updateKvConfig -s space -k two -v 2
library getKVListByNamespace space
deleteKvConfig -s space -k two
library messageTrackDetail Verbs {id0}
""".splitlines()
# What no two runs have in common, and what stands for it.
_VARIES = [
    (re.compile(pattern), told)
    for pattern, told in (
        (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([.,:]\d+)?", "TIME"),
        (r"\b1[6-9]\d{11}\b", "MILLIS"),
        (r"(?<![\d.])\d+(\.\d+){3}(?![\d.])", "HOST"),
        (r"(?<![\d.])\d+\.\d+(?![\d.])", "RATE"),
        (r"rt=\d+ms", "rt=MILLIS"),
        (r"spentTimeMills=\d+", "spentTimeMills=MILLIS"),
        (r"\b(true|false)\s+\d+\s*$", r"\1 MILLIS"),
        (r"\b[0-9A-F]{32,56}\b", "ID"),
        (r"\b(admin|consumer|toolsPusher)-\d+|@\d+#\d+", r"\1-PID"),
        (r"\s+", " "),
    )
]
# Lines of Java, a row that is there once the consumer has stored a position in its retry topic, and the group that
# `cloneGroupOffset` makes at Reput only.
_LEFT_OUT = re.compile(
    r'(DefaultCluster +)?Verbs +cloned|\s*"cloned\b|%RETRY%members +broker-a |\tat |\t?\.\.\. \d+ more|.*\|-(INFO|WARN|ERROR)'
)


def run(names: str, broker: str, work: pathlib.Path) -> Mapping[str, Sequence[str]]:
    """What each verb prints at a broker, without what varies; topic Verbs is made first."""
    work.mkdir(parents=True, exist_ok=True)
    clients = real_broker.Clients(real_broker.VERSION)

    def told(verb: str, values: Mapping[str, str]) -> str:
        words = [re.sub(r"\{(\w+)\}", lambda name: values[name[1]], word) for word in verb.split(" ")]
        if words[0] == "library":
            return clients.run("AdminLibrary", names, *words[1:]).replace(",\n", "\n")  # JSON, whose rows have no order
        return clients.run(real_broker.MQADMIN, *words, "-n", names)

    values = {"broker": broker, "out": str(work)}
    remoting.create_topic(int(broker.rpartition(":")[2]), "Verbs", 4)
    known = {broker: "BROKER", names: "NAMES", str(work): "OUT", broker.rpartition(":")[2]: "PORT"}
    sent = clients.run("Verbs", names, str(MESSAGE_COUNT))
    for number, offset_id, unique_key in re.findall(r"^sent (\d+) (\S+) (\S+)$", sent, re.MULTILINE):
        known |= {offset_id: f"ID{number}", unique_key: f"UNIQUE{number}"}
        values |= {f"id{number}": offset_id, f"unique{number}": unique_key}
    try:
        return {verb: _without_what_varies(told(verb, values), known) for verb in VERBS}
    finally:
        clients.end()  # its producer and its consumer


def _without_what_varies(text: str, known: Mapping[str, str]) -> Sequence[str]:
    return sorted(filter(None, (_without_varying(line, known) for line in text.splitlines())))


def _without_varying(line: str, known: Mapping[str, str]) -> str:
    if _LEFT_OUT.match(line):
        return ""
    for what, told in known.items():
        line = line.replace(what, told)
    line = re.sub(r"/?127\.0\.0\.1:\d+", "PEER", line)
    for pattern, told in _VARIES:
        line = pattern.sub(told, line)
    return line.strip()


def recorded() -> Mapping[str, Sequence[str]]:
    """What each verb printed at RocketMQ."""
    found: dict[str, list[str]] = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and line[2:] in VERBS:
            found[line[2:]] = []
        elif line:
            found[next(reversed(found))].append(line)
    return found


def main() -> None:
    """Record what RocketMQ prints."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        # As long as a slow machine needs: the default of 200 ms refuses sends there.
        waits = {"waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000}
        settings = {"enablePropertyFilter": "true", **waits}
        real = real_broker.RealRocketMQ(directory / "store", directory / "rocketmq", **settings)
        try:
            real.start()
            found = run(real.namesrv, f"127.0.0.1:{real.broker_port}", directory / "verbs")
        finally:
            real.stop()
    text = "\n".join(f"# {verb}\n" + "".join(f"{line}\n" for line in lines) for verb, lines in found.items())
    RECORDED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
