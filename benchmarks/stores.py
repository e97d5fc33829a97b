"""Stores that the append engine makes once and that are kept: a growing one for queries, logs for rebuilds and restarts.

    STORES/messages-1000000/{store,samples.tsv,made.json}

A measurement uses a copy, so a kept store never changes. A kept store that was made with another recipe or other settings is
made again.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import processes
from benchmarks.sides.our_side import BUILT_SECONDS_MAX, OurStack, running_stack
from benchmarks.sizes import Sizes
from reput.schedule.v1.schedule_service_pb2 import GetStatusRequest, GetStatusResponse
from services.calling.client import ServiceClient
from services.rpcs.schedule import GET_STATUS
from store.errors import StoreError

TOPIC = "Bench"
RECIPE = 1  # raise it when this file makes stores in another way
QUERY_BODY_BYTES, LOG_BODY_BYTES = 128, 1024
BATCH_COUNT = 512
SAMPLE_COUNT = 5_000
STORE_HOST = "127.0.0.1:10911"
KEEP_HOURS = 24 * 365 * 10  # no file of a kept store expires
SPARE_BYTES = 5 << 30  # left free on the disk
TIMER_MAX_DELAY_SECONDS_MAX = 100 * 366 * 86_400  # the largest that commitlog_svc allows
TIMERS_KNOWN_SECONDS_MAX = 7_200.0  # every record is read once
DUE_MILLIS = 3_786_912_000_000  # 2090-01-01
DUE_SPREAD_MILLIS = 30 * 86_400_000


class NoRoomError(Exception):
    """The disk has no room for a store."""


@dataclass(frozen=True)
class KeptStore:
    """A kept store.

    Attributes:
        directory: contains the store root `store`.
        message_count: messages in the store.
        log_end_offset: commit-log offset where its log ends.
        log_file_bytes: size of one log file.
    """

    directory: pathlib.Path
    message_count: int
    log_end_offset: int
    log_file_bytes: int

    @property
    def root(self) -> pathlib.Path:
        """The store root; do not write to it."""
        return self.directory / "store"

    @property
    def samples(self) -> pathlib.Path:
        """Tab-separated lines of some messages: key, unique key, commit-log offset, queue id, queue offset, id."""
        return self.directory / "samples.tsv"


def settings(sizes: Sizes, log_file_bytes: int) -> dict[str, str]:
    """The settings with which our services build and serve these stores."""
    return {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(log_file_bytes),
        "REPUT_INDEX_HASH_SLOT_COUNT": str(sizes.index_slot_count),
        "REPUT_INDEX_ENTRY_COUNT_MAX": str(sizes.index_entry_count),
        "REPUT_STORE_HOST": STORE_HOST,
        "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": str(KEEP_HOURS * 3600),
        "REPUT_LOG_LEVEL": "warning",
    }


def rocketmq_settings(sizes: Sizes, log_file_bytes: int) -> dict[str, object]:
    """The same settings for a RocketMQ broker."""
    return {
        "mappedFileSizeCommitLog": log_file_bytes,
        "maxHashSlotNum": sizes.index_slot_count,
        "maxIndexNum": sizes.index_entry_count,
        "fileReservedTime": KEEP_HOURS,
        "flushDiskType": "ASYNC_FLUSH",
        "transientStorePoolEnable": "false",
        "diskMaxUsedSpaceRatio": 99,
    }


def message_store(stores: pathlib.Path, sizes: Sizes, count: int, say: Callable[[str], None]) -> KeptStore:
    """A store of `count` small messages, queues and index built."""
    return _kept(stores / f"messages-{count}", sizes, QUERY_BODY_BYTES, lambda _, made: made >= count, say)


def log_store(stores: pathlib.Path, sizes: Sizes, log_bytes: int, say: Callable[[str], None]) -> KeptStore:
    """A store whose log has `log_bytes` of 1 KiB messages, queues and index built."""
    return _kept(stores / f"log-{log_bytes}", sizes, LOG_BODY_BYTES, lambda end, _: end >= log_bytes, say)


def timer_store(stores: pathlib.Path, sizes: Sizes, count: int, say: Callable[[str], None]) -> KeptStore:
    """A store of `count` small messages that all wait for times of 30 days, decades ahead; the schedule service knows them."""
    return _kept(stores / f"timers-{count}", sizes, QUERY_BODY_BYTES, lambda _, made: made >= count, say, timed=True)


def timer_settings(sizes: Sizes) -> dict[str, str]:
    """The settings for a store of `timer_store`."""
    return settings(sizes, sizes.log_file_bytes) | {
        "REPUT_COMMITLOG_TIMER_MAX_DELAY_SECONDS": str(TIMER_MAX_DELAY_SECONDS_MAX),
        "REPUT_SCHEDULE_ROLL_AFTER_SECONDS": str(KEEP_HOURS * 1800),  # a kept store does not change by its age
    }


def wait_until_timers_known(stack: OurStack, count: int, seconds: float) -> None:
    """Returns once the schedule service knows that so many messages wait by the timer."""
    _wait_for_timers(stack, f"{count:,} timers", lambda status: status.timer_count >= count, seconds)


def wait_until_timers_delivered(stack: OurStack, count: int, seconds: float) -> None:
    """Returns once the schedule service has delivered so many messages since its start."""
    _wait_for_timers(stack, f"{count:,} deliveries", lambda status: status.delivered_count >= count, seconds)


def _wait_for_timers(
    stack: OurStack, what: str, is_reached: Callable[[GetStatusResponse], bool], seconds: float
) -> None:
    client = ServiceClient("schedule", stack.addresses["schedule"])

    def are_there() -> bool:
        try:
            status = client.call(GET_STATUS, GetStatusRequest())
        except StoreError:  # it is still starting
            return False
        return not status.catching_up and is_reached(status)

    try:
        processes.wait_for(are_there, what, seconds)
    finally:
        client.close()


def _kept(
    directory: pathlib.Path,
    sizes: Sizes,
    body_bytes: int,
    is_done: Callable[[int, int], bool],
    say: Callable[[str], None],
    *,
    timed: bool = False,
) -> KeptStore:
    file_bytes = sizes.log_file_bytes
    serving = timer_settings(sizes) if timed else settings(sizes, file_bytes)
    recipe = {
        "recipe": RECIPE,
        "body_bytes": body_bytes,
        "log_file_bytes": file_bytes,
        "settings": serving,
        "made_by": "benchmarks/stores.py: commitlog_svc's engine, then the builders",
    }
    note = directory / "made.json"
    if note.exists():
        made = json.loads(note.read_text())
        if {name: made.get(name) for name in recipe} == recipe:
            return KeptStore(directory, made["message_count"], made["log_end_offset"], file_bytes)
    fresh = directory.with_name(f"{directory.name}.making")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
    fresh.mkdir(parents=True)
    say(f"making {directory.name}")
    try:
        count, end_offset = _append(fresh, file_bytes, body_bytes, is_done, say, timed=timed)
        say(f"building queues and index of {directory.name}")
        with running_stack(fresh / "store", serving, single_process=sizes.single_process) as stack:
            stack.wait_until_built(BUILT_SECONDS_MAX)
            if timed:
                wait_until_timers_known(stack, count, TIMERS_KNOWN_SECONDS_MAX)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    (fresh / "made.json").write_text(
        json.dumps(recipe | {"message_count": count, "log_end_offset": end_offset}, indent=1) + "\n"
    )
    fresh.rename(directory)
    return KeptStore(directory, count, end_offset, file_bytes)


def _append(
    directory: pathlib.Path,
    file_bytes: int,
    body_bytes: int,
    is_done: Callable[[int, int], bool],
    say: Callable[[str], None],
    *,
    timed: bool,
) -> tuple[int, int]:
    from commitlog_svc.commit_log import CommitLog
    from commitlog_svc.settings import CommitLogSettings
    from reput.message.v1 import message_pb2
    from store.format.host import Host
    from store.format.message_id import encode_offset_msg_id

    root = directory / "store"
    host = Host("127.0.0.1", 10911)
    body = random.Random(1).randbytes(body_bytes)
    chosen = random.Random(2)
    due = random.Random(4)
    options = CommitLogSettings(
        store=root,
        file_size_bytes=file_bytes,
        store_host=STORE_HOST,
        timer_max_delay_seconds=TIMER_MAX_DELAY_SECONDS_MAX,
    )
    log = CommitLog(root, options)
    log.recover()
    samples: list[str] = []
    count = 0
    try:
        while not is_done(log.status.end_offset, count):
            if count % (BATCH_COUNT * 200) == 0:
                _check_room(directory)
                say(f"making {directory.name.removesuffix('.making')}: {count:,} messages")
            messages = [
                message_pb2.NewMessage(topic=TOPIC, body=body, keys=[f"key-{i}"], tags="TagA")
                for i in range(count, count + BATCH_COUNT)
            ]
            if timed:
                for message in messages:
                    message.delivery_time.FromMilliseconds(DUE_MILLIS + due.randrange(DUE_SPREAD_MILLIS))
            receipts = log.opened.appends.append_messages(messages, sync=False, born_host=host)
            for i, receipt in enumerate(receipts, count):
                # Reservoir sampling: each message has the same chance to be a sample.
                place = i if i < SAMPLE_COUNT else chosen.randrange(i + 1)
                if place < SAMPLE_COUNT:
                    values = (
                        f"key-{i}", receipt.unique_key, receipt.commit_log_offset, receipt.queue_id,
                        receipt.queue_offset, encode_offset_msg_id(host, receipt.commit_log_offset),
                    )  # fmt: skip
                    samples[place : place + 1] = ["\t".join(map(str, values))]
            count += len(receipts)
        end_offset = log.status.end_offset
    finally:
        log.close()
    random.Random(3).shuffle(samples)
    (directory / "samples.tsv").write_text("".join(line + "\n" for line in samples))
    return count, end_offset


def _check_room(directory: pathlib.Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < SPARE_BYTES:
        raise NoRoomError(f"only {free >> 30} GiB of the disk are free")


def copy_of(kept: KeptStore, target: pathlib.Path) -> pathlib.Path:
    """A writable copy of a kept store.

    Full files of the log are hard links to those of the kept store: they are never written again.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _check_room(target.parent)
    for path in sorted(kept.root.iterdir()):
        if path.name == "commitlog":
            _share_log(kept, target)
        else:
            _copy(path, target / path.name)
    return target


def log_only_root(kept: KeptStore, target: pathlib.Path, *, is_ours: bool) -> pathlib.Path:
    """A store root with the log of a kept store and the abort marker, without queues and index.

    Its files are shared as in `copy_of`.

    Args:
        kept: the store.
        target: the root.
        is_ours: as our own services leave it when they are killed: with the durable mark, so that recovery need not read
            the whole log from the disk again. There is no snapshot; every record is walked.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _share_log(kept, target)
    if (kept.root / "config").is_dir():
        _copy(kept.root / "config", target / "config")
    (target / "abort").touch()
    if is_ours:
        own = pathlib.Path("reput", "commitlog")
        (target / own).mkdir(parents=True)
        _copy(kept.root / own / "durable", target / own / "durable")
    return target


def _share_log(kept: KeptStore, target: pathlib.Path) -> None:
    (target / "commitlog").mkdir()
    for path in sorted((kept.root / "commitlog").iterdir()):
        if int(path.name) + kept.log_file_bytes <= kept.log_end_offset:
            os.link(path, target / "commitlog" / path.name)
        elif int(path.name) < kept.log_end_offset:
            _copy(path, target / "commitlog" / path.name)


def warm(root: pathlib.Path) -> None:
    """Reads the log once, so that it is in the page cache for each side."""
    for path in sorted((root / "commitlog").iterdir()):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", "--reflink=auto", str(source), str(target)], check=True)
