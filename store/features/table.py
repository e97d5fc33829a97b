"""The features that a store of RocketMQ 4.9 to 5.5 may use: by which sign each is recognised, and what Reput does about it.

One table. The start of every service, fsck, export and the pipeline refuse by it; status, log and metrics name features by it;
docs/features.md is tested against it. A feature is one of:

    supported    read and written as RocketMQ does
    in part      served; what is not is refused by name or said in the answer, and its files are left alone
    only read    a writable start is refused; --read-only and --follow serve the store
    refused      no start: messages would be missing, or would be answered wrongly, without a word

Sources: `MessageStoreConfig`, `BrokerConfig`, `StorePathConfigHelper`, `BrokerPathConfigHelper`, `TopicAttributes`, `CQType`,
`CompactionStore`, `RocksDBConsumeQueueStore`, `MessageRocksDBStorage`, `PopConsumerRocksdbStore`, `config.v1` and `config.v2`
of RocketMQ 5.5.0 and 5.3.3; `DLedgerConfig`.

refuse_unsupported: whether a directory may be served as a store root, and which features its store uses. A root may be
missing, empty, RocketMQ's, or ours (which is RocketMQ's with `reput/` in it). Anything else that has content is refused before
a byte is written: it may be a home directory, or a store with a feature that the table refuses.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from store.errors import UnsupportedStoreError
from store.features.signs import TOPIC_ATTRIBUTES, StoreSigns, read_signs
from store.files.file_system import FileSystem
from store.format.topic import MESSAGE_TYPE_ATTRIBUTE, is_light_queue

QUEUE_TYPE_ATTRIBUTE = "queue.type"
CLEANUP_POLICY_ATTRIBUTE = "cleanup.policy"
# Names of an evidence that a text shows.
EVIDENCE_SHOWN = 3
EVIDENCE_CHARACTERS_SHOWN = 64
HELD_TOPICS, HELD_STORE = "topics", "store"
# Of more topics than this the answers of all topics say that messages may be elsewhere: a text takes some 500 bytes.
HELD_TOPIC_COUNT_MAX = 1_000

Find = Callable[[StoreSigns], Sequence[str]]


class Support(StrEnum):
    """See the top of this file."""

    SUPPORTED = "supported"
    PART = "in part"
    ONLY_READ = "only read"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Feature:
    """One row.

    Attributes:
        name: of the metric and of answers.
        title: in words.
        versions: of RocketMQ that can write it.
        sign: how it is recognised, in words.
        support: what Reput does, in a word.
        here: what Reput does, in a sentence.
        to_do: what an operator can do; empty where nothing has to be done.
        find: the places in the store that show it: paths under the root, or names of topics; none when it is not used.
        hides_queues: the evidence are topics whose queues are not served: calls by queue are refused, lists are PARTIAL.
        takes_messages: whether the topics of the evidence take messages.
        holds_files: log files do not expire by age while it is used.
        holds_messages: messages may be there that the log has no more, and Reput does not read them: answers of queries are
            PARTIAL. HELD_TOPICS: of the topics of the evidence; HELD_STORE: of any topic; empty: none.
    """

    name: str
    title: str
    versions: str
    sign: str
    support: Support
    here: str
    to_do: str
    find: Find
    hides_queues: bool = False
    takes_messages: bool = True
    holds_files: bool = False
    holds_messages: str = ""


@dataclass(frozen=True, slots=True)
class FoundFeature:
    """A feature that a store uses, and where."""

    feature: Feature
    evidence: tuple[str, ...]

    @property
    def text(self) -> str:
        """The feature, where it was found, what Reput does, and what to do: a sentence each."""
        names = [name[:EVIDENCE_CHARACTERS_SHOWN] for name in self.evidence[:EVIDENCE_SHOWN]]
        more = len(self.evidence) - len(names)
        where = ", ".join(names) + (f" and {more} more" if more else "")
        parts = [f"{self.feature.title} ({where}): {self.feature.here}", self.feature.to_do]
        return "; ".join(part for part in parts if part)


def found_features(signs: StoreSigns) -> tuple[FoundFeature, ...]:
    """The features of the table that a store uses, in the table's order. Pure."""
    found = ((feature, tuple(feature.find(signs))) for feature in FEATURES)
    return tuple(FoundFeature(feature, evidence) for feature, evidence in found if evidence)


def hidden_queues(found: Iterable[FoundFeature]) -> dict[str, str]:
    """The topics whose queues are not served, each with the reason and what to do."""
    return {
        topic: _of_topic(topic, each.feature) for each in found if each.feature.hides_queues for topic in each.evidence
    }


def closed_topics(found: Iterable[FoundFeature]) -> dict[str, str]:
    """The topics that take no messages, likewise."""
    return {
        topic: _of_topic(topic, each.feature)
        for each in found
        if not each.feature.takes_messages
        for topic in each.evidence
    }


def held_topics(found: Iterable[FoundFeature]) -> list[str]:
    """The topics for which log files do not expire by age."""
    return [topic for each in found if each.feature.holds_files for topic in each.evidence]


def held_elsewhere(found: Iterable[FoundFeature]) -> dict[str, tuple[str, str]]:
    """The topics of which messages may be in a feature that is not read, each with its name and a text; "" is any topic."""
    held: dict[str, tuple[str, str]] = {}
    for each in found:
        name, kind = each.feature.name, each.feature.holds_messages
        if kind == HELD_STORE or (kind and len(each.evidence) > HELD_TOPIC_COUNT_MAX):
            held.setdefault("", (name, f"the store uses {each.text}"))
        elif kind:
            held |= {topic: (name, _of_topic(topic, each.feature)) for topic in each.evidence}
    return held


def with_batch_topics(found: Iterable[FoundFeature], topics: Collection[str]) -> tuple[FoundFeature, ...]:
    """The features of a store, with batch queues for these topics: its log has inner batches of them."""
    rows = {each.feature.name: each for each in found}
    if topics:
        known = rows[BATCH_QUEUES.name].evidence if BATCH_QUEUES.name in rows else ()
        rows[BATCH_QUEUES.name] = FoundFeature(BATCH_QUEUES, tuple(sorted({*known, *topics})))
    return tuple(rows[feature.name] for feature in FEATURES if feature.name in rows)


def hidden_by_record(topic: str) -> str:
    """Why the queues of a topic are not served that has a record with the bit of an inner batch in its sysFlag."""
    return _of_topic(topic, BATCH_QUEUES)


def hidden_by_name(topic: str) -> str:
    """Why the queues of this name are not served; empty for ordinary names."""
    return _of_topic(topic, feature_named("light-queues")) if is_light_queue(topic) else ""


def feature_named(name: str) -> Feature:
    """The row of that name."""
    return next(feature for feature in FEATURES if feature.name == name)


def _of_topic(topic: str, feature: Feature) -> str:
    name = topic[:EVIDENCE_CHARACTERS_SHOWN]
    return f"topic {name} uses {feature.title}, which are supported in part: {feature.here}; {feature.to_do}"


# -- signs


def _with_attribute(name: str, value: str) -> Find:
    """Topics whose attribute has that value, as RocketMQ compares it; one of TOPIC_ATTRIBUTES."""
    assert (name, value) in TOPIC_ATTRIBUTES
    return lambda signs: sorted(topic for topic, row in signs.topics.items() if row.get(name) == value)


def _in_root(pattern: str) -> Find:
    matches = re.compile(pattern).fullmatch
    return lambda signs: sorted(name for name in signs.root if matches(name))


def _in_config(*names: str) -> Find:
    return lambda signs: [f"config/{name}" for name in names if name in signs.config]


def _listed(*names: str) -> Find:
    return lambda signs: [name for name in names if name in signs.listed]


def _batch_topics(signs: StoreSigns) -> Sequence[str]:
    by_attribute = _with_attribute(QUEUE_TYPE_ATTRIBUTE, "BatchCQ")(signs)
    return sorted({*by_attribute, *signs.listed.get("batchconsumequeue", ())})


def _compaction_topics(signs: StoreSigns) -> Sequence[str]:
    by_attribute = _with_attribute(CLEANUP_POLICY_ATTRIBUTE, "COMPACTION")(signs)
    return sorted({*by_attribute, *signs.listed.get("compaction/compactionLog", ())})


def _light_queues(signs: StoreSigns) -> Sequence[str]:
    folders = [f"consumequeue/{name}" for name in signs.queue_folders if is_light_queue(name)]
    return [*folders, *_in_config("lmqConsumerOffset.json")(signs)]


def _rocksdb_queues(signs: StoreSigns) -> Sequence[str]:
    found = _in_root("consumequeue_r|consumequeue_rocksdb|rocksdb")(signs)
    # Without useSeparateStorePathForRocksdbCQ the database lies in the directory of the ordinary queues.
    return [*found, *("consumequeue" for name in signs.queue_folders if name == "CURRENT")]


FEATURES: tuple[Feature, ...] = (
    Feature(
        name="dledger",
        title="a log of DLedger",
        versions="4.5 to 5.5",
        sign="a directory `dledger-*/data` with content, alone or beside `commitlog/` (`enableDLegerCommitLog`)",
        support=Support.REFUSED,
        here="its messages are in DLedger's format, which cannot be read, and commitlog/ beside it has only older ones",
        to_do=(
            "let RocketMQ's own clients move the messages to a broker without DLedger (enableDLegerCommitLog=false) and serve "
            "that one; if the old commitlog/ is what you want, copy it with config/ to a new root"
        ),
        find=lambda signs: signs.dledger,
    ),
    Feature(
        name="several-log-paths",
        title="a log in several directories",
        versions="4.8 to 5.5",
        sign="`commitlog/` lacks files between others (`storePathCommitLog` with several paths, `readOnlyCommitLogStorePaths`)",
        support=Support.REFUSED,
        here="the log has files in other directories, which are not known here, or files are lost",
        to_do="stop the broker and move the files of all its paths into one commitlog/, or bring lost ones back from a copy",
        # Not here: recovery, fsck and scans find the gap, and damage looks the same. Their errors name this feature, too.
        find=lambda signs: (),
    ),
    Feature(
        name="rocksdb-queues",
        title="queues in RocksDB",
        versions="5.2 to 5.5",
        sign=(
            "`consumequeue_rocksdb/`, `consumequeue_r/` or `rocksdb/`, or the file `consumequeue/CURRENT` "
            "(`storeType=defaultRocksDB`, `rocksdbCQDoubleWriteEnable`, `combineCQLoadingCQTypes`)"
        ),
        support=Support.REFUSED,
        here="only stores with storeType=default and one kind of queues are supported",
        to_do=(
            "let the broker write files only (storeType=default, rocksdbCQDoubleWriteEnable=false), stop it, and move the "
            "directory of RocksDB out of the root"
        ),
        find=_rocksdb_queues,
    ),
    Feature(
        name="rocksdb-config",
        title="configuration in RocksDB",
        versions="5.2 to 5.5",
        sign=(
            "`config/topics/`, `config/subscriptionGroups/`, `config/consumerOffsets/`, `config/metadata/` or `config/rdb/` "
            "(`storeType=defaultRocksDB`, `configManagerVersion=v2`, `useSingleRocksDBForAllConfigs`)"
        ),
        support=Support.REFUSED,
        here="topics, groups and positions are in RocksDB, which cannot be read, and config/*.json is missing or old",
        to_do=(
            "write them as JSON with `mqadmin rocksDBConfigToJson` and `mqadmin exportMetadataInRocksDB` into config/, and "
            "move the directories out of the root"
        ),
        find=_in_config("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"),
    ),
    Feature(
        name="rocksdb-messages",
        title="timers, transactions or index in RocksDB",
        versions="5.5",
        sign=(
            "`rocksdbstore/` with a file `*.sst` or a `*.log` that is not empty "
            "(`timerRocksDBEnable`, `transRocksDBEnable`, `indexRocksDBEnable`); every 5.5 makes the directory"
        ),
        support=Support.REFUSED,
        here="what waits or is indexed is in RocksDB, which cannot be read",
        to_do=(
            "switch it off at the broker (timerRocksDBEnable, transRocksDBEnable, indexRocksDBEnable), let it end what waits, "
            "stop it, and move rocksdbstore/ out of the root"
        ),
        find=lambda signs: [f"rocksdbstore/{name}" for name in signs.rocksdb_files],
    ),
    Feature(
        name="rocksdb-pop",
        title="messages in flight in RocksDB",
        versions="5.3 to 5.5",
        sign="`kvStore/` (`popConsumerKVServiceInit`)",
        support=Support.REFUSED,
        here="what is in flight by POP is in RocksDB, which cannot be read",
        to_do="send the broker the request POP_ROLLBACK, stop it, and move kvStore/ out of the root",
        find=_in_root("kvStore"),
    ),
    Feature(
        name="timer-wheel-snapshots",
        title="snapshots of the timer wheel",
        versions="5.5",
        sign="files `timerwheel.<offset>` (`timerWheelSnapshotFlush`)",
        support=Support.ONLY_READ,
        here="a broker would take the snapshot and not the timers that Reput hands over in timerlog/",
        to_do="start the broker once with timerWheelSnapshotFlush=false, stop it, and move the files timerwheel.* away",
        find=_in_root(r"timerwheel\.[0-9]+"),
    ),
    Feature(
        name="batch-queues",
        title="batch queues",
        versions="5.0 to 5.5",
        sign=(
            "the topic attribute `queue.type=BatchCQ`, a folder in `batchconsumequeue/`, or a record with the bit 0x80 of "
            "sysFlag (INNER_NUM, INNER_BASE)"
        ),
        support=Support.PART,
        here=(
            "messages are found by key and id, and lists of topics have the ranges of its queues; otherwise these queues are "
            "not served, the topic takes no messages, and no file of consumequeue/ or batchconsumequeue/ is written for it"
        ),
        to_do="read it by queue with a broker",
        find=_batch_topics,
        hides_queues=True,
        takes_messages=False,
    ),
    Feature(
        name="light-queues",
        title="light message queues",
        versions="4.9 to 5.5",
        sign=(
            "folders `consumequeue/%LMQ%*`, `config/lmqConsumerOffset.json`, the properties INNER_MULTI_DISPATCH and "
            "INNER_MULTI_QUEUE_OFFSET (`enableLmq`, `enableMultiDispatch`)"
        ),
        support=Support.PART,
        here=(
            "queues %LMQ%... are read by offset, by time and by pulls, built from the log, and messages sent through Reput "
            "get into them with the setting enable_lmq; the files of a broker in consumequeue/ are left as they are"
        ),
        to_do="set REPUT_COMMITLOG_ENABLE_LMQ where clients send to %LMQ%...",
        find=_light_queues,
    ),
    Feature(
        name="compaction",
        title="compacted topics",
        versions="5.1 to 5.5",
        sign="the topic attribute `cleanup.policy=COMPACTION`, or a folder in `compaction/compactionLog/`",
        support=Support.PART,
        here=(
            "all messages that the log has are served, not only the newest of each key; those that only compaction/ has are "
            "not found; the topic takes no messages, and log files do not expire by age"
        ),
        to_do="let a broker compact and expire, or delete the topic",
        find=_compaction_topics,
        takes_messages=False,
        holds_files=True,
        holds_messages=HELD_TOPICS,
    ),
    Feature(
        name="lite-topics",
        title="LITE topics",
        versions="5.5",
        sign="the topic attribute `message.type=LITE`",
        support=Support.SUPPORTED,
        here="taken without a setting, and delivered to those that subscribe to their lite topics (ADR 0157)",
        to_do="",
        find=_with_attribute(MESSAGE_TYPE_ATTRIBUTE, "LITE"),
    ),
    Feature(
        name="priority-topics",
        title="PRIORITY topics",
        versions="5.5",
        sign="the topic attribute `message.type=PRIORITY`",
        support=Support.SUPPORTED,
        here="taken, and delivered to consumers that pop by their priority (ADR 0153)",
        to_do="",
        find=_with_attribute(MESSAGE_TYPE_ATTRIBUTE, "PRIORITY"),
    ),
    Feature(
        name="static-topics",
        title="static topics",
        versions="5.0 to 5.5",
        sign="topics in `config/topicQueueMapping.json`",
        support=Support.PART,
        here="queues and offsets are those of this broker, not the logical ones that span brokers",
        to_do="ask a broker for logical queues and offsets",
        find=lambda signs: signs.static_topics,
    ),
    Feature(
        name="tiered-storage",
        title="tiered storage",
        versions="5.1 to 5.5",
        sign="`tieredstore/` with content, or `config/tieredStoreMetadata.json`",
        support=Support.PART,
        here="the log is served; what only the tiered storage still has is not found",
        to_do="ask a broker for older messages",
        find=lambda signs: [*_listed("tieredstore")(signs), *_in_config("tieredStoreMetadata.json")(signs)],
        holds_messages=HELD_STORE,
    ),
    Feature(
        name="controller",
        title="controller mode",
        versions="5.0 to 5.5",
        sign="`epochFileCheckpoint` (`enableControllerMode`)",
        support=Support.PART,
        here="the log is served; what Reput appends belongs to the newest epoch, and no controller hears of it",
        to_do="write only to the store of the last master, while all brokers of the group are stopped",
        find=_in_root(r"epochFileCheckpoint"),
    ),
    Feature(
        name="queue-ext",
        title="ConsumeQueueExt",
        versions="4.2 to 5.5",
        sign="`consumequeue_ext/` with content (`enableConsumeQueueExt`)",
        support=Support.SUPPORTED,
        here="read, and written when it is switched on (ADR 0066)",
        to_do="",
        find=_listed("consumequeue_ext"),
    ),
    Feature(
        name="timers",
        title="timers",
        versions="5.0 to 5.5",
        sign="`timerlog/`, `timerwheel`, `config/timercheck` (`timerWheelEnable`)",
        support=Support.SUPPORTED,
        here="taken over and handed back",
        to_do="",
        find=_in_root(r"timerlog|timerwheel"),
    ),
    Feature(
        name="rocksdb-empty",
        title="an unused database",
        versions="5.5",
        sign="`rocksdbstore/` without such files",
        support=Support.SUPPORTED,
        here="every start of 5.5 makes it; it is left alone",
        to_do="",
        find=lambda signs: [] if signs.rocksdb_files else _in_root(r"rocksdbstore")(signs),
    ),
)

BATCH_QUEUES = feature_named("batch-queues")


# Names that a file system or a volume creates in an empty directory.
IGNORED_NAMES = frozenset(("lost+found", ".snapshot", ".DS_Store"))
STORE_NAMES = frozenset(
    ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "reput", "compaction", "timerwheel")
)


def refuse_unsupported(
    fs: FileSystem, directory: Path, *, writes: bool = False, may_be_empty: bool = True
) -> tuple[FoundFeature, ...]:
    """The features that the store uses; UnsupportedStoreError when the directory is not a store, or one that is refused.

    Args:
        fs: the disk port.
        directory: the root.
        writes: whether anything of the store is going to be written.
        may_be_empty: whether a store may begin there later.
    """
    if fs.exists(directory) and not fs.is_dir(directory):
        raise _unsupported(directory, "is not a directory")
    found = refuse_features(fs, directory, writes=writes)
    names = [name for name in fs.listdir(directory) if name not in IGNORED_NAMES]
    if not may_be_empty and not names:
        raise _unsupported(directory, "is empty, so there is nothing to serve read-only")
    if names and "commitlog" not in names and not STORE_NAMES.issuperset(names):
        strangers = ", ".join(name for name in names if name not in STORE_NAMES)[:200]
        raise _unsupported(directory, f"is not a RocketMQ store: it has no commitlog/ but {strangers}")
    return found


def refuse_features(fs: FileSystem, directory: Path, *, writes: bool = False) -> tuple[FoundFeature, ...]:
    """The features that a store uses; UnsupportedStoreError naming the first one that is refused (metadata `feature`)."""
    found = found_features(read_signs(fs, directory))
    for each in found:
        support = each.feature.support
        if support is Support.REFUSED or (writes and support is Support.ONLY_READ):
            read_only = "" if support is Support.REFUSED else ", or serve it with --read-only"
            raise UnsupportedStoreError(
                f"{directory} uses {each.text}{read_only}", directory=directory, feature=each.feature.name
            )
    return found


def _unsupported(directory: Path, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(f"{directory} {why}: name the root of a RocketMQ store", directory=directory)
