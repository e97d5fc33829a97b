"""The commands of transcripts about one store: append, crash, recover, query.

A story runs on the real log, the real builders and the gateway's own queries, over files in memory that know which bytes are
durable. The clock moves by one second with each command, and nothing is flushed unless a command asks for it.

    start [SETTING=value ...]          opens the store as its services do at a start
    append topic= [queue=] [key=] [unique_key=] [body=] [count=] [sync=no] [deduplicate=yes]
    build                              the builders apply what may be shown
    stop                               a clean end
    kill                               the process ends; what it wrote stays
    power-cut seed=                    what was not flushed is torn at random, by the seed
    tear bytes=                        the last bytes of the log become zeros, as after a torn write
    damage at=                         flips one bit of the log
    query by-key|by-unique-key topic= key=
    query by-id id=
    query by-offset topic= queue= offset= [count=]
    topics
"""

from pathlib import Path
from typing import Any

from gateway.ports.deadline import Deadline
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_key, query_by_unique_key
from gateway.queries.by_offset_msg_id import query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.list_topics import list_topics
from gateway.queries.page import PageEntry, PageTokens
from reput.message.v1.message_pb2 import Completeness, NewMessage
from store.errors import StoreError
from store.format.host import Host
from store.format.message_id import encode_offset_msg_id
from tests.scenarios.transcript import Command
from tests.torture.local_shard import LocalShard
from tests.torture.memory_files import MemoryFileSystem

SHOWN_ROOT = "STORE"  # in answers, instead of the temporary directory
BEGIN_MILLIS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STORE_HOST = Host("127.0.0.1", 10911)
BORN_HOST = Host("10.0.0.9", 4711)
NEVER_MILLIS = 60_000  # the setting's maximum, longer than any story
PAGE_SIZE = 64


class StoreStory:
    """One store through its starts and ends.

    Args:
        root: the store's path; its files are in memory, its locks are real.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fs = MemoryFileSystem()
        self._fs.mkdirs(root)
        self._shard: LocalShard | None = None
        self._now_millis = BEGIN_MILLIS
        self._message_count = 0
        self._fan_out = FanOut(1)
        self._tokens = PageTokens("a secret")

    def close(self) -> None:
        """End what is open."""
        if self._shard is not None:
            self._shard.close()
        self._fan_out.close()

    def answer(self, command: Command) -> str:
        """Run one command; an error of the store is an answer."""
        self._now_millis += 1000
        method = getattr(self, "_" + command.words[0].replace("-", "_"))
        try:
            return str(method(*command.words[1:], **command.values))
        except StoreError as error:
            return f"{type(error).__name__}: {error.message}".replace(str(self._root), SHOWN_ROOT)

    @property
    def _open(self) -> LocalShard:
        assert self._shard is not None, "the story has not started the store"
        return self._shard

    def _start(self, **settings: str) -> str:
        numbers: dict[str, Any] = {
            name: int(value) if value.isdecimal() else value == "true" if value in {"true", "false"} else value
            for name, value in settings.items()
        }
        numbers = {"flush_interval_millis": NEVER_MILLIS, **numbers}
        self._shard = LocalShard(self._root, self._fs, clock_millis=lambda: self._now_millis, **numbers)
        found = self._shard.log.opened.found
        cut = "" if found.cut_offset is None else f"\ncut at {found.cut_offset}: {found.cut_why}"
        return f"the log ends at {found.end_offset}{cut}"

    def _append(self, topic: str, count: str = "1", sync: str = "yes", deduplicate: str = "no", **values: str) -> str:
        message = NewMessage(topic=topic, body=values.get("body", "hello").encode())
        if "queue" in values:
            message.queue_id = int(values["queue"])
        if "key" in values:
            message.keys.extend(values["key"].split())
        messages = []
        for _ in range(int(count)):
            self._message_count += 1
            messages.append(NewMessage())
            messages[-1].CopyFrom(message)
            messages[-1].unique_key = values.get("unique_key", f"UK{self._message_count:04}")
        receipts = self._open.log.opened.appends.append_messages(
            messages, sync=sync == "yes", born_host=BORN_HOST, deduplicate=deduplicate == "yes"
        )
        return "\n".join(
            f"{topic}/{receipt.queue_id} queue_offset={receipt.queue_offset} commit_log_offset={receipt.commit_log_offset}"
            + (" (it was stored before)" if receipt.deduplicated else "")
            for receipt in receipts
        )

    def _build(self) -> str:
        self._open.catch_up()
        return f"queues and index are built up to {self._open.queues.progress.next_offset}"

    def _stop(self) -> str:
        self._open.close()
        self._shard = None
        return "stopped"

    def _kill(self) -> str:
        return self._end_with(self._fs.copy(), "killed")

    def _power_cut(self, seed: str) -> str:
        return self._end_with(self._fs.power_cut(int(seed), self._root), "the power is back")

    def _end_with(self, left: MemoryFileSystem, word: str) -> str:
        self._stop()  # on the files that nobody sees any more
        self._fs = left
        return word

    def _log_files(self) -> list[Path]:
        return [path for path in self._fs.paths() if path.parent == self._root / "commitlog"]

    def _tear(self, bytes: str) -> str:
        for path in sorted(self._log_files(), reverse=True):
            data = self._fs.bytes_of(path)
            end = len(data.rstrip(b"\0"))
            if end:
                begin = end - int(bytes)
                self._fs.put(path, data[:begin] + b"\0" * (len(data) - begin))
                return f"{path.name} is zeros from byte {begin} on"
        return "the log is empty"

    def _damage(self, at: str) -> str:
        offset = int(at)
        for path in sorted(self._log_files(), reverse=True):
            if int(path.name) <= offset:
                data = bytearray(self._fs.bytes_of(path))
                data[offset - int(path.name)] ^= 1
                self._fs.put(path, bytes(data))
                return f"one bit of byte {offset} is another"
        return "the log has no such byte"

    def _query(self, mode: str, **values: str) -> str:
        shards = Shards([self._open.shard()], self._fan_out)
        deadline = Deadline.after(60)
        if mode == "by-id":
            offset_msg_id = encode_offset_msg_id(STORE_HOST, int(values["offset"]))
            return _line(query_by_offset_msg_id(shards, offset_msg_id, "", "", deadline))
        if mode == "by-offset":
            pulled = query_by_queue_offset(
                shards,
                values["topic"],
                int(values["queue"]),
                int(values["offset"]),
                broker_name="",
                page_size_asked=int(values.get("count", "1")),
                deadline=deadline,
            )
            return _lines(pulled.entries, Completeness.Name(pulled.completeness).removeprefix("COMPLETENESS_"))
        page: dict[str, Any] = {"page_size_asked": PAGE_SIZE, "page_token": "", "deadline": deadline}
        if mode == "by-key":
            found = query_by_key(shards, self._tokens, values["topic"], values["key"], TimeWindow(), **page)
        else:
            found = query_by_unique_key(shards, self._tokens, values["topic"], values["key"], **page)
        return _lines(found.entries, Completeness.Name(found.completeness).removeprefix("COMPLETENESS_"))

    def _topics(self) -> str:
        shards = Shards([self._open.shard()], self._fan_out)
        answer = list_topics(shards, self._tokens, PAGE_SIZE, "", Deadline.after(60))
        return "\n".join(
            f"{row.topic}: "
            + ", ".join(f"{queue.queue_id} {queue.min_offset}..{queue.max_offset}" for _, queue in row.queues)
            for row in answer.topics
        )


def _lines(entries: "tuple[PageEntry, ...]", completeness: str) -> str:
    return "\n".join([*map(_line, entries), completeness])


def _line(entry: PageEntry) -> str:
    record = entry.record
    return (
        f"{record.topic}/{record.queue_id} queue_offset={record.queue_offset} "
        f"commit_log_offset={record.commit_log_offset} keys={','.join(record.keys)}"
    )
