"""Replicas of one shard in this process: logs on directories, served over gRPC on loopback, with a record in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commitlog_svc.append.records import AppendReceipt
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication.leading.leadership import ElectedLeadership
from commitlog_svc.replication.leading.leadership_rules import LeaseTimes
from commitlog_svc.replication.leading.view import Role
from commitlog_svc.replication.replica import Replica
from commitlog_svc.servicer import CommitLogServicer, add_to_server
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.channel import open_channel
from services.coordination.port import MemoryRecordStore
from services.serving.server import ServiceServer
from store.files.file_system import FileSystem
from tests.commitlog_svc.support import BORN_HOST, new_message
from tests.support.waiting import wait_until

TIMES = LeaseTimes(lease_seconds=1.0, margin_seconds=0.2, renew_seconds=0.1, jitter_seconds=0.1)
FILE_BYTES = 64 << 10
BROKER = "broker-a"


class Node:
    """One replica in one life; `Shard.start` makes it.

    Attributes:
        restart_reason: why it has to end, None while it need not.
    """

    def __init__(self, shard: "Shard", name: str, fs: FileSystem | None = None, **settings: Any) -> None:
        self.name = name
        self.root = shard.root / name
        self.restart_reason: str | None = None
        values = {"file_size_bytes": FILE_BYTES, "broker_name": BROKER, "address": "127.0.0.1:0"} | settings
        given = CommitLogSettings(store=self.root, **values)
        self.log = CommitLog(self.root, given, fs)
        self.server = ServiceServer("commitlog", given)
        self._stopped: threading.Thread | None = None
        self._open(shard, given)

    def _open(self, shard: "Shard", given: CommitLogSettings) -> None:
        self.replica = Replica(
            self.name, given.broker_name, self.log, given.replica_limits, open_channel, self._note_restart
        )
        servicer = CommitLogServicer(self.log, given.broker_name, given.store_host, replica=self.replica)
        self.server.add("reput.commitlog.v1.CommitLogService", add_to_server, servicer)
        self.address = self.server.start()
        self.log.recover()
        self.leadership = ElectedLeadership(
            self.name,
            {"commitlog": self.address},
            shard.store,
            lambda: self.log.epochs.last,
            may_create=True,
            times=TIMES,
            store_id=self.log.store_id,
        )
        self.leadership.start()
        self.replica.start(self.leadership)

    def _note_restart(self, why: str) -> None:
        self.restart_reason = why

    @property
    def status(self) -> pb.GetStatusResponse:
        from commitlog_svc.answers import status_answer

        return status_answer(self.log, BROKER, self.replica)

    @property
    def leads(self) -> bool:
        return self.status.role == "leader"

    @property
    def end_offset(self) -> int:
        return self.log.status.end_offset

    @property
    def confirm_offset(self) -> int:
        return self.log.status.confirm_offset

    def append(
        self, *bodies: bytes, replicated: bool = True, topic: str = "orders", **fields: Any
    ) -> list[AppendReceipt]:
        messages = [new_message(body, topic, **fields) for body in bodies]
        return self.log.opened.appends.append_messages(messages, sync=True, born_host=BORN_HOST, replicated=replicated)

    def records(self) -> bytes:
        """The bytes of the log up to its end."""
        files = self.log._files
        return b"".join(part for _, part in files.iterate(files.first_offset, self.end_offset, 1 << 20))

    def stop(self) -> None:
        """Ends as the process does on SIGTERM."""
        if self._stopped is None:
            self._stopped = threading.Thread(target=self.server.serve_until_stopped)
            self._stopped.start()
            self.replica.close()
            self.leadership.close()
            self.log.close()
            self.server.stop()
            self._stopped.join()


class Shard:
    """Replicas that share a record.

    Args:
        root: each replica has a directory of its name in it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = MemoryRecordStore()
        self.nodes: dict[str, Node] = {}

    def start(self, name: str, fs: FileSystem | None = None, **settings: Any) -> Node:
        """Starts a replica, anew when it has run before."""
        if name in self.nodes:
            self.nodes[name].stop()
        self.nodes[name] = Node(self, name, fs, **settings)
        return self.nodes[name]

    def start_all(self, *names: str, **settings: Any) -> list[Node]:
        """Starts replicas, the first one leads, and waits until all are in sync."""
        first = self.start(names[0], **settings)
        wait_until(lambda: first.leads, "the first replica leads")
        nodes = [first, *(self.start(name, **settings) for name in names[1:])]
        wait_in_sync(first, *names)
        return nodes

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()


@contextmanager
def open_shard(root: Path) -> Iterator[Shard]:
    shard = Shard(root)
    try:
        yield shard
    finally:
        shard.stop()


def wait_in_sync(leader: Node, *names: str) -> None:
    """Returns when exactly these replicas are in sync."""
    wait_until(lambda: sorted(leader.status.in_sync) == sorted(names), f"{names} are in sync")


def wait_equal(*nodes: Node) -> None:
    """Returns when all logs end where the first one does and show as much."""
    end_offset = nodes[0].end_offset
    wait_until(lambda: {node.end_offset for node in nodes} == {end_offset}, "the logs are equal")
    wait_until(lambda: {node.confirm_offset for node in nodes} == {end_offset}, "all is confirmed everywhere")


__all__ = ["BROKER", "FILE_BYTES", "TIMES", "Node", "Role", "Shard", "open_shard", "wait_equal", "wait_in_sync"]
