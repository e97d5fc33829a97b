"""A RocketMQ `broker.conf` as a settings file: Java properties, and the names among them that are settings of ours.

    # broker.conf                      becomes
    brokerName=broker-a                broker_name = broker-a
    mappedFileSizeCommitLog=1048576    [commitlog] file_size_bytes = 1048576
    flushDiskType=SYNC_FLUSH           [commitlog] flush_mode = sync
    fileReservedTime=48                [commitlog] file_reserved_seconds = 172800
    listenAddress=...                  listed as ignored

Names are those of RocketMQ 5.3.3's MessageStoreConfig and BrokerConfig.
"""

import dataclasses
from collections.abc import Mapping

from services.settings.setting_names import SHARED
from store.errors import InvalidSettingError

LISTEN_PORT_DEFAULT = "10911"
BROKER_IP_DEFAULT = "127.0.0.1"
FLUSH_MODES = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}
QUEUE_UNIT_SIZE_BYTES = 20
SECONDS_AN_HOUR = 3600
MILLIS_NAMES = frozenset(("transactionTimeOut", "transactionCheckInterval"))

# RocketMQ's name -> our component and name, where the value means the same.
ALIASES: dict[str, tuple[str, str]] = {
    "storePathRootDir": (SHARED, "store"),
    "brokerName": (SHARED, "broker_name"),
    "brokerClusterName": ("consumer", "cluster_name"),
    "mappedFileSizeCommitLog": ("commitlog", "file_size_bytes"),
    "mappedFileSizeTimerLog": ("commitlog", "timer_log_file_size_bytes"),
    "flushDiskType": ("commitlog", "flush_mode"),
    "flushIntervalCommitLog": ("commitlog", "flush_interval_millis"),
    "maxMessageSize": ("commitlog", "message_size_bytes_max"),
    "enabledAppendPropCRC": ("commitlog", "properties_crc"),
    "autoCreateTopicEnable": ("commitlog", "auto_create_topic"),
    "enableMultiDispatch": ("commitlog", "enable_lmq"),
    "defaultTopicQueueNums": ("commitlog", "default_topic_queue_count"),
    "messageDelayLevel": (SHARED, "delay_levels"),
    "timerMaxDelaySec": ("commitlog", "timer_max_delay_seconds"),
    "fileReservedTime": ("commitlog", "file_reserved_seconds"),
    "deleteWhen": ("commitlog", "delete_when_hours"),
    "diskMaxUsedSpaceRatio": ("commitlog", "disk_clean_ratio_percent"),
    "diskSpaceCleanForciblyRatio": ("commitlog", "disk_clean_forcibly_ratio_percent"),
    "diskSpaceWarningLevelRatio": ("commitlog", "disk_full_ratio_percent"),
    "cleanFileForciblyEnable": ("commitlog", "clean_file_forcibly_enabled"),
    "deleteCommitLogFilesInterval": ("commitlog", "delete_files_interval_millis"),
    "deleteFileBatchMax": ("commitlog", "delete_file_batch_count_max"),
    "cleanResourceInterval": ("commitlog", "clean_resource_interval_millis"),
    "transactionTimeOut": ("schedule", "transaction_timeout_seconds"),
    "transactionCheckInterval": ("schedule", "transaction_check_interval_seconds"),
    "transactionCheckMax": ("schedule", "transaction_check_count_max"),
    "mappedFileSizeConsumeQueue": ("consumequeue", "file_size_bytes"),
    "enableConsumeQueueExt": ("consumequeue", "ext"),
    "mappedFileSizeConsumeQueueExt": ("consumequeue", "ext_file_size_bytes"),
    "maxHashSlotNum": ("index", "hash_slot_count"),
    "maxIndexNum": ("index", "entry_count_max"),
    "messageIndexEnable": ("index", "enabled"),
}


# Of Java's long: what is longer is no number there, and the check of the setting says so.
NUMBER_DIGITS_MAX = 19


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerConf:
    """The content of a broker.conf.

    Attributes:
        values: (component, name) -> value and the RocketMQ names that it came from.
        ignored_names: names that are no setting here, in the file's order.
    """

    values: dict[tuple[str, str], tuple[str, str]]
    ignored_names: tuple[str, ...]


def read_broker_conf(text: str, source: str) -> BrokerConf:
    """The settings in a broker.conf.

    Args:
        text: the file's text.
        source: the file's name, for errors.

    Raises:
        InvalidSettingError: a value that RocketMQ refuses, too.
    """
    properties = parse_java_properties(text)
    values: dict[tuple[str, str], tuple[str, str]] = {}
    for rocketmq_name, (component, name) in ALIASES.items():
        if rocketmq_name in properties:
            value = _translate(rocketmq_name, properties[rocketmq_name].strip(), source)
            values[component, name] = (value, rocketmq_name)
    if (
        "brokerClusterName" in properties
    ):  # three components have the name, each for a part of what RocketMQ does with it
        for component in ("commitlog", "gateway"):
            values[component, "cluster_name"] = values["consumer", "cluster_name"]
    host_names = [name for name in ("brokerIP1", "listenPort") if name in properties]
    if host_names:
        ip = properties.get("brokerIP1", BROKER_IP_DEFAULT).strip()
        port = properties.get("listenPort", LISTEN_PORT_DEFAULT).strip()
        host = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        values[SHARED, "store_host"] = (host, "+".join(host_names))
    used = {*ALIASES, *host_names}
    return BrokerConf(values, tuple(name for name in properties if name not in used))


def parse_java_properties(text: str) -> dict[str, str]:
    r"""Names and values of a Java properties file, as `java.util.Properties.load` reads them.

    A name ends at the first `=`, `:` or blank that no backslash escapes; lines starting with `#` or `!` are comments; a
    line that ends in an odd number of backslashes goes on in the next; `\t \n \r \f \uXXXX` are what they are in Java.
    """
    properties: dict[str, str] = {}
    lines = iter(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for first_line in lines:
        line = first_line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        name_end = 0
        while name_end < len(line) and line[name_end] not in "=: \t\f":
            name_end += 2 if line[name_end] == "\\" else 1
        rest = line[name_end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        properties[_unescape(line[:name_end])] = _unescape(rest)
    return properties


def _translate(name: str, value: str, source: str) -> str:
    if name == "flushDiskType":
        if value not in FLUSH_MODES:
            raise InvalidSettingError(
                f"{source}: flushDiskType is {value!r}, but only ASYNC_FLUSH and SYNC_FLUSH are possible",
                name=name,
                source=source,
            )
        return FLUSH_MODES[value]
    is_number = value.isascii() and value.isdigit() and len(value) <= NUMBER_DIGITS_MAX
    if name == "mappedFileSizeConsumeQueue" and is_number:
        # RocketMQ rounds up to whole units.
        return str(-(-int(value) // QUEUE_UNIT_SIZE_BYTES) * QUEUE_UNIT_SIZE_BYTES)
    if name in MILLIS_NAMES and is_number:
        return str(int(value) / 1000)
    if name == "fileReservedTime" and is_number:
        return str(int(value) * SECONDS_AN_HOUR)
    return value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    escapes: Mapping[str, str] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 >= len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "u" and len(text) >= at + 6 and _is_hex(text[at + 2 : at + 6]):
            out.append(chr(int(text[at + 2 : at + 6], 16)))
            at += 6
        else:
            out.append(escapes.get(text[at + 1], text[at + 1]))
            at += 2
    return "".join(out)


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)
