"""`reput drained` and `reput copy-settings`: a fleet moves from one broker or shard to another (docs/moving.md)."""

import errno
import os
import pathlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli import options
from cli.brokers import AccessKey, SecretFile, open_broker
from cli.exits import PARTIAL, Exit, store_failure, usage_error, warn
from cli.options import OutputFormat
from store.errors import StoreError
from store.format.delivery.delay_offset_file import TRANSACTION_GROUP
from store.format.delivery.pop_records import REVIVE_GROUP, REVIVE_PREFIX
from store.format.topic import DLQ_PREFIX, HALF_TOPIC, PERM_INHERIT, PERM_READ, RETRY_PREFIX, is_system_topic

if TYPE_CHECKING:
    from reput_client import ServiceStatus
    from services.rocketmq.remoting import Broker
    from store.format.delivery.consumer_files import OffsetTable

TIMEOUT_SECONDS = 10.0
COLUMNS = ["what", "consumer_group", "topic", "queue_id", "message_count", "broker_name"]
# Groups of the broker itself: what they have not read waits for a verdict, or was popped and not acknowledged.
OWN_GROUPS = {TRANSACTION_GROUP: "transaction", REVIVE_GROUP: "popped"}
# Of the state of a broker: "where the level is, where its queue ends", and messages on the wheel and before it.
_DELAY_LEVEL = re.compile(r"scheduleMessageOffset_(\d+)")
TIMER_COUNTS = ("timerCongestNum", "timerOffsetBehind")
BEHIND_BYTES = ("dispatchBehindBytes",)
# What a shard's followers do not know yet may be anything.
FOLLOWERS = frozenset(("consumequeue", "consumer", "schedule"))
SETTINGS_FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")

IgnoredGroups = Annotated[
    list[str] | None, typer.Option("--ignore-group", metavar="GROUP", help="A group that will not read on; repeat it.")
]


class QueueEnds(NamedTuple):
    """The first message of a queue, and the position of the next one."""

    min_offset: int
    max_offset: int


def drained(
    *,
    broker: Annotated[
        str,
        typer.Option("--broker", "-b", metavar="HOST:PORT", help="A broker of RocketMQ; else the gateway's shards."),
    ] = "",
    access_key: AccessKey = "",
    secret_file: SecretFile = None,
    ignored_groups: IgnoredGroups = None,
    output: options.Output = OutputFormat.TABLE,
    address: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT_SECONDS,
) -> int:
    """Tell whether a broker, or the shards of a gateway, may be stopped: no group has a message to read there, and none waits
    for its time, for the verdict of its transaction, or for an acknowledgement.

    Prints what is left. Exit 0 when nothing is, 1 when something is. Look again while messages are still sent there.
    A broker with ACLs wants requests that are signed by an administrator (`admin: true`, a Super user).
    """
    from cli.printing import print_rows

    ignored = frozenset(ignored_groups or ())
    is_partial = False
    if broker:
        rows, unread = _of_broker(broker, access_key, secret_file, ignored)
    else:
        if access_key or secret_file is not None:
            usage_error("--access-key and --secret-file sign requests to a broker: give --broker, too")
        rows, unread, is_partial = _of_shards(address, timeout, ignored)
    if unread:
        warn(f"messages that no group has a position for, so they do not count: {', '.join(unread)}")
    empty = "nothing is left" if not is_partial else "nothing is left, as far as the shards answered"
    print_rows("left", rows, COLUMNS, output, empty=empty)
    if is_partial:
        warn(PARTIAL)
        return Exit.PARTIAL
    return Exit.NOTHING_FOUND if rows else Exit.FOUND


def left_at_broker(
    positions: "OffsetTable",
    ends: Mapping[str, Mapping[int, QueueEnds]],
    state: Mapping[str, str],
    ignored_groups: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """What is left at a broker, as rows.

    Args:
        positions: of its groups; a queue without one is read from its first message.
        ends: of the queues, by topic and queue.
        state: its figures about itself, by name (`scheduleMessageOffset_3`, `timerCongestNum`, ...).
        ignored_groups: groups that do not count.
    """
    own = {(TRANSACTION_GROUP, HALF_TOPIC)} | {(REVIVE_GROUP, t) for t in ends if t.startswith(REVIVE_PREFIX)}
    rows = []
    for group, topic in sorted(positions.keys() | own):
        # A group of the broker has positions in its own notes, too, and ignores messages that are done.
        is_note = group in OWN_GROUPS and (group, topic) not in own
        if is_note or group in ignored_groups:
            continue
        what = OWN_GROUPS.get(group, "retry" if topic.startswith(RETRY_PREFIX) else "unread")
        known = positions.get((group, topic), {})
        for queue_id, (first, end) in sorted(ends.get(topic, {}).items()):
            count = end - max(known.get(queue_id, first), first)
            if count > 0:
                rows.append(_row(what, count, topic, queue_id, group))
    for name, text in sorted(state.items()):
        if (level := _DELAY_LEVEL.fullmatch(name)) is not None:
            due, _, behind_last = text.partition(",")
            if (count := int(behind_last) - int(due)) > 0:
                rows.append(_row(f"delay level {level[1]}", count))
    for what, names in (("timer", TIMER_COUNTS), ("queues are behind, in bytes", BEHIND_BYTES)):
        if (count := sum(int(state.get(name, "0")) for name in names)) > 0:
            rows.append(_row(what, count))
    return rows


def _row(
    what: str, count: int, topic: str = "", queue_id: int | None = None, group: str = "", broker_name: str = ""
) -> dict[str, Any]:
    return dict(zip(COLUMNS, (what, group, topic, queue_id, count, broker_name), strict=True))


def _of_broker(
    address: str, access_key: str, secret_file: pathlib.Path | None, ignored: frozenset[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """What is left at a broker, and topics with messages that no group reads."""
    from services.rocketmq.codes import RequestCode
    from store.format.delivery.consumer_files import decode_offsets
    from store.format.topic import decode_topic_rows

    try:
        asked = open_broker(address, access_key, secret_file)
        # What waits, then positions, then ends: a message that is delivered meanwhile still counts.
        state = asked.runtime_info()
        positions = decode_offsets(asked.call(RequestCode.GET_ALL_CONSUMER_OFFSET))
        topics = decode_topic_rows(asked.call(RequestCode.GET_ALL_TOPIC_CONFIG)).topics
        ends = {topic: _ends_of(asked, topic) for topic in topics}
    except StoreError as error:
        raise store_failure(error) from error
    unread = _unread({topic: queues.values() for topic, queues in ends.items()}, {topic for _, topic in positions})
    return left_at_broker(positions, ends, state, ignored), unread


def _unread(ends: Mapping[str, Iterable[QueueEnds]], read: Set[str]) -> list[str]:
    """The topics with messages that are not among those that a group reads, in order."""
    return [
        topic
        for topic, queues in sorted(ends.items())
        if topic not in read
        and not is_system_topic(topic)
        and not topic.startswith(DLQ_PREFIX)
        and any(end > first for first, end in queues)
    ]


def _ends_of(broker: "Broker", topic: str) -> dict[int, QueueEnds]:
    """The ends of the queues of a topic."""
    from services.rocketmq import fastjson
    from services.rocketmq.codes import RequestCode

    table = fastjson.loads(broker.call(RequestCode.GET_TOPIC_STATS_INFO, topic=topic)).get("offsetTable", {})
    return {
        queue.members()["queueId"]: QueueEnds(int(row["minOffset"]), int(row["maxOffset"]))
        for queue, row in table.items()
    }


def _of_shards(address: str, timeout: float, ignored: frozenset[str]) -> tuple[list[dict[str, Any]], list[str], bool]:
    """What is left at the shards of a gateway, topics with messages that no group reads, and whether some did not answer.

    Raises:
        CliError: the caller may not see every topic and group, so what is left may be hidden from it.
    """
    from cli.client import query_client
    from cli.groups import warn_missing
    from reput_client import Completeness, GroupNotFoundError

    with query_client(address, timeout) as client:
        installation = client.installation()  # before the questions that followers answer
        if not installation.sees_everything:
            usage_error(
                "the gateway leaves out topics or groups that you may not see, and messages of them may be left",
                'Sign in as a client with admin = ["*"] and without a groups line (docs/security.md).',
            )
        rows, is_partial = _behind(installation.services)
        listed = client.consumer_groups()
        is_partial = warn_missing(listed.shards) or is_partial
        read = set()
        for name in sorted({each.consumer_group for each in listed.groups}):
            try:
                details = client.consumer_group(name)
            except GroupNotFoundError:
                continue  # it was deleted meanwhile
            is_partial = warn_missing(details.shards) or is_partial
            read |= {queue.topic for queue in details.queues}
            for queue in details.queues if name not in ignored else ():
                is_partial = is_partial or queue.lag_count < 0  # it is not known
                what = "retry" if queue.topic.startswith(RETRY_PREFIX) else "unread"
                for kind, count in ((what, queue.lag_count), ("popped", queue.in_flight_count)):
                    if count > 0:
                        rows.append(_row(kind, count, queue.topic, queue.queue_id, name, queue.broker_name))
        for what, pages in (
            ("waiting", client.scheduled_messages()),
            ("transaction", client.pending_transactions()),
        ):
            counts: dict[tuple[str, str], int] = {}
            for each in pages:
                key = each.topic, each.broker_name
                counts[key] = counts.get(key, 0) + 1
            rows += [_row(what, n, topic, broker_name=name) for (topic, name), n in sorted(counts.items())]
            is_partial = is_partial or pages.completeness is Completeness.PARTIAL
        topics = client.topics()
        ends = {each.topic: [QueueEnds(row.min_offset, row.max_offset) for row in each.queues] for each in topics}
        is_partial = is_partial or topics.completeness is Completeness.PARTIAL
    return rows, _unread(ends, read), is_partial


def _behind(services: "Sequence[ServiceStatus]") -> tuple[list[dict[str, Any]], bool]:
    """The followers that do not know the whole log yet, as rows, and whether a service did not answer."""
    ends = {each.broker_name: each.log_end_offset for each in services if each.service == "commitlog"}
    rows = [
        _row(f"{each.service} is behind, in bytes", behind, broker_name=each.broker_name)
        for each in services
        if each.service in FOLLOWERS
        and each.error is None
        and (behind := ends.get(each.broker_name, 0) - each.next_offset) > 0
    ]
    return rows, any(each.error is not None for each in services)


def copy_settings(
    *,
    source: Annotated[
        pathlib.Path, typer.Option("--from", help="The store root that has them: of a broker, a mirror or Reput.")
    ],
    target: Annotated[pathlib.Path, typer.Option("--to", help="The new store root, of a broker or of Reput.")],
    write_only: Annotated[
        bool, typer.Option("--write-only", help="Topics are not readable yet, so that the old messages are read first.")
    ] = False,
) -> int:
    """Give a new store the topics and groups of another one, with every group at the begin of every queue.

    A shard or broker that starts on the new store is no surprise to a fleet: producers find its topics, and no group can begin
    behind its first message. The new store must have no `config` yet.
    """
    from store.files.file_system import RealFileSystem
    from store.files.json_state import write_bytes_atomic

    files = {}
    for name in SETTINGS_FILES[:2]:
        path = source / "config" / name
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            usage_error(f"{path} cannot be read: {error.strerror}", "Give the root of a store that was served before.")
    try:
        contents = settings_of_new_store(
            files["topics.json"],
            files["subscriptionGroup.json"],
            write_only=write_only,
            positions=_positions_in(source),
            time_millis=time.time_ns() // 1_000_000,
        )
    except StoreError as error:
        raise store_failure(error) from error
    config, scratch, fs = target / "config", target / "config.new", RealFileSystem()
    try:
        if config.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        # All of them or none: a second run refuses a `config` that is there.
        for name, data in contents.items():
            write_bytes_atomic(fs, scratch / name, data)
        fs.rename(scratch, config)
        fs.fsync_dir(target)
    except OSError as error:
        usage_error(f"{config} cannot be made: {error.strerror}", "Give the root of a store that is not there yet.")
    except StoreError as error:
        raise store_failure(error) from error
    print(f"{config}: {', '.join(contents)}")
    return Exit.FOUND


def _positions_in(source: pathlib.Path) -> bytes:
    path = source / "config" / "consumerOffset.json"
    return path.read_bytes() if path.exists() else b'{"offsetTable":{}}'


def settings_of_new_store(
    topics: bytes, groups: bytes, *, write_only: bool, positions: bytes, time_millis: int
) -> dict[str, bytes]:
    """The files of `config/` for a new store, by name: the topics and groups of another one.

    Args:
        topics, groups, positions: `topics.json`, `subscriptionGroup.json` and `consumerOffset.json` of the other store.
        write_only: topics but those of retries and dead letters may not be read yet.
        time_millis: now (ms since 1970).

    Raises:
        StoreCorruptedError: a file is damaged.
    """
    from dataclasses import replace

    from store.format.config_json import OWN_MEMBER, dump_document, load_document
    from store.format.delivery.consumer_files import decode_groups, decode_offsets
    from store.format.topic import decode_topic_table, encode_topic_table, is_system_group

    rows = {
        name: replace(row, perm=row.perm & ~PERM_READ) if write_only and not name.startswith("%") else row
        for name, row in decode_topic_table(topics).items()
        if not _is_of_each_broker(name, row.perm)
    }
    begins = {
        f"{topic}@{group}": {str(queue_id): 0 for queue_id in range(rows[topic].read_queue_count)}
        for group, topic in sorted(decode_offsets(positions))
        if topic in rows and not is_system_group(group)
    }
    # No file says that this project wrote it: that would say that a state of groups in the log is newer.
    settings = {name: value for name, value in load_document(groups).items() if name != OWN_MEMBER}
    known = decode_groups(groups)
    settings["subscriptionGroupTable"] = {
        name: row
        for name, row in settings.get("subscriptionGroupTable", {}).items()
        if name in known and not is_system_group(name)
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": time_millis}
    return {
        "topics.json": encode_topic_table(rows, None, time_millis=time_millis),
        "subscriptionGroup.json": dump_document(settings),
        "consumerOffset.json": dump_document({"dataVersion": version, "offsetTable": begins}),
    }


def _is_of_each_broker(topic: str, perm: int) -> bool:
    """Whether a broker makes the topic by itself: one of the system, or one that others inherit from."""
    return is_system_topic(topic) or topic.startswith("RMQ_SYS_") or bool(perm & PERM_INHERIT)
